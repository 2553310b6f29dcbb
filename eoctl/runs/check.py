"""A run of `eoctl check`: what is checked and how, and what is said at the end."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from eoctl.face.style import screen_size
from eoctl.output import OutputFormat, Report, emit, line, message, while_read
from eoctl.runs.check_run import of_topics, prepared
from eoctl.runs.told import is_for_people, tell
from recovery.checks.reclaim import Reclaimable, find_reclaimable, find_reclaimable_beside
from recovery.fsck.one_pass import PartitionRow
from recovery.rules.findings import Finding
from recovery.start.changes import StartChange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.runs.check_run import CheckRequest, CheckRun
    from storage.dirs.discovery import Discovery


def run_check(request: CheckRequest, output: OutputFormat) -> int:
    """Check, print, and return the exit status.

    A person is told what it comes to, then a line for each finding; a program, and who asks for
    it, gets all fields.
    """
    is_told = is_for_people(output) and not request.is_verbose
    run, end_notes = prepared(request, keeps=is_told)
    reports: list[Report] = []
    if not is_told:
        reports.append(Report("finding", Finding._fields, run.findings()))
        reports.append(Report("partition", PartitionRow._fields, run.rows))
    if request.predicts:
        reports.append(Report("start_change", StartChange._fields, run.changes))
    if request.reclaims:
        reports.append(Report("reclaimable", Reclaimable._fields, _reclaimable(run.found, request)))
    if is_told:
        _tell(run, request)
    for place, report in enumerate(reports):
        if (place or is_told) and output is OutputFormat.TEXT:
            line("")
        is_first = not place and not is_told
        with while_read(lambda: run.status, is_verdict=True) if is_first else nullcontext():
            emit(report, output)
    notes = run.notes[1:] if is_told else run.notes  # what was verified is told already
    for note in (*notes, *end_notes(), *(() if is_told else (run.summary(),))):
        message(note)
    return run.status


def _tell(run: CheckRun, request: CheckRequest) -> None:
    """Say what a check comes to, on a terminal."""
    from eoctl.runs.check_verdict import verdict_of_run
    from eoctl.runs.check_words import lines

    with while_read(lambda: run.status, is_verdict=True):
        for _ in run.findings():
            pass
        tell(lines(verdict_of_run(run, request), screen_size()[0]))


def _reclaimable(found: Discovery, request: CheckRequest) -> Iterator[Reclaimable]:
    """Of some topics only what is in their directories."""
    for log_dir in () if request.topics else found.log_dirs:
        yield from find_reclaimable_beside(log_dir)
    for selected in of_topics(found, request):
        yield from find_reclaimable(selected)
