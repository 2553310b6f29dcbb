"""The coordinator of the transactional ids that a log dir's own `__transaction_state` has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.clients.identity import random_producer_id
from eoctl.clients.topic_counts import count_partitions
from recovery.coordinator_log import MAX_PROBLEMS_COUNT, CoordinatorLog
from storage.coordinator import ClusterSettings, TransactionCoordinator
from storage.errors import RefusedError
from storage.java_hash import coordinator_partition
from storage.log_dir import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.clients.open_partitions import OpenPartitions
    from storage.cluster_image import ClusterImage
    from storage.log_dir import LogDir

TRANSACTION_VERSION = "transaction.version"  # feature


def read_coordinator_log(
    log_dir: LogDir, image: ClusterImage | None, notes: list[str]
) -> CoordinatorLog:
    """Read all records.

    Raises:
        RefusedError: what is known of an id may be lost, or may be elsewhere than it belongs.
    """
    log = CoordinatorLog([log_dir], image)
    _require_whole(log, log_dir, notes)
    count = count_partitions(log_dir, image, TRANSACTION_STATE_TOPIC)
    for each in log.ids.values():
        home = coordinator_partition(each.transactional_id, count)
        if home != each.partition:
            raise RefusedError(
                f"{log_dir.path}: a record of {each.transactional_id} is in"
                f" {TRANSACTION_STATE_TOPIC}-{each.partition}, and with {count} partitions it"
                f" belongs to {home}: how many there are is not known",
                next_step="--metadata-dir DIR with the cluster's metadata",
            )
    return log


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
            next_step=f"eoctl check {log_dir.path}",
        )
    if unknown:
        notes.append(
            f"{len(unknown)} record(s) of {TRANSACTION_STATE_TOPIC} have a type that is not known,"
            " and were left alone [COO-2]"
        )


def require_home(
    log: CoordinatorLog, log_dir: LogDir, image: ClusterImage | None, name: str
) -> None:
    """Refuse an id whose newest record may have been in a directory that is not here.

    A broker makes all partitions at once, which the metadata tells (`image`); where `create_topic`
    was interrupted the first ones are missing. Raises RefusedError.
    """
    home = coordinator_partition(name, count_partitions(log_dir, image, TRANSACTION_STATE_TOPIC))
    is_known = image is not None and bool(log.partitions)
    is_lost = is_known or min(log.partitions, default=home) < home
    if home not in log.partitions and is_lost:
        raise RefusedError(
            f"{log_dir.path}: {TRANSACTION_STATE_TOPIC}-{home} is not here: what is known of {name}"
            " was in it",
            next_step="get the directory back, or use another transactional id",
        )


def open_coordinator(
    log: CoordinatorLog,
    log_dir: LogDir,
    image: ClusterImage | None,
    partitions: OpenPartitions,
    now_ms: Callable[[], int],
    *,
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS,
) -> TransactionCoordinator:
    """Return the coordinator, which writes to `partitions`."""
    version = 2 if image is None else image.features.get(TRANSACTION_VERSION, 0)
    return TransactionCoordinator(
        partitions,
        (each.state for each in log.ids.values() if each.state is not None),
        ClusterSettings(
            count_partitions(log_dir, image, TRANSACTION_STATE_TOPIC),
            count_partitions(log_dir, image, GROUPS_TOPIC),
            transaction_version=version,
            max_timeout_ms=max_timeout_ms,
        ),
        now_ms=now_ms,
        new_producer_id=random_producer_id,
    )
