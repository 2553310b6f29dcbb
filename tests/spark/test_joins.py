"""What a task of the audit that joins many groups holds of them: one group at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from eoctl.spark import audit
from eoctl.spark.audit import UDF_ROWS, _joined, bring_summaries, one_group_at_a_time
from recovery.summaries.codec import Shelf
from storage.places.list_places import list_places
from storage.places.splits import plan_places
from tests.audit_logs import Batch, write_segments
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["spark"]

pytestmark = SPARK_MARKS

GROUPS, ROWS = 64, 4


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


@pytest.mark.share(1)
@pytest.mark.parametrize("known", ["100", "7"])
def test_a_task_of_many_groups_has_the_rows_of_one(spark: SparkSession, known: str) -> None:
    """As many at a time as are set otherwise: that this test sees."""
    spark.conf.set(UDF_ROWS, known)
    try:
        with one_group_at_a_time(spark, is_needed=True):
            found = counts(joined_in_one_task(spark))
        assert found == {(ROWS, ROWS + 1)}  # and the row that has them
        assert spark.conf.get(UDF_ROWS) == known
        with one_group_at_a_time(spark, is_needed=False):
            found = counts(joined_in_one_task(spark))
        assert max(alive for _, alive in found) >= min(int(known), GROUPS) * ROWS
    finally:
        spark.conf.unset(UDF_ROWS)


@pytest.mark.share(1)
@pytest.mark.parametrize(("groups_count", "expected"), [(2, "100"), (3, "1")])
def test_an_audit_whose_tasks_join_many_groups_hands_them_over_one_by_one(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    groups_count: int,
    expected: str,
) -> None:
    """The workers that have read join, too, where a task has no more than one."""
    for number in range(groups_count):
        write_segments(tmp_path / f"t-{number}", [Batch()])
    seen = []

    def bring(session: SparkSession, *given: Any) -> dict[str, Any]:
        seen.append(session.conf.get(UDF_ROWS))
        return bring_summaries(session, *given)

    monkeypatch.setattr(audit, "bring_summaries", bring)
    tasks = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        splits = plan_places(list_places([str(tmp_path)]).places, 1 << 20)
        found = audit.summarize_directories(spark, splits, Shelf())
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    assert len(found) == groups_count
    assert seen == [expected]
    assert spark.conf.get(UDF_ROWS) == "100"


def test_the_jvm_gathers_one_group_at_a_time(spark: SparkSession) -> None:
    """Sorted, with what does not fit on disk: a hash table would hold the groups of a task."""
    frame: Any = joined_in_one_task(spark)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "SortAggregate" in plan
    assert "ObjectHashAggregate" not in plan
