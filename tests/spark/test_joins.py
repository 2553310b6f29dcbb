"""What a task of the audit that joins many groups holds of them: one group at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from eoctl.spark.audit import _joined
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["spark"]

pytestmark = SPARK_MARKS

GROUPS, ROWS = 64, 4
BATCH_SETTING = "spark.sql.execution.python.udf.maxRecordsPerBatch"


def joined_in_one_task(spark: SparkSession) -> DataFrame:
    """Have groups joined by a function that counts the rows that its process has, of all groups."""

    def rows_here(rows: Iterable[Any]) -> bytes:
        import gc

        own = [*rows]
        alive = sum(isinstance(each, type(own[0])) for each in gc.get_objects())
        return f"{len(own)} {alive}".encode()

    rows = spark.range(GROUPS * ROWS).selectExpr(
        "concat('d', id % 64) as directory", "0 as number", "id as split", "'x' as piece"
    )
    join = F.udf(rows_here, "binary", useArrow=False)
    return _joined(rows, ["split", "piece"], join, 1)


def counts(frame: DataFrame) -> set[tuple[int, int]]:
    """(rows of the group, rows in the process) of each call."""
    found = [bytes(row["whole"]).decode().split() for row in frame.collect()]
    assert len(found) == GROUPS
    return {(int(own), int(alive)) for own, alive in found}


def test_a_task_has_the_rows_of_one_group(spark: SparkSession) -> None:
    """100 groups at a time are Spark's default: that this test sees."""
    assert counts(joined_in_one_task(spark)) == {(ROWS, ROWS + 1)}  # and the row that has them
    known = spark.conf.get(BATCH_SETTING)
    spark.conf.set(BATCH_SETTING, "100")
    try:
        assert max(alive for _, alive in counts(joined_in_one_task(spark))) >= GROUPS * ROWS
    finally:
        spark.conf.set(BATCH_SETTING, known or "")


def test_the_jvm_gathers_one_group_at_a_time(spark: SparkSession) -> None:
    """Sorted, with what does not fit on disk: a hash table would hold the groups of a task."""
    frame: Any = joined_in_one_task(spark)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "SortAggregate" in plan
    assert "ObjectHashAggregate" not in plan
