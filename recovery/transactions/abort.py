"""Plan the ABORT marker that ends an open transaction of one partition (TXO-1).

The marker is the one that a coordinator would have written: with the epoch of the data and the
epoch of the coordinator that wrote the producer's last marker here (0 if none has), as Kafka's own
tool has it. It goes into a new segment (`planned_append`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.changes.plans.plan import absolute_path, source_of
from recovery.replay.price import recovery_price
from recovery.replay.recover_state import read_snapshots
from recovery.transactions.events import is_data_of_transaction
from recovery.transactions.planned_append import PlannedAppends
from storage.dirs.partition import floor_of
from storage.errors import RefusedError
from storage.formats.record_batch import MAX_SEQUENCE
from storage.log.segment import open_segment
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.changes.plans.plan import PlanSource, Step
    from recovery.cluster.coordinator_log import CoordinatorLog
    from recovery.transactions.open_transactions import OpenTransactionReport
    from storage.dirs.log_tail import LogTail
    from storage.dirs.partition import Partition
    from storage.dirs.topic_settings import LogConfig

REASON = "a segment with the ABORT marker"


class PlannedMarker(NamedTuple):
    """What a marker changes.

    Attributes:
        steps: files that are made or replaced, the `.log` before what is derived from it.
        marker_offset: where the marker is.
        batch: the marker's, as bytes.
        last_stable_offset: afterwards, with everything replicated.
    """

    steps: tuple[Step, ...]
    marker_offset: int
    batch: bytes
    last_stable_offset: int


class OpenData(NamedTuple):
    """The data of an open transaction in one partition.

    Attributes:
        base_sequence: of the first batch; None: a coordinator wrote it, such as group offsets,
            without sequences.
        is_dense: each batch goes on where the one before it ends, by the sequences.
        is_from_start: the first sequence is 0, or follows the producer's last one before. Else the
            first batches may be missing.
    """

    batches_count: int
    records_count: int
    log_bytes: int
    base_sequence: int | None
    is_dense: bool
    is_from_start: bool


def plan_marker(
    directory: str,
    tail: LogTail,
    config: LogConfig,
    found: OpenTransactionReport,
    *,
    now_ms: int,
    leader_epoch: int,
    expiration_ms: int = DEFAULT_EXPIRATION_MS,
) -> PlannedMarker:
    """Plan the ABORT marker of a transaction at the end of a log. Reads only.

    Args:
        directory: of the partition.
        tail: its end; closed, or as it will be when its recovery was carried out.
        config: the topic's settings.
        found: what is to be ended.
        now_ms: the marker's time.
        leader_epoch: what the marker's batch is stamped with.
        expiration_ms: producer.id.expiration.ms.

    Raises:
        RefusedError: that transaction is not open at this end of the log.
        AppendError: a leader would refuse the marker.
        AccessError: a file cannot be looked at.
    """
    planned = PlannedAppends(
        directory,
        tail,
        config,
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        expiration_ms=expiration_ms,
    )
    writer = planned.writer
    state = writer.producers.producers.get(found.producer_id)
    if state is None or state.current_txn_first_offset != found.first_offset:
        raise RefusedError(
            f"{directory}: producer {found.producer_id} has no transaction open since"
            f" {found.first_offset} at its end {tail.end_offset}",
            next_step="run it again",
        )
    marker = writer.end_transaction(
        found.producer_id,
        found.producer_epoch,
        is_commit=False,
        coordinator_epoch=max(found.coordinator_epoch, 0),
    )
    (batch,) = planned.logs.values()
    (steps,) = planned.steps(REASON)
    return PlannedMarker(
        steps=tuple(steps),
        marker_offset=marker.base_offset,
        batch=batch,
        last_stable_offset=planned.last_stable_offset,
    )


def require_epochs(found: OpenTransactionReport, log: CoordinatorLog | None) -> None:
    """Refuse a marker that a coordinator with what it knows could not have written.

    Raises:
        RefusedError: the partition knows a higher epoch than the coordinator: its log has lost
            records.
    """
    lost = "its log has lost what it knew"
    known = found.coordinator_producer_epoch
    if known is not None and found.producer_epoch > known:
        raise RefusedError(
            f"{found.path}: the data of producer {found.producer_id} has epoch"
            f" {found.producer_epoch}, and the coordinator of {found.transactional_id!r} is at"
            f" {known}: {lost}; its next producers would be fenced here",
            next_step="put the newest copy of __transaction_state in place first",
        )
    number = found.coordinator_partition
    place = None if log is None or number is None else log.partitions.get(number)
    leader_epoch = -1 if place is None else place.leader_epoch
    if leader_epoch >= 0 and found.coordinator_epoch > leader_epoch:
        raise RefusedError(
            f"{found.path}: the last marker of producer {found.producer_id} has coordinator epoch"
            f" {found.coordinator_epoch}, and __transaction_state-{number} is at leader epoch"
            f" {leader_epoch}: {lost}",
            next_step="put the newest copy of __transaction_state in place first",
        )


def count_open(partition: Partition, producer_id: int, first_offset: int) -> OpenData | None:
    """Count the data of an open transaction; None if a part of it cannot be read."""
    batches = records = log_bytes = epoch = 0
    base_sequence: int | None = None
    next_sequence, is_dense = 0, True
    segments = partition.segments
    for files in segments[floor_of(segments, first_offset) :]:
        with open_segment(files.log.path) as segment:
            tables = segment.scan_tables(is_active=partition.is_active(files))
            for table in tables:
                rows = is_data_of_transaction(table) & (table.producer_id == producer_id)
                rows &= table.base_offset >= first_offset
                if not rows.any():
                    continue
                counts = table.records_count[rows].astype(np.int64)
                sequences = table.base_sequence[rows].astype(np.int64)
                if not batches and sequences[0] >= 0:
                    base_sequence = next_sequence = int(sequences[0])
                    epoch = int(table.producer_epoch[rows][0])
                if base_sequence is not None:
                    ends = (sequences + counts) % (MAX_SEQUENCE + 1)
                    expected = np.concatenate(([next_sequence], ends[:-1]))
                    is_dense = is_dense and bool((sequences == expected).all())
                    next_sequence = int(ends[-1])
                batches += len(counts)
                records += int(counts.sum())
                log_bytes += int(table.batch_bytes[rows].astype(np.int64).sum())
            if any(each.errno for each in tables.verdicts):
                return None
    return OpenData(
        batches_count=batches,
        records_count=records,
        log_bytes=log_bytes,
        base_sequence=base_sequence,
        is_dense=is_dense,
        is_from_start=not base_sequence
        or base_sequence in _sequences_before(partition, producer_id, epoch, first_offset),
    )


def _sequences_before(
    partition: Partition, producer_id: int, epoch: int, first_offset: int
) -> set[int]:
    """Return the sequences that may follow the producer's last batch before a transaction.

    Only a batch of the same epoch counts. Where the log has none any more, snapshots tell.
    """
    last: set[int] = set()
    for files in partition.segments:
        if files.base_offset >= first_offset:
            break
        with open_segment(files.log.path) as segment:
            for table in segment.scan_tables(is_active=partition.is_active(files)):
                rows = (table.producer_id == producer_id) & table.crc_ok
                rows &= (table.base_offset < first_offset) & (table.base_sequence >= 0)
                rows &= table.producer_epoch == epoch
                if rows.any():
                    row = int(np.flatnonzero(rows)[-1])
                    count = int(table.last_offset[row] - table.base_offset[row])
                    last = {(int(table.base_sequence[row]) + count) & MAX_SEQUENCE}
    if not last:
        snapshots, _ = read_snapshots(partition)
        last = {
            entry.last_sequence
            for offset, entries in snapshots.items()
            if offset <= first_offset
            for entry in entries
            if (entry.producer_id, entry.producer_epoch) == (producer_id, epoch) and entry.has_batch
        }
    return {(each + 1) & MAX_SEQUENCE for each in last}


def price_of(
    partition: Partition, found: OpenTransactionReport, planned: PlannedMarker
) -> dict[str, Any]:
    """What the marker costs, as names and JSON values; None is unknown."""
    aborted = count_open(partition, found.producer_id, found.first_offset)
    log_dir = partition.log_dir
    recovery = None if log_dir is None else recovery_price(log_dir)
    return {
        "first_offset": found.first_offset,
        "marker_offset": planned.marker_offset,
        "aborted_batches_count": None if aborted is None else aborted.batches_count,
        "aborted_records_count": None if aborted is None else aborted.records_count,
        "aborted_bytes": None if aborted is None else aborted.log_bytes,
        "last_stable_offset_before": None
        if not found.holds_last_stable_offset
        else found.first_offset,
        "last_stable_offset_after": planned.last_stable_offset,
        "recovery": None if recovery is None else recovery._asdict(),
    }


def sources_of(
    partition: Partition,
    steps: Iterable[Step],
    log: CoordinatorLog | None,
    found: OpenTransactionReport,
) -> list[PlanSource]:
    """The `.log` files that the plan depends on and does not touch."""
    touched = {each.path for each in steps}
    paths = []
    if partition.segments:
        paths.append(absolute_path(partition.segments[-1].log.path))
    number = found.coordinator_partition
    place = None if log is None or number is None else log.partitions.get(number)
    if place is not None and place.source.segments:
        paths.append(absolute_path(place.source.segments[-1].log.path))
    return [source_of(each) for each in paths if each not in touched]
