"""What the calls of `eoctl cluster` take: each option once, for all calls that have it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from eoctl.declared import argument, option
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from eoctl.cluster.world.settings import PlaySettings


class CutBy(StrEnum):
    """How a follower finds out where to cut its log."""

    EPOCH = "epoch"
    HW = "hw"


class FsyncWhen(StrEnum):
    """When a log is synced."""

    NEVER = "never"
    BATCH = "batch"


class IsrBy(StrEnum):
    """By what a follower is out of sync."""

    TIME = "time"
    MESSAGES = "messages"


class CommitWhen(StrEnum):
    """When a consumer commits what it was given."""

    NONE = "none"
    BEFORE = "before"
    AFTER = "after"


class IsolationLevel(StrEnum):
    """What a consumer may be given."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Acks(StrEnum):
    """What a producer waits for."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"

    @property
    def number(self) -> int:
        """As it stands in a request."""
        return -1 if self is Acks.ALL else int(self.value)


def cluster_of(
    *,
    nodes: int,
    partitions: int,
    replication_factor: int,
    min_insync_replicas: int,
    unclean_leader_election: bool,
    elr: bool,
    truncation: CutBy,
    fsync: FsyncWhen,
) -> PlaySettings:
    """What the options say of a cluster, of all calls that make one."""
    from eoctl.cluster.world.settings import PlaySettings

    return PlaySettings(
        nodes=nodes,
        partitions=partitions,
        replication_factor=replication_factor,
        min_insync=min_insync_replicas,
        is_unclean=unclean_leader_election,
        has_elr=elr,
        truncation=truncation.value,
        fsync=fsync.value,
    )


Directory = Annotated[str, argument(metavar="DIR", help="Directory of the played cluster.")]

# -- of a cluster
Nodes = Annotated[int, option(min=1, max=99, metavar="N", help="Brokers.")]
Partitions = Annotated[int, option(min=1, max=1000, metavar="N", help="Partitions of the topic.")]
ReplicationFactor = Annotated[int, option(min=1, max=99, metavar="N", help="Replicas of each.")]
MinInsync = Annotated[int, option(min=1, max=99, metavar="N", help="min.insync.replicas.")]
Unclean = Annotated[
    bool, option("--unclean-leader-election", help="unclean.leader.election.enable=true.")
]
Elr = Annotated[bool, option("--elr", help="With eligible leader replicas (KIP-966).")]
Truncation = Annotated[
    CutBy, option(help="How a follower finds where to cut; hw as before Kafka 0.11.")
]
Fsync = Annotated[FsyncWhen, option(help="Sync each batch, or leave it to the operating system.")]

# -- of a run
AcksOption = Annotated[Acks, option(help="acks of the producer.")]
Retries = Annotated[str, option(metavar="N|max", help="How often a batch is sent again.")]
NoIdempotence = Annotated[bool, option("--no-idempotence", help="enable.idempotence=false.")]
Records = Annotated[
    int, option(min=1, max=10_000_000, metavar="N", help="Records that are produced.")
]
Rate = Annotated[
    int,
    option(
        min=0,
        max=1_000_000,
        metavar="N",
        help="Records a second; 0: each as the one before is answered.",
    ),
]
Burst = Annotated[
    int,
    option(
        min=1,
        max=10_000,
        metavar="N",
        help="So many records 1 ms apart, then none until --rate holds again.",
    ),
]
InFlight = Annotated[
    int, option(min=1, max=1000, metavar="N", help="Batches of a partition without answer.")
]
TransactionRecords = Annotated[
    int,
    option(
        min=0,
        max=10_000_000,
        metavar="N",
        help="So many records belong to a transaction; 0: to none.",
    ),
]
AbortEvery = Annotated[
    int,
    option(
        min=0,
        max=INT32_MAX,
        metavar="N",
        help="Every N-th transaction is aborted on purpose; 0: none of them.",
    ),
]
IsolationOption = Annotated[
    IsolationLevel, option(help="isolation.level of the consumers, with transactions.")
]
WitnessFile = Annotated[
    str,
    option("--witness", metavar="FILE", help="Save the course, for cluster run --replay FILE."),
]
