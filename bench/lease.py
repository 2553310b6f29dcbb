"""Measure `storage.writing.producer_ids`: leases and blocks in a second, with fsync and without.

    python -m bench.lease [--mib N] [--runs 3]

An operation takes the lock of the log dir, reads what others have added, appends its change and
syncs it: in one process after the other, and in several at once on one log dir, on the disk of the
temporary directory. Without fsync shows what of it is the disk. The command is the whole program,
from the start of the interpreter.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.measure import busy_lines, parse_options, run_once
from bench.rebuild import EOCTL
from storage.files.fsio import FileSystem
from storage.writing.producer_ids import ProducerIds

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 2.0
APPS_COUNT = 100
TOPIC_ID = bytes(15) + b"\x07"
PROCESSES_COUNT = 4


class UnsyncedFileSystem(FileSystem):
    """Leaves all to the operating system."""

    def fsync(self, file: Any) -> None:
        """Do nothing."""

    def fsync_dir(self, path: Any) -> None:
        """Do nothing."""


def lease(ids: ProducerIds, number: int) -> None:
    """Lease an id again."""
    ids.acquire(f"app-{number % APPS_COUNT}", 60_000)


def take_block(ids: ProducerIds, number: int) -> None:
    """Take a block: its size is 1."""
    del number
    ids.next_id()


OPERATIONS: dict[str, Callable[[ProducerIds, int], None]] = {
    "acquire": lease,
    "block": take_block,
}


def work(log_dir: str, name: str, fs: FileSystem, answers: Any) -> None:
    """Repeat an operation for some time; tell how often."""
    ids = ProducerIds.at(log_dir, fs, lock_wait_ms=60_000, block_size=1, topic_id=TOPIC_ID)
    end_s = time.perf_counter() + SECONDS
    count = 0
    while time.perf_counter() < end_s:
        OPERATIONS[name](ids, count)
        count += 1
    answers.put(count)


def rate(name: str, fs: FileSystem, processes_count: int) -> float:
    """Operations a second of some processes together, on a new log."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as root:
        Path(root, "meta.properties").write_text("version=1\n")
        workers = [
            context.Process(target=work, args=(root, name, fs, answers))
            for _ in range(processes_count)
        ]
        for each in workers:
            each.start()
        count = sum(answers.get(timeout=60) for _ in workers)
        for each in workers:
            each.join()
    return count / SECONDS


def command_s(runs: int) -> list[float]:
    """Seconds of whole programs."""
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as root:
        Path(root, "meta.properties").write_text("version=1\n")
        command = [*EOCTL, "lease-pid", "acquire", root, "--app-id", "a", "--expiry-ms", "9"]
        run_once(command)
        return [run_once(command) for _ in range(max(runs, 5))]


def lease_lines(runs: int) -> list[str]:
    """Markdown of the whole measurement."""
    table = ["| lease-pid, operations/s | with fsync | without |", "| --- | --- | --- |"]
    for name in OPERATIONS:
        for count in (1, PROCESSES_COUNT):
            cells = []
            for fs in (FileSystem(), UnsyncedFileSystem()):
                found = [rate(name, fs, count) for _ in range(runs)]
                cells.append(f"{max(found):,.0f} ({median(found):,.0f})")
            table.append(f"| {name}, {count} process(es) | {' | '.join(cells)} |")
            print(table[-1], flush=True)
    times_s = command_s(runs)
    whole = f"{min(times_s):.2f} ({median(times_s):.2f}) s"
    table += ["", f"- `eoctl lease-pid acquire` as a whole program: {whole}."]
    return table + busy_lines()


def main() -> None:
    """Command line."""
    chosen = parse_options(__doc__, 0, "not used")
    print("\n".join(lease_lines(chosen.runs)))


if __name__ == "__main__":
    main()
