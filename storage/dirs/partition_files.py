"""The files of one partition directory, grouped by segment. Names and sizes only.

A segment is a `<20 digits>.log`. Its indexes and its producer snapshot have the same number. Files
with a suffix (`.deleted`, `.cleaned`, `.swap`, `.tmp`, `.part`) belong to no segment.
"""

from __future__ import annotations

import os
from errno import EISDIR
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_dir import dangling_link
from storage.errors import AccessError, CorruptError
from storage.file_names import FileKind, FileName, FileSuffix, classify, keeps_from_loading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from storage.dirs.log_dir import Problem


class FileEntry(NamedTuple):
    """A listed file: its path, size and classified name."""

    path: str
    file_bytes: int
    name: FileName


class SegmentFiles(NamedTuple):
    """One segment: its log and the other files with its number."""

    base_offset: int
    log: FileEntry
    offset_index: FileEntry | None
    time_index: FileEntry | None
    txn_index: FileEntry | None
    snapshot: FileEntry | None  # producer state of all offsets below the base offset


class PartitionFiles(NamedTuple):
    """A partition directory at the moment of listing.

    `snapshots` are all producer snapshots by offset, `checkpoints` the KRaft snapshots by offset
    and epoch, `orphans` the indexes without a log. `others` is the rest, including unfinished work
    and `leader-epoch-checkpoint`.
    """

    segments: tuple[SegmentFiles, ...]
    snapshots: tuple[FileEntry, ...]
    checkpoints: tuple[FileEntry, ...]
    orphans: tuple[FileEntry, ...]
    others: tuple[FileEntry, ...]
    problems: tuple[Problem, ...]

    @property
    def log_bytes(self) -> int:
        """The size of all `.log` files of the segments."""
        return sum(each.log.file_bytes for each in self.segments)

    def log_bytes_from(self, offset: int) -> int:
        """Return the size of the `.log` files from an offset on, by their names."""
        later = sum(each.base_offset > offset for each in self.segments)
        first = max(len(self.segments) - later - 1, 0)
        return sum(each.log.file_bytes for each in self.segments[first:])

    def other(self, name: str) -> FileEntry | None:
        """Return the file of that exact name from `others`."""
        return next((each for each in self.others if each.name.name == name), None)


def all_entries(files: PartitionFiles) -> Iterator[FileEntry]:
    """Yield every file of the listing."""
    for each in files.segments:
        of_segment = (each.log, each.offset_index, each.time_index, each.txn_index)
        yield from (entry for entry in of_segment if entry is not None)
    for entries in (files.snapshots, files.checkpoints, files.orphans, files.others):
        yield from entries


_SEGMENT_KINDS = frozenset(
    {FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.SNAPSHOT}
)


def list_partition(path: str | Path) -> PartitionFiles:
    """List a partition directory in one pass.

    Raises:
        AccessError: the directory cannot be listed. A file whose size is unavailable, or which
            breaks DIR-9, is recorded in `problems`.
    """
    problems: list[Problem] = []
    try:
        with os.scandir(path) as entries:
            found = [_file_entry(entry, problems) for entry in entries]
    except OSError as exc:
        raise AccessError(exc, os.fspath(path)) from exc
    return put_together([each for each in found if each is not None], problems)


def put_together(files: Iterable[FileEntry], problems: Iterable[Problem] = ()) -> PartitionFiles:
    """Group the files of a partition directory, from any listing.

    Args:
        files: no directories.
        problems: problems of the listing. Problems of names are added.
    """
    by_kind: dict[FileKind, dict[int, FileEntry]] = {kind: {} for kind in _SEGMENT_KINDS}
    checkpoints: list[FileEntry] = []
    others: list[FileEntry] = []
    reported = [*problems]
    for found in files:
        name = found.name
        is_named = name.suffix is FileSuffix.NONE and name.offset is not None
        if is_named and name.kind is FileKind.CHECKPOINT:
            checkpoints.append(found)
        elif (
            name.suffix
            or name.kind not in _SEGMENT_KINDS
            or name.offset is None
            or not name.has_padded_offset
        ):
            others.append(found)
            reported += _foreign_segment(found)
        else:
            by_kind[name.kind][name.offset] = found
    logs = by_kind[FileKind.LOG]
    segments = tuple(
        SegmentFiles(
            base_offset=base_offset,
            log=logs[base_offset],
            offset_index=by_kind[FileKind.INDEX].get(base_offset),
            time_index=by_kind[FileKind.TIMEINDEX].get(base_offset),
            txn_index=by_kind[FileKind.TXNINDEX].get(base_offset),
            snapshot=by_kind[FileKind.SNAPSHOT].get(base_offset),
        )
        for base_offset in sorted(logs)
    )
    snapshots = by_kind[FileKind.SNAPSHOT]
    orphans = [
        entry
        for kind in (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)
        for base_offset, entry in by_kind[kind].items()
        if base_offset not in logs
    ]
    return PartitionFiles(
        segments=segments,
        snapshots=tuple(snapshots[offset] for offset in sorted(snapshots)),
        checkpoints=tuple(sorted(checkpoints, key=lambda each: each.name.name)),
        orphans=tuple(sorted(orphans)),
        others=tuple(sorted(others)),
        problems=tuple(reported),
    )


def _file_entry(entry: os.DirEntry[str], problems: list[Problem]) -> FileEntry | None:
    """Return the entry with its size.

    None for directories and for files removed since the listing.
    """
    try:
        if entry.is_dir():
            name = classify(entry.name)
            if name.kind is not FileKind.UNKNOWN and name.suffix is FileSuffix.NONE:
                error = IsADirectoryError(EISDIR, "Is a directory", entry.path)
                problems.append(AccessError(error, entry.path))
            return None
        return FileEntry(entry.path, entry.stat().st_size, classify(entry.name))
    except FileNotFoundError:
        problems += dangling_link(entry.path)
        return None
    except OSError as exc:
        problems.append(AccessError(exc, entry.path))
        return None


def _foreign_segment(found: FileEntry) -> list[CorruptError]:
    name = found.name
    is_log = name.kind is FileKind.LOG and not name.suffix
    if not is_log and not keeps_from_loading(name.name):
        return []
    number, _, end = name.name.partition(".")
    return [
        CorruptError(
            f"the name of a .{end} must be a base offset. A broker cannot load the partition",
            check_id="DIR-9",
            pos=0,
            expected="20 digits",
            found=number,
        ).located(found.path)
    ]
