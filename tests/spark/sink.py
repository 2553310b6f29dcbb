"""What a streaming query has given: the rows of its Parquet sink, as its log names their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPACT = ".compact"  # names all files from the first micro-batch on


def numbers_in(log: Path) -> set[int]:
    """The numbers of the micro-batches that a log has: of a sink, or of a checkpoint."""
    return {_number(each) for each in _logs(log)}


def _logs(log: Path) -> list[Path]:
    return [each for each in log.glob("*") if each.name[0] != "."]


def _number(log: Path) -> int:
    return int(log.name.removesuffix(COMPACT))


def batches_given(sink: Path) -> list[list[Path]]:
    """The files of each micro-batch that gave some, in its order and that of its tasks."""
    logs = sorted(_logs(sink / "_spark_metadata"), key=_number)
    known: set[Path] = set()
    found = []
    for log in logs:
        _, *lines = log.read_text().splitlines()
        named = [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]
        found.append([each for each in named if each not in known])
        known |= {*named}
    return [each for each in found if each]


def rows_given(sink: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """What a reader of the sink is given, in the order in which it came."""
    found = []
    for batch in batches_given(sink):
        for path in batch:
            rows = pq.read_table(path, columns=[*columns]).select([*columns]).to_pylist()
            found += [tuple(row.values()) for row in rows]
    return found
