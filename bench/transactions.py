"""Measure transactions of one record each, with a transaction coordinator and without, in one run.

    python -m bench.transactions [--transactions 40000] [--runs 3]

Times are of whole programs that read a file of lines and write a new partition on the disk of the
temporary directory, each line in a transaction of its own. Without a coordinator a transaction is a
batch and a marker; with one there are three records of `__transaction_state` besides. With
`--fsync batch` each of these is synced before the next one; a twentieth as many are measured then.
What was written is read again with `eoctl consume` and compared with the input.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path
from statistics import median

from bench.measure import busy_lines
from bench.produce import TOPIC_ID, Lines, Took, has_lines, make_lines, prepare, timed
from bench.rebuild import EOCTL

LINE_BYTES = 100
BAR = 2000  # a second, with --fsync never
SYNCED_SHARE = 20
COMMITTED = ("--isolation", "read_committed")


def command(lines: Lines, work_dir: Path, fsync: str, *, has_coordinator: bool) -> list[str]:
    """Write to a new partition outside of any cluster."""
    options = ["--transactional-id", "bench"] if has_coordinator else []
    return [
        *EOCTL, "produce", str(work_dir / "log-dir/bench-0"), str(lines.path), "--apply",
        "--single-copy", "--topic-id", TOPIC_ID, "--txn-records", "1", "--fsync", fsync, *options,
    ]  # fmt: skip


def first_lines(lines: Lines, root: Path, count: int) -> Lines:
    """A file of some of the lines."""
    data = b"".join(lines.path.read_bytes().splitlines(keepends=True)[:count])
    path = root / f"first-{count}"
    path.write_bytes(data)
    return Lines(path, lines.line_bytes, count, hashlib.sha256(data).hexdigest())


def transaction_lines(count: int, runs: int) -> list[str]:
    """Markdown of the whole measurement."""
    heads = ["transactions of one record", "a second, coordinator", "bar", "markers alone",
             "ratio of times", "equal"]  # fmt: skip
    table = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        whole = make_lines(root, LINE_BYTES, max(count // 4096, 1) + 1)
        for fsync in ("never", "batch"):
            wanted = count if fsync == "never" else count // SYNCED_SHARE
            table.append(_row(first_lines(whole, root, wanted), root / "ours", fsync, runs))
            print(table[-1], flush=True)
    return table + busy_lines()


def _row(lines: Lines, work_dir: Path, fsync: str, runs: int) -> str:
    took: dict[bool, list[Took]] = {True: [], False: []}
    is_equal = True
    for _ in range(runs):
        for has_coordinator, times in took.items():
            prepare(work_dir)
            times.append(timed(command(lines, work_dir, fsync, has_coordinator=has_coordinator)))
            is_equal &= has_lines(work_dir / "log-dir/bench-0", lines, *COMMITTED)
    ours, alone = ([each.wall_s for each in took[key]] for key in (True, False))
    cells = [
        f"--fsync {fsync}, {lines.count:,}",
        f"{lines.count / min(ours):,.0f} ({lines.count / median(ours):,.0f})",
        f"{BAR:,}" if fsync == "never" else "-",
        f"{lines.count / min(alone):,.0f} ({lines.count / median(alone):,.0f})",
        f"{min(ours) / min(alone):.1f}",
        "yes" if is_equal else "**no**",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transactions", type=int, default=40_000, help="with --fsync never")
    parser.add_argument("--runs", type=int, default=3, help="of each program")
    chosen = parser.parse_args()
    print("\n".join(transaction_lines(chosen.transactions, chosen.runs)))


if __name__ == "__main__":
    main()
