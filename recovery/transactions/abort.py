"""Plan the marker that ends an open transaction (TXO-1), and judge a commit from outside."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.changes.plans.plan import absolute_path, replace_step, source_of
from recovery.replay.recover_state import read_snapshots, recovery_price
from recovery.transactions.events import is_data_of_transaction
from storage.dirs.partition import floor_of
from storage.errors import RefusedError
from storage.formats.record_batch import MAX_SEQUENCE
from storage.log.segment import open_segment
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS, MAX_PRODUCER_EPOCH
from storage.producers.transaction_metadata import (
    COMPLETE_ABORT,
    EPOCH_BUMP_VERSION,
    NO_TIMEOUT_MS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    CoordinatorError,
    Metadata,
    ProducerIdAndEpoch,
    end,
)
from storage.producers.transactions import LATE_BUFFER_MS
from storage.writing.partition_store import PlannedStore
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.changes.plans.plan import PlanSource, Step
    from recovery.cluster.coordinator_log import CoordinatorLog
    from recovery.transactions.open_transactions import OpenTransactionReport
    from storage.dirs.log_tail import LogTail
    from storage.dirs.partition import Partition
    from storage.dirs.topic_settings import LogConfig
    from storage.formats.transaction_state import TransactionState


# -- the batches that a coordinator would append to a partition, as the files of a plan.
#
# They go into new segments, since a log may be rolled at any time (ROLL-1). The existing `.log`
# keeps every byte, and undo removes the new files. Each new `.log` has the files of a clean stop:
# both indexes, `.txnindex` with aborted transactions (TXN-6), the snapshot at its end.


class _FilesStore(PlannedStore):
    """A store that keeps the planned contents.

    Attributes:
        contents: by file name, in the order in which a writer creates the files.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.contents: dict[str, bytes] = {}
        self._name = ""

    @property
    def logs(self) -> dict[str, bytes]:
        """The new segments."""
        return {name: data for name, data in self.contents.items() if name.endswith(".log")}

    def open_log(self, base_offset: int, log_bytes: int) -> None:
        assert not log_bytes, "what is appended goes into a segment of its own"
        super().open_log(base_offset, log_bytes)
        self._name = f"{base_offset:020d}.log"

    def append(self, batch: bytes | bytearray | memoryview) -> None:
        super().append(batch)
        self.contents[self._name] = self.contents.get(self._name, b"") + bytes(batch)

    def _replace(self, name: str, data: bytes) -> None:
        super()._replace(name, data)
        self.contents[name] = data


class PlannedAppends:
    """The end of one partition directory, and the batches to append there. Reads only.

    Args:
        directory: of the partition.
        tail: its end, closed or as after its recovery.
        config: the topic's settings.
        leader_epoch: of the batches.
        now_ms: the clock, which stands still: all replicas of a partition get the same bytes.
        expiration_ms: producer.id.expiration.ms.

    Attributes:
        writer: takes the batches. The first batch opens a segment, unless the last is empty.
    """

    def __init__(
        self,
        directory: str,
        tail: LogTail,
        config: LogConfig,
        *,
        leader_epoch: int,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        self._directory = Path(absolute_path(directory))
        self._store = _FilesStore(directory)
        self.writer = PartitionWriter(
            self._store,
            tail,
            config,
            leader_epoch=leader_epoch,
            now_ms=lambda: now_ms,
            expiration_ms=expiration_ms,
        )
        self.writer.roll_next()

    @property
    def logs(self) -> dict[str, bytes]:
        """The new segments by file name."""
        return self._store.logs

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset after the appended batches, with everything replicated."""
        first_undecided = self.writer.producers.first_undecided_offset
        return self.writer.end_offset if first_undecided is None else first_undecided

    def steps(self, reason: str) -> list[list[Step]]:
        """Close the log, and return the new or replaced files: a list per new segment.

        In each list the `.log` comes before its derived files. A `.log` with the planned content
        already is left out.
        """
        self.writer.close()
        found: list[list[Step]] = [[]]
        for name, content in self._store.contents.items():
            if name.endswith(".log") and any(each.path.endswith(".log") for each in found[-1]):
                found.append([])
            step = replace_step(str(self._directory / name), content, reason)
            if not _is_there(step):
                found[-1].append(step)
        return found


def _is_there(step: Step) -> bool:
    """Return whether a file has the planned content already."""
    if step.before is None or step.before.file_bytes != step.after_bytes:
        return False
    return Path(step.path).read_bytes() == step.content


def with_recovery(recovery: Iterable[Step], appended: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps of a recovery before the appended files. Each file changes once."""
    appended = list(appended)
    touched = {each.path for each in appended}
    yield from (each for each in recovery if each.path not in touched)
    yield from appended


# -- plan the ABORT markers that end open transactions of one partition (TXO-1).
#
# A marker is the same as from a coordinator. It has the epoch of the data. It has the coordinator
# epoch of the producer's last marker here (0 without one), as in Kafka's own tool. All markers go
# into one new segment if there is room (`PlannedAppends`).


REASON = "a segment with the ABORT marker"


class PlannedMarkers(NamedTuple):
    """The changes of some markers.

    Attributes:
        steps: new or replaced files, the `.log` before its derived files.
        offsets: of the markers.
        batches: of all markers, as bytes.
        stable_offsets: the last stable offset before the first marker, and after each marker, with
            everything replicated.
    """

    steps: tuple[Step, ...]
    offsets: tuple[int, ...]
    batches: bytes
    stable_offsets: tuple[int, ...]


class OpenData(NamedTuple):
    """The data of an open transaction in one partition.

    Attributes:
        base_sequence: of the first batch. None: a coordinator wrote it without sequences, such as
            group offsets.
        is_dense: each batch continues the previous batch, by the sequences.
        is_from_start: the first sequence is 0, or follows the producer's last sequence before.
            Otherwise the first batches may be missing.
    """

    batches_count: int
    records_count: int
    log_bytes: int
    base_sequence: int | None
    is_dense: bool
    is_from_start: bool


def plan_markers(
    directory: str,
    tail: LogTail,
    config: LogConfig,
    found: Sequence[OpenTransactionReport],
    *,
    now_ms: int,
    leader_epoch: int,
    expiration_ms: int = DEFAULT_EXPIRATION_MS,
) -> PlannedMarkers:
    """Plan the ABORT markers of transactions at the end of a log, in order. Reads only.

    Args:
        directory: of the partition.
        tail: its end, closed or as after its recovery.
        config: the topic's settings.
        found: the transactions to end, in this order.
        now_ms: the markers' time.
        leader_epoch: of the markers' batches.
        expiration_ms: producer.id.expiration.ms.

    Raises:
        RefusedError: one of the transactions is not open at this end of the log.
        AppendError: a leader would refuse a marker.
        AccessError: a file cannot be examined.
    """
    planned = PlannedAppends(
        directory,
        tail,
        config,
        leader_epoch=leader_epoch,
        now_ms=now_ms,
        expiration_ms=expiration_ms,
    )
    offsets, stable_offsets = [], [planned.last_stable_offset]
    for each in found:
        offsets.append(_end(planned.writer, directory, tail, each))
        stable_offsets.append(planned.last_stable_offset)
    batches = b"".join(planned.logs.values())
    reason = REASON if len(found) == 1 else f"a segment with {len(found)} ABORT markers"
    return PlannedMarkers(
        steps=tuple(step for steps in planned.steps(reason) for step in steps),
        offsets=tuple(offsets),
        batches=batches,
        stable_offsets=tuple(stable_offsets),
    )


def _end(
    writer: PartitionWriter, directory: str, tail: LogTail, found: OpenTransactionReport
) -> int:
    """Append the marker of a transaction and return its offset."""
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
    return marker.base_offset


def require_epochs(found: OpenTransactionReport, log: CoordinatorLog | None) -> None:
    """Refuse a marker that a coordinator with this state could not have written.

    Raises:
        RefusedError: the partition has a higher epoch than the coordinator: the coordinator's log
            has lost records.
    """
    lost = "its log has lost newer records"
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
    """Count the data of an open transaction. None if a part of it cannot be read."""
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

    Only a batch of the same epoch counts. If the log has none, snapshots are used.
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
    partition: Partition, found: Sequence[OpenTransactionReport], planned: PlannedMarkers
) -> dict[str, Any]:
    """Return the cost of the markers, as names and JSON values. None is unknown."""
    aborted = [count_open(partition, each.producer_id, each.first_offset) for each in found]
    counted = [each for each in aborted if each is not None]
    is_known = len(counted) == len(aborted)
    log_dir = partition.log_dir
    recovery = None if log_dir is None else recovery_price(log_dir)
    return {
        **({"transactions_count": len(found)} if len(found) > 1 else {}),
        "first_offset": min(each.first_offset for each in found),
        "marker_offset": planned.offsets[0],
        "aborted_batches_count": sum(e.batches_count for e in counted) if is_known else None,
        "aborted_records_count": sum(e.records_count for e in counted) if is_known else None,
        "aborted_bytes": sum(e.log_bytes for e in counted) if is_known else None,
        "last_stable_offset_before": planned.stable_offsets[0],
        "last_stable_offset_after": planned.stable_offsets[-1],
        "recovery": None if recovery is None else recovery._asdict(),
    }


def sources_of(
    partition: Partition,
    steps: Iterable[Step],
    log: CoordinatorLog | None,
    found: Sequence[OpenTransactionReport],
) -> list[PlanSource]:
    """Return the `.log` files that the plan depends on and does not change."""
    touched = {each.path for each in steps}
    paths = []
    if partition.segments:
        paths.append(absolute_path(partition.segments[-1].log.path))
    for number in dict.fromkeys(each.coordinator_partition for each in found):
        place = None if log is None or number is None else log.partitions.get(number)
        if place is not None and place.source.segments:
            paths.append(absolute_path(place.source.segments[-1].log.path))
    return [source_of(each) for each in dict.fromkeys(paths) if each not in touched]


# -- whether a transaction may be committed from outside, by its coordinator's state.
#
# Another system has decided: a checkpoint has the transaction as prepared, by its transactional id,
# producer id and epoch. Its coordinator answers as it would answer the producer (`end`): the same
# rules of fencing, for both versions of transactions. It does not know whether all the data exists.
# That is looked up in the partitions in its newest record.


_ABORTED = frozenset({PREPARE_ABORT, COMPLETE_ABORT})


class Committable(NamedTuple):
    """A transaction that another system has decided to commit."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The producer of the data."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


class CommitProgress(StrEnum):
    """The progress of the coordinator with the commit."""

    ONGOING = "ongoing"  # no decision
    DECIDED = "decided"  # PrepareCommit: markers may be missing
    DONE = "done"


class CoordinatorAnswer(NamedTuple):
    """The answer of a coordinator. With a `refusal` there is no progress."""

    progress: CommitProgress | None
    refusal: str = ""


def ask_coordinator(wanted: Committable, state: TransactionState) -> CoordinatorAnswer:
    """Return whether the newest record of an id allows a commit of the transaction."""
    metadata = Metadata(state)
    version = client_version(state)
    try:
        ended = end(
            metadata, wanted.producer, is_commit=True, version=version, now_ms=0,
            new_producer_id=lambda: 0,
        )  # fmt: skip
    except CoordinatorError as exc:
        is_decided = metadata.status is PREPARE_COMMIT
        if is_decided and exc.kafka_error == "CONCURRENT_TRANSACTIONS":
            return CoordinatorAnswer(CommitProgress.DECIDED)
        return CoordinatorAnswer(None, f"{_what_is_known(state)}: {_why(wanted, metadata)}")
    return CoordinatorAnswer(CommitProgress.DONE if ended is None else CommitProgress.ONGOING)


def client_version(state: TransactionState) -> int:
    """Return the producer's transaction version when it began the transaction."""
    return EPOCH_BUMP_VERSION if state.client_transaction_version >= EPOCH_BUMP_VERSION else 0


def _what_is_known(state: TransactionState) -> str:
    return (
        f"its coordinator has it as {state.status.label}, with producer id {state.producer_id} and"
        f" epoch {state.producer_epoch}"
    )


def _why(wanted: Committable, metadata: Metadata) -> str:
    state = metadata.state
    is_its = state.producer_id == wanted.producer_id
    if metadata.status in _ABORTED and is_its:
        raised = min(wanted.producer_epoch + 1, MAX_PRODUCER_EPOCH)
        if state.producer_epoch in {wanted.producer_epoch, raised}:
            return "it was aborted"
    if not is_its:
        return (
            f"check producer id {wanted.producer_id} for a typing error; if it is right, its "
            "transaction has ended, and may have been aborted"
        )
    if state.producer_epoch > wanted.producer_epoch:
        return (
            "a newer producer or transaction has the id: check the epoch for a typing error; if it"
            " is right, this transaction has ended, and may have been aborted"
        )
    if state.producer_epoch < wanted.producer_epoch:
        return (
            f"epoch {wanted.producer_epoch} is newer: check it for a typing error; if it is right,"
            " the coordinator's log has lost its newest records of the id"
        )
    return "no transaction of that epoch goes on; it may have been aborted"


def late_ms(state: TransactionState, last_ran_ms: int) -> int:
    """Return how long a coordinator continued to run after a transaction's timeout.

    A coordinator checks every ten seconds, and aborts transactions over their timeout.

    Returns:
        0 if it had no reason to abort it. A delay that a busy broker may have does not count.
    """
    if state.status is not ONGOING or state.timeout_ms == NO_TIMEOUT_MS:
        return 0
    over_ms = last_ran_ms - state.start_timestamp_ms - state.timeout_ms
    return over_ms if over_ms > LATE_BUFFER_MS else 0
