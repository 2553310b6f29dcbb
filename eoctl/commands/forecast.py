"""`eoctl forecast`: what a broker's own tasks delete and clean after its start."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from eoctl.console.columns import duration_text, size_text, time_text
from eoctl.messages import (
    Line,
    Said,
    answer_width,
    fitting,
    listing,
    moment,
    report,
    report_answer,
    report_first,
    wrapped,
)
from eoctl.options import (
    Jobs,
    MetadataDir,
    Now,
    Output,
    Paths,
    ServerProperties,
    Topics,
    given_paths,
    process_count,
)
from eoctl.output import Columns, OutputFormat
from eoctl.parameters import advanced_option, option, output_option
from recovery.rules.findings import Severity
from storage.counts import counted
from storage.errors import EXIT_FINDINGS, EXIT_OK, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.commands.shared.check_run import CheckRun
    from recovery.forecast.cleaner import Cleaning
    from recovery.forecast.one_forecast import LogForecast
    from recovery.forecast.retention import Taking
    from recovery.rules.findings import Finding
    from storage.dirs.log_dir import LogDir

DEFAULT_UNTIL = "7d"
LABEL_WIDTH = 8


class ForecastFailOn(StrEnum):
    """The values of --fail-on."""

    TAKES = "takes"


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    metadata_dir: MetadataDir = None,
    topic: Topics = None,
    until: Annotated[
        str | None,
        option(
            metavar="TIME|DURATION", help="The end of the forecast.", show_default=DEFAULT_UNTIL
        ),
    ] = None,
    deep: Annotated[
        bool, option("--deep", help="Verify checksums, and count superseded records by key.")
    ] = False,
    broker_version: Annotated[
        str | None,
        advanced_option(metavar="VERSION", help="Kafka release that will start."),
    ] = None,
    now: Now = None,
    jobs: Jobs = None,
    fail_on: Annotated[
        ForecastFailOn | None,
        output_option("--fail-on", help="Exit with 1 if the first run takes anything."),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Forecast what a broker's own tasks delete and clean after its start.

    Retention, the log cleaner and expiry run seconds to minutes after a start. The result holds for
    a broker to which nobody writes. It reads only, and changes no setting.
    """
    wanted = given_paths(paths, server_properties)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl forecast PATH...")
    from eoctl.commands.shared.check_run import CheckRequest, CheckRun, prepared

    request = CheckRequest(
        wanted,
        metadata_dir=metadata_dir,
        is_deep=deep,
        is_fast=not deep,
        topics=tuple(topic or ()),
        jobs=process_count(jobs),
        now=now,
        server_properties=server_properties,
        broker_version=broker_version,
    )
    run, _ = prepared(request, CheckRun)
    run.until_ms = _until_ms(until or DEFAULT_UNTIL, run.now_ms)
    for _ in run.findings():
        pass
    return _report(_Result(run, is_deep=deep, has_topics=bool(topic)), fail_on, output)


def _until_ms(text: str, now_ms: int) -> int:
    from eoctl.clock import parse_duration_ms, parse_time_ms

    try:
        return now_ms + parse_duration_ms(text)
    except UsageError:
        return parse_time_ms(text)


class _Result:
    """The forecasts of a run, with the findings of the family TAK."""

    def __init__(self, run: CheckRun, *, is_deep: bool, has_topics: bool) -> None:
        from recovery.forecast.one_forecast import findings_of, free_bytes_of, settled

        self.run = run
        self.has_topics = has_topics
        self.forecasts = settled(sorted(run.forecasts, key=lambda each: each.log.path))
        self.free_bytes = free_bytes_of(each.log.path for each in self.forecasts)
        self.findings: list[Finding] = [*findings_of(self.forecasts, self.free_bytes)]
        self.takings = [row for each in self.forecasts for row in each.takings]
        self.takings += _directories(run)
        if is_deep:
            self.forecasts = _counted_deep(run, self.forecasts)
            self.takings += _expiring(run)
        self.cleanings = [each.cleaning for each in self.forecasts if each.cleaning is not None]

    @property
    def first_run(self) -> list[LogForecast]:
        """The forecasts with takings in the first run."""
        return [each for each in self.forecasts if each.first_run]

    @property
    def late_transactions(self) -> list[Finding]:
        """The late open transactions of the logs that they keep from the cleaner."""
        blocked = {each.path for each in self.cleanings if each.why_not == "open-transaction"}
        return [
            each.finding
            for each in self.run.placed
            if each.directory in blocked
            and each.finding.check_id == "TXO-1"
            and each.finding.severity is not Severity.NOTE
        ]

    @property
    def status(self) -> int:
        """The exit status without `--fail-on`."""
        is_error = any(each.severity is Severity.ERROR for each in self.findings)
        if is_error:
            return EXIT_FINDINGS
        return self.run.status if self.run.unreadable_count else EXIT_OK


def _report(result: _Result, fail_on: ForecastFailOn | None, output: OutputFormat) -> int:
    from eoctl.output import Report, emit, line, message
    from recovery.forecast.cleaner import Cleaning
    from recovery.forecast.retention import Taking

    is_text = output is OutputFormat.TEXT
    said = [*_answer(result, answer_width(output) - LABEL_WIDTH)]
    if is_text:
        report_first(said, output)
        columns = Columns(STEP_COLUMNS, noun="step")
        emit(Report("forecast", columns, _folded(result)), output)
        if result.findings:
            line("")
        for text in _folded_findings(result.findings):
            report(wrapped(Line(text), answer_width(output), LABEL_WIDTH))
    else:
        emit(Report("taking", Taking._fields, result.takings), output)
        emit(Report("cleaning", Cleaning._fields, result.cleanings), output)
        report_answer(said, output)
    for note in result.run.notes[1:]:
        message(note)
    if fail_on is ForecastFailOn.TAKES and result.first_run:
        return EXIT_FINDINGS
    return result.status


def _counted_deep(run: CheckRun, forecasts: Sequence[LogForecast]) -> list[LogForecast]:
    """Add the numbers of superseded records to the cleanings of logs that a start leaves as is."""
    from recovery.forecast.deep_counts import with_counts
    from recovery.forecast.one_forecast import node_settings
    from recovery.forecast.settings import rules_of
    from storage.dirs.partition import Partition

    jobs = {job.selected.partition.path: job for job in run.jobs}
    found = []
    for each in forecasts:
        job, cleaning = jobs[each.log.path], each.cleaning
        if cleaning is not None and not each.log.is_changed:
            node = node_settings(job.selected.log_dir, job.image, run.node)
            rules = rules_of(node, each.log.topic, is_compacted=each.log.is_compacted)
            partition = Partition.of(job.selected, job.image)
            cleaning = with_counts(partition, cleaning, rules.map_keys_count)
        found.append(each._replace(cleaning=cleaning))
    return found


def _directories(run: CheckRun) -> Iterator[Taking]:
    """Yield the directories that a start deletes."""
    from recovery.checks.log_dirs.log_dirs import DELETES
    from recovery.forecast.retention import directory_taking
    from recovery.start.prediction import DELETES_SOON, REPLACES

    for row in run.rows:
        if row.start in {DELETES, DELETES_SOON, REPLACES}:
            yield directory_taking(
                row.topic, row.partition, row.path, size_bytes=row.log_bytes, now_ms=run.now_ms
            )


def _expiring(run: CheckRun) -> Iterator[Taking]:
    """Yield the groups and the transactional ids that expire, of each cluster."""
    from recovery.cluster.coordinator_log import CoordinatorLog
    from recovery.forecast.one_forecast import horizon_at, node_settings
    from recovery.forecast.retention import forecast_groups, forecast_transactional_ids
    from recovery.groups.group_log import GroupLog
    from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC

    topics = {row.topic for row in run.rows}
    clusters: dict[str | None, list[LogDir]] = {}
    for log_dir in run.found.log_dirs:
        cluster_id = None if log_dir.meta is None else log_dir.meta.cluster_id
        clusters.setdefault(cluster_id, []).append(log_dir)
    horizon = horizon_at(run.now_ms, run.until_ms, run.release)
    for log_dirs in clusters.values():
        image = run.clusters.image_for(log_dirs[0])
        node = node_settings(log_dirs[0], image, run.node)
        if GROUPS_TOPIC in topics:
            yield from forecast_groups(GroupLog(log_dirs, image), node, horizon)
        if TRANSACTION_STATE_TOPIC in topics:
            coordinators = CoordinatorLog(log_dirs, image)
            yield from forecast_transactional_ids(coordinators, node, horizon)


def _folded_findings(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield a line for each rule, with its first finding and the number of others."""
    by_rule: dict[str, list[Finding]] = {}
    for each in sorted(findings, key=lambda one: -one.severity.rank):
        by_rule.setdefault(each.check_id, []).append(each)
    for check_id, found in by_rule.items():
        first = found[0]
        more = f", and {counted(len(found) - 1, 'more partition')}" if len(found) > 1 else ""
        place = f"{first.topic}-{first.partition}"
        yield f"{first.severity:{LABEL_WIDTH}}{place}: {first.message}{more} ({check_id})"


# -- the answer


def _answer(result: _Result, room: int) -> Iterator[Said]:
    yield from _takes(result, room)
    yield from _cleans(result, room)
    yield from _stuck(result, room)
    yield from _room(result, room)
    if not any(each.takings or each.cleaning for each in result.forecasts):
        yield Said("Takes", "nothing until the end of the forecast")
    if result.first_run:
        yield Said("Hold", _hold(result))
    yield _next(result)


def _takes(result: _Result, room: int) -> Iterator[Said]:
    from eoctl.commands.shared.check_verdict import taken_count

    forecasts = result.first_run
    if not forecasts:
        later = [row for row in result.takings if row.run_at_ms is not None]
        first_ms = min((row.run_at_ms or 0 for row in later), default=None)
        text = "nothing at the first run"
        if first_ms is not None:
            text += f"; the next deletion is in {duration_text(first_ms - result.run.now_ms)}"
        yield Said("Takes", text)
        return
    rows = [row for each in forecasts for row in each.first_run]
    places = list(dict.fromkeys(f"{row.topic}-{row.partition}" for row in rows))
    after_ms = min(row.run_at_ms or 0 for row in rows) - result.run.now_ms
    start = f"{duration_text(after_ms)} after the start" if after_ms else "at the start"
    whole = all(_is_emptied(each) for each in forecasts)
    left = "; nothing of it is left" if whole and len(places) == 1 else ""
    sure = "" if all(row.is_certain for row in rows) else "; not certain"
    why = _why(rows[0])
    newest = max((row.largest_timestamp_ms or -1 for row in rows), default=-1)
    when = f", newest record {moment(newest, is_short=True)}" if newest >= 0 else ""
    what = taken_count(forecasts)
    texts = [
        f"{what} of {listing(places, 'partitions')} {start}{left}: {why}{when}{sure}",
        f"{what} of {counted(len(places), 'partition')} {start}{left}: {why}{sure}",
        f"{what} {start}: {why}{sure}",
    ]
    yield Said("Takes", fitting(texts, room), Severity.WARNING.rank)


def _is_emptied(forecast: LogForecast) -> bool:
    return sum(1 for _ in forecast.first_run) == len(forecast.log.segments)


def _why(row: Taking) -> str:
    """Return the deciding setting: `retention.ms 7 d (default)`."""
    if not row.setting:
        return "they are below the log start" if row.by == "log-start" else str(row.by)
    value = row.setting_value
    if row.setting.endswith(".ms") and value.lstrip("-").isdecimal():
        value = duration_text(int(value))
    elif row.setting.endswith(".bytes") and value.lstrip("-").isdecimal():
        value = size_text(int(value))
    source = "" if row.setting_source == "topic" else f" ({row.setting_source})"
    return f"{row.setting} {value}{source}"


def _cleans(result: _Result, room: int) -> Iterator[Said]:
    chosen = [each for each in result.cleanings if each.is_chosen]
    if not chosen:
        return
    first = max(chosen, key=lambda each: each.cleanable_ratio or 0.0)
    place = f"{first.topic}-{first.partition}"
    count = "" if first.dirty_records_count is None else f"{first.dirty_records_count:,} records, "
    ratio = f"{first.cleanable_ratio or 0.0:.0%} > {first.min_ratio:.0%}"
    if first.is_overdue and (first.cleanable_ratio or 0.0) <= first.min_ratio:
        ratio = "older than max.compaction.lag.ms"
    more = f"; {len(chosen) - 1:,} more" if len(chosen) > 1 else ""
    size = size_text(first.cleanable_bytes or 0)
    superseded = ""
    if first.superseded_records_count is not None:
        superseded = f", {first.superseded_records_count:,} superseded"
    texts = [
        f"{place}: {count}{size} are dirty, {ratio}{superseded}{more}",
        f"{place}: {size} are dirty, {ratio}{more}",
    ]
    yield Said("Cleans", fitting(texts, room))


def _stuck(result: _Result, room: int) -> Iterator[Said]:
    stuck = [each for each in result.cleanings if each.why_not == "fails"]
    held = [
        each
        for each in result.cleanings
        if each.uncleanable_because == "open-transaction" and each.why_not == "open-transaction"
    ]
    if not stuck and not held:
        return
    more_count = len(stuck) + len(held) - 1
    more = f"; {more_count:,} more" if more_count else ""
    first = (stuck or held)[0]
    place = f"{first.topic}-{first.partition}"
    since = ""
    if first.oldest_dirty_timestamp_ms is not None:
        since = f"; dirty since {moment(first.oldest_dirty_timestamp_ms, is_short=True)}"
    size = size_text(first.clean_bytes + (first.cleanable_bytes or 0))
    if stuck:
        text = f"{place}: {size}, the cleaner fails at offset {first.fails_at_offset}"
    else:
        text = f"{place}: producer {first.producer_id} has an open transaction"
    texts = [f"{text}{since}{more}", f"{text}{more}"]
    rank = Severity.ERROR.rank if stuck else Severity.WARNING.rank
    yield Said("Stuck", fitting(texts, room), rank)


def _room(result: _Result, room: int) -> Iterator[Said]:
    short = [
        (each.needed_bytes or 0, result.free_bytes[each.path])
        for each in result.cleanings
        if each.path in result.free_bytes
        and (each.needed_bytes or 0) > result.free_bytes[each.path]
    ]
    if not short:
        return
    needed, free = max(short)
    text = f"the cleaner needs up to {size_text(needed)}, {size_text(free)} are free"
    yield Said("Room", fitting([f"{text}: the log dir goes offline", text], room), 2)


def _hold(result: _Result) -> str:
    """Return the settings with which a start takes nothing."""
    version = result.run.release
    if version is not None and version < (3, 8):
        return "eoctl adopt into a new log dir; before 3.8 no setting delays the first run"
    return (
        "start with log.initial.task.delay.ms=3600000 log.cleaner.enable=false, then "
        "kafka-configs: retention.ms=-1 where records are to stay"
    )


def _next(result: _Result) -> Said:
    errors = [each for each in result.findings if each.severity is Severity.ERROR]
    command = next((each.fix for each in errors if each.fix.startswith("eoctl ")), "")
    if command:
        return Said("Next", command)
    if errors:
        from recovery.rules.catalogue import rule_of

        return Said("Next", rule_of(errors[0].check_id).fix)
    late = [each.fix for each in result.late_transactions]
    if late:
        return Said("Next", late[0])
    if result.first_run:
        return Said("Next", "choose: start with the settings of Hold, or let the records go")
    return Said("Next", "nothing to do")


# -- the table


# A step for people: segments in a row with the same date and reason.
STEP_COLUMNS = ("after", "takes", "size", "partition", "why")
_Step = tuple[str, str, str, str, str]


def _folded(result: _Result) -> list[_Step]:
    now_ms = result.run.now_ms
    rows: list[tuple[int, _Step]] = []
    for (_, run_ms, _, held), found in groupby(
        result.takings, key=lambda row: (row.path or row.topic, row.run_at_ms, row.by, row.held_by)
    ):
        rows.append(_step([*found], run_ms, held, now_ms))
    for each in result.cleanings:
        if each.is_chosen:
            rows.append(_cleaning_step(each, now_ms))
        elif each.why_not is not None and (result.has_topics or each.why_not not in _USUAL):
            rows.append(_uncleaned_step(each))
    return [row for _, row in sorted(rows, key=lambda each: (each[0], each[1][3]))]


_NEVER_MS = 1 << 62


def _step(
    found: list[Taking], run_ms: int | None, held: str | None, now_ms: int
) -> tuple[int, _Step]:
    first, last = found[0], found[-1]
    nouns = Counter(row.what.value for row in found)
    noun, count = next(iter(nouns.items()))
    offsets = ""
    if first.base_offset is not None:
        offsets = f", {first.base_offset:,}..{(last.end_offset or 0) - 1:,}"
    size = sum(row.size_bytes or 0 for row in found)
    why = _why(first)
    if held == "future-time":
        future = time_text(first.largest_timestamp_ms or 0, is_utc=True)
        why = f"time {future} at {first.base_offset}"
    elif held is not None:
        why = str(held)
    elif first.name:
        why = f"{first.name}: {why}"
    elif first.is_premature:
        why = f"{why}, wrong {first.largest_from}"
    step = (
        "never" if run_ms is None else duration_text(max(run_ms - now_ms, 0)),
        "-" if held is not None else f"{counted(count, noun.replace('-', ' '))}{offsets}",
        "" if first.size_bytes is None else size_text(size),
        f"{first.topic}-{first.partition}",
        why,
    )
    return (_NEVER_MS if run_ms is None else run_ms), step


def _cleaning_step(cleaning: Cleaning, now_ms: int) -> tuple[int, _Step]:
    run_ms = cleaning.run_at_ms or now_ms
    why = f"ratio {cleaning.cleanable_ratio or 0.0:.2f} > {cleaning.min_ratio:.2f}"
    step = (
        duration_text(max(run_ms - now_ms, 0)),
        f"rewrites {cleaning.first_dirty_offset:,}..{_last(cleaning):,}",
        size_text(cleaning.needed_bytes or 0),
        f"{cleaning.topic}-{cleaning.partition}",
        "max.compaction.lag.ms" if _is_by_age(cleaning) else why,
    )
    return run_ms, step


# Normal reasons why a log is not cleaned. A row for each partition would hide the others.
_USUAL = frozenset({"only-active-segment", "clean", "min.cleanable.dirty.ratio"})
_REASONS = {
    "no-compact": "cleanup.policy lacks compact: offsets are deleted",
    "cleaner-off": "log.cleaner.enable=false",
    "min.compaction.lag.ms": "younger than min.compaction.lag.ms",
    "high-watermark": "above the high watermark",
    "only-active-segment": "only the active segment",
    "clean": "nothing is dirty",
}


def _uncleaned_step(cleaning: Cleaning) -> tuple[int, _Step]:
    reason = str(cleaning.why_not)
    why = _REASONS.get(reason, reason)
    if reason == "fails":
        why = f"the cleaner fails at offset {cleaning.fails_at_offset}"
    elif reason == "open-transaction":
        why = f"open transaction of producer {cleaning.producer_id}"
    elif reason == "min.cleanable.dirty.ratio":
        why = f"ratio {cleaning.cleanable_ratio or 0.0:.2f}, not above {cleaning.min_ratio:.2f}"
    size = cleaning.clean_bytes + (cleaning.cleanable_bytes or 0)
    place = f"{cleaning.topic}-{cleaning.partition}"
    return _NEVER_MS, ("never", "not cleaned", size_text(size), place, why)


def _is_by_age(cleaning: Cleaning) -> bool:
    return (cleaning.cleanable_ratio or 0.0) <= cleaning.min_ratio


def _last(cleaning: Cleaning) -> int:
    return max((cleaning.first_uncleanable_offset or 0) - 1, 0)
