"""Results of a partition's changes: its ISR at a time, spans, elections."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.history import PartitionChange, Why
from storage.errors import AccessError, FormatError
from storage.formats.partition_metadata import format_uuid
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeGuard

    from recovery.cluster.history import Change
    from storage.dirs.cluster_image import PartitionImage
    from storage.dirs.partition import Partition, Place


# -- the ISR at the time when an offset of a partition was acknowledged, as far as it is known.
#
# The log has the leader epoch of a record. The metadata have the leader of that epoch, and the
# sequence of ISRs in it. The time of acknowledgement is stored nowhere. It is not before the
# append, and not after the first known high watermark above the offset. Therefore each ISR of its
# epoch is possible, and the record's own time shows the likely ISR. If the record was not
# acknowledged in its epoch, then in a later epoch, whose ISRs are also listed.


class AckStanding(StrEnum):
    """The certainty that an ISR acknowledged an offset."""

    KNOWN = "known"  # no other ISR existed
    LIKELY = "likely"  # by the record's own time
    POSSIBLE = "possible"  # in its leader epoch
    LATER = "later"  # in a later leader epoch, if it was not acknowledged before


class RecordOrigin(NamedTuple):
    """An offset in copies of the partition. Diverged copies have two origins of one offset.

    Attributes:
        timestamp_ms: of the record. None: it has none, or it cannot be read.
        is_append_time: by the clock of the leader, else of the producer.
        topic_id: of partition.metadata. None: unknown.
        paths: of the copies.
        acknowledged_by: the copies with a high watermark above it.
    """

    offset: int
    leader_epoch: int
    timestamp_ms: int | None
    is_append_time: bool
    topic_id: str | None
    paths: tuple[str, ...]
    acknowledged_by: tuple[str, ...]


class InSync(NamedTuple):
    """An ISR that may have acknowledged the offset. `state` was in force from start to end.

    Attributes:
        end_offset, end_timestamp_ms: of the change that ended it. None: it is still in force.
    """

    standing: AckStanding
    state: PartitionImage
    min_insync_replicas: int
    start_offset: int
    start_timestamp_ms: int
    end_offset: int | None
    end_timestamp_ms: int | None


def record_origins(copies: Iterable[Partition], offset: int) -> list[RecordOrigin]:
    """Find an offset in copies of a partition, and return one origin per leader epoch.

    Errors of reading are added to the problems of the copy.
    """
    found: dict[tuple[int, str | None], RecordOrigin] = {}
    for copy in copies:
        place = _find(copy, offset)
        if place is None:
            continue
        header = place.batch.header
        key = header.partition_leader_epoch, copy.topic_id()
        high_watermark = copy.high_watermark
        is_acknowledged = high_watermark is not None and high_watermark > offset
        origin = found.get(key) or RecordOrigin(
            offset=offset,
            leader_epoch=header.partition_leader_epoch,
            timestamp_ms=_time(place, offset),
            is_append_time=header.is_log_append_time,
            topic_id=key[1],
            paths=(),
            acknowledged_by=(),
        )
        found[key] = origin._replace(
            paths=(*origin.paths, copy.path),
            acknowledged_by=(*origin.acknowledged_by, *([copy.path] if is_acknowledged else [])),
        )
    return sorted(found.values(), key=lambda each: each.leader_epoch)


def _find(copy: Partition, offset: int) -> Place | None:
    try:
        place = copy.find_offset(offset)
    except (AccessError, FormatError) as exc:
        copy.problems.append(exc)
        return None
    return place if place is not None and place.batch.header.base_offset <= offset else None


def _time(place: Place, offset: int) -> int | None:
    """Return the time of a record, or of its batch if compaction removed the record."""
    header = place.batch.header
    time_ms = header.max_timestamp_ms
    try:
        with open_segment(place.files.log.path) as segment:
            for record in segment.records(place.batch):
                if record.offset == offset:
                    time_ms = record.timestamp_ms
    except (AccessError, FormatError):
        pass
    return None if time_ms < 0 else time_ms


def in_sync_at(
    changes: Iterable[Change],
    origin: RecordOrigin,
    topic: str,
    partition: int,
    *,
    before_epoch: int | None = None,
) -> list[InSync]:
    """Return the ISRs that may have acknowledged a record, in order, or [] if its epoch is unknown.

    Args:
        changes: all changes of the metadata.
        origin: the record.
        topic: its name.
        partition: its number.
        before_epoch: leader epoch of a different record at that offset in another copy. From this
            epoch on, this record cannot have been acknowledged. None: there is none.
    """
    found = [
        each
        for each in _versions(changes, origin, topic, partition)
        if before_epoch is None or each.state.leader_epoch < before_epoch
    ]
    own = [each for each in found if each.state.leader_epoch == origin.leader_epoch]
    if not own:
        return []
    if len(found) == 1:
        return [found[0]._replace(standing=AckStanding.KNOWN)]
    likely = _likely(own, origin)
    return [
        each._replace(standing=AckStanding.LIKELY) if each is likely else each for each in found
    ]


def _versions(
    changes: Iterable[Change], origin: RecordOrigin, topic: str, partition: int
) -> Iterator[InSync]:
    """Yield the states with a leader since the record's epoch, each with its end."""
    current: InSync | None = None
    for change in changes:
        if not _is_of(change, origin, topic, partition):
            continue
        after = change.after
        if current is not None:
            if after is not None and _is_same(current.state, after):
                continue
            yield current._replace(end_offset=change.offset, end_timestamp_ms=change.timestamp_ms)
            current = None
        if after is not None and after.leader >= 0 and after.leader_epoch >= origin.leader_epoch:
            is_own = after.leader_epoch == origin.leader_epoch
            current = InSync(
                standing=AckStanding.POSSIBLE if is_own else AckStanding.LATER,
                state=after,
                min_insync_replicas=change.min_insync_replicas,
                start_offset=change.offset,
                start_timestamp_ms=change.timestamp_ms,
                end_offset=None,
                end_timestamp_ms=None,
            )
    if current is not None:
        yield current


def _is_of(
    change: Change, origin: RecordOrigin, topic: str, partition: int
) -> TypeGuard[PartitionChange]:
    if not isinstance(change, PartitionChange) or change.partition != partition:
        return False
    if origin.topic_id is not None:
        return format_uuid(change.topic_id) == origin.topic_id
    return change.topic == topic


def _is_same(one: PartitionImage, other: PartitionImage) -> bool:
    return (one.leader, one.leader_epoch, one.isr) == (other.leader, other.leader_epoch, other.isr)


def _likely(own: Sequence[InSync], origin: RecordOrigin) -> InSync | None:
    """Return the ISR at the record's own time, or the first if the time is earlier."""
    time_ms = origin.timestamp_ms
    if time_ms is None:
        return None
    begun = [each for each in own if each.start_timestamp_ms <= time_ms]
    return begun[-1] if begun else own[0]


# -- results of the changes of a partition: spans under min.insync.replicas, elections, sums.
#
# The input is the changes of `history`, one by one. Memory grows only with the number of
# partitions.


class UnderIsrSpan(NamedTuple):
    """A time in which acks=all was refused.

    Attributes:
        start_offset: of the change that began it.
        is_start_known: False: it began before the first metadata.
        end_offset: of the change that ended it. None: it has not ended.
        end_timestamp_ms: None: it has not ended.
        least_in_sync_count: the smallest size of the ISR with a leader, else 0.
        was_leaderless: there was no leader for some of the time.
    """

    topic: str
    partition: int
    start_offset: int
    start_timestamp_ms: int
    is_start_known: bool
    end_offset: int | None
    end_timestamp_ms: int | None
    min_insync_replicas: int
    least_in_sync_count: int
    was_leaderless: bool

    @property
    def duration_ms(self) -> int | None:
        """Its duration. None: it has not ended, or clocks contradict each other."""
        if self.end_timestamp_ms is None or self.end_timestamp_ms < self.start_timestamp_ms:
            return None
        return self.end_timestamp_ms - self.start_timestamp_ms


class PartitionSum:
    """The sums of one partition.

    Attributes:
        under_ms: total of the spans that have ended.
        longest_ms: the longest of these spans.
    """

    __slots__ = (
        "changes_count", "elections_count", "isr_changes_count", "last_unclean_offset",
        "last_unclean_timestamp_ms", "leaderless_count", "longest_ms", "partition", "spans_count",
        "topic", "unclean_count", "under_ms",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.changes_count = 0
        self.elections_count = 0
        self.unclean_count = 0
        self.leaderless_count = 0
        self.isr_changes_count = 0
        self.spans_count = 0
        self.under_ms = 0
        self.longest_ms = 0
        self.last_unclean_offset: int | None = None
        self.last_unclean_timestamp_ms: int | None = None

    def take(self, change: PartitionChange) -> None:
        """Count a change."""
        if Why.SNAPSHOT not in change.why and Why.SETTING not in change.why:
            self.changes_count += 1
        for why in change.why:
            if why.is_election:
                self.elections_count += 1
            if why.is_unclean:
                self.unclean_count += 1
                self.last_unclean_offset = change.offset
                self.last_unclean_timestamp_ms = change.timestamp_ms
        if Why.ISR_SHRINK in change.why or Why.ISR_EXPAND in change.why:
            self.isr_changes_count += 1
        self.leaderless_count += Why.NO_LEADER in change.why


class UnderIsrSpans:
    """The spans of changes: spans that end, and open spans.

    Attributes:
        sums: by topic id and partition, including deleted topics.
    """

    def __init__(self) -> None:
        self.sums: dict[tuple[bytes, int], PartitionSum] = {}
        self._open: dict[tuple[bytes, int], UnderIsrSpan] = {}

    def take(self, change: PartitionChange) -> UnderIsrSpan | None:
        """Take the next change, and return the span that it ends."""
        key = change.topic_id, change.partition
        found = self.sums.get(key)
        if found is None:
            found = self.sums[key] = PartitionSum(change.topic, change.partition)
        found.take(change)
        span = self._open.get(key)
        if change.is_under_min_isr:
            self._open[key] = _begun(change) if span is None else _gone_on(span, change)
            return None
        if span is None:
            return None
        del self._open[key]
        ended = span._replace(end_offset=change.offset, end_timestamp_ms=change.timestamp_ms)
        found.spans_count += 1
        duration_ms = ended.duration_ms or 0
        found.under_ms += duration_ms
        found.longest_ms = max(found.longest_ms, duration_ms)
        return ended

    def still_open(self) -> Iterator[UnderIsrSpan]:
        """Yield the open spans, by topic and partition."""
        yield from sorted(self._open.values(), key=lambda each: (each.topic, each.partition))


def _begun(change: PartitionChange) -> UnderIsrSpan:
    count, is_leaderless = _in_sync(change)
    return UnderIsrSpan(
        topic=change.topic,
        partition=change.partition,
        start_offset=change.offset,
        start_timestamp_ms=change.timestamp_ms,
        is_start_known=Why.SNAPSHOT not in change.why,
        end_offset=None,
        end_timestamp_ms=None,
        min_insync_replicas=change.min_insync_replicas,
        least_in_sync_count=count,
        was_leaderless=is_leaderless,
    )


def _gone_on(span: UnderIsrSpan, change: PartitionChange) -> UnderIsrSpan:
    count, is_leaderless = _in_sync(change)
    return span._replace(
        least_in_sync_count=min(count, span.least_in_sync_count),
        was_leaderless=span.was_leaderless or is_leaderless,
    )


def _in_sync(change: PartitionChange) -> tuple[int, bool]:
    after = change.after
    if after is None or after.leader < 0:
        return 0, True
    return len(after.isr), False
