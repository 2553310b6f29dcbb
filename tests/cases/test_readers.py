"""Readers of one directory agree: what is given and what is lost are what the files hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "lost"),
    [("backward-offsets", 4), ("offset-overflow", 0), ("wrong-segment-name", 30), ("zero-tail", 0)],
)
def test_the_audit_counts_what_export_gives_and_what_is_lost(
    name: str, lost: int, case: Callable[[str], Path], eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    made = case(name)
    options = ("--engine", "local", "--output", "jsonl")
    exported = eoctl("export", made, "--to", tmp_path / "out", "--format", "jsonl", *options)
    audited = eoctl("spark-audit", made, *options)
    given, counted = (
        {row["path"]: row for row in map(json.loads, each.text.splitlines()) if "records" in row}
        for each in (exported, audited)
    )
    assert given.keys() == counted.keys()
    for path, row in counted.items():
        sums = given[path]["records"] + given[path]["lost_records"]
        assert row["records"] - row["control_batches"] == sums, path
    assert sum(each["lost_records"] for each in given.values()) == lost


def test_offsets_that_a_start_splits_are_no_loss(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    """The log is known to go so far: a broker gives these records, and so do all readers."""
    made = case("offset-overflow")
    assert eoctl("loss", made).status == 0
    assert eoctl("check", made, "--fail-on", "error").status == 0
    given = eoctl("consume", made / "c-0", "--output", "jsonl")
    assert given.status == 0
    assert len(given.text.splitlines()) == 10
    counted = eoctl("producers", made)
    assert counted.status == 0, counted.errors
