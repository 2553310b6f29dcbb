"""Measure `eoctl sim check --history`: what a history of one million operations costs.

    python -m bench.history [--operations 1000000] [--runs 3] [--directory DIR]

An operation is a send; each has two lines, what was asked and what was answered. Twelve partitions,
four producers, values of 30 characters; once without transactions, and once with each ten sends in
one. Two consumers have read everything, one of them at the end, in polls of 500 records. The same
lines read by `json.loads` and nothing else are the measure beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.make_log import MIB
from bench.measure import alternate, busy_lines, peak_memory_mib, read_ahead
from bench.rebuild import EOCTL

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS_COUNT = 12
PRODUCERS_COUNT = 4
POLLED_COUNT = 500
BAR_OPERATIONS, CPU_BAR_S, MEMORY_BAR_MIB = 1_000_000, 20, 300
TRANSACTION_SENDS = 10
READ_ONLY = "import json, sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)\n"


def main() -> None:
    """Make the history, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    for line in checker_lines(options.operations, options.runs, options.directory):
        print(line, flush=True)
    print("\n".join(busy_lines()))


def checker_lines(operations: int, runs: int, place: Path | None = None) -> Iterator[str]:
    """Make the histories, check them, and give a table."""
    yield (
        f"| history | MiB | s (CPU) | json.loads alone | bar (CPU) | MiB at most"
        f" (bar {MEMORY_BAR_MIB}) |"
    )
    yield "| --- | --- | --- | --- | --- | --- |"
    for has_transactions in (False, True):
        with tempfile.TemporaryDirectory(dir=place) as directory:
            path = Path(directory, "history.jsonl")
            with path.open("wb") as file:
                file.writelines(
                    json.dumps(each, separators=(",", ":")).encode() + b"\n"
                    for each in lines(operations, has_transactions=has_transactions)
                )
            read_ahead(path)
            check = [*EOCTL, "sim", "check", "--history", str(path)]
            read = [sys.executable, "-c", READ_ONLY, str(path)]
            costs = alternate([check, read], runs)
            kind = "in transactions of 10" if has_transactions else "plain"
            bar_s = CPU_BAR_S * operations / BAR_OPERATIONS
            yield (
                f"| {operations:,} operations, {kind} | {path.stat().st_size / MIB:.0f}"
                f" | {costs[0].best_s:.1f} ({costs[0].best_cpu_s:.1f}) | {costs[1].best_s:.1f}"
                f" ({costs[1].best_cpu_s:.1f}) | {bar_s:.0f} | {peak_memory_mib(check):.0f} |"
            )


def lines(operations: int, *, has_transactions: bool) -> Iterator[dict[str, Any]]:
    """All lines of a history."""
    yield {"history": "eoctl", "version": 1}
    logs: list[list[str | None]] = [[] for _ in range(PARTITIONS_COUNT)]
    at_us = 0
    for number in range(operations):
        process = f"producer-{number // TRANSACTION_SENDS % PRODUCERS_COUNT}"
        log = logs[number % PARTITIONS_COUNT]
        value = f"value-{number:024d}"
        at_us += 50
        fields: dict[str, Any] = {
            "topic": "orders", "partition": number % PARTITIONS_COUNT, "value": value,
        }  # fmt: skip
        transaction = {"transaction": f"t{number // TRANSACTION_SENDS}"} if has_transactions else {}
        if has_transactions and not number % TRANSACTION_SENDS:
            yield from _both(process, 3 * number, at_us, "begin", transaction)
        yield from _both(
            process, 3 * number + 1, at_us, "send", {**fields, **transaction},
            {"offset": len(log), "leader": 1, "leader_epoch": 3},
        )  # fmt: skip
        log.append(value)
        if has_transactions and number % TRANSACTION_SENDS == TRANSACTION_SENDS - 1:
            yield from _both(process, 3 * number + 2, at_us, "commit", transaction)
            for partition in range(number - TRANSACTION_SENDS + 1, number + 1):
                logs[partition % PARTITIONS_COUNT].append(None)
    yield from _readings(logs, at_us, has_transactions=has_transactions)


def _readings(
    logs: list[list[str | None]], at_us: int, *, has_transactions: bool
) -> Iterator[dict[str, Any]]:
    isolation = "read_committed" if has_transactions else "read_uncommitted"
    number = 0
    for process in ("consumer", "last"):
        for partition, log in enumerate(logs):
            name = f"orders-{partition}"
            for start in range(0, len(log), POLLED_COUNT):
                end = min(start + POLLED_COUNT, len(log))
                number += 1
                records = [[at, log[at]] for at in range(start, end) if log[at] is not None]
                asked = {"seek": {name: 0}} if not start else {}
                answered = {
                    "records": {name: records}, "position": {name: end},
                    "high_watermark": {name: len(log)}, "isolation": isolation,
                    "final": process == "last",
                }  # fmt: skip
                yield from _both(process, number, at_us, "poll", asked, answered)


def _both(
    process: str,
    number: int,
    at_us: int,
    operation: str,
    fields: dict[str, Any],
    more: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    for kind, extra in (("invoke", {}), ("ok", more or {})):
        yield {
            "type": kind, "process": process, "id": number, "time_us": at_us, "op": operation,
            **fields, **extra,
        }  # fmt: skip


if __name__ == "__main__":
    main()
