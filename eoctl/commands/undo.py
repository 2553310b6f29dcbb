"""`eoctl undo`: restore the files that applied plans have changed, byte for byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from eoctl import options
from eoctl.output import OutputFormat
from eoctl.parameters import argument, records_option, safety_option

if TYPE_CHECKING:
    from recovery.changes.journals.journal import Journal

COLUMNS = ("plan_id", "command", "status", "steps", "path")


def command(
    journals: Annotated[
        list[str],
        argument(
            metavar="JOURNAL...", help="Journals, or log dirs, whose newest change is undone."
        ),
    ],
    dry_run: Annotated[
        bool, safety_option("--dry-run", help="Only check whether it can be undone.")
    ] = False,
    with_later: Annotated[
        bool,
        records_option("--with-later", help="Also undo later changes of the same log dirs."),
    ] = False,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> None:
    """Put everything back as it was: every byte, mode and modification time.

    Of several journals the newest comes first. Refused where anything was changed since, as a
    broker does that runs.
    """
    from eoctl.commands.shared.changes import undone_lines
    from eoctl.messages import report_answer
    from eoctl.output import Report, emit
    from eoctl.progress import Progress
    from recovery.changes.journals.journal import read_journal
    from recovery.changes.journals.listing import all_later
    from recovery.changes.undo import check_undo, require_undo, undo
    from storage.errors import EoctlError
    from storage.files.broker_lock import take
    from storage.files.fsio import FileSystem

    given = {each.path: each for each in map(_newest, journals)}
    asked = [*given]
    for each in given.values():  # before newer journals are undone in vain
        require_undo(each)
    if with_later:
        for path in [path for each in given.values() for path in all_later(each)]:
            given.setdefault(path, read_journal(path))
    found = sorted(given.values(), key=lambda each: each.order, reverse=True)
    fs = FileSystem()
    rows: list[tuple[Any, ...]] = []
    notes: list[str] = []
    try:
        for each in found:
            if dry_run:
                check_undo(each, found[: len(rows)])
                rows.append(_row(each))
                continue
            with (
                take(each.log_dirs, broker_is_stopped=broker_is_stopped, fs=fs),
                Progress("copying back") as progress,
            ):
                done = undo(fs, each.path, on_bytes=progress.advance)
            rows.append(_row(done.journal))
            notes += [
                f"{partition}: was changed since: the clean-shutdown marker stays away, and the"
                " next start of the broker recovers"
                for partition in done.unlike
            ]
    except EoctlError as exc:
        if rows and not dry_run:
            before = f"of {len(found)} journals {len(rows)} were undone before"
            exc.next_step = f"{exc.next_step}; {before}" if exc.next_step else before
        raise
    finally:
        if rows:  # even before an error, as these are undone
            notes += ["nothing was changed: it can be undone"] if dry_run else []
            emit(Report(kind="undone_plan", columns=COLUMNS, rows=rows, notes=notes), output)
            shown = found[: len(rows)]
            words = (*(["--with-later"] if with_later else ()), *asked)
            report_answer(undone_lines(shown, words if dry_run else ()), output)


def _newest(path: str) -> Journal:
    """Return the journal at a path, or the newest journal of a log dir that can be undone.

    Its choice is printed.

    Raises:
        UsageError: the log dir has no such journal.
        AccessError, CorruptError: it cannot be read, or is damaged.
    """
    from eoctl.output import message
    from recovery.changes.journals.backups import default_place
    from recovery.changes.journals.journal import Status, read_journal
    from recovery.changes.journals.listing import list_journals
    from recovery.changes.undo import moved_back
    from storage.errors import UsageError, pasted
    from storage.file_names import META_PROPERTIES_NAME

    place = Path(os.path.realpath(path))
    is_log_dir = (place / META_PROPERTIES_NAME).exists()
    if not is_log_dir and not Path(default_place(str(place))).is_dir():
        return read_journal(path)
    kept = list_journals([path])
    for each in kept:  # the newest cannot be determined
        if each.problem is not None:
            raise each.problem
    found = [each.journal for each in kept if each.journal is not None]
    open_ones = [each for each in found if each.status is not Status.UNDONE]
    # One directory may have journals of several log dirs.
    ours = [each for each in open_ones if str(place) in map(os.path.realpath, each.log_dirs)]
    if not ours and open_ones:
        other = open_ones[-1].log_dirs[0]
        raise UsageError(
            f"{path}: its changes were applied at {other}, and an undo restores files there",
            next_step=f"{moved_back(other)}, then eoctl undo {pasted(other)}",
        )
    if not ours:
        raise UsageError(
            f"{path}: nothing there can be undone",
            next_step=f"eoctl journal list {pasted(path)}",
        )
    newest = max(ours, key=lambda each: each.order)
    message(f"{path}: its newest change is {newest.path}: {newest.command}")
    return newest


def _row(found: Journal) -> tuple[Any, ...]:
    return (found.plan_id, found.command, str(found.status), len(found.steps), found.path)
