"""`eoctl spark-audit`: transactions, duplicates, gaps, replicas over any number of directories."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from eoctl.declared import argument, option
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
from eoctl.output import OutputFormat
from recovery.rules.findings import Severity
from storage.errors import UsageError

if TYPE_CHECKING:
    from eoctl.runs.reports.audit import AuditOptions, AuditResult
    from eoctl.runs.reports.engine import EngineRun
    from eoctl.spark.tables import TableTarget


class ReportName(StrEnum):
    """What `--report` takes."""

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
        argument(metavar="[PATH]...", help="Partition directories, log dirs; globs, URIs."),
    ] = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    report: Annotated[
        list[ReportName] | None,
        option(help="Report to print; repeatable.", show_default="partitions"),
    ] = None,
    to: Annotated[
        str | None, option(metavar="DIR", help="Also write all reports as Parquet files.")
    ] = None,
    to_format: Annotated[
        ReportFormat, option(help="What --to writes; delta and iceberg with Spark.")
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
        option(metavar="DIR", help="Keep directories that are done in DIR, and go on from there."),
    ] = None,
    coordinator_dir: Annotated[
        list[str] | None,
        option(metavar="DIR", help="Log dir with __transaction_state; repeatable."),
    ] = None,
    engine: EngineChoice = EngineName.AUTO,
    jobs: Jobs = None,
    master: Master = None,
    conf: Conf = None,
    split_bytes: Annotated[
        int | None,
        option(min=1, metavar="N", help="Size of the pieces that are read in parallel."),
    ] = None,
    now: Now = None,
    fail_on: FailOn = Severity.WARNING,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Count transactions and duplicates, and compare replicas, over any number of directories.

    Every batch is read and its checksum verified, by processes on this machine or by Spark, which
    needs Java 17 or later and pyspark 4.
    """
    from eoctl.runs.reports.audit import AuditOptions, exit_status, run_audit
    from eoctl.runs.reports.engine import EngineOptions, EngineRun
    from eoctl.spark.session import parse_settings

    wanted = given_paths(paths, server_properties, topic)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl spark-audit PATH...")
    options = AuditOptions(
        engine=EngineOptions(
            name=engine, jobs=jobs, master=master, settings=tuple(parse_settings(conf or []))
        ),
        split_bytes=split_bytes,
        state_path=state,
        checkpoint_dir=checkpoint,
        coordinator_dirs=tuple(coordinator_dir or ()),
    )
    if checkpoint is not None and (state is not None or report_html is not None):
        raise UsageError(
            "--checkpoint goes with neither --state nor --report-html",
            next_step="--checkpoint keeps whole directories, --state segments: take one of them",
        )
    options = options._replace(tables=_target(to, to_format, options))
    page = None
    if report_html is not None:
        from eoctl.runs.report.audited import AuditedReport
        from eoctl.runs.report.request import ReportRequest

        page = AuditedReport(
            ReportRequest(
                given_paths(paths, server_properties),
                to=report_html,
                is_forced=force,
                coordinator_dirs=options.coordinator_dirs,
                topics=tuple(topic or ()),
                jobs=process_count(jobs),
                now=now,
                is_one_node=server_properties is not None,
            )
        )
        options = options._replace(timelines=page.starts)
    elif force or now is not None:
        raise UsageError("--force and --now go with --report-html")
    with EngineRun(options.engine) as run:
        result = run_audit(wanted, options, run)
        _tell(result, report, output)
        if to is not None:
            _write(result, to, options, run)
        if page is not None:
            page.write(result, run)
    result.save_state()
    return exit_status(result, fail_on)


def _target(to: str | None, to_format: ReportFormat, options: AuditOptions) -> TableTarget | None:
    """See that reports can go there. Raises EoctlError before any work."""
    if to is None:
        if to_format is not ReportFormat.PARQUET:
            raise UsageError(f"--to-format {to_format}: --to is missing", next_step="--to PLACE")
        return None
    if to_format is ReportFormat.PARQUET:
        from eoctl.report_files import require_target

        require_target(to)
        return None
    from eoctl.runs.reports.engine import choose_engine
    from eoctl.spark.tables import TableTarget

    target = TableTarget(to_format, to)
    target.require_named()
    if not choose_engine(options.engine).is_spark:
        raise UsageError(
            f"--to-format {to_format}: Spark writes such tables, and the engine is local",
            next_step=f"--engine spark {target.next_step()}",
        )
    return target


def _write(result: AuditResult, to: str, options: AuditOptions, run: EngineRun) -> None:
    """Write all reports."""
    from recovery.audit.reports import COLUMNS

    reports = {name: (COLUMNS[name], result.audit.rows(name)) for name in COLUMNS}
    if options.tables is None:
        from eoctl.report_files import write_reports

        write_reports(to, reports)
        return
    from eoctl.spark.tables import write_tables

    write_tables(run.session(), options.tables, reports)


def _tell(result: AuditResult, report: list[ReportName] | None, output: OutputFormat) -> None:
    """Print what was asked for."""
    from eoctl.output import Report, emit, message
    from recovery.audit.reports import COLUMNS

    names = list(dict.fromkeys(report or [ReportName.PARTITIONS]))
    if ReportName.ALL in names:
        names = [each for each in ReportName if each is not ReportName.ALL]
    for name in names:
        emit(Report(KINDS.get(name, name), COLUMNS[name], result.audit.rows(name)), output)
    for note in result.notes:
        message(note)


# The kind of a row, where it is not the name of the report.
KINDS = {
    ReportName.PARTITIONS: "partition",
    ReportName.TOPICS: "topic",
    ReportName.PRODUCERS: "producer",
    ReportName.TRANSACTIONAL_IDS: "transactional-id",
    ReportName.OPEN: "open-transaction",
    ReportName.VIOLATIONS: "violation",
    ReportName.TORN: "torn-transaction",
    ReportName.REPLICAS: "replica",
    ReportName.CORRUPT: "corrupt-range",
}
