"""Measure commands over log dirs of many small partitions, with one process and with two.

    python -m bench.partitions [--counts 1000 3000 10000]

Told are wall and processor time, whole programs, and how much longer the next size takes for each
partition; the times with one process and with two are taken in turn. A log dir is a real broker's,
with one of its partitions many times (`tests/many_partitions.py`).
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.measure import run_once
from bench.rebuild import EOCTL
from tests.many_partitions import multiply_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTS = (1000, 3000, 10_000)
COMMANDS = ("check", "rebuild", "repair")
ARCHIVE = Path(__file__).parents[1] / "tests/golden/kafka-4.3.1.tar.xz"
STATUSES = (0, 1)  # one of its transactions is open


class Spent(NamedTuple):
    """Seconds of one run: of the clock, and of all processors."""

    wall_s: float
    cpu_s: float


def spend(command: Sequence[str]) -> Spent:
    """Run a program to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s = run_once(command, STATUSES)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall_s, cpu_s)


def make_log_dir(work_dir: Path, count: int) -> Path:
    """Make a log dir with so many partitions of one topic."""
    root = work_dir / f"{count}"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(
            root,
            [each for each in archive if Path(each.name).parts[:1] == ("clean",)],
            filter="data",
        )
    multiply_partition(root / "clean", count)
    return root / "clean"


def partition_lines(counts: Sequence[int] = COUNTS) -> list[str]:
    """Markdown of the whole measurement."""
    heads = ["many partitions", "partitions", "one process, s", "CPU, s", "two, s", "CPU, s"]
    heads += ["two / one", "CPU for a partition, ms, one and two"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        for count in counts:
            log_dir = make_log_dir(Path(temporary), count)
            for name in COMMANDS:
                one, two = (
                    spend([*EOCTL, name, "--jobs", jobs, str(log_dir)]) for jobs in ("1", "2")
                )
                each_ms = f"{1000 * one.cpu_s / count:.2f}, {1000 * two.cpu_s / count:.2f}"
                cells = [name, f"{count:,}", f"{one.wall_s:.1f}", f"{one.cpu_s:.1f}"]
                cells += [f"{two.wall_s:.1f}", f"{two.cpu_s:.1f}"]
                cells += [f"{two.wall_s / one.wall_s:.2f}", each_ms]
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], flush=True)
            shutil.rmtree(log_dir.parent)
    return lines


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="of partitions")
    partition_lines(parser.parse_args().counts)


if __name__ == "__main__":
    main()
