"""One Spark session for a whole test run: import `spark` and mark the module with SPARK_MARKS."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.kafka.jars import COMMON_LIBS
from tests.spark.left_over import MARK, processes_with, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# With several workers only one of them starts a JVM.
SPARK_MARKS = [pytest.mark.java, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session; commands that run in this process use it too. Tasks have four tries.

    At the end its JVM and all Python processes below are gone, or the run fails.
    """
    pytest.importorskip("pyspark")
    from eoctl.spark.session import spark_session

    mark = uuid.uuid4().hex
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MARK, mark)
            session = stack.enter_context(spark_session("local[2,4]", _kafka_source()))
        is_first = bool(processes_with(mark))  # every module that asks has a fixture of its own
        yield session
    if is_first:
        _end_jvm()
        assert wait_until_gone(mark) == []


def _kafka_source() -> list[tuple[str, str]]:
    """Spark's own Kafka source, where its jars are: an oracle."""
    names = (
        "spark-sql-kafka-*",
        "spark-token-provider-kafka-*",
        "kafka-clients-*",
        "commons-pool2-*",
    )
    jars = [str(path) for name in names for path in COMMON_LIBS.glob(f"{name}.jar")]
    return [("spark.jars", ",".join(jars))] if len(jars) == len(names) else []


def _end_jvm() -> None:
    """Do what the end of this process would do."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)
