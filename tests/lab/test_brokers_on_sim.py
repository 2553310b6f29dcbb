"""Real brokers start on the log dirs of a simulated cluster, serve what it had, and go on."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from eoctl.lab.environment.settings import CONTROLLER_ID
from eoctl.lab.layout import REAL_CONTROLLER_NAME
from tests.kafka import client
from tests.kafka.cluster import Cluster
from tests.kafka.dump import dump_each, dumpable_files
from tests.kafka.raw_produce import (
    INVALID_PRODUCER_EPOCH,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    Answer,
    RawProducer,
)
from tests.writing import batch, partition_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome


pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]

PARTITIONS = 2
PROBLEMS = (b"Mismatches in", b"timestamp in :", b"not found in", b"Non-consecutive", b"xception")


class Simulated(NamedTuple):
    """How a cluster is made and run; `is_safe`: nothing that was acknowledged may be lost."""

    init: tuple[str, ...]
    run: tuple[str, ...]
    is_safe: bool = True


SIMULATED = {
    "kills": Simulated(
        ("--min-insync-replicas", "2"),
        ("--faults", "kill leader at 20%, kill any at 40%, start all at 70%"),
    ),
    "all lose power, synced": Simulated(
        ("--min-insync-replicas", "2", "--fsync", "batch", "--elr"),
        ("--faults", "kill follower at 30%, power all at 50%"),
    ),
    "all lose power": Simulated((), ("--faults", "power all at 50%"), is_safe=False),
    "unclean": Simulated(
        ("--unclean-leader-election", "--elr", "--min-insync-replicas", "2"),
        ("--acks", "1", "--faults", "kill 1 at 20%, kill 2 at 40%, power 0 at 60%, start 1 at 70%"),
        is_safe=False,
    ),
    "left as they died": Simulated(
        ("--min-insync-replicas", "2"),
        ("--faults", "kill follower at 30%, start all at 60%, kill all at 100%", "--no-heal"),
    ),
}


class Last(NamedTuple):
    """The last batch of a producer in a log."""

    producer_id: int
    epoch: int
    base_sequence: int
    count: int
    base_offset: int


def last_batch(log: Path) -> Last:
    headers = [placed.batch.header for placed in partition_at(log).read(0)]
    last = headers[-1]
    count = last.last_offset - last.base_offset + 1
    return Last(last.producer_id, last.producer_epoch, last.base_sequence, count, last.base_offset)


def values_of(
    eoctl: Callable[..., Outcome], log: Path, isolation: str = client.READ_UNCOMMITTED
) -> list[str]:
    outcome = eoctl("consume", log, "--isolation", isolation, "-o", "jsonl")
    assert outcome.status == 0, outcome.errors
    return [json.loads(each)["value"] for each in outcome.text.splitlines()]


def acknowledged_in(simulate: Path) -> set[str]:
    lines = map(json.loads, (simulate / "history-1.jsonl").read_text().splitlines()[1:])
    return {each["value"] for each in lines if (each["op"], each["type"]) == ("send", "ok")}


def go_on(cluster: Cluster, partition: int, leader: int, last: Last) -> None:
    """Send the last batch again, one with a gap, and the next one, of three records.

    A log without a producer gets one that is new.
    """
    now_ms = int(time.time() * 1000)

    def send(sender: RawProducer, sequence: int, count: int) -> Answer:
        identity = (last.producer_id, last.epoch, sequence) if has_producer else (7, 0, sequence)
        return sender.send("t", partition, batch(count, identity, timestamp_ms=now_ms))

    has_producer = last.producer_id >= 0
    sequence = last.base_sequence + last.count if has_producer else 0
    with RawProducer(cluster.bootstrap_of(leader)) as sender:
        if has_producer:
            again = send(sender, last.base_sequence, last.count)
            assert again == Answer(NONE, last.base_offset)
            assert send(sender, sequence + 5, 1).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(sender, sequence, 3) == Answer(NONE, last.base_offset + last.count)


@pytest.fixture
def begun_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of simulated clusters begins an hour ago: a real broker forgets older producers."""
    from eoctl.lab import simulation
    from eoctl.lab.sim import simulate

    assert simulation
    assert simulate
    start_ms = int(time.time() * 1000) - 3_600_000
    for name, module in [*sys.modules.items()]:
        if name.startswith("eoctl.") and hasattr(module, "START_MS"):
            monkeypatch.setattr(module, "START_MS", start_ms)


@pytest.mark.share(1)
@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.usefixtures("begun_today")
def test_real_brokers_go_on_with_it(
    eoctl: Callable[..., Outcome], tmp_path: Path, name: str
) -> None:
    simulated = SIMULATED[name]
    simulate = tmp_path / "play"
    assert eoctl("sim", "init", simulate, "--partitions", PARTITIONS, *simulated.init).status == 0
    ran = eoctl("sim", "run", simulate, "--records", 200, *simulated.run)
    assert ran.status in (0, 5), ran.errors
    assert eoctl("check", *simulate.glob("node-*")).status in (0, 1)
    shutil.copytree(simulate / REAL_CONTROLLER_NAME, simulate / f"node-{CONTROLLER_ID}")
    acknowledged = acknowledged_in(simulate)
    before = {
        (node, number): values_of(eoctl, simulate / f"node-{node}" / f"t-{number}")
        for node in range(3)
        for number in range(PARTITIONS)
    }
    # With their own time of 10 minutes brokers would delete all: the topic's settings keep it.
    overrides = {
        "log.retention.ms": "600000", "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "0",
    }  # fmt: skip
    with Cluster(simulate, overrides=overrides) as cluster:
        read: set[str] = set()
        for number in range(PARTITIONS):
            seen = cluster.wait_for("t", number, isr={0, 1, 2})
            log = simulate / f"node-{seen.leader}" / f"t-{number}"
            reported = client.consume(
                cluster.bootstrap, "t", number, isolation=client.READ_UNCOMMITTED
            )
            got = [(each.value or b"").decode() for each in reported.records]
            assert got == before[seen.leader, number]
            read |= {*got}
            go_on(cluster, number, seen.leader, last_batch(log))
            sender = client.producer(cluster.bootstrap, enable_idempotence=True)
            more = [client.Outgoing("t", number, None, b"more")] * 2
            offsets = [offset for _, _, offset in client.send(sender, more)]
            assert offsets == [reported.end_offset + 3, reported.end_offset + 4]
        assert len(read) > 10  # of those that lose power most are gone
        assert not simulated.is_safe or acknowledged <= read
        cluster.stop(*cluster.broker_ids)
    nodes = [simulate / f"node-{each}" for each in range(3)]
    for each in nodes:
        dumped = dump_each([path for path in dumpable_files(each) if path.parent.name[:2] == "t-"])
        assert dumped
        for path, result in dumped.items():
            assert result.returncode == 0, path
            assert not any(words in result.text for words in PROBLEMS), (path, result.text[-900:])
    checked = eoctl("check", *nodes)
    assert checked.status == 0, checked.text


TRANSACTIONAL = {
    "kills": SIMULATED["kills"],
    "all lose power, synced": SIMULATED["all lose power, synced"],
    # Nobody is there to take the markers of the last transaction.
    "left open": Simulated(
        ("--min-insync-replicas", "2"),
        ("--faults", "kill follower at 30%, start all at 40%, kill all at 55%", "--no-heal"),
    ),
}
LEVELS = (client.READ_UNCOMMITTED, client.READ_COMMITTED)


def committed_in(simulate: Path) -> set[str]:
    """What was acknowledged in transactions that were told to be committed."""
    reported = map(json.loads, (simulate / "history-1.jsonl").read_text().splitlines()[1:])
    done = [each for each in reported if each["type"] == "ok"]
    committed = {each["transaction"] for each in done if each["op"] == "commit"}
    sends = (each for each in done if each["op"] == "send")
    return {each["value"] for each in sends if each["transaction"] in committed}


def values_from(reported: client.Consumed) -> list[str]:
    return [(each.value or b"").decode() for each in reported.records]


def zombie_of(log: Path) -> tuple[int, int, int]:
    """Who sent the last batch of data, and the sequence behind it."""
    headers = [placed.batch.header for placed in partition_at(log).read(0)]
    last = [each for each in headers if not each.is_control][-1]
    assert last.is_transactional
    return last.producer_id, last.producer_epoch, last.last_sequence + 1


@pytest.mark.share(1)
@pytest.mark.parametrize("name", TRANSACTIONAL)
@pytest.mark.usefixtures("begun_today")
def test_real_brokers_go_on_with_its_transactions(
    eoctl: Callable[..., Outcome], tmp_path: Path, name: str
) -> None:
    """REPL-7, REPL-13: a real read_committed client is given what ours is, and no zombie gets in."""
    simulated, simulate, is_open = TRANSACTIONAL[name], tmp_path / "play", name == "left open"
    assert eoctl("sim", "init", simulate, "--partitions", PARTITIONS, *simulated.init).status == 0
    ran = eoctl(
        "sim", "run", simulate, "--records", 200, "--transaction-records", 7, "--abort-every", 3,
        *simulated.run,
    )  # fmt: skip
    assert ran.status == (5 if is_open else 0), ran.errors
    assert eoctl("check", *simulate.glob("node-*")).status in (0, 1)
    shutil.copytree(simulate / REAL_CONTROLLER_NAME, simulate / f"node-{CONTROLLER_ID}")
    before = {
        (node, number, level): values_of(eoctl, simulate / f"node-{node}" / f"t-{number}", level)
        for node in range(3)
        for number in range(PARTITIONS)
        for level in LEVELS
    }
    with Cluster(simulate) as cluster:

        def read(number: int, level: str) -> client.Consumed:
            return client.consume(cluster.bootstrap, "t", number, isolation=level)

        given: list[str] = []
        stuck: set[int] = set()
        for number in range(PARTITIONS):
            leader = cluster.wait_for("t", number, isr={0, 1, 2}).leader
            uncommitted, committed = (read(number, level) for level in LEVELS)
            assert values_from(uncommitted) == before[leader, number, client.READ_UNCOMMITTED]
            assert values_from(committed) == before[leader, number, client.READ_COMMITTED]
            assert len(uncommitted.records) > len(committed.records) > 20
            given += values_from(committed)
            if committed.end_offset < uncommitted.end_offset:
                stuck.add(number)
                continue
            identity = zombie_of(simulate / f"node-{leader}" / f"t-{number}")
            late = batch(1, identity, timestamp_ms=int(time.time() * 1000))
            with RawProducer(cluster.bootstrap_of(leader)) as sender:
                assert sender.send("t", number, late).error_code == INVALID_PRODUCER_EPOCH
        assert bool(stuck) == is_open
        assert len(given) == len({*given})
        reported = committed_in(simulate)
        assert {*given} <= reported if is_open else {*given} == reported
        session = client.transactional_producer(cluster.bootstrap, "eoctl-producer-0")
        for value, commit in ((b"more", True), (b"less", False)):
            records = [client.Outgoing("t", number, None, value) for number in range(PARTITIONS)]
            client.transact(session, records, commit=commit)
        for number in range(PARTITIONS):
            leader = cluster.wait_for("t", number, isr={0, 1, 2}).leader
            known, known_too = (before[leader, number, level] for level in LEVELS)
            assert values_from(read(number, LEVELS[0])) == [*known, "more", "less"]
            # Behind one that is open, and that nobody ends, nothing is given.
            more = [] if number in stuck else ["more"]
            assert values_from(read(number, LEVELS[1])) == [*known_too, *more]
        cluster.stop(*cluster.broker_ids)
    checked = eoctl("check", *(simulate / f"node-{each}" for each in range(3)), "-o", "jsonl")
    found = {json.loads(each).get("check_id") for each in checked.text.splitlines()} - {None}
    assert found <= {"TXO-1", "TXO-2"}, found  # what is open; a marker without data is none
    assert ("TXO-1" in found) == is_open
    assert checked.status == is_open
