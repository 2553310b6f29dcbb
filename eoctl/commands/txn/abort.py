"""`eoctl txn abort`: end a hanging transaction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.call import Lacking, require_given
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.partitions.open_partition import WriteOptions, open_partition
from eoctl.clients.partitions.target import TargetOptions, lacking_single_copy, resolve_target
from eoctl.commands.shared.changes import ChangeCommand, Planned, abort_answer
from eoctl.commands.txn.readers import CoordinatorDir, MaxTimeoutMs, Now, TxnOptions, open_world
from eoctl.declared import argument, option, safety_option
from eoctl.options import Output
from eoctl.output import PLACE, Columns, OutputFormat, Report, emit
from eoctl.replica_paths import require_one_topic, select_replicas
from recovery.changes.journals.listing import unfinished_path
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.transactions.abort import (
    plan_marker,
    price_of,
    require_epochs,
    sources_of,
    with_recovery,
)
from recovery.transactions.open_transactions import (
    OpenTransactionReport,
    TransactionVerdict,
    abort_command,
)
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.errors import EXIT_OK, RefusedError, UsageError, pasted
from storage.file_names import GROUPS_TOPIC, is_clean_marker
from storage.formats.transaction_state import TransactionStatus
from storage.limits import INT64_MAX
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl import clock
    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.commands.shared.changes import Done, PlanAnswer
    from eoctl.commands.txn.readers import TxnWorld
    from recovery.changes.plans.plan import Plan, PlanSource, Step
    from recovery.transactions.abort import PlannedMarker
    from storage.errors import EoctlError


@with_change()
def abort(
    path: Annotated[
        str,
        argument(metavar="PATH", help="A partition directory, or a log dir without --producer-id."),
    ],
    producer_id: Annotated[
        int | None,
        option(min=0, max=INT64_MAX, metavar="N", help="Abort the transaction of this producer."),
    ] = None,
    transactional_id: Annotated[
        str | None, option(metavar="ID", help="Abort the transactions of this transactional.id.")
    ] = None,
    all_overdue: Annotated[
        bool, option("--all-overdue", help="Abort all transactions that txn hanging finds.")
    ] = False,
    force_overdue: Annotated[
        bool, safety_option("--force-overdue", help="Abort even if the coordinator still lists it.")
    ] = False,
    single_copy: Annotated[
        bool, safety_option("--single-copy", help="No other replica will be kept.")
    ] = False,
    all_replicas: Annotated[
        list[str] | None,
        safety_option(metavar="DIR", help="Another replica to write to; repeat for each replica."),
    ] = None,
    coordinator_dir: CoordinatorDir = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    transaction_max_timeout_ms: MaxTimeoutMs = DEFAULT_MAX_TIMEOUT_MS,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """End hanging transactions with the ABORT markers that a coordinator would have written."""
    from eoctl.commands.shared.changes import run_change
    from eoctl.commands.txn.readers import TxnOptions

    if (producer_id is not None) + (transactional_id is not None) + all_overdue != 1:
        raise UsageError(
            "say which transactions",
            next_step="--producer-id N, --transactional-id ID or --all-overdue, one of them",
        )
    dirs = tuple(coordinator_dir or ())
    world = TxnOptions(
        coordinator_dirs=dirs,
        metadata_dir=metadata_dir,
        now=now,
        max_timeout_ms=transaction_max_timeout_ms,
    )
    replicas = tuple(all_replicas or ())
    wanted = AbortOptions(
        world=world, force_overdue=force_overdue, single_copy=single_copy, all_replicas=replicas
    )
    if producer_id is not None:
        found = [(path, producer_id)]
        return run_change(abort_change(found, wanted, open_world([path], world)), change, output)
    if replicas:
        raise UsageError("--all-replicas goes with --producer-id and one partition")
    opened = open_world([path], world)
    found = [
        (each.path, each.producer_id)
        for each in opened.open_transactions()
        if (each.is_late if all_overdue else each.transactional_id == transactional_id)
    ]
    what = "overdue" if all_overdue else f"open of {transactional_id}"
    nothing = f"no transaction is {what} in {path}"
    return run_change(abort_change(found, wanted, opened, nothing), change, output)


# -- `txn abort`: from options to a plan (may it be, what it writes, what it costs), and doing it


COMMAND = "txn-abort"
ABORT_COLUMNS = Columns((
    *("topic", "partition", "producer_id", "producer_epoch", "transactional_id", "first_offset"),
    *("verdict", "marker_offset", "coordinator_epoch"),
    *("last_stable_offset_before", "last_stable_offset_after", "applied", "path"),
), answers=(
    *PLACE, "producer_id", "transactional_id", "first_offset", "verdict", "applied",
))  # fmt: skip


class AbortOptions(NamedTuple):
    """What the command line says."""

    world: TxnOptions = TxnOptions()
    force_overdue: bool = False
    single_copy: bool = False
    all_replicas: tuple[str, ...] = ()
    write: WriteOptions = WriteOptions()


class PlannedAbort(NamedTuple):
    """The plan (None: nothing is open), rows of ABORT_COLUMNS without `applied`, notes.

    `nothing`: why there is no plan.
    """

    plan: Plan | None
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    nothing: str = ""


class _Replica(NamedTuple):
    """One directory that gets the marker."""

    path: str
    found: OpenTransactionReport
    marker: PlannedMarker
    steps: tuple[Step, ...]
    sources: tuple[PlanSource, ...]
    price: dict[str, Any]
    notes: tuple[str, ...]


def arguments_of(path: str, producer_id: int, options: AbortOptions) -> dict[str, Any]:
    """What tells an unfinished plan of the same call from others."""
    return {
        "partition": absolute_path(path),
        "producer_id": producer_id,
        "all_replicas": [absolute_path(each) for each in options.all_replicas],
    }


def plan_abort(
    path: str, producer_id: int, options: AbortOptions, world: TxnWorld, *, is_only: bool
) -> PlannedAbort:
    """Plan the end of the open transaction of a producer in one partition. Reads only.

    `world` knows the coordinators; the partition itself is read as it is now. If it `is_only`, the
    notes have the call for running brokers.

    Raises:
        RefusedError: its verdict is another one, a coordinator could not have written the marker,
            or the partition must not be written to.
        UsageError: the partition does not know the producer.
        AccessError, FormatError, AppendError: it cannot be read, or a broker could not load it.
    """
    paths = (path, *options.all_replicas)
    targets = [_target(each, options) for each in paths]
    # Listed for the state alone: segments may be recovered below.
    partitions = [Partition.of(each) for each in select_replicas(paths)]
    require_one_topic(partitions)
    replicas_lacking = _lacking_replicas(path, targets[0], options)
    try:
        found = [_find(each, producer_id, world) for each in partitions]
    except UsageError:
        require_given("", [replicas_lacking])
        raise
    verdicts = [
        lacking_verdict(each, world.moment, force_overdue=options.force_overdue)
        for each in found
        if each is not None
    ]
    require_given("", [replicas_lacking, *verdicts[:1]])
    if all(each is None for each in found):
        nothing = f"producer {producer_id} has no open transaction in {path}"
        return PlannedAbort(plan=None, rows=(), notes=tuple(world.notes), nothing=nothing)
    replicas = [
        _plan_replica(target, partition, one, world, options)
        for target, partition, one in zip(targets, partitions, found, strict=True)
        if one is not None
    ]
    _require_alike(paths, found, replicas)
    first, *others = replicas
    price = first.price
    if others:
        names = ("aborted_batches_count", "aborted_records_count", "aborted_bytes", "cut_bytes")
        price["replicas"] = [
            {**{name: each.price[name] for name in names if name in each.price}, "path": each.path}
            for each in others
        ]
    by_path = {source.path: source for each in replicas for source in each.sources}
    steps = [step for each in replicas for step in each.steps]
    arguments = arguments_of(path, producer_id, options)
    plan = make_plan(COMMAND, arguments, steps, price, by_path.values())
    notes = [*world.notes, *(note for each in replicas for note in each.notes)]
    notes += _warnings(targets[0], first.found, options)
    if is_only:
        notes.append(f"with the brokers running it is: {abort_command(first.found)}")
    return PlannedAbort(plan, tuple(map(_row, replicas)), tuple(dict.fromkeys(notes)))


def _target(path: str, options: AbortOptions) -> WriteTarget:
    return resolve_target(
        path,
        TargetOptions(
            metadata_dir=options.world.metadata_dir,
            single_copy=True,  # refused with all else that is missing
            may_be_internal=True,
            keeps_directory=True,
        ),
    )


def _lacking_replicas(path: str, target: WriteTarget, options: AbortOptions) -> Lacking | None:
    """Where it is known how many replicas there are, each of them gets the marker (FIX-9)."""
    factor = target.replication_factor
    given_count = 1 + len(options.all_replicas)
    if not options.all_replicas:
        given = TargetOptions(single_copy=options.single_copy)
        found = lacking_single_copy(factor, given)
        return None if found is None else found._replace(why=f"{path}: {found.why}")
    if options.single_copy or factor in {None, given_count}:
        return None
    return Lacking(
        why=f"{path}: has {factor} replicas, {given_count} are given",
        options=("--single-copy",),
        meaning="those that are given will be the only ones that survive",
        first="--all-replicas DIR for each other one",
    )


def _find(partition: Partition, producer_id: int, world: TxnWorld) -> OpenTransactionReport | None:
    opened, state = world.open_of(partition)
    found = next((each for each in opened if each.producer_id == producer_id), None)
    if found is None and all(each.producer_id != producer_id for each in state.entries):
        raise UsageError(
            f"{partition.path}: does not know producer {producer_id}",
            next_step=f"eoctl txn list {pasted(partition.path)}",
        )
    return found


def _plan_replica(
    target: WriteTarget,
    partition: Partition,
    found: OpenTransactionReport,
    world: TxnWorld,
    options: AbortOptions,
) -> _Replica:
    require_verdict(found, world.moment, force_overdue=options.force_overdue)
    log = world.coordinators(partition.log_dir)
    require_epochs(found, log)
    # Without --apply nothing is changed by it: what it recovers becomes a part of this plan.
    end = open_partition(target, options.write, world.moment, None)
    planned = plan_marker(
        target.path,
        end.tail,
        end.config,
        found,
        now_ms=world.moment.ms,
        leader_epoch=end.writer.leader_epoch,
        expiration_ms=options.write.expiration_ms,
    )
    recovery = () if end.recovery is None else _without_markers(end.recovery)
    steps = [*with_recovery(recovery, planned.steps)]
    price = price_of(partition, found, planned)
    if end.recovery is not None:
        price["cut_bytes"] = end.recovery.price["cut_bytes"]
    sources = () if end.recovery is None else end.recovery.sources
    return _Replica(
        path=partition.path,
        found=found,
        marker=planned,
        steps=tuple(steps),
        sources=(*sources, *sources_of(partition, steps, log, found)),
        price=price,
        notes=(*target.notes, *end.notes),
    )


def _without_markers(plan: Plan) -> Iterator[Step]:
    """The steps of a plan but for the clean-shutdown markers, which every plan adds itself."""
    return (each for each in plan.steps if not is_clean_marker(each.path))


def _require_alike(
    paths: Sequence[str],
    found: Sequence[OpenTransactionReport | None],
    replicas: Sequence[_Replica],
) -> None:
    """All replicas get the same batch at the same offset, behind the same transaction.

    Raises:
        RefusedError: they have diverged, or one lags behind.
    """
    lacking = [path for path, each in zip(paths, found, strict=True) if each is None]
    first = replicas[0]
    differing = [
        each.path
        for each in replicas
        if each.marker.batch != first.marker.batch
        or each.found.first_offset != first.found.first_offset
    ]
    for path in (*lacking, *differing):
        what = "has no such open transaction" if path in lacking else "ends differently"
        raise RefusedError(
            f"{path}: {what}: the marker would not be the same as in {first.path}",
            next_step=f"eoctl replicas compare {' '.join(map(pasted, paths))}"
            "   # then eoctl replicas rejoin",
        )


def _row(replica: _Replica) -> dict[str, Any]:
    found, price = replica.found, replica.price
    return {name: getattr(found, name) for name in ABORT_COLUMNS[:6]} | {
        "verdict": str(found.verdict),
        "marker_offset": replica.marker.marker_offset,
        "coordinator_epoch": max(found.coordinator_epoch, 0),
        "last_stable_offset_before": price["last_stable_offset_before"],
        "last_stable_offset_after": price["last_stable_offset_after"],
        "path": replica.path,
    }


def require_verdict(found: OpenTransactionReport, now: clock.Now, *, force_overdue: bool) -> None:
    """Refuse to end what a coordinator still ends, or may.

    Raises:
        RefusedError: with what to do instead.
    """
    require_given("", [lacking_verdict(found, now, force_overdue=force_overdue)])


def lacking_verdict(
    found: OpenTransactionReport, now: clock.Now, *, force_overdue: bool
) -> Lacking | None:
    """Tell why a coordinator still ends it, or may; None: it does not."""
    verdict, reason = found.verdict, found.reason
    if verdict is TransactionVerdict.HANGING:
        return None
    offline = f"eoctl txn complete {pasted(Path(found.path).parent)} does what it would"
    name = f"{found.path}: the transaction of producer {found.producer_id} is {verdict}: {reason}"
    name = f"{name}; {now.describe()}"
    if verdict is TransactionVerdict.OVERDUE:
        if found.coordinator_status == TransactionStatus.PREPARE_COMMIT.label:
            return Lacking(
                why=f"{name}: it is decided, and its data is committed in other partitions",
                first=f"start the brokers: the coordinator completes it; or {offline}",
            )
        if force_overdue:
            return None
        return Lacking(
            why=name,
            options=("--force-overdue",),
            meaning="it never will",
            first=f"start the brokers: the coordinator aborts it; or {offline}",
        )
    first = {
        TransactionVerdict.ONGOING: "start the brokers: the coordinator ends it; or"
        f" {offline}, when it is late",
        TransactionVerdict.UNLISTED: "again when transaction.max.timeout.ms and five minutes"
        " are over",
        TransactionVerdict.UNKNOWN: "--coordinator-dir with all of __transaction_state, and"
        " --metadata-dir",
    }[verdict]
    return Lacking(why=name, first=first)


def _warnings(
    target: WriteTarget, found: OpenTransactionReport, options: AbortOptions
) -> Iterator[str]:
    """What a person should know before it is done."""
    yield f"{found.verdict}: {found.reason}"
    if found.coordinator_status == TransactionStatus.COMPLETE_COMMIT.label:
        yield (
            "the coordinator's last word on this id is a commit: if this data was part of that"
            " transaction, it is committed elsewhere and aborted here"
        )
    if found.topic == GROUPS_TOPIC:
        yield "the group offsets of this transaction will not count"
    if target.replication_factor != 1 and not options.all_replicas:
        yield "other replicas of the partition do not get the marker: they must not lead again"
    unfinished = unfinished_path(target.log_dir_path)
    if unfinished is not None:
        yield f"{found.path}: an earlier change is unfinished: {unfinished}"


# --- the command ---


def abort_change(
    found: Sequence[tuple[str, int]], options: AbortOptions, world: TxnWorld, nothing: str = ""
) -> ChangeCommand:
    """Return what `run_change` needs to know of a call.

    Args:
        found: partition directories, each with the producer of an open transaction.
        options: what the command line says.
        world: what the coordinators know.
        nothing: why there is no plan, if nothing was found.
    """
    paths = [*dict.fromkeys(path for path, _ in found), *options.all_replicas]
    return ChangeCommand(
        name=COMMAND,
        selected=lambda: [select_partition(each) for each in paths],
        arguments=lambda: [arguments_of(*each, options) for each in found],
        plan=lambda: _planned(found, options, world, nothing),
        # The producer may be known no more once its transaction has ended.
        if_done=Planned(show=lambda _done, _output: None),
        is_by_partition=len(found) > 1,
        shows_steps=len(found) == 1,
        applied_noun="transactions aborted",
    )


def _planned(
    found: Sequence[tuple[str, int]], options: AbortOptions, world: TxnWorld, nothing: str
) -> Planned:
    """Plan one marker after the other: a marker is planned when those before it are written.

    Of several transactions, one that must not be aborted is an error beside the others.
    """
    done: list[PlannedAbort] = []
    notes: list[str] = [*world.notes] if not found else []
    errors: list[EoctlError] = []
    only = plan_abort(*found[0], options, world, is_only=True) if len(found) == 1 else None

    def plans() -> Iterator[Plan]:
        for each in found:
            try:
                planned = only or plan_abort(*each, options, world, is_only=False)
            except RefusedError as exc:
                errors.append(exc)
                continue
            notes.extend(note for note in planned.notes if note not in notes)
            if planned.plan is not None:
                done.append(planned)
                yield planned.plan

    def show(state: Done, output: OutputFormat) -> None:
        given = [{**row, "applied": state.is_applied} for each in done for row in each.rows]
        rows = [tuple(each[name] for name in ABORT_COLUMNS) for each in given]
        emit(Report(kind="abort", columns=ABORT_COLUMNS, rows=rows), output)

    def answer() -> PlanAnswer | None:
        made = [(each.rows[0], each.plan.price) for each in done if each.plan is not None]
        return abort_answer(made) if made else None

    def status() -> int:
        return errors[0].exit_status if errors else world.status if nothing else EXIT_OK

    return Planned(
        plans=plans(),
        show=show,
        notes=notes,
        nothing=nothing if only is None else only.nothing,
        errors=errors,
        status=status,
        answer=answer,
    )
