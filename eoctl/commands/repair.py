"""`eoctl repair`: mend damaged partitions, with a plan and a way back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from eoctl import options  # noqa: TC001 - Typer reads the annotations
from eoctl.output import OutputFormat
from recovery.repair.strategies import Strategy  # noqa: TC001
from storage.errors import EXIT_OK, EXIT_SKIPPED, UsageError
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from eoctl.changing import ChangeOptions
    from eoctl.runs.repair import PlannedRepair, RepairRun


def command(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Partition directories or log dirs.")
    ],
    strategy: Annotated[
        Strategy | None,
        typer.Option(
            help="What to do; without, what is damaged is shown, and a strategy proposed."
        ),
    ] = None,
    single_copy: Annotated[
        bool, typer.Option("--single-copy", help="These are the only replicas that survive.")
    ] = False,
    replicated: Annotated[
        bool, typer.Option("--replicated", help="Another broker has a replica in sync.")
    ] = False,
    index_interval_bytes: Annotated[
        int | None,
        typer.Option(min=0, max=INT32_MAX, help="index.interval.bytes, else as the topic has it."),
    ] = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    metadata_dir: options.MetadataDir = None,
    apply: options.Apply = False,
    save_plan: options.SavePlan = None,
    backup_dir: options.BackupDir = None,
    no_backup: options.NoBackup = False,
    i_accept_the_loss: options.AcceptLoss = False,
    broker_is_stopped: options.BrokerIsStopped = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: all cores.")] = 0,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Mend damaged partitions: as a broker would, keeping every good batch, or by refetching.

    Without --apply the plan is shown: every step, and what is lost.
    """
    from eoctl.changing import ChangeOptions
    from eoctl.output import use_format
    from eoctl.runs.repair import RepairOptions, RepairRun

    use_format(output)
    change = ChangeOptions(
        apply=apply,
        save_plan=save_plan,
        backup_dir=backup_dir,
        no_backup=no_backup,
        accept_loss=i_accept_the_loss,
        broker_is_stopped=broker_is_stopped,
    )
    change.check()
    wanted = RepairOptions(
        strategy=strategy,
        single_copy=single_copy,
        interval_bytes=index_interval_bytes,
        expiration_ms=producer_expiry_ms,
        now=now,
        metadata_dir=metadata_dir,
        replicated=replicated,
    )
    wanted.check(is_kept=apply or save_plan is not None)
    run = RepairRun(paths, wanted)
    jobs = jobs or len(os.sched_getaffinity(0))
    return (_apply if apply else _show)(run, change, jobs, output)


NO_WAY_BACK = (
    "what is missing cannot be made from what is here; a backup or another replica may have it"
)


def _planned(run: RepairRun, jobs: int) -> PlannedRepair:
    from eoctl.progress import Progress

    with Progress("reading", run.log_bytes) as progress:
        return run.plan(jobs, progress.advance)


def _show(run: RepairRun, change: ChangeOptions, jobs: int, output: OutputFormat) -> int:
    from eoctl.changing import save_plan

    planned = _planned(run, jobs)
    notes = []
    if change.save_plan is not None and planned.plans:
        if len(planned.plans) > 1:
            raise UsageError(
                f"{len(planned.plans)} log dirs have something to repair: a plan is for one",
                next_step="--save-plan for each log dir by itself",
            )
        save_plan(planned.plans[0], change.save_plan)
        notes.append(f"nothing was changed: eoctl apply {change.save_plan} does it")
    elif planned.plans:
        notes.append("this is a plan, nothing was changed: --apply does it")
    elif planned.is_needed:
        notes.append("nothing was changed: --strategy shows the plan of one")
    elif planned.is_short:
        notes.append(f"nothing was changed: {NO_WAY_BACK}")
    else:
        notes.append(f"there is nothing to repair{_but(planned)}: nothing would be changed")
    return _report(planned, notes, output, is_applied=False)


def _apply(run: RepairRun, change: ChangeOptions, jobs: int, output: OutputFormat) -> int:
    """Plan and apply under the locks: a broker may have run since somebody looked."""
    from eoctl.changing import apply_one, how_to_undo
    from eoctl.output import message
    from recovery.changes.apply import resume, writing
    from storage.fsio import FileSystem

    fs = FileSystem()
    with writing(run.selected, fs, broker_is_stopped=change.broker_is_stopped) as log_dirs:
        resumed = resume(fs, log_dirs, "repair", [*run.arguments().values()])
        notes = [f"completed what an earlier run began: {how_to_undo(each)}" for each in resumed]
        planned = _planned(run, jobs)
        for plan in planned.plans:
            # At once: whatever becomes of the next log dir, the way back is known.
            message(how_to_undo(apply_one(fs, plan, change)))
    if planned.is_short and not planned.plans:
        notes.append(f"nothing was changed: {NO_WAY_BACK}")
    elif not planned.plans and not resumed:
        notes.append(f"there is nothing to repair{_but(planned)}: nothing was changed")
    return _report(planned, notes, output, is_applied=bool(planned.plans))


def _but(planned: PlannedRepair) -> str:
    return " in what could be read and mended here" if planned.is_unread else ""


def _report(
    planned: PlannedRepair, notes: list[str], output: OutputFormat, *, is_applied: bool
) -> int:
    from eoctl.changing import show_plan
    from eoctl.output import Report, emit, error, line, message
    from eoctl.runs.repair import RepairReport

    rows = [each._replace(applied=is_applied and each.steps_count > 0) for each in planned.rows]
    try:
        emit(Report("repair", RepairReport._fields, rows), output)
        for plan in planned.plans:
            if output is OutputFormat.TEXT:
                line("")
            show_plan(plan, output)
    finally:  # the way back is told also when nobody reads the rows
        for each in planned.errors:
            error(each)
        for note in (*planned.notes, *notes):
            message(note)
    is_open = planned.is_short and not planned.plans
    return EXIT_SKIPPED if planned.errors or is_open or planned.is_unread else EXIT_OK
