"""A transaction in doubt is committed offline as a broker commits it; a broker goes on with it."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from storage.formats.record_batch import parse_header
from storage.formats.transaction_state import TransactionStatus, parse_record
from storage.log.segment import open_segment
from tests.broker.test_txn_abort import WAIT_S, java_producer
from tests.hanging import newest_state
from tests.kafka import client, raw_end_txn
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

TOPIC, ID, GROUP = "held", "stuck", "jobs"  # the first two are those of `java_producer`
# Who asks for the commit, by the version of the request: Flink asks in a producer of its own, to which
# nobody has told that the cluster knows a newer one.
REQUEST = {
    "librdkafka": raw_end_txn.OLDER,
    "java": raw_end_txn.RAISING,
    "flink": raw_end_txn.OLDER,
}


@contextmanager
def in_doubt(broker: Broker, kind: str) -> Iterator[None]:
    """All of a transaction is in the logs, of two partitions, and it waits for its end."""
    if kind != "librdkafka":  # speaks version 2 of transactions
        process = subprocess.Popen(
            [*java_producer(broker, 1_000_000, 3_600_000), "batch.size=1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            deadline_s = time.monotonic() + WAIT_S
            while not all(
                read(broker, number, client.READ_UNCOMMITTED).records for number in (0, 1)
            ):
                assert time.monotonic() < deadline_s, broker.log_tail()
        finally:
            process.kill()
            process.wait()
        yield
        return
    producer = client.transactional_producer(broker.bootstrap, ID, transaction_timeout_ms=600_000)
    producer.begin_transaction()
    client.send(producer, [client.Outgoing(TOPIC, n % 2, b"k", b"%d" % n) for n in range(40)])
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": GROUP, "log_level": 0})
    offsets = [TopicPartition(TOPIC, 0, 7)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
    consumer.close()
    yield
    del producer


def read(broker: Broker, number: int, isolation: str) -> client.Consumed:
    return client.consume(broker.bootstrap, TOPIC, number, isolation=isolation)


def read_when_led(cluster: Cluster, topic: str) -> client.Consumed:
    """A new leader knows its high watermark when its followers have told how far they are."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            found = client.consume(cluster.bootstrap, topic, 0, isolation=client.READ_COMMITTED)
        except KafkaException:
            found = None
        if found is not None and found.records:
            return found
        assert time.monotonic() < deadline_s, topic
        time.sleep(0.2)


def values(broker: Broker, isolation: str) -> list[list[bytes | None]]:
    return [[each.value for each in read(broker, n, isolation).records] for n in (0, 1)]


def wait_for_status(log_dir: Path, status: TransactionStatus) -> None:
    """A commit is answered when it is decided; the markers come after."""
    deadline_s = time.monotonic() + WAIT_S
    while newest_state(log_dir, ID)[1].status is not status:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def without_times(partition: Path, from_offset: int) -> list[tuple[object, ...]]:
    """All that was appended, but for the times and the checksums over them."""
    found: list[tuple[object, ...]] = []
    for path in sorted(partition.glob("*.log")):
        with open_segment(str(path)) as segment:
            for batch in segment.scan():
                if batch.header.base_offset < from_offset:
                    continue
                header = batch.header._replace(
                    **{
                        name: 0
                        for name in batch.header._fields
                        if "timestamp" in name or name == "crc"
                    }
                )
                if header.is_control:
                    records = [(each.key, each.value) for each in segment.records(batch)]
                    found.append((header, records))
                    continue
                for each in segment.records(batch):
                    _, state = parse_record(each.key, each.value)
                    assert state is not None
                    found.append(
                        (header, each.key, len(each.value or b""),
                         state._replace(last_update_timestamp_ms=0))
                    )  # fmt: skip
    return found


def end_of(partition: Path) -> int:
    path = max(partition.glob("*.log"))
    data, pos, end = path.read_bytes(), 0, int(path.stem)
    while pos < len(data):
        header = parse_header(data, pos)
        pos, end = pos + header.batch_bytes, header.last_offset + 1
    return end


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("kind", REQUEST)
def test_it_is_committed_as_a_broker_commits_it(
    kind: str, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with Broker(theirs) as broker:
        client.create_topics(broker.bootstrap, {TOPIC: (2, {})})
        settled = client.transactional_producer(broker.bootstrap, "other")
        client.transact(settled, [client.Outgoing(TOPIC, 0, None, b"before")], commit=True)
        with in_doubt(broker, kind):
            sent = values(broker, client.READ_UNCOMMITTED)
            copy_log_dir(theirs, ours)  # as a crash leaves it
            place, state = newest_state(theirs, ID)
            assert state.status is TransactionStatus.ONGOING
            assert state.client_transaction_version == (0 if kind == "librdkafka" else 2)
            who = (ID, state.producer_id, state.producer_epoch)
            answer = raw_end_txn.commit(broker.bootstrap, *who, version=REQUEST[kind])
            assert answer.error_code == raw_end_txn.NONE
            wait_for_status(theirs, TransactionStatus.COMPLETE_COMMIT)
    partitions = [place.name, *(f"{topic}-{n}" for topic, n in state.partitions or ())]
    ends = {name: end_of(ours / name) for name in partitions}

    call = (
        *("txn", "commit", ours, "--transactional-id", ID, "--producer-id", state.producer_id),
        *("--producer-epoch", state.producer_epoch, "--output", "jsonl"),
        *(("--transaction-version", 0) if kind == "flink" else ()),
    )
    outcome = eoctl(*call, "--apply")
    assert outcome.status == 0, outcome.errors
    rows: list[dict[str, Any]] = [json.loads(each) for each in outcome.text.splitlines()]
    (row,) = (each for each in rows if each["kind"] == "commit")
    if kind == "java":
        assert (row["next_producer_id"], row["next_producer_epoch"]) == answer[1:]
    for name, end_offset in ends.items():
        written = without_times(ours / name, end_offset)
        assert written == without_times(theirs / name, end_offset), name
        assert len(written) == (2 if name == place.name else 1)

    with Broker(ours) as broker:
        assert values(broker, client.READ_COMMITTED) == sent
        if kind == "librdkafka":
            assert client.committed_offset(broker.bootstrap, GROUP, TOPIC, 0) == 7
        # Whoever restores the checkpoint asks once more.
        again = raw_end_txn.commit(broker.bootstrap, *who, version=REQUEST[kind])
        assert again.error_code == raw_end_txn.NONE
        if kind == "java":
            older = raw_end_txn.commit(broker.bootstrap, *who, version=raw_end_txn.OLDER)
            assert older.error_code == raw_end_txn.PRODUCER_FENCED
        producer = client.transactional_producer(broker.bootstrap, ID)
        client.transact(producer, [client.Outgoing(TOPIC, 1, None, b"next")], commit=True)
        deadline_s = time.monotonic() + WAIT_S
        while values(broker, client.READ_COMMITTED)[1][-1] != b"next":
            assert time.monotonic() < deadline_s, broker.log_tail()
        errors = broker.error_lines()
        assert not [each for each in errors if "oordinator" in each or "ransaction" in each]
    assert eoctl("txn", "list", ours).text.count("\n") == 1
    refused = eoctl(*call)
    assert refused.status == 4
    assert "a newer producer or transaction has the id" in refused.errors


@pytest.mark.exhaustive
def test_all_replicas_of_three_brokers(tmp_path: Path, eoctl: Callable[..., Outcome]) -> None:
    """All brokers are killed with a transaction in doubt; each of them gets the same."""
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.create_topic("t", [[0, 1, 2]], {"min.insync.replicas": "2"})
        cluster.create_topic("u", [[2, 1]])
        producer = client.transactional_producer(
            cluster.bootstrap, ID, transaction_timeout_ms=600_000
        )
        producer.begin_transaction()
        sent = [client.Outgoing(name, 0, b"k", b"%d" % n) for n in range(20) for name in ("t", "u")]
        client.send(producer, sent)
        time.sleep(2)  # until the followers have it, and know that all have
        cluster.kill(*cluster.nodes)
        del producer
        nodes = [cluster.log_dir(each) for each in cluster.broker_ids]
        _, state = newest_state(nodes[0], ID)
        call = (
            *("--transactional-id", ID, "--producer-id", state.producer_id),
            *("--producer-epoch", state.producer_epoch, "--output", "jsonl"),
        )
        partly = eoctl("txn", "commit", nodes[0], nodes[1], *call, "--apply")
        assert partly.status == 4
        for words in ("t-0: has 3 replicas, 2 given", "u-0: has 2 replicas, 1 given"):
            assert words in partly.errors
        outcome = eoctl("txn", "commit", *nodes, *call, "--apply")
        assert outcome.status == 0, outcome.errors
        rows = [json.loads(each) for each in outcome.text.splitlines()]
        assert [e["path"] for e in rows if e["kind"] == "marker"] == [
            *(str(node / "t-0") for node in nodes),
            *(str(node / "u-0") for node in nodes[1:]),
        ]
        cluster.start()
        for topic in ("t", "u"):
            found = read_when_led(cluster, topic)
            assert [each.value for each in found.records] == [b"%d" % n for n in range(20)]
        again = client.transactional_producer(cluster.bootstrap, ID)
        client.transact(again, [client.Outgoing("t", 0, b"k", b"next")], commit=True)
        errors = [line for node in cluster.nodes.values() for line in node.error_lines()]
        assert not [each for each in errors if "oordinator" in each or "iverge" in each]
    compared = eoctl("replicas", "compare", *(node / "t-0" for node in nodes))
    assert compared.status == 0, compared.text
