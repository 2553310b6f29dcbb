"""A real broker takes over what our transaction coordinator left, and ours what a broker left."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from recovery.cluster.coordinator_log import CoordinatorLog
from storage.dirs.log_dir import read_log_dir
from storage.formats.transaction_state import TransactionStatus
from tests.kafka import client
from tests.kafka.broker import Broker, copy_log_dir
from tests.transactional import session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

SOURCE, TARGET = "words", "shouts"
IDS = ("finished", "prepared", "withdrawn", "ongoing")
WAIT_S = 60.0
LINES = [f"line {number}".encode() for number in range(50)]


def states(log_dir: Path) -> dict[str, TransactionStatus]:
    found = CoordinatorLog([read_log_dir(log_dir)])
    assert found.problems == []
    return {name: each.state.status for name, each in found.ids.items() if each.state is not None}


def committed(bootstrap: str, partition: int = 0) -> client.Consumed:
    return client.consume(bootstrap, TARGET, partition, isolation=client.READ_COMMITTED)


def consumed(eoctl: Callable[..., Outcome], partition: Path) -> list[str]:
    outcome = eoctl("consume", partition, "--isolation", "read_committed", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    return [each["value"] for each in rows if "value" in each]


def wait_until_ended(bootstrap: str, end_offset: int) -> client.Consumed:
    """A broker aborts by itself what has timed out; until then it holds back what follows."""
    deadline_s = time.monotonic() + WAIT_S
    while (found := committed(bootstrap)).end_offset < end_offset:
        assert time.monotonic() < deadline_s, found.end_offset
    return found


def wait_for(bootstrap: str, topic: str, value: bytes) -> None:
    """A commit is answered when it is decided; the marker that lets the data be seen comes after."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        found = client.consume(bootstrap, topic, 0, isolation=client.READ_COMMITTED)
        if found.records[-1].value == value:
            return
        assert time.monotonic() < deadline_s, found.end_offset


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("version", [1, 2])
def test_a_broker_goes_on_with_our_transactions(
    version: int, tmp_path: Path, eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = tmp_path / "log-dir"
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    with Broker(log_dir, overrides=often) as broker:
        client.create_topics(broker.bootstrap, {SOURCE: (1, {}), TARGET: (2, {})})
        sender = client.transactional_producer(broker.bootstrap, IDS[0])
        records = [client.Outgoing(SOURCE, 0, None, each) for each in LINES]
        client.transact(sender, records, commit=True, offsets={(SOURCE, 0): 0}, group="g")

    # Its own id, taken over by ours: four transactions, and the offsets of a group in them.
    outcome = eoctl(
        *("txn", "run", log_dir / f"{SOURCE}-0", "--to", log_dir, "--to-topic", TARGET),
        *("--exec", "tr a-z A-Z", "--transactional-id", IDS[0], "--group", "g"),
        *("--txn-records", 15, "--transaction-version", version, "--apply", "--output", "jsonl"),
    )
    assert outcome.status == 0, outcome.errors
    with session(log_dir, "prepared", version=version) as begun:
        begun.send(TARGET, 0, b"prepared")
        begun.send(TARGET, 1, b"prepared")
        begun.prepare(monkeypatch, is_commit=True)
    with session(log_dir, "withdrawn", version=version) as begun:
        begun.send(TARGET, 0, b"withdrawn")
        begun.prepare(monkeypatch, is_commit=False)
    with session(log_dir, "ongoing", timeout_ms=2000, version=version, is_closed=False) as begun:
        begun.send(TARGET, 0, b"ongoing")
    # The third session has finished what the others had decided; so one more is prepared.
    with session(log_dir, "prepared", version=version, is_closed=False) as begun:
        begun.send(TARGET, 1, b"again")
        begun.prepare(monkeypatch, is_commit=True)
    before = states(log_dir)
    assert [before[each] for each in IDS] == [
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.COMPLETE_ABORT,
        TransactionStatus.ONGOING,
    ]

    with Broker(log_dir, overrides=often) as broker:
        ends = [
            client.consume(
                broker.bootstrap, TARGET, each, isolation=client.READ_UNCOMMITTED
            ).end_offset
            for each in (0, 1)
        ]
        found = [wait_until_ended(broker.bootstrap, ends[0]), committed(broker.bootstrap, 1)]
        values = sorted(each.value or b"" for one in found for each in one.records)
        shouted = [each.upper() for each in LINES]
        assert values == sorted([*shouted, b"prepared", b"prepared", b"again"])
        # A real client goes on with the same ids, where the group had come to.
        sender = client.transactional_producer(broker.bootstrap, IDS[0])
        client.transact(sender, [client.Outgoing(TARGET, 1, None, b"theirs")], commit=True)
        sender = client.transactional_producer(broker.bootstrap, "ongoing")
        client.transact(sender, [client.Outgoing(TARGET, 0, None, b"after")], commit=True)
        wait_for(broker.bootstrap, TARGET, b"after")
        end = client.consume(broker.bootstrap, SOURCE, 0, isolation=client.READ_UNCOMMITTED)
        assert client.committed_offset(broker.bootstrap, "g", SOURCE, 0) == end.end_offset
        reported = [[(each.value or b"").decode() for each in committed(broker.bootstrap, one).records]
                for one in (0, 1)]  # fmt: skip
        errors = broker.error_lines()
        assert not [each for each in errors if "oordinator" in each or "ransaction" in each]

    assert reported == [consumed(eoctl, log_dir / f"{TARGET}-{each}") for each in (0, 1)]
    after = states(log_dir)
    assert {after[each] for each in ("prepared", "finished")} == {TransactionStatus.COMPLETE_COMMIT}
    # And ours again after the broker, which has fenced it meanwhile.
    lines = tmp_path / "lines"
    lines.write_bytes(b"ours\n")
    outcome = eoctl(
        "produce", log_dir / f"{TARGET}-0", lines, "--transactional-id", "ongoing", "--apply"
    )
    assert outcome.status == 0, outcome.errors
    assert consumed(eoctl, log_dir / f"{TARGET}-0") == [*reported[0], "ours"]


@pytest.mark.exhaustive
def test_ours_goes_on_with_a_brokers(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """A killed broker had two transactions open: one is aborted by a session of its id."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path / "log-dir")
    before = consumed(eoctl, log_dir / "txn-0")
    lines = tmp_path / "lines"
    lines.write_bytes(b"one\ntwo\n")
    outcome = eoctl(
        *("produce", log_dir / "txn-0", lines, "--transactional-id", "open-1", "--apply"),
    )
    assert outcome.status == 0, outcome.errors
    assert "its transaction was aborted" in outcome.errors
    rows = [
        json.loads(line)
        for line in eoctl("txn", "list", log_dir, "--output", "jsonl").text.splitlines()
    ]
    assert [each["transactional_id"] for each in rows if each["kind"] == "transaction"] == [
        "open-2"
    ]
    with Broker(log_dir) as broker:
        found = client.consume(broker.bootstrap, "txn", 0, isolation=client.READ_COMMITTED)
        values = [(each.value or b"").decode() for each in found.records]
        assert values[-2:] == ["one", "two"]
        blocked = len(values) - len(before) - 2
        assert blocked > 0  # behind the one that was open
    assert values == [each or "" for each in consumed(eoctl, log_dir / "txn-0")]


@pytest.mark.exhaustive
def test_a_broker_goes_on_with_what_was_completed_for_it(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """A killed broker had two transactions open, which are late: both are aborted before it."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path / "log-dir")
    outcome = eoctl("txn", "complete", log_dir, "--apply")
    assert outcome.status == 0, outcome.errors
    with Broker(log_dir) as broker:
        for number, end_offset in ((0, 330), (1, 295)):
            found = client.consume(broker.bootstrap, "txn", number, isolation=client.READ_COMMITTED)
            assert found.end_offset == end_offset  # nothing is held back
            values = [(each.value or b"").decode() for each in found.records]
            assert values == [each or "" for each in consumed(eoctl, log_dir / f"txn-{number}")]
        sender = client.transactional_producer(broker.bootstrap, "open-1")
        client.transact(sender, [client.Outgoing("txn", 0, None, b"next")], commit=True)
        wait_for(broker.bootstrap, "txn", b"next")
        errors = broker.error_lines()
        assert not [each for each in errors if "oordinator" in each or "ransaction" in each]
    assert consumed(eoctl, log_dir / "txn-0")[-1] == "next"
