"""`eoctl apply`: apply a saved plan, or complete an interrupted run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.output import OutputFormat
from eoctl.parameters import argument

COLUMNS = ("plan_id", "command", "status", "steps", "was_applied_before", "path")


@with_change(without=("apply", "save_plan"))
def command(
    plan: Annotated[
        str, argument(metavar="PLAN", help="A saved plan, or the directory of a journal.")
    ],
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> None:
    """Apply a plan: every file it touches must be what it was when the plan was made.

    The old bytes are kept, and eoctl undo puts them back. Applied twice it changes nothing. The
    directory of a journal stands for the plan in it: what was interrupted is completed.
    """
    from eoctl.commands.shared.changes import applied_lines
    from eoctl.messages import answer_width, report_answer
    from eoctl.output import Report, emit, line, message
    from eoctl.plan_actions import apply_one, how_to_undo, show_price
    from recovery.changes.apply import begun_by, begun_log_dirs, finish
    from recovery.changes.journals.journal import JOURNAL_NAME, read_journal
    from recovery.changes.plans.plan import read_plan
    from storage.errors import UsageError
    from storage.files.broker_lock import take
    from storage.files.fsio import FileSystem

    fs = FileSystem()
    if Path(plan).is_dir() or Path(plan).name == JOURNAL_NAME:
        found = read_journal(plan)
        with take(found.log_dirs, broker_is_stopped=change.broker_is_stopped, fs=fs):
            applied = finish(fs, found.path)
            message(how_to_undo(applied))  # early, because writing the row may fail
        price = {} if found.appends else read_plan(found.plan_path, is_kept=True).price
    else:
        wanted = read_plan(plan)
        if not wanted.steps:
            raise UsageError(f"{plan}: has no steps, so there is nothing to do")
        is_stopped = change.broker_is_stopped
        with (
            begun_log_dirs(fs, begun_by(wanted), broker_is_stopped=is_stopped),
            take(wanted.log_dirs, broker_is_stopped=is_stopped, fs=fs),
        ):
            applied = apply_one(fs, wanted, change)
            message(how_to_undo(applied))
        price = wanted.price
    done = applied.journal
    row = (
        done.plan_id,
        done.command,
        str(done.status),
        len(done.steps),
        applied.was_done,
        done.path,
    )
    emit(Report("applied_plan", COLUMNS, [row]), output)
    if price:
        if output is OutputFormat.TEXT:
            line("")
        show_price(price, output)
    report_answer(applied_lines(applied, price, answer_width(output)), output)
