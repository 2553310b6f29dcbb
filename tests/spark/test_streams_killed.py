"""A stream into Parquet whose driver is killed within micro-batches: each record is there once."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from eoctl.spark.datasource import RecordsReader
from tests.spark.killed_driver import KilledDriver
from tests.spark.running import SPARK_MARKS
from tests.spark.sink import numbers_in, rows_given
from tests.spark.stream_driver import PLACES
from tests.spark.test_datasource import read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RUNS = 10  # of two kills, a JVM each
MOST_BATCHES = 3  # that end before the one that is cut off in a task
COLUMNS = ("topic", "partition", "offset")

pytestmark = [*SPARK_MARKS, pytest.mark.slow]


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("run", range(RUNS))
def test_killed_and_started_again(golden: Callable[[str], Path], tmp_path: Path, run: int) -> None:
    """Once in a task, once when the sink has noted a micro-batch that Spark has not ended."""
    logs = golden("kafka-4.3.1") / "clean"
    drawn = random.Random(f"{os.environ.get('EOCTL_SEED')} {run}")
    cut_off = []
    with KilledDriver(logs, tmp_path, f"task-{tmp_path.name}") as driver:
        number = driver.kill_in_task(PLACES[run % len(PLACES)], drawn.randrange(MOST_BATCHES))
    assert number is not None
    cut_off.append(number)
    sink = tmp_path / "rows"
    assert number not in numbers_in(sink / "_spark_metadata")
    with KilledDriver(logs, tmp_path, f"sink-{tmp_path.name}") as driver:
        number = driver.kill_behind_sink()
    assert number is not None
    cut_off.append(number)
    assert number in numbers_in(sink / "_spark_metadata")
    with KilledDriver(logs, tmp_path, f"rest-{tmp_path.name}") as driver:
        driver.wait()
    assert len(cut_off) == 2
    ended = numbers_in(tmp_path / "checkpoint" / "commits")
    assert {*cut_off} < ended
    expected = read(
        RecordsReader, logs, columns=",".join(COLUMNS), isolation="read_committed", until="hw"
    )
    assert sorted(rows_given(sink, COLUMNS)) == sorted(
        tuple(row[name] for name in COLUMNS)
        for row in expected
        if row["topic"] != "__cluster_metadata"
    )
