"""From the options of `cluster-state --history` to rows: what became of the cluster, in order."""

from __future__ import annotations

from collections import deque
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.runs.reports.cluster_metadata import (
    GivenMetadata,
    moment_notes,
    newest_copy,
    parse_moment,
    parted_note,
    reading_notes,
    require_reached,
    wanted_topics,
)
from eoctl.runs.reports.cluster_state import shown_value
from recovery.cluster.clusters import counted, voters_of
from recovery.cluster.history import (
    BrokerChange,
    FeatureChange,
    PartitionChange,
    QuorumLeaderChange,
    SettingChange,
    Unread,
    read_history,
)
from recovery.cluster.in_sync import UnderIsrSpans
from storage.errors import EXIT_OK, EXIT_SKIPPED, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.cluster.history import Change
    from recovery.cluster.in_sync import PartitionSum, UnderIsrSpan

KEPT_SPANS = 1000  # the longest ones, for text; programs get all of them
COLUMNS = (
    "timestamp_ms", "offset", "what", "leader", "isr", "elr", "leader_epoch", "why",
    "is_under_min_isr", "min_insync_replicas",
)  # fmt: skip


class SpanRow(NamedTuple):
    """A time in which acks=all was refused; no end: it has not ended."""

    topic: str
    partition: int
    start_timestamp_ms: int
    duration_ms: int | None
    start_offset: int
    end_offset: int | None
    end_timestamp_ms: int | None
    min_insync_replicas: int
    least_in_sync_count: int
    was_leaderless: bool
    is_start_known: bool


class SumRow(NamedTuple):
    """What became of a partition, in sums."""

    topic: str
    partition: int
    changes_count: int
    elections_count: int
    unclean_count: int
    leaderless_count: int
    isr_changes_count: int
    spans_count: int
    under_min_isr_ms: int
    longest_under_ms: int
    last_unclean_offset: int | None
    last_unclean_timestamp_ms: int | None


class HistoryRun:
    """Reads the changes, one after the other; sums and notes are complete at the end."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        metadata_dir: str | None,
        at: str | None,
        topics: Sequence[str],
    ) -> None:
        self.given = given = GivenMetadata(paths, metadata_dir)
        if not given.copies:
            raise UsageError(f"{given.path}: nothing has happened yet: there is no log")
        self._wanted = wanted_topics(topics)
        self._spans = UnderIsrSpans()
        self._longest: list[tuple[int, int, UnderIsrSpan]] = []
        self._ended_count = 0
        self._moment = moment = parse_moment(at, given.end_time_ms())
        self.copy, self._passed_over = newest_copy(given, moment)
        require_reached(self.copy, self.copy.end_offset, moment)
        self.history = read_history(self.copy.partition, until=moment, is_wanted=self._wanted)
        self.changes_count = 0

    @property
    def log_bytes(self) -> int:
        """How much there is to read."""
        return sum(each.log.file_bytes for each in self.copy.partition.segments)

    def changes(self) -> Iterator[Change]:
        """Give the changes, each once."""
        for change in self.history:
            self.changes_count += 1
            yield change

    def take(self, change: PartitionChange) -> UnderIsrSpan | None:
        """Count a change of a partition; returns the span under min ISR that it ends."""
        ended = self._spans.take(change)
        if ended is not None:
            self._ended_count += 1
            entry = (ended.duration_ms or 0, self._ended_count, ended)
            if len(self._longest) < KEPT_SPANS:
                heappush(self._longest, entry)
            else:
                heappushpop(self._longest, entry)
        return ended

    @property
    def spans(self) -> list[SpanRow]:
        """Those that have not ended, then the longest ones."""
        ended = [each for _, _, each in sorted(self._longest, reverse=True)]
        return [span_row(each) for each in [*self._spans.still_open(), *ended]]

    @property
    def open_spans(self) -> list[SpanRow]:
        """Those that have not ended."""
        return [span_row(each) for each in self._spans.still_open()]

    @property
    def sums(self) -> list[SumRow]:
        """Partitions by name."""
        found = sorted(self._spans.sums.values(), key=lambda each: (each.topic, each.partition))
        return [_sum_row(each) for each in found]

    @property
    def notes(self) -> list[str]:
        """Sentences for people, once all changes were given."""
        history = self.history
        voters = voters_of(history.image, self.given.copies)
        known = counted(self.given.copies, voters, history.end_offset, read=self.copy)
        told = [*self.given.notes, *self._passed_over, *reading_notes(self.copy, history)]
        if history.start_offset:
            told.append(f"what was before offset {history.start_offset} is in no file any more")
        told += parted_note(self.copy, known, history.end_offset)
        if known.end_offset < history.end_offset and known.parted_from is None:
            told.append(
                f"changes from offset {known.end_offset} on may never have counted: how far the"
                f" {len(voters) or 'unknown number of'} voters had agreed is not known"
            )
        told += moment_notes(history, self._moment)
        if history.end_offset:
            told.append(
                f"metadata: {self.copy.partition.path}, offsets {history.start_offset} to"
                f" {history.end_offset - 1}"
            )
        return told

    @property
    def status(self) -> int:
        """5: not all of it could be read."""
        is_short = self.given.is_short or self._passed_over or not self.history.is_complete
        return EXIT_SKIPPED if is_short else EXIT_OK


def row_of(change: Change) -> dict[str, Any]:
    """Make a row for programs; each kind of change has its own columns."""
    time_ms, offset = change.timestamp_ms, change.offset
    if isinstance(change, PartitionChange):
        return _partition_row(change)
    if isinstance(change, BrokerChange):
        return {
            "kind": "broker_change", "timestamp_ms": time_ms, "offset": offset,
            "broker": change.broker_id,
            "why": change.why,
            "is_fenced": None if change.after is None else change.after.is_fenced,
            "broker_epoch": None if change.after is None else change.after.broker_epoch,
        }  # fmt: skip
    if isinstance(change, SettingChange):
        return {
            "kind": "setting_change", "timestamp_ms": time_ms, "offset": offset,
            "resource_type": change.resource_type,
            "resource_name": change.resource_name,
            "setting": change.name,
            "before": shown_value(change.name, change.before),
            "after": shown_value(change.name, change.after),
        }  # fmt: skip
    if isinstance(change, FeatureChange):
        return {
            "kind": "feature_change", "timestamp_ms": time_ms, "offset": offset,
            "feature": change.name, "before": change.before, "after": change.after,
        }  # fmt: skip
    if isinstance(change, QuorumLeaderChange):
        return {
            "kind": "quorum_leader_change", "timestamp_ms": time_ms, "offset": offset,
            "leader": change.leader, "epoch": change.epoch, "voters": change.voters,
        }  # fmt: skip
    return {
        "kind": "unread", "timestamp_ms": time_ms, "offset": offset,
        "end_offset": change.end_offset, "reason": change.reason,
    }  # fmt: skip


def _partition_row(change: PartitionChange) -> dict[str, Any]:
    after = change.after
    return {
        "kind": "partition_change",
        "timestamp_ms": change.timestamp_ms,
        "offset": change.offset,
        "topic": change.topic,
        "partition": change.partition,
        "leader": None if after is None else after.leader,
        "isr": None if after is None else after.isr,
        "elr": None if after is None else after.elr,
        "leader_epoch": None if after is None else after.leader_epoch,
        "partition_epoch": None if after is None else after.partition_epoch,
        "replicas": None if after is None else after.replicas,
        "why": change.why,
        "is_unclean": change.is_unclean,
        "min_insync_replicas": change.min_insync_replicas,
        "is_under_min_isr": change.is_under_min_isr,
    }


def line_of(change: Change) -> tuple[Any, ...]:
    """Make a row of `COLUMNS` for people: all kinds of changes in one table."""
    time_ms, offset = change.timestamp_ms, change.offset
    if isinstance(change, PartitionChange):
        after, what = change.after, f"{change.topic}-{change.partition}"
        why = ", ".join(change.why)
        if after is None:
            return (time_ms, offset, what, "", "", "", "", why, "", "")
        leader = "none" if after.leader < 0 else after.leader
        return (
            time_ms, offset, what, leader, after.isr, after.elr, after.leader_epoch, why,
            change.is_under_min_isr, change.min_insync_replicas,
        )  # fmt: skip
    what, why = _words(change)
    return (time_ms, offset, what, "", "", "", "", why, "", "")


def _words(change: Change) -> tuple[str, str]:
    if isinstance(change, BrokerChange):
        return f"broker {change.broker_id}", ", ".join(change.why)
    if isinstance(change, SettingChange):
        value = shown_value(change.name, change.after)
        told = "removed" if value is None else f"= {value}"
        return change.resource_name or "all brokers", f"{change.name} {told}"
    if isinstance(change, FeatureChange):
        return f"feature {change.name}", f"level {change.after}"
    if isinstance(change, QuorumLeaderChange):
        return f"controller {change.leader}", f"leads the quorum, epoch {change.epoch}"
    assert isinstance(change, Unread)
    end = "" if change.end_offset is None else f" to {change.end_offset - 1}"
    return "unread", f"offsets {change.offset}{end}: {change.reason}"


def newest(changes: Iterator[Change], run: HistoryRun, limit: int) -> list[tuple[Any, ...]]:
    """Count all changes, and keep the newest ones."""
    kept: deque[tuple[Any, ...]] = deque(maxlen=limit)
    for change in changes:
        if isinstance(change, PartitionChange):
            run.take(change)
        kept.append(line_of(change))
    return [*kept]


def span_row(span: UnderIsrSpan) -> SpanRow:
    """Make a row of a span."""
    return SpanRow(
        topic=span.topic,
        partition=span.partition,
        start_timestamp_ms=span.start_timestamp_ms,
        duration_ms=span.duration_ms,
        start_offset=span.start_offset,
        end_offset=span.end_offset,
        end_timestamp_ms=span.end_timestamp_ms,
        min_insync_replicas=span.min_insync_replicas,
        least_in_sync_count=span.least_in_sync_count,
        was_leaderless=span.was_leaderless,
        is_start_known=span.is_start_known,
    )


def _sum_row(found: PartitionSum) -> SumRow:
    return SumRow(
        topic=found.topic,
        partition=found.partition,
        changes_count=found.changes_count,
        elections_count=found.elections_count,
        unclean_count=found.unclean_count,
        leaderless_count=found.leaderless_count,
        isr_changes_count=found.isr_changes_count,
        spans_count=found.spans_count,
        under_min_isr_ms=found.under_ms,
        longest_under_ms=found.longest_ms,
        last_unclean_offset=found.last_unclean_offset,
        last_unclean_timestamp_ms=found.last_unclean_timestamp_ms,
    )
