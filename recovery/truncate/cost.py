"""The cost of a truncation: records, transactions, producers, group offsets, next recovery."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.cluster.group_offsets import find_group_offsets
from recovery.replay.bulk_state import BulkState, replay_segment
from recovery.replay.recover_state import (
    RecoveryCost,
    recover_state,
    recovered_bytes,
    recovery_price,
)
from storage.dirs.acknowledged_offsets import offsets_count
from storage.dirs.lookup import END_KINDS
from storage.errors import EoctlError, FormatError
from storage.formats.record_batch import CODEC_MASK, CONTROL_MASK, MAGIC_V2
from storage.kernels.numpy_kernel import batch_at
from storage.kernels.protocol import VerdictKind
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.cluster.group_offsets import CommittedOffset
    from recovery.replay.bulk_state import EndedTransactions
    from recovery.truncate.plan import Truncation
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition_files import SegmentFiles
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.kernels.protocol import HeaderTable, Verdict
    from storage.log.segment import Segment


# -- count the removed batches, data records and bytes, from headers.
#
# The records of a batch are read only if a bound is inside of it.


# Batches with a wrong offset: their records still count.
_COUNTED = frozenset({"BAT-3", "SEG-1", "SEG-2", "SEG-3"})


class FoundRecords(NamedTuple):
    """The data records of the good batches in the removed part, even next to damage.

    Attributes:
        acknowledged_count: records below the high watermark, repeated offsets once. None if
            unknown.
        is_least: some are not counted: damaged batches, and compressed batches of magic 0 and 1.
        first_offset, last_offset: inclusive. None without such a batch.
        first_ms, last_ms: by the headers of their batches. None without a timestamp.
    """

    records_count: int
    acknowledged_count: int | None
    is_least: bool
    first_offset: int | None
    last_offset: int | None
    first_ms: int | None
    last_ms: int | None


class CutCounts:
    """Counts over the removed part.

    Attributes:
        batches_count: healthy batches, including control batches.
        log_bytes: without preallocated zeros.
        is_whole: nothing in the removed part is damaged.
        notes: the damage.
    """

    def __init__(
        self, start_offset: int, high_watermark: int | None, end_offset: int | None = None
    ) -> None:
        """Count records from `start_offset` on, below `end_offset` (None: to the end)."""
        self.batches_count = 0
        self.log_bytes = 0
        self.is_whole = True
        self.notes: list[str] = []
        self._records_count: int | None = 0
        self._acknowledged_count: int | None = 0
        self._reach = -1  # greatest offset so far
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._high_watermark = high_watermark
        self._found = FoundRecords(
            records_count=0,
            acknowledged_count=None if high_watermark is None else 0,
            is_least=False,
            first_offset=None,
            last_offset=None,
            first_ms=None,
            last_ms=None,
        )

    @property
    def found(self) -> FoundRecords:
        """The counts, even next to damage."""
        return self._found._replace(is_least=self._found.is_least or not self.is_whole)

    @property
    def records_count(self) -> int | None:
        """Return the data records from the start offset on."""
        return self._records_count if self.is_whole else None

    @property
    def acknowledged_count(self) -> int | None:
        """Return the data records below the high watermark."""
        if self._high_watermark is None:
            return None
        if self._high_watermark <= self._start_offset:
            return 0
        return self._acknowledged_count if self.is_whole else None

    def add_segment(self, files: SegmentFiles, start_pos: int, *, is_active: bool) -> None:
        """Count one segment from a position on."""
        with open_segment(files.log.path, base_offset=files.base_offset) as segment:
            scan = segment.scan_tables(start_pos=start_pos, is_active=is_active)
            for table in scan:
                self._add_table(segment, table)
            self.log_bytes += segment.file_bytes - start_pos
            for verdict in scan.verdicts:
                if verdict.kind is VerdictKind.PREALLOCATED:
                    self.log_bytes -= verdict.end_pos - verdict.start_pos
                elif verdict.check_id in _COUNTED:
                    continue
                elif verdict.kind not in END_KINDS and self.is_whole:
                    self.is_whole = False
                    self.notes.append(
                        f"{files.log.path}: position {verdict.start_pos}: "
                        f"{verdict.reason or verdict.kind}: it is unknown how much is removed"
                    )

    def _add_table(self, segment: Segment, table: HeaderTable) -> None:
        self.batches_count += int(table.crc_ok.sum())
        is_v2 = table.magic >= MAGIC_V2
        is_control = is_v2 & (table.attributes & CONTROL_MASK != 0)
        rows = np.flatnonzero(table.crc_ok & ~is_control)
        if not len(rows):
            return
        is_plain = ~is_v2[rows] & (table.attributes[rows] & CODEC_MASK == 0)
        counts = np.where(is_plain, 1, table.records_count[rows].astype(np.int64))
        count = _count(segment, table, rows, counts, self._start_offset, self._end_offset)
        self._records_count = _plus(self._records_count, count)
        limit, acknowledged = self._high_watermark, None
        reach = np.maximum.accumulate(np.concatenate(([self._reach], table.last_offset[rows])))
        self._reach = int(reach[-1])
        if limit is not None:
            is_new = table.last_offset[rows] > reach[:-1]
            acknowledged = _count(
                segment, table, rows[is_new], counts[is_new], self._start_offset, limit
            )
            self._acknowledged_count = _plus(self._acknowledged_count, acknowledged)
        self._add_found(table, rows, count, acknowledged)

    def _add_found(
        self, table: HeaderTable, rows: Any, count: int | None, acknowledged: int | None
    ) -> None:
        found = self._found
        inside = rows[table.last_offset[rows] >= self._start_offset]
        if self._end_offset is not None:
            inside = inside[table.base_offset[inside] < self._end_offset]
        if not len(inside):
            return
        first = max(int(table.base_offset[inside].min()), self._start_offset)
        is_v2 = table.magic[inside] >= MAGIC_V2
        begins_ms = np.where(is_v2, table.base_timestamp_ms[inside], table.max_timestamp_ms[inside])
        ends_ms = table.max_timestamp_ms[inside]
        first_ms = [*begins_ms[begins_ms >= 0].tolist(), *_known(found.first_ms)]
        last_ms = [*ends_ms[ends_ms >= 0].tolist(), *_known(found.last_ms)]
        total = found.acknowledged_count
        self._found = FoundRecords(
            records_count=found.records_count + (count or 0),
            acknowledged_count=None if total is None else total + (acknowledged or 0),
            is_least=found.is_least or count is None,
            first_offset=min([first, *_known(found.first_offset)]),
            last_offset=max([int(table.last_offset[inside].max()), *_known(found.last_offset)]),
            first_ms=min(first_ms, default=None),
            last_ms=max(last_ms, default=None),
        )


def _known(value: int | None) -> tuple[int, ...]:
    return () if value is None else (value,)


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _count(
    segment: Segment,
    table: HeaderTable,
    rows: Any,
    counts: Any,
    start_offset: int,
    end_offset: int | None,
) -> int | None:
    """Count the records with offsets of a range. None if it has compressed legacy messages.

    The header of such a message has only its last offset. A message that ends at or above the end
    of the range may still begin in it.
    """
    base, last = table.base_offset[rows], table.last_offset[rows]
    is_inside = last >= start_offset
    is_cut = is_inside & (base < start_offset)
    if end_offset is not None:
        is_inside &= (base < end_offset) | ((counts < 0) & (start_offset < end_offset))
        is_cut |= is_inside & (last >= end_offset)
    if (counts[is_inside] < 0).any():
        return None
    is_cut &= is_inside
    total = int(counts[is_inside & ~is_cut].sum())
    for row in rows[is_cut].tolist():
        try:
            for record in segment.records(batch_at(table, row)):
                is_below_end = end_offset is None or record.offset < end_offset
                total += start_offset <= record.offset and is_below_end
        except FormatError:
            return None
    return total


# -- transactions that a truncation changes: removed, reopened, or shortened (TXN-1, TXN-2)


MAX_LISTED_COUNT = 1000  # removed transactions, and others (all are counted)


class TransactionKind(StrEnum):
    """The end of a transaction before the truncation."""

    COMMIT = "commit"
    ABORT = "abort"
    OPEN = "open"


class CutOutcome(StrEnum):
    """The change of a transaction. Transactions below the end do not change, and are not listed."""

    REOPENED = "reopened"  # data stays and the marker is removed: it hangs
    REMOVED = "removed"  # all of it is removed
    SHORTENED = "shortened"  # it was open, and loses data


class TransactionChange(NamedTuple):
    """A transaction that is changed."""

    producer_id: int
    first_offset: int
    marker_offset: int | None  # None: it was open
    kind: TransactionKind
    outcome: CutOutcome


def cut_parts(truncation: Truncation) -> Iterator[tuple[SegmentFiles, int]]:
    """Yield segments that lose bytes, and the first lost position of each."""
    cut, segments = truncation.cut, truncation.partition.segments
    if cut.is_nothing:
        return
    if cut.kept_count:
        yield segments[cut.kept_count - 1], cut.kept_bytes
    for files in segments[cut.kept_count :]:
        yield files, 0


class TransactionChanges:
    """The transactions in the removed part, followed from the state at the new end on.

    Attributes:
        notes: why they are unknown.
    """

    def __init__(self, truncation: Truncation, start_offset: int) -> None:
        self._truncation = truncation
        self._start_offset = start_offset
        self.notes: list[str] = []
        self._counts: Counter[str] = Counter()
        self._kept: list[TransactionChange] = []
        self._removed: list[TransactionChange] = []

    def counts(self) -> dict[str, int]:
        """Return the numbers of transactions, by outcome."""
        return {str(each): self._counts[each] for each in CutOutcome}

    def rows(self) -> tuple[TransactionChange, ...]:
        """Return the transactions, beginning with transactions that stay in part."""
        return (*self._kept, *self._removed)

    def follow(self) -> TransactionChanges | None:
        """Follow all transactions. None if they are unknown."""
        truncation = self._truncation
        if truncation.cut.is_nothing:
            return self
        if truncation.producers is None:
            return None
        state = BulkState()
        clock, end_offset = truncation.clock, truncation.cut.end_offset
        state.load(
            truncation.producers,
            end_offset,
            now_ms=clock.now_ms,
            expiration_ms=clock.expiration_ms,
        )
        for files, _ in cut_parts(truncation):
            try:
                stop = self._replay(files, state)
            except EoctlError as error:
                self.notes.append(f"the transactions that change are unknown: {error}")
                return None
            if stop is not None and stop.kind not in END_KINDS:
                self.notes.append(
                    f"{files.log.path}: position {stop.start_pos}: {stop.reason or stop.kind}: "
                    "the transactions that change are unknown"
                )
                return None
        last_offsets = {each.producer_id: each.last_offset for each in state.entries()}
        for first_offset, producer_id in state.ongoing.owners.items():
            if first_offset >= end_offset:
                outcome = CutOutcome.REMOVED
            elif last_offsets[producer_id] >= end_offset:
                outcome = CutOutcome.SHORTENED
            else:
                continue
            self._add(
                TransactionChange(
                    producer_id=producer_id,
                    first_offset=first_offset,
                    marker_offset=None,
                    kind=TransactionKind.OPEN,
                    outcome=outcome,
                )
            )
        return self

    def _replay(self, files: SegmentFiles, state: BulkState) -> Verdict | None:
        with open_segment(files.log.path, base_offset=files.base_offset) as segment:
            return replay_segment(
                segment,
                state,
                start_offset=self._start_offset,
                verify_crc=False,
                is_active=self._truncation.partition.is_active(files),
                on_completed=self._add_ended,
            ).stop

    def _add_ended(self, ended: EndedTransactions) -> None:
        is_removed = ended.first_offset >= self._truncation.cut.end_offset
        for outcome, mask in ((CutOutcome.REOPENED, ~is_removed), (CutOutcome.REMOVED, is_removed)):
            self._counts[outcome] += int(mask.sum())
            room = self._room(outcome)
            rows = np.flatnonzero(mask)[:room]
            for row in rows.tolist():
                kind = TransactionKind.ABORT if ended.is_aborted[row] else TransactionKind.COMMIT
                self._list(
                    TransactionChange(
                        producer_id=int(ended.producer_id[row]),
                        first_offset=int(ended.first_offset[row]),
                        marker_offset=int(ended.last_offset[row]),
                        kind=kind,
                        outcome=outcome,
                    )
                )

    def _add(self, change: TransactionChange) -> None:
        self._counts[change.outcome] += 1
        if self._room(change.outcome):
            self._list(change)

    def _room(self, outcome: CutOutcome) -> int:
        return max(MAX_LISTED_COUNT - len(self._list_of(outcome)), 0)

    def _list(self, change: TransactionChange) -> None:
        self._list_of(change.outcome).append(change)

    def _list_of(self, outcome: CutOutcome) -> list[TransactionChange]:
        return self._removed if outcome is CutOutcome.REMOVED else self._kept


# -- the cost: records, transactions, producers, group offsets, the broker's recovery.
#
# One pass over the removed headers counts. A second pass follows their transactions from the
# producer state at the new end. The records of a batch are read only if a bound is inside. Unknown
# values are None, never 0. Counts are unknown if the removed part is damaged (readable records are
# then a lower bound). Transactions and producers are also unknown without a state.


class ProducerChange(NamedTuple):
    """A producer that is reset.

    A sequence of -1: none of its batches is known. An epoch of -1: the producer is unknown.
    """

    producer_id: int
    epoch_before: int
    last_sequence_before: int
    epoch_after: int
    last_sequence_after: int


class TruncationCost(NamedTuple):
    """The cost of a truncation. None is unknown.

    Attributes:
        cut_start_offset, cut_end_offset: the removed offsets, half open.
        batches_count: removed batches, including control batches.
        records_count: removed data records at or above the log start, which consumers could read.
        log_bytes: removed bytes of `.log`, without preallocated zeros.
        high_watermark: acknowledged records are below it. A checkpointed value is a lower bound.
        acknowledged_records_count: of `records_count`, the records below the high watermark.
        missing_offsets_count: acknowledged offsets that the log lacks before the truncation, at
            most. After the checkpoints are lowered, nothing shows them.
        transactions_count: changed transactions, by outcome.
        transactions: the first 1000 removed transactions, after 1000 others.
        producers_count: reset producers.
        producers: the first 1000 of them.
        group_offsets: committed offsets above the new end.
        group_offsets_are_complete: all partitions of `__consumer_offsets` were read.
        recovery: the work of the broker's next start in this log dir.
        notes: why something is unknown.
    """

    cut_start_offset: int
    cut_end_offset: int
    batches_count: int | None
    records_count: int | None
    log_bytes: int
    high_watermark: int | None
    acknowledged_records_count: int | None
    missing_offsets_count: int | None
    transactions_count: dict[str, int] | None
    transactions: tuple[TransactionChange, ...] | None
    producers_count: int | None
    producers: tuple[ProducerChange, ...] | None
    group_offsets: tuple[CommittedOffset, ...] | None
    group_offsets_are_complete: bool
    recovery: RecoveryCost | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return names and JSON values, as in a plan."""
        value = self._asdict()
        for name in ("transactions", "producers", "group_offsets"):
            rows = value[name]
            value[name] = None if rows is None else [each._asdict() for each in rows]
        value["recovery"] = None if self.recovery is None else self.recovery._asdict()
        value["notes"] = list(self.notes)
        return value


def estimate_truncation(
    truncation: Truncation,
    *,
    log_dirs: Iterable[LogDir] | None = None,
    image: ClusterImage | None = None,
    high_watermark: int | None = None,
) -> TruncationCost:
    """Compute the cost of a planned truncation. Reads only.

    Args:
        truncation: the plan.
        log_dirs: of the cluster, with `__consumer_offsets` if given. None: the partition's own.
        image: the cluster's state, to know whether all of `__consumer_offsets` was read.
        high_watermark: replaces the checkpointed high watermark.

    Raises:
        AccessError: the removed part cannot be opened.
    """
    partition, cut = truncation.partition, truncation.cut
    if high_watermark is None:
        high_watermark = partition.high_watermark
    # Records below the log start are on disk, but no consumer can read them.
    start_offset = max(cut.end_offset, truncation.target.log_start_offset)
    counts = CutCounts(start_offset, high_watermark)
    for files, start_pos in cut_parts(truncation):
        counts.add_segment(files, start_pos, is_active=partition.is_active(files))
    transactions = TransactionChanges(truncation, start_offset)
    changed = transactions.follow() if counts.is_whole else None
    producers, unknown = _producers_set_back(truncation)
    notes = [*counts.notes, *transactions.notes, *unknown]
    if log_dirs is None:
        log_dirs = [] if partition.log_dir is None else [partition.log_dir]
    groups = find_group_offsets(log_dirs, partition.topic, partition.partition, image=image)
    beyond = None
    if groups is not None:
        beyond = tuple(each for each in groups.offsets if each.offset > cut.end_offset)
        if not groups.is_complete:
            read = ", ".join(map(str, groups.read_partitions)) or "none"
            notes.append(
                f"of __consumer_offsets only the partitions {read} were read: offsets of other "
                "groups are unknown (--coordinator-dir)"
            )
            beyond = beyond or None  # no offset found does not prove that there is none
        notes += (f"{each}: offsets of groups may be missing" for each in groups.problems[:1])
    return TruncationCost(
        cut_start_offset=cut.end_offset,
        cut_end_offset=cut.log_end_offset,
        batches_count=counts.batches_count if counts.is_whole else None,
        records_count=counts.records_count,
        log_bytes=counts.log_bytes,
        high_watermark=high_watermark,
        acknowledged_records_count=counts.acknowledged_count,
        missing_offsets_count=offsets_count(partition.not_given()),
        transactions_count=None if changed is None else changed.counts(),
        transactions=None if changed is None else changed.rows(),
        producers_count=None if producers is None else len(producers),
        producers=None if producers is None else tuple(producers[:MAX_LISTED_COUNT]),
        group_offsets=beyond,
        group_offsets_are_complete=groups is not None and groups.is_complete,
        recovery=estimate_recovery(truncation),
        notes=tuple(notes),
    )


# --- producers, recovery --------------------------------------------------------------------------


def _producers_set_back(
    truncation: Truncation,
) -> tuple[list[ProducerChange] | None, tuple[str, ...]]:
    """Compare the states at the old and the new end.

    Returns:
        The producers, None if a state is unknown, and the reason.
    """
    if truncation.cut.is_nothing:
        return [], ()
    if truncation.producers is None:
        return None, ()
    try:
        before = recover_state(
            truncation.partition, truncation.clock, at_offset=truncation.cut.log_end_offset
        )
    except EoctlError as error:
        return None, (f"the producers that are set back are unknown: {error}",)
    for path, verdict in before.damage.items():
        if verdict.kind in END_KINDS:
            continue
        where = f"{path}: position {verdict.start_pos}"
        return None, (f"{where}: the producers that are set back are unknown",)
    return list(producers_set_back(before.entries, truncation.producers)), ()


def producers_set_back(
    before: Iterable[ProducerEntry], after: Iterable[ProducerEntry]
) -> Iterator[ProducerChange]:
    """Yield the producers whose epoch or last sequence changes."""
    still_known = {each.producer_id: each for each in after}
    for old in before:
        new = still_known.get(old.producer_id)
        if new is None:
            yield ProducerChange(
                producer_id=old.producer_id,
                epoch_before=old.producer_epoch,
                last_sequence_before=old.last_sequence,
                epoch_after=-1,
                last_sequence_after=-1,
            )
        elif (old.producer_epoch, old.last_sequence) != (new.producer_epoch, new.last_sequence):
            yield ProducerChange(
                producer_id=old.producer_id,
                epoch_before=old.producer_epoch,
                last_sequence_before=old.last_sequence,
                epoch_after=new.producer_epoch,
                last_sequence_after=new.last_sequence,
            )


def estimate_recovery(truncation: Truncation) -> RecoveryCost | None:
    """Sum up the recovery of the log dir after the truncation, without a clean-shutdown marker."""
    partition, cut = truncation.partition, truncation.cut
    log_dir = partition.log_dir
    if log_dir is None:
        return None
    others = recovery_price(log_dir, without=partition.directory)
    log_bytes = 0
    if cut.is_nothing or cut.kept_count:
        kept = partition.segments[: cut.kept_count]
        point = min(log_dir.recovery_point(partition.directory) or 0, cut.end_offset)
        log_bytes = recovered_bytes(kept, point)
        if not cut.is_nothing:
            log_bytes -= kept[-1].log.file_bytes - cut.kept_bytes
    return RecoveryCost(others.partitions_count + 1, others.log_bytes + log_bytes)
