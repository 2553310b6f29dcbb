"""One call of `eoctl spark-audit`: what is asked for beside the audit, and where it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from eoctl.options import ReportFormat
from eoctl.output import OutputFormat, Report, emit, message
from eoctl.runs.reports.audit import exit_status, run_audit
from eoctl.runs.reports.engine import EngineRun, choose_engine
from eoctl.spark.tables import TableTarget, write_tables
from recovery.audit.reports import COLUMNS
from recovery.rules.findings import Severity
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eoctl.runs.reports.audit import AuditOptions, AuditResult
    from storage.places.splits import TimelineStart

ALL = "all"
# The kind of a row, where it is not the name of the report.
KINDS = {
    "partitions": "partition",
    "topics": "topic",
    "producers": "producer",
    "transactional-ids": "transactional-id",
    "open": "open-transaction",
    "violations": "violation",
    "torn": "torn-transaction",
    "replicas": "replica",
    "corrupt": "corrupt-range",
}


class AuditPage(Protocol):
    """A page that is made of what an audit has read."""

    @property
    def starts(self) -> Mapping[str, TimelineStart]:
        """What timelines begin with, of the directories that one is wanted of."""

    def write(self, result: AuditResult, engine: EngineRun) -> None:
        """Write the page."""


class AuditCall(NamedTuple):
    """What the call asks for.

    Attributes:
        paths: what is audited.
        audit: how; `tables` and `timelines` follow from what is below.
        reports: names of those that are printed, or `all`.
        to, to_format: where all reports go as tables; None: nowhere.
        page: makes the page that is written beside them, and sees that it can be; None: none is.
        fail_on: of the exit status.
        output: how the reports are printed.
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
    """Audit, print and write what is asked for. Returns the exit status.

    Raises:
        UsageError, RefusedError, AccessError: something cannot be written, before any work.
        EoctlError: as `run_audit`.
    """
    audit = call.audit
    if audit.checkpoint_dir is not None and (audit.state_path is not None or call.page is not None):
        raise UsageError(
            "--checkpoint goes with neither --state nor --report-html",
            next_step="--checkpoint keeps whole directories, --state segments: take one of them",
        )
    audit = audit._replace(tables=_tables_of(call))
    page = None if call.page is None else call.page()
    if page is not None:
        audit = audit._replace(timelines=page.starts)
    with EngineRun(audit.engine) as run:
        if page is not None:
            run.require_functions()
        result = run_audit(call.paths, audit, run)
        _tell(result, call)
        if call.to is not None:
            _write(result, call.to, audit, run)
        if page is not None:
            page.write(result, run)
    result.save_state()
    return exit_status(result, call.fail_on)


def _tables_of(call: AuditCall) -> TableTarget | None:
    """See that reports can go where they are to. Raises EoctlError before any work."""
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
    reports = {name: (COLUMNS[name], result.audit.each_row(name)) for name in COLUMNS}
    if audit.tables is None:
        from eoctl.report_files import write_reports

        write_reports(to, reports)
        return
    write_tables(run.session(), audit.tables, reports)


def _tell(result: AuditResult, call: AuditCall) -> None:
    """Print what was asked for, each report once."""
    names = COLUMNS if ALL in call.reports else dict.fromkeys(call.reports)
    for name in names:
        emit(Report(KINDS[name], COLUMNS[name], result.audit.each_row(name)), call.output)
    for note in result.notes:
        message(note)
