"""A group of two clients of librdkafka and Kafka's Java consumer, at a broker and at `eoctl serve`."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from storage.formats.consumer_offsets import ASSIGNMENT, parse
from tests.kafka.broker import KEPT, Broker, copy_log_dir
from tests.kafka.jars import java_command, quick_start
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

TOPICS = {"plain": 2, "txn": 2, "rolled": 1, "compacted": 1}
PARTITIONS = {(name, number) for name, count in TOPICS.items() for number in range(count)}
DEADLINE_S = 180.0
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


@contextmanager
def java_member(bootstrap: str, group: str, assignor: str) -> Iterator[subprocess.Popen[bytes]]:
    """A console consumer, that shows nothing and goes on."""
    command = java_command(
        *quick_start(), "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", bootstrap, "--group", group, "--include", "|".join(TOPICS),
        "--command-property", f"partition.assignment.strategy={JAVA_ASSIGNORS[assignor]}",
    )  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def assigned(bootstrap: str, group: str) -> tuple[str, str, list[set[tuple[str, int]]]]:
    """State and protocol of the group, and what each of its members has, as others are told."""
    with Wire(bootstrap) as wire:
        (found,) = wire.ask("DescribeGroups", 5, {"groups": [group]})["groups"]
    shares = [
        {
            (topic["topic"], number)
            for topic in parse(ASSIGNMENT, each["memberAssignment"])[1]["assignedPartitions"]
            for number in topic["partitions"]
        }
        for each in found["members"]
        if each["memberAssignment"]
    ]
    return found["groupState"], found["protocolData"], shares


def settle(bootstrap: str, group: str, members: int, clients: list[Consumer]) -> str:
    """Wait until so many members share all partitions; returns the protocol they share them by."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        for each in clients:
            each.poll(0.05)
        state, protocol, shares = assigned(bootstrap, group)
        if state == "Stable" and len(shares) == members and set().union(*shares) == PARTITIONS:
            assert sum(map(len, shares)) == len(PARTITIONS), shares  # nobody shares one
            return protocol
        assert time.monotonic() < deadline_s, (state, protocol, shares)


@pytest.mark.exhaustive
@pytest.mark.parametrize("assignor", [*JAVA_ASSIGNORS])
def test_clients_of_both_kinds_share_a_group(
    assignor: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Three, then two of one kind, then one: each time all partitions are somebody's, and once."""
    dead = golden("kafka-4.3.1") / "clean"
    group = f"mixed-{assignor}"
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(copy_log_dir(dead, tmp_path / "live"), overrides=KEPT))
        served = stack.enter_context(Served(dead))
        for bootstrap in (broker.bootstrap, served.bootstrap):
            clients = [
                Consumer({
                    "bootstrap.servers": bootstrap, "group.id": group, "log_level": 0,
                    "partition.assignment.strategy": assignor, "session.timeout.ms": 6000,
                    "heartbeat.interval.ms": 500, "enable.auto.commit": False,
                })
                for _ in range(2)
            ]  # fmt: skip
            for each in clients:
                each.subscribe([*TOPICS])
            assert settle(bootstrap, group, 2, clients) == assignor
            with java_member(bootstrap, group, assignor) as process:
                assert settle(bootstrap, group, 3, clients) == assignor
                assert process.poll() is None
                clients.pop().close()
                assert settle(bootstrap, group, 2, clients) == assignor
            assert settle(bootstrap, group, 1, clients) == assignor  # killed: its time is over
            clients.pop().close()
            assert assigned(bootstrap, group)[0] == "Empty"
