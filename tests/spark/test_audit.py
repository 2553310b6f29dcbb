"""The audit as a Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import eoctl.spark.audit
from eoctl.spark.audit import audit_directories
from eoctl.spark.datasource import AuditReader, KafkaLogAudit
from eoctl.spark.session import SparkJobError
from tests.audit_logs import Batch, define, write_segments
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

pytestmark = SPARK_MARKS
__all__ = ["spark"]


def test_a_task_per_segment_counts_the_same(
    spark: SparkSession, golden: Callable[[str], Path]
) -> None:
    path = str(golden("kafka-4.3.1") / "hard-clean" / "idem-none-0")
    (alone,) = audit_directories(spark, [path], pack_bytes=1)
    assert alone == audit_directories(spark, [path])[0]
    assert alone.counts["open_transactions"] == 9
    assert (alone.problems_count, alone.notes) == (0, ())


def test_duplicates_and_transactions_across_segments(spark: SparkSession, tmp_path: Path) -> None:
    segments = [
        [Batch(1, 0, 0, 3, "txn"), Batch(2, 0, 0, 2), Batch(3, 0, 2**31 - 2, 4, "txn")],
        [Batch(1, 0, 3, 2, "txn"), Batch(2, 0, 2, 2), Batch(2, 0, 0, 2), Batch(3, 0, 1, 1)],
        [Batch(1, kind="abort"), Batch(2, 0, 3, 1), Batch(2, 0, 4, 1), Batch(3, 0, 2, 1)],
        [Batch(3, kind="commit"), Batch(1, 0, 4, 2, "txn")],
    ]
    directory = write_segments(tmp_path / "t-0", *segments)
    (audit,) = audit_directories(spark, [str(directory)], pack_bytes=1)
    expected = define([batch for segment in segments for batch in segment])
    assert expected["duplicate_batches"] == 4
    assert {**audit.counts, "bytes": 0} == {**expected, "bytes": 0}


class Deleting(AuditReader):
    """Somebody removes the first segment of each partition between planning and reading."""

    def partitions(self) -> Sequence[InputPartition]:
        from pathlib import Path

        planned = super().partitions()
        for task in planned:
            Path(task.places[0].path).unlink()
        return planned


class DeletingAudit(KafkaLogAudit):
    def reader(self, schema: Any) -> Deleting:
        return Deleting(self.options)


def test_a_file_deleted_during_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    monkeypatch.setattr(eoctl.spark.audit, "KafkaLogAudit", DeletingAudit)
    (audit,) = audit_directories(spark, [str(directory)])
    assert (audit.counts["batches"], audit.problems_count) == (1, 0)
    assert (audit.is_corrupt, audit.is_unreadable) == (False, False)
    assert audit.notes == (
        f"{directory / f'{0:020d}.log'}: removed since the directory was listed",
    )


def test_a_job_that_fails_is_an_error_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SparkJobError) as caught:
        audit_directories(spark, [str(tmp_path / "nowhere")])
    assert "Spark gave the job up" in caught.value.message
    assert caught.value.exit_status == 3
