"""A run of `eoctl report`: what may be written where, the rows, the page."""

from __future__ import annotations

import os
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.output import OutputFormat, Report, emit, message
from eoctl.runs.report.gather import gather
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, RefusedError, UsageError, pasted
from storage.files import fsio
from storage.files.fsio import own_attributes

if TYPE_CHECKING:
    from eoctl.report.model import Model
    from eoctl.runs.report.request import ReportRequest


def run_report(request: ReportRequest, output: OutputFormat) -> int:
    """Read, write the page, print rows to programs; returns the exit status."""
    is_for_programs = output is not OutputFormat.TEXT
    if request.to is None and not is_for_programs:
        raise UsageError(
            "--to is missing: what is the file to be called?",
            next_step=f"eoctl report {' '.join(map(pasted, request.paths))} --to report.html",
        )
    if request.key_file is not None and not request.redacts:
        raise UsageError("--key-file goes with --redact names")
    if (
        request.from_ms is not None
        and request.to_ms is not None
        and request.from_ms > request.to_ms
    ):
        raise UsageError("--from-time is later than --to-time")
    if request.to is not None:
        require_target(request.to, is_forced=request.is_forced)
    # Pseudonyms may be in another order, and so may the lanes.
    model = gather(request._replace(draws_only=not (is_for_programs or request.redacts)))
    if request.redacts:
        from eoctl.report.redaction import redacted
        from eoctl.runs.report.keys import read_key

        model = redacted(model, read_key(request.key_file))
    if is_for_programs:
        for kind, columns, rows in model.tables():
            emit(Report(kind, columns, rows), output)
    if request.to is not None:
        write_page(request.to, model, max_lanes=request.max_lanes)
    return model.status


def write_page(to: str, model: Model, *, max_lanes: int) -> None:
    """Draw the page and put it in its place at once. Raises AccessError."""
    from eoctl.face.columns import size_text
    from eoctl.report.page import page_of

    data = page_of(model, max_lanes=max_lanes)
    fsio.replace_file(fsio.FileSystem(), to, data, attributes=own_attributes())
    message(f"{to}: {size_text(len(data))}")
    for said in model.verdict:
        message(f"{said.label}: {said.text}")


def require_target(to: str, *, is_forced: bool, option: str = "--to") -> None:
    """See that a file may be put there, before the work begins.

    Raises:
        UsageError: it has no name.
        RefusedError: it is there, or it would lie in a log dir.
        AccessError: nothing can be written there.
    """
    if not to or to.endswith("/"):
        raise UsageError(f"{option}: no file is named", next_step=f"{option} report.html")
    if to == "-":
        raise UsageError(
            f"{option} -: a page goes into a file, not to standard output",
            next_step=f"{option} report.html",
        )
    require_outside_log_dirs(to, "name a file elsewhere")
    if os.path.lexists(to):
        if Path(to).is_dir():
            raise UsageError(
                f"{option} {pasted(to)}: is a directory", next_step=f"{option} report.html"
            )
        if not is_forced:
            raise RefusedError(f"{to}: is there already", next_step="--force, or another name")
    fsio.require_replaceable(to)
    directory = Path(to).parent
    if not os.access(directory, os.W_OK | os.X_OK):
        raise AccessError(OSError(EACCES, os.strerror(EACCES)), str(directory))
