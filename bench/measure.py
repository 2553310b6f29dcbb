"""Runs whole programs and tells what they cost; nothing here knows what they do.

Also what measurements have in common: the note of a busy machine, the command line.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tests.kafka.jars import missing_broker

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SAMPLE_S = 0.02
KIB_PER_MIB = 1024


class Options(NamedTuple):
    """What the command line says."""

    mib: int
    runs: int
    has_kafka: bool


class Run(NamedTuple):
    """One run of a program: by the clock, and the processor time of it and its children."""

    wall_s: float
    cpu_s: float


class Cost(NamedTuple):
    """Several runs of one command, by the clock."""

    times_s: tuple[float, ...]
    cpu_times_s: tuple[float, ...] = ()

    @property
    def best_cpu_s(self) -> float:
        """Processor time of the run that needed least."""
        return min(self.cpu_times_s)

    @property
    def best_s(self) -> float:
        """The run that was disturbed least."""
        return min(self.times_s)

    @property
    def median_s(self) -> float:
        """The usual run."""
        return median(self.times_s)


def run_once(command: Sequence[str], statuses: Collection[int] = (0,)) -> float:
    """Seconds from the start of the program to its end; its output goes to /dev/null."""
    return run_measured(command, statuses).wall_s


def run_measured(command: Sequence[str], statuses: Collection[int] = (0,)) -> Run:
    """Run a program; its output goes to /dev/null."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in statuses:
        raise RuntimeError(f"exit status {done.returncode}: {' '.join(command)}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(wall_s, cpu_s)


def alternate(
    commands: Sequence[Sequence[str]], runs: int, statuses: Collection[int] = (0,)
) -> list[Cost]:
    """Measure commands in turn, so that a busy machine disturbs all of them alike."""
    found: list[list[Run]] = [[] for _ in commands]
    for _ in range(runs):
        for place, command in enumerate(commands):
            found[place].append(run_measured(command, statuses))
    return [
        Cost(tuple(each.wall_s for each in one), tuple(each.cpu_s for each in one)) for one in found
    ]


def output_digest(command: Sequence[str]) -> str:
    """SHA-256 of all that the command writes to stdout."""
    digest = hashlib.sha256()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        if process.stdout is not None:
            while chunk := process.stdout.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def peak_memory_mib(command: Sequence[str]) -> float:
    """Peak of the memory of the program and its children: the sum of PSS, sampled.

    Shared pages are counted once this way, which the sum of resident sizes would not do.
    """
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        peak_kib = 0
        while process.poll() is None:
            peak_kib = max(peak_kib, sum(map(_pss_kib, _family(process.pid))))
            time.sleep(SAMPLE_S)
    return peak_kib / KIB_PER_MIB


def family_pss_mib(pid: int) -> dict[int, float]:
    """Return the PSS of a process and of all below it, by process id."""
    return {each: _pss_kib(each) / KIB_PER_MIB for each in _family(pid)}


def _family(pid: int) -> list[int]:
    """Return a process and all below it, whichever thread started them: a JVM's are many."""
    try:
        threads = [*Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    below = []
    for thread in threads:
        with suppress(OSError):  # it has ended: its children are those of another one by now
            below += (thread / "children").read_text().split()
    return [pid, *(each for child in below for each in _family(int(child)))]


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def read_ahead(path: Path) -> None:
    """Bring a file into the page cache."""
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        while file.report() < size:
            file.read(1 << 24)


def busy_lines() -> list[str]:
    """Return what to say if other work disturbed the measurement that has just ended."""
    load = os.getloadavg()[0]
    if load <= (os.cpu_count() or 1) / 2:
        return []
    return [f"- The machine was busy with other work meanwhile (load {load:.1f})."]


def parse_options(about: str | None, mib: int, mib_help: str) -> Options:
    """Read the command line of a measurement beside a broker, and tell if there is none.

    Args:
        about: the docstring of the module.
        mib: how much is measured if nothing else is said.
        mib_help: what of.
    """
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=mib, help=mib_help)
    parser.add_argument("--runs", type=int, default=3, help="of each program")
    parser.add_argument("--no-kafka", action="store_true", help="ours alone")
    chosen = parser.parse_args()
    reason = missing_broker()
    if reason:
        print(f"no broker: {reason}", file=sys.stderr)
    return Options(chosen.mib, chosen.runs, not (reason or chosen.no_kafka))
