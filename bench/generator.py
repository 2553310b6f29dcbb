"""Measure the load of `eoctl bench` beside a bare loop of confluent-kafka, in one run.

    python -m bench.generator [--records 30000] [--runs 11]

Both send the same records with the same settings to a broker that librdkafka itself plays, in turn.
What is compared is the processor's time of the thread that sends, which is all that Python costs:
what librdkafka's own threads and the played broker take is the same for both, and times of a clock
would show what else the machine does. The bar is 0.9 of the bare loop's rate.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from bench.measure import busy_lines
from eoctl.lab.bench.load import Load, LoadOptions, producer_settings
from eoctl.lab.bench.scenarios import Cell

BAR = 0.9
PARTITIONS = 4  # as many as a topic of a played broker has
CASES = [(0, 32), (1, 32), (-1, 32)]  # acks, records in flight


def cost_ns(kind: str, acks: int, options: LoadOptions) -> float:
    """Send all records once; returns what a record took of the processor in nanoseconds."""
    cell = Cell(0, "generator", acks, 1, 1, PARTITIONS)
    settings = producer_settings("played", cell) | {"test.mock.num.brokers": 1}
    load = Load(settings, "generator", PARTITIONS, 1, options)
    begun_ns = time.thread_time_ns()
    if kind == "load":
        load.send_all()
    else:
        load.send_bare()
    return (time.thread_time_ns() - begun_ns) / options.records


def generator_lines(records: int, runs: int) -> list[str]:
    """Give the rows of the page."""
    lines = [
        "| acks, records in flight | µs a record, median (least) | bare loop | ratio (bar 0.9) |",
        "| --- | --- | --- | --- |",
    ]
    for acks, in_flight in CASES:
        options = LoadOptions(records, 0, in_flight, 1000, 0)
        costs: dict[str, list[float]] = {"load": [], "bare": []}
        for number in range(runs):
            for kind in sorted(costs, reverse=bool(number % 2)):
                costs[kind].append(cost_ns(kind, acks, options))
        pairs = [
            bare / load for bare, load in zip(costs["bare"], costs["load"], strict=True)
        ]  # in turn, so that both of a pair had the same machine
        reported = {
            kind: f"{median(each) / 1000:.2f} ({min(each) / 1000:.2f})"
            for kind, each in costs.items()
        }
        lines.append(
            f"| {acks}, {in_flight} | {reported['load']} | {reported['bare']} | {median(pairs):.2f}"
            f" ({min(pairs):.2f} to {max(pairs):.2f})"
            f"{'' if median(pairs) >= BAR else ', **below the bar**'} |"
        )
    return [*lines, *busy_lines()]


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--runs", type=int, default=11)
    chosen = parser.parse_args()
    print("\n".join(generator_lines(chosen.records, chosen.runs)))


if __name__ == "__main__":
    main()
