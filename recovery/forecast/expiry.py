"""The committed offsets and transactional ids that a broker's coordinators remove after a start.

OffsetMetadataManager removes the expired offsets of groups at each
`offsets.retention.check.interval.ms`, first that long after the load. TransactionStateManager
removes idle transactional ids at each
`transaction.remove.expired.transaction.cleanup.interval.ms`, first that long after the load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.forecast.removals import TakenBy
from recovery.forecast.retention import Taken, Taking
from recovery.groups.group_log import expires_at_ms
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.cluster.coordinator_log import CoordinatorLog
    from recovery.forecast.retention import Horizon
    from recovery.forecast.settings import NodeSettings, Number
    from recovery.groups.group_log import GroupLog

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
