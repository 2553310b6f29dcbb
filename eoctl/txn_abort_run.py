"""From the options of `txn abort` to a plan: may it be, what it writes, what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clients.open_partition import WriteOptions, open_partition
from eoctl.clients.target import TargetOptions, resolve_target
from eoctl.txn_run import TxnOptions, open_world
from recovery.abort_transaction import (
    plan_marker,
    price_of,
    require_epochs,
    sources_of,
    with_recovery,
)
from recovery.journal import unfinished_path
from recovery.open_transactions import OpenTransaction, Verdict, abort_command
from recovery.plan import absolute_path, make_plan
from storage.errors import RefusedError, UsageError
from storage.formats.transaction_state import TransactionStatus
from storage.fsio import FileSystem
from storage.log_dir import CLEAN_SHUTDOWN_NAME, GROUPS_TOPIC
from storage.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.clients.target import Target
    from eoctl.txn_run import TxnWorld
    from recovery.plan import Plan, Step
    from recovery.recover_state import RecoveredState

COMMAND = "txn-abort"
ABORT_COLUMNS = (
    *("topic", "partition", "producer_id", "producer_epoch", "transactional_id", "first_offset"),
    *("verdict", "marker_offset", "coordinator_epoch"),
    *("last_stable_offset_before", "last_stable_offset_after", "applied", "path"),
)


class AbortOptions(NamedTuple):
    """What the command line says."""

    producer_id: int
    world: TxnOptions = TxnOptions()
    force_overdue: bool = False
    single_copy: bool = False
    write: WriteOptions = WriteOptions()


class PlannedAbort(NamedTuple):
    """The plan (None: nothing is open), rows of ABORT_COLUMNS without `applied`, notes."""

    plan: Plan | None
    row: dict[str, Any] | None
    notes: tuple[str, ...]


def arguments_of(path: str, options: AbortOptions) -> dict[str, Any]:
    """What tells an unfinished plan of the same call from others."""
    return {"partition": absolute_path(path), "producer_id": options.producer_id}


def plan_abort(path: str, options: AbortOptions) -> PlannedAbort:
    """Plan the end of the open transaction of a producer in one partition. Reads only.

    Raises:
        RefusedError: its verdict is another one, a coordinator could not have written the marker,
            or the partition must not be written to.
        UsageError: the partition does not know the producer.
        AccessError, FormatError, AppendError: it cannot be read, or a broker could not load it.
    """
    target = resolve_target(
        path,
        TargetOptions(
            metadata_dir=options.world.metadata_dir,
            single_copy=options.single_copy,
            may_be_internal=True,
        ),
    )
    world = open_world([path], options.world)
    # Listed for the state alone: its segments may be recovered below.
    partition = Partition.of(world.found.selected[0])
    opened, state = world.open_of(partition)
    found = next((each for each in opened if each.producer_id == options.producer_id), None)
    if found is None:
        return _nothing_open(path, options, world, state)
    require_verdict(found, force_overdue=options.force_overdue)
    log = world.coordinators(partition.log_dir)
    require_epochs(found, log)
    # Without --apply nothing is changed by it: what it recovers becomes a part of this plan.
    end = open_partition(target, options.write, world.moment, FileSystem())
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
    steps = with_recovery(recovery, planned.steps)
    price = price_of(partition, found, planned)
    if end.recovery is not None:
        price["cut_bytes"] = end.recovery.price["cut_bytes"]
    sources = () if end.recovery is None else end.recovery.sources
    by_path = {each.path: each for each in (*sources, *sources_of(partition, steps, log, found))}
    plan = make_plan(COMMAND, arguments_of(path, options), steps, price, by_path.values())
    notes = (*world.notes, *target.notes, *end.notes, *_warnings(target, found))
    row = {name: getattr(found, name) for name in ABORT_COLUMNS[:6]} | {
        "verdict": str(found.verdict),
        "marker_offset": planned.marker_offset,
        "coordinator_epoch": max(found.coordinator_epoch, 0),
        "last_stable_offset_before": price["last_stable_offset_before"],
        "last_stable_offset_after": price["last_stable_offset_after"],
        "path": path,
    }
    return PlannedAbort(plan, row, tuple(dict.fromkeys(notes)))


def _without_markers(plan: Plan) -> Iterator[Step]:
    """The steps of a plan but for the clean-shutdown markers, which every plan adds itself."""
    return (each for each in plan.steps if not each.path.endswith(f"/{CLEAN_SHUTDOWN_NAME}"))


def _nothing_open(
    path: str, options: AbortOptions, world: TxnWorld, state: RecoveredState
) -> PlannedAbort:
    if all(each.producer_id != options.producer_id for each in state.entries):
        raise UsageError(
            f"{path}: does not know producer {options.producer_id}",
            next_step=f"eoctl txn list {path}",
        )
    note = f"producer {options.producer_id} has no open transaction in {path}"
    return PlannedAbort(None, None, (*world.notes, note))


def require_verdict(found: OpenTransaction, *, force_overdue: bool) -> None:
    """Refuse to end what a coordinator still ends, or may.

    Raises:
        RefusedError: with what to do instead.
    """
    verdict, reason = found.verdict, found.reason
    if verdict is Verdict.HANGING:
        return
    name = f"{found.path}: the transaction of producer {found.producer_id} is {verdict}: {reason}"
    if verdict is Verdict.OVERDUE:
        if found.coordinator_status == TransactionStatus.PREPARE_COMMIT.label:
            raise RefusedError(
                f"{name}: it is decided, and its data is committed in other partitions",
                next_step="start the brokers: the coordinator completes it",
            )
        if force_overdue:
            return
        raise RefusedError(
            name,
            next_step="start the brokers: the coordinator aborts it; or --force-overdue if it"
            " never will",
        )
    next_step = {
        Verdict.ONGOING: "start the brokers: the coordinator ends it",
        Verdict.UNLISTED: "--now wall, or transaction.max.timeout.ms and five minutes later",
        Verdict.UNKNOWN: "--coordinator-dir with all of __transaction_state, and --metadata-dir",
    }[verdict]
    raise RefusedError(name, next_step=next_step)


def _warnings(target: Target, found: OpenTransaction) -> Iterator[str]:
    """What a person should know before it is done."""
    yield f"{found.verdict}: {found.reason}"
    if found.coordinator_status == TransactionStatus.COMPLETE_COMMIT.label:
        yield (
            "the coordinator's last word on this id is a commit: if this data was part of that"
            " transaction, it is committed elsewhere and aborted here"
        )
    if found.topic == GROUPS_TOPIC:
        yield "the group offsets of this transaction will not count"
    if target.replication_factor != 1:
        yield "other replicas of the partition do not get the marker: they must not lead again"
    unfinished = unfinished_path(target.log_dir_path)
    if unfinished is not None:
        yield f"{found.path}: an earlier change is unfinished: {unfinished}"
    yield f"with the brokers running it is: {abort_command(found)}"
