"""One Spark session for a whole test run: import `spark` and mark the module with SPARK_MARKS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# With several workers only one of them starts a JVM.
SPARK_MARKS = [pytest.mark.java, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session; commands that run in this process use it too. Tasks have four tries."""
    pytest.importorskip("pyspark")
    from eoctl.spark.session import spark_session

    with spark_session("local[2,4]") as session:
        yield session
