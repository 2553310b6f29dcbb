"""The calls that are made on each directory; % is the log dir, @ each of its first partitions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS = 3  # of a log dir; more would say the same
FORMATS = ("table", "jsonl")
# In both formats.
TABLES = (
    "check %", "describe %", "describe @", "loss %", "txn list --all %", "txn hanging %",
    "producers %", "duplicates %", "groups list %", "metadata %", "start-order %",
    "recover-state @", "rebuild @", "spark-audit --engine local --report all %",
)  # fmt: skip
# As they are asked for most.
OTHERS = (
    "check --deep % -o jsonl", "check --predict % -o table", "reclaim % -o table",
    "check @ -o jsonl", "repair % -o table", "repair --strategy salvage % -o jsonl",
    "repair --strategy as-broker @ -o table", "truncate --to-hw @ -o table", "journal list %",
    "consume @ -o jsonl", "consume @ --skip-corrupt -o jsonl",
    "consume @ --skip-corrupt --isolation read_committed -o text", "locate @ --offset 3 -o jsonl",
    "locate @ --offset 60 -o table", "locate @ --pos 100 -o jsonl", "loss @ -o jsonl",
    "duplicates --kind suspected @ -o jsonl", "txn abort --producer-id 40 @ -o table",
    "txn complete % -o table", "check --now dir % -o jsonl", "describe --columns all % -o table",
)  # fmt: skip
DUMPS = (
    "dump-segment !", "dump-segment --print-data-log !", "dump-segment --deep-iteration ! -o jsonl",
)  # fmt: skip
DUMPED = re.compile(r"\.(log|index|timeindex|txnindex|snapshot)$|checkpoint$|meta\.properties$")
EXPORTS = ("export % --to OUT --format jsonl", "export @ --to OUT --format parquet")
# Applied to a copy, then taken back.
CHANGES = (
    "repair --strategy salvage --single-copy @", "repair --strategy as-broker --single-copy @",
    "rebuild @", "truncate --to-hw --single-copy @", "truncate --to-offset 5 --single-copy @",
    "txn abort --producer-id 40 --single-copy @", "txn abort --producer-id 21 --single-copy @",
)  # fmt: skip


def partitions_of(log_dir: Path) -> list[Path]:
    """Return those that are called on: the first ones, and those of transactions."""
    names = sorted(each for each in log_dir.glob("*-[0-9]*") if each.is_dir())
    own = [each for each in names if not each.name.startswith("__")]
    return (own or names)[:PARTITIONS]


def reading(log_dir: Path, place: str) -> Iterator[list[str]]:
    """Give the calls that change nothing; `place` is how the log dir is named."""
    partitions = [f"{place}/{each.name}" for each in partitions_of(log_dir)]
    calls = [f"{call} -o {form}" for call in TABLES for form in FORMATS]
    for call in (*calls, *OTHERS):
        for each in partitions if "@" in call else [place]:
            yield [each if word in {"%", "@"} else word for word in call.split()]
    files = [each for each in sorted(log_dir.iterdir()) if each.is_file()]
    for partition in partitions_of(log_dir):
        files += sorted(each for each in partition.iterdir() if each.is_file())
    for file in files:
        if DUMPED.search(file.name):
            for call in DUMPS if file.suffix == ".log" else DUMPS[:1]:
                name = f"{place}/{file.relative_to(log_dir)}"
                yield [name if word == "!" else word for word in call.split()]


def exporting(log_dir: Path, place: str) -> Iterator[list[str]]:
    """Give the calls that write files to the directory OUT."""
    partitions = [f"{place}/{each.name}" for each in partitions_of(log_dir)]
    for call in EXPORTS:
        for each in partitions if "@" in call else [place]:
            yield [each if word in {"%", "@"} else word for word in call.split()]


def changing(log_dir: Path, place: str) -> Iterator[list[str]]:
    """Give the calls that are applied, and taken back."""
    for call in CHANGES:
        for each in partitions_of(log_dir):
            path = f"{place}/{each.name}"
            yield [path if word == "@" else word for word in call.split()]
