"""Measure `eoctl truncate` and `eoctl undo` against a plain copy of the bytes that they keep.

    python -m bench.truncate [--mib 512] [--runs 3]

No safe truncation can do less than to copy what is cut, and sync it: `cp` and `sync` of exactly
these bytes are the measure. Whole segments are not copied at all.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.make_log import MIB, make_segment
from bench.measure import peak_memory_mib, read_ahead, run_once
from bench.rebuild import EOCTL

SEGMENTS_COUNT = 20
MEMORY_LIMIT_MIB = 150
HEAD = (
    "| truncate | plan, s | apply, s | undo, s | copy of what is cut, s | apply / copy"
    " | more on the disk, MiB |"
)


class Times(NamedTuple):
    """Seconds of one round."""

    plan: float
    apply: float
    undo: float
    copy: float


def truncate_command(partition: Path, offset: int, *options: str) -> list[str]:
    """Cut a partition outside of any cluster."""
    return [
        *EOCTL,
        "truncate",
        str(partition),
        "--to-offset",
        str(offset),
        "--single-copy",
        *options,
    ]


def used_bytes(root: Path) -> int:
    """What a directory takes on the disk; a file with two names counts once."""
    found = {each.stat().st_ino: each.stat().st_blocks * 512 for each in root.rglob("*")}
    return sum(found.values())


def one_round(partition: Path, offset: int, tail_bytes: int) -> tuple[Times, int]:
    """Plan, apply, undo, and a copy of the same bytes; what is there afterwards is as it was.

    Also returns how much more the disk holds while the plan is applied.
    """
    root = partition.parents[1]
    log = max(partition.glob("*.log"))
    plan_s = run_once(truncate_command(partition, offset))
    used_before = used_bytes(root)
    apply_s = run_once(truncate_command(partition, offset, "--apply"))
    more_bytes = used_bytes(root) - used_before
    place = root / "log-dir.eoctl"
    undo_s = run_once([*EOCTL, "undo", *map(str, sorted(place.iterdir()))])
    shutil.rmtree(place)
    target = root / "copy"
    tail = f"tail -c {tail_bytes} {log} > {target} && sync {target}"
    copy_s = run_once(["sh", "-c", tail]) if tail_bytes else 0.0
    target.unlink(missing_ok=True)
    return Times(plan_s, apply_s, undo_s, copy_s), more_bytes


def truncate_lines(mib: int, runs: int) -> list[str]:
    """Markdown of both cases."""
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        lines = [
            HEAD,
            "| --- | --- | --- | --- | --- | --- | --- |",
            _half_of_a_segment(Path(temporary) / "one", mib, runs),
            _many_segments(Path(temporary) / "many", mib, runs),
        ]
        partition = Path(temporary) / "one" / "log-dir" / "cut-0"
        used = peak_memory_mib(truncate_command(partition, _middle(partition), "--apply"))
        lines += ["", f"- Memory of the first: {used:.0f} MiB (bar {MEMORY_LIMIT_MIB} MiB)."]
    return lines


def _middle(partition: Path) -> int:
    """An offset about in the middle of a single segment."""
    entries = next(partition.glob("*.index")).read_bytes()
    place = len(entries) // 16 * 8
    return int.from_bytes(entries[place : place + 4], "big")


def _half_of_a_segment(root: Path, mib: int, runs: int) -> str:
    partition = root / "log-dir" / "cut-0"
    log = make_segment(partition, total_bytes=mib * MIB, size="1k")
    read_ahead(log)
    return _line(f"half of a segment of {mib} MiB", partition, _middle(partition), mib, runs)


def _many_segments(root: Path, mib: int, runs: int) -> str:
    partition = root / "log-dir" / "cut-0"
    base_offset = 0
    for _ in range(SEGMENTS_COUNT):
        log = make_segment(
            partition, total_bytes=mib * MIB // 4, size="1k", base_offset=base_offset
        )
        base_offset += int.from_bytes(log.with_suffix(".index").read_bytes()[-8:-4], "big") + 1000
        read_ahead(log)
    words = f"{SEGMENTS_COUNT - 1} of {SEGMENTS_COUNT} segments of {mib // 4} MiB"
    second = int(sorted(partition.glob("*.log"))[1].stem)
    return _line(words, partition, second - 1, 0, runs)


def _line(words: str, partition: Path, offset: int, mib: int, runs: int) -> str:
    rounds = [one_round(partition, offset, mib * MIB // 2) for _ in range(runs)]
    best = Times(*(min(each) for each in zip(*(times for times, _ in rounds), strict=True)))
    usual = Times(*(median(each) for each in zip(*(times for times, _ in rounds), strict=True)))
    cells = [f"{one:.2f} ({other:.2f})" for one, other in zip(best, usual, strict=True)]
    ratio = "-"
    if mib:
        ratio = f"{best.apply / best.copy:.1f}"
    else:
        cells[-1] = "-"
    return f"| {' | '.join([words, *cells, ratio, f'{rounds[0][1] / MIB:.1f}'])} |"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=512, help="size of the one segment")
    parser.add_argument("--runs", type=int, default=3, help="of each program")
    chosen = parser.parse_args()
    print("\n".join(truncate_lines(chosen.mib, chosen.runs)))


if __name__ == "__main__":
    main()
