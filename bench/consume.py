"""Measure `eoctl consume` beside kafka-console-consumer and a broker on loopback, in one run.

    python -m bench.consume [--mib 512] [--runs 3] [--no-kafka]

Times are of whole programs with the output to /dev/null. The broker serves the same segment from a
warm page cache; its consumer prints values, as ours does by default, and both outputs are compared.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.make_log import MIB, make_segment
from bench.measure import (
    Cost,
    alternate,
    busy_lines,
    output_digest,
    parse_options,
    peak_memory_mib,
    read_ahead,
    run_once,
)
from bench.rebuild import EOCTL
from tests.kafka import client
from tests.kafka.broker import Broker, force_recovery, replace_partition_files
from tests.kafka.jars import java_command

CONSOLE_CLASS = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RECORDS_BAR = 300_000
START_UP_BAR_S, START_UP_RUNS = 0.25, 9
MEMORY_BAR_MIB = 150
SIZES = ("16k", "1k", "200")
LINES_SIZE = "16k"  # of what is also read in all formats, and through a broker


class Case(NamedTuple):
    """One way to print records; `bar` is whether records per second are promised."""

    name: str
    options: tuple[str, ...]
    has_bar: bool = False


JSON_CASE = Case("jsonl", ("--output", "jsonl"), has_bar=True)
CASES = [
    Case("text", ()),
    JSON_CASE,
    Case("jsonl, base64", ("--output", "jsonl", "--bytes", "base64"), has_bar=True),
    Case("jsonl, read_committed", (*JSON_CASE.options, "--isolation", "read_committed")),
    Case("msgpack", ("--output", "msgpack")),
]


def consume_command(partition: Path, *options: str) -> list[str]:
    """The program whose time is taken."""
    return [*EOCTL, "consume", str(partition), *options]


def make_partition(root: Path, size: str, mib: int) -> Path:
    """Make a partition of one segment, and bring it into the page cache."""
    log = make_segment(root / f"bench-{size}-0", total_bytes=mib * MIB, size=size)
    read_ahead(log)
    return log.parent


def records_in(partition: Path) -> int:
    """How many records there are: all offsets are there."""
    from storage.dirs.discovery import select_partition
    from storage.dirs.partition import Partition

    end = Partition.of(select_partition(partition)).log_end()
    return 0 if end is None else end.offset


def speed(records_count: int, cost: Cost) -> str:
    """Best and median in records per second."""
    return f"{records_count / cost.best_s:,.0f} ({records_count / cost.median_s:,.0f})"


def case_lines(partition: Path, cases: list[Case], runs: int) -> list[str]:
    """Rows of the table for one partition."""
    count = records_in(partition)
    costs = alternate([consume_command(partition, *case.options) for case in cases], runs)
    rows = []
    for case, cost in zip(cases, costs, strict=True):
        bar = f"{RECORDS_BAR:,}" if case.has_bar else "-"
        size = partition.name.split("-")[1]
        rows.append(f"| {case.name}, {size} batches | {speed(count, cost)} | {bar} |")
        print(rows[-1], flush=True)
    return rows


def broker_lines(partition: Path, work_dir: Path, runs: int) -> list[str]:
    """Let kafka-console-consumer read the same segment from a broker."""
    log_dir, count = work_dir / "broker", records_in(partition)
    topic = partition.name.removesuffix("-0")
    settings = {"retention.ms": "-1", "segment.bytes": str(1 << 30)}
    with Broker(log_dir, overrides={"log.index.size.max.bytes": str(10 << 20)}) as broker:
        client.create_topics(broker.bootstrap, {topic: (1, settings)})
        broker.stop()
        replace_partition_files(log_dir / partition.name, partition.iterdir())
        force_recovery(log_dir, partition.name)
        broker.start()
        read_ahead(next((log_dir / partition.name).glob("*.log")))
        java, *rest = java_command(
            CONSOLE_CLASS, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition",
            "0", "--offset", "earliest", "--max-messages", str(count),
        )  # fmt: skip
        theirs = [java, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", *rest]
        ours = consume_command(partition)
        is_equal = output_digest(ours) == output_digest(theirs)
        costs = alternate([ours, consume_command(partition, *JSON_CASE.options), theirs], runs)
        broker.stop()
    text, lines, console = costs
    size = partition.name.split("-")[1]
    line = (
        f"- kafka-console-consumer of the same {size} batches, through a broker on loopback:"
        f" {speed(count, console)} records/s. `eoctl consume` beside it: text"
        f" {console.best_s / text.best_s:.1f} times as fast, {'equal' if is_equal else '**other**'}"
        f" output; jsonl {console.best_s / lines.best_s:.1f} times."
    )
    return [line]


def consume_lines(mib: int, runs: int, *, has_kafka: bool = True) -> list[str]:
    """Markdown of the whole measurement."""
    heads = ["consume", "records/s, best (median)", "bar"]
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * len(heads))} |"]
    with tempfile.TemporaryDirectory(prefix="eoctl-bench-") as temporary:
        root = Path(temporary)
        partitions = {size: make_partition(root, size, mib) for size in SIZES}
        for size, partition in partitions.items():
            cases = CASES if size == LINES_SIZE else [JSON_CASE]
            lines += case_lines(partition, cases, runs)
        lines.append("")
        if has_kafka:
            lines += broker_lines(partitions[LINES_SIZE], root, runs)
        used = peak_memory_mib(consume_command(partitions[LINES_SIZE], *JSON_CASE.options))
        small = make_segment(root / "small-0", total_bytes=10_000).parent
        start_up_s = min(run_once(consume_command(small)) for _ in range(START_UP_RUNS))
    lines.append(f"- Memory over {mib} MiB: {used:.0f} MiB (bar {MEMORY_BAR_MIB} MiB).")
    lines.append(
        f"- Start-up, a segment of 10 kB: {start_up_s * 1000:.0f} ms"
        f" (bar {START_UP_BAR_S * 1000:.0f} ms)."
    )
    return lines + busy_lines()


def main() -> None:
    """Command line."""
    chosen = parse_options(__doc__, 512, "size of each segment")
    print("\n".join(consume_lines(chosen.mib, chosen.runs, has_kafka=chosen.has_kafka)))


if __name__ == "__main__":
    main()
