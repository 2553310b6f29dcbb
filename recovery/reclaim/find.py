"""Files that can be removed from a full disk, by the class of their cost.

    class  what
    A      what the next start, or its first retention run, deletes without reading it
    B      the cache of remote indexes, which a broker fetches again
    C      backups and journals of eoctl
    D      `-future` and `-stray` directories, if a live replica has their records
    E      local segments that are in remote storage
    F      the oldest segments

Classes A to C cost no record, and a broker that starts afterwards does the same as without.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.backups import default_place
from recovery.changes.journals.listing import KeptJournal, list_journals, why_it_stays
from recovery.changes.plans.file_facts import data_bytes_of, freed_bytes
from recovery.trim.plan import known_high_watermark
from storage.dirs.compaction import REPORTED_RATIO, uncompacted
from storage.dirs.log_dir import StoppedState
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError
from storage.file_names import METADATA_TOPIC, REMOTE_INDEX_CACHE_NAME, DirState, FileSuffix
from storage.formats import offset_index, time_index
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition_files import FileEntry, SegmentFiles

CLASSES = "ABCDEF"
DIRECT_CLASSES = "ABC"  # removed at once. The others are removed by plans, with backups
NOTHING = "nothing that the next start leaves"
_BLOCK_BYTES = 4096


class Reclaimable(NamedTuple):
    """Files of one directory that can be removed for one reason.

    Attributes:
        path: shell patterns that match these files and no others, or a directory.
        files: in a safe order: a broker may start after any of them.
        kept_bytes: the files are truncated to these sizes. Empty: they are removed.
        directory: the files are all that is in it, and it is removed with them. For classes E and F
            the partition.
        offset: for classes E and F, the target of the trim.
        journal: the files are a journal with its backups.
        why: the reason.
        costs: what is lost with them.
        is_taken_by_start: the next start deletes them anyway.
    """

    reclaim_class: str
    path: str
    files: tuple[str, ...]
    size_bytes: int
    freed_bytes: int
    why: str
    costs: str = NOTHING
    is_taken_by_start: bool = True
    kept_bytes: tuple[int, ...] = ()
    directory: str = ""
    offset: int | None = None
    journal: KeptJournal | None = None


_SUFFIXES = {
    FileSuffix.DELETED: (
        "deleted already; the broker had no time to unlink it",
        "the last chance of records that were deleted by mistake",
        True,
    ),
    FileSuffix.TMP: ("left by a write that died; never read", NOTHING, False),
    FileSuffix.PART: ("left by a snapshot that was not finished; never read", NOTHING, False),
}


def find_reclaimable(
    selected: Selected, image: ClusterImage | None = None
) -> Iterator[Reclaimable]:
    """Yield the files of class A in one partition directory, or nothing if it cannot be listed.

    The metadata log is never changed. Files in `-future` and `-stray` directories are of class D.
    """
    directory = selected.partition
    if directory.name.topic == METADATA_TOPIC:
        return
    if directory.name.state is DirState.DELETE:
        yield _whole_directory(directory.path)
        return
    if directory.name.state is not DirState.LIVE:
        return
    try:
        partition = Partition.of(selected, image)
    except AccessError:
        return
    others = partition.files.others
    for suffix, (why, costs, is_taken) in _SUFFIXES.items():
        found = [each for each in others if each.name.suffix is suffix]
        if found:
            yield _group(found, why, [f"*{suffix}"], costs=costs, is_taken_by_start=is_taken)
    yield from _unfinished(others)
    swapped = {each.name.offset for each in others if each.name.suffix is FileSuffix.SWAP}
    orphans = [each for each in partition.files.orphans if each.name.offset not in swapped]
    if orphans:
        patterns = [f"{each}.*index" for each in dict.fromkeys(map(_number, orphans))]
        yield _group(orphans, "an index without its .log; the next start deletes it", patterns)
    try:
        yield from _below_log_start(partition, image)
        yield from _zero_tails(partition)
    except EoctlError:  # `check` reports it, and nothing of this log is certain
        return


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
    left = [
        each.path
        for each in log_dir.others
        if not each.is_dir and each.file.suffix is FileSuffix.TMP
    ]
    if left:
        yield _made(
            left,
            str(Path(log_dir.path, "*.tmp")),
            _SUFFIXES[FileSuffix.TMP][0],
            is_taken_by_start=False,
        )
    cache = Path(log_dir.path, REMOTE_INDEX_CACHE_NAME)
    cached = _files_below(str(cache)) if cache.is_dir() else []
    if cached:
        yield _made(
            cached,
            f"{cache}/*",
            "indexes of remote segments",
            reclaim_class="B",
            costs="a broker fetches them again",
            is_taken_by_start=False,
        )
    place = default_place(log_dir.path)
    for each in list_journals([place]) if Path(place).is_dir() else ():
        if each.kept_bytes and not why_it_stays(each):
            yield _journal(each)


# --- class A, by reason ---------------------------------------------------------------------------


def _unfinished(others: Sequence[FileEntry]) -> Iterator[Reclaimable]:
    """Yield the new segments of a dead compaction or split, the .swap files first.

    A `.swap` at or above the lowest `.cleaned` is invalid: the next start deletes both (REC-3).
    Without the `.cleaned` files a start accepts the `.swap`. So they go last.
    """
    cleaned = [each for each in others if each.name.suffix is FileSuffix.CLEANED]
    if not cleaned:
        return
    first = min(each.name.offset or 0 for each in cleaned)
    swaps = [each for each in others if each.name.suffix is FileSuffix.SWAP]
    invalid = [each for each in swaps if (each.name.offset or 0) >= first]
    why = "left by a compaction that died; the next start deletes it"
    patterns = ["*.cleaned"]
    if invalid:
        names = ["*.swap"] if len(invalid) == len(swaps) else [e.name.name for e in invalid]
        patterns = [*names, *patterns]
    yield _group([*invalid, *cleaned], why, patterns)


def _below_log_start(partition: Partition, image: ClusterImage | None) -> Iterator[Reclaimable]:
    """Yield whole segments and snapshots that no reader gets any more.

    The first retention run deletes segments below the log start, up to the high watermark. A start
    deletes producer snapshots at or below the log start.
    """
    start_offset = partition.log_start_offset
    end = partition.log_end()
    if start_offset is None or end is None or start_offset > end.offset:
        return  # OFS-1: a start deletes everything, and a repair keeps it
    if partition.remote_range is not None:
        return
    high_watermark = known_high_watermark([partition], image, None)
    limit = min(start_offset, -1 if high_watermark is None else high_watermark)
    below = [files for files, later in pairwise(partition.segments) if later.base_offset <= limit]
    if below:
        entries = [entry for files in below for entry in _files_of(files)]
        yield _group(
            entries,
            f"below the log start {start_offset}; the first retention run deletes it",
            [f"{files.base_offset:020d}.*" for files in below],
            is_taken_by_start=False,
        )
    gone = {files.snapshot.path for files in below if files.snapshot is not None}
    snapshots = [
        each
        for each in partition.files.snapshots
        if (each.name.offset or 0) <= start_offset and each.path not in gone
    ]
    if snapshots:
        names = [each.name.name for each in snapshots]
        yield _group(snapshots, "a producer snapshot not above the log start", names)


def _zero_tails(partition: Partition) -> Iterator[Reclaimable]:
    """Yield the zeros at the end of the last segment, which a start recovers after a crash."""
    end = partition.log_end()
    if end is None or partition.stopped is not StoppedState.UNCLEAN:
        return
    tails: list[tuple[FileEntry, int]] = []
    if end.verdict.kind is VerdictKind.PREALLOCATED:
        tails.append((end.files.log, end.valid_bytes))
    for entry, entry_bytes in (
        (end.files.offset_index, offset_index.ENTRY_BYTES),
        (end.files.time_index, time_index.ENTRY_BYTES),
    ):
        if entry is not None:
            data_bytes = data_bytes_of(entry.path, 0, entry.file_bytes)
            tails.append((entry, -(-data_bytes // entry_bytes) * entry_bytes))
    sizes = {
        entry: freed_bytes(entry.path) - -(-kept // _BLOCK_BYTES) * _BLOCK_BYTES
        for entry, kept in tails
    }
    for entry, kept in tails:
        if sizes[entry] > 0 and kept < entry.file_bytes:
            found = _group(
                [entry], "zeros at its end; the next start truncates them", [entry.name.name]
            )
            yield found._replace(
                size_bytes=entry.file_bytes - kept, freed_bytes=sizes[entry], kept_bytes=(kept,)
            )


def _whole_directory(path: str) -> Reclaimable:
    files = _files_below(path)
    return _made(
        sorted(files, key=lambda each: not each.endswith(".log")),
        path,
        "a deleted replica; the next start goes on deleting it",
        costs="the last chance of a topic that was deleted by mistake",
        directory=path,
    )


def _journal(kept: KeptJournal) -> Reclaimable:
    found = kept.journal
    command = "a run that ended before its first change" if found is None else found.command
    return Reclaimable(
        reclaim_class="C",
        path=kept.path,
        files=tuple(_files_below(kept.path)),
        size_bytes=kept.kept_bytes,
        freed_bytes=kept.kept_bytes,
        why=f"journal and backups of {command}",
        costs="its undo, and the removed bytes that only it has",
        is_taken_by_start=False,
        journal=kept,
    )


# --- parts ----------------------------------------------------------------------------------------


def _files_of(files: SegmentFiles) -> list[FileEntry]:
    entries = (files.log, files.offset_index, files.time_index, files.txn_index, files.snapshot)
    return [each for each in entries if each is not None]


def _group(
    entries: Sequence[FileEntry],
    why: str,
    patterns: Sequence[str],
    *,
    costs: str = NOTHING,
    is_taken_by_start: bool = True,
) -> Reclaimable:
    """Return files of one directory, with patterns for their names."""
    directory = Path(entries[0].path).parent
    return _made(
        [each.path for each in entries],
        " ".join(str(directory / each) for each in patterns),
        why,
        costs=costs,
        is_taken_by_start=is_taken_by_start,
    )


def _made(
    files: Iterable[str],
    path: str,
    why: str,
    *,
    reclaim_class: str = "A",
    costs: str = NOTHING,
    is_taken_by_start: bool = True,
    directory: str = "",
) -> Reclaimable:
    files = tuple(files)
    return Reclaimable(
        reclaim_class=reclaim_class,
        path=path,
        files=files,
        size_bytes=sum(map(_size, files)),
        freed_bytes=sum(map(freed_bytes, files)),
        why=why,
        costs=costs,
        is_taken_by_start=is_taken_by_start,
        directory=directory,
    )


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _files_below(path: str) -> list[str]:
    return [
        str(Path(directory, name))
        for directory, _, names in os.walk(path)
        for name in sorted(names)
    ]


def _number(entry: FileEntry) -> str:
    return entry.name.name.partition(".")[0]
