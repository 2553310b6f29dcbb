"""`eoctl cluster init`, `run`, `check`: make a cluster, let it live, judge what became of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from eoctl import options
from eoctl.declared import argument, option
from eoctl.output import OutputFormat


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


class Acks(StrEnum):
    """What a producer waits for."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


Directory = Annotated[str, argument(metavar="DIR", help="Directory of the played cluster.")]


def init(
    path: Annotated[str, argument(metavar="DIR", help="A directory that is made.")],
    nodes: Annotated[int, option(min=1, max=99, metavar="N", help="Brokers.")] = 3,
    topic: Annotated[str, option(metavar="NAME", help="The topic.")] = "t",
    partitions: Annotated[int, option(min=1, max=1000, metavar="N", help="Its partitions.")] = 1,
    replication_factor: Annotated[
        int, option(min=1, max=99, metavar="N", help="Replicas of each.")
    ] = 3,
    min_insync_replicas: Annotated[
        int, option(min=1, max=99, metavar="N", help="min.insync.replicas.")
    ] = 1,
    unclean_leader_election: Annotated[
        bool,
        option("--unclean-leader-election", help="unclean.leader.election.enable=true."),
    ] = False,
    elr: Annotated[bool, option("--elr", help="With eligible leader replicas (KIP-966).")] = False,
    truncation: Annotated[
        CutBy, option(help="How a follower finds where to cut; hw as before Kafka 0.11.")
    ] = CutBy.EPOCH,
    fsync: Annotated[
        FsyncWhen, option(help="Sync each batch, or leave it to the operating system.")
    ] = FsyncWhen.NEVER,
    isr_rule: Annotated[
        IsrBy, option(help="Who is out of sync: by time, or also by records as before Kafka 0.9.")
    ] = IsrBy.TIME,
    replica_lag_max_messages: Annotated[
        int, option(min=1, metavar="N", help="With --isr-rule messages.")
    ] = 4000,
    replica_lag_time_max_ms: Annotated[
        int, option(min=1, metavar="MS", help="replica.lag.time.max.ms.")
    ] = 30_000,
    session_timeout_ms: Annotated[
        int, option(min=1, metavar="MS", help="broker.session.timeout.ms.")
    ] = 9000,
    segment_bytes: Annotated[
        int, option(min=1024, metavar="BYTES", help="segment.bytes.")
    ] = 1_073_741_824,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Make a cluster: a log dir for each node, one topic, a controller with its metadata log."""
    from eoctl.cluster.settings import PlaySettings
    from eoctl.runs.cluster.play import init_cluster

    settings = PlaySettings(
        nodes=nodes,
        topic=topic,
        partitions=partitions,
        replication_factor=replication_factor,
        min_insync=min_insync_replicas,
        is_unclean=unclean_leader_election,
        has_elr=elr,
        truncation=truncation.value,
        fsync=fsync.value,
        isr_rule=isr_rule.value,
        lag_max_messages=replica_lag_max_messages,
        lag_time_max_ms=replica_lag_time_max_ms,
        session_timeout_ms=session_timeout_ms,
        segment_bytes=segment_bytes,
    )
    return init_cluster(path, settings, output)


def run(
    path: Directory,
    acks: Annotated[Acks, option(help="acks of the producer.")] = Acks.ALL,
    retries: Annotated[
        str, option(metavar="N|max", help="How often a batch is sent again.")
    ] = "max",
    no_idempotence: Annotated[
        bool, option("--no-idempotence", help="enable.idempotence=false.")
    ] = False,
    records: Annotated[
        int, option(min=1, max=10_000_000, metavar="N", help="Records that are produced.")
    ] = 1000,
    rate: Annotated[
        int,
        option(
            min=0,
            max=1_000_000,
            metavar="N",
            help="Records a second; 0: each as the one before is answered.",
        ),
    ] = 100,
    in_flight: Annotated[
        int, option(min=1, max=1000, metavar="N", help="Batches of a partition without answer.")
    ] = 5,
    batch_records: Annotated[
        int, option(min=1, max=10_000, metavar="N", help="batch.num.messages.")
    ] = 200,
    linger_ms: Annotated[
        int, option(min=0, max=60_000, metavar="MS", help="queue.buffering.max.ms.")
    ] = 0,
    buffer_records: Annotated[
        int, option(min=1, metavar="N", help="queue.buffering.max.messages.")
    ] = 10_000,
    drop_when_full: Annotated[
        bool, option("--drop-when-full", help="Drop records when the buffer is full.")
    ] = False,
    faults: Annotated[
        str,
        option(metavar="FAULTS", help="Such as 'kill leader at 20%, start all at 70%'."),
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
    from eoctl.cluster.settings import RunSettings
    from eoctl.runs.cluster.play import parse_retries, run_cluster

    settings = RunSettings(
        seed=seed,
        acks=-1 if acks is Acks.ALL else int(acks.value),
        retries=parse_retries(retries),
        is_idempotent=not no_idempotence and acks is Acks.ALL,
        records=records,
        rate=rate,
        in_flight=in_flight,
        batch_records=batch_records,
        linger_ms=linger_ms,
        buffered_max=buffer_records,
        is_blocking=not drop_when_full,
        faults=faults,
        heals=not no_heal,
    )
    return run_cluster(path, settings, output)


def check(path: Directory, output: options.Output = OutputFormat.TEXT) -> int:
    """Judge what became of a cluster: its histories and its log dirs, and nothing else.

    Finds acknowledged records that are lost, duplicates, offsets with two values, replicas that
    differ, and other things that must not be.
    """
    from eoctl.runs.cluster.judge import check_cluster

    return check_cluster(path, output)


def explore(
    acks: Annotated[Acks, option(help="acks of the producer.")] = Acks.ALL,
    retries: Annotated[
        str, option(metavar="N|max", help="How often a batch is sent again.")
    ] = "max",
    no_idempotence: Annotated[
        bool, option("--no-idempotence", help="enable.idempotence=false.")
    ] = False,
    nodes: Annotated[int, option(min=1, max=9, metavar="N", help="Brokers.")] = 3,
    partitions: Annotated[int, option(min=1, max=9, metavar="N", help="Partitions.")] = 1,
    replication_factor: Annotated[
        int, option(min=1, max=9, metavar="N", help="Replicas of each.")
    ] = 3,
    min_insync_replicas: Annotated[
        int, option(min=1, max=9, metavar="N", help="min.insync.replicas.")
    ] = 1,
    unclean_leader_election: Annotated[
        bool,
        option("--unclean-leader-election", help="unclean.leader.election.enable=true."),
    ] = False,
    elr: Annotated[bool, option("--elr", help="With eligible leader replicas (KIP-966).")] = False,
    truncation: Annotated[
        CutBy, option(help="How a follower finds where to cut; hw as before Kafka 0.11.")
    ] = CutBy.EPOCH,
    fsync: Annotated[
        FsyncWhen, option(help="Sync each batch, or leave it to the operating system.")
    ] = FsyncWhen.NEVER,
    records: Annotated[
        int, option(min=1, max=10_000, metavar="N", help="Records of each run.")
    ] = 60,
    rate: Annotated[int, option(min=0, max=100_000, metavar="N", help="Records a second.")] = 4,
    in_flight: Annotated[
        int, option(min=1, max=1000, metavar="N", help="Batches of a partition without answer.")
    ] = 5,
    faults: Annotated[
        str,
        option(
            metavar="KINDS",
            help="Of kill, power, partition, stop, kill-one, kill-in-turn, kill-then-power,"
            " stop-then-power,"
            " power-all, partition-leader, rejoin and restart-all, those to be tried.",
        ),
    ] = "kill,power,partition",
    seeds: Annotated[
        int, option(min=1, max=1_000_000, metavar="N", help="So many courses of events.")
    ] = 200,
    seed: Annotated[int, option(min=0, max=2**53, metavar="N", help="The first of them.")] = 0,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Look for a course of events that loses something, and show the shortest in a few steps.

    Plays small clusters with faults that each seed draws, in memory where that is possible. What
    is found is made shorter, and the calls that repeat it are printed.
    """
    from eoctl.cluster.settings import PlaySettings, RunSettings
    from eoctl.runs.cluster.play import parse_retries
    from eoctl.runs.cluster.search import explore_cluster

    settings = PlaySettings(
        nodes=nodes,
        partitions=partitions,
        replication_factor=replication_factor,
        min_insync=min_insync_replicas,
        is_unclean=unclean_leader_election,
        has_elr=elr,
        truncation=truncation.value,
        fsync=fsync.value,
    )
    run = RunSettings(
        acks=-1 if acks is Acks.ALL else int(acks.value),
        retries=parse_retries(retries),
        is_idempotent=not no_idempotence and acks is Acks.ALL,
        records=records,
        rate=rate,
        in_flight=in_flight,
    )
    return explore_cluster(settings, run, faults, range(seed, seed + seeds), output)
