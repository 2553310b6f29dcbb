"""An audit as a stream: at its end the counts of an audit that reads all at once, crash or not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from pyspark.errors import StreamingQueryException

from eoctl.spark import running_audit
from eoctl.spark.datasource import KafkaLogAuditStream
from eoctl.spark.running_audit import COUNTS, start_audit
from recovery.summaries.codec import unpack_piece
from storage.errors import UsageError
from tests.spark.running import SPARK_MARKS, spark
from tests.spark.test_streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["spark"]


def on_spark(test: Any) -> Any:
    for mark in SPARK_MARKS:
        test = mark(test)
    return test


def test_summaries_of_a_stream_are_of_each_batch_once(golden: Callable[[str], Path]) -> None:
    clean = golden("kafka-4.3.1") / "clean" / "txn-0"
    stream = Stream(KafkaLogAuditStream, clean, maxOffsetsPerTrigger=40)
    rows = stream.rest()
    assert len(stream.sizes) > 4
    counts = [unpack_piece(row["piece"]).summary.counts for row in rows]
    whole = Stream(KafkaLogAuditStream, clean).rest()
    (once,) = (unpack_piece(row["piece"]).summary.counts for row in whole)
    assert sum(each.batches for each in counts) == once.batches > 100
    assert sum(each.records for each in counts) == once.records
    assert sum(each.bytes for each in counts) == once.bytes


def test_what_is_no_stream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="as a stream only"):
        KafkaLogAuditStream({"path": str(tmp_path)}).reader(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="working directories"):
        start_audit(None, str(tmp_path), "audit")  # type: ignore[arg-type]


class BrokenOffError(Exception):
    """A driver that dies."""


@on_spark
@pytest.mark.exhaustive
def test_counts_are_those_of_an_audit(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One micro-batch is broken off behind its state, and done again from the checkpoint."""
    paths = f"{golden('kafka-4.3.1')}/clean/[!_]*-*"
    written = running_audit.write_counts

    def broken_off(session: SparkSession, to: str, number: int) -> None:
        if number == 1:
            raise BrokenOffError
        written(session, to, number)

    options = {"maxOffsetsPerTrigger": "700"}
    to = str(tmp_path / "audit")
    with monkeypatch.context() as patch:
        patch.setattr(running_audit, "write_counts", broken_off)
        with pytest.raises(StreamingQueryException, match="BrokenOffError"):
            start_audit(spark, paths, to, options=options).awaitTermination()
    assert (tmp_path / "audit" / "state" / "batch=1").exists()
    start_audit(spark, paths, to, options=options).awaitTermination()
    numbers = sorted(
        int(each.name.partition("=")[2]) for each in (tmp_path / "audit" / "counts").iterdir()
    )
    assert numbers == [*range(len(numbers))]
    assert len(numbers) > 2
    states = sorted(each.name for each in (tmp_path / "audit" / "state").iterdir())
    assert len(states) == 2
    found = spark.read.parquet(f"{to}/counts/batch={numbers[-1]}").collect()
    reported = eoctl("spark-audit", paths, "--report", "topics", "--output", "jsonl", "--jobs", "1")
    names = ("topic", "partitions_count", *COUNTS)
    rows = map(json.loads, reported.stdout.splitlines())
    expected = {tuple(row[name] for name in names) for row in rows}
    with_batches = {row for row in expected if row[2]}
    assert {tuple(row[name] for name in names) for row in found} == with_batches
    assert any(row["aborted_transactions"] for row in found)
    assert any(row["open_transactions"] for row in found)
