"""Groups that `eoctl groups` finds, against kafka-consumer-groups on a broker over the same files."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.changes import rows_of
from tests.kafka import client
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.group_tool import consumer_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

pytestmark = pytest.mark.broker

WAIT_S = 60.0
# A member that stays, and leaves as a process does that is killed.
MEMBER = """
import sys, time
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                     "group.protocol": sys.argv[3], "client.id": "app", "enable.auto.commit": False})
consumer.subscribe(["t"])
while True:
    consumer.poll(0.1)
    print(len(consumer.assignment()), flush=True)
"""


@contextmanager
def member(broker: Broker, group: str, protocol: str) -> Iterator[None]:
    """A consumer that has both partitions of `t`, until the end of the block; then it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, broker.bootstrap, group, protocol],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        deadline_s = time.monotonic() + WAIT_S
        while process.stdout.readline().strip() != "2":
            assert time.monotonic() < deadline_s, broker.log_tail()
        yield
    finally:
        process.kill()
        process.communicate()


def write(broker: Broker) -> None:
    """Two topics, and offsets of several groups: at the end, behind, beyond, in transactions."""
    client.create_topics(broker.bootstrap, {"t": (2, {}), "u": (1, {})})
    sender = client.producer(broker.bootstrap)
    for topic, number, count in (("t", 0, 30), ("t", 1, 20), ("u", 0, 10)):
        records = (
            client.Outgoing(topic, number, None, b"%d" % each, [], 1_700_000_000_000 + each)
            for each in range(count)
        )
        client.send(sender, records)
    client.commit_offsets(broker.bootstrap, "behind", {("t", 0): 7, ("t", 1): 20, ("u", 0): 0})
    client.commit_offsets(broker.bootstrap, "stays", {("t", 0): 3})
    client.commit_offsets(broker.bootstrap, "modern", {("t", 1): 4})
    client.commit_offsets(broker.bootstrap, "gone", {("t", 1): 4})
    client.delete_groups(broker.bootstrap, ["gone"])
    transactional = client.transactional_producer(broker.bootstrap, "tid")
    for is_commit, offset in ((True, 5), (False, 9)):
        records = (client.Outgoing("u", 0, None, b"x", [], 1_700_000_000_000) for _ in range(2))
        client.transact(
            transactional, records, commit=is_commit, offsets={("u", 0): offset}, group="in-txn"
        )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir as a kill leaves it, with two groups that had a member then."""
    root = tmp_path_factory.mktemp("groups")
    with Broker(root / "live") as broker:
        write(broker)
        with member(broker, "stays", "classic"), member(broker, "modern", "consumer"):
            broker.kill()
    return root / "live"


def rows(eoctl: Cli, call: str, kind: str, *arguments: object) -> list[dict[str, Any]]:
    outcome = eoctl("groups", call, *arguments, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    return rows_of(outcome, kind)


@pytest.mark.exhaustive
def test_the_same_answers(stopped: Path, tmp_path: Path, eoctl: Cli) -> None:
    """Offsets, ends, lags, members and states, of a broker that has just loaded the same files."""
    log_dir = copy_log_dir(stopped, tmp_path / "log-dir")
    described = rows(eoctl, "describe", "committed_offset", log_dir)
    listed = rows(eoctl, "list", "group", log_dir)
    with Broker(log_dir) as broker:
        theirs = consumer_groups(broker, "--describe", "--all-groups")
        states = consumer_groups(broker, "--list", "--state", "--type")
        members = consumer_groups(broker, "--describe", "--all-groups", "--members")
    assert {_row(each) for each in described} == {
        tuple(each[name] for name in (
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
            "HOST", "CLIENT-ID"))
        for each in theirs
    }  # fmt: skip
    assert {(each["group"], each["type"], each["state"]) for each in listed} == {
        (each["GROUP"], each["TYPE"], each["STATE"]) for each in states
    }
    ours = rows(eoctl, "describe", "member", stopped)
    assert {(each["group"], each["member_id"], str(each["assigned_count"])) for each in ours} == {
        (each["GROUP"], each["CONSUMER-ID"], each["#PARTITIONS"]) for each in members
    }
    assert {each["group"] for each in ours} == {"stays", "modern"}


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    names = (
        "group", "topic", "partition", "committed_offset", "log_end_offset", "lag_offsets",
        "member_id", "host", "client_id",
    )  # fmt: skip
    return tuple("-" if row[name] is None else str(row[name]) for name in names)
