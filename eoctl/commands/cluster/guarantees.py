"""`eoctl cluster explore`, `table`, `scripts`: what a cluster may lose, and how that goes."""

from __future__ import annotations

from typing import Annotated

from eoctl import options
from eoctl.commands.cluster.declared import (
    AbortEvery,
    Acks,
    AcksOption,
    Burst,
    CutBy,
    Elr,
    Fsync,
    FsyncWhen,
    InFlight,
    IsolationLevel,
    IsolationOption,
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
    WitnessFile,
    cluster_of,
)
from eoctl.declared import option
from eoctl.output import OutputFormat


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
    in_flight: InFlight = 5,
    transaction_records: TransactionRecords = 0,
    abort_every: AbortEvery = 0,
    isolation: IsolationOption = IsolationLevel.READ_COMMITTED,
    faults: Annotated[
        str,
        option(
            metavar="KINDS",
            help="Of kill, power, partition, stop, kill-one, kill-in-turn, kill-then-power,"
            " stop-then-power, power-all, partition-leader, rejoin, restart-all, isr-change,"
            " slow-one, slow-change, first-back and longer-log, those to be tried.",
        ),
    ] = "kill,power,partition",
    seeds: Annotated[
        int, option(min=1, max=1_000_000, metavar="N", help="So many courses of events.")
    ] = 200,
    seed: Annotated[int, option(min=0, max=2**53, metavar="N", help="The first of them.")] = 0,
    witness: WitnessFile = "",
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Look for a course of events that loses something, and show the shortest in a few steps.

    Plays small clusters with faults that each seed draws, in memory where that is possible. What
    is found is made shorter, and the calls that repeat it are printed.
    """
    from eoctl.cluster.world.settings import RunSettings
    from eoctl.runs.cluster.play import parse_retries
    from eoctl.runs.cluster.search import explore_cluster

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
    """List the courses of events that are shipped: what serves after which deaths, and what helps.

    eoctl cluster run DIR --script NAME plays one.
    """
    from eoctl.runs.cluster.replay import list_scripts

    return list_scripts(output)


def table(
    acks: Annotated[str, option(metavar="0|1|all", help="Only with these acks.")] = "any",
    min_insync_replicas: Annotated[
        str, option(metavar="1|2", help="Only with this min.insync.replicas.")
    ] = "any",
    replication_factor: Annotated[
        str, option(metavar="1|2|3", help="Only with so many replicas.")
    ] = "any",
    unclean: Annotated[
        str,
        option(
            "--unclean-leader-election", metavar="yes|no", help="Only where it is, or is not, on."
        ),
    ] = "any",
    elr: Annotated[str, option(metavar="yes|no", help="Only with, or without, ELR.")] = "any",
    truncation: Annotated[
        str,
        option(
            metavar="epoch|hw|any", help="Where followers cut by this; hw as before Kafka 0.11."
        ),
    ] = "epoch",
    idempotence: Annotated[
        str, option(metavar="yes|no", help="Only idempotent producers, or only others.")
    ] = "any",
    fsync: Annotated[
        str, option(metavar="never|batch", help="Only where logs are synced then.")
    ] = "any",
    faults: Annotated[
        str,
        option(
            metavar="CLASS",
            help="Only what befalls it: kill-one, kill-in-turn, partition-leader,"
            " kill-then-power, stop-then-power or power-all.",
        ),
    ] = "any",
    witness: WitnessFile = "",
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Show what may be lost, doubled or differ with which settings, and one course that does.

    The matrix was searched before; how many courses of events were tried in each cell is shown.
    The course that is told is played anew.
    """
    from eoctl.runs.cluster.table import table as show

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
