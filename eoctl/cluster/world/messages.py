"""What brokers, producers and followers tell each other, with Kafka's names of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recovery.truncate.epoch_ends import EpochEnd
    from storage.formats.txn_index import AbortedTxn

NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
REQUEST_TIMED_OUT = "REQUEST_TIMED_OUT"
OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
NETWORK_EXCEPTION = "NETWORK_EXCEPTION"
FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
UNKNOWN_LEADER_EPOCH = "UNKNOWN_LEADER_EPOCH"
CONCURRENT_TRANSACTIONS = "CONCURRENT_TRANSACTIONS"
INVALID_PRODUCER_EPOCH = "INVALID_PRODUCER_EPOCH"
PRODUCER_FENCED = "PRODUCER_FENCED"


class ProduceAnswer(NamedTuple):
    """What a producer is told; `error` is "" when it is acknowledged."""

    error: str
    base_offset: int
    leader: int
    leader_epoch: int


class EndMarker(NamedTuple):
    """What a coordinator has a leader append (WriteTxnMarkers)."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class ConsumerAnswer(NamedTuple):
    """What a consumer is given of a partition.

    Attributes:
        aborted: with read_committed, the aborted transactions that reach into the batches.
    """

    error: str
    batches: list[bytes]
    high_watermark: int
    aborted: list[AbortedTxn]


class FetchPart(NamedTuple):
    """One partition of a follower's fetch request."""

    offset: int
    last_epoch: int | None  # None: nothing is fetched that could part
    leader_epoch: int


class FetchAnswer(NamedTuple):
    """One partition of the response."""

    error: str
    batches: list[bytes]
    high_watermark: int
    diverging: EpochEnd | None
