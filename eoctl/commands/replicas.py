"""`eoctl replicas`: compare the copies of one partition, and make one follow another."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from storage.errors import UsageError

if TYPE_CHECKING:
    from eoctl.runs.reports.replicas import ComparedRows


class ReplicasAction(StrEnum):
    """What to do with the copies."""

    COMPARE = "compare"
    REJOIN = "rejoin"


class RuleName(StrEnum):
    """What `--rule` takes."""

    EPOCH = "epoch"
    HW = "hw"


@with_change()
def command(
    action: Annotated[ReplicasAction, argument(metavar="compare|rejoin", help="What to do.")],
    paths: Annotated[
        list[str],
        argument(metavar="DIR...", help="Directories of one partition; compare: log dirs."),
    ],
    leader: Annotated[
        str | None, option(metavar="DIR", help="rejoin: the copy that DIR follows.")
    ] = None,
    rule: Annotated[
        RuleName,
        option(help="rejoin: cut by leader epochs, or by high watermark (only shown)."),
    ] = RuleName.EPOCH,
    unclean: Annotated[
        bool, option("--unclean", help="rejoin: even if acknowledged records are lost.")
    ] = False,
    metadata_dir: options.MetadataDir = None,
    now: options.Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Compare copies of one partition from several brokers, or make one follow another.

    compare: where they part, what each choice of a leader loses, and which one should lead; of
    log dirs all partitions that they share. rejoin: cut DIR as a follower would be, then append
    what the leader has, as bytes.
    """
    if action is ReplicasAction.COMPARE:
        from eoctl.runs.reports.replicas import compare

        is_changing = change != PLAN_ONLY
        if leader is not None or unclean or is_changing or rule is not RuleName.EPOCH:
            raise UsageError("compare changes nothing: that option goes with rejoin only")
        run = compare(paths, now=now, expiration_ms=producer_expiry_ms, metadata_dir=metadata_dir)
        _report_comparison(run, output)
        return run.status
    from eoctl.runs.changes.change_command import run_change
    from eoctl.runs.changes.rejoin import FollowRule, RejoinOptions, rejoin_command

    if leader is None or len(paths) != 1:
        raise UsageError(
            "rejoin takes one directory and one leader",
            next_step="eoctl replicas rejoin DIR --leader DIR",
        )
    if rule is RuleName.HW and change.is_kept:
        raise UsageError("--rule hw is only shown: it leaves logs that differ")
    wanted = RejoinOptions(
        leader=leader,
        rule=FollowRule(rule.value),
        unclean=unclean,
        metadata_dir=metadata_dir,
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    return run_change(rejoin_command(paths[0], wanted), change, output)


def _report_comparison(run: ComparedRows, output: OutputFormat) -> None:
    from eoctl.output import Report, draws_tables, emit, line, message
    from eoctl.runs.in_cluster import with_words
    from eoctl.runs.reports.cluster_rows import PartitionStateRow
    from eoctl.runs.reports.replicas import (
        ChoiceRow,
        ComparisonRow,
        LostTransactionRow,
        RecommendationRow,
        ReplicaRow,
    )
    from eoctl.runs.reports.replicas_words import recommendation_lines

    reports = [
        Report("replica", ReplicaRow._fields, run.replicas),
        Report("comparison", ComparisonRow._fields, run.comparisons),
        Report("choice", ChoiceRow._fields, run.choices),
    ]
    if run.transactions:
        reports.append(Report("transaction", LostTransactionRow._fields, run.transactions))
    if run.states:
        is_text = output is OutputFormat.TEXT
        states = [*with_words(run.states)] if is_text else run.states
        reports.append(Report("cluster_partition", PartitionStateRow._fields, states))
    reports.append(
        Report(
            kind="recommendation",
            columns=RecommendationRow._fields,
            rows=run.recommendations,
        )
    )
    if output is OutputFormat.TEXT and draws_tables():
        for told in recommendation_lines(run):
            line(told)
        line("")
    for number, each in enumerate(reports):
        if number and output is OutputFormat.TEXT:
            line("")
        emit(each, output)
    for note in run.notes:
        message(note)
