"""Settings of real nodes on the loopback: one table for `bench`, and for the tests that start some.

They are what differs from a broker's defaults: many nodes share a machine, live for minutes, and
are missed soon when they die. Internal topics have few partitions, so that there is less to elect
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONTROLLER_ID = 100
# Below those that a system gives to clients, so that nobody else gets one while its node is down.
FIRST_PORT, LAST_PORT = 20_000, 32_000

# Of any node, alone or in a cluster.
NODE = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "num.io.threads": "4",
    "num.network.threads": "2",
}
# Of a node among others.
CLUSTER_NODE = {
    **NODE,
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "4000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.threads": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


def replication_factors(brokers_count: int) -> dict[str, str]:
    """Give those of the internal topics, as many as there can be, up to three."""
    factor = str(min(brokers_count, 3))
    return {f"{each}.replication.factor": factor for each in INTERNAL_TOPICS}


def node_lines(
    node: int,
    ports: Mapping[int, tuple[int, int]],
    controllers: tuple[int, ...],
    *,
    is_broker: bool,
    log_dir: Path,
) -> dict[str, str]:
    """Give what a node is, and where it and its controllers are.

    Args:
        node: its id.
        ports: of each node, for clients and for controllers.
        controllers: ids of those that are controllers.
        is_broker: it is one; a controller, too, if it is among these.
        log_dir: its only one.
    """
    client, own = (f"127.0.0.1:{port}" for port in ports[node])
    is_controller = node in controllers
    listeners = [f"PLAINTEXT://{client}"] * is_broker + [f"CONTROLLER://{own}"] * is_controller
    lines = {
        "process.roles": ",".join(["broker"] * is_broker + ["controller"] * is_controller),
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{each}@127.0.0.1:{ports[each][1]}" for each in controllers
        ),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(log_dir),
    }
    if is_broker:
        lines |= {
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": listeners[0],
        }
    return lines
