"""Measure `eoctl check` beside `eoctl rebuild` of the same partition, in one run.

    python -m bench.check [--mib 512] [--runs 3]

Both read a whole partition with all of its derived files, with one process. A rebuild verifies the
same checksums and derives the same state; a check compares more, and goes on behind damage.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench.measure import alternate, peak_memory_mib, read_ahead
from bench.rebuild import CASES, EOCTL, make_partition, rebuild_command

RATIO_BAR = 1.5
MEMORY_BAR_MIB = 200
FINDINGS = 1


def check_command(partition: Path, *options: str) -> list[str]:
    """Check a partition outside of any log dir."""
    return [*EOCTL, "check", "--now", "wall", "--jobs", "1", *options, str(partition)]


def check_lines(mib: int, runs: int) -> list[str]:
    """Markdown of the whole measurement."""
    heads = ["check", "eoctl check, s", "eoctl rebuild, s", "ratio", "bar", "--deep, s", "MiB"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        work_dir = Path(temporary)
        for case in CASES:
            partition = make_partition(work_dir / "log-dir", case, mib)
            target = work_dir / "rebuilt"
            rebuild = rebuild_command(partition, "--jobs", "1")
            alternate([[*rebuild, "--to", str(target)]], 1, statuses=(0, FINDINGS))
            for path in (target / partition.name).iterdir():
                path.rename(partition / path.name)
            read_ahead(next(partition.glob("*.log")))
            check = check_command(partition)
            ours, theirs, deep = alternate(
                [check, rebuild, [*check, "--deep"]], runs, statuses=(0, FINDINGS)
            )
            cells = [
                case.name,
                f"{ours.best_s:.2f} ({ours.median_s:.2f})",
                f"{theirs.best_s:.2f} ({theirs.median_s:.2f})",
                f"{ours.best_s / theirs.best_s:.2f}",
                f"{RATIO_BAR}",
                f"{deep.best_s:.2f} ({deep.median_s:.2f})",
                f"{peak_memory_mib(check):.0f} (bar {MEMORY_BAR_MIB})",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
            for path in partition.iterdir():
                path.unlink()
    return lines


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=512, help="size of each partition")
    parser.add_argument("--runs", type=int, default=3, help="of each program")
    chosen = parser.parse_args()
    print("\n".join(check_lines(chosen.mib, chosen.runs)))


if __name__ == "__main__":
    main()
