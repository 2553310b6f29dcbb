"""Measure eoctl against kafka-dump-log, in one run, and write the tables to .cache/bench.md.

    python -m bench [--mib 512] [--runs 3] [--only NAME] [--write]

Times are of whole programs, from the start of the interpreter (or of the JVM) to its end, with the
page cache warm and the output to /dev/null. Kafka's jars are looked for where `make test` puts
them, or in $EOCTL_KAFKA_LIBS; without them there are no ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.audit import audit_lines
from bench.check import check_lines
from bench.cluster import simulate_lines
from bench.consume import consume_lines
from bench.copy import copy_lines
from bench.history import checker_lines
from bench.landed import landed_lines
from bench.lease import lease_lines
from bench.make_log import MIB, make_segment
from bench.measure import Cost, alternate, output_digest, peak_memory_mib, read_ahead, run_once
from bench.metadata_history import history_lines
from bench.partitions import partition_lines
from bench.produce import produce_lines
from bench.rebuild import rebuild_lines
from bench.serve import serve_lines
from bench.transactions import transaction_lines
from bench.truncate import truncate_lines
from storage.kernels.kernel_choice import select_kernel
from tests.kafka.jars import java_command, missing_broker

FIGURES_PAGE = Path(__file__).parents[1] / ".cache/bench.md"
DUMP_CLASS = "org.apache.kafka.tools.DumpLogSegments"
EOCTL = [sys.executable, "-m", "eoctl"]
START_UP_RUNS = 15
MEMORY_LIMIT_MIB = 150


class Case(NamedTuple):
    """One dump to measure.

    Attributes:
        size, values, codec: of the segment, as in `make_log`.
        options: of the dump, the same for both programs.
        index_file: what is done to the `.index` beside it.
        bar: the ratio to kafka-dump-log that we promise; 0 is none.
    """

    name: str
    size: str
    values: str = "uniform"
    codec: str = "none"
    options: tuple[str, ...] = ()
    index_file: str = "right"
    bar: float = 0.0


DEEP = ("--print-data-log",)
CASES = [
    Case("headers, 200 B", "200", bar=10),
    Case("headers, 1 KiB", "1k", bar=8),
    Case("headers, 16 KiB", "16k", bar=5),
    Case("headers, 100 B to 64 KiB", "mixed", "varied"),
    Case("headers, 1 KiB, no .index", "1k", index_file="missing"),
    Case("headers, 1 KiB, wrong .index", "1k", index_file="wrong"),
    Case("records, 200 B", "200", options=DEEP, bar=15),
    Case("records, 1 KiB", "1k", options=DEEP, bar=15),
    Case("records, 16 KiB", "16k", options=DEEP, bar=15),
    Case("records, 200 B, varied", "200", "varied", options=DEEP, bar=10),
    Case("records, 1 KiB, varied", "1k", "varied", options=DEEP, bar=10),
    Case("records, 16 KiB, varied", "16k", "varied", options=DEEP, bar=10),
    Case("records, 100 B to 64 KiB, varied", "mixed", "varied", options=DEEP),
    Case("records, 16 KiB, binary", "16k", "binary", options=DEEP, bar=10),
    Case("records, 16 KiB, varied, zstd", "16k", "varied", "zstd", options=DEEP, bar=6),
    Case("records, 16 KiB, varied, lz4", "16k", "varied", "lz4", options=DEEP, bar=6),
]


class Row(NamedTuple):
    """A line of the table."""

    name: str
    ours: Cost
    alone: Cost
    peers: Cost | None
    is_equal: bool | None
    bar: float

    def cells(self) -> list[str]:
        """The line as text."""
        cells = [self.name, _seconds(self.ours), _seconds(self.alone)]
        if self.peers is None:
            return [*cells, "-", "-", "-", "-", "-"]
        ratio = self.peers.best_s / self.ours.best_s
        cpu_ratio = self.peers.best_cpu_s / self.alone.best_cpu_s
        bar = f"{self.bar:g}" if self.bar else "-"
        equal = "yes" if self.is_equal else "**no**"
        return [*cells, _seconds(self.peers), f"{ratio:.1f}", f"{cpu_ratio:.1f}", bar, equal]


def _seconds(cost: Cost) -> str:
    return f"{cost.best_s:.2f} ({cost.best_cpu_s:.2f})"


def segment_of(case: Case, directory: Path, mib: int) -> Path:
    """Make the segment of a case, or take it if it is there; returns the `.log`."""
    name = f"{case.values}-{case.size}-{case.codec}-{mib}"
    path = directory / name / f"{0:020d}.log"
    if not path.exists():
        make_segment(
            path.parent,
            total_bytes=mib * MIB,
            size=case.size,
            values=case.values,
            codec=case.codec,
        )
    if case.index_file == "right":
        return path
    other = directory / f"{name}-index-{case.index_file}" / path.name
    if not other.exists():
        other.parent.mkdir()
        os.link(path, other)
        if case.index_file == "wrong":
            entries = np.fromfile(path.with_suffix(".index"), ">i4")
            (entries + 1).astype(">i4").tofile(other.with_suffix(".index"))
    return other


def measure(case: Case, path: Path, runs: int, *, has_kafka: bool) -> Row:
    """Measure one case: ours, ours with one process, and kafka-dump-log."""
    read_ahead(path)
    ours = [*EOCTL, "dump-segment", *case.options, str(path)]
    alone = [*EOCTL, "dump-segment", "--jobs", "1", *case.options, str(path)]
    commands = [ours, alone]
    is_equal = None
    if has_kafka:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        java, *rest = java_command(DUMP_CLASS, *case.options, "--files", str(path))
        commands.append([java, quiet, *rest])
        digests = {output_digest(command) for command in commands}
        is_equal = len(digests) == 1
    costs = alternate(commands, runs)
    return Row(case.name, costs[0], costs[1], costs[2] if has_kafka else None, is_equal, case.bar)


def scan_line(directory: Path, mib: int) -> str:
    """Scan with checksums and no output, against checksums alone."""
    path = segment_of(Case("", "16k"), directory, mib)
    read_ahead(path)
    command = [sys.executable, "-m", "bench.scan", str(path)]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    alone, halves = found["mapping_s"] / found["scan_s"], found["mapping_s"] / found["halves_s"]
    speed = path.stat().st_size / found["scan_s"] / 1e9
    return (
        f"- Scan of 16 KiB batches with checksums and no output: {speed:.1f} GB/s with one process,"
        f" {alone:.2f} of CRC-32C alone over a fresh mapping (bar 0.45); {halves:.2f} with two"
        f" (bar 0.7)."
    )


def start_up_lines(directory: Path) -> list[str]:
    """How long the smallest things take."""
    path = make_segment(directory / "small", total_bytes=10_000)
    lines = []
    for words, bar_ms, command in (
        ("`eoctl dump-segment --help`", 30, [*EOCTL, "dump-segment", "--help"]),
        ("`eoctl dump-segment` of a segment of 10 kB", 60, [*EOCTL, "dump-segment", str(path)]),
    ):
        best_s = min(run_once(command) for _ in range(START_UP_RUNS))
        lines.append(f"- {words}: {best_s * 1000:.0f} ms (bar {bar_ms} ms).")
    return lines


def memory_lines(directory: Path) -> list[str]:
    """Peak memory over a segment of 1 GiB."""
    lines = []
    for case in (Case("headers", "200"), Case("records", "1k", "varied", options=DEEP)):
        path = segment_of(case, directory, 1024)
        used = peak_memory_mib([*EOCTL, "dump-segment", *case.options, str(path)])
        lines.append(
            f"- Memory, {case.name} of 1 GiB ({case.size} batches), all processes together: "
            f"{used:.0f} MiB (bar {MEMORY_LIMIT_MIB} MiB)."
        )
        shutil.rmtree(path.parent)
    return lines


def table(rows: list[Row]) -> list[str]:
    """Markdown of all rows."""
    heads = ["job", "eoctl, s (CPU)", "--jobs 1", "kafka-dump-log", "ratio", "CPU", "bar", "equal"]
    lines = [" | ".join(heads), " | ".join(["---"] * len(heads))]
    lines += [" | ".join(row.cells()) for row in rows]
    return [f"| {each} |" for each in lines]


def machine_line(mib: int, runs: int) -> str:
    """What the figures were taken on."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{mib} MiB segments, the best of {runs} alternated runs by the clock (by the processor's"
        f" time); kernel {select_kernel()}, Python {platform.python_version()}, numpy"
        f" {np.__version__}, {platform.machine()}, {os.cpu_count()} processors,"
        f" {memory_gib:.0f} GiB, load {os.getloadavg()[0]:.1f}."
    )


def write_page(text: str) -> None:
    """Write the figures, which docs/performance.md is written from."""
    FIGURES_PAGE.parent.mkdir(exist_ok=True)
    FIGURES_PAGE.write_text(f"{text}\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=512, help="size of each segment")
    parser.add_argument("--runs", type=int, default=3, help="of each program")
    parser.add_argument("--only", default="", help="only jobs with this in their name")
    parser.add_argument("--directory", type=Path, help="keep the segments there")
    parser.add_argument("--write", action="store_true", help="write .cache/bench.md")
    chosen = parser.parse_args()
    reason = missing_broker()
    if reason:
        print(f"no ratios: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        directory = chosen.directory or Path(temporary)
        rows = []
        for case in CASES:
            if chosen.only in case.name:
                path = segment_of(case, directory, chosen.mib)
                rows.append(measure(case, path, chosen.runs, has_kafka=not reason))
                print(" | ".join(rows[-1].cells()), flush=True)
        lines = [machine_line(chosen.mib, chosen.runs), "", *table(rows)]
        if not chosen.only:
            lines += ["", scan_line(directory, chosen.mib)]
            lines += [*start_up_lines(directory), *memory_lines(directory)]
            lines += ["", *rebuild_lines(chosen.mib, chosen.runs)]
            lines += ["", *check_lines(chosen.mib, chosen.runs)]
            lines += ["", *partition_lines()]
            lines += ["", *truncate_lines(chosen.mib, chosen.runs)]
            lines += ["", *produce_lines(chosen.mib // 2, chosen.runs, has_kafka=not reason)]
            lines += ["", *transaction_lines(40_000, chosen.runs)]
            lines += ["", *lease_lines(chosen.runs)]
            lines += ["", *history_lines(32, chosen.runs)]
            lines += ["", *checker_lines(1_000_000, chosen.runs)]
            lines += ["", *simulate_lines(180, chosen.runs)]
            lines += ["", *landed_lines(2 * chosen.mib, chosen.runs)]
            lines += ["", *copy_lines(chosen.mib, chosen.runs)]
            lines += ["", *consume_lines(chosen.mib, chosen.runs, has_kafka=not reason)]
            lines += ["", *serve_lines(chosen.mib, chosen.runs, has_kafka=not reason)]
            lines += ["", *audit_lines(2 * chosen.mib, chosen.runs, has_java=not reason)]
    text = "\n".join(lines)
    print(f"\n{text}")
    if chosen.write:
        write_page(text)


if __name__ == "__main__":
    main()
