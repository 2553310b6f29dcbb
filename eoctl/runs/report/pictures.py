"""Pictures on a terminal: `eoctl describe --picture` and `eoctl txn list --picture`.

They are drawn from the rows of a report. Everything is read as by a check, so that what is wrong is
in the picture; and the exit status is that of the check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.face.style import has_unicode, screen_size
from eoctl.output import OutputFormat, look, message, write_drawn
from eoctl.report.terminal import Canvas
from eoctl.runs.notes import first_of
from eoctl.runs.report.gather import gather
from storage.errors import UsageError, pasted

if TYPE_CHECKING:
    from eoctl.report.model import Model
    from eoctl.runs.report.request import ReportRequest

MAX_LANES = 40


def show_offsets(
    request: ReportRequest, output: OutputFormat, max_lanes: int | None, *, is_picture: bool
) -> int:
    """Draw partitions by offset; returns the exit status. Raises UsageError, and as `gather`."""
    from eoctl.report.offsets_picture import draw_offsets

    model, canvas = _begun(request, output, is_picture=is_picture)
    draw_offsets(canvas, model, max_lanes or MAX_LANES)
    return _shown(canvas, model)


def show_transactions(
    request: ReportRequest,
    output: OutputFormat,
    max_lanes: int | None,
    *,
    is_picture: bool,
    is_all: bool,
) -> int:
    """Draw transactions by time; returns the exit status. Raises UsageError, and as `gather`."""
    from eoctl.report.transactions_picture import draw_transactions

    model, canvas = _begun(request, output, is_picture=is_picture)
    draw_transactions(canvas, model, max_lanes or MAX_LANES, is_all=is_all)
    return _shown(canvas, model)


def _begun(
    request: ReportRequest, output: OutputFormat, *, is_picture: bool
) -> tuple[Model, Canvas]:
    """See that a picture can be given, and read what it shows."""
    if not is_picture:
        raise UsageError("--max-lanes goes with --picture")
    if output is not OutputFormat.TEXT:
        paths = " ".join(map(pasted, request.paths))
        raise UsageError(
            "--picture is for people, and has no rows",
            next_step=f"eoctl report {paths} --output {output}   # what is drawn, as rows",
        )
    if look().columns or look().has_all:
        raise UsageError("--picture has no columns: --columns goes without it")
    model = gather(request._replace(is_picture=True))
    return model, Canvas(screen_size()[0], has_unicode=has_unicode(), look=look())


def _shown(canvas: Canvas, model: Model) -> int:
    write_drawn(canvas.text().encode("utf-8", "backslashreplace").decode())
    notes = [each.value for each in model.sources if each.what in {"not read", "note"}]
    for each in first_of(notes, "notes"):
        message(each)
    return model.status
