"""`eoctl replicas`: compare the replicas of one partition, and make one follow another."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.command_line import Lacking, require_given
from eoctl.commands.shared.changes import ChangeCommand, Planned, cut_answer
from eoctl.commands.shared.cluster_rows import partition_words
from eoctl.messages import listing
from eoctl.output import OutputFormat, Report, emit
from eoctl.parameters import argument, option, safety_option
from eoctl.progress import Progress
from eoctl.replica_paths import (
    moment_of,
    node_id_of,
    note_of_use,
    require_known_bounds,
    require_one_topic,
    select_replicas,
)
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.cluster.clusters import image_around
from recovery.replay.snapshots import Clock
from recovery.replicas.compare import acknowledged_end_offset, estimate_target, read_replica
from recovery.replicas.rejoin import plan_rejoin, require_follow_offset
from recovery.truncate.cost import estimate_recovery
from storage.counts import counted
from storage.dirs.acknowledged_offsets import ReplicaStanding
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import read_log_config
from storage.errors import RefusedError, UsageError, pasted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.commands.shared.changes import Done, PlanAnswer
    from eoctl.commands.shared.cluster_rows import PartitionStateRow
    from eoctl.commands.shared.replica_rows import (
        ChoiceRow,
        ComparedRows,
        LostTransactionRow,
        RecommendationRow,
    )
    from recovery.changes.plans.plan import Plan
    from recovery.replicas.compare import ReplicaLog, Tail
    from recovery.replicas.rejoin import Rejoin


class ReplicasAction(StrEnum):
    """The actions on replicas."""

    COMPARE = "compare"
    REJOIN = "rejoin"


class RuleName(StrEnum):
    """The values of `--rule`."""

    EPOCH = "epoch"
    HW = "hw"


@with_change()
def command(
    action: Annotated[ReplicasAction, argument(metavar="compare|rejoin", help="Action to run.")],
    paths: Annotated[
        list[str],
        argument(
            metavar="DIR...", help="Directories of one partition. compare also takes log dirs."
        ),
    ],
    all_leaders: Annotated[
        bool, option("--all-leaders", help="compare shows what each choice of a leader loses.")
    ] = False,
    leader: Annotated[
        str | None, option(metavar="DIR", help="rejoin makes DIR follow this copy.")
    ] = None,
    rule: Annotated[
        RuleName,
        option(help="rejoin truncates by leader epochs, or by high watermark (only shown)."),
    ] = RuleName.EPOCH,
    unclean: Annotated[
        bool, safety_option("--unclean", help="rejoin even if acknowledged records are lost.")
    ] = False,
    metadata_dir: options.MetadataDir = None,
    now: options.Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Compare copies of one partition from several brokers, or make one follow another.

    compare: where they diverge, which replica should lead, and what the others lose then. Log dirs
    are compared in all partitions that they share. rejoin: truncate DIR as a follower, then append
    what the leader has, as bytes.
    """
    if action is ReplicasAction.COMPARE:
        from eoctl.commands.shared.replica_rows import compare

        is_changing = change != PLAN_ONLY
        if leader is not None or unclean or is_changing or rule is not RuleName.EPOCH:
            raise UsageError("compare changes nothing. That option goes with rejoin only")
        run = compare(paths, now=now, expiration_ms=producer_expiry_ms, metadata_dir=metadata_dir)
        _report_comparison(run, output, has_all=all_leaders)
        return run.status
    from eoctl.commands.shared.changes import run_change

    if all_leaders:
        raise UsageError("--all-leaders goes with compare only")
    if leader is None or len(paths) != 1:
        raise UsageError(
            "rejoin takes one directory and one leader",
            next_step="eoctl replicas rejoin DIR --leader DIR",
        )
    if rule is RuleName.HW and change.is_kept:
        raise UsageError("--rule hw is only shown. It leaves logs that differ")
    wanted = RejoinOptions(
        leader=leader,
        rule=FollowRule(rule.value),
        unclean=unclean,
        metadata_dir=metadata_dir,
        now=now,
        expiration_ms=producer_expiry_ms,
    )
    return run_change(rejoin_command(paths[0], wanted), change, output)


def _report_comparison(run: ComparedRows, output: OutputFormat, *, has_all: bool) -> None:
    from eoctl.commands.shared.cluster_rows import PARTITION_COLUMNS, with_words
    from eoctl.commands.shared.replica_rows import (
        RECOMMENDATION_COLUMNS,
        ChoiceRow,
        ComparisonRow,
        LostTransactionRow,
        ReplicaRow,
    )
    from eoctl.messages import report_first
    from eoctl.output import Report, emit, line, message

    choices, transactions = run.choices, run.transactions
    if not has_all:
        choices, transactions = _of_leaders(run)
    left = len(run.choices) - len(choices)
    more = [f"{counted(left, 'choice')} of other leaders not printed (--all-leaders)"]
    reports = [
        Report("replica", ReplicaRow._fields, run.replicas),
        Report("comparison", ComparisonRow._fields, run.comparisons),
        Report("choice", ChoiceRow._fields, choices, notes=more if left else ()),
    ]
    if transactions:
        reports.append(Report("transaction", LostTransactionRow._fields, transactions))
    if run.states:
        is_text = output is OutputFormat.TEXT
        states = [*with_words(run.states)] if is_text else run.states
        reports.append(Report("cluster_partition", PARTITION_COLUMNS, states))
    reports.append(
        Report(
            kind="recommendation",
            columns=RECOMMENDATION_COLUMNS,
            rows=run.recommendations,
        )
    )
    report_first(recommendation_lines(run), output)
    for number, each in enumerate(reports):
        if number and output is OutputFormat.TEXT:
            line("")
        emit(each, output)
    for note in run.notes:
        message(note)


def _of_leaders(run: ComparedRows) -> tuple[list[ChoiceRow], list[LostTransactionRow]]:
    """Return the choices of the recommended leaders and of the leaders by the metadata."""
    states = {(each.topic, each.partition): each.leader for each in run.states}
    brokers = {each.path: each.broker for each in run.replicas}
    leaders = set()
    for each in run.recommendations:
        leaders.add(each.leader)
        place = Path(each.leader).name
        before = states.get((each.topic, each.partition))
        leaders |= {
            path
            for path, broker in brokers.items()
            if broker is not None and broker == before and Path(path).name == place
        }
    choices = [each for each in run.choices if each.leader in leaders]
    cuts = {(each.follower, each.truncation_offset) for each in choices}
    return choices, [e for e in run.transactions if (e.follower, e.truncation_offset) in cuts]


# -- the answer of `replicas compare` before its tables


REPORTED_COUNT = 2  # of partitions, in lines


def recommendation_lines(run: ComparedRows) -> Iterator[str]:
    """Yield the replicas that should lead, in a few lines each, costliest first."""
    ranked = sorted(run.recommendations, key=_dearness)
    states = {(each.topic, each.partition): each for each in run.states}
    standings = {each.path: each.standing for each in run.replicas}
    for each in ranked[:REPORTED_COUNT]:
        broker = "" if each.broker is None else f"broker {each.broker}, "
        yield f"{each.topic}-{each.partition}: leader {broker}{each.leader}"
        lost = _count_of(each.lost_records_count)
        acknowledged = _count_of(each.lost_acknowledged_records_count)
        yield f"  {each.reason}"
        yield f"  lost by the others: {lost} records, {acknowledged} acknowledged"
        if each.cheaper_leader is not None:
            yield (
                f"  {each.cheaper_leader} would cost"
                f" {_count_of(each.cheaper_acknowledged_records_count)} acknowledged, and has an"
                " older log"
            )
        yield from _cluster_lines(
            states.get((each.topic, each.partition)), each.broker, standings[each.leader]
        )
    if len(ranked) > REPORTED_COUNT:
        yield f"and {len(ranked) - REPORTED_COUNT:,} more partitions"


def _cluster_lines(
    state: PartitionStateRow | None, broker: int | None, standing: str | None
) -> Iterator[str]:
    """Yield the leader by the metadata, and whether the recommended replica may lead at once."""
    if state is None:
        return
    words = partition_words(
        state.leader, state.isr, state.min_insync_replicas, state.min_insync_from
    )
    yield f"  cluster: {words}"
    absent = [each for each in state.replicas if each not in state.isr]
    if absent:
        yield f"  not in the ISR: {listing([f'broker {each}' for each in absent], 'brokers')}"
    if standing == ReplicaStanding.OUT_OF_SYNC:
        yield f"  broker {broker} leads by an unclean election only. See eoctl start-order"


def _dearness(row: RecommendationRow) -> tuple[int, int, str, int]:
    unknown = 1 << 62
    acknowledged, lost = row.lost_acknowledged_records_count, row.lost_records_count
    return (
        -(unknown if acknowledged is None else acknowledged),
        -(unknown if lost is None else lost),
        row.topic,
        row.partition,
    )


def _count_of(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


# -- from the options of `replicas rejoin` to a plan


class FollowRule(StrEnum):
    """The rule for the offset at which a follower truncates."""

    EPOCH = "epoch"  # KIP-101, KIP-279: by leader epochs
    HW = "hw"  # before that: at its high watermark


class RejoinOptions(NamedTuple):
    """The command line options of a rejoin."""

    leader: str
    rule: FollowRule = FollowRule.EPOCH
    unclean: bool = False
    metadata_dir: str | None = None
    now: str | None = None
    expiration_ms: int | None = None


class RejoinRow(NamedTuple):
    """The row of a following directory. Unknown offsets are None."""

    path: str
    leader: str
    rule: str
    truncation_offset: int
    log_end_offset: int
    end_after_rejoin: int
    acknowledged_end_offset: int | None
    kept_diverged_offsets_count: int
    dropped_common_offsets_count: int
    applied: bool


class PlannedRejoin(NamedTuple):
    """The plan (None if nothing to do, or only shown), a row, and notes for people."""

    plan: Plan | None
    rows: tuple[RejoinRow, ...]
    notes: tuple[str, ...]


def arguments_of(path: str, options: RejoinOptions) -> dict[str, Any]:
    """Return the arguments that identify an unfinished plan of the same command."""
    return {"partition": absolute_path(path), "leader": absolute_path(options.leader)}


def rejoin_command(path: str, options: RejoinOptions) -> ChangeCommand:
    """Return the command as `run_change` needs it."""
    return ChangeCommand(
        name="rejoin",
        selected=lambda: [select_partition(path)],
        arguments=lambda: [arguments_of(path, options)],
        plan=lambda: _planned(plan_run(path, options), options.rule),
    )


def _planned(found: PlannedRejoin, rule: FollowRule) -> Planned:
    def show(done: Done, output: OutputFormat) -> None:
        rows = [each._replace(applied=done.is_applied) for each in found.rows]
        emit(Report(kind="rejoin", columns=RejoinRow._fields, rows=rows), output)

    return Planned(
        plans=() if found.plan is None else (found.plan,),
        show=show,
        notes=found.notes,
        nothing="it has all that the leader has" if rule is FollowRule.EPOCH else "",
        answer=lambda: _answer(found),
    )


def _answer(found: PlannedRejoin) -> PlanAnswer | None:
    if found.plan is None:
        return None
    [row] = found.rows
    then = f", then append up to {row.end_after_rejoin} from {row.leader}"
    return cut_answer(Path(row.path).name, found.plan.price, path=row.path, then=then)


def plan_run(path: str, options: RejoinOptions) -> PlannedRejoin:
    """Plan the rejoin of a directory with its leader.

    Raises:
        RefusedError: the point of divergence is unknown, there is damage, or acknowledged records
            would be lost without `unclean`.
        UsageError, AccessError: a directory is no replica, or cannot be read.
    """
    selected = select_replicas([path, options.leader])
    require_known_bounds(selected)
    moment = moment_of(selected[:1], options.now)
    clock = Clock.at(moment.ms, options.expiration_ms)
    partitions = [Partition.of(each) for each in selected]
    require_one_topic(partitions)
    notes = [moment.describe(), *note_of_use(partitions)]
    with Progress("reading") as progress:
        follower, leader = (read_replica(each, on_bytes=progress.advance) for each in partitions)
    acknowledged = acknowledged_end_offset(follower, [leader])
    if options.rule is FollowRule.HW:
        return _show_hw_rule(follower, leader, acknowledged, notes)
    image = image_around(selected[0].log_dir, options.metadata_dir)
    config = read_log_config(image, partitions[0].topic, broker_id=node_id_of(selected[0]))
    if image is None:
        notes.append(
            f"{path}: no cluster metadata: index.interval.bytes taken as"
            f" {config.index_interval_bytes}, segment.bytes as {config.segment_bytes}"
        )
    rejoin = plan_rejoin(follower, leader, clock=clock, config=config)
    cut = rejoin.truncation.cut
    if not options.unclean and not cut.is_nothing:
        _require_clean(follower, leader, cut.end_offset, acknowledged)
    row = RejoinRow(
        path=path,
        leader=options.leader,
        rule=str(options.rule),
        truncation_offset=cut.end_offset,
        log_end_offset=follower.end_offset,
        end_after_rejoin=rejoin.append_end_offset,
        acknowledged_end_offset=acknowledged,
        kept_diverged_offsets_count=0,
        dropped_common_offsets_count=0,
        applied=False,
    )
    notes += rejoin.notes
    if not rejoin.steps:
        return PlannedRejoin(None, (row,), tuple(notes))
    tail = estimate_target(rejoin.truncation, acknowledged)
    notes += tail.notes
    notes.append(
        "verified: headers and checksums of all batches of both; records were not decompressed"
    )
    plan = make_plan(
        "rejoin", arguments_of(path, options), rejoin.steps, _price(rejoin, tail), rejoin.sources
    )
    return PlannedRejoin(plan, (row,), tuple(dict.fromkeys(notes)))


def _require_clean(
    follower: ReplicaLog, leader: ReplicaLog, end_offset: int, acknowledged: int | None
) -> None:
    """Refuse to truncate acknowledged records without `--unclean`."""
    if acknowledged is not None and acknowledged <= end_offset:
        return
    what = (
        "its high watermark is unknown, so that acknowledged records may be lost"
        if acknowledged is None
        else f"offsets below {acknowledged} were acknowledged, and {leader.path} has others there"
    )
    require_given(
        follower.path,
        [
            Lacking(
                why=f"would be truncated at {end_offset}: {what}",
                options=("--unclean",),
                meaning="that replica is to lead anyway, as after an unclean election",
                first=f"eoctl replicas compare {pasted(follower.path)} {pasted(leader.path)} shows "
                "what each choice loses",
            )
        ],
    )


def _show_hw_rule(
    follower: ReplicaLog, leader: ReplicaLog, acknowledged: int | None, notes: list[str]
) -> PlannedRejoin:
    """Show the effect of the rule before KIP-101, which eoctl never applies."""
    high_watermark = follower.high_watermark
    if high_watermark is None:
        raise RefusedError(f"{follower.path}: its high watermark is unknown")
    target = max(min(high_watermark, follower.end_offset), follower.start_offset)
    by_epochs = require_follow_offset(follower, leader)
    kept = max(min(target, leader.end_offset) - by_epochs, 0)
    dropped = max(min(by_epochs, follower.end_offset) - target, 0)
    notes.append(
        f"by leader epochs it would be truncated at {by_epochs}, by its high watermark {target}"
    )
    if kept:
        notes.append(
            f"offsets {by_epochs} to {by_epochs + kept - 1} would have stayed, where the leader has"
            " others. The two logs then differ, which no broker notices"
        )
    if dropped:
        notes.append(
            f"offsets {target} to {by_epochs - 1} would have gone, which the leader has too."
            " They are lost"
            " if the leader failed before they were fetched again"
        )
    notes.append("the rule hw is only shown. Brokers have not gone by it since 0.11")
    row = RejoinRow(
        path=follower.path,
        leader=leader.path,
        rule=str(FollowRule.HW),
        truncation_offset=target,
        log_end_offset=follower.end_offset,
        end_after_rejoin=max(leader.end_offset, target),
        acknowledged_end_offset=acknowledged,
        kept_diverged_offsets_count=kept,
        dropped_common_offsets_count=dropped,
        applied=False,
    )
    return PlannedRejoin(None, (row,), tuple(notes))


def _price(rejoin: Rejoin, tail: Tail) -> dict[str, Any]:
    transactions = tail.transactions
    recovery = estimate_recovery(rejoin.truncation)
    if recovery is not None:
        recovery = recovery._replace(log_bytes=recovery.log_bytes + rejoin.append_bytes)
    return {
        "cut_start_offset": tail.start_offset,
        "cut_end_offset": tail.end_offset,
        "batches_count": tail.batches_count,
        "records_count": tail.records_count,
        "log_bytes": tail.log_bytes,
        "acknowledged_end_offset": tail.acknowledged_end_offset,
        "acknowledged_records_count": tail.acknowledged_records_count,
        "transactions_count": tail.transactions_count,
        "transactions": None if transactions is None else [each._asdict() for each in transactions],
        "appended_start_offset": tail.start_offset,
        "appended_end_offset": rejoin.append_end_offset,
        "appended_log_bytes": rejoin.append_bytes,
        "recovery": None if recovery is None else recovery._asdict(),
    }
