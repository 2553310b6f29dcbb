"""What a Python worker of Spark has imported costs its garbage collections nothing."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import StructType

from eoctl.spark.datasource import SOURCES, KafkaLogAuditStream, register
from eoctl.spark.rows import gc_freeze
from eoctl.spark.rows.gc_freeze import keep_modules
from eoctl.spark.rows.task_rows import SplitsInput
from tests.audit_logs import Batch, write_segments
from tests.spark.running import spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

    from eoctl.spark.datasource import _Source

__all__ = ["spark"]

MODULES_LEAST = 10_000  # objects that pyspark, numpy, pyarrow and we have at the least


class Circle:
    """Refers to itself: only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take this process for a worker's, which has not kept anything yet."""
    monkeypatch.setattr(TaskContext, "get", object)
    gc_freeze._freeze.cache_clear()
    yield
    gc.unfreeze()
    gc_freeze._freeze.cache_clear()


@pytest.mark.usefixtures("in_task")
def test_only_what_is_there_at_first_is_passed_over() -> None:
    keep_modules()
    assert gc.get_freeze_count() > MODULES_LEAST
    later = weakref.ref(Circle())
    keep_modules()
    gc.collect()
    assert later() is None


@pytest.mark.usefixtures("in_task")
def test_garbage_of_the_first_task_goes_before() -> None:
    gc.disable()
    try:
        garbage = weakref.ref(Circle())
        assert garbage() is not None
        keep_modules()
        assert garbage() is None
    finally:
        gc.enable()


def test_a_process_that_is_no_worker_is_left_alone() -> None:
    before = gc.get_freeze_count()
    keep_modules()
    assert gc.get_freeze_count() == before


@pytest.mark.share(2)
@pytest.mark.usefixtures("in_task")
@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.format_name)
def test_a_task_of_each_source_does_it(source: type[_Source], tmp_path: Path) -> None:
    write_segments(tmp_path / "t-0", [Batch()])
    made = source({"path": str(tmp_path)})
    readers: list[DataSourceReader | DataSourceStreamReader] = []
    readers += [] if source is KafkaLogAuditStream else [made.reader(StructType())]
    readers += [made.streamReader(StructType())] if source.is_streamed else []
    for reader in readers:
        gc.unfreeze()
        gc_freeze._freeze.cache_clear()
        assert [*reader.read(SplitsInput(()))] == []
        assert gc.get_freeze_count() > MODULES_LEAST


@pytest.mark.java
@pytest.mark.xdist_group("spark")
def test_workers_are_left_so(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    write_segments(tmp_path / "t-0", [Batch()])
    register(spark)
    assert spark.read.format("kafka-log-batches").load(str(tmp_path)).count() == 1
    count = F.udf(gc.get_freeze_count, "int", useArrow=False)
    found = spark.range(0, 8, 1, 2).select(count().alias("count")).collect()
    assert max(row["count"] for row in found) > MODULES_LEAST
