"""`eoctl loss`: what is lost, there twice or aborted, and what differs from another copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from eoctl.declared import option
from eoctl.options import (
    TERMINAL_ROWS,
    Limit,
    Output,
    Paths,
    ServerProperties,
    Topics,
    given_paths,
)
from eoctl.output import OutputFormat
from storage.errors import UsageError

if TYPE_CHECKING:
    from eoctl.runs.reports.loss import LossRun
    from eoctl.runs.reports.loss_against import AgainstRun

TERMINAL_KEY = 16  # characters of a key


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    against: Annotated[
        str | None,
        option(metavar="DIR|JOURNAL", help="Another copy, or before a change: by record."),
    ] = None,
    limit: Limit = None,
    spill_dir: Annotated[
        str | None, option(metavar="DIR", help="Directory for what does not fit into memory.")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Show which records are lost, duplicated or aborted: offsets, times, producers, keys.

    Lost is what was acknowledged, or lies in damaged bytes, and cannot be read; what lies below
    the log start is not. With --against: the records that are gone, new or changed.
    """
    from eoctl.output import draws_tables, while_read
    from eoctl.runs.reports.loss import LossRun
    from eoctl.runs.reports.loss_against import AgainstRun

    # Of what is compared, a partition may be in the other one only.
    wanted = given_paths(paths, server_properties, topic if against is None else None)
    if not wanted and against is None:
        raise UsageError("no PATH given", next_step="eoctl loss PATH...")
    is_drawn = output is OutputFormat.TEXT and draws_tables()
    if limit is None and is_drawn:
        limit = TERMINAL_ROWS
    run: LossRun | AgainstRun
    if against is None:
        run = LossRun(wanted, limit=limit, spill_dir=spill_dir)
    else:
        run = AgainstRun(wanted, against, limit=limit, topics=topic or ())
    with while_read(lambda: run.status, is_verdict=True):
        if is_drawn:
            _draw(run)
        else:
            _stream(run, output)
    return run.status


def _draw(run: LossRun | AgainstRun) -> None:
    """On a terminal the answer comes first."""
    from eoctl.output import Report, emit, line, message
    from eoctl.runs.reports.bytes_text import row_as_text

    rows = sorted(run.rows(), key=lambda each: [*map(str, run.kinds)].index(str(each.kind)))
    for each in run.answer():
        line(each)
    for name, columns, drawn in (
        ("partition", run.summary_columns, run.concerned),
        (run.name, run.columns, [row_as_text(each, TERMINAL_KEY) for each in rows]),
    ):
        if drawn:
            line("")
            report = Report(kind=name, columns=columns, rows=drawn)
            emit(report, OutputFormat.TEXT)
    for note in run.notes:
        message(note)


def _stream(run: LossRun | AgainstRun, output: OutputFormat) -> None:
    """Rows as they are found, then what they come to."""
    from eoctl.output import Report, emit, line
    from eoctl.runs.reports.bytes_text import row_as_text

    rows = run.rows()
    is_text = output is OutputFormat.TEXT
    emit(Report(run.name, run.columns, map(row_as_text, rows) if is_text else rows), output)
    if is_text:
        line("")
    summaries = Report(
        kind="partition", columns=run.summary_columns, rows=run.summaries, notes=run.notes
    )
    emit(summaries, output)
