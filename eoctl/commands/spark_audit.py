"""`eoctl spark-audit`: transactions, duplicates, gaps, replicas over any number of directories."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

from eoctl.commands.shared.audit_run import exit_status, run_audit
from eoctl.commands.shared.engine import EngineRun, choose_engine
from eoctl.messages import Said, report_first
from eoctl.options import (
    Conf,
    EngineChoice,
    EngineName,
    FailOn,
    Jobs,
    Master,
    Now,
    Output,
    ReportFormat,
    ServerProperties,
    Topics,
    given_paths,
    process_count,
)
from eoctl.output import PLACE, Columns, OutputFormat, Report, emit, message
from eoctl.parameters import advanced_option, argument, option, output_option
from eoctl.spark.tables import TableTarget, write_tables
from recovery.audit.reports import REPORTS
from recovery.rules.findings import Severity
from storage.counts import counted
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eoctl.commands.shared.audit_run import AuditOptions, AuditResult
    from storage.places.splits import TimelineStart


class ReportName(StrEnum):
    """The values of `--report`."""

    PARTITIONS = "partitions"
    TOPICS = "topics"
    PRODUCERS = "producers"
    TRANSACTIONAL_IDS = "transactional-ids"
    OPEN = "open"
    VIOLATIONS = "violations"
    TORN = "torn"
    REPLICAS = "replicas"
    CORRUPT = "corrupt"
    ALL = "all"


def command(
    paths: Annotated[
        list[str] | None,
        argument(metavar="[PATH]...", help="Partition directories, log dirs, globs, URIs."),
    ] = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    report: Annotated[
        list[ReportName] | None,
        output_option(help="Report to print. Repeatable.", show_default="partitions"),
    ] = None,
    to: Annotated[
        str | None, option(metavar="DIR", help="Also write all reports as Parquet files.")
    ] = None,
    to_format: Annotated[
        ReportFormat, option(help="Format of --to. delta and iceberg need Spark.")
    ] = ReportFormat.PARQUET,
    report_html: Annotated[
        str | None, option(metavar="FILE", help="Also write the page of eoctl report to this file.")
    ] = None,
    force: Annotated[bool, option("--force", help="Replace the page if it is there.")] = False,
    state: Annotated[
        str | None,
        option(metavar="FILE", help="Save what was read in FILE, and read only what is new."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        advanced_option(
            metavar="DIR", help="Keep directories that are done in DIR, and go on from there."
        ),
    ] = None,
    coordinator_dir: Annotated[
        list[str] | None,
        advanced_option(metavar="DIR", help="Log dir with __transaction_state. Repeatable."),
    ] = None,
    engine: EngineChoice = EngineName.AUTO,
    jobs: Jobs = None,
    master: Master = None,
    conf: Conf = None,
    split_bytes: Annotated[
        int | None,
        advanced_option(min=1, metavar="N", help="Size of the pieces that are read in parallel."),
    ] = None,
    now: Now = None,
    fail_on: FailOn = Severity.WARNING,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Count transactions and duplicates, and compare replicas, over any number of directories.

    Every batch is read and its checksum verified, by processes on this machine or by Spark, which
    needs Java 17 or later and pyspark 4.
    """
    from eoctl.commands.shared.audit_run import AuditOptions
    from eoctl.commands.shared.engine import EngineOptions, require_lasting
    from eoctl.spark.session import parse_settings

    wanted = given_paths(paths, server_properties, topic)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl spark-audit PATH...")
    is_catalog = to_format is ReportFormat.ICEBERG
    require_lasting(
        {
            "--to": None if is_catalog else to,
            "--report-html": report_html,
            "--state": state,
            "--checkpoint": checkpoint,
        }
    )
    page = None
    if report_html is not None:
        from eoctl.commands.reporting.audit_report import AuditedReport
        from eoctl.commands.reporting.report_options import ReportRequest

        request = ReportRequest(
            given_paths(paths, server_properties),
            to=report_html,
            is_forced=force,
            coordinator_dirs=tuple(coordinator_dir or ()),
            topics=tuple(topic or ()),
            jobs=process_count(jobs),
            now=now,
            server_properties=server_properties,
        )
        page = partial(AuditedReport, request)
    elif force or now is not None:
        raise UsageError("--force and --now go with --report-html")
    options = AuditOptions(
        engine=EngineOptions(
            name=engine, jobs=jobs, master=master, settings=tuple(parse_settings(conf or []))
        ),
        split_bytes=split_bytes,
        state_path=state,
        checkpoint_dir=checkpoint,
        coordinator_dirs=tuple(coordinator_dir or ()),
    )
    return run_call(
        AuditCall(
            wanted,
            options,
            reports=report or [ReportName.PARTITIONS],
            to=to,
            to_format=to_format,
            page=page,
            fail_on=fail_on,
            output=output,
        )
    )


# -- one run of `eoctl spark-audit`: the options in addition to the audit, and the targets


ALL = "all"
# Report -> the columns that answer. In an absent report all do.
ANSWERS: dict[str, tuple[str, ...]] = {
    "partitions": (
        *PLACE, "records", "committed_transactions", "aborted_transactions", "open_transactions",
        "duplicate_batches", "problems_count",
    ),
    "topics": (
        "topic", "records", "committed_transactions", "aborted_transactions", "open_transactions",
        "duplicate_batches",
    ),
    "producers": (
        *PLACE, "producer_id", "transactional_id", "records", "committed_transactions",
        "aborted_transactions", "duplicate_batches",
    ),
    "transactional-ids": (
        "transactional_id", "partitions_count", "records", "committed_transactions",
        "aborted_transactions", "open_transactions",
    ),
    "open": (
        *PLACE, "first_offset", "producer_id", "transactional_id", "records", "first_timestamp_ms",
        "holds_last_stable_offset",
    ),
    "violations": (
        *PLACE, "violation", "check_id", "offset", "producer_id", "expected", "found",
    ),
    "replicas": (
        *PLACE, "is_equal", "first_different_offset", "broker", "other_broker",
    ),
    "corrupt": (*PLACE, "finding", "check_id", "start_pos", "end_pos", "reason"),
}  # fmt: skip


class AuditPage(Protocol):
    """A page made from an audit's data."""

    @property
    def starts(self) -> Mapping[str, TimelineStart]:
        """The starts of timelines, for the directories whose timeline is wanted."""

    def write(self, result: AuditResult, engine: EngineRun) -> None:
        """Write the page."""


class AuditCall(NamedTuple):
    """The options of a run.

    Attributes:
        paths: the audited paths.
        audit: the audit's options. `tables` and `timelines` follow from the options below.
        reports: names of the printed reports, or `all`.
        to, to_format: the target of all reports as tables, None for no target.
        page: makes the page next to them, and checks that it can be written, or None.
        fail_on: for the exit status.
        output: the format of the printed reports.
    """

    paths: Sequence[str]
    audit: AuditOptions
    reports: Sequence[str] = ("partitions",)
    to: str | None = None
    to_format: ReportFormat = ReportFormat.PARQUET
    page: Callable[[], AuditPage] | None = None
    fail_on: Severity = Severity.WARNING
    output: OutputFormat = OutputFormat.TEXT


def run_call(call: AuditCall) -> int:
    """Audit, print and write as requested. Return the exit status.

    Raises:
        UsageError, RefusedError, AccessError: something cannot be written, before any work.
        EoctlError: as `run_audit`.
    """
    audit = call.audit
    if audit.checkpoint_dir is not None and (audit.state_path is not None or call.page is not None):
        raise UsageError(
            "--checkpoint goes with neither --state nor --report-html",
            next_step="--checkpoint keeps whole directories, --state segments. Take one of them",
        )
    audit = audit._replace(tables=_tables_of(call))
    page = None if call.page is None else call.page()
    if page is not None:
        audit = audit._replace(timelines=page.starts)
    with EngineRun(audit.engine) as run:
        if page is not None:
            run.require_functions()
        result = run_audit(call.paths, audit, run)
        _report(result, call)
        if call.to is not None:
            _write(result, call.to, audit, run)
        if page is not None:
            page.write(result, run)
    result.save_state()
    return exit_status(result, call.fail_on)


def _tables_of(call: AuditCall) -> TableTarget | None:
    """Check that the reports' target is writable. Raises EoctlError before any work."""
    if call.to is None:
        if call.to_format is not ReportFormat.PARQUET:
            raise UsageError(
                f"--to-format {call.to_format}: --to is missing", next_step="--to PLACE"
            )
        return None
    if call.to_format is ReportFormat.PARQUET:
        from eoctl.report_files import require_target

        require_target(call.to)
        return None
    target = TableTarget(call.to_format, call.to)
    target.require_named()
    if not choose_engine(call.audit.engine).is_spark:
        raise UsageError(
            f"--to-format {call.to_format}: Spark writes such tables, and the engine is local",
            next_step=f"--engine spark {target.next_step()}",
        )
    return target


def _write(result: AuditResult, to: str, audit: AuditOptions, run: EngineRun) -> None:
    """Write all reports."""
    reports = {name: (each.columns, result.audit.each_row(name)) for name, each in REPORTS.items()}
    if audit.tables is None:
        from eoctl.report_files import write_reports

        write_reports(to, reports)
        return
    write_tables(run.session(), audit.tables, reports)


def audit_lines(result: AuditResult) -> Iterator[Said]:
    """Yield the size of the audit, and the problems it found."""
    columns = REPORTS["partitions"].columns
    rows = result.audit.rows("partitions")
    names = ("records", "committed_transactions", "aborted_transactions", "open_transactions",
             "duplicate_batches", "problems_count")  # fmt: skip
    sums = {each: sum(row[columns.index(each)] or 0 for row in rows) for each in names}
    what = f"{counted(len(rows), 'partition')}, {counted(sums['records'], 'record')}"
    reported = ", ".join(
        f"{sums[f'{each}_transactions']:,} {each}" for each in ("committed", "aborted", "open")
    )
    yield Said("Audited", what)
    yield Said("Counts", f"transactions: {reported}")
    wrong = []
    if sums["duplicate_batches"]:
        wrong.append(counted(sums["duplicate_batches"], "duplicate batch", "duplicate batches"))
    if sums["problems_count"]:
        wrong.append(counted(sums["problems_count"], "damaged or missing place"))
    yield Said("Found", ", ".join(wrong) or "no duplicate batch, no damage",
               Severity.WARNING.rank if wrong else 0)  # fmt: skip


def _report(result: AuditResult, call: AuditCall) -> None:
    """Print the answer, then the requested reports, each once."""
    report_first(audit_lines(result), call.output)
    names = REPORTS if ALL in call.reports else dict.fromkeys(call.reports)
    for name in names:
        report = REPORTS[name]
        columns = Columns(report.columns, answers=ANSWERS.get(name, ()))
        emit(Report(report.kind, columns, result.audit.each_row(name)), call.output)
    for note in result.notes:
        message(note)
