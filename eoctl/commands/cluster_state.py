"""`eoctl cluster-state`: leaders, ISR, ELR, brokers and settings, now and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from eoctl.declared import argument, option
from eoctl.options import TERMINAL_ROWS, Limit, MetadataDir, Output, TopicPatterns
from eoctl.output import OutputFormat
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.output import Report
    from eoctl.runs.reports.cluster_history import HistoryRun
    from eoctl.runs.reports.cluster_state import StateRun


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[LOG-DIR]...", help="Log dirs of brokers and controllers."),
    ] = None,
    at: Annotated[
        str | None,
        option(
            "--at",
            metavar="TIME|OFFSET|now",
            help="The moment: a time, or the offset of a metadata record.",
            show_default="now",
        ),
    ] = None,
    history: Annotated[
        bool, option("--history", help="Each change until then, and what they come to.")
    ] = False,
    acknowledged: Annotated[
        str | None,
        option(
            metavar="TOPIC-N:OFFSET", help="Who was in the ISR when that offset was acknowledged."
        ),
    ] = None,
    topic: TopicPatterns = None,
    settings: Annotated[
        bool, option("--settings", help="Also settings that nobody has set.")
    ] = False,
    metadata_dir: MetadataDir = None,
    limit: Limit = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Say what the cluster's metadata say, now or then: leaders, ISR, brokers, settings.

    Of several copies of the metadata the newest one counts. Joined with the ends and high
    watermarks of the logs that are in the log dirs.
    """
    given = paths or []
    if history and acknowledged:
        raise UsageError("--history and --acknowledged ask for different things")
    if (history or acknowledged) and settings:
        raise UsageError("--settings goes with the state at one moment only")
    if acknowledged:
        if topic or at:
            raise UsageError("--acknowledged names its topic, and all times count")
        return _in_sync(given, acknowledged, metadata_dir, output)
    if history:
        from eoctl.runs.reports.cluster_history import HistoryRun

        return _history(
            HistoryRun(given, metadata_dir=metadata_dir, at=at, topics=topic or ()), limit, output
        )
    from eoctl.runs.reports.cluster_state import StateRun

    run = StateRun(
        given, metadata_dir=metadata_dir, at=at, topics=topic or (), has_all_settings=settings
    )
    return _state(run, limit, output)


def _state(run: StateRun, limit: int | None, output: OutputFormat) -> int:
    from eoctl.output import Report, message
    from eoctl.runs.in_cluster import with_words
    from eoctl.runs.reports import cluster_rows as rows
    from eoctl.runs.reports.cluster_words import answer
    from eoctl.runs.told import is_for_people, said_line, tell

    partitions = run.partitions
    if is_for_people(output):
        tell(map(said_line, answer(run)))
        limit = TERMINAL_ROWS if limit is None else limit
        # Those with which something is the matter come first.
        partitions = sorted(partitions, key=lambda each: not each.is_under_min_isr)
    if output is OutputFormat.TEXT:
        partitions = [*with_words(partitions)]
    reports = [
        Report("cluster", rows.ClusterRow._fields, [run.cluster]),
        Report("broker", rows.BrokerRow._fields, run.brokers),
        _cut("cluster_partition", rows.PartitionStateRow._fields, partitions, limit, "partitions"),
        _cut("copy", rows.CopyRow._fields, run.copies, limit, "copies"),
        Report("controller", rows.ControllerRow._fields, run.controllers),
        _cut("setting", rows.SettingRow._fields, run.settings, limit, "settings"),
        Report("feature", rows.FeatureRow._fields, run.features),
    ]
    if is_for_people(output):
        del reports[0]  # the answer has it
    _print([each for each in reports if each.rows], output)
    for note in run.notes:
        message(note)
    return run.status


def _cut(
    kind: str, columns: tuple[str, ...], rows: Sequence[Any], limit: int | None, what: str
) -> Report:
    from eoctl.output import Report

    left = len(rows) - len(rows[:limit])
    notes = [f"{left:,} more {what} are not printed (--limit)"] if left else []
    return Report(kind, columns, rows[:limit], notes=notes)


def _history(run: HistoryRun, limit: int | None, output: OutputFormat) -> int:
    from eoctl.output import message, while_read
    from eoctl.progress import Progress

    with Progress("reading", run.log_bytes), while_read(lambda: run.status):
        if output is OutputFormat.TEXT:
            _tell_history(run, limit)
        else:
            _stream(run, output)
    for note in run.notes:
        message(note)
    return run.status


def _tell_history(run: HistoryRun, limit: int | None) -> None:
    from eoctl.output import Report, emit
    from eoctl.runs.reports import cluster_history as told
    from eoctl.runs.told import is_for_people

    output = OutputFormat.TEXT
    if is_for_people(output):
        limit = TERMINAL_ROWS if limit is None else limit
    if limit is None:
        emit(Report("cluster_change", told.COLUMNS, _lines(run)), output, is_long=True)
    else:
        rows = told.newest(run.changes(), run, limit)
        left = run.changes_count - len(rows)
        notes = [f"{left:,} earlier changes are not printed (--limit)"] if left else []
        emit(Report("cluster_change", told.COLUMNS, rows, notes=notes), output)
    reports = [
        _cut("span", told.SpanRow._fields, run.spans, limit, "spans under min.insync.replicas"),
        _cut("history_sum", told.SumRow._fields, run.sums, limit, "partitions"),
    ]
    for each in reports:
        if each.rows:
            _print([each], output, is_first=False)


def _lines(run: HistoryRun) -> Iterator[tuple[Any, ...]]:
    from eoctl.runs.reports.cluster_history import line_of
    from recovery.cluster.history import PartitionChange

    for change in run.changes():
        if isinstance(change, PartitionChange):
            run.take(change)
        yield line_of(change)


def _stream(run: HistoryRun, output: OutputFormat) -> None:
    """Write each change, and each span as it ends, then what has not ended, and the sums."""
    from eoctl.line_chunks import Lines
    from eoctl.output import line, row_writer
    from eoctl.runs.reports.cluster_history import row_of, span_row
    from recovery.cluster.history import PartitionChange

    lines = Lines(line)
    put = row_writer(output, lines.put)
    for change in run.changes():
        put(row_of(change))
        if isinstance(change, PartitionChange):
            ended = run.take(change)
            if ended is not None:
                put({"kind": "span", **span_row(ended)._asdict()})
    for span in run.open_spans:
        put({"kind": "span", **span._asdict()})
    for found in run.sums:
        put({"kind": "history_sum", **found._asdict()})
    lines.flush()


def _in_sync(
    paths: list[str], acknowledged: str, metadata_dir: str | None, output: OutputFormat
) -> int:
    from eoctl.output import Report, message
    from eoctl.runs.reports.cluster_in_sync import InSyncRow, InSyncRun
    from eoctl.runs.told import is_for_people, said_line, tell

    run = InSyncRun(paths, acknowledged, metadata_dir=metadata_dir)
    if is_for_people(output):
        tell(map(said_line, run.answer()))
    _print([Report("in_sync", InSyncRow._fields, run.rows)], output)
    for note in run.notes:
        message(note)
    return run.status


def _print(reports: list[Report], output: OutputFormat, *, is_first: bool = True) -> None:
    from eoctl.output import emit, line
    from eoctl.runs.told import is_for_people

    begun = is_for_people(output) or not is_first
    for number, each in enumerate(reports):
        if output is OutputFormat.TEXT and (number or begun):
            line("")
        emit(each, output)
