"""The producer state after a broker's next start, its difference to the disk, and its cost."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_dir import StoppedState
from storage.dirs.partition import Partition, floor_of
from storage.dirs.partition_files import list_partition
from storage.errors import AccessError, EoctlError, FormatError, RefusedError, UsageError, pasted
from storage.file_names import METADATA_TOPIC, PRODUCER_IDS_TOPIC, DirState, FileKind, classify
from storage.formats.producer_snapshot import encode_snapshot, entries_despite_crc, parse_snapshot
from storage.kernels.protocol import VerdictKind
from storage.limits import MAX_OFFSET
from storage.producers.producer_state import NO_EPOCH, ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recovery.replay.snapshots import Clock, Snapshots, StateHistory
    from storage.dirs.log_dir import LogDir, PartitionDir
    from storage.dirs.offset_ledger import OffsetSpan
    from storage.dirs.partition import LogEnd
    from storage.dirs.partition_files import SegmentFiles
    from storage.file_names import PartitionName
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.kernels.protocol import Verdict
    from storage.producers.producer_state import Violation


class RecoveryCost(NamedTuple):
    """Partitions with segments to recover, and their bytes of `.log`."""

    partitions_count: int
    log_bytes: int


def recovery_price(
    log_dir: LogDir,
    *,
    without: PartitionDir | None = None,
    lowered: Mapping[PartitionName, int] | None = None,
) -> RecoveryCost:
    """Sum up what a start without the clean-shutdown marker recovers in a log dir.

    In every partition it recovers all from the segment with the recovery point on. Unlistable
    directories and `without` are left out. `lowered` has the highest recovery points of some
    partitions after a change.
    """
    partitions_count = log_bytes = 0
    for each in log_dir.partitions:
        if each.name.state is DirState.DELETE or each.name.topic == METADATA_TOPIC:
            continue
        if each.name == (None if without is None else without.name):
            continue
        try:
            segments = list_partition(each.path).segments
        except AccessError:
            continue
        if segments:
            partitions_count += 1
            point = log_dir.recovery_point(each) or 0
            point = min(point, (lowered or {}).get(each.name, point))
            log_bytes += recovered_bytes(segments, point)
    return RecoveryCost(partitions_count, log_bytes)


def recovered_bytes(segments: tuple[SegmentFiles, ...], recovery_point: int | None) -> int:
    """Return the bytes of `.log` from the recovery point's segment on, or all without a point."""
    start = floor_of(segments, recovery_point or 0)
    return sum(files.log.file_bytes for files in segments[start:])


# -- the producer state after a broker's next start, and its difference to the disk.
#
# After a clean stop a broker loads the newest valid snapshot and replays the rest of the log
# (SNAP-6). Without the marker it first recovers every segment from the recovery point on, each from
# the newest snapshot at or below its base (SNAP-9). Both end with a snapshot at the log end.


class RecoveredState(NamedTuple):
    """Producer state at an offset.

    Attributes:
        offset: the state is valid up to this offset (exclusive).
        entries: of a snapshot there, in its order.
        started_from: offset of the snapshot on disk that the replay began with. None from scratch.
        violations: PRD-3 and PRD-5 in the replayed log.
        disk_entries: of the snapshot on disk at that offset. None if it is absent or bad.
        notes: facts for the user.
        damage: the `.log` files with a bad place that ends the replay or the log, and that place.
            Later bytes of the file are not part of the state.
        problems: unreadable files, which are left out.
        has_bad_snapshot: a snapshot on disk does not parse (SNP-1). A note reports it.
        is_lacking: the broker stopped cleanly and left no valid snapshot here of producers that it
            had (SNP-3, SNP-4).
        spans: the offsets of the replayed segments, by base offset.
    """

    offset: int
    entries: list[ProducerEntry]
    started_from: int | None
    violations: tuple[Violation, ...]
    disk_entries: list[ProducerEntry] | None
    notes: tuple[str, ...]
    damage: dict[str, Verdict]
    problems: tuple[str, ...]
    has_bad_snapshot: bool
    is_lacking: bool
    spans: Mapping[int, OffsetSpan]

    @property
    def content(self) -> bytes:
        """The contents of the snapshot file."""
        return encode_snapshot(self.entries)

    @property
    def file_name(self) -> str:
        """The name of the snapshot file."""
        return f"{self.offset:020d}.snapshot"


class EntryState(StrEnum):
    """The result of comparing one producer."""

    EQUAL = "equal"
    DIFFERS = "differs"
    ONLY_RECOVERED = "only_recovered"  # the snapshot on disk lacks it
    ONLY_DISK = "only_disk"  # its batches are gone (SNAP-7)
    # PROD-10: on disk only, and expired for a broker that loads it now. Or kept because its
    # transaction is open, but without the coordinator epoch of a marker of that age.
    EXPIRED = "expired"


class EntryDifference(NamedTuple):
    """A producer in the recovered state and on disk. `fields` are the different fields."""

    producer_id: int
    state: EntryState
    recovered: ProducerEntry | None
    disk: ProducerEntry | None
    fields: tuple[str, ...]


def recover_state(
    partition: Partition,
    clock: Clock,
    *,
    from_scratch: bool = False,
    at_offset: int | None = None,
) -> RecoveredState:
    """Derive the producer state at the log end, or at an offset.

    Args:
        partition: as listed.
        clock: for the expiry in snapshots.
        from_scratch: ignore all snapshots and replay from the log start. If that is in remote
            storage, replay from the first `.log`, with the producers of the snapshot there.
        at_offset: as after a truncation to it: the newest snapshot at or below, then replay.

    Raises:
        AccessError, FormatError, AppendError: it cannot be read, or a broker could not load it.
        RefusedError: the log start offset is above the log end.
        UsageError: the offset is outside the log.
    """
    log_end = partition.log_end()
    log_end_offset = 0 if log_end is None else log_end.offset
    log_start_offset = partition.log_start_offset or 0
    disk, notes = read_snapshots(partition)
    has_bad_snapshot = bool(notes)
    remote = partition.remote_range
    remote_end = 0 if remote is None else remote.end_offset
    if from_scratch:  # the part in remote storage cannot be replayed
        used = {each: entries for each, entries in disk.items() if each <= remote_end}
    else:
        used = dict(disk)
    from recovery.replay.snapshots import StateHistory  # it loads numpy

    history = StateHistory(clock, used, log_start_offset=log_start_offset)
    offset = log_end_offset if at_offset is None else at_offset
    if log_start_offset > log_end_offset:
        raise RefusedError(
            f"{partition.path}: its log start offset is {log_start_offset}, above its end"
            f" {log_end_offset}: a broker would delete all of it at its start [OFS-1]",
            next_step=f"eoctl repair {pasted(partition.path)} --strategy salvage",
        )
    if not log_start_offset <= offset <= log_end_offset:
        raise UsageError(
            f"offset {offset} is outside {log_start_offset}..{log_end_offset} of {partition.path}"
        )
    if remote is not None:
        is_known = any(each <= remote_end for each in history.snapshots)
        what = "the producers up to there come from the snapshot"
        if not is_known:
            what = "no snapshot has the producers up to there"
        notes.append(f"{remote}: {what}")
    history.forget_above(offset)
    started_from = max(history.snapshots, default=None)
    is_clean = partition.stopped is StoppedState.CLEAN
    if at_offset is None and not is_clean:
        recovery_point = 0 if from_scratch else _recovery_point(partition)
        _recover_segments(
            history, partition.segments, recovery_point, partial(_end_offset, partition)
        )
    if is_clean and not disk and not from_scratch and at_offset is None and log_end_offset:
        notes.append(
            "no snapshot beside the clean marker: a broker would start with no producers at all"
            " (SNP-4)"
        )
    history.take(history.load_to(offset, partition.segments))
    newest = max(history.snapshots, default=None)
    entries = history.snapshots[newest] if newest == offset and newest is not None else []
    return RecoveredState(
        offset=offset,
        entries=entries,
        started_from=started_from,
        violations=tuple(history.violations),
        disk_entries=disk.get(offset),
        notes=tuple(notes),
        damage=_damage(history, log_end if at_offset is None else None),
        problems=tuple(dict.fromkeys(map(str, partition.problems))),
        has_bad_snapshot=has_bad_snapshot,
        is_lacking=is_clean and at_offset is None and bool(entries) and offset not in disk,
        spans=history.spans,
    )


def _damage(history: StateHistory, log_end: LogEnd | None) -> dict[str, Verdict]:
    damage = dict(history.stops)
    if log_end is not None and log_end.verdict.kind is not VerdictKind.OK:
        damage.setdefault(log_end.files.log.path, log_end.verdict)
    return damage


def recover_cut_state(
    partition: Partition, clock: Clock, end_offset: int, kept_count: int
) -> tuple[list[ProducerEntry], dict[str, Verdict]]:
    """Derive the producer state of the next start after a truncation without the marker.

    Args:
        partition: as listed, before the truncation.
        clock: for the expiry in snapshots.
        end_offset: the new log end, above the log start.
        kept_count: remaining segments, at least one.

    Returns:
        The entries of a snapshot at the end, in its order, and the places where replay ended early.

    Raises:
        AccessError, FormatError, AppendError: as in `recover_state`.
    """
    log_start_offset = min(partition.log_start_offset or 0, end_offset)
    disk, _ = read_snapshots(partition)
    from recovery.replay.snapshots import StateHistory  # it loads numpy

    history = StateHistory(clock, disk, log_start_offset=log_start_offset)
    history.forget_above(end_offset)
    segments = partition.segments[:kept_count]

    def end_of(place: int) -> int:
        return end_offset if place == kept_count - 1 else _end_offset(partition, place)

    # Below the log end in memory the point does not advance either: min(old, end) (TRUNC 4).
    recovery_point = min(_recovery_point(partition), end_offset)
    _recover_segments(history, segments, recovery_point, end_of)
    newest = max(history.snapshots, default=None)
    entries = history.snapshots[newest] if newest == end_offset and newest is not None else []
    return entries, dict(history.stops)


def _recovery_point(partition: Partition) -> int:
    log_dir = partition.log_dir
    return 0 if log_dir is None else log_dir.recovery_point(partition.directory) or 0


def _recover_segments(
    history: StateHistory,
    segments: Sequence[SegmentFiles],
    recovery_point: int,
    end_of: Callable[[int], int],
) -> None:
    """Apply SNAP-9 to every segment that an unclean start recovers (REC-6)."""
    for place in range(first_recovered(segments, recovery_point), len(segments)):
        base_offset = segments[place].base_offset
        state = history.load_to(base_offset, segments)
        history.forget_above(base_offset)
        history.take(state)
        history.take(history.load_to(end_of(place), segments))


def first_recovered(segments: Sequence[SegmentFiles], recovery_point: int) -> int:
    """Return the index of the segment with the recovery point, 0 if it is below all segments."""
    at_or_below = sum(each.base_offset <= recovery_point for each in segments)
    return max(at_or_below - 1, 0)


def bytes_to_replay(partition: Partition, *, from_scratch: bool, at_offset: int | None) -> int:
    """Return the bytes of the segments that `recover_state` reads if all snapshots are good."""
    segments = partition.segments
    if not segments:
        return 0
    is_clean = partition.stopped is StoppedState.CLEAN
    limit = MAX_OFFSET if at_offset is None else at_offset
    if at_offset is None and not is_clean:
        recovery_point = 0 if from_scratch else _recovery_point(partition)
        limit = segments[first_recovered(segments, recovery_point)].base_offset
    names = [] if from_scratch else [each.name.offset for each in partition.files.snapshots]
    start_offset = max((each for each in names if each is not None and each <= limit), default=0)
    read = segments[floor_of(segments, start_offset) :]
    if at_offset is not None:
        read = tuple(each for each in read if each.base_offset < at_offset)
    return sum(each.log.file_bytes for each in read)


def _end_offset(partition: Partition, place: int) -> int:
    """Return the offset after the last valid batch of one segment."""
    from storage.log.segment import open_segment

    files = partition.segments[place]
    if place == len(partition.segments) - 1:
        log_end = partition.log_end()
        return files.base_offset if log_end is None else log_end.offset
    end_offset = files.base_offset
    with open_segment(files.log.path, base_offset=files.base_offset) as segment:
        for table in segment.scan_tables(verify_crc=False, resume=False):
            if table.row_count:
                end_offset = int(table.last_offset[-1]) + 1
    return end_offset


def read_snapshots(partition: Partition) -> tuple[Snapshots, list[str]]:
    """Read all snapshots on disk that parse. Note each snapshot that a broker would delete."""
    found: Snapshots = {}
    notes: list[str] = []
    for file in partition.files.snapshots:
        data = partition.read_file(file)
        if data is None or file.name.offset is None:
            continue
        try:
            found[file.name.offset] = parse_snapshot(data)
        except FormatError as exc:
            notes.append(f"{exc.located(file.path)}: not used, and a broker deletes it")
    return found, notes


def forgotten_transactions(partition: Partition, opened: Mapping[int, int]) -> frozenset[int]:
    """Find open transactions of the log that a broker does not know after its next start.

    It loads the newest snapshot and reads no batch below it. A transaction that is absent from the
    snapshot blocks nobody: read_committed consumers get its records. Without any snapshot, SNP-4
    describes what a broker forgets.

    Args:
        partition: as listed.
        opened: first offsets of the transactions without a marker in the log, by producer id.
    """
    if not opened or not partition.segments or partition.topic == METADATA_TOPIC:
        return frozenset()
    is_clean = partition.stopped is StoppedState.CLEAN
    if not is_clean and partition.stopped is not StoppedState.UNCLEAN:
        return frozenset()
    disk, _ = read_snapshots(partition)
    log_start = partition.log_start_offset or 0
    end = partition.log_end()
    below = partition.segments[-1].base_offset if end is None else end.offset
    if not is_clean:
        first = first_recovered(partition.segments, _recovery_point(partition))
        below = min(below, partition.segments[first].base_offset)
    loaded = max((each for each in disk if log_start < each <= below), default=None)
    if loaded is None:
        return frozenset()
    known = {each.producer_id for each in disk[loaded] if each.current_txn_first_offset >= 0}
    return frozenset(
        producer_id
        for producer_id, first_offset in opened.items()
        if first_offset < loaded and producer_id not in known
    )


def exposed_text(producer_id: int, first_offset: int) -> str:
    """Return a sentence about the effect of a transaction that a broker does not know."""
    return (
        f"the transaction of producer {producer_id}, open from offset {first_offset}, is in no"
        " snapshot that a broker loads: it gives its records to read_committed consumers"
    )


def compare_entries(
    recovered: Sequence[ProducerEntry], disk: Sequence[ProducerEntry], clock: Clock | None = None
) -> Iterator[EntryDifference]:
    """Compare each producer, in the recovered order. Producers only on disk come last.

    Args:
        recovered: the state of a broker.
        disk: the entries of a snapshot.
        clock: the clock for expiry. None: no expiry.
    """
    on_disk = {each.producer_id: each for each in disk}
    for entry in recovered:
        other = on_disk.pop(entry.producer_id, None)
        if other is None:
            yield EntryDifference(
                producer_id=entry.producer_id,
                state=EntryState.ONLY_RECOVERED,
                recovered=entry,
                disk=None,
                fields=(),
            )
            continue
        fields = tuple(
            name
            for name, ours, theirs in zip(entry._fields, entry, other, strict=True)
            if ours != theirs
        )
        state = EntryState.DIFFERS if fields else EntryState.EQUAL
        if fields == ("coordinator_epoch",) and entry.coordinator_epoch == NO_EPOCH:
            is_aged = clock is not None and clock.has_expired(entry.timestamp_ms)
            state = EntryState.EXPIRED if is_aged else state
        yield EntryDifference(
            producer_id=entry.producer_id, state=state, recovered=entry, disk=other, fields=fields
        )
    for entry in on_disk.values():
        is_open = entry.current_txn_first_offset >= 0
        has_expired = clock is not None and not is_open and clock.has_expired(entry.timestamp_ms)
        state = EntryState.EXPIRED if has_expired else EntryState.ONLY_DISK
        yield EntryDifference(
            producer_id=entry.producer_id, state=state, recovered=None, disk=entry, fields=()
        )


# -- the producer ids in the partitions of a log dir, and their expiry (PROD-10).
#
# They come from the state that a broker would recover at its next start
# (`recovery.replay.recover_state`). Directories that a broker has set aside count, because they may
# return. Unreadable partitions are named: their ids are unknown.
#
# `snapshot_ids` is the quick method: the ids in the snapshots of a log dir. It reads no log. Each
# partition that was closed, or whose segment was rolled, has a snapshot.


class KnownState(NamedTuple):
    """The producers of a partition.

    Attributes:
        directory: the partition.
        entries: of its producer state. Some may have expired, until the broker's next check.
        unknown: why there may be more. "" if there are none.
    """

    directory: PartitionDir
    entries: list[ProducerEntry]
    unknown: str = ""

    def entry_of(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of an id."""
        return next((each for each in self.entries if each.producer_id == producer_id), None)

    def live_entry_of(self, producer_id: int, clock: Clock) -> ProducerEntry | None:
        """Return the entry of an id, unless it has expired."""
        found = self.entry_of(producer_id)
        if found is None:
            return None
        state = ProducerState.from_entry(found)
        return None if state.is_expired(clock.now_ms, clock.expiration_ms) else found


def known_state(directory: PartitionDir, log_dir: LogDir, clock: Clock) -> KnownState:
    """Read the producer state of one partition."""
    try:
        found = recover_state(Partition(directory, log_dir), clock)
    except EoctlError as error:
        return KnownState(directory, [], str(error))
    for path, verdict in found.damage.items():
        if not verdict.kind.is_end:  # a start truncates a torn end
            where = f"{path}: {verdict.kind} at position {verdict.start_pos}"
            return KnownState(directory, found.entries, f"{where}: {verdict.reason}")
    return KnownState(directory, found.entries, "; ".join(found.problems))


def known_states(log_dir: LogDir, clock: Clock) -> Iterator[KnownState]:
    """Read the producer states of all partitions that can have one."""
    for each in log_dir.partitions:
        is_ours = each.name.topic in {METADATA_TOPIC, PRODUCER_IDS_TOPIC}
        if not is_ours and each.name.state is not DirState.DELETE:
            yield known_state(each, log_dir, clock)


class SnapshotIds(NamedTuple):
    """The producers in snapshots.

    Attributes:
        places: the producers, and the paths of the partitions that have each.
        unknown: unreadable snapshots, and why.
    """

    places: dict[int, set[str]]
    unknown: tuple[str, ...]


def snapshot_ids(log_dirs: Iterable[LogDir], first_id: int = 0) -> SnapshotIds:
    """Read all snapshots of all partitions, also of partitions that were set aside.

    Everything that may be an entry counts, also in damaged files and files to be deleted: the
    caller needs an unused id.

    Args:
        log_dirs: the log dirs.
        first_id: ignore lower ids.
    """
    places: dict[int, set[str]] = {}
    unknown: list[str] = []
    for partition in (each for log_dir in log_dirs for each in log_dir.partitions):
        if partition.name.topic == METADATA_TOPIC:
            continue
        try:
            paths = sorted(Path(partition.path).iterdir())
        except OSError as error:
            unknown.append(str(AccessError(error, partition.path)))
            continue
        for path in paths:
            if classify(path.name).kind is not FileKind.SNAPSHOT:
                continue
            try:
                for each in entries_despite_crc(path.read_bytes()):
                    if each.producer_id >= first_id:
                        places.setdefault(each.producer_id, set()).add(partition.path)
            except FileNotFoundError:
                continue  # a running broker
            except OSError as error:
                unknown.append(str(AccessError(error, str(path))))
            except FormatError as error:
                unknown.append(f"{path}: {error}")
    return SnapshotIds(places, tuple(unknown))
