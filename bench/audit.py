"""Measure `eoctl spark-audit` on both engines: speed, start-up, memory, and linear time.

    python -m bench.audit [--mib 1024] [--runs 3] [--parts 8] [--ratio | --no-spark]

A log of N GiB is one segment under N names (hard links), a partition each: the page cache holds it
on any machine, and every byte is read and verified N times. On Spark the session and the first
query are told apart from the measured ones, which run in the same session, each in turn with the
local engine. What three times as many partitions take
more tells what Spark reaches once it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from bench.make_log import MIB, make_segment
from bench.measure import family_pss_mib, peak_memory_mib, read_ahead, run_once
from bench.rebuild import EOCTL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

GB = 1e9
LOCAL_BAR_GB, START_UP_BAR_S = 5.0, 0.5
SPARK_BARS_GB = {"16k": 1.5, "1k": 0.5}
RATIO_BAR = 0.6  # of Spark's speed, once it runs, to that of two processes
MARGIN_TIMES = 3  # as many partitions again tell what one more GiB costs once it runs
WORKER_BAR_MIB = 300


def make_logs(root: Path, size: str, mib: int, parts: int) -> list[Path]:
    """Make one segment, and as many partitions that have it."""
    first = root / f"{size}-0"
    path = make_segment(first, total_bytes=mib * MIB, size=size)
    for number in range(1, parts):
        other = root / f"{size}-{number}"
        other.mkdir()
        for each in first.iterdir():
            os.link(each, other / each.name)
    read_ahead(path)
    return [root / f"{size}-{number}" for number in range(parts)]


def local_seconds(paths: Sequence[Path], runs: int) -> list[float]:
    """Whole programs, on this machine's processes."""
    command = [*EOCTL, "spark-audit", "--engine", "local", "--jobs", "2", *map(str, paths)]
    return [run_once(command) for _ in range(runs)]


def bare_seconds(paths: Sequence[Path], runs: int) -> list[float]:
    """Two processes that do nothing but read the same files and compute CRC-32C of 1 MiB pieces."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        commands = [
            [sys.executable, "-m", "bench.audit", "--bare", *map(str, paths[number::2])]
            for number in range(2)
        ]
        for process in [subprocess.Popen(command) for command in commands]:
            process.wait()
        times.append(time.perf_counter() - started)
    return times


def bare(directories: Sequence[str]) -> None:
    """Be a process of `bare_seconds`."""
    from storage.checksum import load_crc32c

    checksum, buffer = load_crc32c(), bytearray(MIB)
    for directory in directories:
        (path,) = Path(directory).glob("*.log")
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                checksum(buffer)


class Times(NamedTuple):
    """Seconds of both engines by size and number of partitions, and Spark's own.

    `spark_s` and `local_s` have a list of runs for each name of `query_name`.
    """

    session_s: float
    first_query_s: float
    spark_s: dict[str, list[float]]
    local_s: dict[str, list[float]]
    worker_mib: float


def query_name(size: str, count: int) -> str:
    """Name what is read by size of batches and number of partitions."""
    return f"{size} {count}"


def measure_both(queries: dict[str, list[str]], runs: int) -> Times:
    """Run queries in a session of a process of its own, each in turn with the local engine."""
    words = json.dumps({"queries": queries, "runs": runs})
    done = subprocess.run(
        [sys.executable, "-m", "bench.audit", "--spark-job", words],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return Times(**json.loads(done.stdout.splitlines()[-1]))


def spark_job(words: str) -> None:
    """Be the process of `measure_both`."""
    from eoctl.spark.session import spark_session

    asked = json.loads(words)
    queries: dict[str, list[str]] = asked["queries"]
    spark_s: dict[str, list[float]] = {name: [] for name in queries}
    local_s: dict[str, list[float]] = {name: [] for name in queries}
    started = time.perf_counter()
    with spark_session("local[2]") as session:
        session_s = time.perf_counter() - started
        first_query_s = spark_seconds(session, next(iter(queries.values()))[:1])
        for _ in range(asked["runs"]):
            for name, paths in queries.items():
                spark_s[name].append(spark_seconds(session, paths))
                local_s[name] += local_seconds([Path(each) for each in paths], 1)
        watch = _WorkerWatch()
        with watch:  # and no clock: looking costs time
            for paths in queries.values():
                spark_seconds(session, paths)
    found = Times(session_s, first_query_s, spark_s, local_s, watch.peak_mib)
    print(json.dumps(found._asdict()))


def spark_seconds(session: SparkSession, paths: list[str]) -> float:
    """List, plan and read as `spark-audit` does in its session."""
    from eoctl.commands.shared.audit_run import TASKS_PER_CORE
    from eoctl.spark.audit import summarize_directories
    from recovery.export.plan import split_bytes_for
    from recovery.summaries.codec import Shelf
    from storage.places.list_places import list_places
    from storage.places.splits import plan_places

    begun = time.perf_counter()
    places = list_places(paths).places
    size = split_bytes_for(sum(each.file_bytes for each in places), 2 * TASKS_PER_CORE)
    found = summarize_directories(session, plan_places(places, size), Shelf())
    if not all(each.unpacked().summary.counts.batches for each in found.values()):
        raise RuntimeError("nothing was read")
    return time.perf_counter() - begun


class _WorkerWatch:
    """Samples the memory of the Python workers of this process's Spark."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            for pid, mib in family_pss_mib(os.getpid()).items():
                if pid != os.getpid() and "pyspark" in _command_line(pid):
                    self.peak_mib = max(self.peak_mib, mib)


def _command_line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return "" if b"java" in words.split(b"\0")[0] else words.decode("utf-8", "replace")


def gib(bytes_count: int) -> str:
    """As `8 GiB`; below ten with a digit behind the point."""
    count = bytes_count / (1 << 30)
    return f"{count:.0f} GiB" if count >= 10 else f"{round(count, 1):g} GiB"


def speed(bytes_count: int, seconds: Sequence[float]) -> str:
    """Best and median in GB/s."""
    return f"{bytes_count / min(seconds) / GB:.1f} ({bytes_count / median(seconds) / GB:.1f}) GB/s"


def audit_lines(
    mib: int, runs: int, parts: int = 8, *, has_java: bool = True, is_ratio_only: bool = False
) -> list[str]:
    """Return the lines of the figures; `is_ratio_only`: the lines of Spark alone."""
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        all_logs = {
            size: make_logs(root, size, mib, MARGIN_TIMES * parts) for size in ("16k", "1k")
        }
        logs = {size: paths[:parts] for size, paths in all_logs.items()}
        one = logs["16k"][0]
        size_bytes = next(one.glob("*.log")).stat().st_size
        small = make_segment(root / "small-0", total_bytes=10_000).parent
        lines = [] if is_ratio_only else _local_lines(logs, size_bytes, small, runs)
        if has_java:
            lines += _spark_lines(all_logs, size_bytes, runs, parts)
    return lines


def _local_lines(logs: dict[str, list[Path]], size_bytes: int, small: Path, runs: int) -> list[str]:
    parts = len(logs["16k"])
    alone = bare_seconds(logs["16k"], runs)
    alone_speed = speed(parts * size_bytes, alone)
    read = gib(parts * size_bytes)
    lines = [f"- Reading {read} and CRC-32C alone, two processes: {alone_speed}."]
    for size, paths in logs.items():
        by_count = {count: local_seconds(paths[:count], runs) for count in (1, parts)}
        bar = f", bar {LOCAL_BAR_GB:g}" if size == "16k" else ""
        linear = min(by_count[parts]) / min(by_count[1])
        lines.append(
            f"- `spark-audit --engine local`, {size} batches, {read}: "
            f"{speed(parts * size_bytes, by_count[parts])}{bar}, "
            f"{min(alone) / min(by_count[parts]):.2f} of that; {linear:.1f} times the time of one."
        )
    start_up = min(local_seconds([small], 5))
    lines.append(
        f"- Start-up, a segment of 10 kB: {start_up * 1000:.0f} ms (bar {START_UP_BAR_S:g} s)."
    )
    used = peak_memory_mib([*EOCTL, "spark-audit", "--engine", "local", str(logs["1k"][0])])
    lines.append(
        f"- Memory over {gib(size_bytes)} of 1k batches, all processes together: {used:.0f} MiB."
    )
    return lines


def _spark_lines(logs: dict[str, list[Path]], size_bytes: int, runs: int, parts: int) -> list[str]:
    counts = (1, parts, MARGIN_TIMES * parts)
    queries = {
        query_name(size, count): [str(path) for path in paths[:count]]
        for size, paths in logs.items()
        for count in counts
    }
    found = measure_both(queries, runs)
    begin = f"session {found.session_s:.1f} s, first query {found.first_query_s:.1f} s"
    lines = [f"- On Spark, `local[2]`: {begin}; then"]
    for size in logs:
        one, some, many = (query_name(size, count) for count in counts)
        seconds = found.spark_s[some]
        linear = min(seconds) / min(found.spark_s[one])
        whole = min(found.local_s[some]) / min(seconds)
        lines.append(
            f"- {size} batches, {gib(parts * size_bytes)}: {speed(parts * size_bytes, seconds)}, "
            f"bar {SPARK_BARS_GB[size]:g}; {linear:.1f} times the time of one; "
            f"{whole:.2f} of `--engine local --jobs 2`."
        )
        more_bytes = (MARGIN_TIMES - 1) * parts * size_bytes
        more = marginal(found, some, many, more_bytes)
        lines.append(f"- {size} batches, {gib(more_bytes)} more, once it runs: {more}")
    lines.append(
        f"- Memory of a Python worker: {found.worker_mib:.0f} MiB (bar {WORKER_BAR_MIB} MiB)."
    )
    return lines


def marginal(found: Times, some: str, many: str, bytes_count: int) -> str:
    """Tell how fast both engines read what `many` has more than `some`, once they run.

    Best of the runs; what a program and a query cost to begin with is in neither.
    """
    spark_s = min(found.spark_s[many]) - min(found.spark_s[some])
    local_s = min(found.local_s[many]) - min(found.local_s[some])
    if min(spark_s, local_s) <= 0:
        return "unknown: more took no longer, so that the machine was busy, or the segments small."
    return (
        f"{bytes_count / spark_s / GB:.2f} of {bytes_count / local_s / GB:.2f} GB/s, "
        f"{local_s / spark_s:.2f} of the local engine's, bar {RATIO_BAR:g}."
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of a segment")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--parts", type=int, default=8, help="partitions that share it")
    parser.add_argument("--spark-job", help=argparse.SUPPRESS)
    parser.add_argument("--bare", nargs="*", help=argparse.SUPPRESS)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--no-spark", action="store_true", help="the local engine alone")
    only.add_argument("--ratio", action="store_true", help="Spark beside the local engine alone")
    chosen = parser.parse_args()
    if chosen.bare:
        bare(chosen.bare)
        return
    if chosen.spark_job:
        spark_job(chosen.spark_job)
        return
    lines = audit_lines(
        chosen.mib,
        chosen.runs,
        chosen.parts,
        has_java=not chosen.no_spark,
        is_ratio_only=chosen.ratio,
    )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
