"""What the changes of a partition come to: spans under min.insync.replicas, elections, in sums.

Fed with the changes of `history`, one after the other. The memory it takes grows with the number
of partitions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.reasons import Why

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.cluster.changes import PartitionChange


class UnderIsrSpan(NamedTuple):
    """A time in which acks=all was refused.

    Attributes:
        start_offset: of the change that began it.
        is_start_known: False: it was so already when the metadata begin.
        end_offset: of the change that ended it; None: it has not ended.
        end_timestamp_ms: None: it has not ended.
        least_in_sync_count: the fewest that were in the ISR meanwhile, with a leader; else 0.
        was_leaderless: for some of it nobody led.
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
        """How long it was; None: it has not ended, or clocks contradict each other."""
        if self.end_timestamp_ms is None or self.end_timestamp_ms < self.start_timestamp_ms:
            return None
        return self.end_timestamp_ms - self.start_timestamp_ms


class PartitionSum:
    """What became of one partition, in sums.

    Attributes:
        under_ms: of the spans that have ended, together.
        longest_ms: of these the longest one.
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
    """Takes changes; tells spans as they end, and those that have not ended.

    Attributes:
        sums: by topic id and partition; of deleted ones, too.
    """

    def __init__(self) -> None:
        self.sums: dict[tuple[bytes, int], PartitionSum] = {}
        self._open: dict[tuple[bytes, int], UnderIsrSpan] = {}

    def take(self, change: PartitionChange) -> UnderIsrSpan | None:
        """Take the next change; returns the span that it ends."""
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
        """Give the spans that have not ended, by topic and partition."""
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
