"""Measure `eoctl sim run`: events a second, a virtual hour, the same in each process.

    python -m bench.cluster [--seconds 180] [--runs 3] [--directory DIR]

Three nodes, one partition with three replicas, acks all, 100 records a second, no faults. Each run
is a process of its own; what is told is the processor time of the run alone, without the start of
the interpreter. What an hour takes is reckoned from what was played: with --seconds 3600 it is one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.measure import busy_lines
from eoctl.lab.environment.settings import PlaySettings, RunSettings
from eoctl.lab.layout import make_cluster
from eoctl.lab.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE = 100
EVENTS_BAR, HOUR_BAR_S = 20_000, 60
HOUR_US = 3600 * 1_000_000


class Simulated(NamedTuple):
    """What a run came to."""

    events_count: int
    virtual_us: int
    cpu_s: float
    digest: str

    @property
    def hour_s(self) -> float:
        """Processor time of a virtual hour."""
        return self.cpu_s * HOUR_US / self.virtual_us


def simulate(seconds: int, directory: Path | None) -> Simulated:
    """Play in this process."""
    settings = PlaySettings()
    run = RunSettings(records=RATE * seconds, rate=RATE, seed=1)
    with tempfile.TemporaryDirectory(dir=directory) as path:
        cluster = make_cluster(str(Path(path, "play")), settings)
        with Path(path, "history").open("wb") as file:
            simulation = Simulation(
                cluster.root, cluster.cluster, settings, run, 1, write=file.write
            )
            begun_s = time.process_time()
            result = simulation.run()
            cpu_s = time.process_time() - begun_s
    return Simulated(result.events_count, result.virtual_us, cpu_s, result.digest)


def simulate_lines(seconds: int, runs: int, directory: Path | None = None) -> Iterator[str]:
    """Play in other processes; gives a table."""
    command = [sys.executable, "-m", "bench.cluster", "--alone", "--seconds", str(seconds)]
    command += ["--directory", str(directory)] if directory is not None else []
    simulated = [
        Simulated(*json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
        for _ in range(runs)
    ]
    bars = f"events/s (bar {EVENTS_BAR:,}) | s an hour (bar {HOUR_BAR_S})"
    yield f"| simulated cluster | s (CPU) | {bars} |"
    yield "| --- | --- | --- | --- |"
    for each in simulated:
        yield (
            f"| {RATE * seconds:,} records, {seconds / 60:g} virtual minutes | {each.cpu_s:.1f}"
            f" | {each.events_count / each.cpu_s:,.0f} | {each.hour_s:.0f} |"
        )
    same = "the same" if len({each.digest for each in simulated}) == 1 else "**not the same**"
    yield f"\n- The histories of {runs} processes are {same}."


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--alone", action="store_true", help="play in this process")
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(simulate(options.seconds, options.directory)))
        return
    for line in simulate_lines(options.seconds, options.runs, options.directory):
        print(line, flush=True)
    print("\n".join(busy_lines()))


if __name__ == "__main__":
    main()
