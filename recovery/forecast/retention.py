"""The segments that retention deletes after a start, and when (UnifiedLog.deleteOldSegments).

R1  Logs without `compact` belong to the task `kafka-log-retention`: after
    `log.initial.task.delay.ms`, then at every check interval. Logs with `compact` belong to the
    cleaner's threads, which delete nothing if the cleaner is off or the log is uncleanable.
R2  Deletion takes a prefix. A segment goes while the rule holds and the high watermark reaches its
    end. The active segment goes too, unless it is empty.
R3  The rules are log start, size, time (2.8: time, size, log start). Each applies to what the
    rule before it left. Without `delete` in the policy only the log start counts.
R4  Time: `now - largest timestamp > retention.ms`. `StartedSegment` has the largest timestamp.
R5  Size: the oldest segments go while the rest is not below `retention.bytes`.
R6  Log start: a segment goes if the next segment begins at or below it.
R8  With remote storage a segment goes only after it was copied.

All dates are for a broker to which nobody writes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from recovery.forecast.removals import (
    HeldBy,
    Removal,
    RuleSet,
    TakenBy,
    due_at,
    is_empty_end,
    may_go,
    removals,
    run_at,
)
from recovery.forecast.settings import TimeSource
from recovery.groups.group_log import expires_at_ms
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.cluster.coordinator_log import CoordinatorLog
    from recovery.forecast.settings import NodeSettings, Number, TopicRules
    from recovery.forecast.started_log import StartedLog, StartedSegment
    from recovery.groups.group_log import GroupLog
    from storage.dirs.cluster_image import PartitionImage


class Taken(StrEnum):
    """The kind of a taking."""

    SEGMENT = "segment"
    DIRECTORY = "directory"
    REMOTE_RANGE = "remote-range"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Taking(NamedTuple):
    """A segment, directory, group or transactional id that the broker removes, or holds.

    Attributes:
        what: the kind.
        by: the rule that takes it.
        path: of the `.log`, or the directory.
        end_offset: one above the last offset.
        size_bytes: of the `.log` files.
        freed_bytes: allocated blocks of all its files.
        largest_timestamp_ms: the time by which the broker judges it.
        batches_timestamp_ms: the largest timestamp of its batches.
        is_premature: by its batches it is not due, only by its time index or file time.
        is_certain: no other replica, no unread setting and no unread checksum decides it.
        is_acknowledged: its records are below the high watermark. None: unknown.
        due_at_ms: from when on the rule holds.
        run_at_ms: the run that takes it. None: no run does.
        unlinked_at_ms: when its files are removed, and their room is free.
        setting, setting_value, setting_source: the deciding setting.
        held_by: why it stays. None: it is taken.
        name: of the group or the transactional id.
    """

    what: Taken
    by: TakenBy
    topic: str
    partition: int | None
    path: str
    base_offset: int | None
    end_offset: int | None
    records_count: int | None
    size_bytes: int | None
    freed_bytes: int | None
    largest_timestamp_ms: int | None
    largest_from: TimeSource | None
    batches_timestamp_ms: int | None
    is_premature: bool
    is_certain: bool
    is_acknowledged: bool | None
    due_at_ms: int | None
    run_at_ms: int | None
    unlinked_at_ms: int | None
    is_first_run: bool
    setting: str
    setting_value: str
    setting_source: str
    held_by: HeldBy | None
    name: str = ""


class Horizon(NamedTuple):
    """The time of a forecast.

    Attributes:
        now_ms: the moment at which the logs are loaded.
        until_ms: the last moment of the forecast. None: the first run of each log.
        is_old: the release is older than 3.0, which applies the rules in another order.
    """

    now_ms: int
    until_ms: int | None
    is_old: bool = False


class HighWatermark(NamedTuple):
    """The high watermark when the tasks run.

    Attributes:
        least: at least this.
        most: at most this, after other replicas have caught up.
        acknowledged: the offset up to which records are acknowledged. None: unknown.
    """

    least: int
    most: int
    acknowledged: int | None


def high_watermark_of(
    log: StartedLog, placed: PartitionImage | None, node_id: int | None
) -> HighWatermark:
    """Return the high watermark of a log when the broker's tasks run.

    Args:
        log: after the start.
        placed: of the metadata. None: unknown.
        node_id: of the node. None: unknown.
    """
    line = log.high_watermark
    least = min(max(log.log_start_offset if line is None else line, 0), log.end_offset)
    if log.is_future or placed is None or node_id is None:
        return HighWatermark(least, log.end_offset, line)
    # A clean stop of the last replica leaves an empty ISR, and the replica in the ELR (KIP-966).
    eligible = placed.isr or placed.elr or placed.last_known_elr
    if eligible == (node_id,) or placed.replicas == (node_id,):
        return HighWatermark(log.end_offset, log.end_offset, log.end_offset)
    if node_id not in eligible:
        return HighWatermark(least, least, line)
    return HighWatermark(least, log.end_offset, line)


# -- the rows


def directory_taking(
    topic: str, partition: int, path: str, *, size_bytes: int | None, now_ms: int
) -> Taking:
    """Return the row of a directory that a start deletes."""
    return Taking(
        what=Taken.DIRECTORY,
        by=TakenBy.NOT_SERVED,
        topic=topic,
        partition=partition,
        path=path,
        base_offset=None,
        end_offset=None,
        records_count=None,
        size_bytes=size_bytes,
        freed_bytes=None,
        largest_timestamp_ms=None,
        largest_from=None,
        batches_timestamp_ms=None,
        is_premature=False,
        is_certain=True,
        is_acknowledged=None,
        due_at_ms=now_ms,
        run_at_ms=now_ms,
        unlinked_at_ms=None,
        is_first_run=False,
        setting="",
        setting_value="",
        setting_source="",
        held_by=None,
    )


class RetentionFacts(NamedTuple):
    """The facts that decide about a log, besides the log.

    Attributes:
        rules: the settings of its topic.
        mark: the high watermark.
        is_placed: the metadata of the partition are known.
        is_uncleanable: the cleaner fails on the log. None: unknown.
        copied_end: one above the last offset in remote storage. None: unknown.
    """

    rules: TopicRules
    mark: HighWatermark
    is_placed: bool
    is_uncleanable: bool | None = False
    copied_end: int | None = None


def forecast_retention(log: StartedLog, facts: RetentionFacts, horizon: Horizon) -> list[Taking]:
    """Return the segments that retention deletes until the end of the forecast, and holds."""
    rules = facts.rules
    first_ms, interval_ms = run_times(rules, horizon.now_ms)
    if horizon.until_ms is None:
        horizon = horizon._replace(until_ms=first_ms)
    until_ms = horizon.until_ms or first_ms
    rule_set = _rule_set(log, facts, horizon)
    times = {"first_run_ms": first_ms, "interval_ms": interval_ms, "until_ms": until_ms}
    segments = log.segments
    possible = removals(segments, rule_set._replace(high_watermark=facts.mark.most), **times)
    certain_count = len(removals(segments, rule_set, **times))
    maker = _Maker(log, facts, horizon, first_ms)
    held_by = _held_whole(rules, facts)
    found = [
        maker.row(each, is_reached=each.place < certain_count, held_by=held_by) for each in possible
    ]
    if held_by is None:
        held_rules = rule_set._replace(high_watermark=facts.mark.most)
        found += maker.held(len(possible), held_rules)
    return found


def run_times(rules: TopicRules, now_ms: int) -> tuple[int, int]:
    """Return the first run of the task that deletes from a log, and its interval."""
    if rules.compacts:
        # A partition has no role in the first pass of the cleaner, so nothing is due in it.
        return now_ms + rules.backoff.value, max(rules.backoff.value, 1)
    return now_ms + rules.first_delay.value, max(rules.interval.value, 1)


def _rule_set(log: StartedLog, facts: RetentionFacts, horizon: Horizon) -> RuleSet:
    rules = facts.rules
    is_empty_policy = not rules.compacts and not rules.deletes
    copied_end = None
    if rules.copies:
        copied_end = 0 if facts.copied_end is None else facts.copied_end
    return RuleSet(
        deletes=rules.deletes or (is_empty_policy and rules.copies),
        retention_ms=rules.retention_ms.value,
        retention_bytes=rules.retention_bytes.value,
        log_start_offset=log.local_start_offset,
        high_watermark=facts.mark.least,
        copied_end=copied_end,
        is_old=horizon.is_old,
    )


def _held_whole(rules: TopicRules, facts: RetentionFacts) -> HeldBy | None:
    """Return why no task deletes from the log at all."""
    if not rules.compacts:
        return None
    if rules.cleaner_enabled is False:
        return HeldBy.CLEANER_OFF
    return HeldBy.UNCLEANABLE if facts.is_uncleanable else None


class _Maker:
    """A maker of the rows of one log."""

    def __init__(
        self, log: StartedLog, facts: RetentionFacts, horizon: Horizon, first_run_ms: int
    ) -> None:
        self._log = log
        self._facts = facts
        self._rules = facts.rules
        self._horizon = horizon
        self._first_run_ms = first_run_ms

    def row(self, removal: Removal, *, is_reached: bool, held_by: HeldBy | None) -> Taking:
        """Return the row of a segment that a run deletes, unless `held_by` is set."""
        segment = self._log.segments[removal.place]
        deciding = self._number(removal.by)
        is_known = self._is_known(deciding)
        is_taken = held_by is None
        return self._of(segment, self._by(removal.by), deciding)._replace(
            is_premature=is_taken and self._is_premature(segment, removal),
            is_certain=is_reached and is_known,
            due_at_ms=removal.due_at_ms,
            run_at_ms=removal.run_at_ms if is_taken else None,
            unlinked_at_ms=(
                removal.run_at_ms + self._rules.delete_delay.value if is_taken else None
            ),
            is_first_run=is_taken and removal.run_at_ms == self._first_run_ms,
            held_by=held_by,
        )

    def held(self, place: int, rule_set: RuleSet) -> Iterator[Taking]:
        """Yield the segments from a place on that are too old, but stay."""
        segments = self._log.segments
        first = place
        for number in range(place, len(segments)):
            segment = segments[number]
            if is_empty_end(segments, number):
                return
            due_ms = due_at(segment, rule_set._replace(deletes=True))
            if due_ms is None or segment.largest_timestamp_ms is None:
                continue
            # A broker compares with the time of its run, and warns then.
            is_future = segment.largest_timestamp_ms > self._first_run_ms
            _, interval_ms = run_times(self._rules, self._horizon.now_ms)
            run_ms = run_at(due_ms, self._first_run_ms, interval_ms)
            until_ms = self._horizon.until_ms
            if until_ms is not None and run_ms > until_ms and not is_future:
                continue
            reason = HeldBy.OLDER_SEGMENT
            if not rule_set.deletes:
                if self._rules.compacts:
                    continue  # it compacts, and deletes nothing by time
                reason = HeldBy.NO_POLICY
            elif is_future:
                reason = HeldBy.FUTURE_TIME
            elif number == first:
                reason = may_go(segments, number, rule_set) or HeldBy.OLDER_SEGMENT
            deciding = self._rules.retention_ms
            yield self._of(segment, self._by(TakenBy.RETENTION_MS), deciding)._replace(
                is_certain=self._is_known(deciding), due_at_ms=due_ms, held_by=reason
            )

    def _of(self, segment: StartedSegment, by: TakenBy, deciding: Number | None) -> Taking:
        log, acknowledged = self._log, self._facts.mark.acknowledged
        setting = None if deciding is None else deciding.setting
        return Taking(
            what=Taken.SEGMENT,
            by=by,
            topic=log.topic,
            partition=log.partition,
            path=log.path,
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            records_count=segment.records_count,
            size_bytes=segment.log_bytes,
            freed_bytes=segment.disk_bytes,
            largest_timestamp_ms=segment.largest_timestamp_ms,
            largest_from=segment.largest_from,
            batches_timestamp_ms=segment.batches_timestamp_ms,
            is_premature=False,
            is_certain=False,
            is_acknowledged=None if acknowledged is None else segment.end_offset <= acknowledged,
            due_at_ms=None,
            run_at_ms=None,
            unlinked_at_ms=None,
            is_first_run=False,
            setting="" if setting is None else setting.name,
            setting_value="" if deciding is None else str(deciding.value),
            setting_source="" if setting is None else setting.source.value,
            held_by=None,
        )

    def _is_known(self, deciding: Number | None) -> bool:
        rules = self._rules
        is_task_known = rules.cleaner_enabled is not None or not rules.compacts
        is_set = deciding is None or deciding.is_known
        is_tier_known = not rules.is_tiered
        return (
            is_set
            and is_task_known
            and is_tier_known
            and self._facts.is_placed
            and not self._log.is_guess
            and not self._log.is_future
        )

    def _number(self, by: TakenBy) -> Number | None:
        numbers = {
            TakenBy.RETENTION_MS: self._rules.retention_ms,
            TakenBy.RETENTION_BYTES: self._rules.retention_bytes,
        }
        return numbers.get(by)

    def _by(self, by: TakenBy) -> TakenBy:
        """Return the rule by the name of the setting that decides."""
        deciding = self._number(by)
        is_local = deciding is not None and deciding.setting.name.startswith("local.")
        return TakenBy(f"local.{by}") if is_local else by

    def _is_premature(self, segment: StartedSegment, removal: Removal) -> bool:
        batches_ms = segment.batches_timestamp_ms
        if removal.by is not TakenBy.RETENTION_MS or batches_ms is None:
            return False
        if segment.largest_from is TimeSource.BATCHES:
            return False
        return batches_ms + self._rules.retention_ms.value >= removal.run_at_ms


# --- offsets and transactional ids that coordinators remove: at each
# `offsets.retention.check.interval.ms` (OffsetMetadataManager), and at each
# `transaction.remove.expired.transaction.cleanup.interval.ms` (TransactionStateManager).


MINUTE_MS = 60_000
_IDLE = frozenset(
    {TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT}
)


def forecast_groups(log: GroupLog, node: NodeSettings, horizon: Horizon) -> Iterator[Taking]:
    """Yield a row for each group with offsets that expire until the end of the forecast."""
    retention = node.broker_number("offsets.retention.minutes")
    interval = node.broker_number("offsets.retention.check.interval.ms")
    for name, commits in log.all_commits().items():
        group = log.groups.get(name)
        if group is None:
            continue
        times = [expires_at_ms(group, each, retention.value * MINUTE_MS) for each in commits]
        due = [each for each in times if each is not None and each <= horizon_end(horizon)]
        if not due:
            continue
        run_ms = _run_after(min(due), horizon.now_ms, interval.value)
        if run_ms <= horizon_end(horizon):
            yield _row(
                Taken.GROUP,
                name,
                retention,
                topic=GROUPS_TOPIC,
                partition=group.partition,
                records_count=len(due),
                due_ms=min(due),
                run_ms=run_ms,
                is_certain=retention.is_known and interval.is_known and log.has_all_of(name),
                is_first=run_ms == horizon.now_ms + interval.value,
            )


def forecast_transactional_ids(
    log: CoordinatorLog, node: NodeSettings, horizon: Horizon
) -> Iterator[Taking]:
    """Yield a row for each transactional id that expires until the end of the forecast."""
    retention = node.broker_number("transactional.id.expiration.ms")
    interval = node.broker_number("transaction.remove.expired.transaction.cleanup.interval.ms")
    for name, record in sorted(log.ids.items()):
        state = record.state
        if state is None or state.status not in _IDLE:
            continue
        due_ms = state.last_update_timestamp_ms + retention.value
        run_ms = _run_after(due_ms, horizon.now_ms, interval.value)
        if run_ms <= horizon_end(horizon):
            yield _row(
                Taken.TRANSACTIONAL_ID,
                name,
                retention,
                topic=TRANSACTION_STATE_TOPIC,
                partition=record.partition,
                records_count=1,
                due_ms=due_ms,
                run_ms=run_ms,
                is_certain=retention.is_known
                and interval.is_known
                and log.has_whole(record.partition),
                is_first=run_ms == horizon.now_ms + interval.value,
            )


def horizon_end(horizon: Horizon) -> int:
    """Return the last moment of a forecast."""
    return horizon.now_ms if horizon.until_ms is None else horizon.until_ms


def _run_after(due_ms: int, now_ms: int, interval_ms: int) -> int:
    """Return the first run at or after a moment. The first run is one interval after the load."""
    interval_ms = max(interval_ms, 1)
    runs_count = max(-(-(due_ms - now_ms) // interval_ms), 1)
    return now_ms + runs_count * interval_ms


def _row(
    what: Taken,
    name: str,
    setting: Number,
    *,
    topic: str,
    partition: int,
    records_count: int,
    due_ms: int,
    run_ms: int,
    is_certain: bool,
    is_first: bool,
) -> Taking:
    return Taking(
        what=what,
        by=TakenBy.EXPIRY,
        topic=topic,
        partition=partition,
        path="",
        base_offset=None,
        end_offset=None,
        records_count=records_count,
        size_bytes=None,
        freed_bytes=None,
        largest_timestamp_ms=None,
        largest_from=None,
        batches_timestamp_ms=None,
        is_premature=False,
        is_certain=is_certain,
        is_acknowledged=None,
        due_at_ms=due_ms,
        run_at_ms=run_ms,
        unlinked_at_ms=None,
        is_first_run=is_first,
        setting=setting.setting.name,
        setting_value=setting.setting.value,
        setting_source=setting.setting.source.value,
        held_by=None,
        name=name,
    )
