"""Measure `eoctl adopt` of a log dir of many partitions, beside `cp -a` of it and a sync.

    python -m bench.adopt [--count 1000] [--runs 3]

Told are the medians of whole programs, each way in turn, and what one fsync of a small new file
takes then: a log dir has six or so files a partition, and each of them is made durable.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from bench.measure import run_once
from bench.partitions import make_log_dir
from bench.rebuild import EOCTL

COUNT = 1000
FSYNCS_COUNT = 50
HEADS = ("adopt", "partitions", "plan, s", "--link, s", "--copy, s", "cp -a, sync, s", "fsync, ms")


def adopt_lines(count: int = COUNT, runs: int = 3) -> list[str]:
    """Markdown of the whole measurement."""
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        log_dir = make_log_dir(root, count)
        target = root / "new"
        call = [*EOCTL, "adopt", str(log_dir), "--to", str(target)]
        copied = f"cp -a {log_dir} {target} && sync -f {target}"
        for _ in range(runs):
            for name, command in (
                ("plan", call),
                ("link", [*call, "--link", "--apply"]),
                ("copy", [*call, "--copy", "--apply"]),
                ("cp", ["sh", "-c", copied]),
            ):
                times.setdefault(name, []).append(run_once(command, (0,)))
                for path in (target, root / "new.eoctl"):
                    shutil.rmtree(path, ignore_errors=True)
            times.setdefault("fsync", []).append(fsync_ms(root))
    found = {name: statistics.median(each) for name, each in times.items()}
    cells = [f"{found[name]:.1f}" for name in ("plan", "link", "copy", "cp", "fsync")]
    lines = [f"| {' | '.join(HEADS)} |", f"| {' | '.join(['---'] * len(HEADS))} |"]
    lines.append(f"| {' | '.join([f'load {os.getloadavg()[0]:.1f}', f'{count:,}', *cells])} |")
    print(*lines, sep="\n", flush=True)
    return lines


def fsync_ms(root: Path) -> float:
    """What it takes to make a small new file durable."""
    taken = []
    for number in range(FSYNCS_COUNT):
        path = root / f"file-{number}"
        with path.open("wb") as file:
            file.write(b"x" * 100)
            file.flush()
            started_s = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - started_s)
        path.unlink()
    return 1000 * statistics.median(taken)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT, help="of partitions")
    parser.add_argument("--runs", type=int, default=3, help="of each way")
    arguments = parser.parse_args()
    adopt_lines(arguments.count, arguments.runs)


if __name__ == "__main__":
    main()
