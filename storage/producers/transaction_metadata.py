"""The states of a transactional id: the state table of a transaction coordinator.

Each function takes the state of an id and an event. It returns the new state, as it is then written
to `__transaction_state`, or raises the broker's error. This module does no input or output. A
broker's intermediate states that never reach the log (Dead, PrepareEpochFence) do not occur: an
epoch fence changes Ongoing to PrepareAbort at once.

With transaction version 2 (KIP-890 part 2) each end raises the epoch, and the marker contains the
new epoch. Before, epoch and id stay. An id without further epochs continues with another producer
id and epoch 0. Source: TransactionMetadata and TransactionCoordinator of Kafka 4.3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.errors import EXIT_REFUSED, EoctlError
from storage.formats.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from storage.formats.transaction_state import TransactionState, TransactionStatus
from storage.limits import INT32_MAX
from storage.producers.producer_state import MAX_PRODUCER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEFAULT_TIMEOUT_MS = 60_000  # transaction.timeout.ms of a producer
EPOCH_BUMP_VERSION = 2  # of transaction.version: from then on each end raises the epoch
NO_TIMESTAMP = -1
NO_TIMEOUT_MS = INT32_MAX  # of a two-phase commit (KIP-939), which only its producer ends

EMPTY, ONGOING = TransactionStatus.EMPTY, TransactionStatus.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT
COMPLETE_COMMIT = TransactionStatus.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionStatus.COMPLETE_ABORT
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
COMPLETED = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})


class CoordinatorError(EoctlError):
    """A request that a coordinator refuses. `kafka_error` is the name of its error code."""

    exit_status = EXIT_REFUSED

    def __init__(self, kafka_error: str, message: str) -> None:
        super().__init__(f"{kafka_error}: {message}")
        self.kafka_error = kafka_error


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer."""

    producer_id: int
    producer_epoch: int


class Metadata(NamedTuple):
    """The state of a transactional id.

    Attributes:
        state: its newest record.
        last_producer_epoch: the epoch before the newest epoch, or -1. A producer that did not get
            the answer may still use it. It is not in the record.
    """

    state: TransactionState
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def status(self) -> TransactionStatus:
        """The status in the newest record."""
        return TransactionStatus(self.state.transaction_status)

    @property
    def is_commit(self) -> bool:
        """Return whether a prepared transaction ends with a commit."""
        return self.status is PREPARE_COMMIT

    @property
    def is_exhausted(self) -> bool:
        """Return whether its producer id has no epoch left. The last epoch is kept for fencing."""
        return self.state.producer_epoch >= MAX_PRODUCER_EPOCH - 1

    def refusal(self, kafka_error: str, what: str) -> CoordinatorError:
        """Return an error about the id."""
        return CoordinatorError(kafka_error, f"{self.state.transactional_id}: {what}")


def new_metadata(
    transactional_id: str, producer_id: int, timeout_ms: int, *, now_ms: int
) -> Metadata:
    """Return the state of an id before its first `init`, without an epoch or a record."""
    state = TransactionState(
        transactional_id=transactional_id,
        version=0,
        producer_id=producer_id,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        transaction_status=EMPTY,
        partitions=None,
        last_update_timestamp_ms=now_ms,
        start_timestamp_ms=NO_TIMESTAMP,
        client_transaction_version=0,
    )
    return Metadata(state)


def _with(metadata: Metadata, **fields: object) -> Metadata:
    """Return the next record, with the producer id of the record before it."""
    state = metadata.state
    fields = {"previous_producer_id": state.producer_id, **fields}
    return metadata._replace(state=state._replace(**fields))  # type: ignore[arg-type]


# -- init


def init(
    metadata: Metadata,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    *,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Metadata:
    """Begin a new session of an id. All older sessions are then fenced.

    Args:
        metadata: not Ongoing. Such a transaction is aborted first (`fence`).
        timeout_ms: transaction.timeout.ms of the producer.
        expected: the producer's identity, if it continues after an error (KIP-360).
        now_ms: the clock.
        new_producer_id: called when all epochs are used.

    Raises:
        CoordinatorError: CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
    """
    require_same(metadata, expected)
    require_not_prepared(metadata)
    state = metadata.state
    is_asked = expected is None or expected.producer_epoch == state.producer_epoch
    if metadata.is_exhausted and is_asked:
        producer_id, epoch = new_producer_id(), 0
        last_epoch = NO_PRODUCER_EPOCH if expected is None else state.producer_epoch
    else:
        producer_id = state.producer_id
        epoch, last_epoch = _next_epoch(metadata, expected)
    begun = _with(
        metadata,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        transaction_status=EMPTY,
        partitions=None,
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_timestamp_ms=now_ms,
    )
    return begun._replace(last_producer_epoch=last_epoch)


def require_same(metadata: Metadata, expected: ProducerIdAndEpoch | None) -> None:
    """Refuse a producer that wants to continue but is not the newest of its id.

    Raises:
        CoordinatorError: PRODUCER_FENCED.
    """
    state = metadata.state
    if expected is None or state.producer_epoch == NO_PRODUCER_EPOCH:
        return
    is_retry = (
        expected.producer_id == state.previous_producer_id
        and expected.producer_epoch >= MAX_PRODUCER_EPOCH - 1
    )
    if expected.producer_id != state.producer_id and not is_retry:
        raise _fenced(metadata, expected.producer_epoch)


def require_not_prepared(metadata: Metadata) -> None:
    """Refuse a request that has to wait until markers are written.

    Raises:
        CoordinatorError: CONCURRENT_TRANSACTIONS.
    """
    if metadata.status in PREPARED:
        raise metadata.refusal(
            "CONCURRENT_TRANSACTIONS", f"{metadata.status.label}: markers are still to be written"
        )


def _next_epoch(metadata: Metadata, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
    epoch, last_epoch = metadata.state.producer_epoch, metadata.last_producer_epoch
    if expected is None:
        return epoch + 1, NO_PRODUCER_EPOCH
    if epoch in {expected.producer_epoch, NO_PRODUCER_EPOCH}:
        return epoch + 1, epoch
    if expected.producer_epoch == last_epoch:  # it did not get the answer
        return epoch, last_epoch
    raise _fenced(metadata, expected.producer_epoch)


def _fenced(metadata: Metadata, epoch: int) -> CoordinatorError:
    newest = metadata.state.producer_epoch
    return metadata.refusal("PRODUCER_FENCED", f"epoch {epoch}, the newest is {newest}")


# -- in a transaction


def require_producer(metadata: Metadata, producer: ProducerIdAndEpoch) -> None:
    """Refuse any producer but the newest of the id.

    Raises:
        CoordinatorError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    if metadata.state.producer_id != producer.producer_id:
        raise _unmapped(metadata, producer)
    if metadata.state.producer_epoch != producer.producer_epoch:
        raise _fenced(metadata, producer.producer_epoch)


def _unmapped(metadata: Metadata, producer: ProducerIdAndEpoch) -> CoordinatorError:
    return metadata.refusal(
        "INVALID_PRODUCER_ID_MAPPING",
        f"producer id {producer.producer_id}, the newest is {metadata.state.producer_id}",
    )


def add_partitions(
    metadata: Metadata,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[tuple[str, int]],
    *,
    now_ms: int,
    client_version: int,
) -> Metadata | None:
    """Add partitions to the transaction, and begin it with the first. None if all are present.

    Raises:
        CoordinatorError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    require_producer(metadata, producer)
    require_not_prepared(metadata)
    state, is_ongoing = metadata.state, metadata.status is ONGOING
    known = state.partitions or ()
    added = tuple(dict.fromkeys(each for each in partitions if each not in known))
    if is_ongoing and not added:
        return None
    return _with(
        metadata,
        transaction_status=ONGOING,
        partitions=(*known, *added) if is_ongoing else added,
        start_timestamp_ms=state.start_timestamp_ms if is_ongoing else now_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=client_version,
    )


def is_timed_out(metadata: Metadata, now_ms: int) -> bool:
    """Return whether a transaction has exceeded its producer's timeout."""
    state = metadata.state
    if metadata.status is not ONGOING or state.timeout_ms == NO_TIMEOUT_MS:
        return False
    return state.start_timestamp_ms + state.timeout_ms < now_ms


def is_expired(metadata: Metadata, now_ms: int, expiration_ms: int) -> bool:
    """Return whether an id may be removed (transactional.id.expiration.ms)."""
    is_idle = metadata.status is EMPTY or metadata.status in COMPLETED
    return is_idle and metadata.state.last_update_timestamp_ms <= now_ms - expiration_ms


# -- ends


def end(
    metadata: Metadata,
    producer: ProducerIdAndEpoch,
    *,
    is_commit: bool,
    version: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Metadata | None:
    """Decide a transaction. None if the producer repeats a request whose end was made.

    From version 2 on a transaction without a partition may be aborted.

    Raises:
        CoordinatorError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
            INVALID_TXN_STATE.
    """
    is_bumped = version >= EPOCH_BUMP_VERSION
    is_retry = False
    if is_bumped:
        is_retry = _require_may_end(metadata, producer)
    else:
        require_producer(metadata, producer)
    status = metadata.status
    wanted = PREPARE_COMMIT if is_commit else PREPARE_ABORT
    if status is ONGOING:
        return _prepare(metadata, wanted, version, now_ms, new_producer_id)
    if status is wanted:
        require_not_prepared(metadata)
    done = COMPLETE_COMMIT if is_commit else COMPLETE_ABORT
    if status is done and (is_retry or not is_bumped):
        return None
    is_idle = status is EMPTY or status in COMPLETED
    if is_bumped and not is_commit and is_idle and not is_retry:
        started = _with(metadata, partitions=(), start_timestamp_ms=now_ms)
        return _prepare(started, PREPARE_ABORT, version, now_ms, new_producer_id)
    verb = "committed" if is_commit else "aborted"
    raise metadata.refusal("INVALID_TXN_STATE", f"in state {status.label} it cannot be {verb}")


def fence(
    metadata: Metadata, *, version: int, now_ms: int, new_producer_id: Callable[[], int]
) -> Metadata:
    """Abort an ongoing transaction for its coordinator, with the epoch raised.

    The next `init` raises it again. Only a producer of version 2 that names the epoch of the
    transaction continues with the raised epoch, as after an end of its own.
    """
    if version >= EPOCH_BUMP_VERSION:
        return _prepare(metadata, PREPARE_ABORT, version, now_ms, new_producer_id)
    epoch = min(metadata.state.producer_epoch + 1, MAX_PRODUCER_EPOCH)
    raised = metadata._replace(
        state=metadata.state._replace(producer_epoch=epoch),
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )
    return _prepare(raised, PREPARE_ABORT, version, now_ms, new_producer_id)


def _require_may_end(metadata: Metadata, producer: ProducerIdAndEpoch) -> bool:
    """Refuse an end from any producer but the newest. Returns whether the end is repeated.

    It is repeated if the epoch was raised since, or if the end used the last epoch of the producer
    id.
    """
    status, state = metadata.status, metadata.state
    is_used_up = (
        state.previous_producer_id == producer.producer_id
        and producer.producer_epoch == MAX_PRODUCER_EPOCH - 1
        and state.producer_epoch == 0
    )
    if state.producer_id != producer.producer_id and not is_used_up:
        raise _unmapped(metadata, producer)
    is_raised = state.producer_epoch == producer.producer_epoch + 1
    is_newest = state.producer_epoch == producer.producer_epoch
    if status in PREPARED:
        is_right = is_raised
    elif status in COMPLETED:
        is_right = is_raised or is_used_up or is_newest
    else:
        is_right = is_newest
    if not is_right:
        raise _fenced(metadata, producer.producer_epoch)
    return is_raised or is_used_up


def _prepare(
    metadata: Metadata,
    status: TransactionStatus,
    version: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Metadata:
    state = metadata.state
    epoch, last_epoch = state.producer_epoch, metadata.last_producer_epoch
    next_producer_id = NO_PRODUCER_ID
    if version >= EPOCH_BUMP_VERSION:
        if metadata.is_exhausted:
            next_producer_id = new_producer_id()
        epoch, last_epoch = min(epoch + 1, MAX_PRODUCER_EPOCH), epoch
    prepared = _with(
        metadata,
        producer_epoch=epoch,
        next_producer_id=next_producer_id,
        transaction_status=status,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=version if version >= EPOCH_BUMP_VERSION else 0,
    )
    return prepared._replace(last_producer_epoch=last_epoch)


def complete(metadata: Metadata, *, now_ms: int) -> Metadata:
    """End a prepared transaction after all its markers are written."""
    state = metadata.state
    producer_id, epoch = state.producer_id, state.producer_epoch
    if state.client_transaction_version >= EPOCH_BUMP_VERSION and state.next_producer_id >= 0:
        producer_id, epoch = state.next_producer_id, 0
    return _with(
        metadata,
        producer_id=producer_id,
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        transaction_status=COMPLETE_COMMIT if metadata.is_commit else COMPLETE_ABORT,
        partitions=(),
        last_update_timestamp_ms=now_ms,
    )
