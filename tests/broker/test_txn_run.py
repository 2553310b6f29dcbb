"""One transaction over several topics: a real client sees all of it in each of them, or nothing."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from storage.writing.coordinator import TransactionCoordinator
from tests.kafka import client
from tests.kafka.broker import Broker
from tests.transactional import DeadError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

SOURCE, EVEN, ODD = "words", "even", "odd"
COUNT, PER_TRANSACTION = 40, 10
WAIT_S = 60.0
NAMING = r"""sed -E 's/.*"value":"([0-9]*[02468])".*/{"topic":"even","value":"\1"}/;t
s/.*"value":"([0-9]+)".*/{"topic":"odd","value":"\1"}/'"""


def read(broker: Broker, topic: str, isolation: str) -> list[int]:
    found = client.consume(broker.bootstrap, topic, 0, isolation=isolation)
    return [int(each.value or b"") for each in found.records]


@pytest.mark.exhaustive
@pytest.mark.share(2)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("dies_at", ["decide", "_complete"])
def test_all_or_nothing_in_both_topics(
    version: int,
    dies_at: str,
    tmp_path: Path,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second run dies with data in both topics: before the commit is decided, or behind."""
    log_dir = tmp_path / "log-dir"
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    with Broker(log_dir, overrides=often) as broker:
        client.create_topics(broker.bootstrap, {name: (1, {}) for name in (SOURCE, EVEN, ODD)})
        sender = client.transactional_producer(broker.bootstrap, "first")
        records = [client.Outgoing(SOURCE, 0, None, b"%d" % n) for n in range(COUNT)]
        client.transact(sender, records, commit=True, offsets={(SOURCE, 0): 0}, group="g")
    call = (
        *("txn", "run", log_dir / f"{SOURCE}-0", "--to", log_dir, "--to-topic", EVEN),
        *("--to-topic", ODD, "--exec", NAMING, "--format", "jsonl", "--transactional-id", "pipe"),
        *("--group", "g", "--txn-records", PER_TRANSACTION, "--transaction-version", version),
        *("--transaction-timeout-ms", 2000, "--apply", "--output", "jsonl"),
    )
    outcome = eoctl(*call, "--max-transactions", 1)
    assert outcome.status == 0, outcome.errors

    def die(*_: object, **__: object) -> None:
        raise DeadError

    with monkeypatch.context() as patched:
        patched.setattr(TransactionCoordinator, dies_at, die)
        with pytest.raises(DeadError):
            eoctl(*call, "--max-transactions", 1)
    is_decided = dies_at == "_complete"
    done_count = PER_TRANSACTION * (2 if is_decided else 1)

    with Broker(log_dir, overrides=often) as broker:
        sent = [read(broker, topic, client.READ_UNCOMMITTED) for topic in (EVEN, ODD)]
        assert [len(each) for each in sent] == [PER_TRANSACTION] * 2  # of two transactions
        deadline_s = time.monotonic() + WAIT_S
        while True:  # until the broker has ended it, which it does by itself
            ends = [
                [client.consume(broker.bootstrap, topic, 0, isolation=each).end_offset
                 for each in (client.READ_COMMITTED, client.READ_UNCOMMITTED)]
                for topic in (EVEN, ODD)
            ]  # fmt: skip
            if all(one == other for one, other in ends):
                break
            assert time.monotonic() < deadline_s, broker.log_tail()
        for topic, rest in ((EVEN, 0), (ODD, 1)):
            wanted = [n for n in range(done_count) if n % 2 == rest]
            assert read(broker, topic, client.READ_COMMITTED) == wanted
        assert client.committed_offset(broker.bootstrap, "g", SOURCE, 0) == done_count

    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    (row,) = (json.loads(line) for line in outcome.text.splitlines() if '"transform"' in line)
    assert row["records_in"] == COUNT - done_count
    with Broker(log_dir) as broker:
        for topic, rest in ((EVEN, 0), (ODD, 1)):
            wanted = [n for n in range(COUNT) if n % 2 == rest]
            assert read(broker, topic, client.READ_COMMITTED) == wanted
        errors = broker.error_lines()
        assert not [each for each in errors if "oordinator" in each or "ransaction" in each]
