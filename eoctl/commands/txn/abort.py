"""`eoctl txn abort`: end a hanging transaction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.partitions.open_partition import WriteOptions, open_partition
from eoctl.clients.partitions.target import TargetOptions, lacking_single_copy, resolve_target
from eoctl.command_line import Lacking, require_given
from eoctl.commands.shared.changes import ChangeCommand, Planned, abort_answer
from eoctl.commands.txn.readers import CoordinatorDir, MaxTimeoutMs, Now, TxnOptions, open_context
from eoctl.options import Output
from eoctl.output import PLACE, Columns, OutputFormat, Report, emit
from eoctl.parameters import argument, option, safety_option
from eoctl.replica_paths import require_one_topic, select_replicas
from recovery.changes.journals.listing import unfinished_path
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.transactions.abort import (
    plan_markers,
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
from storage.dirs.discovery import discover, select_partition
from storage.dirs.partition import Partition
from storage.errors import EXIT_OK, EoctlError, RefusedError, UsageError, pasted
from storage.file_names import GROUPS_TOPIC, METADATA_TOPIC, DirState, is_clean_marker
from storage.formats.transaction_state import TransactionStatus
from storage.limits import INT64_MAX
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl import clock
    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.commands.shared.changes import Done, PlanAnswer
    from eoctl.commands.txn.readers import TxnContext
    from recovery.changes.plans.plan import Plan, PlanSource, Step
    from recovery.transactions.abort import PlannedMarkers
    from storage.dirs.discovery import Selected


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
        list[str] | None,
        option(metavar="ID", help="Abort the transactions of this transactional.id. Repeatable."),
    ] = None,
    all_overdue: Annotated[
        bool, option("--all-overdue", help="Abort all that txn hanging finds.")
    ] = False,
    force_overdue: Annotated[
        bool, safety_option("--force-overdue", help="Abort even if the coordinator still lists it.")
    ] = False,
    single_copy: options.SingleCopy = False,
    all_replicas: Annotated[
        list[str] | None,
        safety_option(
            metavar="DIR", help="Another replica to write to. Repeat it for each replica."
        ),
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

    if (producer_id is not None) + bool(transactional_id) + all_overdue != 1:
        raise UsageError(
            "say which transactions",
            next_step="--producer-id N, --transactional-id ID or --all-overdue, one of them",
        )
    replicas = tuple(all_replicas or ())
    if replicas and producer_id is None:
        raise UsageError("--all-replicas goes with --producer-id and one partition")
    context = TxnOptions(
        coordinator_dirs=tuple(coordinator_dir or ()),
        metadata_dir=metadata_dir,
        now=now,
        max_timeout_ms=transaction_max_timeout_ms,
    )
    wanted = AbortOptions(
        context=context,
        producer_id=producer_id,
        transactional_ids=tuple(transactional_id or ()),
        force_overdue=force_overdue,
        single_copy=single_copy,
        all_replicas=replicas,
    )
    return run_change(abort_change(path, wanted), change, output)


# -- `txn abort`: from options to a plan (permission, steps, cost), and its application


COMMAND = "txn-abort"
ABORT_COLUMNS = Columns((
    *("topic", "partition", "producer_id", "producer_epoch", "transactional_id", "first_offset"),
    *("verdict", "marker_offset", "coordinator_epoch"),
    *("last_stable_offset_before", "last_stable_offset_after", "applied", "path"),
), answers=(
    *PLACE, "producer_id", "transactional_id", "first_offset", "verdict", "applied",
))  # fmt: skip


class AbortOptions(NamedTuple):
    """The command line options.

    Attributes:
        producer_id, transactional_ids: the owners of the transactions. Without any: all overdue
            transactions.
    """

    context: TxnOptions = TxnOptions()
    producer_id: int | None = None
    transactional_ids: tuple[str, ...] = ()
    force_overdue: bool = False
    single_copy: bool = False
    all_replicas: tuple[str, ...] = ()
    write: WriteOptions = WriteOptions()


class PlannedAbort(NamedTuple):
    """The plan of one partition.

    Attributes:
        plan: None if no transaction is to be ended.
        rows: rows of ABORT_COLUMNS without `applied`.
        notes: sentences for people.
        nothing: the reason for no plan.
        errors: the reasons for transactions of the partition that are not aborted.
    """

    plan: Plan | None
    rows: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    nothing: str = ""
    errors: tuple[EoctlError, ...] = ()


class _Replica(NamedTuple):
    """A directory that gets the markers."""

    path: str
    found: tuple[OpenTransactionReport, ...]
    markers: PlannedMarkers
    steps: tuple[Step, ...]
    sources: tuple[PlanSource, ...]
    price: dict[str, Any]
    notes: tuple[str, ...]


def arguments_of(path: str, options: AbortOptions) -> dict[str, Any]:
    """Return the arguments that identify an unfinished plan of the same command."""
    asked: dict[str, Any] = {"all_overdue": True}
    if options.producer_id is not None:
        asked = {"producer_id": options.producer_id}
    elif options.transactional_ids:
        asked = {"transactional_ids": sorted(options.transactional_ids)}
    return {
        "partition": absolute_path(path),
        **asked,
        "all_replicas": [absolute_path(each) for each in options.all_replicas],
    }


def plan_abort(path: str, options: AbortOptions, context: TxnContext) -> PlannedAbort:
    """Plan the end of the open transaction of a producer in one partition. Reads only.

    `context` has the coordinators. The partition itself is read as it is now.

    Raises:
        RefusedError: its verdict is another, a coordinator could not have written the marker, or
            the partition must not be written to.
        UsageError: the partition does not know the producer.
        AccessError, FormatError, AppendError: it cannot be read, or a broker could not load it.
    """
    paths = (path, *options.all_replicas)
    targets = [_target(each, options) for each in paths]
    # Listed for their state only, since segments may be recovered below.
    partitions = [Partition.of(each) for each in select_replicas(paths)]
    require_one_topic(partitions)
    replicas_lacking = _lacking_replicas(path, targets[0], options)
    try:
        found = [_find(each, options.producer_id, context) for each in partitions]
    except UsageError:
        require_given("", [replicas_lacking])
        raise
    verdicts = [
        lacking_verdict(each, context.moment, force_overdue=options.force_overdue)
        for each in found
        if each is not None
    ]
    require_given("", [replicas_lacking, *verdicts[:1]])
    if all(each is None for each in found):
        nothing = f"producer {options.producer_id} has no open transaction in {path}"
        return PlannedAbort(plan=None, notes=tuple(context.notes), nothing=nothing)
    replicas = [
        _plan_replica(target, partition, (one,), context, options)
        for target, partition, one in zip(targets, partitions, found, strict=True)
        if one is not None
    ]
    _require_alike(paths, found, replicas)
    planned = _joined(path, replicas, options, _warnings(targets[0], replicas[0].found, options))
    command = abort_command(replicas[0].found[0])
    notes = (*context.notes, *planned.notes, f"with the brokers running it is: {command}")
    return planned._replace(notes=tuple(dict.fromkeys(notes)))


def plan_aborts(
    path: str, found: Sequence[OpenTransactionReport], options: AbortOptions, context: TxnContext
) -> PlannedAbort:
    """Plan the abort of several transactions in one partition. Refused transactions become errors.

    Raises:
        RefusedError: the partition must not be written to.
        AccessError, FormatError, AppendError: as `plan_abort`.
    """
    target = _target(path, options)
    (partition,) = (Partition.of(each) for each in select_replicas((path,)))
    replicas_lacking = _lacking_replicas(path, target, options)
    if replicas_lacking is not None:
        verdicts = [
            lacking_verdict(each, context.moment, force_overdue=options.force_overdue)
            for each in found
        ]
        require_given("", [replicas_lacking, *(verdicts[:1] if all(verdicts) else ())])
    ended, errors = [], list[EoctlError]()
    for each in found:
        try:
            require_verdict(each, context.moment, force_overdue=options.force_overdue)
            require_epochs(each, context.coordinators(partition.log_dir))
        except RefusedError as exc:
            errors.append(exc)
        else:
            ended.append(each)
    if not ended:
        return PlannedAbort(plan=None, errors=tuple(errors))
    replica = _plan_replica(target, partition, tuple(ended), context, options)
    planned = _joined(path, [replica], options, _warnings(target, ended, options))
    return planned._replace(errors=tuple(errors))


def _joined(
    path: str, replicas: Sequence[_Replica], options: AbortOptions, warnings: Iterable[str]
) -> PlannedAbort:
    """Return one plan for all replicas."""
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
    plan = make_plan(COMMAND, arguments_of(path, options), steps, price, by_path.values())
    notes = (*(note for each in replicas for note in each.notes), *warnings)
    return PlannedAbort(plan, tuple(row for each in replicas for row in _rows(each)), notes)


def _target(path: str, options: AbortOptions) -> WriteTarget:
    return resolve_target(
        path,
        TargetOptions(
            metadata_dir=options.context.metadata_dir,
            single_copy=True,  # refused later, with everything else missing
            may_be_internal=True,
            keeps_directory=True,
        ),
    )


def _lacking_replicas(path: str, target: WriteTarget, options: AbortOptions) -> Lacking | None:
    """Return the missing replicas, since every replica must get the marker (FIX-9).

    It is None if the number of replicas is unknown and replicas are given.
    """
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
        meaning="the given replicas will be the only replicas that survive",
        first="--all-replicas DIR for each other replica",
    )


def _find(
    partition: Partition, producer_id: int | None, context: TxnContext
) -> OpenTransactionReport | None:
    opened, state = context.open_of(partition)
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
    found: tuple[OpenTransactionReport, ...],
    context: TxnContext,
    options: AbortOptions,
) -> _Replica:
    log = context.coordinators(partition.log_dir)
    for each in found:
        require_verdict(each, context.moment, force_overdue=options.force_overdue)
        require_epochs(each, log)
    # Without --apply nothing is changed here: its recovery becomes a part of this plan.
    end = open_partition(target, options.write, context.moment, None)
    planned = plan_markers(
        target.path,
        end.tail,
        end.config,
        found,
        now_ms=context.moment.ms,
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
        markers=planned,
        steps=tuple(steps),
        sources=(*sources, *sources_of(partition, steps, log, found)),
        price=price,
        notes=(*target.notes, *end.notes),
    )


def _without_markers(plan: Plan) -> Iterator[Step]:
    """Yield the steps of a plan except the clean-shutdown markers, which every plan adds itself."""
    return (each for each in plan.steps if not is_clean_marker(each.path))


def _require_alike(
    paths: Sequence[str],
    found: Sequence[OpenTransactionReport | None],
    replicas: Sequence[_Replica],
) -> None:
    """Check that all replicas get the same batch at the same offset, after the same transaction.

    Raises:
        RefusedError: they have diverged, or a replica lags behind.
    """
    lacking = [path for path, each in zip(paths, found, strict=True) if each is None]
    first = replicas[0]
    differing = [
        each.path
        for each in replicas
        if each.markers.batches != first.markers.batches
        or each.found[0].first_offset != first.found[0].first_offset
    ]
    for path in (*lacking, *differing):
        what = "has no such open transaction" if path in lacking else "ends differently"
        raise RefusedError(
            f"{path}: {what}: the marker would not be the same as in {first.path}",
            next_step=f"eoctl replicas compare {' '.join(map(pasted, paths))}"
            "   # then eoctl replicas rejoin",
        )


def _rows(replica: _Replica) -> Iterator[dict[str, Any]]:
    markers = replica.markers
    for number, found in enumerate(replica.found):
        yield {name: getattr(found, name) for name in ABORT_COLUMNS[:6]} | {
            "verdict": str(found.verdict),
            "marker_offset": markers.offsets[number],
            "coordinator_epoch": max(found.coordinator_epoch, 0),
            "last_stable_offset_before": markers.stable_offsets[number],
            "last_stable_offset_after": markers.stable_offsets[number + 1],
            "path": replica.path,
        }


def require_verdict(found: OpenTransactionReport, now: clock.Now, *, force_overdue: bool) -> None:
    """Refuse to end a transaction that a coordinator still ends, or may.

    Raises:
        RefusedError: with the next step.
    """
    require_given("", [lacking_verdict(found, now, force_overdue=force_overdue)])


def lacking_verdict(
    found: OpenTransactionReport, now: clock.Now, *, force_overdue: bool
) -> Lacking | None:
    """Return why a coordinator still ends it, or may, or None if it does not."""
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
    target: WriteTarget, found: Sequence[OpenTransactionReport], options: AbortOptions
) -> Iterator[str]:
    """Yield warnings before the change."""
    if len(found) == 1:
        yield f"{found[0].verdict}: {found[0].reason}"
    committed = TransactionStatus.COMPLETE_COMMIT.label
    if any(each.coordinator_status == committed for each in found):
        yield (
            "the coordinator's last word on this id is a commit: if this data was part of that"
            " transaction, it is committed elsewhere and aborted here"
        )
    if found[0].topic == GROUPS_TOPIC:
        yield "the group offsets of this transaction will not count"
    if target.replication_factor != 1 and not options.all_replicas:
        yield "other replicas of the partition do not get the marker: they must not lead again"
    unfinished = unfinished_path(target.log_dir_path)
    if unfinished is not None:
        yield f"{found[0].path}: an earlier change is unfinished: {unfinished}"


# --- the command ---


def abort_change(path: str, options: AbortOptions) -> ChangeCommand:
    """Return the command as `run_change` needs it, for a partition or for a log dir."""
    is_one = options.producer_id is not None

    def selected() -> list[Selected]:
        if is_one:
            return [select_partition(each) for each in (path, *options.all_replicas)]
        names = ((each, each.partition.name) for each in discover([path]).selected)
        return [
            each
            for each, name in names
            if name.state is DirState.LIVE and name.topic != METADATA_TOPIC
        ]

    def arguments() -> list[dict[str, Any]]:
        paths = [path] if is_one else [each.partition.path for each in selected()]
        return [arguments_of(each, options) for each in paths]

    return ChangeCommand(
        name=COMMAND,
        selected=selected,
        arguments=arguments,
        plan=lambda: _planned(path, options),
        # After its transaction has ended, the producer may be unknown.
        if_done=Planned(show=lambda _done, _output: None),
        is_by_partition=not is_one,
        shows_steps=is_one,
        applied_noun="partitions changed",
    )


def _planned(path: str, options: AbortOptions) -> Planned:
    """Find the requested transactions. A partition is planned after those before it are written.

    A partition that must not be written to becomes an error.
    """
    context = open_context((path, *options.all_replicas), options.context)
    one = None if options.producer_id is None else plan_abort(path, options, context)
    found = _found(path, options, context) if one is None else {}
    nothing = one.nothing if one is not None else "" if found else _why_nothing(path, options)
    made: list[PlannedAbort] = []
    notes, errors = [*context.notes], list[EoctlError]()

    def plans() -> Iterator[Plan]:
        for planned in (one,) if one is not None else _by_partition(found, options, context):
            notes.extend(note for note in planned.notes if note not in notes)
            errors.extend(planned.errors)
            if planned.plan is not None:
                made.append(planned)
                yield planned.plan

    def show(state: Done, output: OutputFormat) -> None:
        given = [{**row, "applied": state.is_applied} for each in made for row in each.rows]
        rows = [tuple(each[name] for name in ABORT_COLUMNS) for each in given]
        emit(Report(kind="abort", columns=ABORT_COLUMNS, rows=rows), output)

    def answer() -> PlanAnswer | None:
        plans_made = [(each.rows, each.plan.price) for each in made if each.plan is not None]
        return abort_answer(plans_made) if plans_made else None

    return Planned(
        plans=plans(),
        show=show,
        notes=notes,
        nothing=nothing,
        errors=errors,
        status=lambda: errors[0].exit_status if errors else EXIT_OK if one else context.status,
        answer=answer,
    )


def _found(
    path: str, options: AbortOptions, context: TxnContext
) -> dict[str, list[OpenTransactionReport]]:
    """Return the wanted open transactions, by partition directory.

    Raises:
        UsageError: no coordinator knows the transactional id.
    """
    wanted, found = options.transactional_ids, dict[str, list[OpenTransactionReport]]()
    owners = set[str | None]()
    for each in context.open_transactions():
        if each.transactional_id in wanted if wanted else each.is_late:
            found.setdefault(each.path, []).append(each)
            owners.add(each.transactional_id)
    for name in wanted:
        if name not in owners and all(name not in each.ids for each in context.logs):
            raise UsageError(
                f"{path}: no coordinator here knows the transactional.id {name!r}",
                next_step=f"eoctl txn list {pasted(path)}",
            )
    return found


def _why_nothing(path: str, options: AbortOptions) -> str:
    if not options.transactional_ids:
        return f"no transaction is overdue in {path}"
    return f"{', '.join(options.transactional_ids)}: no open transaction in {path}"


def _by_partition(
    found: dict[str, list[OpenTransactionReport]], options: AbortOptions, context: TxnContext
) -> Iterator[PlannedAbort]:
    for directory, each in found.items():
        try:
            yield plan_aborts(directory, each, options, context)
        except RefusedError as exc:
            yield PlannedAbort(plan=None, errors=(exc,))
