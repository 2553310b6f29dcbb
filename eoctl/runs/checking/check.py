"""A run of `eoctl check`: what is checked and how, and what is said at the end."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from eoctl.face.style import screen_size
from eoctl.output import OutputFormat, Report, emit, line, message, while_read
from eoctl.runs.checking.run import CheckRun, of_topics, prepared
from eoctl.runs.checking.standing import PARTITION_COLUMNS, CheckedCluster
from eoctl.runs.told import MAX_NAMES, counted, is_for_people, tell
from recovery.checks.log_dirs.reclaim import (
    Reclaimable,
    find_reclaimable,
    find_reclaimable_beside,
    find_uncompacted,
)
from recovery.rules.findings import Finding
from recovery.start.files import StartChange
from storage.errors import EXIT_OK, EXIT_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eoctl.runs.checking.run import CheckRequest


def run_check(request: CheckRequest, output: OutputFormat) -> int:
    """Check, print, and return the exit status.

    A person is told what it comes to, then a line for each finding; a program, and who asks for
    it, gets all fields.
    """
    is_told = is_for_people(output) and not request.is_verbose
    run, end_notes = prepared(request, CheckRun, keeps=is_told)
    cluster = CheckedCluster(run)
    reports: list[Report] = []
    if not is_told:
        reports.append(Report("finding", Finding._fields, run.findings()))
        reports.append(Report("partition", PARTITION_COLUMNS, cluster.rows(output)))
    if request.predicts:
        reports.append(Report("start_change", StartChange._fields, run.changes))
    if request.reclaims:
        found = _reclaimable(run, request)
        rows = _by_pattern(found) if is_told else found
        fields = ReclaimableFiles._fields if is_told else Reclaimable._fields
        reports.append(Report("reclaimable", fields, rows))
    if is_told:
        _tell(run, request, cluster)
    for place, report in enumerate(reports):
        if (place or is_told) and output is OutputFormat.TEXT:
            line("")
        is_first = not place and not is_told
        with while_read(lambda: run.status, is_verdict=True) if is_first else nullcontext():
            emit(report, output)
    if request.reclaims:
        for job in run.jobs:
            run.notes += find_uncompacted(job.selected, job.image)
    notes = run.notes[1:] if is_told else run.notes  # what was verified is told already
    summary = () if is_told else (run.summary(),)
    retention = () if is_told else _retention_notes(run)
    for note in (*notes, *retention, *cluster.notes, *end_notes(), *summary):
        message(note)
    # A verdict on files that does not know all of the metadata is not on all that was looked at.
    return run.status or (EXIT_SKIPPED if cluster.is_short else EXIT_OK)


def _retention_notes(run: CheckRun) -> Iterator[str]:
    """Say what retention deletes soon after the start."""
    if not run.retention:
        return
    from eoctl.runs.checking.words import retention_text

    yield from map(retention_text, run.retention[:MAX_NAMES])
    more = len(run.retention) - MAX_NAMES
    if more > 0:
        yield f"retention then deletes segments of {counted(more, 'more partition')}"


def _tell(run: CheckRun, request: CheckRequest, cluster: CheckedCluster) -> None:
    """Say what a check comes to, on a terminal."""
    from eoctl.runs.checking.verdict import verdict_of_run
    from eoctl.runs.checking.words import lines

    with while_read(lambda: run.status, is_verdict=True):
        for _ in run.findings():
            pass
        tell(lines(verdict_of_run(run, request), screen_size()[0], cluster.words()))


class ReclaimableFiles(NamedTuple):
    """Files that may go for one reason while the broker is stopped; `path` names no others."""

    size_bytes: int
    files_count: int
    path: str
    why: str


def _by_pattern(found: Iterable[Reclaimable]) -> list[ReclaimableFiles]:
    """Sum up for people, what frees most first; what goes as a whole directory counts as one."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for each in found:
        sizes.setdefault((each.pattern, each.why), []).append(each.size_bytes)
    rows = [
        ReclaimableFiles(size_bytes=sum(each), files_count=len(each), path=place, why=why)
        for (place, why), each in sizes.items()
    ]
    return sorted(rows, reverse=True)


def _reclaimable(run: CheckRun, request: CheckRequest) -> Iterator[Reclaimable]:
    """Of some topics only what is in their directories; never what nothing else has."""
    for log_dir in () if request.topics else run.found.log_dirs:
        yield from find_reclaimable_beside(log_dir)
    held_back = {each.path for each in run.held_back}
    for selected in of_topics(run.found, request):
        if selected.partition.path not in held_back:
            yield from find_reclaimable(selected)
