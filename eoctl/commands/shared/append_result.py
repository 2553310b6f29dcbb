"""The result or plan of an appending run: its answer for a terminal, its rows, its error.

Plan    append 20 records to plain-0, offsets 179..198
Undo    yes: a journal is kept for eoctl undo
Next    eoctl produce kafka/plain-0 lines --single-copy --apply
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl import command_line
from eoctl.console.columns import size_text
from eoctl.messages import (
    LABEL_WIDTH,
    NO_UNDO,
    Line,
    Said,
    answer_width,
    fitting,
    report_answer,
    report_first,
    said_line,
)
from eoctl.output import OutputFormat, Report, emit, line
from eoctl.plan_actions import show_plan
from recovery.rules.findings import Severity
from storage.counts import counted
from storage.errors import EoctlError, call_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.changes.append_journal import AppendJournal
    from recovery.changes.plans.plan import Plan
    from storage.writing.partition_store import FileChange


class AppendAnswer(NamedTuple):
    """The answer of a run.

    Attributes:
        verbs: the verb of a plan, and the verb after it was applied.
        does: the text after the verb, longest first. Empty if nothing is appended.
        loses: the records that consumers do not get, as texts, longest first.
        owner: the other system that may have decided otherwise, with the command to run first.
        waits: what cannot be done yet, and why, one text for each line.
        waiting: how many of them there are.
        try_next: the step that makes it possible, empty if unknown.
    """

    verbs: tuple[str, str]
    does: tuple[str, ...]
    loses: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    waiting: str = ""
    try_next: str = ""


class AppendedRows(NamedTuple):
    """The result of a run.

    Attributes:
        reports: rows, each kind by itself.
        recoveries: recoveries of partitions that were not stopped cleanly.
        changes: changes of files.
        notes: sentences for people.
        error: the error that ended the run early. The rows cover the work before it.
        answer: for a terminal.
        journal: None if no change was requested.
        has_backup: the change can be undone, or could be.
    """

    reports: Sequence[Report]
    recoveries: Sequence[Plan]
    changes: Sequence[FileChange]
    notes: Sequence[str]
    error: BaseException | None
    answer: AppendAnswer
    journal: AppendJournal | None
    has_backup: bool


def places_text(names: Sequence[str]) -> str:
    """Return the name of one partition, or the number of several."""
    return names[0] if len(names) == 1 else counted(len(names), "partition")


def show_appended(appended: AppendedRows, output: OutputFormat) -> None:
    """Print what an appending command did, or would do, and raise its error, if any.

    The order is recoveries, reports, files. The error is raised even if the rows cannot be written.
    """
    try:
        _show(appended, output)
    finally:
        if appended.error is not None:
            raise appended.error


def _show(appended: AppendedRows, output: OutputFormat) -> None:
    is_text = output is OutputFormat.TEXT
    # After an error these lines say how far it came. An interrupt says that by itself.
    has_words = appended.error is None or isinstance(appended.error, EoctlError)
    room = answer_width(output) - LABEL_WIDTH
    if has_words and appended.journal is None:
        report_first(_planned_lines(appended, room), output)
    for plan in appended.recoveries:
        show_plan(plan, output)
        if is_text:
            line("")
    for each in appended.reports:
        emit(each, output)
        if is_text:
            line("")
    columns, notes = _file_columns(), list(appended.notes)
    emit(Report(kind="file", columns=columns, rows=appended.changes, notes=notes), output)
    if has_words and appended.journal is not None:
        report_answer(_done_lines(appended, appended.journal, room), output)


def _file_columns() -> tuple[str, ...]:
    from storage.writing.partition_store import FileChange

    return FileChange._fields


def _planned_lines(appended: AppendedRows, room: int) -> Iterator[Line]:
    answer = appended.answer
    if not appended.changes:
        yield said_line(Said("Plan", f"nothing: {_nothing(appended)}"))
        yield from _waits_lines(answer)
        yield from _next_line(appended)
        return
    does = [f"{answer.verbs[0]} {each}" for each in answer.does]
    yield said_line(Said("Plan", fitting(does or ["only files are recovered"], room)))
    yield from _stop_line(appended)
    yield from _owner_line(answer, room)
    yield from _loses_line(answer, "Loses", room)
    yield from _cut_line(appended, "Loses")
    yield from _waits_lines(answer)
    if answer.try_next and appended.error is None:
        yield Line(f"{'':{LABEL_WIDTH}}{answer.try_next}")
    undo = "yes: a journal is kept for eoctl undo"
    yield said_line(Said("Undo", undo if appended.has_backup else NO_UNDO))
    if appended.error is None:  # an error has its own next step
        yield said_line(Said("Next", command_line.again("--apply")))


def _done_lines(appended: AppendedRows, journal: AppendJournal, room: int) -> Iterator[Line]:
    answer, closed = appended.answer, journal.journal
    if closed is None or not (answer.does or appended.recoveries):
        yield said_line(Said("Done", f"nothing: {_nothing(appended)}"))
        yield from _waits_lines(answer)
        yield from _next_line(appended)
        return
    does = [f"{answer.verbs[1]} {each}" for each in answer.does]
    yield said_line(Said("Done", fitting(does or ["only files were recovered"], room)))
    yield from _stop_line(appended)
    yield from _loses_line(answer, "Lost", room)
    yield from _cut_line(appended, "Lost")
    yield from _waits_lines(answer)
    command = call_text(["eoctl", "undo", closed.path])
    yield said_line(Said("Undo", command if closed.has_backup else "no: it kept no backup"))
    yield from _next_line(appended)


def _nothing(appended: AppendedRows) -> str:
    if appended.error is not None:
        return "the error below came first"
    if appended.answer.waits:
        return appended.answer.waiting
    return f"there is nothing to {appended.answer.verbs[0]}"


def _waits_lines(answer: AppendAnswer) -> Iterator[Line]:
    for each in answer.waits:
        yield said_line(Said("Waits", each, Severity.WARNING.rank))


def _next_line(appended: AppendedRows) -> Iterator[Line]:
    """Yield the step after which nothing waits. An error has its own next step."""
    if appended.answer.try_next and appended.error is None:
        yield said_line(Said("Next", appended.answer.try_next))


def _stop_line(appended: AppendedRows) -> Iterator[Line]:
    if appended.error is not None:
        yield said_line(Said("Stops", "there, by the error below", Severity.ERROR.rank))


def _owner_line(answer: AppendAnswer, room: int) -> Iterator[Line]:
    """Yield the owner line, whose command is never shortened, ready to paste."""
    if answer.owner:
        text = next((each for each in answer.owner if len(each) <= room), answer.owner[0])
        yield said_line(Said("Owner", text, Severity.WARNING.rank))


def _loses_line(answer: AppendAnswer, label: str, room: int) -> Iterator[Line]:
    if answer.loses:
        yield said_line(Said(label, fitting(answer.loses, room), Severity.ERROR.rank))


def _cut_line(appended: AppendedRows, label: str) -> Iterator[Line]:
    """Yield the bytes that a recovery truncates after the last whole batch."""
    cut_bytes = sum(each.price.get("cut_bytes") or 0 for each in appended.recoveries)
    if cut_bytes:
        text = f"{size_text(cut_bytes)} behind the last whole batch, as at a broker's start"
        yield said_line(Said(label, text, Severity.WARNING.rank))
