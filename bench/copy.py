"""Measure `eoctl copy` beside a plain copy of the same files, in one run.

    python -m bench.copy [--mib 512] [--runs 3]

Times are of whole programs on the disk of the temporary directory, with the source in the page
cache: ours until the segment, its indexes and its snapshot are synced (`--fsync segment`), with and
without the comparison at the end; `dd conv=fsync` of the `.log` beside it. CPU is user and system
time of the program alone, which a busy machine disturbs less.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.make_log import MIB, make_segment
from bench.measure import busy_lines, parse_options, peak_memory_mib, read_ahead
from bench.produce import MB, TOPIC_ID, Took, timed
from bench.rebuild import EOCTL

MEMORY_BAR_MIB = 200


class Case(NamedTuple):
    """A source, and how it is copied; `bar_mb` is what is promised, per second (0: nothing)."""

    name: str
    size: str
    options: tuple[str, ...] = ()
    bar_mb: int = 0


NO_COMPARE = ("--no-compare",)
CASES = [
    Case("16 KiB batches", "16k", NO_COMPARE, bar_mb=200),
    Case("16 KiB batches, compared", "16k", bar_mb=200),
    Case("1 KiB batches", "1k", NO_COMPARE),
    Case("1 KiB batches, compared", "1k"),
]


def copy_command(source: Path, work_dir: Path, options: tuple[str, ...]) -> list[str]:
    """Copy into a new partition outside of any cluster."""
    return [
        *EOCTL, "copy", str(source), str(work_dir / "log-dir/bench-0"), "--apply",
        "--single-copy", "--topic-id", TOPIC_ID, "--fsync", "segment", *options,
    ]  # fmt: skip


def prepare(work_dir: Path) -> None:
    """Take away what the last run wrote, and let the disk rest."""
    shutil.rmtree(work_dir, ignore_errors=True)
    (work_dir / "log-dir").mkdir(parents=True)
    os.sync()


def is_equal(source: Path, work_dir: Path) -> bool:
    """Whether a later run finds nothing to copy, and all of it equal."""
    command = [*copy_command(source, work_dir, ("--compare", "all")), "--output", "jsonl"]
    done = subprocess.run(command, capture_output=True, check=False)
    row = json.loads(done.stdout.splitlines()[0]) if not done.returncode else {}
    return row.get("compared") == "equal" and not row["records"] and row["compared_records"] > 0


def measure(case: Case, log: Path, root: Path, runs: int) -> str:
    """One row of the table; both programs in turn."""
    work_dir = root / "ours"
    ours, theirs, equal = [], [], True
    for number in range(runs):
        prepare(work_dir)
        ours.append(timed(copy_command(log.parent, work_dir, case.options)))
        if not number:
            equal = is_equal(log.parent, work_dir)
        prepare(work_dir)
        target = work_dir / "log-dir/plain"
        theirs.append(timed(["dd", f"if={log}", f"of={target}", "bs=1M", "conv=fsync"]))
    return _row(case, log.stat().st_size, ours, theirs, equal=equal)


def _row(case: Case, size: int, ours: list[Took], theirs: list[Took], *, equal: bool) -> str:
    walls_s = [each.wall_s for each in ours]
    plain_s = [each.wall_s for each in theirs]
    cells = [
        case.name,
        f"{size / MB / min(walls_s):.0f} ({size / MB / median(walls_s):.0f})",
        f"{min(each.cpu_s for each in ours):.2f}",
        f"{size / MB / min(each.cpu_s for each in ours):.0f}",
        f"{case.bar_mb} MB/s" if case.bar_mb else "-",
        f"{size / MB / min(plain_s):.0f} ({size / MB / median(plain_s):.0f})",
        f"{min(walls_s) / min(plain_s):.1f}",
        "yes" if equal else "**no**",
    ]
    return f"| {' | '.join(cells)} |"


def copy_lines(mib: int, runs: int) -> list[str]:
    """Markdown of the whole measurement."""
    heads = ["copy", "MB/s", "CPU, s", "MB per CPU second", "bar", "dd with fsync, MB/s",
             "times as long", "equal"]  # fmt: skip
    table = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        logs = {}
        for size in dict.fromkeys(each.size for each in CASES):
            directory = root / size / "bench-0"
            directory.mkdir(parents=True)
            logs[size] = make_segment(directory, total_bytes=mib * MIB, size=size)
        for case in CASES:
            read_ahead(logs[case.size])
            table.append(measure(case, logs[case.size], root, runs))
            print(table[-1], flush=True)
        prepare(root / "ours")
        used = peak_memory_mib(copy_command(logs[CASES[0].size].parent, root / "ours", ()))
    table += ["", f"- Memory, {mib} MiB of 16 KiB batches: {used:.0f} MiB (bar {MEMORY_BAR_MIB})."]
    return table + busy_lines()


def main() -> None:
    """Command line."""
    chosen = parse_options(__doc__, 512, "size of each source")
    print("\n".join(copy_lines(chosen.mib, chosen.runs)))


if __name__ == "__main__":
    main()
