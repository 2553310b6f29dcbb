"""`eoctl replicas`: compare the copies of one partition, and make one follow another."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from eoctl import options  # noqa: TC001 - Typer reads the annotations
from eoctl.output import OutputFormat
from storage.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from eoctl.changing import ChangeOptions
    from eoctl.runs.rejoin import PlannedRejoin, RejoinOptions
    from eoctl.runs.replicas import CompareRun


class ReplicasAction(StrEnum):
    """What to do with the copies."""

    COMPARE = "compare"
    REJOIN = "rejoin"


class RuleName(StrEnum):
    """What `--rule` takes."""

    EPOCH = "epoch"
    HW = "hw"


def command(
    action: Annotated[ReplicasAction, typer.Argument(metavar="compare|rejoin", help="What to do.")],
    paths: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Directories of one partition.")
    ],
    leader: Annotated[
        str | None, typer.Option(metavar="DIR", help="rejoin: the copy that DIR is to follow.")
    ] = None,
    rule: Annotated[
        RuleName, typer.Option(help="rejoin: where DIR is cut; hw is only shown.")
    ] = RuleName.EPOCH,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="rejoin: also where acknowledged offsets go.")
    ] = False,
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
    """Compare copies of one partition from several brokers, or make one follow another.

    compare: where they part, by leader epochs and by checksums, and what each choice of a leader
    loses. rejoin: cut DIR as a follower would be, then append what the leader has, as bytes.
    """
    from eoctl.changing import ChangeOptions
    from eoctl.output import use_format

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
    if action is ReplicasAction.COMPARE:
        from eoctl.runs.replicas import CompareRun

        is_changing = change != ChangeOptions()
        if leader is not None or unclean or is_changing or rule is not RuleName.EPOCH:
            raise UsageError("compare changes nothing: that option goes with rejoin only")
        run = CompareRun(paths, now=now, expiration_ms=producer_expiry_ms)
        _report_comparison(run, output)
        return run.status
    from eoctl.runs.rejoin import FollowRule, RejoinOptions

    if leader is None or len(paths) != 1:
        raise UsageError(
            "rejoin takes one directory and one leader",
            next_step="eoctl replicas rejoin DIR --leader DIR",
        )
    if rule is RuleName.HW and (apply or save_plan is not None):
        raise UsageError("--rule hw is only shown: it leaves logs that differ")
    wanted = RejoinOptions(
        leader=leader,
        rule=FollowRule(rule.value),
        unclean=unclean,
        metadata_dir=metadata_dir,
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    if apply:
        _apply(paths[0], wanted, change, output)
    else:
        _show(paths[0], wanted, change, output)
    return EXIT_OK


def _report_comparison(run: CompareRun, output: OutputFormat) -> None:
    from eoctl.output import Report, emit, line, message
    from eoctl.runs.replicas import ChoiceRow, ComparisonRow, LostTransactionRow, ReplicaRow

    reports = [
        Report("replica", ReplicaRow._fields, run.replicas, is_whole=True),
        Report("comparison", ComparisonRow._fields, run.comparisons, is_whole=True),
        Report("choice", ChoiceRow._fields, run.choices, is_whole=True),
    ]
    if run.transactions:
        reports.append(
            Report("transaction", LostTransactionRow._fields, run.transactions, is_whole=True)
        )
    for number, each in enumerate(reports):
        if number and output is OutputFormat.TEXT:
            line("")
        emit(each, output)
    for note in run.notes:
        message(note)


def _show(path: str, wanted: RejoinOptions, change: ChangeOptions, output: OutputFormat) -> None:
    from eoctl.changing import save_plan
    from eoctl.runs.rejoin import FollowRule, plan_run

    planned = plan_run(path, wanted)
    notes = []
    if planned.plan is None:
        if wanted.rule is FollowRule.EPOCH:
            notes.append("it has all that the leader has: nothing would be changed")
    elif change.save_plan is not None:
        save_plan(planned.plan, change.save_plan)
        notes.append(f"nothing was changed: eoctl apply {change.save_plan} does it")
    else:
        notes.append("this is a plan, nothing was changed: --apply does it")
    _report(planned, notes, output, is_applied=False)


def _apply(path: str, wanted: RejoinOptions, change: ChangeOptions, output: OutputFormat) -> None:
    """Plan and apply under the lock: a broker may have run since somebody looked."""
    from eoctl.changing import apply_one, how_to_undo
    from eoctl.runs.rejoin import PlannedRejoin, arguments_of, plan_run
    from recovery.changes.apply import resume, writing
    from storage.discovery import select_partition
    from storage.errors import EoctlError
    from storage.fsio import FileSystem

    fs = FileSystem()
    selected = [select_partition(path)]
    with writing(selected, fs, broker_is_stopped=change.broker_is_stopped) as log_dirs:
        resumed = resume(fs, log_dirs, "rejoin", [arguments_of(path, wanted)])
        notes = [f"completed what an earlier run began: {how_to_undo(each)}" for each in resumed]
        try:
            planned = plan_run(path, wanted)
        except EoctlError:
            if not resumed:
                raise
            # What was asked for is done; the leader may have gone on, or away, since.
            planned = PlannedRejoin(None, (), ())
        if planned.plan is not None:
            notes.append(how_to_undo(apply_one(fs, planned.plan, change)))
        elif not resumed:
            notes.append("it has all that the leader has: nothing was changed")
    _report(planned, notes, output, is_applied=bool(resumed) or planned.plan is not None)


def _report(
    planned: PlannedRejoin, notes: list[str], output: OutputFormat, *, is_applied: bool
) -> None:
    from eoctl.changing import show_plan
    from eoctl.output import Report, emit, line, message
    from eoctl.runs.rejoin import RejoinRow

    rows = [each._replace(applied=is_applied) for each in planned.rows]
    try:
        emit(Report("rejoin", RejoinRow._fields, rows, is_whole=True), output)
        if planned.plan is not None:
            if output is OutputFormat.TEXT:
                line("")
            show_plan(planned.plan, output)
    finally:  # the way back is told also when nobody reads the rows
        for note in (*planned.notes, *notes):
            message(note)
