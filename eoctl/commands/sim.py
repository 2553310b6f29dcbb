"""`eoctl sim`: a simulated replica set over real log dirs, and the answers to its clients."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from eoctl import options
from eoctl.output import OutputFormat
from eoctl.parameters import Panel, advanced_option, argument, option, records_option
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from eoctl.lab.environment.settings import PlaySettings


class CutBy(StrEnum):
    """The rule for the offset at which a follower truncates."""

    EPOCH = "epoch"
    HW = "hw"


class FsyncWhen(StrEnum):
    """The time of log syncs."""

    NEVER = "never"
    BATCH = "batch"


class IsrBy(StrEnum):
    """The measure by which a follower is out of sync."""

    TIME = "time"
    MESSAGES = "messages"


class CommitWhen(StrEnum):
    """The time at which a consumer commits received records."""

    NONE = "none"
    BEFORE = "before"
    AFTER = "after"


class IsolationLevel(StrEnum):
    """The records that a consumer may receive."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Acks(StrEnum):
    """The replicas that a producer waits for."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"

    @property
    def number(self) -> int:
        """The value in a request."""
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
    """Return the settings of a cluster from the options."""
    from eoctl.lab.environment.settings import PlaySettings

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


Directory = Annotated[str, argument(metavar="DIR", help="Directory of the simulated cluster.")]

# -- options of a cluster
Nodes = Annotated[int, option(min=1, max=99, metavar="N", help="Brokers.")]
Partitions = Annotated[int, option(min=1, max=1000, metavar="N", help="Partitions of the topic.")]
ReplicationFactor = Annotated[int, option(min=1, max=99, metavar="N", help="Replicas of each.")]
MinInsync = Annotated[int, option(min=1, max=99, metavar="N", help="min.insync.replicas.")]
Unclean = Annotated[
    bool, option("--unclean-leader-election", help="unclean.leader.election.enable=true.")
]
Elr = Annotated[bool, option("--elr", help="With eligible leader replicas (KIP-966).")]
Truncation = Annotated[
    CutBy, option(help="How a follower finds the truncation offset. hw as before Kafka 0.11.")
]
Fsync = Annotated[FsyncWhen, option(help="Sync each batch, or leave it to the operating system.")]

# -- options of a run
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
        help="Records per second. 0 sends each after the answer to the last.",
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
IN_FLIGHT = option(min=1, max=1000, metavar="N", help="Batches of a partition without answer.")
TransactionRecords = Annotated[
    int,
    option(
        min=0,
        max=10_000_000,
        metavar="N",
        help="Records per transaction. 0 is no transactions.",
    ),
]
AbortEvery = Annotated[
    int,
    option(
        min=0,
        max=INT32_MAX,
        metavar="N",
        help="Abort every N-th transaction. 0 is none.",
    ),
]
IsolationOption = Annotated[
    IsolationLevel, records_option(help="isolation.level of the consumers, with transactions.")
]
WitnessFile = Annotated[
    str,
    option("--witness", metavar="FILE", help="Save the scenario, for sim run --replay FILE."),
]


# -- `eoctl sim init`, `run`, `check`: make a cluster, run it, judge the result


def init(
    path: Annotated[str, argument(metavar="DIR", help="A directory that is made.")],
    nodes: Nodes = 3,
    topic: Annotated[str, option(metavar="NAME", help="The topic.")] = "t",
    partitions: Partitions = 1,
    replication_factor: ReplicationFactor = 3,
    min_insync_replicas: MinInsync = 1,
    unclean_leader_election: Unclean = False,
    elr: Elr = False,
    truncation: Truncation = CutBy.EPOCH,
    fsync: Fsync = FsyncWhen.NEVER,
    isr_rule: Annotated[
        IsrBy, option(help="Rule for the ISR: by time, or also by records as before Kafka 0.9.")
    ] = IsrBy.TIME,
    replica_lag_max_messages: Annotated[
        int, option(min=1, max=INT32_MAX, metavar="N", help="With --isr-rule messages.")
    ] = 4000,
    replica_lag_time_max_ms: Annotated[
        int, option(min=1, max=INT32_MAX, metavar="MS", help="replica.lag.time.max.ms.")
    ] = 30_000,
    replica_fetch_min_bytes: Annotated[
        int, option(min=0, metavar="BYTES", help="replica.fetch.min.bytes.")
    ] = 1,
    replica_fetch_wait_max_ms: Annotated[
        int, option(min=0, max=30_000, metavar="MS", help="replica.fetch.wait.max.ms.")
    ] = 500,
    session_timeout_ms: Annotated[
        int, option(min=1, max=INT32_MAX, metavar="MS", help="broker.session.timeout.ms.")
    ] = 9000,
    segment_bytes: Annotated[
        int, advanced_option(min=1024, max=INT32_MAX, metavar="BYTES", help="segment.bytes.")
    ] = 1_073_741_824,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Make a cluster: a log dir for each node, one topic, a controller with its metadata log."""
    from eoctl.lab.sim.simulate import init_cluster

    settings = cluster_of(
        nodes=nodes,
        partitions=partitions,
        replication_factor=replication_factor,
        min_insync_replicas=min_insync_replicas,
        unclean_leader_election=unclean_leader_election,
        elr=elr,
        truncation=truncation,
        fsync=fsync,
    )._replace(
        topic=topic,
        isr_rule=isr_rule.value,
        lag_max_messages=replica_lag_max_messages,
        lag_time_max_ms=replica_lag_time_max_ms,
        fetch_min_bytes=replica_fetch_min_bytes,
        fetch_wait_max_ms=replica_fetch_wait_max_ms,
        session_timeout_ms=session_timeout_ms,
        segment_bytes=segment_bytes,
    )
    return init_cluster(path, settings, output)


def run(
    path: Directory,
    acks: AcksOption = Acks.ALL,
    retries: Retries = "max",
    no_idempotence: NoIdempotence = False,
    records: Records = 1000,
    rate: Rate = 100,
    burst: Burst = 1,
    in_flight: Annotated[int, IN_FLIGHT] = 5,
    batch_records: Annotated[
        int, option(min=1, max=10_000, metavar="N", help="batch.num.messages.")
    ] = 200,
    linger_ms: Annotated[
        int, option(min=0, max=60_000, metavar="MS", help="queue.buffering.max.ms.")
    ] = 0,
    buffer_records: Annotated[
        int, option(min=1, max=INT32_MAX, metavar="N", help="queue.buffering.max.messages.")
    ] = 10_000,
    drop_when_full: Annotated[
        bool, option("--drop-when-full", help="Drop records when the buffer is full.")
    ] = False,
    consumer_commit: Annotated[
        CommitWhen, option(help="The consumer commits before it handles records, or after.")
    ] = CommitWhen.NONE,
    transaction_records: TransactionRecords = 0,
    abort_every: AbortEvery = 0,
    transaction_timeout_ms: options.TransactionTimeoutMs = 60_000,
    isolation: IsolationOption = IsolationLevel.READ_COMMITTED,
    faults: Annotated[
        str,
        option(metavar="FAULTS", help="Such as 'kill leader at 20%, start all at 70%'."),
    ] = "",
    replay: Annotated[
        str,
        option(
            metavar="FILE",
            help="Repeat the scenario that explore or table saved. DIR is created.",
        ),
    ] = "",
    script: Annotated[
        str,
        option(
            metavar="NAME",
            help="Simulate a scenario of eoctl sim scripts. DIR is created.",
        ),
    ] = "",
    seed: Annotated[int, option(min=0, max=2**53, metavar="N", help="Seed of the scenario.")] = 0,
    no_heal: Annotated[
        bool, option("--no-heal", help="End as the last fault leaves it. All brokers are killed.")
    ] = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Let the cluster live: brokers, a producer, a consumer and faults, in virtual time.

    At the end all is healed and read once more, and the brokers stop cleanly. The same seed gives
    the same run. The history of the clients is written beside the log dirs.
    """
    from eoctl.lab.environment.settings import RunSettings
    from eoctl.lab.sim.simulate import parse_retries, replay_saved, run_cluster

    settings = RunSettings(
        seed=seed,
        acks=acks.number,
        retries=parse_retries(retries),
        is_idempotent=not no_idempotence and acks is Acks.ALL,
        records=records,
        rate=rate,
        burst=burst,
        in_flight=in_flight,
        batch_records=batch_records,
        linger_ms=linger_ms,
        buffered_max=buffer_records,
        is_blocking=not drop_when_full,
        faults=faults,
        heals=not no_heal,
        consumer_commit=consumer_commit.value,
        transaction_records=transaction_records,
        abort_every=abort_every,
        transaction_timeout_ms=transaction_timeout_ms,
        isolation=isolation.value,
    )
    if replay or script:
        return replay_saved(path, settings, output, file=replay, script=script)
    return run_cluster(path, settings, output)


def check(
    path: Annotated[
        str | None, argument(metavar="DIR", help="Directory of a simulated cluster.")
    ] = None,
    history: Annotated[
        list[str] | None,
        option(
            metavar="FILE", help="A history of a real cluster, see eoctl-history(5). Repeatable."
        ),
    ] = None,
    directory: Annotated[
        list[str] | None,
        option(metavar="DIR", help="With --history, a log dir of each broker."),
    ] = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Judge what became of a cluster: its histories and its log dirs, and nothing else.

    Finds acknowledged records that are lost, duplicates, offsets with two values, torn
    transactions, replicas that differ, and other things that must not be.
    """
    from eoctl.lab.sim.check import check_cluster

    return check_cluster(path, history or (), directory or (), output)


# -- `eoctl sim explore`, `table`, `scripts`: possible losses of a cluster, and their scenarios


def explore(
    acks: AcksOption = Acks.ALL,
    retries: Retries = "max",
    no_idempotence: NoIdempotence = False,
    nodes: Nodes = 3,
    partitions: Partitions = 1,
    replication_factor: ReplicationFactor = 3,
    min_insync_replicas: MinInsync = 1,
    unclean_leader_election: Unclean = False,
    elr: Elr = False,
    truncation: Truncation = CutBy.EPOCH,
    fsync: Fsync = FsyncWhen.NEVER,
    records: Records = 60,
    rate: Rate = 4,
    burst: Burst = 1,
    in_flight: Annotated[int, IN_FLIGHT._replace(panel=Panel.ADVANCED)] = 5,
    transaction_records: TransactionRecords = 0,
    abort_every: AbortEvery = 0,
    isolation: IsolationOption = IsolationLevel.READ_COMMITTED,
    faults: Annotated[
        str,
        option(
            metavar="KINDS",
            help="Faults to try: kill, power, partition, stop, kill-one, kill-in-turn,"
            " kill-then-power, stop-then-power, power-all, partition-leader, rejoin,"
            " restart-all, isr-change, slow-one, slow-change, first-back or longer-log.",
        ),
    ] = "kill,power,partition",
    seeds: Annotated[
        int, option(min=1, max=1_000_000, metavar="N", help="Number of scenarios.")
    ] = 200,
    seed: Annotated[int, option(min=0, max=2**53, metavar="N", help="The first of them.")] = 0,
    witness: WitnessFile = "",
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Search for a failure sequence that loses something, and show the shortest in a few steps.

    Simulates small clusters with faults drawn from each seed, in memory if possible. eoctl shortens
    the sequence it finds, and prints the commands that repeat it.
    """
    from eoctl.lab.environment.settings import RunSettings
    from eoctl.lab.sim.guarantees import explore_cluster
    from eoctl.lab.sim.simulate import parse_retries

    settings = cluster_of(
        nodes=nodes,
        partitions=partitions,
        replication_factor=replication_factor,
        min_insync_replicas=min_insync_replicas,
        unclean_leader_election=unclean_leader_election,
        elr=elr,
        truncation=truncation,
        fsync=fsync,
    )
    run = RunSettings(
        acks=acks.number,
        retries=parse_retries(retries),
        is_idempotent=not no_idempotence and acks is Acks.ALL,
        records=records,
        rate=rate,
        burst=burst,
        in_flight=in_flight,
        transaction_records=transaction_records,
        abort_every=abort_every,
        isolation=isolation.value,
    )
    return explore_cluster(settings, run, faults, range(seed, seed + seeds), output, witness)


def scripts(output: options.Output = OutputFormat.TEXT) -> int:
    """List the included scenarios by name and title.

    eoctl sim run DIR --script NAME runs a scenario.
    """
    from eoctl.lab.sim.simulate import list_scripts

    return list_scripts(output)


def table(
    acks: Annotated[str, option(metavar="0|1|all", help="Only with these acks.")] = "any",
    min_insync_replicas: Annotated[
        str, option(metavar="1|2", help="Only with this min.insync.replicas.")
    ] = "any",
    replication_factor: Annotated[
        str, option(metavar="1|2|3", help="Only with this many replicas.")
    ] = "any",
    unclean: Annotated[
        str,
        option(
            "--unclean-leader-election",
            metavar="yes|no",
            help="Only with, or without, unclean elections.",
        ),
    ] = "any",
    elr: Annotated[str, option(metavar="yes|no", help="Only with, or without, ELR.")] = "any",
    truncation: Annotated[
        str,
        option(
            metavar="epoch|hw|any", help="Only this rule of truncation. hw as before Kafka 0.11."
        ),
    ] = "epoch",
    idempotence: Annotated[
        str, option(metavar="yes|no", help="Only idempotent producers, or only others.")
    ] = "any",
    fsync: Annotated[str, option(metavar="never|batch", help="Only this sync policy.")] = "any",
    faults: Annotated[
        str,
        option(
            metavar="CLASS",
            help="Only this class of faults: kill-one, kill-in-turn, partition-leader,"
            " kill-then-power, stop-then-power or power-all.",
        ),
    ] = "any",
    witness: WitnessFile = "",
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Show what can be lost, duplicated or differ with which settings, and a scenario that does it.

    The matrix was computed in advance. It shows the number of simulated sequences of each cell. The
    shown scenario is simulated again.
    """
    from eoctl.lab.sim.guarantees import table as show

    filters = {
        "acks": acks,
        "idempotence": idempotence,
        "min_insync_replicas": min_insync_replicas,
        "replication_factor": replication_factor,
        "unclean": unclean,
        "truncation": truncation,
        "elr": elr,
        "fsync": fsync,
        "faults": faults,
    }
    return show(filters, output, witness)


SUBCOMMANDS = {
    "init": init,
    "run": run,
    "check": check,
    "explore": explore,
    "scripts": scripts,
    "table": table,
}
