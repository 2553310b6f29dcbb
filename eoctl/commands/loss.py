"""`eoctl loss`: what is lost, there twice or aborted, and what differs from another copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eoctl.options import Output, Paths, ServerProperties, Topics, given_paths
from eoctl.output import OutputFormat
from storage.errors import UsageError

if TYPE_CHECKING:
    from eoctl.runs.loss import LossRun

TERMINAL_KEY = 16  # characters of a key
TERMINAL_ROWS = 20  # of each kind, unless told otherwise


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    topic: Topics = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Print no more rows of each kind [20 on a terminal]."
        ),
    ] = None,
    spill_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="For what does not fit into memory.")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Tell what is lost, there twice, or aborted: offsets, times, producers, keys.

    Lost is what was acknowledged, or lies in damaged bytes, and cannot be read; what lies below
    the log start is not.
    """
    from eoctl.output import draws_tables, use_format, while_read
    from eoctl.runs.loss import LossRun

    use_format(output)
    wanted = given_paths(paths, server_properties, topic)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl loss PATH...")
    is_drawn = output is OutputFormat.TEXT and draws_tables()
    if limit is None and is_drawn:
        limit = TERMINAL_ROWS
    run = LossRun(wanted, limit=limit, spill_dir=spill_dir)
    with while_read(lambda: run.status, is_verdict=True):
        if is_drawn:
            _draw(run)
        else:
            _stream(run, output)
    return run.status


def _draw(run: LossRun) -> None:
    """On a terminal the answer comes first."""
    from eoctl.output import Report, emit, line, message
    from eoctl.runs.bytes_text import row_as_text
    from recovery.loss.rows import LossKind, LossRow, LossSummary

    rows = sorted(run.rows(), key=lambda each: [*LossKind].index(each.kind))
    for each in run.answer():
        line(each)
    for kind, columns, drawn in (
        ("partition", LossSummary._fields, run.concerned),
        ("loss", LossRow._fields, [row_as_text(each, TERMINAL_KEY) for each in rows]),
    ):
        if drawn:
            line("")
            report = Report(kind=kind, columns=columns, rows=drawn)
            emit(report, OutputFormat.TEXT)
    for note in run.notes:
        message(note)


def _stream(run: LossRun, output: OutputFormat) -> None:
    """Rows as they are found, then what they come to."""
    from eoctl.output import Report, emit, line
    from eoctl.runs.bytes_text import row_as_text
    from recovery.loss.rows import LossRow, LossSummary

    rows = run.rows()
    is_text = output is OutputFormat.TEXT
    emit(Report("loss", LossRow._fields, map(row_as_text, rows) if is_text else rows), output)
    if is_text:
        line("")
    summaries = Report(
        kind="partition", columns=LossSummary._fields, rows=run.summaries, notes=run.notes
    )
    emit(summaries, output)
