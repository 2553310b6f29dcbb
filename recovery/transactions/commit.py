"""May a transaction be committed from outside, by what its coordinator has of it?

Somebody else has decided: a checkpoint that holds the transaction as prepared, by its transactional
id, producer id and epoch. Its coordinator answers as it would answer the producer (`end`): the same
rules of fencing, for both versions of transactions. What it can not say is whether all the data is
there; that is looked up in the partitions that its newest record lists.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from storage.producers.producer_state import MAX_PRODUCER_EPOCH
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

if TYPE_CHECKING:
    from storage.formats.transaction_state import TransactionState

_ABORTED = frozenset({PREPARE_ABORT, COMPLETE_ABORT})


class Committable(NamedTuple):
    """A transaction that somebody has decided to commit."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """Whose data it is."""
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)


class CommitProgress(StrEnum):
    """How far its coordinator has come with the commit."""

    ONGOING = "ongoing"  # nothing is decided
    DECIDED = "decided"  # PrepareCommit: markers may be missing
    DONE = "done"


class CoordinatorAnswer(NamedTuple):
    """What a coordinator says; with a `refusal` there is no progress."""

    progress: CommitProgress | None
    refusal: str = ""


def ask_coordinator(wanted: Committable, state: TransactionState) -> CoordinatorAnswer:
    """Tell whether the newest record of an id lets a transaction be committed."""
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
    """The transaction version of the producer, as it began the transaction."""
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
        return "of that producer id nothing goes on any more; it may have been aborted"
    if state.producer_epoch > wanted.producer_epoch:
        return (
            "a newer producer or transaction has the id: this one has ended, and may have been"
            " aborted"
        )
    if state.producer_epoch < wanted.producer_epoch:
        return "that is older: the coordinator's log has lost what it knew"
    return "no transaction of that epoch goes on; it may have been aborted"


def late_ms(state: TransactionState, last_ran_ms: int) -> int:
    """How long a coordinator went on running behind the end of a transaction's time.

    Its coordinator looks every ten seconds, and aborts what has gone on for too long.

    Returns:
        0 if it had no reason to abort it; what may come late in a busy broker does not count.
    """
    if state.status is not ONGOING or state.timeout_ms == NO_TIMEOUT_MS:
        return 0
    over_ms = last_ran_ms - state.start_timestamp_ms - state.timeout_ms
    return over_ms if over_ms > LATE_BUFFER_MS else 0
