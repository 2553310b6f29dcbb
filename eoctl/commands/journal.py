"""`eoctl journal`: list the journals of applied plans, show their steps, remove old journals."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from eoctl.options import Output
from eoctl.output import Columns, OutputFormat
from eoctl.parameters import argument, records_option, safety_option
from storage.errors import pasted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.messages import Said
    from recovery.changes.journals.journal import Journal
    from recovery.changes.journals.listing import KeptJournal
    from storage.errors import EoctlError

LIST_COLUMNS = Columns(
    ("plan_id", "status", "command", "applied_at_ms", "steps", "kept_bytes", "path"),
    answers=("plan_id", "status", "command", "applied_at_ms", "kept_bytes"),
)
STEP_COLUMNS = (
    "action", "file", "state", "before_bytes", "after_bytes", "backup", "path", "plan_id",
)  # fmt: skip
PRUNE_COLUMNS = ("plan_id", "status", "kept_bytes", "removed", "path")
DAY_MS = 86_400_000


class JournalAction(StrEnum):
    """The actions on journals."""

    LIST = "list"
    SHOW = "show"
    PRUNE = "prune"


def command(
    action: Annotated[JournalAction, argument(metavar="list|show|prune", help="Action to run.")],
    paths: Annotated[
        list[str],
        argument(metavar="PATH...", help="Log dirs, backup directories, or single journals."),
    ],
    older_than: Annotated[
        float | None,
        records_option(min=0, metavar="DAYS", help="prune only journals older than this."),
    ] = None,
    apply: Annotated[
        bool, safety_option("--apply", help="prune removes them. Without it they are only listed.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> int:
    """List the journals of log dirs, show the steps of a journal, or remove finished journals.

    A change cannot be undone after its journal was pruned. eoctl never prunes an unfinished
    journal.
    """
    from eoctl.messages import is_for_people, report_first
    from eoctl.output import Report, emit, error
    from recovery.changes.journals.listing import list_journals
    from storage.errors import EXIT_FINDINGS, EXIT_OK, UsageError

    if action is not JournalAction.PRUNE and (apply or older_than is not None):
        raise UsageError("--apply and --older-than go with prune only")
    if older_than is not None and not math.isfinite(older_than):
        raise UsageError(f"--older-than {older_than}: is no number of days")
    kept = list_journals(paths)
    if action is JournalAction.LIST:
        if kept or not is_for_people(output):
            report_first(list_lines(kept), output)
        emit(
            Report(
                kind="journal",
                columns=LIST_COLUMNS,
                rows=map(_list_row, kept),
                notes=_open_ends(kept),
            ),
            output,
        )
    elif action is JournalAction.SHOW:
        emit(
            Report(
                kind="journal_step",
                columns=STEP_COLUMNS,
                rows=_step_rows(kept),
                notes=_problems(kept),
            ),
            output,
        )
    else:
        rows, notes, errors = _pruned(kept, older_than, apply=apply)
        try:
            emit(
                Report(kind="pruned_journal", columns=PRUNE_COLUMNS, rows=rows, notes=notes), output
            )
        finally:  # report removed journals before an error
            for each in errors:
                error(each)
        return errors[0].exit_status if errors else EXIT_OK
    return EXIT_FINDINGS if any(each.problem for each in kept) else EXIT_OK


def list_lines(kept: Sequence[KeptJournal]) -> Iterator[Said]:
    """Yield the number of journals, their states, and the command for the undo."""
    from collections import Counter

    from eoctl.console.columns import size_text
    from eoctl.messages import Said
    from storage.counts import counted

    if not kept:
        yield Said("Changes", "none has a journal here")
        return
    counts = Counter(map(_status, kept))
    states = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
    size = size_text(sum(each.kept_bytes or 0 for each in kept))
    yield Said("Changes", f"{counted(len(kept), 'journal')}: {states}; {size} of backups")
    applied = [each for each in kept if _status(each) == "applied" and each.journal is not None]
    if applied:
        newest = max(applied, key=lambda each: each.journal.applied_at_ms if each.journal else 0)
        yield Said("Next", f"eoctl undo --dry-run {pasted(newest.path)}")


def _status(kept: KeptJournal) -> str:
    """Return the status of a journal. A journal that a log dir still refers to is not finished."""
    if kept.status is None:
        return "damaged"
    if not kept.flagged_in:
        return str(kept.status)
    return "undoing" if kept.status in ("undoing", "undone") else "unfinished"


def _list_row(kept: KeptJournal) -> Sequence[Any]:
    found = kept.journal
    return (
        Path(kept.path).name,
        _status(kept),
        None if found is None else found.command,
        None if found is None else found.applied_at_ms,
        None if found is None else len(found.steps),
        kept.kept_bytes,
        kept.path,
    )


def _open_ends(kept: Sequence[KeptJournal]) -> list[str]:
    from recovery.changes.journals.listing import ways_out

    return [
        f"{each.flagged_in[0]}: is not at the end of a change: {ways_out(each.journal)}"
        for each in kept
        if each.flagged_in and each.journal is not None
    ]


def _problems(kept: Sequence[KeptJournal]) -> list[str]:
    notes = [str(each.problem) for each in kept if each.problem is not None]
    notes += [
        f"{each.path}: its run ended before anything was changed"
        for each in kept
        if each.journal is None and each.problem is None
    ]
    return notes


def _step_rows(kept: Sequence[KeptJournal]) -> Iterator[Sequence[Any]]:
    from recovery.changes.steps import state_of

    for journal in [each.journal for each in kept if each.journal is not None]:
        for step in journal.steps:
            yield (
                str(step.action),
                f"{Path(step.path).parent.name}/{Path(step.path).name}",
                state_of(journal, step).value,
                None if step.before is None else step.before.file_bytes,
                step.after_bytes,
                str(step.backup_kind),
                journal.backup_path(step) if step.backup else step.path,
                journal.plan_id,
            )
        yield from _made_rows(journal)


def _made_rows(journal: Journal) -> Iterator[Sequence[Any]]:
    """Yield files that an appending run created, as far as its end is recorded."""
    from recovery.changes.plans.file_facts import is_still

    steps = {each.path for each in journal.steps}
    ends = {} if journal.appends is None else journal.appends.ends
    for path, facts in ends.items():
        if path in steps or facts is None:
            continue
        state = "after" if is_still(path, facts) else "changed" if Path(path).exists() else "before"
        name = f"{Path(path).parent.name}/{Path(path).name}"
        yield ("create", name, state, None, facts.file_bytes, "none", path, journal.plan_id)


def _pruned(
    kept: Sequence[KeptJournal], older_than: float | None, *, apply: bool
) -> tuple[list[Sequence[Any]], list[str], list[EoctlError]]:
    """Return rows, notes, and errors. An error does not stop the removal of other journals."""
    import time

    from recovery.changes.journals.listing import remove_journal, why_it_stays
    from storage.counts import counted
    from storage.errors import EoctlError
    from storage.files.fsio import FileSystem

    now_ms = time.time_ns() // 1_000_000
    rows: list[Sequence[Any]] = []
    notes: list[str] = []
    errors: list[EoctlError] = []
    ends = 0  # changes that cannot be undone without these journals
    fs = FileSystem()
    for each in kept:
        try:
            if reason := why_it_stays(each):
                notes.append(f"{each.path}: stays: {reason}")
                continue
            applied_at_ms = 0 if each.journal is None else each.journal.applied_at_ms
            if older_than is not None and now_ms - applied_at_ms < older_than * DAY_MS:
                continue
            if apply:
                remove_journal(fs, each)
        except EoctlError as error:
            errors.append(error)
            continue
        rows.append((Path(each.path).name, _status(each), each.kept_bytes, apply, each.path))
        found = each.journal
        ends += found is not None and found.has_backup and _status(each) == "applied"
    if rows and not apply:
        then = f"; then eoctl cannot undo {counted(ends, 'change')} any more" if ends else ""
        notes.append(f"nothing was removed: --apply removes {counted(len(rows), 'journal')}{then}")
    return rows, notes, errors
