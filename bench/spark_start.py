"""Measure where the time goes until Spark gives a first row, and until it says what is missing.

    python -m bench.spark_start [--runs 3]

Each run is a process of its own, as a user's call is: the JVM and its session, the executors, the
look at what they have, the first rows, and the same query once more in the warm session. On
`local[2]`, and on a standalone cluster of two workers on the loopback. A last run has executors
without numpy and pyarrow: how long after they are up is that said? The bar is 15 s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.make_log import make_segment
from tests.spark.cluster import running_cluster

REFUSAL_BAR_S = 15.0
SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
REPORTED = ("session", "executors", "look", "first rows", "again")


def job(master: str, executors_count: int, path: str) -> dict[str, float]:
    """Be the process of a run: seconds of each step; `refused` instead where the look ends it."""
    from pyspark.sql import SparkSession

    from eoctl.spark.audit import summarize_directories
    from eoctl.spark.executors import SparkUnavailableError, is_local, make_ready
    from eoctl.spark.session import defaults, home_environment, worker_environment
    from recovery.summaries.codec import Shelf
    from storage.places.list_places import list_places
    from storage.places.splits import plan_places

    home = home_environment() if is_local(master) else {}
    os.environ.update(worker_environment(master) | home)
    steps = [time.perf_counter()]
    builder = SparkSession.builder.master(master).appName("start")
    for name, value in {**defaults(master), **SETTINGS}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    steps.append(time.perf_counter())
    tracker = session.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - not in Python's API
    while len(tracker.getExecutorInfos()) <= executors_count:  # the driver is one of them
        time.sleep(0.02)
    steps.append(time.perf_counter())
    try:
        make_ready(session, [path])
    except SparkUnavailableError:
        return {"refused": time.perf_counter() - steps[-1]}
    steps.append(time.perf_counter())
    for _ in range(2):
        splits = plan_places(list_places([path]).places, 1 << 30)
        found = summarize_directories(session, splits, Shelf())
        if not all(each.unpacked().summary.counts.batches for each in found.values()):
            raise RuntimeError("nothing was read")
        steps.append(time.perf_counter())
    session.stop()
    times = (end - begin for begin, end in pairwise(steps))
    return dict(zip(REPORTED, times, strict=True))


def run(
    master: str, executors_count: int, path: Path, environment: dict[str, str]
) -> dict[str, float]:
    """Run `job` in a process of its own."""
    words = json.dumps([master, executors_count, str(path)])
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_start", "--job", words], env=environment,
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(name: str, runs: list[dict[str, float]]) -> None:
    """Print the medians."""
    steps = ", ".join(f"{step} {median(each[step] for each in runs):.1f}" for step in runs[0])
    print(f"{name}: {steps} s", flush=True)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        print(json.dumps(job(*json.loads(options.job))))
        return
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        log = root / "t-0"
        make_segment(log, total_bytes=1 << 20, size="16k")
        here = [run("local[2]", 0, log, dict(os.environ)) for _ in range(options.runs)]
        report("local[2]", here)
        with running_cluster(root) as cluster:
            there = [run(cluster.master, 2, log, cluster.environment) for _ in range(options.runs)]
            report("two workers", there)
            venv.create(root / "bare", with_pip=False, symlinks=True)
            lacking = {"PYSPARK_PYTHON": str(root / "bare/bin/python")}
            refused = [
                run(cluster.master, 2, log, cluster.environment | lacking)
                for _ in range(options.runs)
            ]
            report(f"what executors lack is said after (bar {REFUSAL_BAR_S:.0f})", refused)


if __name__ == "__main__":
    main()
