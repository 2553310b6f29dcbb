"""The handling of a plan by every changing command: show it, save it, apply it under the locks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.output import Columns, OutputFormat, Report, emit, line
from eoctl.progress import Progress
from recovery.changes.apply import apply_plan
from recovery.changes.journals.journal import Status
from recovery.changes.plans.plan import encode_plan
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import pasted
from storage.files import fsio
from storage.files.fsio import FileAttributes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.change_options import ChangeOptions
    from recovery.changes.journals.backups import Applied
    from recovery.changes.plans.plan import Plan
    from storage.files.fsio import FileSystem

STEP_COLUMNS = Columns(
    ("action", "file", "before_bytes", "after_bytes", "backup_bytes", "reason"),
    answers=("action", "file", "reason"),
    noun="change",
)


def apply_one(fs: FileSystem, plan: Plan, options: ChangeOptions) -> Applied:
    """Apply a plan. Call it under `storage.files.broker_lock.take`. Raises as `apply_plan`."""
    with Progress("copying") as progress:
        return apply_plan(
            fs,
            plan,
            backup_dir=options.backup_dir,
            has_backup=not options.no_backup,
            on_bytes=progress.advance,
        )


def save_plan(plan: Plan, path: str) -> None:
    """Write a plan to a new file, because an existing file may hold an earlier plan.

    Raises:
        AccessError: the file cannot be written, or exists.
        RefusedError: the file would lie in a log dir.
    """
    require_outside_log_dirs(path, "save it elsewhere")
    fs = fsio.FileSystem()
    private = FileAttributes(os.geteuid(), os.getegid(), 0o600)
    fsio.create_file(fs, path, encode_plan(plan), private)
    fsio.sync_dir(fs, Path(path).parent)


def how_to_undo(applied: Applied) -> str:
    """Return a note that says how to undo a change."""
    found = applied.journal
    if found.status is Status.KEPT:
        return (
            "files that an interrupted run has written stay, and were changed since, as by a "
            f"broker: it cannot be undone; its journal is {found.path}"
        )
    if applied.was_done:
        return f"it had been applied before: {found.path}"
    if not found.has_backup:
        return f"applied without a backup: it cannot be undone; its journal is {found.path}"
    return f"eoctl undo {pasted(found.path)} undoes it"


def how_to_undo_all(first: Applied) -> str:
    """Return a note on undoing several journals, as soon as the first of them is applied."""
    found = first.journal
    if first.was_done or not found.has_backup:
        return how_to_undo(first)
    return f"eoctl undo --with-later {pasted(found.path)} undoes all of it"


def how_to_compare(journals: Sequence[str]) -> Iterator[str]:
    """Name the command that compares the records before and after a change, by its journals."""
    if journals:
        more = f"; likewise for {len(journals) - 1} more journals" if len(journals) > 1 else ""
        yield (
            f"eoctl diff {pasted(journals[0])} shows which records are lost, new or changed{more}"
        )


def show_plan(plan: Plan, output: OutputFormat) -> None:
    """Print the steps and the data loss of a plan."""
    emit(Report("step", STEP_COLUMNS, _step_rows(plan)), output)
    if output is OutputFormat.TEXT:
        line("")
    show_price(plan.price, output)


def show_price(price: dict[str, Any], output: OutputFormat) -> None:
    """Print the data loss of a plan. In text, each table in it is printed separately."""
    if output is not OutputFormat.TEXT:
        emit(Report("price", tuple(price), [tuple(price.values())]), output)
        return
    emit(Report("price", ("price", "value"), _cost_rows(price)), output)
    for name, rows in price.items():
        if _is_table(rows):
            line("")
            columns = tuple(rows[0])
            table = [tuple(each[column] for column in columns) for each in rows]
            emit(Report(name, columns, table), output)


def _step_rows(plan: Plan) -> Iterator[tuple[Any, ...]]:
    is_one_log_dir = len(plan.log_dirs) == 1
    for each in plan.steps:
        yield (
            "create" if each.before is None else str(each.action),
            str(Path(each.path).relative_to(each.log_dir)) if is_one_log_dir else each.path,
            0 if each.before is None else each.before.file_bytes,
            each.after_bytes,
            each.backup_bytes,
            each.reason,
        )


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _cost_rows(price: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in price.items():
        if isinstance(value, dict):
            for key, each in value.items():
                yield f"{name}.{key}", each
        else:
            yield name, len(value) if isinstance(value, list) else value
