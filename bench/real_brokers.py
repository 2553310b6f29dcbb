"""Run all scenarios of `eoctl bench`, and write their tables to .cache/bench-brokers.md.

    python -m bench.real_brokers [--records 20000 | --seconds S] [--repetitions 5]
        [--scenario N]... [--write]

Each scenario is a call of its own, with brokers of its own; its rows are kept in
.cache/bench-brokers as soon as it has ended, and the tables are made of all that are there. So one
that was interrupted is run again alone (--scenario N). With --scenario 0 none is run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.lab.bench.scenarios import SCENARIOS
from tests.kafka.jars import missing_broker

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE = Path(__file__).parents[1]
PAGE = PLACE / ".cache/bench-brokers.md"
KEPT_DIR = PLACE / ".cache/bench-brokers"
IMPORTANT = ("our load sends", "the leader of", "audited:")  # notes that belong to the figures
LATENCIES = tuple(
    f"{each}_us" for each in ("avg", "min", "p50", "p95", "p99", "p99_9", "p99_99", "max")
)

Row = dict[str, Any]


def run_scenario(number: int, length: str, arguments: Sequence[str]) -> int:
    """Run one, and keep its rows and notes; returns its exit status.

    Args:
        number: of the scenario.
        length: of a run, in words.
        arguments: of the command, more.
    """
    rows_file, kept = KEPT_DIR / f"scenario-{number}.rows", KEPT_DIR / f"scenario-{number}.jsonl"
    command = [
        sys.executable, "-m", "eoctl", "bench", "--scenario", str(number), "-o", "jsonl",
        "--work-dir", str(KEPT_DIR / f"work-{number}"), *arguments,
    ]  # fmt: skip
    begun_s = time.monotonic()
    notes = []
    with rows_file.open("wb") as rows:
        running = subprocess.Popen(command, stdout=rows, stderr=subprocess.PIPE, text=True)
    try:
        for line in running.stderr or ():
            text = str(json.loads(line).get("message", line)) if line.startswith("{") else line
            print(f"scenario {number}: {text.strip()}", file=sys.stderr, flush=True)
            if any(each in text for each in IMPORTANT):
                notes.append(text.strip())
    finally:  # an interrupt of the terminal is for both: brokers are stopped first
        status = running.wait()
    if rows_file.stat().st_size:
        seconds = round(time.monotonic() - begun_s)
        end = {
            "kind": "end",
            "status": status,
            "seconds": seconds,
            "length": length,
            "notes": notes,
        }
        kept.write_text(f"{rows_file.read_text()}{json.dumps(end)}\n")
    rows_file.unlink()
    return status


def kept_rows(number: int) -> list[Row]:
    """Read what a scenario came to; [] if it was not run."""
    kept = KEPT_DIR / f"scenario-{number}.jsonl"
    return [json.loads(each) for each in kept.read_text().splitlines()] if kept.exists() else []


def of_kind(rows: Sequence[Row], kind: str) -> list[Row]:
    """Give the rows of a kind."""
    return [each for each in rows if each["kind"] == kind]


def scenario_lines(number: int) -> list[str]:
    """Give the tables of one scenario; [] if it was not run."""
    rows = kept_rows(number)
    if not rows:
        return []
    (machine,), (end,) = of_kind(rows, "machine"), of_kind(rows, "end")
    cells = of_kind(rows, "cell")
    landed = {each["cell"]: each for each in of_kind(rows, "landed")}
    head = (
        f"**Scenario {number}** ({SCENARIOS[number][0]}): {end['length']} a run,"
        f" {cells[0]['runs_count']} runs, load {machine['load_average']} at the begin,"
        f" {end['seconds']:,} s; exit status {end['status']}."
    )
    names = (
        "cell", "records/s", "spread", "ratio", "article", "its ratio", "acknowledged", "missing",
        "there, not acknowledged", "twice", "failed",
    )  # fmt: skip
    lines = [
        head,
        "",
        f"| {' | '.join(names)} |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in cells:
        found = landed[each["cell"]]
        lines.append(
            f"| {each['cell']} | {each['records_per_s']:,}"
            f" | {each['lowest_per_s']:,}..{each['highest_per_s']:,} | {_reported(each['ratio'])}"
            f" | {_reported(each['article_per_s'])} | {_reported(each['article_ratio'])}"
            f" | {found['acknowledged_count']:,} | {found['missing_count']:,}"
            f" | {found['unacknowledged_count']:,} | {found['twice_count']:,}"
            f" | {found['failed'] or '-'} |"
        )
    if number in (6, 7):
        lines += ["", *latency_lines(of_kind(rows, "latency"))]
    lines += ["", "| relation | holds | figures |", "| --- | --- | --- |"]
    lines += [
        f"| {each['relation']} | {each['holds']} | {each['figures']} |"
        for each in of_kind(rows, "relation")
    ]
    return [*lines, "", *(f"- {each}" for each in end["notes"]), *[""] * bool(end["notes"])]


def latency_lines(rows: Sequence[Row]) -> list[str]:
    """Give the table of latencies, in milliseconds."""
    names = " | ".join(each.removesuffix("_us").replace("_", ".") for each in LATENCIES)
    return [
        f"| ms | samples | {names} |",
        "| --- |" + " --- |" * (1 + len(LATENCIES)),
        *(
            f"| {each['cell']}, {each['latency']} | {_reported(each['samples_count'])} | "
            + " | ".join(_ms(each[name]) for name in LATENCIES)
            + " |"
            for each in rows
        ),
    ]


def page_lines() -> list[str]:
    """Give all that is known, with the machine in front."""
    known = [each for each in SCENARIOS if kept_rows(each)]
    if not known:
        return []
    machine = of_kind(kept_rows(known[0]), "machine")[0]
    head = (
        f"{machine['cpu']}, {machine['processors_count']} processors,"
        f" {machine['ram_bytes'] / 2**30:.0f} GiB, {machine['disk']}, Python"
        f" {machine['python_version']}, {machine['client']}, Kafka {machine['kafka_version']}, Java"
        f" {machine['java_version']}, {machine['brokers_count']} brokers and a controller;"
        f" {machine['fsync_policy']}. Written by `make bench-brokers`."
    )
    lines = [head, ""]
    for each in known:
        lines += scenario_lines(each)
    return lines


def _reported(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


def _ms(value_us: int | None) -> str:
    return "-" if value_us is None else f"{value_us / 1000:,.1f}"


def write_page(lines: Sequence[str]) -> None:
    """Write the tables into `.cache/bench-brokers.md`."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([*lines, ""]))


def main() -> int:
    """Run what is asked for; the status is the worst of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", type=int, action="append", help="these alone; 0: none")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, help="of a run, in place of so many records")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    chosen = parser.parse_args()
    if reason := missing_broker():
        parser.error(reason)
    KEPT_DIR.mkdir(parents=True, exist_ok=True)
    arguments = ["--records", str(chosen.records), "--repetitions", str(chosen.repetitions)]
    length = f"{chosen.records:,} records"
    if chosen.seconds:
        arguments += ["--seconds", str(chosen.seconds)]
        length = f"{chosen.seconds:g} s"
    numbers = (
        [*SCENARIOS] if chosen.scenario is None else [each for each in chosen.scenario if each]
    )
    worst = max((run_scenario(each, length, arguments) for each in numbers), default=0)
    lines = page_lines()
    print("\n".join(lines))
    if chosen.write:
        write_page(lines)
    return worst


if __name__ == "__main__":
    sys.exit(main())
