"""Streams over the log dir of a real broker that writes meanwhile, and dies, and deletes."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.errors import StreamingQueryException

from eoctl.spark.datasource import register
from tests.broker.test_serve_follow import await_that, checkpointed
from tests.broker.test_spark_source import rows_of
from tests.kafka import client
from tests.kafka.broker import Broker
from tests.spark.running import SPARK_MARKS, spark
from tests.spark.sink import batches_given, rows_given

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = [pytest.mark.broker, *SPARK_MARKS, pytest.mark.slow]

OFTEN = {
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
}
TOPICS = ("plain", "idem", "txn")
SMALL = {"internal.segment.bytes": "16384"}
RECORDS = 40  # to each partition in a turn
COLUMNS = ("topic", "partition", "offset", "key", "value")
ISOLATIONS = (client.READ_UNCOMMITTED, client.READ_COMMITTED)

Rows = list[tuple[Any, ...]]


class Writers:
    """Clients of a broker: each turn writes to all partitions in every way."""

    def __init__(self, broker: Broker) -> None:
        self.counts = dict.fromkeys(TOPICS, 2)
        self._broker = broker
        self._number = 0
        client.create_topics(broker.bootstrap, dict.fromkeys(TOPICS, (2, SMALL)))

    def records(self, topic: str, count: int = RECORDS) -> list[client.Outgoing]:
        """Make records for all partitions of a topic; no two have the same value."""
        found = []
        for each in range(count * self.counts[topic]):
            self._number += 1
            value = f"{topic} {self._number} ".encode().ljust(300, b".")
            found.append(client.Outgoing(topic, each % self.counts[topic], b"k", value))
        return found

    def turn(self, times: int = 1) -> None:
        """Write with every kind of producer; transactions are committed and aborted in turns."""
        at = self._broker.bootstrap
        for _ in range(times):
            client.send(client.producer(at), self.records("plain"))
            client.send(client.producer(at, enable_idempotence=True), self.records("idem"))
            ending = client.transactional_producer(at, "ending")
            for commit in (True, False, True):
                client.transact(ending, self.records("txn", 10), commit=commit)

    def add_partition(self, topic: str) -> None:
        """Give a topic one more partition, and wait until it has a leader."""
        self.counts[topic] += 1
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        (added,) = admin.create_partitions([NewPartitions(topic, self.counts[topic])]).values()
        added.result(client.TIMEOUT_S)

        def is_led() -> bool:
            parts = admin.list_topics(topic, timeout=client.TIMEOUT_S).topics[topic].partitions
            return len(parts) == self.counts[topic] and all(
                each.leader >= 0 for each in parts.values()
            )

        await_that(is_led)

    def partitions(self) -> list[tuple[str, int]]:
        return [(topic, each) for topic in TOPICS for each in range(self.counts[topic])]

    def consumed(self, isolation: str) -> Rows:
        """What consumers are given of all partitions."""
        return [
            (topic, number, each.offset, each.key, each.value)
            for topic, number in sorted(self.partitions())
            for each in client.consume(
                self._broker.bootstrap, topic, number, isolation=isolation
            ).records
        ]


class Query:
    """A query of ours over the log dir, into Parquet; what it gives is looked at again and again."""

    def __init__(self, frame: Any, root: Path, **trigger: Any) -> None:
        self.sink = root / "rows"
        writer = frame.writeStream.format("parquet").option("path", str(self.sink))
        writer = writer.option("checkpointLocation", str(root / "checkpoint"))
        self.query = writer.trigger(**(trigger or {"processingTime": "1 second"})).start()
        self._seen: Rows = []

    def inspect(self) -> Rows:
        """Return what was given so far: what was there at the last look has stayed."""
        failure = self.query.exception()
        if failure is not None:
            raise failure
        found = rows_given(self.sink, COLUMNS)
        assert found[: len(self._seen)] == self._seen
        self._seen = found
        return found

    def await_rows(self, expected: Rows) -> None:
        """Wait until as many are there; they are these, each once and in order."""
        await_that(lambda: len(self.inspect()) >= len(expected))
        assert in_order(self._seen) == expected


def in_order(rows: Rows) -> Rows:
    """Put partitions one after the other, and leave the order of their rows as it was."""
    found = sorted(rows, key=lambda row: row[:2])
    for _, group in groupby(found, key=lambda row: row[:2]):
        offsets = [row[2] for row in group]
        assert all(low < high for low, high in pairwise(offsets))
    return found


@contextmanager
def stopped(*queries: Query) -> Iterator[None]:
    """Stop queries at the end, however it comes."""
    try:
        yield
    finally:
        for each in queries:
            each.query.stop()


def ours(spark: SparkSession, log_dir: Path, topics: str, **options: str) -> Any:
    """A stream over the files, as of Spark's own source."""
    stream = spark.readStream.format("kafka-log-records").option("schema", "kafka")
    return stream.option("subscribe", topics).options(**options).load(str(log_dir))


@pytest.mark.exhaustive
def test_streams_beside_a_broker_that_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Everything is given once and in order, as consumers and Spark's own source have it."""
    register(spark)
    log_dir = tmp_path / "log-dir"
    with Broker(log_dir, overrides=OFTEN) as broker:
        writers = Writers(broker)
        writers.turn()
        queries = {
            each: Query(
                ours(spark, log_dir, ",".join(TOPICS), **{"kafka.isolation.level": each}),
                tmp_path / each,
            )
            for each in ISOLATIONS
        }
        every, committed = (queries[each] for each in ISOLATIONS)
        with stopped(*queries.values()):
            for _ in range(2):
                writers.turn(2)
                for isolation, query in queries.items():
                    query.await_rows(writers.consumed(isolation))
            _hold_back(writers, broker, every, committed)
            writers.add_partition("plain")
            writers.add_partition("txn")
            writers.turn()
            broker.kill()
            for query in queries.values():
                query.inspect()
            broker.start()
            writers.turn(2)
            for isolation, query in queries.items():
                query.await_rows(writers.consumed(isolation))
        # A broker says so of each partition that is added to a topic.
        assert [each for each in broker.error_lines() if "was missing. Creating" not in each] == []
        assert len(every.inspect()) > len(committed.inspect()) > 2000
        for query in queries.values():
            assert len(batches_given(query.sink)) > 4
        for topic, number in writers.partitions():
            count = len([*(log_dir / f"{topic}-{number}").glob("*.log")])
            assert count > (2 if number < 2 else 1)
        for isolation, query in queries.items():
            _require_theirs(spark, broker, query, isolation)


def _hold_back(writers: Writers, broker: Broker, every: Query, committed: Query) -> None:
    """Leave a transaction open while others write behind it."""
    before = writers.consumed(client.READ_COMMITTED)
    opened = client.transactional_producer(broker.bootstrap, "open")
    opened.begin_transaction()
    client.send(opened, writers.records("txn"))
    writers.turn()
    every.await_rows(writers.consumed(client.READ_UNCOMMITTED))
    held = writers.consumed(client.READ_COMMITTED)
    assert {row for row in held if row[0] == "txn"} == {row for row in before if row[0] == "txn"}
    committed.await_rows(held)
    opened.commit_transaction(client.TIMEOUT_S)
    committed.await_rows(writers.consumed(client.READ_COMMITTED))


def _require_theirs(spark: SparkSession, broker: Broker, query: Query, isolation: str) -> None:
    """Compare what a query has given with Spark's own source over the broker, at once and as a stream."""
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.isolation.level": isolation,
        "subscribe": ",".join(TOPICS),
        "startingOffsets": "earliest",
    }
    given = rows_of(spark.read.parquet(str(query.sink)))
    assert given == rows_of(spark.read.format("kafka").options(**options).load())
    root = query.sink.parent / "theirs"
    theirs = Query(
        spark.readStream.format("kafka").options(**options).load(), root, availableNow=True
    )
    theirs.query.awaitTermination()
    assert given == rows_of(spark.read.parquet(str(theirs.sink)))


@pytest.mark.exhaustive
def test_a_broker_deletes_what_a_stream_has_not_given(spark: SparkSession, tmp_path: Path) -> None:
    """Below where it stands it may; above, the query fails with both offsets, or passes over."""
    register(spark)
    log_dir, topic = tmp_path / "log-dir", "plain"

    def write(broker: Broker, until: int) -> None:
        values = [f"{each}".encode().ljust(100) for each in range(until - 100, until)]
        with_keys = [client.Outgoing(topic, 0, b"k", each) for each in values]
        client.send(client.producer(broker.bootstrap), with_keys)
        await_that(lambda: checkpointed(log_dir, topic) == until)

    def delete(broker: Broker, until: int) -> None:
        client.delete_records(broker.bootstrap, {(topic, 0): until})
        first = f"{topic} 0 {until}"
        starts = log_dir / "log-start-offset-checkpoint"
        await_that(lambda: first in starts.read_text().splitlines())

    def begun(**options: str) -> Query:
        return Query(ours(spark, log_dir, topic, **options), tmp_path / "query")

    with Broker(log_dir, overrides=OFTEN) as broker:
        client.create_topics(broker.bootstrap, {topic: (1, SMALL)})
        write(broker, 100)
        query = begun()
        with stopped(query):
            await_that(lambda: len(query.inspect()) == 100)
            delete(broker, 70)
            write(broker, 200)
            await_that(lambda: len(query.inspect()) == 200)
        write(broker, 300)
        delete(broker, 250)
        failing = begun()
        with stopped(failing), pytest.raises(StreamingQueryException) as caught:
            failing.query.awaitTermination(client.TIMEOUT_S)
        assert "the query goes on from offset 200, and the log begins at 250" in str(caught.value)
        assert "failOnDataLoss" in str(caught.value)
        passing = begun(failOnDataLoss="false")
        with stopped(passing):
            write(broker, 400)
            await_that(lambda: len(passing.inspect()) == 350)
        offsets = [row[2] for row in passing.inspect()]
    assert offsets == [*range(200), *range(250, 400)]
