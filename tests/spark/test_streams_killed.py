"""A stream into Parquet whose driver is killed: each record is there once at the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

import pyarrow.parquet as pq

from eoctl.spark.datasource import RecordsReader
from tests.kafka.jars import REPOSITORY_DIR
from tests.spark.left_over import MARK, processes_with, wait_until_gone
from tests.spark.running import SPARK_MARKS
from tests.spark.test_datasource import read

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS = 2  # of a run; a JVM takes long to start
RUNS = 10

pytestmark = [*SPARK_MARKS, pytest.mark.slow]


def start(logs: Path, out: Path, mark: str) -> subprocess.Popen[str]:
    """A driver, in a process group of its own: its JVM and its workers go with it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.spark.stream_driver", str(logs), str(out)],
        env={**os.environ, MARK: mark, "PYTHONPATH": str(REPOSITORY_DIR)}, cwd=out,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def kill(driver: subprocess.Popen[str], mark: str) -> None:
    """End the driver and all that it has started, in the midst of what they do."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    for each, _ in processes_with(mark):  # the daemon of Python workers has a group of its own
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    assert wait_until_gone(mark) == []


def rows_in(out: Path) -> list[tuple[str, int, int]]:
    """What a reader of the sink is given: the files that its log names."""
    names: set[str] = set()
    for log in (out / "rows" / "_spark_metadata").iterdir():
        if log.name.startswith("."):
            continue
        _, *lines = log.read_text().splitlines()
        names |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    found = []
    for name in sorted(names):
        table = pq.read_table(Path(name), columns=["topic", "partition", "offset"])
        found += [tuple(row.values()) for row in table.to_pylist()]
    return sorted(found)


@pytest.mark.in_turn
@pytest.mark.share(1)
@pytest.mark.parametrize("run", range(RUNS))
def test_killed_and_started_again(golden: Callable[[str], Path], tmp_path: Path, run: int) -> None:
    logs = golden("kafka-4.3.1") / "clean"
    drawn = random.Random(f"{os.environ.get('EOCTL_SEED')} {run}")
    kills = 0
    while True:
        mark = f"stream-{kills}-{tmp_path.name}"
        driver = start(logs, tmp_path, mark)
        assert driver.stdout is not None
        if kills == KILLS:
            _, errors = driver.communicate(timeout=300)
            assert driver.returncode == 0, errors
            break
        for line in driver.stdout:
            if line.strip():
                break
        time.sleep(drawn.random())
        kill(driver, mark)
        kills += 1
    columns = "topic,partition,offset"
    expected = read(RecordsReader, logs, columns=columns, isolation="read_committed", until="hw")
    assert rows_in(tmp_path) == sorted(
        (row["topic"], row["partition"], row["offset"])
        for row in expected
        if row["topic"] != "__cluster_metadata"
    )
