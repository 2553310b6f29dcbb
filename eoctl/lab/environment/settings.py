"""Settings of a simulated cluster and of its runs: values, and their JSON."""

from __future__ import annotations

from typing import NamedTuple

from eoctl.lab.environment.faults import CONSUMER, PRODUCER
from eoctl.lab.environment.leader import ACKS_ALL, IsrRule, IsrTerms
from storage.file_names import is_topic_name
from storage.limits import INT32_MAX
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS
from storage.writing.partition_store import FlushPolicy

MARKER_NAME = "cluster.json"
CONTROLLER_ID = 100  # also in a cluster of real brokers
CONTROLLER_NAME = "controller"
METADATA_DIRECTORY = "__cluster_metadata-0"
TRANSACTION_STATE_DIRECTORY = "__transaction_state-0"
READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"
LAYOUT_VERSION = 1
START_MS = 1_700_000_000_000  # record timestamp at the start of a cluster
RETRIES_MAX = INT32_MAX
IDEMPOTENT_IN_FLIGHT_MAX = 5  # max.in.flight.requests.per.connection: a leader knows five batches
SOCKET_TIMEOUT_MS = 30_000  # default of replica.socket.timeout.ms


class PlaySettings(NamedTuple):
    """Settings that `sim init` fixes.

    Attributes:
        truncation: how a follower finds its truncation offset: `epoch`, or `hw` as before Kafka
            0.11.
        fetch_min_bytes: replica.fetch.min.bytes: with less data, a leader delays a follower's
            fetch.
        fetch_wait_max_ms: replica.fetch.wait.max.ms: the longest delay.
        fsync: `never` syncs a log when its segment closes, Kafka's default. `batch` syncs each
            batch.
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
    fetch_min_bytes: int = 1
    fetch_wait_max_ms: int = 500

    @property
    def isr_terms(self) -> IsrTerms:
        """The ISR settings of a leader."""
        return IsrTerms(
            min_insync=self.min_insync,
            lag_time_max_us=self.lag_time_max_ms * 1000,
            rule=IsrRule(self.isr_rule),
            lag_max_messages=self.lag_max_messages,
        )

    @property
    def flush(self) -> FlushPolicy:
        """The flush policy of a writer."""
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
    """Settings of one `sim run`.

    Attributes:
        acks: 0, 1, or -1 for all.
        rate: records per second for the producer. 0 gives the next record after the last answer.
        burst: records given 1 ms apart, before a pause that keeps the rate.
        in_flight: maximum of unanswered requests to one broker.
        batch_records: batch.num.messages, the maximum in one request.
        linger_ms: queue.buffering.max.ms.
        buffered_max: queue.buffering.max.messages.
        is_blocking: a record waits if the buffer is full. Otherwise it is dropped.
        faults: text in the language of `--faults`.
        heals: at the end all faults are healed and all nodes are started.
        consumer_commit: the consumer commits its offset `before` or `after` it handles records.
        transaction_records: records in a transaction, 0 without transactions.
        abort_every: every n-th transaction is aborted on purpose, 0 for none.
        transaction_timeout_ms: transaction.timeout.ms.
        isolation: isolation.level of the consumers, if there are transactions.
    """

    seed: int = 0
    acks: int = -1
    retries: int = RETRIES_MAX
    is_idempotent: bool = True
    records: int = 1000
    rate: int = 100
    burst: int = 1
    in_flight: int = 5
    batch_records: int = 200
    linger_ms: int = 0
    buffered_max: int = 10_000
    is_blocking: bool = True
    faults: str = ""
    heals: bool = True
    consumer_commit: str = "none"
    transaction_records: int = 0
    abort_every: int = 0
    transaction_timeout_ms: int = 60_000
    isolation: str = READ_COMMITTED

    @property
    def has_group(self) -> bool:
        """True if the consumer commits."""
        return self.consumer_commit != "none"

    @property
    def clients(self) -> tuple[str, ...]:
        """Clients that can be killed, by their names in `--faults`."""
        return (CONSUMER, PRODUCER) if self.has_group else (PRODUCER,)

    @property
    def is_transactional(self) -> bool:
        """True if the records belong to transactions."""
        return self.transaction_records > 0


# Allowed values of each setting in a file: minimum and maximum, or a choice.
LIMITS = {
    "nodes": (1, 99),
    "partitions": (1, 1000),
    "replication_factor": (1, 99),
    "min_insync": (1, 99),
    "lag_max_messages": (1, INT32_MAX),
    "lag_time_max_ms": (1, INT32_MAX),
    "session_timeout_ms": (1, INT32_MAX),
    "segment_bytes": (1024, INT32_MAX),
    "fetch_min_bytes": (0, INT32_MAX),
    "fetch_wait_max_ms": (0, SOCKET_TIMEOUT_MS),
    "seed": (0, 1 << 53),
    "acks": (-1, 1),
    "retries": (0, RETRIES_MAX),
    "records": (1, 10_000_000),
    "rate": (0, 1_000_000),
    "burst": (1, 10_000),
    "in_flight": (1, 1000),
    "batch_records": (1, 10_000),
    "linger_ms": (0, 60_000),
    "buffered_max": (1, INT32_MAX),
    "transaction_records": (0, 10_000_000),
    "abort_every": (0, INT32_MAX),
    "transaction_timeout_ms": (1, DEFAULT_MAX_TIMEOUT_MS),
}
CHOICES = {
    "truncation": ("epoch", "hw"),
    "fsync": ("never", "batch"),
    "isr_rule": ("time", "messages"),
    "consumer_commit": ("none", "before", "after"),
    "isolation": (READ_UNCOMMITTED, READ_COMMITTED),
}


def problem_of(settings: PlaySettings | RunSettings) -> str:
    """Return the first invalid setting in words, "" if all are valid."""
    for name, value in settings._asdict().items():
        if name in LIMITS and not LIMITS[name][0] <= value <= LIMITS[name][1]:
            return f"{name} {value}: from {LIMITS[name][0]} to {LIMITS[name][1]}"
        if name in CHOICES and value not in CHOICES[name]:
            return f"{name} {value!r}: one of {', '.join(CHOICES[name])}"
    if isinstance(settings, PlaySettings):
        if settings.replication_factor > settings.nodes:
            return f"replication_factor {settings.replication_factor}: of {settings.nodes} nodes"
        if settings.fetch_wait_max_ms > settings.lag_time_max_ms:  # KafkaConfig.validateValues
            return f"fetch_wait_max_ms {settings.fetch_wait_max_ms}: longer than lag_time_max_ms"
        if not is_topic_name(settings.topic):
            return f"topic {settings.topic!r}: no topic has this name"
        return ""
    if settings.is_idempotent and settings.in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
        return (
            f"in_flight {settings.in_flight}: at most {IDEMPOTENT_IN_FLIGHT_MAX} with idempotence"
        )
    if settings.is_transactional:
        is_possible = settings.acks == ACKS_ALL and settings.is_idempotent and settings.retries
        return "" if is_possible else "a transactional producer is idempotent, acks=all, retries"
    return ""
