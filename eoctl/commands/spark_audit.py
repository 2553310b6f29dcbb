"""`eoctl spark-audit`: transactions, duplicates, gaps, replicas over any number of directories."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated

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
    from eoctl.runs.reports.audit import AuditOptions
    from eoctl.runs.reports.audit_call import AuditCall, run_call
    from eoctl.runs.reports.engine import EngineOptions, require_lasting
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
        from eoctl.runs.report.audited import AuditedReport
        from eoctl.runs.report.request import ReportRequest

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
