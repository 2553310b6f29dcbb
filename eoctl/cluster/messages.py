"""What brokers, producers and followers tell each other, with Kafka's names of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recovery.truncate.epoch_ends import EpochEnd

NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
REQUEST_TIMED_OUT = "REQUEST_TIMED_OUT"
OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
NETWORK_EXCEPTION = "NETWORK_EXCEPTION"
FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
UNKNOWN_LEADER_EPOCH = "UNKNOWN_LEADER_EPOCH"


class ProduceAnswer(NamedTuple):
    """What a producer is told; `error` is "" when it is acknowledged."""

    error: str
    base_offset: int
    leader: int
    leader_epoch: int


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
