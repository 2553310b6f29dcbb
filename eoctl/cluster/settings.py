"""What a played cluster is made of, and how a run of it is called: values, and their JSON."""

from __future__ import annotations

from typing import NamedTuple

from storage.limits import INT32_MAX
from storage.replication.progress import IsrRule, IsrTerms
from storage.writing.partition_store import FlushPolicy

CONTROLLER_ID = 3000
MARKER_NAME = "cluster.json"
CONTROLLER_NAME = "controller"
METADATA_DIRECTORY = "__cluster_metadata-0"
LAYOUT_VERSION = 1
START_MS = 1_700_000_000_000  # what the clock of records shows at the start of a cluster's life
RETRIES_MAX = INT32_MAX


class PlaySettings(NamedTuple):
    """What `cluster init` fixes.

    Attributes:
        truncation: how a follower finds out where to cut: `epoch`, or `hw` as before Kafka 0.11.
        fsync: `never`: a log is synced as its segment is closed, Kafka's default; `batch`.
    """

    nodes: int = 3
    topic: str = "t"
    partitions: int = 1
    replication_factor: int = 3
    min_insync: int = 1
    is_unclean: bool = False
    has_elr: bool = False
    truncation: str = "epoch"
    fsync: str = "never"
    isr_rule: str = "time"
    lag_max_messages: int = 4000
    lag_time_max_ms: int = 30_000
    session_timeout_ms: int = 9000
    segment_bytes: int = 1_073_741_824

    @property
    def isr_terms(self) -> IsrTerms:
        """For a leader."""
        return IsrTerms(
            min_insync=self.min_insync,
            lag_time_max_us=self.lag_time_max_ms * 1000,
            rule=IsrRule(self.isr_rule),
            lag_max_messages=self.lag_max_messages,
        )

    @property
    def flush(self) -> FlushPolicy:
        """For a writer."""
        return FlushPolicy.BATCH if self.fsync == "batch" else FlushPolicy.SEGMENT

    @property
    def assignment(self) -> list[tuple[int, ...]]:
        """Replicas of each partition, the preferred leader first."""
        count = self.replication_factor
        return [
            tuple((number + place) % self.nodes for place in range(count))
            for number in range(self.partitions)
        ]


class RunSettings(NamedTuple):
    """How `cluster run` was called.

    Attributes:
        acks: 0, 1, or -1 for all.
        rate: records a second that are given to the producer; 0: the next as the last is answered.
        in_flight: requests to one broker that wait for their answers.
        batch_records: batch.num.messages, at most in one request.
        linger_ms: queue.buffering.max.ms.
        buffered_max: queue.buffering.max.messages.
        is_blocking: what comes when the buffer is full waits; else it is dropped.
        faults: as they are written.
        heals: at the end all faults are over and all nodes are started.
    """

    seed: int = 0
    acks: int = -1
    retries: int = RETRIES_MAX
    is_idempotent: bool = True
    records: int = 1000
    rate: int = 100
    in_flight: int = 5
    batch_records: int = 200
    linger_ms: int = 0
    buffered_max: int = 10_000
    is_blocking: bool = True
    faults: str = ""
    heals: bool = True
