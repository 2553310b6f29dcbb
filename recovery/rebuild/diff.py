"""The differences between derived files on disk and rebuilt files, and what to write."""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.rebuild.derive import leader_epochs
from recovery.rebuild.index_builder import DEFAULT_INDEX_MAX_BYTES
from recovery.rebuild.older_brokers import older_reason
from recovery.replay.recover_state import EntryState, compare_entries
from storage.errors import AccessError, FormatError
from storage.file_names import LEADER_EPOCHS_NAME, FileKind, classify
from storage.formats import offset_index, time_index, txn_index
from storage.formats.checkpoint import LeaderEpochEntry, parse_leader_epochs
from storage.formats.producer_snapshot import parse_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.rebuild.derive import Rebuilt
    from recovery.rebuild.segment_pass import EpochRun
    from recovery.replay.snapshots import Clock
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.formats.txn_index import AbortedTxn


class FileState(StrEnum):
    """The result of comparing a file on disk with the rebuilt file."""

    EQUAL = "equal"
    DIFFERS = "differs"
    MISSING = "missing"
    SURPLUS = "surplus"  # a broker removes it when it loads the log, or the batches do not have it


class FileDifference(NamedTuple):
    """One derived file. `rebuilt` is its right content, None for a surplus file.

    `first_pos` is the position of the first byte that differs.
    """

    name: str
    state: FileState
    disk_bytes: int | None
    rebuilt: bytes | None
    first_pos: int | None = None
    reason: str = ""

    @property
    def rebuilt_bytes(self) -> int | None:
        """The size of the rebuilt file."""
        return None if self.rebuilt is None else len(self.rebuilt)

    @property
    def content(self) -> bytes | None:
        """The content to write. None if nothing is to be written."""
        return self.rebuilt if self.state in (FileState.DIFFERS, FileState.MISSING) else None


def compare_files(
    partition: Partition,
    rebuilt: Rebuilt,
    *,
    index_max_bytes: int = DEFAULT_INDEX_MAX_BYTES,
    preallocate: bool = False,
    log_stays: bool = True,
) -> Iterator[FileDifference]:
    """Compare every derived file of the partition, in the order of their names.

    A file that an older broker wrote in its own way counts as equal, with a reason
    (`older_brokers`). So does a file about batches that are gone: a rebuild would lose its
    contents.

    Args:
        partition: as listed.
        rebuilt: its right content.
        index_max_bytes: `segment.index.bytes`: the size of the active segment's indexes.
        preallocate: write the active segment's indexes in that size, like a live broker.
        log_stays: the `.log` files are unchanged since the rebuild, and stay so.
    """
    disk = {each.name.name: each for each in _derived_files(partition)}
    wanted = dict(rebuilt.files())
    for each in _differences(
        partition, rebuilt, disk, wanted, index_max_bytes, preallocate=preallocate
    ):
        if log_stays and each.state is not FileState.EQUAL:
            entry = disk.get(each.name)
            data = None if entry is None else partition.read_file(entry)
            content = wanted.get(each.name)
            reason = older_reason(partition, rebuilt, each.name, data, content)
            if not reason and data is not None and content is not None:
                reason = _richer_reason(partition, each.name, data, content, rebuilt.clock)
            if reason and not _has_wrong_zeros(partition, rebuilt, each.name, data):
                disk_bytes = None if data is None else len(data)
                yield FileDifference(
                    name=each.name,
                    state=FileState.EQUAL,
                    disk_bytes=disk_bytes,
                    rebuilt=data,
                    reason=reason,
                )
                continue
        yield each


def _differences(
    partition: Partition,
    rebuilt: Rebuilt,
    disk: dict[str, FileEntry],
    wanted: dict[str, bytes],
    index_max_bytes: int,
    *,
    preallocate: bool,
) -> Iterator[FileDifference]:
    active = f"{rebuilt.segments[-1].end.base_offset:020d}" if rebuilt.segments else ""
    is_clean = partition.is_trimmed  # a start takes zeros for entries (IDX-5)
    for name in sorted(wanted.keys() | disk.keys()):
        entry = disk.get(name)
        data = partition.read_file(entry) if entry is not None else None
        content = wanted.get(name)
        # A broker creates a .txnindex with the first entry, so next to other indexes none is
        # missing.
        is_unmade = entry is None and not content and f"{Path(name).stem}.index" in disk
        if is_unmade and name.endswith(".txnindex"):
            continue
        if content is None:
            yield _surplus(name, data, rebuilt)
            continue
        if name == LEADER_EPOCHS_NAME and data is not None and epochs_agree(data, rebuilt):
            reason = "" if data == content else "agrees with the log"
            yield FileDifference(
                name=name, state=FileState.EQUAL, disk_bytes=len(data), rebuilt=data, reason=reason
            )
            continue
        is_active_index = name in (f"{active}.index", f"{active}.timeindex")
        is_normal = is_active_index and (preallocate or not is_clean)
        if is_normal and data is not None and _is_untrimmed(data, content):
            yield FileDifference(
                name=name,
                state=FileState.EQUAL,
                disk_bytes=len(data),
                rebuilt=content,
                reason="untrimmed",
            )
            continue
        if classify(name).kind is FileKind.SNAPSHOT and data is not None and data != content:
            compared = _compared_producers(name, data, content, rebuilt.clock)
            if compared is not None:
                yield compared
                continue
        if is_active_index and preallocate and data != content:
            content = _padded(name, content, index_max_bytes)
        yield _compared(name, data, content)


def _richer_reason(
    partition: Partition, name: str, data: bytes, content: bytes, clock: Clock
) -> str:
    """Return why a broker's file says more than the log and nothing else, "" if it does not.

    Compaction and retention remove batches that the file still has (SNAP-7).
    """
    kind = classify(name).kind
    try:
        if kind is FileKind.SNAPSHOT:
            end = classify(name).offset or 0
            found = [each for each in parse_snapshot(data) if each.last_offset < end]
            if len(found) < len(parse_snapshot(data)):
                return ""  # no log of its own had these batches
            return _richer_snapshot(partition, found, parse_snapshot(content), clock)
        if kind is FileKind.TXNINDEX:
            entries = txn_index.parse_entries(data), txn_index.parse_entries(content)
            if len(data) != len(entries[0]) * txn_index.ENTRY_BYTES:
                return ""
            return _richer_txn_index(partition, *entries)
    except (FormatError, AccessError):
        return ""
    return ""


def _richer_snapshot(
    partition: Partition,
    disk: Sequence[ProducerEntry],
    rebuilt: Sequence[ProducerEntry],
    clock: Clock,
) -> str:
    more = [
        each
        for each in compare_entries(rebuilt, disk, clock)
        if each.state not in {EntryState.EQUAL, EntryState.EXPIRED}
    ]
    is_richer = all(
        each.disk is not None
        and (each.recovered is None or _last_of(each.recovered) <= _last_of(each.disk))
        and (not each.disk.has_batch or _is_gone(partition, each.disk.last_offset))
        for each in more
    )
    return f"the log lacks batches of {len(more)} of its producers" if more and is_richer else ""


def _last_of(entry: ProducerEntry) -> tuple[int, int]:
    return entry.producer_epoch, entry.last_offset


def _richer_txn_index(
    partition: Partition, disk: Sequence[AbortedTxn], rebuilt: Sequence[AbortedTxn]
) -> str:
    known = {(each.producer_id, each.last_offset): each for each in disk}
    found = [known.get((each.producer_id, each.last_offset)) for each in rebuilt]
    others = [each for each in disk if each not in rebuilt]
    is_ascending = all(a.last_offset < b.last_offset for a, b in pairwise(disk))
    if not others or not is_ascending or None in found:
        return ""
    is_gone = all(
        _is_gone(partition, each.first_offset)
        and each.first_offset <= each.last_stable_offset <= each.last_offset + 1
        for each in others
    )
    return f"the log lacks batches of {len(others)} of its transactions" if is_gone else ""


def _is_gone(partition: Partition, offset: int) -> bool:
    """Return whether no batch of the log has an offset."""
    place = partition.find_offset(offset)
    return place is None or place.batch.header.base_offset > offset


def _has_wrong_zeros(partition: Partition, rebuilt: Rebuilt, name: str, data: bytes | None) -> bool:
    """Return whether zeros follow the entries of an index where a broker leaves none (IDX-5)."""
    found = classify(name)
    if data is None or found.kind not in (FileKind.INDEX, FileKind.TIMEINDEX):
        return False
    is_active = found.offset == rebuilt.segments[-1].end.base_offset
    if is_active and not partition.is_trimmed:
        return False
    module = offset_index if found.kind is FileKind.INDEX else time_index
    used_bytes: int = module.logical_entry_count(data) * module.ENTRY_BYTES
    return used_bytes < len(data)


def _compared(name: str, data: bytes | None, content: bytes) -> FileDifference:
    if data is None:
        return FileDifference(name=name, state=FileState.MISSING, disk_bytes=None, rebuilt=content)
    if data == content:
        return FileDifference(
            name=name, state=FileState.EQUAL, disk_bytes=len(data), rebuilt=content
        )
    first_pos = first_difference(data, content)
    return FileDifference(
        name=name,
        state=FileState.DIFFERS,
        disk_bytes=len(data),
        rebuilt=content,
        first_pos=first_pos,
    )


def _is_untrimmed(data: bytes, content: bytes) -> bool:
    """Return whether an index has zeros after the rebuilt content: normal without a broker stop."""
    size = len(content)
    return len(data) > size and data[:size] == content and not any(data[size:])


def _compared_producers(
    name: str, data: bytes, content: bytes, clock: Clock
) -> FileDifference | None:
    """Compare snapshots by their producers. None if the producers differ.

    A broker may have written producers that have expired since. It may have had more producers
    once, so its map is larger. Before 3.5 it used a map of Scala with another order.
    """
    try:
        on_disk = parse_snapshot(data)
    except FormatError:
        return None
    found = [each.state for each in compare_entries(parse_snapshot(content), on_disk, clock)]
    expired_count = found.count(EntryState.EXPIRED)
    if expired_count + found.count(EntryState.EQUAL) != len(found):
        return None
    if expired_count:
        reason = f"{expired_count} of its {len(on_disk)} producers have expired since"
    elif any(clock.has_expired(each.timestamp_ms) for each in on_disk):
        reason = "others have expired since, among which its producers were"
    else:
        reason = "the same producers in another order, as a broker before 3.5 writes them"
        first_pos = first_difference(data, content)
        return FileDifference(
            name=name,
            state=FileState.DIFFERS,
            disk_bytes=len(data),
            rebuilt=content,
            first_pos=first_pos,
            reason=reason,
        )
    return FileDifference(
        name=name, state=FileState.EQUAL, disk_bytes=len(data), rebuilt=data, reason=reason
    )


def _surplus(name: str, data: bytes | None, rebuilt: Rebuilt) -> FileDifference:
    """Judge a file that the rebuild does not produce."""
    disk_bytes = None if data is None else len(data)
    kind = classify(name).kind
    if kind is FileKind.TXNINDEX:
        # Recovery empties an existing file and does not remove it.
        if not data:
            return FileDifference(
                name=name, state=FileState.EQUAL, disk_bytes=disk_bytes, rebuilt=b""
            )
        reason = "the log has no aborted transaction there"
        return FileDifference(
            name=name,
            state=FileState.DIFFERS,
            disk_bytes=disk_bytes,
            rebuilt=b"",
            first_pos=0,
            reason=reason,
        )
    offset = classify(name).offset or 0
    reason = "not needed: a broker removes it when it loads the log"
    if kind is FileKind.SNAPSHOT and offset > rebuilt.log_end_offset:
        reason = "beyond the log end: a broker removes it"
    return FileDifference(
        name=name, state=FileState.SURPLUS, disk_bytes=disk_bytes, rebuilt=None, reason=reason
    )


def _derived_files(partition: Partition) -> Iterator[FileEntry]:
    for segment in partition.segments:
        for entry in (segment.offset_index, segment.time_index, segment.txn_index):
            if entry is not None:
                yield entry
    yield from partition.files.snapshots
    entry = partition.files.other(LEADER_EPOCHS_NAME)
    if entry is not None:
        yield entry


def _padded(name: str, content: bytes, index_max_bytes: int) -> bytes:
    """Extend an index by zeros to its full size, like a broker's active segment."""
    kind = classify(name).kind
    module = offset_index if kind is FileKind.INDEX else time_index
    return content.ljust(module.preallocated_bytes(index_max_bytes), b"\0")


def first_difference(one: bytes, other: bytes) -> int:
    """Return the position of the first byte that differs, with few comparisons per kilobyte."""
    end = min(len(one), len(other))
    for start in range(0, end, 1024):
        stop = min(start + 1024, end)
        if one[start:stop] != other[start:stop]:
            pairs = zip(one[start:stop], other[start:stop], strict=True)
            return start + next(place for place, (a, b) in enumerate(pairs) if a != b)
    return end


def epochs_agree(data: bytes, rebuilt: Rebuilt) -> bool:
    """Return whether a `leader-epoch-checkpoint` agrees with every batch (EPC-1, EPC-3).

    It may say more than the batches: epochs without data, starts below a compacted batch.
    """
    try:
        entries = parse_leader_epochs(data)
    except FormatError:
        return False
    if not entries and leader_epochs(rebuilt.epochs, rebuilt.log_start_offset):
        return False
    ascending = all(
        before.epoch < after.epoch and before.start_offset < after.start_offset
        for before, after in pairwise([LeaderEpochEntry(-1, -1), *entries])
    )
    return ascending and all(_bears_out(entries, run) for run in rebuilt.epochs)


def _bears_out(entries: Sequence[LeaderEpochEntry], run: EpochRun) -> bool:
    starts = [each.start_offset for each in entries]
    for offset in (run.first_base_offset, run.last_base_offset):
        place = bisect_right(starts, offset) - 1
        # Below the first entry: records that DeleteRecords removed and a crash restored (OFF-5).
        if place >= 0 and entries[place].epoch != run.epoch:
            return False
    return True
