"""A hanging transaction is aborted offline: a real client reads past it, and its id goes on."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.hanging import forget, newest_state
from tests.kafka import client
from tests.kafka.broker import Broker
from tests.kafka.jars import java_command, quick_start
from tests.writing import headers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

TOPIC, STUCK, OTHER = "held", "stuck", "other"
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
LATER_MS = 1_300_000
RECORDS_COUNT = 25
WAIT_S = 60.0


def java_producer(broker: Broker, records_count: int, transaction_ms: int) -> list[str]:
    """Kafka's own producer, which speaks transaction version 2 where the brokers do."""
    return java_command(
        *quick_start(),
        *(QUIET, "org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC),
        *("--num-records", str(records_count), "--record-size", "40", "--throughput", "200"),
        *("--transactional-id", STUCK, "--transaction-duration-ms", str(transaction_ms)),
        *("--command-property", f"bootstrap.servers={broker.bootstrap}", "linger.ms=0"),
    )


def produce_all(broker: Broker) -> None:
    done = subprocess.run(
        java_producer(broker, RECORDS_COUNT, 30),
        capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stdout + done.stderr


@contextmanager
def transaction_that_goes_on(broker: Broker) -> Iterator[None]:
    """A producer in the middle of a transaction, killed in the end."""
    process = subprocess.Popen(
        java_producer(broker, 1_000_000, 3_600_000),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        process.kill()
        process.wait()


def read(broker: Broker, isolation: str) -> client.Consumed:
    return client.consume(broker.bootstrap, TOPIC, 0, isolation=isolation)


def wait_for_records(broker: Broker, more_than: int) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while len(read(broker, client.READ_UNCOMMITTED).records) <= more_than:
        assert time.monotonic() < deadline_s, broker.log_tail()


def set_transaction_version(broker: Broker, version: int) -> None:
    if version == 2:  # of a new cluster
        return
    feature = f"transaction.version={version}"
    done = subprocess.run(
        java_command(
            *(*quick_start(), QUIET, "org.apache.kafka.tools.FeatureCommand"),
            *("--bootstrap-server", broker.bootstrap, "downgrade", "--feature", feature),
        ),
        capture_output=True, text=True, check=False, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def commit_others(broker: Broker, values: list[bytes]) -> None:
    producer = client.transactional_producer(broker.bootstrap, OTHER)
    records = [client.Outgoing(TOPIC, 0, b"key", value) for value in values]
    client.transact(producer, records, commit=True)


def rows(outcome: Outcome, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in outcome.text.splitlines()]
    return [each for each in found if each["kind"] == kind]


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("version", [1, 2])
def test_a_client_reads_past_it_and_the_id_goes_on(
    version: int, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    log_dir = tmp_path / "log-dir"
    partition = log_dir / f"{TOPIC}-0"
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {TOPIC: (1, {})})
        set_transaction_version(broker, version)
        produce_all(broker)  # so that the id has an epoch, and the producer a marker
        commit_others(broker, [b"before"])
        known_count = RECORDS_COUNT + 1
        with transaction_that_goes_on(broker):
            wait_for_records(broker, known_count)
        commit_others(broker, [b"behind"])

    # The coordinator forgets it: a broker holds everything back, and would for ever.
    forget(log_dir, STUCK)
    _, state = newest_state(log_dir, STUCK)
    assert state.client_transaction_version == (2 if version == 2 else 0)
    with Broker(log_dir) as broker:
        held = read(broker, client.READ_COMMITTED)
        assert len(held.records) == known_count
        if version == 1:  # then the abort recovers the partition first
            broker.kill()
    end_offset = headers_of(partition)[-1].last_offset + 1
    now_ms = int(time.time() * 1000) + LATER_MS
    clock = ("--now", now_ms, "--output", "jsonl")
    outcome = eoctl("txn", "hanging", log_dir, *clock)
    assert outcome.status == 1
    (found,) = rows(outcome, "hanging")
    assert (found["verdict"], found["transactional_id"]) == ("hanging", STUCK)
    assert found["first_offset"] == held.end_offset
    assert found["held_offsets_count"] == end_offset - held.end_offset

    outcome = eoctl(
        "txn", "abort", partition, "--producer-id", found["producer_id"], *clock, "--apply"
    )
    assert outcome.status == 0, outcome.errors
    (aborted,) = rows(outcome, "abort")
    assert (aborted["marker_offset"], aborted["applied"]) == (end_offset, True)
    assert ("it is recovered first" in outcome.errors) is (version == 1)
    marker = headers_of(partition)[-1]
    assert marker.is_control
    assert (marker.producer_id, marker.producer_epoch) == (
        found["producer_id"],
        found["producer_epoch"],
    )

    with Broker(log_dir) as broker:
        after = read(broker, client.READ_COMMITTED)
        assert after.end_offset == end_offset + 1
        assert after.records[:known_count] == held.records
        assert [each.value for each in after.records[known_count:]] == [b"behind"]
        produce_all(broker)
        commit_others(broker, [b"end"])
        final = read(broker, client.READ_COMMITTED)
        assert final.records[: known_count + 1] == after.records
        assert len(final.records) == known_count + 1 + RECORDS_COUNT + 1
        assert not [each for each in broker.log_lines(f"{TOPIC}-0") if "ERROR" in each]
    assert eoctl("txn", "list", log_dir).text.count("\n") == 1
    newest = [each for each in headers_of(partition) if each.producer_id == found["producer_id"]]
    assert newest[-1].producer_epoch > found["producer_epoch"]
