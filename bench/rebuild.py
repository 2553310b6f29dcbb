"""Measure `eoctl rebuild` against a real broker's recovery of the same partitions, in one run.

    python -m bench.rebuild [--mib 512] [--runs 3]

The broker's time is its own log line of the load, after a start with the partition's recovery point
at 0 and no index to begin with; ours is that of the whole program. What both made is compared.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.make_log import MIB, make_segment
from bench.measure import alternate, peak_memory_mib, read_ahead, run_once
from tests.kafka import client
from tests.kafka.broker import Broker, force_recovery, replace_partition_files
from tests.kafka.jars import missing_broker

EOCTL = [sys.executable, "-m", "eoctl"]
LOADED = re.compile(r"Completed load of .* in (\d+) ?ms")
FINDINGS = 1  # what `rebuild` ends with: the files are missing on disk
SEGMENTS_COUNT = 20
DERIVED_SUFFIXES = (".index", ".timeindex", ".snapshot")


class Case(NamedTuple):
    """One partition of a single segment; `bar` is the ratio to the broker that we promise.

    `times` as large as the others: below that, the start of the program is what is measured.
    """

    topic: str
    name: str
    size: str
    producers: int
    bar: float
    times: int = 1


CASES = [
    Case("batches-200", "200 B", "200", 8, 15),
    Case("batches-1k", "1 KiB", "1k", 8, 8),
    Case("batches-16k", "16 KiB", "16k", 8, 2.5, times=2),
    Case("producers", "200 B, 10,000 producers", "200", 10_000, 8),
]


class Recovered(NamedTuple):
    """What a broker needed for one partition, and the files that it made."""

    seconds: float
    files: dict[str, bytes]


def make_partition(directory: Path, case: Case, mib: int) -> Path:
    """Make a partition directory with nothing but a `.log`; returns it."""
    partition = directory / f"{case.topic}-0"
    log = make_segment(partition, total_bytes=mib * MIB, size=case.size, producers=case.producers)
    for path in partition.iterdir():
        if path != log:
            path.unlink()
    return partition


def broker_recoveries(partitions: list[Path], work_dir: Path) -> dict[str, Recovered]:
    """Let one broker recover all partitions, one after the other, and read what it says."""
    log_dir = work_dir / "broker"
    settings = {
        "retention.ms": "-1",
        "segment.bytes": str(1 << 30),
        "segment.index.bytes": str(10 << 20),
        "index.interval.bytes": "4096",
    }
    with Broker(log_dir, overrides={"num.recovery.threads.per.data.dir": "1"}) as broker:
        topics = {path.name.removesuffix("-0"): (1, settings) for path in partitions}
        client.create_topics(broker.bootstrap, topics)
        broker.stop()
        for path in partitions:
            replace_partition_files(log_dir / path.name, path.iterdir())
            force_recovery(log_dir, path.name)
            read_ahead(next((log_dir / path.name).glob("*.log")))
        broker.start()
        lines = {path.name: broker.log_lines(path.name) for path in partitions}
        broker.stop()
    found = {}
    for name, texts in lines.items():
        times_ms = [int(match[1]) for text in texts if (match := LOADED.search(text))]
        files = {
            each.name: each.read_bytes()
            for each in (log_dir / name).iterdir()
            if each.suffix in DERIVED_SUFFIXES
        }
        found[name] = Recovered(max(times_ms) / 1000, files)
    return found


def rebuild_command(partition: Path, *options: str) -> list[str]:
    """Rebuild everything of a partition and compare it with what is on disk: nothing."""
    return [*EOCTL, "rebuild", *options, "--now", "wall", str(partition)]


def is_equal(recovered: Recovered, target: Path) -> bool:
    """Whether our files are the broker's."""
    ours = {
        each.name: each.read_bytes() for each in target.iterdir() if each.suffix in DERIVED_SUFFIXES
    }
    return ours == recovered.files


def measure(
    case: Case, partition: Path, recovered: Recovered | None, work_dir: Path, runs: int
) -> str:
    """One line of the table."""
    target = work_dir / "rebuilt"
    read_ahead(next(partition.glob("*.log")))
    (ours,) = alternate([rebuild_command(partition)], runs, statuses=(0, FINDINGS))
    run_once(rebuild_command(partition, "--to", str(target)), statuses=(0, FINDINGS))
    name = f"{case.name}, {case.times} times as large" if case.times > 1 else case.name
    cells = [name, f"{ours.best_s:.2f} ({ours.median_s:.2f})"]
    if recovered is None:
        return " | ".join([*cells, "-", "-", "-", "-"])
    ratio = recovered.seconds / ours.best_s
    equal = "yes" if is_equal(recovered, target / partition.name) else "**no**"
    cells += [f"{recovered.seconds:.2f}", f"{ratio:.1f}", f"{case.bar:g}", equal]
    return " | ".join(cells)


def parallel_line(work_dir: Path, mib: int, runs: int) -> str:
    """A partition of many segments, with one process and with all cores.

    It is five times as large as the others, so that starting the program does not count for much.
    """
    partition = work_dir / "log-dir/many-0"
    mib *= 5
    base_offset = 0
    for _ in range(SEGMENTS_COUNT):
        log = make_segment(
            partition,
            total_bytes=mib * MIB // SEGMENTS_COUNT,
            size="1k",
            base_offset=base_offset,
        )
        entries = log.with_suffix(".index").read_bytes()
        base_offset += int.from_bytes(entries[-8:-4], "big") + 1000
        for path in (log.with_suffix(".index"), log.with_suffix(".timeindex")):
            path.unlink(missing_ok=True)
        read_ahead(log)
    commands = [
        rebuild_command(partition, "--jobs", str(jobs)) for jobs in (1, os.cpu_count() or 1)
    ]
    alone, together = alternate(commands, runs, statuses=(0, FINDINGS))
    return (
        f"- {SEGMENTS_COUNT} segments, {mib} MiB together, 1 KiB batches: {alone.best_s:.2f} s with"
        f" one process, {together.best_s:.2f} s with {os.cpu_count()}:"
        f" {alone.best_s / together.best_s:.2f} times as fast (bar 1.6)."
    )


def memory_line(partition: Path) -> str:
    """Peak memory of one rebuild."""
    used = peak_memory_mib(rebuild_command(partition))
    return f"- Memory of that with 10,000 producers: {used:.0f} MiB (bar 200 MiB)."


def rebuild_lines(mib: int, runs: int) -> list[str]:
    """Markdown of the whole measurement."""
    has_kafka = not missing_broker()
    heads = ["rebuild", "eoctl, s", "broker's recovery, s", "ratio", "bar", "equal"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        work_dir = Path(temporary)
        partitions = [
            make_partition(work_dir / "log-dir", case, mib * case.times) for case in CASES
        ]
        recovered = broker_recoveries(partitions, work_dir) if has_kafka else {}
        for case, partition in zip(CASES, partitions, strict=True):
            line = measure(case, partition, recovered.get(partition.name), work_dir, runs)
            print(line, flush=True)
            lines.append(f"| {line} |")
        lines += ["", parallel_line(work_dir, mib, runs), memory_line(partitions[-1])]
    return lines


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=512, help="size of each partition")
    parser.add_argument("--runs", type=int, default=3, help="of each program")
    chosen = parser.parse_args()
    print("\n".join(rebuild_lines(chosen.mib, chosen.runs)))


if __name__ == "__main__":
    main()
