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

import heapq
import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.backups import default_place, free_bytes
from recovery.changes.journals.listing import (
    KeptJournal,
    list_journals,
    remove_journal,
    why_it_stays,
)
from recovery.changes.plans.file_facts import data_bytes_of, freed_bytes
from recovery.replay.recover_state import first_recovered
from recovery.trim.plan import known_high_watermark, require_trimmable
from storage.dirs.compaction import REPORTED_RATIO, uncompacted
from storage.dirs.discovery import discover
from storage.dirs.log_dir import StoppedState
from storage.dirs.lookup import END_KINDS
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, RefusedError, os_errors
from storage.file_names import (
    LOG_FILE_KINDS,
    METADATA_TOPIC,
    REMOTE_INDEX_CACHE_NAME,
    DirState,
    FileSuffix,
    classify,
)
from storage.files import fsio
from storage.formats import offset_index, time_index
from storage.formats.checkpoint import OFFSET_CHECKPOINT_NAMES
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition import PlacedBatch
    from storage.dirs.partition_files import FileEntry, SegmentFiles
    from storage.files.fsio import FileSystem

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


# --- class D: `-future` and `-stray` directories whose records a live replica has, by offsets and
# checksums. A name is no proof.


_STATES = frozenset({DirState.FUTURE, DirState.STRAY})


def find_copies(
    selected: Sequence[Selected], *, is_elsewhere: bool = False
) -> Iterator[tuple[Reclaimable, str]]:
    """Yield the directories of class D, and why each must stay ("": it may go). Reads all of them.

    Args:
        selected: all given directories.
        is_elsewhere: the user says that `-stray` directories are elsewhere.
    """
    live = [each for each in selected if each.partition.name.state is DirState.LIVE]
    for each in selected:
        name = each.partition.name
        if name.state not in _STATES or name.topic == METADATA_TOPIC:
            continue
        others = [
            other
            for other in live
            if other.partition.name.partition == name.partition
            and (other.partition.name.topic == name.topic or name.topic_may_be_cut)
        ]
        try:
            found = Partition.of(each)
            item = _directory(found, name.state)
            if not item.files:
                continue
            if name.state is DirState.FUTURE:
                yield item, _why_future_stays(found, each, others)
            else:
                yield item, "" if is_elsewhere else _why_stray_stays(found, others)
        except EoctlError as error:
            yield _unread(each, name.state), f"it cannot be read: {error}"


def _directory(partition: Partition, state: DirState) -> Reclaimable:
    """Return the files of the log. The directory stays, with its `partition.metadata`."""
    entries = [
        *(
            entry
            for files in partition.segments
            for entry in (files.log, files.offset_index, files.time_index, files.txn_index)
            if entry is not None
        ),
        *partition.files.snapshots,
        *(
            each
            for each in partition.files.others
            if each.name.suffix is FileSuffix.NONE
            and classify(each.name.name).kind in LOG_FILE_KINDS
        ),
    ]
    is_future = state is DirState.FUTURE
    return Reclaimable(
        reclaim_class="D",
        path=partition.path,
        files=tuple(each.path for each in entries),
        size_bytes=sum(each.file_bytes for each in entries),
        freed_bytes=sum(freed_bytes(each.path) for each in entries),
        why="a replica that is being moved to this disk"
        if is_future
        else "set aside by the broker",
        costs="the move begins again" if is_future else "that copy; a live replica has its records",
        is_taken_by_start=False,
    )


def _unread(selected: Selected, state: DirState) -> Reclaimable:
    return Reclaimable(
        reclaim_class="D",
        path=selected.partition.path,
        files=(),
        size_bytes=0,
        freed_bytes=0,
        why=str(state),
        is_taken_by_start=False,
    )


def _why_future_stays(partition: Partition, selected: Selected, others: Sequence[Selected]) -> str:
    """Return why a `-future` directory must stay."""
    for other in others:
        meta, own = other.log_dir and other.log_dir.meta, selected.log_dir and selected.log_dir.meta
        if meta is None or own is None or meta.node_id != own.node_id:
            continue
        current = Partition.of(other)
        if current.topic_id() is None or current.topic_id() != partition.topic_id():
            continue
        return _why_not_whole(current)
    return "the current replica of this node is not among the given directories"


def _why_not_whole(partition: Partition) -> str:
    """Return why a log does not load completely."""
    reading = partition.read(0)
    for _ in reading:
        pass
    bad = [each for _, each in reading.verdicts if each.kind not in END_KINDS]
    if bad or partition.problems or partition.not_given():
        return f"the current replica {partition.path} is not whole: eoctl check"
    return ""


def _why_stray_stays(partition: Partition, others: Sequence[Selected]) -> str:
    """Return why a `-stray` directory must stay."""
    for other in others:
        if _has_all(Partition.of(other), partition):
            return ""
    if not others:
        return "no live replica of it is among the given directories: it may be the only copy"
    return "no given live replica has all of its batches"


def _has_all(copy: Partition, wanted: Partition) -> bool:
    """Return whether a log has each batch of another, by offsets and checksum."""
    reading, there = wanted.read(0), copy.read(0)
    found: PlacedBatch | None = None
    for each in reading:
        header = each.batch.header
        while found is None or found.batch.header.base_offset < header.base_offset:
            found = next(there, None)
            if found is None:
                return False
        other = found.batch.header
        is_same = (other.base_offset, other.last_offset, other.crc) == (
            header.base_offset,
            header.last_offset,
            header.crc,
        )
        if not is_same or each.batch.crc_ok is False or found.batch.crc_ok is False:
            return False
    return not wanted.problems and not [
        each for _, each in reading.verdicts if each.kind not in END_KINDS
    ]


# --- class F: the oldest whole segments, by the time that retention sees


class OldestSegments(NamedTuple):
    """The oldest segments of one partition that are chosen.

    Attributes:
        offset: the new log start, the end of the last chosen segment.
        oldest_ms: the largest timestamp in the first chosen segment.
    """

    selected: Selected
    offset: int
    oldest_ms: int


def choose_oldest(
    selected: Iterable[Selected],
    image_for: Callable[[LogDir | None], ClusterImage | None],
    wanted_bytes: int,
) -> list[OldestSegments]:
    """Choose the oldest segments of all partitions until they free `wanted_bytes`.

    Compacted topics, topics of coordinators and logs with problems are left out.
    """
    heads: list[tuple[int, int]] = []
    logs: list[tuple[Selected, Partition, int]] = []
    for each in selected:
        name = each.partition.name
        if name.state is not DirState.LIVE or name.topic == METADATA_TOPIC:
            continue
        image = image_for(each.log_dir)
        try:
            partition = Partition.of(each, image)
            require_trimmable(partition, image)
            high_watermark = known_high_watermark([partition], image, None)
        except EoctlError:
            continue
        if high_watermark is None or partition.stopped is StoppedState.LIVE:
            continue
        if _may_go(partition, 0, high_watermark):
            heads.append((_largest_ms(partition, partition.segments[0]), len(logs)))
        logs.append((each, partition, high_watermark))
    heapq.heapify(heads)
    chosen: dict[int, OldestSegments] = {}
    places = [0] * len(logs)
    freed = 0
    while heads and freed < wanted_bytes:
        time_ms, number = heapq.heappop(heads)
        found, partition, high_watermark = logs[number]
        files, later = partition.segments[places[number] :][:2]
        places[number] += 1
        freed += _freed(files)
        oldest_ms = chosen[number].oldest_ms if number in chosen else time_ms
        chosen[number] = OldestSegments(found, later.base_offset, oldest_ms)
        if _may_go(partition, places[number], high_watermark):
            following = partition.segments[places[number]]
            heapq.heappush(heads, (_largest_ms(partition, following), number))
    return sorted(chosen.values(), key=lambda each: each.oldest_ms)


def _may_go(partition: Partition, place: int, high_watermark: int) -> bool:
    segments = partition.segments
    return len(segments) > place + 1 and segments[place + 1].base_offset <= high_watermark


def _largest_ms(partition: Partition, files: SegmentFiles) -> int:
    entries = partition.time_index_entries(files)
    if entries and entries[-1].timestamp_ms >= 0:
        return entries[-1].timestamp_ms
    try:
        return Path(files.log.path).stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _freed(files: SegmentFiles) -> int:
    entries = (files.log, files.offset_index, files.time_index, files.txn_index)
    return sum(freed_bytes(each.path) for each in entries if each is not None)


# --- removal of the classes A to C. They have no backup, because no start would read them


def remove_item(fs: FileSystem, item: Reclaimable) -> None:
    """Remove the files of one item durably, in their order. Requires the locks of the log dirs.

    Raises:
        AccessError: a file could not be removed.
        RefusedError: a file that is to be truncated has data there, or a journal is needed.
    """
    if item.journal is not None:
        remove_journal(fs, item.journal)
        return
    if item.kept_bytes:
        for path, kept in zip(item.files, item.kept_bytes, strict=True):
            _truncate(fs, path, kept)
        return
    last = ""
    for path in item.files:
        # Swap files go before cleaned files, and a log before its indexes, on disk too.
        kind = Path(path).suffix
        if last and kind != Path(last).suffix:
            fsio.sync_dir(fs, Path(last).parent)
        with os_errors(path):
            fs.unlink(path)
        last = path
    if last:
        fsio.sync_dir(fs, Path(last).parent)
    if item.directory:
        with os_errors(item.directory):
            fs.remove_dir(item.directory)
        fsio.sync_dir(fs, Path(item.directory).parent)


def _truncate(fs: FileSystem, path: str, kept: int) -> None:
    size = Path(path).stat().st_size
    if data_bytes_of(path, kept, size):
        raise RefusedError(f"{path}: has data from {kept} on; it was not changed")
    with os_errors(path), fsio.open_alone(fs, path) as file:
        fs.truncate(file, kept)
        fs.fsync(file)


# --- the room that a start needs, as an upper bound without the copies of the cleaner


_INDEX_INTERVAL_BYTES = 4096  # Kafka's default


class StartRoom(NamedTuple):
    """The room of the next start on one file system.

    Attributes:
        needed_bytes: at most, without the log cleaner.
        free_bytes: for the user that runs this, as for a broker of the same user.
    """

    path: str
    needed_bytes: int
    free_bytes: int


def room_of(log_dir: LogDir, *, is_clean: bool | None = None) -> StartRoom:
    """Compute the room that a start needs in a log dir.

    Args:
        log_dir: as read.
        is_clean: the marker of a clean stop will be there. None: as it is now.

    Raises:
        AccessError: the state of the file system is not available.
    """
    block = os.statvfs(log_dir.path).f_frsize
    if is_clean is None:
        is_clean = log_dir.stopped is StoppedState.CLEAN

    def blocks(size_bytes: int) -> int:
        return max(-(-size_bytes // block), 1) * block

    sizes = {each.file.name: each.path for each in log_dir.others if not each.is_dir}
    needed = sum(
        blocks(os.lstat(sizes[name]).st_size if name in sizes else 0)
        for name in OFFSET_CHECKPOINT_NAMES
    )
    for selected in discover([log_dir.path]).selected:
        if selected.partition.name.state is not DirState.LIVE:
            continue
        try:
            partition = Partition.of(selected)
        except AccessError:
            continue
        if partition.topic == METADATA_TOPIC:
            newest = max((each.file_bytes for each in partition.files.checkpoints), default=0)
            needed += blocks(newest)
        else:
            needed += block  # leader epochs
        if not is_clean:
            needed += sum(map(blocks, _recovery_sizes(partition)))
    return StartRoom(log_dir.path, needed, free_bytes(log_dir.path))


def _recovery_sizes(partition: Partition) -> Iterable[int]:
    """Yield the sizes of the files that a recovery writes again."""
    log_dir = partition.log_dir
    point = 0 if log_dir is None else log_dir.recovery_point(partition.directory) or 0
    if partition.segments:
        for files in partition.segments[first_recovered(partition.segments, point) :]:
            entries = files.log.file_bytes // _INDEX_INTERVAL_BYTES + 1
            yield entries * offset_index.ENTRY_BYTES
            yield entries * time_index.ENTRY_BYTES
            if files.txn_index is not None:
                yield files.txn_index.file_bytes
    yield max(
        (
            each.file_bytes
            for each in partition.files.snapshots
            if each.name.suffix is FileSuffix.NONE
        ),
        default=0,
    )
