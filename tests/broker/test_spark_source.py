"""Spark's own Kafka source over a real broker, or over `eoctl serve`, and ours over the files: the same rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from eoctl.spark.datasource import register
from tests.kafka.broker import Broker, copy_log_dir
from tests.serving import Served
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["spark"]

pytestmark = [pytest.mark.broker, *SPARK_MARKS, pytest.mark.slow]

TOPICS = "append-time,compacted,idem-lz4,idem-zstd,many-producers,plain,rolled,txn"
TXN_0_BOUNDS = {
    "startingOffsets": json.dumps({"txn": {"0": 100, "1": -2}}),
    "endingOffsets": json.dumps({"txn": {"0": 290, "1": -1}}),
}
KEEP_TRANSACTIONS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "36000000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "36000000",
}


class Sources:
    """The same options for both sources."""

    def __init__(self, spark: SparkSession, bootstrap: str, log_dir: Path) -> None:
        self._spark, self._bootstrap, self._log_dir = spark, bootstrap, log_dir

    def read(self, options: dict[str, str], *, is_stream: bool = False) -> tuple[Any, Any]:
        """A frame of theirs, and one of ours."""
        reader = self._spark.readStream if is_stream else self._spark.read
        theirs = reader.format("kafka").options(**options)
        theirs = theirs.option("kafka.bootstrap.servers", self._bootstrap)
        reader = self._spark.readStream if is_stream else self._spark.read
        ours = reader.format("kafka-log-records").options(**options).option("schema", "kafka")
        if is_stream:  # a broker knows more than its checkpoint of the high watermark
            ours = ours.option("until", "log-end")
        return theirs.load(), ours.load(str(self._log_dir))

    def require_equal(self, options: dict[str, str]) -> int:
        """Compare rows; return how many there are."""
        theirs, ours = self.read(options)
        assert ours.schema == theirs.schema
        expected = rows_of(theirs)
        assert rows_of(ours) == expected
        return len(expected)

    def streamed(self, options: dict[str, str], root: Path) -> tuple[list[Any], list[Any]]:
        """The rows of both as streams, from their files."""
        found = []
        for name, frame in zip(("theirs", "ours"), self.read(options, is_stream=True), strict=True):
            writer = frame.writeStream.format("parquet").option("path", str(root / name / "rows"))
            writer = writer.option("checkpointLocation", str(root / name / "checkpoint"))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            found.append(rows_of(self._spark.read.parquet(str(root / name / "rows"))))
        return found[0], found[1]


def rows_of(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.mark.exhaustive
def test_the_same_rows(golden: Callable[[str], Path], spark: SparkSession, tmp_path: Path) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "log-dir")
    register(spark)
    with Broker(log_dir, overrides=KEEP_TRANSACTIONS) as broker:
        sources = Sources(spark, broker.bootstrap, log_dir)
        options = {"subscribe": TOPICS, "includeHeaders": "true"}
        counts = [
            sources.require_equal({**options, "kafka.isolation.level": isolation})
            for isolation in ("read_uncommitted", "read_committed")
        ]
        assert counts[0] > counts[1] > 1000
        times = sorted(row["timestamp"] for row in sources.read({"subscribe": "txn"})[1].collect())
        middle = int(times[len(times) // 2].timestamp() * 1000)
        for more in (
            {"subscribe": "txn", **TXN_0_BOUNDS},
            {"subscribePattern": "pl.*|txn", "endingOffsets": "latest"},
            {"assign": '{"rolled":[0],"txn":[1]}', "startingOffsets": "earliest"},
            {"subscribe": "txn", "startingTimestamp": str(middle),
             "startingOffsetsByTimestampStrategy": "latest"},
        ):  # fmt: skip
            assert sources.require_equal({**more, "kafka.isolation.level": "read_committed"})
        limited = {
            "subscribe": TOPICS,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "900",
        }
        theirs, ours = sources.streamed(
            {**limited, "kafka.isolation.level": "read_committed"}, tmp_path
        )
        assert ours == theirs
        assert len(ours) > 1000


@pytest.mark.exhaustive
def test_the_same_rows_from_what_is_served(
    golden: Callable[[str], Path], spark: SparkSession
) -> None:
    """A dead broker's directory, without a broker."""
    log_dir = golden("kafka-4.3.1") / "clean"
    register(spark)
    with Served(log_dir) as served:
        sources = Sources(spark, served.bootstrap, log_dir)
        options = {"subscribe": TOPICS, "includeHeaders": "true"}
        counts = [
            sources.require_equal({**options, "kafka.isolation.level": isolation})
            for isolation in ("read_uncommitted", "read_committed")
        ]
        assert counts[0] > counts[1] > 1000
        for more in (
            {"subscribe": "txn", **TXN_0_BOUNDS},
            {"subscribePattern": "pl.*|txn", "endingOffsets": "latest"},
            {"assign": '{"rolled":[0],"txn":[1]}', "startingOffsets": "earliest"},
        ):
            for isolation in ("read_uncommitted", "read_committed"):
                assert sources.require_equal({**more, "kafka.isolation.level": isolation})
        ended = served.stop()
    assert ended.status == 130
    assert "internal error" not in ended.stderr
