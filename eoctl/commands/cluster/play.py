"""`eoctl cluster init`, `run`, `check`: make a cluster, let it live, judge what became of it."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.commands.cluster.declared import (
    AbortEvery,
    Acks,
    AcksOption,
    Burst,
    CommitWhen,
    CutBy,
    Directory,
    Elr,
    Fsync,
    FsyncWhen,
    InFlight,
    IsolationLevel,
    IsolationOption,
    IsrBy,
    MinInsync,
    Nodes,
    NoIdempotence,
    Partitions,
    Rate,
    Records,
    ReplicationFactor,
    Retries,
    TransactionRecords,
    Truncation,
    Unclean,
    cluster_of,
)
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from storage.limits import INT32_MAX


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
        IsrBy, option(help="Who is out of sync: by time, or also by records as before Kafka 0.9.")
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
        int, option(min=1024, max=INT32_MAX, metavar="BYTES", help="segment.bytes.")
    ] = 1_073_741_824,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Make a cluster: a log dir for each node, one topic, a controller with its metadata log."""
    from eoctl.runs.cluster.play import init_cluster

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
    in_flight: InFlight = 5,
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
            help="Repeat the course that explore or table saved; DIR is made for it.",
        ),
    ] = "",
    script: Annotated[
        str,
        option(
            metavar="NAME",
            help="Play a script of eoctl cluster scripts; DIR is made for it.",
        ),
    ] = "",
    seed: Annotated[
        int, option(min=0, max=2**53, metavar="N", help="Another course of events.")
    ] = 0,
    no_heal: Annotated[
        bool, option("--no-heal", help="End as the last fault leaves it: all brokers are killed.")
    ] = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Let the cluster live: brokers, a producer, a consumer and faults, in virtual time.

    At the end all is healed and read once more, and the brokers stop cleanly. One seed gives one
    course of events. The history of the clients is written beside the log dirs.
    """
    from eoctl.cluster.world.settings import RunSettings
    from eoctl.runs.cluster.play import parse_retries, run_cluster
    from eoctl.runs.cluster.replay import replay_saved

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
        str | None, argument(metavar="DIR", help="Directory of a played cluster.")
    ] = None,
    history: Annotated[
        list[str] | None,
        option(metavar="FILE", help="A history of a real cluster, see eoctl-history(5); several."),
    ] = None,
    directory: Annotated[
        list[str] | None,
        option(metavar="DIR", help="With --history: a log dir of each broker."),
    ] = None,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Judge what became of a cluster: its histories and its log dirs, and nothing else.

    Finds acknowledged records that are lost, duplicates, offsets with two values, torn
    transactions, replicas that differ, and other things that must not be.
    """
    from eoctl.runs.cluster.judge import check_cluster

    return check_cluster(path, history or (), directory or (), output)
