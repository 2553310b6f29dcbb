"""The repair of one partition directory, for any strategy."""

from __future__ import annotations

from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.losses import Lost
from recovery.changes.plans.plan import absolute_path, remove_step, replace_step
from recovery.changes.plans.preconditions import read_whole
from recovery.repair.salvage_scan import without_content
from recovery.replay.snapshots import StateHistory
from recovery.truncate.cost import ProducerChange, producers_set_back
from storage.counts import agreeing, counted
from storage.dirs.lookup import END_KINDS
from storage.errors import FormatError
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    FileKind,
    FileSuffix,
    TopicPartition,
    keeps_from_loading,
)
from storage.files.positioned_file import SplicedFile
from storage.formats.checkpoint import (
    OFFSET_CHECKPOINT_NAMES,
    OffsetCheckpointEntry,
    encode_offset_checkpoint,
    parse_offset_checkpoint,
)
from storage.formats.java_text import parse_integer
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.partition_metadata import (
    PartitionMetadata,
    encode_partition_metadata,
    parse_partition_metadata,
)
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2
from storage.formats.txn_index import AbortedTxn, parse_entries
from storage.kernels.protocol import VerdictKind
from storage.limits import INT32_MAX
from storage.log.intact_batches import LeftOut, dropped_batches, intact_batches
from storage.log.segment import Segment, open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.changes.plans.preconditions import CheckpointLimits
    from recovery.repair.strategies import Strategy
    from recovery.replay.snapshots import Clock, Snapshots
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir, Offsets
    from storage.dirs.partition import Partition
    from storage.errors import EoctlError
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.kernels.protocol import Verdict
    from storage.log.intact_batches import Dropped


# -- files in a partition directory besides the log that keep a broker from using it.
#
# DIR-4  `partition.metadata` is missing or malformed, and the cluster's metadata have the topic id.
# DIR-9  a file is named like a segment file, but without a base offset: loading the partition
# fails.


FOREIGN_FILE_ID = "DIR-9"


def assigned_topic_id(selected: Selected, image: ClusterImage | None) -> bytes | None:
    """Return the id of a directory's topic, by its name and place. None if unknown.

    None if an earlier topic had the same name: the directory may belong to that topic.
    """
    meta = None if selected.log_dir is None else selected.log_dir.meta
    if image is None or not image.is_complete or meta is None or meta.node_id is None:
        return None
    name = selected.partition.name
    topic = image.topics.get(name.topic)
    placed = image.partition(name.topic, name.partition)
    if topic is None or placed is None or name.topic in image.deleted_topics.values():
        return None
    if meta.node_id not in placed.replicas:
        return None
    assigned = placed.directories[placed.replicas.index(meta.node_id)]
    is_elsewhere = assigned != meta.directory_id and meta.directory_id is not None
    if is_elsewhere and int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS:
        return None
    return topic.topic_id


def topic_id_steps(partition: Partition, topic_id: bytes | None) -> Iterator[Step]:
    """Plan to write a `partition.metadata` that is missing or malformed.

    Raises:
        AccessError, RefusedError: as in `replace_step`.
    """
    if topic_id is None or _has_topic_id(partition):
        return
    path = Path(absolute_path(partition.path), PARTITION_METADATA_NAME)
    content = encode_partition_metadata(PartitionMetadata(0, topic_id))
    yield replace_step(str(path), content, "the topic id that the cluster's metadata have")


def _has_topic_id(partition: Partition) -> bool:
    entry = partition.files.other(PARTITION_METADATA_NAME)
    if entry is None:
        return False
    data = partition.read_file(entry)
    if data is None:
        return True  # its contents are unreadable
    try:
        parse_partition_metadata(data)
    except FormatError:
        return False
    return True


def foreign_steps(partition: Partition) -> Iterator[Step]:
    """Plan to remove files that are named like segment files. The backups keep them.

    Raises:
        AccessError, RefusedError: as in `remove_step`.
    """
    for each in partition.files.others:
        is_log = each.name.kind is FileKind.LOG and each.name.suffix is FileSuffix.NONE
        if is_log or keeps_from_loading(each.name.name):
            path = Path(absolute_path(partition.path), each.name.name)
            yield remove_step(str(path), "no segment: its name is no base offset")


# -- offset checkpoints that do not parse (DIR-7), rebuilt from their readable lines.
#
# If a field is not a number, a broker takes such a file for empty. With any other error it loses
# the log dir (REC-2). A missing recovery point, high watermark or first dirty offset is safe: a
# start verifies more, a follower asks its leader, more is compacted. Without its log start a log
# begins at its first segment, and deleted records come back.


_HEADER_LINES_COUNT = 2  # version and number of entries

_FOLLOWS = {
    RECOVERY_POINT_NAME: "a partition without a line is recovered from its first segment on",
    HIGH_WATERMARK_NAME: "a partition without a line begins with its log start, and its"
    " replicas raise it",
    LOG_START_NAME: "a partition without a line begins at its first segment: records that were"
    " deleted come back",
    CLEANER_NAME: "a partition without a line is compacted from its beginning",
}


class RepairedCheckpoints(NamedTuple):
    """A log dir with its offset checkpoints repaired.

    Attributes:
        log_dir: without the errors of the checkpoints. Lost entries are absent.
        contents: repaired checkpoints, by name.
        notes: the losses of each checkpoint, and their effects.
    """

    log_dir: LogDir
    contents: dict[str, bytes]
    notes: tuple[str, ...]


def repair_checkpoints(log_dir: LogDir) -> RepairedCheckpoints:
    """Rebuild the checkpoints that were readable but did not parse. Reads them again.

    Raises:
        AccessError: a checkpoint cannot be read.
    """
    contents: dict[str, bytes] = {}
    offsets: dict[str, Offsets] = {}
    notes = []
    for problem in log_dir.problems:
        name = Path(problem.path).name
        if not isinstance(problem, FormatError) or name not in OFFSET_CHECKPOINT_NAMES:
            continue
        data = read_whole(Path(problem.path))
        if data is None:
            continue
        entries, lost_count = entries_that_parse(data)
        contents[name] = encode_offset_checkpoint(entries)
        offsets[name] = {TopicPartition(*each[:2]): each.offset for each in entries}
        lost = "an unknown number is"
        if lost_count is not None:
            lost = f"{lost_count} {agreeing(lost_count, 'is', 'are')}"
        lines = f"{counted(len(entries), 'line')} {agreeing(len(entries), 'stays', 'stay')}"
        notes.append(
            f"{problem.path}: no broker could use it: {lines}, {lost} lost; {_FOLLOWS[name]}"
        )
    if not contents:
        return RepairedCheckpoints(log_dir, {}, ())
    repaired = log_dir._replace(
        recovery_points=offsets.get(RECOVERY_POINT_NAME, log_dir.recovery_points),
        log_start_offsets=offsets.get(LOG_START_NAME, log_dir.log_start_offsets),
        high_watermarks=offsets.get(HIGH_WATERMARK_NAME, log_dir.high_watermarks),
        cleaner_offsets=offsets.get(CLEANER_NAME, log_dir.cleaner_offsets),
        problems=tuple(e for e in log_dir.problems if Path(e.path).name not in contents),
    )
    return RepairedCheckpoints(repaired, contents, tuple(notes))


def entries_that_parse(data: bytes) -> tuple[list[OffsetCheckpointEntry], int | None]:
    """Return the readable entries of a checkpoint that does not parse, each partition once.

    If a partition has several lines, the last line counts, as for a broker. A last line without an
    end may be truncated within its number, and does not count.

    Returns:
        The entries, and the least number of lost lines. None if the number is unknown.
    """
    lines = data.splitlines(keepends=True)
    found: dict[tuple[str, int], OffsetCheckpointEntry] = {}
    whole_count = broken_count = 0
    for number, line in enumerate(lines):
        entry = _entry(line)
        if entry is not None:
            whole_count += 1
            found[entry[:2]] = entry
        elif number >= _HEADER_LINES_COUNT and line.strip():
            broken_count += 1
    declared_count = _declared_count(lines)
    if declared_count is None:
        return list(found.values()), None
    return list(found.values()), max(broken_count, declared_count - whole_count)


def _entry(line: bytes) -> OffsetCheckpointEntry | None:
    if not line.endswith((b"\n", b"\r")):
        return None
    try:
        (entry,) = parse_offset_checkpoint(b"0\n1\n" + line)
    except FormatError:
        return None
    return entry if entry.topic and entry.partition >= 0 else None


def _declared_count(lines: list[bytes]) -> int | None:
    """Return the number in line 2. None if there is none."""
    if len(lines) < _HEADER_LINES_COUNT or not lines[1].endswith((b"\n", b"\r")):
        return None
    text = lines[1].strip().decode("ascii", "replace")
    count = parse_integer(text, max_value=INT32_MAX)
    return count if count is not None and count >= 0 else None


# -- repaired


class RemovedRange(NamedTuple):
    """Removed bytes of a `.log`, and offsets that no remaining batch covers, inclusive.

    Both offsets are None if no offset is missing. Only `last_offset` is None if it is unknown.
    Records that are not on disk (`MISSING`) have the directory for their path, and no bytes.

    Attributes:
        records_count: records of intact batches in the range that no remaining batch has.
        acknowledged_records_count: of these, the records below the high watermark. None if unknown.
        batches_count: intact batches with such records, or with a marker.
        copies_count: intact batches that remain elsewhere.
        dropped_offsets: the first and last offset in these batches, if no offset is missing at
            their position. A gap there is theirs.
    """

    path: str
    start_pos: int
    end_pos: int
    base_offset: int | None
    last_offset: int | None
    kind: VerdictKind
    check_id: str
    reason: str
    records_count: int = 0
    acknowledged_records_count: int | None = 0
    batches_count: int = 0
    copies_count: int = 0
    dropped_offsets: tuple[int, int] | None = None

    @property
    def offsets_count(self) -> int | None:
        """The number of missing offsets, at most. None if unknown."""
        if self.base_offset is None:
            return 0
        return None if self.last_offset is None else self.last_offset - self.base_offset + 1

    def acknowledged_offsets_count(self, high_watermark: int | None) -> int | None:
        """Return the missing offsets below a high watermark, at most. None if unknown."""
        if self.base_offset is None:
            return 0
        if high_watermark is None:
            return None
        end = high_watermark if self.last_offset is None else self.last_offset + 1
        return max(min(end, high_watermark) - self.base_offset, 0)

    def cost(self, high_watermark: int | None) -> Lost:
        """Return the cost of the removal."""
        return Lost(
            offsets_count=self.offsets_count or 0,
            is_least=self.offsets_count is None,
            acknowledged_offsets_count=self.acknowledged_offsets_count(high_watermark),
            records_count=self.records_count,
            acknowledged_records_count=self.acknowledged_records_count if self.records_count else 0,
            batches_count=self.batches_count,
            copies_count=self.copies_count,
        )


class LeftOpen(NamedTuple):
    """A transaction without a marker after the repair.

    `was_open`: it had no marker before either. None if a removed range may have had its marker.
    """

    path: str
    producer_id: int
    producer_epoch: int
    first_offset: int
    was_open: bool | None


class ChangedAbort(NamedTuple):
    """An aborted transaction in `.txnindex` that is absent or different after the repair."""

    path: str
    producer_id: int
    first_offset: int
    marker_offset: int


class Repaired(NamedTuple):
    """A planned repair of one partition directory.

    Attributes:
        path: the directory.
        strategy: of the repair.
        log_bytes: of all its `.log` files.
        log_start_offset, end_offset: after the repair. None if unknown.
        limits: bounds for its checkpoints after the repair. None: they stay.
        steps: all other steps. Without steps and limits there is nothing to repair.
        logs: `.log` files that no step changes and that the plan comes from.
        segments: names of all `.log` files that were read.
        lost: removed ranges, in order.
        producers: reset producers. None if unknown.
        open_transactions: without a marker after the repair.
        changed_aborts: aborted transactions that `.txnindex` does not have after the repair.
        notes: facts for the user.
        error: why no plan was possible.
        high_watermark: lower offsets were acknowledged. None if unknown.
        moved_end_offset: the end of the log that is moved away. None if none is.
    """

    path: str
    strategy: Strategy
    log_bytes: int = 0
    log_start_offset: int | None = None
    end_offset: int | None = None
    limits: CheckpointLimits | None = None
    steps: tuple[Step, ...] = ()
    logs: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    lost: tuple[RemovedRange, ...] = ()
    producers: tuple[ProducerChange, ...] | None = ()
    open_transactions: tuple[LeftOpen, ...] = ()
    changed_aborts: tuple[ChangedAbort, ...] = ()
    notes: tuple[str, ...] = ()
    error: EoctlError | None = None
    high_watermark: int | None = None
    moved_end_offset: int | None = None

    @property
    def lost_offsets_count(self) -> int | None:
        """The number of missing offsets, at most. None if unknown."""
        counts = [each.offsets_count for each in self.lost]
        return sum(each or 0 for each in counts) if None not in counts else None

    @property
    def is_short(self) -> bool:
        """Return whether acknowledged records are not on disk."""
        return any(each.kind is VerdictKind.MISSING for each in self.lost)

    @property
    def lost_bytes(self) -> int:
        """The removed bytes of `.log`, without preallocated zeros."""
        return sum(
            each.end_pos - each.start_pos
            for each in self.lost
            if each.kind is not VerdictKind.PREALLOCATED
        )

    def acknowledged_lost_count(self, high_watermark: int | None) -> int | None:
        """Return the missing offsets below a high watermark, at most. None if unknown."""
        counts = [each.acknowledged_offsets_count(high_watermark) for each in self.lost]
        return sum(each or 0 for each in counts) if None not in counts else None

    @property
    def lost_records_count(self) -> int:
        """The records of intact batches that no file has after the repair."""
        return sum(each.records_count for each in self.lost)

    @property
    def lost_batches_count(self) -> int:
        """The intact batches that no file has after the repair."""
        return sum(each.batches_count for each in self.lost)

    @property
    def kept_offsets_count(self) -> int | None:
        """The offsets of the log after the repair, at most. None if its bounds are unknown."""
        if self.end_offset is None or self.log_start_offset is None:
            return None
        count = self.end_offset - self.log_start_offset
        for each in self.lost:
            if each.base_offset is not None:
                end = self.end_offset if each.last_offset is None else each.last_offset + 1
                count -= max(min(end, self.end_offset) - each.base_offset, 0)
        return count

    def loses_below(self, offset: int | None) -> bool:
        """Return whether an offset or record is removed that is, or may be, below a high watermark.

        None: the high watermark is unknown.
        """
        firsts = [each.base_offset for each in self.lost if each.base_offset is not None]
        has_record = any(
            each.acknowledged_records_count or (offset is None and each.records_count)
            for each in self.lost
        )
        return has_record or (bool(firsts) and (offset is None or min(firsts) < offset))


def lost_range(
    path: str, verdict: Verdict, base_offset: int, last_offset: int | None
) -> RemovedRange:
    """Build a range, without offsets if the last offset is below the first."""
    first: int | None = base_offset
    if last_offset is not None and last_offset < base_offset:
        first = last_offset = None
    return RemovedRange(
        path=path,
        start_pos=verdict.start_pos,
        end_pos=verdict.end_pos,
        base_offset=first,
        last_offset=last_offset,
        kind=verdict.kind,
        check_id=verdict.check_id,
        reason=verdict.reason,
    )


class KeptSegment(NamedTuple):
    """A segment after the repair: ranges of a `.log`, and their offsets, half open."""

    path: str
    ranges: tuple[tuple[int, int], ...]
    base_offset: int
    end_offset: int | None

    def open(self) -> Segment:
        """Open the segment. Raises AccessError."""
        ranges = [(self.path, *each) for each in self.ranges]
        return Segment(SplicedFile(self.path, ranges), self.base_offset)


def count_intact(
    lost: Sequence[RemovedRange],
    kept: Iterable[KeptSegment],
    *,
    high_watermark: int | None,
    log_start_offset: int,
) -> tuple[RemovedRange, ...]:
    """Count the records of intact batches in removed ranges, unless a remaining batch has them.

    Args:
        lost: the removed ranges.
        kept: the remaining segments.
        high_watermark: lower records were acknowledged. None if unknown.
        log_start_offset: no consumer could read batches below it.

    Raises:
        AccessError: a segment cannot be opened.
    """
    left_out: list[LeftOut] = []
    places: list[int] = []
    for place, each in enumerate(lost):
        if each.start_pos == each.end_pos or each.kind is VerdictKind.PREALLOCATED:
            continue
        opener = partial(open_segment, each.path)
        with opener() as segment:
            tables = intact_batches(segment, each.start_pos, each.end_pos)
            own = [
                LeftOut(opener, table)
                for table in without_content(segment, [*tables], each.start_pos)
            ]
        left_out += own
        places += [place] * len(own)
    found = [
        each._replace(acknowledged_records_count=None if high_watermark is None else 0)
        for each in lost
    ]
    kept_openers = ((each.open, each.base_offset, each.end_offset) for each in kept)
    compared = dropped_batches(left_out, kept_openers)
    for number, batches in groupby(compared, key=lambda each: each.number):
        place = places[number]
        with left_out[number].opener() as segment:
            for batch in batches:
                if batch.batch.header.last_offset >= log_start_offset:
                    counts = batch.lost_counts(segment, high_watermark)
                    found[place] = _with_batch(found[place], batch, counts)
    return tuple(found)


def _with_batch(found: RemovedRange, batch: Dropped, counts: tuple[int, int]) -> RemovedRange:
    is_lost = counts[0] > 0 or (batch.kept is not None and batch.batch.header.is_control)
    acknowledged = found.acknowledged_records_count
    dropped, header = found.dropped_offsets, batch.batch.header
    if found.last_offset is None and found.base_offset is not None:
        end_pos = batch.batch.pos + header.batch_bytes
        is_alone = (found.start_pos, found.end_pos) == (batch.batch.pos, end_pos)
        if is_alone and header.last_offset < found.base_offset:  # its position is wrong
            found = found._replace(base_offset=None)
    if is_lost and found.base_offset is None:
        first, last = dropped or (header.base_offset, header.last_offset)
        dropped = min(first, header.base_offset), max(last, header.last_offset)
    return found._replace(
        dropped_offsets=dropped,
        records_count=found.records_count + counts[0],
        acknowledged_records_count=None if acknowledged is None else acknowledged + counts[1],
        batches_count=found.batches_count + is_lost,
        copies_count=found.copies_count + (not is_lost),
    )


def with_missing(
    path: str, lost: Sequence[RemovedRange], missing: Iterable[Missing]
) -> tuple[RemovedRange, ...]:
    """Add absent acknowledged records, unless their offsets are in a removed range.

    Args:
        path: the partition directory.
        lost: removed ranges, in order.
        missing: from `Acknowledged.missing`.
    """
    found = list(lost)
    for each in missing:
        place = next(
            (
                place
                for place, one in enumerate(found)
                if one.base_offset is not None
                and one.base_offset <= each.base_offset
                and (one.last_offset is None or one.last_offset >= each.base_offset)
            ),
            None,
        )
        if place is None:
            found.append(
                RemovedRange(
                    path=path,
                    start_pos=0,
                    end_pos=0,
                    base_offset=each.base_offset,
                    last_offset=each.last_offset,
                    kind=VerdictKind.MISSING,
                    check_id=each.check_id,
                    reason=each.why,
                )
            )
            continue
        # The last offset of bytes at the log end is unknown: it is at least this.
        last_offset = found[place].last_offset
        if each.last_offset is not None and (last_offset is None or last_offset < each.last_offset):
            found[place] = found[place]._replace(last_offset=each.last_offset)
    return tuple(found)


class StateChange(NamedTuple):
    """The change of the producers' state."""

    producers: tuple[ProducerChange, ...] | None
    open_transactions: tuple[LeftOpen, ...]


def compare_state(
    path: str,
    disk: Snapshots,
    clock: Clock,
    *,
    lost_from: int | None,
    lost: Sequence[RemovedRange],
    after: Sequence[ProducerEntry],
) -> StateChange:
    """Compare the last snapshot before the removed records with the state after it.

    Args:
        path: the partition directory.
        disk: its good snapshots.
        clock: an expired producer is not reset.
        lost_from: the first removed offset. None if none is.
        lost: the removed ranges, with missing offsets.
        after: the state at the new end.

    Raises:
        AccessError: a segment with removed batches cannot be opened.
    """
    newest = max(disk, default=None)
    is_known = newest is not None and lost_from is not None and newest > lost_from
    before: list[ProducerEntry] = []
    if is_known and newest is not None:
        # As a broker loads it: without expired producers.
        before = StateHistory(clock, {newest: disk[newest]}).load(newest).entries()
    left = [each for each in after if each.current_txn_first_offset >= 0]
    opened = {(each.producer_id, each.current_txn_first_offset) for each in before}
    search = _MarkerSearch(lost, newest if is_known else None, opened)
    open_transactions = tuple(
        LeftOpen(
            path=path,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            first_offset=each.current_txn_first_offset,
            was_open=search.was_open(each.producer_id, each.current_txn_first_offset),
        )
        for each in left
    )
    if lost_from is None:
        return StateChange((), open_transactions)
    if not is_known:
        return StateChange(None, open_transactions)
    back = tuple(each for each in producers_set_back(before, after) if _is_lower(each))
    return StateChange(back, open_transactions)


class _MarkerSearch:
    """A search for the markers that a repair removes.

    Args:
        lost: the removed ranges.
        state_offset: of the newest snapshot above a removed record. None: there is none.
        opened: its open transactions, by producer id and first offset.
    """

    def __init__(
        self, lost: Sequence[RemovedRange], state_offset: int | None, opened: set[tuple[int, int]]
    ) -> None:
        self._lost = [each for each in lost if _may_have_marker(each)]
        self._state_offset, self._opened = state_offset, opened

    def was_open(self, producer_id: int, first_offset: int) -> bool | None:
        """Return whether a transaction that is open afterwards was open before."""
        if not any(_reaches(each, first_offset) for each in self._lost):
            return True  # all batches from its first on are still there
        state_offset = self._state_offset
        if state_offset is not None and first_offset < state_offset:
            if (producer_id, first_offset) not in self._opened:
                return False
            if not any(_reaches(each, state_offset) for each in self._lost):
                return True
        return False if self._markers.get(producer_id, -1) > first_offset else None

    @cached_property
    def _markers(self) -> dict[int, int]:
        """The offset of the last intact marker in the removed ranges, by producer id."""
        found: dict[int, int] = {}
        for each in self._lost:
            if each.start_pos == each.end_pos:
                continue
            with open_segment(each.path) as segment:
                for table in intact_batches(segment, each.start_pos, each.end_pos):
                    is_marker = (table.magic >= MAGIC_V2) & (table.attributes & CONTROL_MASK != 0)
                    ids = table.producer_id[is_marker].tolist()
                    for producer_id, offset in zip(
                        ids, table.base_offset[is_marker].tolist(), strict=True
                    ):
                        found[producer_id] = max(found.get(producer_id, -1), offset)
        return found


def _may_have_marker(lost: RemovedRange) -> bool:
    """Return whether a removed range may have had whole batches: a torn end never had any."""
    if lost.kind is VerdictKind.PREALLOCATED:
        return False
    is_torn = lost.kind in END_KINDS and lost.last_offset is None and not lost.batches_count
    return not is_torn


def _reaches(lost: RemovedRange, offset: int) -> bool:
    """Return whether a removed range has, or may have, an offset or a batch at or above this."""
    if lost.base_offset is not None:
        return lost.last_offset is None or lost.last_offset >= offset
    return lost.dropped_offsets is not None and lost.dropped_offsets[1] >= offset


def _is_lower(change: ProducerChange) -> bool:
    """Return whether the epoch or sequence decreases. A producer may have advanced since."""
    if change.epoch_after != change.epoch_before:
        return change.epoch_after < change.epoch_before
    return change.last_sequence_after < change.last_sequence_before


def changed_aborts(
    partition: Partition, after: Iterable[bytes], lost: Sequence[RemovedRange]
) -> tuple[ChangedAbort, ...]:
    """Find the aborted transactions on disk that the rebuilt `.txnindex` files do not have."""
    if not lost:
        return ()
    stays = {_what(each) for data in after for each in parse_entries(data)}
    return tuple(
        ChangedAbort(
            path=partition.path,
            producer_id=each.producer_id,
            first_offset=each.first_offset,
            marker_offset=each.last_offset,
        )
        for files in partition.segments
        for each in partition.aborted_transactions(files) or ()
        if _what(each) not in stays
    )


def _what(entry: AbortedTxn) -> tuple[int, int, int]:
    return entry.producer_id, entry.first_offset, entry.last_offset
