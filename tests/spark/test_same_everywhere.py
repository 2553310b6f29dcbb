"""The audit of every golden and damaged directory: on a cluster what it is on this machine.

On one worker and on two, while executors and their Python processes are killed: rows, notes and exit
status are those of the local engine, byte for byte, so that each record is counted once.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from tests.damage.conftest import copied_to
from tests.damage.planted import FAULTS
from tests.drawn import IS_ALL, drawn, times
from tests.matrix.more_faults import MORE
from tests.spark import audit_driver
from tests.spark.cluster import running_cluster
from tests.spark.killing import Killer
from tests.spark.running import SPARK_MARKS
from tests.spark.test_cluster import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [*SPARK_MARKS, pytest.mark.slow]

AUDIT = ("spark-audit", "--report", "all", "--output", "jsonl")
SPLIT_BYTES = (1, 20_000, 128 << 20)
CALL_SECONDS = 480.0  # of one call, while its processes are killed
PARTS = 4  # one of them lasts for a minute
# How often a task may be killed is not what is tried here: as often as it likes.
PATIENT = ("spark.task.maxFailures=1000", "spark.stage.maxConsecutiveAttempts=1000")


class Answer(NamedTuple):
    """What a call said."""

    stdout: bytes
    errors: str
    status: int


def damaged_calls(golden: Callable[[str], Path], parent: Path, part: int) -> list[list[Path]]:
    """A call for each log dir with a fault of this part planted in it, and for those beside."""
    calls = []
    for fault in drawn([*FAULTS, *MORE.all][part::PARTS], 10, "spark"):
        log_dir = copied_to(parent / fault.name, golden, fault)
        fault.planted_in(log_dir)
        calls.append([log_dir, *(log_dir.with_name(name) for name in fault.beside)])
    return calls


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("workers_count", [1, 2])
@pytest.mark.parametrize("part", range(PARTS))
def test_the_same_answers_while_processes_are_killed(
    golden: Callable[[str], Path],
    golden_log_dirs: dict[str, list[Path]],
    eoctl: Callable[..., Any],
    tmp_path: Path,
    workers_count: int,
    part: int,
) -> None:
    """Called over again until enough has been killed, and tasks have failed by it."""
    paths = damaged_calls(golden, tmp_path / "damaged", part)
    if part == 0 or not IS_ALL:
        paths += drawn(golden_log_dirs.values(), 4, "spark, golden")
    expected = [spoken(eoctl(*AUDIT, *each, "--engine", "local", "--jobs", 1)) for each in paths]
    rng = random.Random(f"{os.environ['EOCTL_SEED']} kills {workers_count} {part}")
    spark = ("--engine", "spark", "--split-bytes")
    calls = [[*AUDIT, *map(str, each), *spark, str(rng.choice(SPLIT_BYTES))] for each in paths]
    wanted = {"executor": times(2, 1), "python": times(8, 3)}
    with running_cluster(tmp_path, workers_count) as cluster:
        results = tmp_path / "results"
        results.mkdir()
        orders = {
            "master": cluster.master, "settings": [*SETTINGS, *PATIENT], "calls": calls,
            "results": str(results), "until": str(tmp_path / "enough"),
        }  # fmt: skip
        (tmp_path / "orders.json").write_text(json.dumps(orders))
        driver = [sys.executable, "-P", audit_driver.__file__, str(tmp_path / "orders.json")]
        with (
            (tmp_path / "driver.txt").open("wb") as words,
            subprocess.Popen(
                driver, env=cluster.environment, cwd=tmp_path,
                stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT,
            ) as process,
            Killer(cluster, results, rng, wanted) as killer,
        ):  # fmt: skip
            wait_for(process, tmp_path / "enough", results, lambda: killer.is_done)
        assert process.returncode == 0, (tmp_path / "driver.txt").read_text()
    print(f"killed: {killer.killed}, failed tasks: {failures(results)}")
    ended = sorted(results.glob("*.json"), key=lambda path: int(path.stem))
    assert len(ended) >= len(calls)
    for number, path in enumerate(ended):
        assert answered(path) == expected[number % len(calls)], (killer.killed, path)


def spoken(outcome: Any) -> Answer:
    words = outcome.errors.replace("engine: local", "engine: spark")
    return Answer(outcome.stdout, words, outcome.status)


def answered(path: Path) -> Answer:
    reported = json.loads(path.read_text())
    errors = path.with_suffix(".err").read_text()
    return Answer(path.with_suffix(".out").read_bytes(), errors, reported["status"])


def failures(results: Path) -> int:
    """How many tasks had failed in the calls that have ended."""
    return sum(json.loads(path.read_text())["failed"] for path in results.glob("*.json"))


def wait_for(
    process: subprocess.Popen, enough: Path, results: Path, has_killed: Callable[[], bool]
) -> None:
    """Let the driver end its round when tasks have failed enough; one whose call hangs is ended."""
    ended_count, deadline = 0, time.monotonic() + CALL_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if has_killed() and failures(results) > 0:
            enough.touch()
        count = len([*results.glob("*.json")])
        if count > ended_count:
            ended_count, deadline = count, time.monotonic() + CALL_SECONDS
        time.sleep(0.1)
    process.kill()
