"""Measure `eoctl produce` beside kafka-console-producer and a broker on loopback, in one run.

    python -m bench.produce [--mib 256] [--runs 3] [--no-kafka]

Times are of whole programs that read a file of lines and write a partition that is not there yet,
on the disk of the temporary directory: ours until all is synced (`--fsync segment`), theirs until a
broker has acknowledged all (acks=all, its default; a broker syncs nothing). What was written is
read again with `eoctl consume` and compared with the input. CPU is user and system time of the
program alone, which a busy machine disturbs less; the broker's is not in it.
"""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.make_log import MIB
from bench.measure import (
    busy_lines,
    output_digest,
    parse_options,
    peak_memory_mib,
    read_ahead,
)
from bench.rebuild import EOCTL
from tests.kafka import client
from tests.kafka.broker import Broker
from tests.kafka.jars import java_command

CONSOLE_CLASS = "org.apache.kafka.tools.ConsoleProducer"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
MEMORY_BAR_MIB = 150
ALPHABET = b"abcdefghijklmnopqrstuvwxyz0123456789"
MB = 1e6


class Case(NamedTuple):
    """What is written, and how.

    Attributes:
        line_bytes: with the line end.
        options: of `eoctl produce`; "{session}" is a file that is not there yet.
        bar_mb, bar_lines: what is promised, per second; 0 is nothing.
        has_peer: whether the other program does the same.
        read_options: of `eoctl consume`, to get the lines back.
    """

    name: str
    line_bytes: int
    options: tuple[str, ...] = ()
    bar_mb: int = 0
    bar_lines: int = 0
    has_peer: bool = False
    read_options: tuple[str, ...] = ()


SESSION = ("--producer-session", "{session}")
TRANSACTIONS = ("--txn-records", "1000")
KEYS = ("--key-separator", " ")
CASES = [
    Case("1 KiB lines", 1024, bar_mb=150, has_peer=True),
    Case("1 KiB lines, session", 1024, SESSION),
    Case("1 KiB lines, transactions of 1000", 1024, TRANSACTIONS),
    Case("100 B lines", 100, bar_lines=300_000, has_peer=True),
    Case("100 B lines, session", 100, SESSION),
    Case("100 B lines, transactions of 1000", 100, TRANSACTIONS),
    Case("100 B lines, lz4", 100, ("--compression", "lz4")),
    Case("100 B lines, a batch each", 100, ("--batch-records", "1")),
    Case("100 B lines with keys", 100, KEYS, read_options=("--print-key", *KEYS)),
]


class Took(NamedTuple):
    """One run of a program."""

    wall_s: float
    cpu_s: float


class Lines(NamedTuple):
    """A file of lines of one length."""

    path: Path
    line_bytes: int
    count: int
    digest: str


def make_lines(root: Path, line_bytes: int, mib: int) -> Lines:
    """Make a file of text, each line a number, a space and more; at most 4096 lines a MiB."""
    path = root / f"lines-{line_bytes}"
    count = min(mib * MIB // line_bytes, mib * 4096)
    rng = random.Random(line_bytes)
    pool = bytes(rng.choices(ALPHABET, k=1 << 20))
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for number in range(count):
            at = number * 7919 % (len(pool) - line_bytes)
            line = b"%08d " % number + pool[at : at + line_bytes - 10] + b"\n"
            digest.update(line)
            file.write(line)
    read_ahead(path)
    return Lines(path, line_bytes, count, digest.hexdigest())


def timed(command: list[str], stdin: Path | None = None) -> Took:
    """Run a program to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (stdin or Path(os.devnull)).open("rb") as file:
        started = time.perf_counter()
        done = subprocess.run(
            command, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
        wall_s = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {' '.join(command)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall_s, cpu_s)


def produce_command(case: Case, lines: Lines, work_dir: Path) -> list[str]:
    """Write to a new partition outside of any cluster."""
    options = [each.format(session=work_dir / "session") for each in case.options]
    place = [str(work_dir / "log-dir/bench-0"), str(lines.path)]
    return [
        *EOCTL, "produce", *place, "--apply", "--single-copy", "--topic-id", TOPIC_ID,
        "--fsync", "segment", *options,
    ]  # fmt: skip


def prepare(work_dir: Path) -> None:
    """Take away what the last run wrote, and let the disk rest."""
    shutil.rmtree(work_dir, ignore_errors=True)
    (work_dir / "log-dir/bench-0").mkdir(parents=True)
    os.sync()


def has_lines(partition: Path, lines: Lines, *options: str) -> bool:
    """Whether exactly these lines are in a partition, in order."""
    command = [*EOCTL, "consume", str(partition), *options]
    return output_digest(command) == lines.digest


class Peer:
    """kafka-console-producer and its broker."""

    def __init__(self, root: Path) -> None:
        self._log_dir = root / "broker"
        overrides = {"log.index.size.max.bytes": str(10 << 20)}
        self._broker = Broker(self._log_dir, overrides=overrides).start()

    def run(self, topic: str, lines: Lines) -> Took:
        """Send the lines to a new topic."""
        settings = {"retention.ms": "-1", "segment.bytes": str(1 << 30)}
        client.create_topics(self._broker.bootstrap, {topic: (1, settings)})
        os.sync()
        java, *rest = java_command(
            CONSOLE_CLASS, "--bootstrap-server", self._broker.bootstrap, "--topic", topic
        )
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        return timed([java, quiet, *rest], lines.path)

    def has_lines(self, topic: str, lines: Lines) -> bool:
        """Whether they have arrived."""
        return has_lines(self._log_dir / f"{topic}-0", lines)

    def close(self) -> None:
        """End the broker."""
        self._broker.close()


def measure(case: Case, lines: Lines, root: Path, peer: Peer | None, runs: int) -> str:
    """One row of the table; both programs in turn."""
    work_dir = root / "ours"
    ours, theirs = [], []
    is_equal = True
    for number in range(runs):
        prepare(work_dir)
        ours.append(timed(produce_command(case, lines, work_dir)))
        if not number:
            is_equal = has_lines(work_dir / "log-dir/bench-0", lines, *case.read_options)
        if peer is not None and case.has_peer:
            topic = f"lines-{case.line_bytes}-{number}"
            theirs.append(peer.run(topic, lines))
            is_equal = is_equal and peer.has_lines(topic, lines)
    return _row(case, lines, ours, theirs, is_equal=is_equal)


def _row(case: Case, lines: Lines, ours: list[Took], theirs: list[Took], *, is_equal: bool) -> str:
    bar = "-"
    if case.bar_mb:
        bar = f"{case.bar_mb} MB/s"
    elif case.bar_lines:
        bar = f"{case.bar_lines:,} lines/s"
    cells = [case.name, *_speeds(lines, ours), _seconds([each.cpu_s for each in ours]), bar]
    if theirs:
        ratio = min(each.wall_s for each in theirs) / min(each.wall_s for each in ours)
        cells += [_seconds([each.wall_s for each in theirs]), f"{ratio:.1f}"]
    else:
        cells += ["-", "-"]
    cells.append("yes" if is_equal else "**no**")
    return f"| {' | '.join(cells)} |"


def _speeds(lines: Lines, runs: list[Took]) -> list[str]:
    best_s = min(each.wall_s for each in runs)
    usual_s = median(each.wall_s for each in runs)
    mb = lines.count * lines.line_bytes / MB
    return [
        f"{mb / best_s:.0f} ({mb / usual_s:.0f})",
        f"{lines.count / best_s:,.0f} ({lines.count / usual_s:,.0f})",
    ]


def _seconds(times_s: list[float]) -> str:
    return f"{min(times_s):.2f} ({median(times_s):.2f})"


def produce_lines(mib: int, runs: int, *, has_kafka: bool = True) -> list[str]:
    """Markdown of the whole measurement."""
    heads = ["produce", "MB/s", "lines/s", "CPU, s", "bar", "kafka-console-producer, s", "ratio",
             "equal"]  # fmt: skip
    table = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        inputs = {size: make_lines(root, size, mib) for size in {c.line_bytes for c in CASES}}
        peer = Peer(root) if has_kafka else None
        try:
            for case in CASES:
                table.append(measure(case, inputs[case.line_bytes], root, peer, runs))
                print(table[-1], flush=True)
        finally:
            if peer is not None:
                peer.close()
        prepare(root / "ours")
        lines = inputs[CASES[0].line_bytes]
        used = peak_memory_mib(produce_command(CASES[0], lines, root / "ours"))
    size_mib = lines.count * lines.line_bytes / MIB
    table += [
        "",
        f"- Memory, {size_mib:.0f} MiB of {CASES[0].name}: {used:.0f} MiB (bar {MEMORY_BAR_MIB}).",
    ]
    return table + busy_lines()


def main() -> None:
    """Command line."""
    chosen = parse_options(__doc__, 256, "size of the input of long lines")
    print("\n".join(produce_lines(chosen.mib, chosen.runs, has_kafka=chosen.has_kafka)))


if __name__ == "__main__":
    main()
