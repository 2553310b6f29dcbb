"""What a streaming query has given: the rows of its Parquet sink, as its log names their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPACT = ".compact"  # names all files from the first micro-batch on


def batches_given(sink: Path) -> list[list[Path]]:
    """The files of each micro-batch that gave some, in its order and that of its tasks."""
    logs = [each for each in (sink / "_spark_metadata").glob("*") if each.name[0] != "."]
    logs.sort(key=lambda each: int(each.name.removesuffix(COMPACT)))
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
