"""The coordinator of the transactional ids that a log dir's own `__transaction_state` has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.coordinators.coordinator_topic import look_at_topic
from eoctl.clients.partitions.own_ids import OwnIds
from recovery.cluster.coordinator_log import MAX_PROBLEMS_COUNT, CoordinatorLog
from storage.errors import RefusedError, pasted
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import TransactionStatus
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS
from storage.writing.coordinator import ClusterSettings, TransactionCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eoctl.clients.coordinators.coordinator_topic import CoordinatorTopic
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir
    from storage.formats.transaction_state import TransactionState
    from storage.writing.coordinator import Partitions

TRANSACTION_VERSION = "transaction.version"  # feature
NEVER_WRITTEN = (TransactionStatus.DEAD, TransactionStatus.PREPARE_EPOCH_FENCE)


class ReadLog(NamedTuple):
    """All records, each where it belongs, and the topic that they are in."""

    log: CoordinatorLog
    topic: CoordinatorTopic


def read_coordinator_log(log_dir: LogDir, image: ClusterImage | None, notes: list[str]) -> ReadLog:
    """Read all records.

    Raises:
        RefusedError: as `require_sound`.
    """
    return require_sound(CoordinatorLog([log_dir], image), [log_dir], image, notes)


def require_sound(
    log: CoordinatorLog, log_dirs: Sequence[LogDir], image: ClusterImage | None, notes: list[str]
) -> ReadLog:
    """Make sure that a coordinator may go on from what was read of log dirs of one cluster.

    Raises:
        RefusedError: what is known of an id may be lost, or may be elsewhere than it belongs.
    """
    _require_whole(log, log_dirs[0], notes)
    topic = look_at_topic(log_dirs, image, TRANSACTION_STATE_TOPIC)
    for each in log.ids.values():
        name = each.transactional_id
        topic.require_placed(each.partition, name, f"a record of {name} is")
        if each.state is not None:
            _require_possible(each.state, log_dirs[0])
    return ReadLog(log, topic)


def _require_whole(log: CoordinatorLog, log_dir: LogDir, notes: list[str]) -> None:
    """Refuse a log of which anything of an id may be lost.

    A record of a type that is not known is of no id, and left alone as by a broker. One of an id
    with a version that is not known is not: a broker would go on with the record before it.
    """
    unknown = [each for each in log.problems if getattr(each, "check_id", "") == "COO-2"]
    if len(log.problems) > len(unknown) or len(unknown) >= MAX_PROBLEMS_COUNT:
        problem = next((each for each in log.problems if each not in unknown), log.problems[0])
        raise RefusedError(
            f"the coordinator's log cannot be read whole: {problem}",
            next_step=f"eoctl check {pasted(log_dir.path)}",
        )
    if unknown:
        notes.append(
            f"{len(unknown)} record(s) of {TRANSACTION_STATE_TOPIC} have a type that is not known,"
            " and were left alone [COO-2]"
        )


def _require_possible(state: TransactionState, log_dir: LogDir) -> None:
    """Refuse a state that no coordinator writes: its marker would go to the partitions of others.

    A broker answers such an id with UNKNOWN_SERVER_ERROR, or writes a marker that nothing takes.
    """
    name, status = state.transactional_id, state.status
    what = ""
    if status in NEVER_WRITTEN:
        what = f"status {status.label}, which is never written"
    elif state.producer_id < 0 or state.producer_epoch < 0:
        what = f"producer id {state.producer_id}, epoch {state.producer_epoch}"
    if what:
        raise RefusedError(
            f"{log_dir.path}: the newest record of {name} in {TRANSACTION_STATE_TOPIC} has {what}",
            next_step=f"eoctl check {pasted(log_dir.path)}",
        )


def require_home(topic: CoordinatorTopic, image: ClusterImage | None, name: str) -> None:
    """Refuse an id whose newest record may have been in a directory that is not here."""
    topic.require_home(
        name,
        f"what is known of {name}",
        "get the directory back, or use another transactional id",
        is_known=image is not None and bool(topic.numbers),
    )


def open_coordinator(
    read: ReadLog,
    log_dirs: Sequence[LogDir],
    image: ClusterImage | None,
    partitions: Partitions,
    now_ms: Callable[[], int],
    notes: list[str],
    *,
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS,
) -> TransactionCoordinator:
    """Return the coordinator, which writes to `partitions`.

    Args:
        read: its records: the producer ids that it takes are none of those in them.
        log_dirs: in which these ids are new, too.
        image: of the cluster.
        partitions: to write to.
        now_ms: the clock.
        notes: gets what a person should know of an id that was taken.
        max_timeout_ms: transaction.max.timeout.ms of the brokers.
    """
    next_broker_id = None if image is None else image.next_producer_id
    own_ids = OwnIds((each.path for each in log_dirs), next_broker_id, notes)
    version = 2 if image is None else image.features.get(TRANSACTION_VERSION, 0)
    return TransactionCoordinator(
        partitions,
        (each.state for each in read.log.ids.values() if each.state is not None),
        ClusterSettings(
            read.topic.partitions_count,
            look_at_topic(log_dirs, image, GROUPS_TOPIC).partitions_count,
            transaction_version=version,
            max_timeout_ms=max_timeout_ms,
        ),
        now_ms=now_ms,
        new_producer_id=lambda: own_ids.random_id(read.log.producer_ids),
    )
