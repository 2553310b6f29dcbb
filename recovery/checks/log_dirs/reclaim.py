"""Removable files on a full disk: a broker would delete them, or never reads them again."""

from __future__ import annotations

import os
import stat
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.compaction import REPORTED_RATIO, uncompacted
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, pasted
from storage.file_names import DirState, FileSuffix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition_files import FileEntry, SegmentFiles


class Reclaimable(NamedTuple):
    """A file or a directory that can be removed while the broker is stopped.

    Attributes:
        size_bytes: the size of its contents, without holes: a preallocated index is mostly holes.
        why: the reason.
        pattern: a shell pattern for it and all other files with the same reason.
    """

    size_bytes: int
    why: str
    path: str
    pattern: str


_SUFFIXES = {
    FileSuffix.DELETED: "deleted already; the broker had no time to unlink it",
    FileSuffix.TMP: "left by a write that died; never read",
    FileSuffix.PART: "left by a snapshot that was not finished; never read",
}
_BACKUPS = "backups of applied plans: eoctl journal prune"
_DIR_STATES = {
    DirState.DELETE: "a deleted replica; the next start goes on deleting it",
    DirState.STRAY: "set aside by the broker, which does not serve it: make sure that the cluster"
    " has the data",
}


def removal_of(found: Reclaimable) -> str:
    """Return the shell command that removes it and all other files with the same reason.

    "": decide first whether it can go.
    """
    if found.why == _BACKUPS:
        return f"eoctl journal prune {pasted(found.path)}"
    if found.why == _DIR_STATES[DirState.STRAY]:
        return ""
    if found.path == found.pattern and Path(found.path).is_dir():
        return f"rm -r {pasted(found.path)}"
    directory = f"{Path(found.path).parent}/"
    names = found.pattern.removeprefix(directory).split(f" {directory}")
    return " ".join(["rm", *(f"{pasted(directory)}{each}" for each in names)])


def find_reclaimable(selected: Selected) -> Iterator[Reclaimable]:
    """Yield the removable files of one partition directory, or nothing if it cannot be listed."""
    directory = selected.partition
    why = _DIR_STATES.get(directory.name.state)
    if why is not None:
        yield _named(directory.path, why, directory.path)
        return
    try:
        partition = Partition.of(selected)
    except AccessError:
        return
    for entry in partition.files.others:
        suffix = entry.name.suffix
        if suffix in _SUFFIXES:
            yield _named(entry.path, _SUFFIXES[suffix], _beside(entry, f"*{suffix}"))
    yield from _unfinished(partition.files.others)
    for entry in partition.files.orphans:
        why = "an index without its .log; the next start deletes it"
        yield _named(entry.path, why, _beside(entry, f"{_number(entry)}.*index"))
    start_offset = partition.local_log_start_offset
    segments = partition.segments
    for files, following in pairwise(segments):
        if start_offset is not None and following.base_offset <= start_offset:
            for entry in _files_of(files):
                why = f"below the log start offset {start_offset}"
                yield _named(entry.path, why, _beside(entry, f"{_number(entry)}.*"))


def find_uncompacted(selected: Selected, image: ClusterImage | None) -> Iterator[str]:
    """Yield the effect that a working cleaner would have on one partition directory."""
    try:
        partition = Partition.of(selected)
        left = uncompacted(partition, image)
    except EoctlError:
        return
    if left is not None and left.segments_count and left.dirty_ratio >= REPORTED_RATIO:
        yield f"{partition.path}: {left.reported()}"


def find_reclaimable_beside(log_dir: LogDir) -> Iterator[Reclaimable]:
    """Yield the removable files at the top level of a log dir, and eoctl's backups next to it."""
    for each in log_dir.others:
        if not each.is_dir and each.file.suffix is FileSuffix.TMP:
            pattern = str(Path(each.path).with_name("*.tmp"))
            yield _named(each.path, _SUFFIXES[FileSuffix.TMP], pattern)
    backups = f"{log_dir.path.rstrip('/')}.eoctl"
    if Path(backups).is_dir():
        yield _named(backups, _BACKUPS, backups)


def _files_of(files: SegmentFiles) -> list[FileEntry]:
    entries = (files.log, files.offset_index, files.time_index, files.txn_index, files.snapshot)
    return [each for each in entries if each is not None]


def _unfinished(others: Sequence[FileEntry]) -> Iterator[Reclaimable]:
    """Yield the new segments of a dead compaction or split, the .swap files first.

    A `.swap` at or above the lowest `.cleaned` is invalid: the next start deletes both (REC-3).
    Never remove only the `.cleaned` file: without it a start accepts the `.swap`.
    """
    cleaned = [each for each in others if each.name.suffix is FileSuffix.CLEANED]
    if not cleaned:
        return
    first = min(each.name.offset or 0 for each in cleaned)
    swaps = [each for each in others if each.name.suffix is FileSuffix.SWAP]
    invalid = [each for each in swaps if (each.name.offset or 0) >= first]
    why = "left by a compaction that died; the next start deletes it"
    patterns = [_beside(cleaned[0], "*.cleaned")]
    if invalid:
        why = "left by a compaction that died: remove the .swap files first; the next start does"
        names = ["*.swap"] if len(invalid) == len(swaps) else [e.name.name for e in invalid]
        patterns = [*(_beside(cleaned[0], each) for each in names), *patterns]
    for entry in (*invalid, *cleaned):
        yield _named(entry.path, why, " ".join(patterns))


def _named(path: str, why: str, pattern: str) -> Reclaimable:
    return Reclaimable(size_bytes=_tree_bytes(path), why=why, path=path, pattern=pattern)


def _beside(entry: FileEntry, name: str) -> str:
    return str(Path(entry.path).with_name(name))


def _number(entry: FileEntry) -> str:
    return entry.name.name.partition(".")[0]


def _tree_bytes(path: str) -> int:
    """Return the size of a file, or of all files below a directory, without unreadable files."""
    total = _content_bytes(path)
    for directory, _, names in os.walk(path):
        total += sum(_content_bytes(str(Path(directory, name))) for name in names)
    return total


def _content_bytes(path: str) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    # Disk blocks differ between file systems. They only show which part of a file is a hole.
    return min(status.st_size, status.st_blocks * 512) if stat.S_ISREG(status.st_mode) else 0
