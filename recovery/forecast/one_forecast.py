"""The forecast of one log by all rules, and the findings of the family TAK."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.checks.context import broker_version as releases
from recovery.forecast.cleaner import Cleaning, DirtyFrom, NotChosen, forecast_cleaning
from recovery.forecast.removals import HeldBy, TakenBy
from recovery.forecast.retention import (
    Horizon,
    RetentionFacts,
    Taken,
    Taking,
    forecast_retention,
    high_watermark_of,
)
from recovery.forecast.settings import NodeSettings, rules_of
from recovery.rules.catalogue import fix_of, severity_of
from recovery.rules.findings import Finding
from storage.counts import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.forecast.settings import TopicRules
    from recovery.forecast.started_log import StartedLog
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import ServerProperties
    from storage.dirs.log_dir import LogDir


class LogForecast(NamedTuple):
    """The forecast of one log.

    Attributes:
        takings: the rows of retention, taken and held.
        cleaning: None for a log that is not compacted.
        node_id: of its node. None: unknown.
        takings_before: the rows if the cleaner cleans another log before it fails on this log.
    """

    log: StartedLog
    takings: tuple[Taking, ...]
    cleaning: Cleaning | None
    node_id: int | None = None
    takings_before: tuple[Taking, ...] = ()

    @property
    def dirty_ratio(self) -> float | None:
        """The dirty share of a log that the cleaner tries. None: it does not try the log."""
        cleaning = self.cleaning
        if cleaning is None or not (cleaning.is_chosen or cleaning.why_not is NotChosen.FAILS):
            return None
        return cleaning.cleanable_ratio

    @property
    def first_run(self) -> tuple[Taking, ...]:
        """The takings of the first run."""
        return tuple(each for each in self.takings if each.is_first_run)


def node_settings(
    log_dir: LogDir | None, image: ClusterImage | None, node: ServerProperties | None
) -> NodeSettings:
    """Return the places of the settings of the node of a log dir."""
    meta = None if log_dir is None else log_dir.meta
    return NodeSettings(
        image=image,
        node_id=None if meta is None else meta.node_id,
        properties=None if node is None else node.settings,
    )


def horizon_at(now_ms: int, until_ms: int | None, version: BrokerVersion | None = None) -> Horizon:
    """Return the time of a forecast for a release. Without an end it ends with the first run."""
    is_old = releases.is_before(version, (3, 0))
    return Horizon(now_ms, until_ms, is_old=is_old)


def forecast_log(
    log: StartedLog,
    node: NodeSettings,
    horizon: Horizon,
    *,
    copied_end: int | None = None,
) -> LogForecast:
    """Return the forecast of a log.

    Args:
        log: after the start.
        node: the places of the settings.
        horizon: the time of the forecast.
        copied_end: one above the last offset in remote storage. None: unknown.
    """
    rules = rules_of(node, log.topic, is_compacted=log.is_compacted)
    placed = None if node.image is None else node.image.partition(log.topic, log.partition)
    mark = high_watermark_of(log, placed, node.node_id)
    cleaning = forecast_cleaning(log, rules, mark, horizon.now_ms, is_old=horizon.is_old)
    facts = RetentionFacts(
        rules=rules, mark=mark, is_placed=placed is not None, copied_end=copied_end
    )
    takings = tuple(forecast_retention(log, facts, horizon))
    takings_before: tuple[Taking, ...] = ()
    if cleaning is not None and cleaning.why_not not in {None, NotChosen.FAILS}:
        cleaning = forecast_cleaning(
            _after_first_run(log, takings), rules, mark, horizon.now_ms, is_old=horizon.is_old
        )
    if cleaning is not None and cleaning.why_not is NotChosen.FAILS:
        takings_before = takings
        facts = facts._replace(is_uncleanable=True)
        takings = tuple(forecast_retention(log, facts, horizon))
    forgotten = _forgotten(log, node, rules, horizon)
    return LogForecast(
        log=log,
        takings=(*forgotten, *takings),
        cleaning=cleaning,
        node_id=node.node_id,
        takings_before=takings_before,
    )


def _after_first_run(log: StartedLog, takings: Sequence[Taking]) -> StartedLog:
    """Return a log without the segments that the first run deletes."""
    gone = {each.base_offset for each in takings if each.is_first_run}
    segments = tuple(each for each in log.segments if each.base_offset not in gone)
    if not gone or not segments:
        return log
    start = max(log.local_start_offset, segments[0].base_offset)
    return log._replace(segments=segments, log_start_offset=start, local_start_offset=start)


def settled(forecasts: Sequence[LogForecast]) -> list[LogForecast]:
    """Apply the order of the cleaner, which depends on all logs of a node.

    In a pass it tries the dirtiest log, and then retention deletes from all logs that have not
    failed so far. So a log is only safe from retention if the cleaner fails on it first.
    """
    return [_settled(each, forecasts) if each.takings_before else each for each in forecasts]


def _settled(forecast: LogForecast, forecasts: Sequence[LogForecast]) -> LogForecast:
    own = forecast.dirty_ratio or 0.0
    others = [
        each.dirty_ratio
        for each in forecasts
        if each is not forecast
        and each.node_id == forecast.node_id
        and each.dirty_ratio is not None
    ]
    if any(each > own for each in others):
        return forecast._replace(takings=forecast.takings_before)
    if own in others:
        unsure = tuple(each._replace(is_certain=False) for each in forecast.takings)
        return forecast._replace(takings=unsure)
    return forecast


def _forgotten(
    log: StartedLog, node: NodeSettings, rules: TopicRules, horizon: Horizon
) -> Iterator[Taking]:
    """Yield the remote range that a broker without remote storage forgets at its start (R8)."""
    if not rules.is_tiered or rules.has_remote_system is not False or not log.segments:
        return
    start, end = log.log_start_offset, log.segments[0].base_offset
    if start >= end:
        return
    system = node.of_broker("remote.log.storage.system.enable")
    yield Taking(
        what=Taken.REMOTE_RANGE,
        by=TakenBy.NOT_SERVED,
        topic=log.topic,
        partition=log.partition,
        path=log.path,
        base_offset=start,
        end_offset=end,
        records_count=None,
        size_bytes=None,
        freed_bytes=0,
        largest_timestamp_ms=None,
        largest_from=None,
        batches_timestamp_ms=None,
        is_premature=False,
        is_certain=True,
        is_acknowledged=True,
        due_at_ms=horizon.now_ms,
        run_at_ms=horizon.now_ms,
        unlinked_at_ms=None,
        is_first_run=True,
        setting=system.name,
        setting_value=system.value,
        setting_source=system.source.value,
        held_by=None,
    )


# -- findings (TAK)


def findings_of(
    forecasts: Sequence[LogForecast], free_bytes: Mapping[str, int], *, has_notes: bool = True
) -> Iterator[Finding]:
    """Yield the broken rules of the family TAK.

    Args:
        forecasts: of logs.
        free_bytes: by the path of a log, the bytes that the broker's user may write there.
        has_notes: also the notes TAK-5, TAK-6 and TAK-7.
    """
    for each in forecasts:
        yield from _of_takings(each)
        if each.cleaning is not None:
            yield from _of_cleaning(each, each.cleaning, free_bytes.get(each.log.path))
        if has_notes:
            yield from _notes(each)


def _found(check_id: str, forecast: LogForecast, message: str, **fields: Any) -> Finding:
    log = forecast.log
    return Finding(
        check_id=check_id,
        severity=severity_of(check_id),
        path=log.path,
        message=message,
        topic=log.topic,
        partition=log.partition,
        fix=fix_of(check_id, log.path),
    )._replace(**fields)


def _of_takings(forecast: LogForecast) -> Iterator[Finding]:
    early = [each for each in forecast.takings if each.is_premature]
    if early:
        first, last = early[0], early[-1]
        source = "time index" if first.largest_from == "time-index" else "file time"
        yield _found(
            "TAK-1",
            forecast,
            f"the {source} makes {counted(len(early), 'segment')} too old, and the batches are not",
            base_offset=first.base_offset,
            last_offset=(last.end_offset or 0) - 1,
        )
    for each in forecast.takings:
        if each.what is Taken.REMOTE_RANGE:
            yield _found(
                "TAK-8",
                forecast,
                f"{each.setting}={each.setting_value}: the start forgets the remote segments",
                base_offset=each.base_offset,
                last_offset=(each.end_offset or 0) - 1,
            )


def _of_cleaning(
    forecast: LogForecast, cleaning: Cleaning, free_bytes: int | None
) -> Iterator[Finding]:
    if cleaning.why_not is NotChosen.FAILS:
        yield _found(
            "TAK-2",
            forecast,
            f"the cleaner fails at offset {cleaning.fails_at_offset}, so the log is not compacted",
            base_offset=cleaning.fails_at_offset,
        )
        return
    if not cleaning.is_chosen:
        return
    needed = cleaning.needed_bytes
    if free_bytes is not None and needed is not None and needed > free_bytes:
        yield _found(
            "TAK-3",
            forecast,
            f"the cleaner needs up to {needed:,} bytes, {free_bytes:,} bytes are free",
        )
    if cleaning.damaged_batches_count:
        count = cleaning.damaged_batches_count
        yield _found(
            "TAK-4",
            forecast,
            f"a cleaning gives {count:,} damaged batches a right checksum, which hides the damage",
        )


def _notes(forecast: LogForecast) -> Iterator[Finding]:
    going = [each for each in forecast.first_run if each.what is Taken.SEGMENT]
    if going:
        first, last = going[0], going[-1]
        yield _found(
            "TAK-5",
            forecast,
            f"the first run of retention deletes {counted(len(going), 'segment')} by {first.by}",
            base_offset=first.base_offset,
            last_offset=(last.end_offset or 0) - 1,
        )
    future = [each for each in forecast.takings if each.held_by is HeldBy.FUTURE_TIME]
    if future:
        yield _found(
            "TAK-6",
            forecast,
            "a timestamp in the future keeps this segment and all later segments",
            base_offset=future[0].base_offset,
        )
    cleaning = forecast.cleaning
    if (
        cleaning is not None
        and cleaning.first_dirty_from is DirtyFrom.NO_LINE
        and cleaning.cleanable_bytes
    ):
        yield _found("TAK-7", forecast, "the cleaner has never recorded progress for this log")


# -- the free room of the file systems that logs are on


def free_bytes_of(paths: Iterable[str]) -> dict[str, int]:
    """Return the bytes that a user other than root may write, by the path of a partition.

    Paths whose file system cannot be asked are left out.
    """
    free = cache(_free_bytes)
    found = {path: free(str(Path(path).parent)) for path in paths}
    return {path: count for path, count in found.items() if count is not None}


def _free_bytes(directory: str) -> int | None:
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
