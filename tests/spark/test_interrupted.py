"""Ctrl-C while Spark starts, and while a job runs: nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.spark.left_over import MARK, processes_with, wait_until_gone
from tests.spark.running import SPARK_MARKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [*SPARK_MARKS, pytest.mark.slow]
BEGUN_SECONDS = 300.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("at_work", ["deploy.SparkSubmit", "pyspark.daemon"])
def test_nothing_is_left(golden: Callable[[str], Path], tmp_path: Path, at_work: str) -> None:
    """The first is a JVM that Spark is not connected with yet; it stayed for ever."""
    mark = uuid.uuid4().hex
    call = ("spark-audit", str(golden("kafka-4.3.1") / "*"), "--split-bytes", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "eoctl", *call, "--engine", "spark", "--report", "all"],
        env={**os.environ, MARK: mark}, cwd=tmp_path, start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + BEGUN_SECONDS
    while not any(at_work in command for _, command in processes_with(mark)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert errors.splitlines()[-1].endswith("interrupted")
    assert "Traceback" not in errors
    assert wait_until_gone(mark) == []
