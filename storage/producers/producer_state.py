"""Producer state of a partition, one batch at a time: the definition (rules PROD, SNAP-8, TXN-6).

The state per producer id is its epoch, the last five data batches and the coordinator's epoch. It
includes the time of the last batch or marker, and the first offset of an open transaction. A broker
derives it from the log, keeps it in memory, and writes it as `.snapshot` files. Source:
ProducerStateManager, ProducerAppendInfo and ProducerStateEntry of Kafka 4.

Compaction leaves an empty control batch of a marker. It has no data of its producer, but makes it
known with epoch -1, timestamp -1 and no batch. The next load of a snapshot drops this entry again
(PROD-9, SNAP-7, as LogSegment.recover of Kafka 4.3.1).

This module does no input or output. `recovery.replay.bulk_state` does the same in bulk, tested
against this module.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from storage.errors import EXIT_REFUSED, EoctlError
from storage.formats.producer_snapshot import ProducerEntry
from storage.formats.record_batch import (
    CONTROL_MASK,
    MAGIC_V2,
    MAX_SEQUENCE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    decrement_sequence,
)
from storage.limits import INT16_MAX
from storage.producers.java_hash_map import JavaHashMap, long_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CACHED_BATCHES_COUNT = 5
DEFAULT_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms

MAX_PRODUCER_EPOCH = INT16_MAX

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1


class Origin(StrEnum):
    """The origin of an append (APP-1). Loading and recovery are as lenient as replication."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


_CLIENT = Origin.CLIENT  # used for every batch, and slower to look up in the class


class AppendError(EoctlError):
    """An append that a broker refuses.

    Attributes:
        kafka_error: name of its error code.
        producer_id, offset: of the batch, by its base offset.
    """

    exit_status = EXIT_REFUSED

    def __init__(self, kafka_error: str, message: str, *, producer_id: int, offset: int) -> None:
        super().__init__(f"{kafka_error}: {message}")
        self.kafka_error = kafka_error
        self.producer_id = producer_id
        self.offset = offset

    def located(self, path: str, next_step: str) -> Self:
        """Name the partition that refused. Returns the error itself, to be raised."""
        self.message = f"{path}: {self.message}"
        self.args = (self.message,)
        self.next_step = next_step
        return self


def invalid_txn_state(producer_id: int, offset: int, first_offset: int) -> AppendError:
    """Return the error for PROD-6: a batch outside of the open transaction of its producer."""
    return AppendError(
        "INVALID_TXN_STATE",
        f"non-transactional batch of producer {producer_id} at offset {offset} inside"
        f" its transaction open since {first_offset}",
        producer_id=producer_id,
        offset=offset,
    )


class CachedBatch(NamedTuple):
    """One of the last data batches of a producer (BatchMetadata)."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        """First offset of the batch, which is the answer to a duplicate."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        return decrement_sequence(self.last_sequence, self.offset_delta)


class Marker(NamedTuple):
    """The end marker of a control batch."""

    is_commit: bool
    coordinator_epoch: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended on this partition."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    is_aborted: bool


class Violation(NamedTuple):
    """A fault that a leader would have refused and a replica only logs."""

    check_id: str  # PRD-3 (producer epoch) or PRD-5 (coordinator epoch)
    offset: int
    producer_id: int
    expected: int
    found: int


class ProducerState:
    """The state of one producer id (ProducerStateEntry)."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "producer_epoch",
        "producer_id",
        "timestamp_ms",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.timestamp_ms = -1  # of the last batch or marker
        self.current_txn_first_offset: int | None = None
        self.batches: deque[CachedBatch] = deque(maxlen=CACHED_BATCHES_COUNT)

    @classmethod
    def from_entry(cls, entry: ProducerEntry) -> ProducerState:
        """Return the state in a snapshot entry, which has only the newest batch."""
        state = cls(entry.producer_id)
        state.producer_epoch = entry.producer_epoch
        state.coordinator_epoch = entry.coordinator_epoch
        state.timestamp_ms = entry.timestamp_ms
        if entry.current_txn_first_offset >= 0:
            state.current_txn_first_offset = entry.current_txn_first_offset
        if entry.has_batch:
            batch = CachedBatch(
                entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms
            )
            state.batches.append(batch)
        return state

    def to_entry(self) -> ProducerEntry:
        """Return the entry for a snapshot."""
        last = self.batches[-1] if self.batches else CachedBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)
        first_offset = self.current_txn_first_offset
        return ProducerEntry(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            last_sequence=last.last_sequence,
            last_offset=last.last_offset,
            offset_delta=last.offset_delta,
            timestamp_ms=self.timestamp_ms,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=NO_OFFSET if first_offset is None else first_offset,
        )

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest cached batch, or -1 without a batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return whether the state is expired (PROD-10). An open transaction never expires."""
        return self.current_txn_first_offset is None and now_ms - self.timestamp_ms >= expiration_ms

    def take_epoch(self, epoch: int) -> None:
        """Set the epoch. Another epoch, higher or lower, drops the cached batches."""
        if epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = epoch


class ProducerStateManager:
    """The producers of one partition up to `map_end_offset`, and its open transactions.

    Attributes:
        table: the ids in the order of the broker's map.
    """

    def __init__(self, map_end_offset: int = 0) -> None:
        self.map_end_offset = map_end_offset
        self.producers: dict[int, ProducerState] = {}
        self.violations: list[Violation] = []
        self.ongoing: dict[int, int] = {}  # first offset -> producer id
        self.table: JavaHashMap[int] = JavaHashMap(long_hash)

    # -- snapshots

    def load(
        self,
        entries: Iterable[ProducerEntry],
        snapshot_offset: int,
        *,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """Load a snapshot in file order, without expired entries (SNAP-9)."""
        for entry in entries:
            state = ProducerState.from_entry(entry)
            if not state.is_expired(now_ms, expiration_ms):
                self._put(state)
                if state.current_txn_first_offset is not None:
                    self.ongoing[state.current_txn_first_offset] = state.producer_id
        self.map_end_offset = snapshot_offset

    def entries(self) -> list[ProducerEntry]:
        """Return the entries of a snapshot at `map_end_offset`, in its order (SNAP-8)."""
        return [self.producers[each].to_entry() for each in self.table]

    def remove_expired(self, now_ms: int, expiration_ms: int = DEFAULT_EXPIRATION_MS) -> None:
        """Remove expired producers as the broker's periodic check does (PROD-10)."""
        gone = [
            each for each in self.table if self.producers[each].is_expired(now_ms, expiration_ms)
        ]
        self.table.remove_all(gone)
        for each in gone:
            del self.producers[each]

    def _put(self, state: ProducerState) -> None:
        self.table.put(state.producer_id)
        self.producers[state.producer_id] = state

    # -- appends

    def append(
        self,
        header: BatchHeader,
        marker: Marker | None,
        origin: Origin = Origin.REPLICATION,
        *,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        """Apply one batch. Returns the transaction that its marker ended.

        The caller gets its `last_stable_offset` and then passes it to `complete`.

        Args:
            header: v0 and v1 change nothing, not even `map_end_offset` (as in recovery).
            marker: of a control batch that is not empty.
            origin: of the append. Only replication accepts regressions.
            transaction_version: of a coordinator's marker. From 2 on its epoch is a new epoch. For
                a client it is the version of the transaction that a coordinator has let begin here.
                From 2 on, a producer that the log does not know begins with sequence 0.

        Raises:
            AppendError: the broker refuses the batch. After INVALID_TXN_STATE it cannot even load
                the log.
        """
        if header.magic < MAGIC_V2:
            return None
        completed = None
        if header.producer_id >= 0:
            known = self.producers.get(header.producer_id)
            state = known or ProducerState(header.producer_id)
            if not header.attributes & CONTROL_MASK:
                self._append_data(state, header, origin, transaction_version)
            elif marker is not None:
                _check_marker_epoch(state, header, origin, transaction_version)
                completed = self._append_marker(state, header, marker, origin)
            if known is None:
                self._put(state)
        self.map_end_offset = header.base_offset + header.last_offset_delta + 1
        return completed

    def append_run(self, headers: Sequence[BatchHeader]) -> None:
        """Apply data batches that one client sends one after the other.

        Only the first batch is checked. The others continue its sequences and offsets.

        Args:
            headers: of the first batch, and of the last batches, as many as are cached.

        Raises:
            AppendError: as `append`.
        """
        first, *others = headers
        self.append(first, None, _CLIENT)
        state = self.producers[first.producer_id]
        for each in others:
            delta, timestamp_ms = each.last_offset_delta, each.max_timestamp_ms
            batch = CachedBatch(each.last_sequence, each.last_offset, delta, timestamp_ms)
            state.batches.append(batch)
            state.timestamp_ms = timestamp_ms
        self.map_end_offset = headers[-1].last_offset + 1

    def find_duplicate(self, header: BatchHeader) -> CachedBatch | None:
        """Return the cached batch that a client sends again (PROD-2)."""
        state = self.producers.get(header.producer_id)
        if state is None or state.producer_epoch != header.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for each in state.batches:
            if each.last_sequence == last_sequence and each.first_sequence == header.base_sequence:
                return each
        return None

    def _append_data(
        self, state: ProducerState, header: BatchHeader, origin: Origin, transaction_version: int
    ) -> None:
        offset, timestamp_ms = header.base_offset, header.max_timestamp_ms
        delta = header.last_offset_delta
        is_transactional = header.attributes & TRANSACTIONAL_MASK
        is_other_epoch = header.producer_epoch != state.producer_epoch
        if is_other_epoch:
            self._check_epoch(state, header, origin)
        if origin is _CLIENT:
            _check_sequence(state, header, transaction_version)
        if state.current_txn_first_offset is not None and not is_transactional:
            raise invalid_txn_state(state.producer_id, offset, state.current_txn_first_offset)
        if is_other_epoch:
            state.take_epoch(header.producer_epoch)
        batch = CachedBatch(header.last_sequence, offset + delta, delta, timestamp_ms)
        state.batches.append(batch)
        state.timestamp_ms = timestamp_ms
        if is_transactional and state.current_txn_first_offset is None:
            state.current_txn_first_offset = offset
            self.ongoing[offset] = state.producer_id

    def _append_marker(
        self, state: ProducerState, header: BatchHeader, marker: Marker, origin: Origin
    ) -> CompletedTransaction | None:
        self._check_epoch(state, header, origin)
        if marker.coordinator_epoch < state.coordinator_epoch:
            if origin is not Origin.REPLICATION:
                raise AppendError(
                    "TRANSACTION_COORDINATOR_FENCED",
                    f"marker of coordinator epoch {marker.coordinator_epoch} at offset"
                    f" {header.base_offset}, the last one had {state.coordinator_epoch}",
                    producer_id=state.producer_id,
                    offset=header.base_offset,
                )
            self._note("PRD-5", header, state.coordinator_epoch, marker.coordinator_epoch)
        first_offset = state.current_txn_first_offset
        state.take_epoch(header.producer_epoch)
        state.coordinator_epoch = marker.coordinator_epoch
        state.timestamp_ms = marker.timestamp_ms
        state.current_txn_first_offset = None
        if first_offset is None:
            return None
        return CompletedTransaction(
            producer_id=state.producer_id,
            first_offset=first_offset,
            last_offset=header.base_offset,
            is_aborted=not marker.is_commit,
        )

    def _check_epoch(self, state: ProducerState, header: BatchHeader, origin: Origin) -> None:
        if header.producer_epoch >= state.producer_epoch:
            return
        if origin is not Origin.REPLICATION:
            raise AppendError(
                "INVALID_PRODUCER_EPOCH",
                f"epoch {header.producer_epoch} of producer {state.producer_id} at offset"
                f" {header.base_offset} is below {state.producer_epoch}",
                producer_id=state.producer_id,
                offset=header.base_offset,
            )
        self._note("PRD-3", header, state.producer_epoch, header.producer_epoch)

    def _note(self, check_id: str, header: BatchHeader, expected: int, found: int) -> None:
        self.violations.append(
            Violation(
                check_id=check_id,
                offset=header.base_offset,
                producer_id=header.producer_id,
                expected=expected,
                found=found,
            )
        )

    # -- transactions

    @property
    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        return min(self.ongoing, default=None)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset in the `.txnindex` entry of a transaction (TXN-6)."""
        others = (first for first, owner in self.ongoing.items() if owner != completed.producer_id)
        return min(others, default=completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """End a transaction."""
        self.ongoing.pop(completed.first_offset, None)


def _check_sequence(state: ProducerState, header: BatchHeader, transaction_version: int) -> None:
    """Check the sequence of a client's batch (PROD-4)."""
    expected = 0
    if header.producer_epoch == state.producer_epoch:
        last = state.last_sequence
        expected = 0 if last == MAX_SEQUENCE else last + 1
    may_begin_anywhere = state.producer_epoch == NO_EPOCH and transaction_version < 2
    if header.base_sequence == expected or may_begin_anywhere:
        return
    raise AppendError(
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        f"producer {state.producer_id}, epoch {header.producer_epoch}, at offset"
        f" {header.base_offset}: sequence {header.base_sequence}, expected {expected}",
        producer_id=state.producer_id,
        offset=header.base_offset,
    )


def _check_marker_epoch(
    state: ProducerState, header: BatchHeader, origin: Origin, transaction_version: int
) -> None:
    """Check the epoch of a marker (PROD-8).

    A marker of transaction version 2 raises the epoch, unless it is sent again.
    """
    epoch = header.producer_epoch
    if origin is Origin.REPLICATION or transaction_version < 2 or epoch > state.producer_epoch:
        return
    is_open = state.current_txn_first_offset is not None
    if epoch == state.producer_epoch and (not is_open or epoch == MAX_PRODUCER_EPOCH):
        return
    raise AppendError(
        "INVALID_PRODUCER_EPOCH",
        f"marker epoch {epoch} of producer {state.producer_id} at offset {header.base_offset} is"
        f" not above {state.producer_epoch}",
        producer_id=state.producer_id,
        offset=header.base_offset,
    )
