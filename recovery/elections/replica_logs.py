"""The contents of a partition's copies on dead brokers, and the losses when one of them leads.

Of each log only its end, its high watermark and its leader epochs are read, not its batches. A
follower uses these to truncate itself (EPOCH-7). Only the truncated range is read, for its records,
times and transactions. `replicas compare` shows whether lower batches differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.elections.orders import Cost
from recovery.replicas.compare import (
    acknowledged_end_offset,
    estimate_tail,
    find_follow_offset,
    read_replica,
)
from recovery.truncate.target import read_epochs
from storage.dirs.lookup import END_KINDS
from storage.dirs.offset_ledger import CHECK_ID as GAP_CHECK_ID
from storage.dirs.offset_ledger import OffsetLedger, joined
from storage.dirs.partition import Partition
from storage.errors import AccessError, RefusedError
from storage.kernels.protocol import VerdictKind
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from recovery.replay.snapshots import Clock
    from storage.dirs.discovery import Selected
    from storage.dirs.offset_ledger import OffsetSpan
    from storage.formats.checkpoint import LeaderEpochEntry


_WHOLE = END_KINDS | {VerdictKind.OK}


class LogCopy(NamedTuple):
    """The log of a partition on one broker. It has the fields of `compare.LogEpochs`.

    Attributes:
        topic_id: of partition.metadata. None: unknown.
        end_offset: end of its valid part: before damage at its end, or before lost offsets.
        notes: messages about doubtful facts.
        log_end_offset: the real log end offset. None: the same as `end_offset`.
    """

    broker: int
    partition: Partition
    topic_id: str | None
    start_offset: int
    end_offset: int
    high_watermark: int | None
    epochs: tuple[LeaderEpochEntry, ...] | None
    notes: tuple[str, ...] = ()
    log_end_offset: int | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether it has no records."""
        return self.end_offset <= self.start_offset


def read_copy(selected: Selected, broker: int, *, reads_headers: bool = False) -> LogCopy:
    """Read the end of a copy, and its epochs.

    A copy ends before missing acknowledged offsets. The gap is between two segments, or, if the
    headers are read, between any two batches.

    Raises:
        AccessError: its directory or its last `.log` cannot be read.
        RefusedError: its leader epochs exist, but are damaged.
    """
    partition = Partition.of(selected)
    notes = [str(each) for each in selected.problems]
    epochs = read_epochs(partition)
    notes += map(str, partition.problems)
    end = partition.log_end()
    start_offset = partition.local_log_start_offset or 0
    end_offset = start_offset if end is None else end.offset
    if end is not None and end.verdict.kind not in _WHOLE:
        found = read_replica(partition)
        end_offset = min(found.sound_end_offset, end_offset)
        notes += (f"{each}: records after it do not count" for each in found.notes)
    log_end_offset = None if end is None else end.offset
    span = offsets_of(partition) if reads_headers else None
    lost = [each for each in partition.not_given(span) if each.check_id == GAP_CHECK_ID]
    if lost and lost[0].base_offset < end_offset:
        end_offset = max(lost[0].base_offset, start_offset)
        notes.append(f"{partition.path}: {lost[0]}: records after it do not count")
    return LogCopy(
        broker=broker,
        partition=partition,
        topic_id=partition.topic_id(),
        start_offset=start_offset,
        end_offset=end_offset,
        high_watermark=partition.high_watermark,
        epochs=None if epochs is None else tuple(epochs),
        notes=tuple(notes),
        log_end_offset=log_end_offset,
    )


def offsets_of(partition: Partition) -> OffsetSpan:
    """Read the headers of a log for its offsets, without checksums.

    Raises:
        AccessError: a `.log` cannot be read.
    """
    spans = []
    for files in partition.segments:
        ledger = OffsetLedger(files.base_offset)
        with open_segment(files.log.path) as segment:
            bounds = partition.bounds(files)
            for table in segment.scan_tables(**bounds, verify_crc=False, resume=False):
                if table.row_count:
                    ledger.take(table, segment)
        spans.append(ledger.span)
    return joined(spans, partition.acknowledged.cleaned_offset)


class CopyCut(NamedTuple):
    """The end of a copy that is truncated to follow another leader.

    Attributes:
        acknowledged_end_offset: all records below it were acknowledged. None: unknown.
    """

    copy: LogCopy
    start_offset: int
    acknowledged_end_offset: int | None

    @property
    def price(self) -> Cost:
        """The price of the truncation."""
        acknowledged = self.acknowledged_end_offset
        return Cost(
            acknowledged_count=max((acknowledged or 0) - self.start_offset, 0),
            offsets_count=max(self.copy.end_offset - self.start_offset, 0),
        )


def find_cut(copy: LogCopy, leader: LogCopy, copies: Iterable[LogCopy]) -> CopyCut | None:
    """Return the truncation of a copy when another copy leads, or None if it is unknown.

    Records below the log start offset of the copy are not retained, and not lost.
    """
    others = [each for each in copies if each is not copy]
    acknowledged = acknowledged_end_offset(copy, others)
    if copy.is_empty:
        return CopyCut(copy, copy.end_offset, acknowledged)
    if leader.is_empty:
        # Its log begins elsewhere, or is empty: the follower drops its log.
        return CopyCut(
            copy, max(copy.start_offset, min(leader.end_offset, copy.end_offset)), acknowledged
        )
    offset = find_follow_offset(copy, leader)
    if offset is None:
        return None
    return CopyCut(copy, max(offset, copy.start_offset), acknowledged)


class LeaderCost(NamedTuple):
    """The loss when a broker leads.

    Attributes:
        price: of the most expensive truncation. It is unknown if any of them is.
        `cut`: the most expensive truncation. None: nothing is truncated or known.
    """

    price: Cost
    cut: CopyCut | None


def cost_of(
    leader: int,
    copies: Mapping[int, LogCopy],
    in_sync: Collection[int],
    *,
    is_doubtful: bool = False,
) -> LeaderCost:
    """Return the losses of the copies when a broker leads. Common offsets count once.

    A broker that was in sync has all acknowledged records, so it loses none of them. For any other
    broker the loss is known only if the copies of the in-sync brokers are known. If there may be
    newer metadata (`is_doubtful`), any in-sync broker may have continued alone.
    """
    leading = copies.get(leader)
    if leading is None:
        return LeaderCost(Cost(is_unknown=True), None)
    is_sure = leader in in_sync and not is_doubtful
    is_short = not is_sure and not {*in_sync} <= {*copies}
    cuts = [
        find_cut(each, leading, copies.values())
        for broker, each in copies.items()
        if broker != leader
    ]
    known = [each for each in cuts if each is not None]
    dearest = max(known, key=lambda each: each.price, default=None)
    price = Cost() if dearest is None else dearest.price
    return LeaderCost(
        price=price._replace(is_unknown=is_short or len(known) < len(cuts)),
        cut=dearest if price.offsets_count else None,
    )


def cost_of_nothing(copies: Mapping[int, LogCopy]) -> LeaderCost:
    """Return the loss when a broker leads that lost its log with its disk: everything."""
    cuts = [
        CopyCut(each, each.start_offset, acknowledged_end_offset(each, others))
        for each, others in _each_and_others(copies)
    ]
    dearest = max(cuts, key=lambda each: each.price, default=None)
    if dearest is None:
        return LeaderCost(Cost(is_unknown=True), None)
    return LeaderCost(dearest.price, dearest if dearest.price.offsets_count else None)


def _each_and_others(
    copies: Mapping[int, LogCopy],
) -> Iterator[tuple[LogCopy, list[LogCopy]]]:
    for each in copies.values():
        yield each, [other for other in copies.values() if other is not each]


class CutContents(NamedTuple):
    """The contents of a truncated range. None: unknown.

    Attributes:
        transactions_count: removed, shortened, or without their marker.
        reopened_count: of these, transactions without their marker.
    """

    records_count: int | None
    acknowledged_records_count: int | None
    transactions_count: int | None
    reopened_count: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    notes: tuple[str, ...] = ()


UNREAD = CutContents(
    records_count=None,
    acknowledged_records_count=None,
    transactions_count=None,
    reopened_count=None,
    first_timestamp_ms=None,
    last_timestamp_ms=None,
)


def read_cut(cut: CopyCut, clock: Clock) -> CutContents:
    """Read a truncated range."""
    partition = cut.copy.partition
    try:
        first_ms, last_ms = _times(partition, cut.start_offset)
        tail = estimate_tail(
            partition,
            cut.start_offset,
            acknowledged_offset=cut.acknowledged_end_offset,
            clock=clock,
        )
    except (AccessError, RefusedError) as exc:
        return UNREAD._replace(notes=(str(exc),))
    counts = tail.transactions_count
    return CutContents(
        records_count=tail.records_count,
        acknowledged_records_count=tail.acknowledged_records_count,
        transactions_count=None if counts is None else sum(counts.values()),
        reopened_count=None if counts is None else counts["reopened"],
        first_timestamp_ms=first_ms,
        last_timestamp_ms=last_ms,
        notes=tail.notes,
    )


def _times(partition: Partition, start_offset: int) -> tuple[int | None, int | None]:
    """Return the least and the greatest timestamp since an offset, of batches with a timestamp."""
    first_ms: int | None = None
    last_ms: int | None = None
    for placed in partition.read(start_offset):
        header = placed.batch.header
        if header.max_timestamp_ms < 0 or header.last_offset < start_offset:
            continue
        begin_ms = header.max_timestamp_ms
        if header.delete_horizon_ms is None and header.base_timestamp_ms >= 0:
            begin_ms = min(begin_ms, header.base_timestamp_ms)
        first_ms = begin_ms if first_ms is None else min(first_ms, begin_ms)
        last_ms = max(last_ms or 0, header.max_timestamp_ms)
    return first_ms, last_ms
