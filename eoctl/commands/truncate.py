"""`eoctl truncate`: cut a partition back, as a broker does, with a plan and a way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eoctl import options  # noqa: TC001 - Typer reads the annotations
from eoctl.output import OutputFormat
from storage.errors import EXIT_OK, EXIT_SKIPPED, UsageError
from storage.limits import INT32_MAX, MAX_OFFSET

if TYPE_CHECKING:
    from eoctl.changing import ChangeOptions
    from eoctl.runs.truncate import PlannedTruncation, TruncateOptions


def command(
    path: Annotated[str, typer.Argument(metavar="PARTITION", help="A partition directory.")],
    to_hw: Annotated[
        bool, typer.Option("--to-hw", help="To the checkpointed high watermark.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, max=MAX_OFFSET, metavar="N", help="Keep what is below N.")
    ] = None,
    to_leader_epoch: Annotated[
        int | None,
        typer.Option(min=0, max=INT32_MAX, metavar="E", help="Keep what is up to epoch E's end."),
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Keep what is before the first such record.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Refuse a target inside of a batch.")
    ] = False,
    assume_hw: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_OFFSET, metavar="N", help="Instead of the checkpointed one."),
    ] = None,
    replica: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Another replica, to compare with; may be repeated."),
    ] = None,
    all_replicas: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Another replica, cut too; repeat it for each of them."),
    ] = None,
    single_copy: Annotated[
        bool, typer.Option("--single-copy", help="This will be the only replica that survives.")
    ] = False,
    coordinator_dir: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Log dir with __consumer_offsets; may be repeated."),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    now: options.Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    apply: options.Apply = False,
    save_plan: options.SavePlan = None,
    backup_dir: options.BackupDir = None,
    no_backup: options.NoBackup = False,
    i_accept_the_loss: options.AcceptLoss = False,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Cut a partition back to an offset, the high watermark, a leader epoch or a time.

    The batch with the target goes as a whole, as a broker does it. Without --apply the plan is
    shown: every step, and what is lost.
    """
    from eoctl.changing import ChangeOptions
    from eoctl.clock import parse_time_ms
    from eoctl.output import use_format
    from eoctl.runs.truncate import TruncateOptions
    from recovery.truncate.target import TargetKind

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
    targets: dict[TargetKind, int | None] = {}
    if to_hw:
        targets[TargetKind.HW] = None
    if to_offset is not None:
        targets[TargetKind.OFFSET] = to_offset
    if to_leader_epoch is not None:
        targets[TargetKind.LEADER_EPOCH] = to_leader_epoch
    if to_time is not None:
        targets[TargetKind.TIME] = parse_time_ms(to_time)
    if len(targets) != 1:
        raise UsageError(
            f"{len(targets)} targets, one is needed",
            next_step="--to-hw, --to-offset N, --to-leader-epoch E or --to-time TIME",
        )
    ((kind, value),) = targets.items()
    wanted = TruncateOptions(
        kind=kind,
        value=value,
        assume_hw=assume_hw,
        exact=exact,
        replicas=tuple(replica or ()),
        all_replicas=tuple(all_replicas or ()),
        single_copy=single_copy,
        coordinator_dirs=tuple(coordinator_dir or ()),
        metadata_dir=metadata_dir,
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    if apply:
        return _apply(path, wanted, change, output)
    return _show(path, wanted, change, output)


def _show(path: str, wanted: TruncateOptions, change: ChangeOptions, output: OutputFormat) -> int:
    from eoctl.changing import save_plan
    from eoctl.runs.truncate import plan_run

    planned = plan_run(path, wanted)
    notes = []
    if planned.plan is None:
        notes.append("there is nothing to cut: nothing would be changed")
    elif change.save_plan is not None:
        save_plan(planned.plan, change.save_plan)
        notes.append(f"nothing was changed: eoctl apply {change.save_plan} does it")
    else:
        notes.append("this is a plan, nothing was changed: --apply does it")
    _report(planned, notes, output, is_applied=False)
    return EXIT_SKIPPED if planned.is_short else EXIT_OK


def _apply(path: str, wanted: TruncateOptions, change: ChangeOptions, output: OutputFormat) -> int:
    """Plan and apply under the locks: a broker may have run since somebody looked."""
    from eoctl.changing import apply_one, how_to_undo
    from eoctl.runs.truncate import PlannedTruncation, arguments_of, plan_run
    from recovery.changes.apply import resume, writing
    from storage.discovery import select_partition
    from storage.errors import EoctlError
    from storage.fsio import FileSystem

    fs = FileSystem()
    selected = [select_partition(each) for each in (path, *wanted.all_replicas)]
    with writing(selected, fs, broker_is_stopped=change.broker_is_stopped) as log_dirs:
        resumed = resume(fs, log_dirs, "truncate", [arguments_of(path, wanted)])
        notes = [f"completed what an earlier run began: {how_to_undo(each)}" for each in resumed]
        try:
            planned = plan_run(path, wanted)
        except EoctlError:
            if not resumed:
                raise
            # What was asked for is done; in what is there now its target may mean nothing more.
            planned = PlannedTruncation(None, (), ())
        if planned.plan is not None:
            notes.append(how_to_undo(apply_one(fs, planned.plan, change)))
        elif not resumed:
            notes.append("there is nothing to cut: nothing was changed")
    _report(planned, notes, output, is_applied=bool(resumed) or planned.plan is not None)
    return EXIT_SKIPPED if planned.is_short else EXIT_OK


def _report(
    planned: PlannedTruncation, notes: list[str], output: OutputFormat, *, is_applied: bool
) -> None:
    from eoctl.changing import show_plan
    from eoctl.output import Report, emit, line, message
    from eoctl.runs.truncate import TruncationReport

    rows = [each._replace(applied=is_applied) for each in planned.rows]
    try:
        emit(Report("truncation", TruncationReport._fields, rows), output)
        if planned.plan is not None:
            if output is OutputFormat.TEXT:
                line("")
            show_plan(planned.plan, output)
    finally:  # the way back is told also when nobody reads the rows
        for note in (*planned.notes, *notes):
            message(note)
