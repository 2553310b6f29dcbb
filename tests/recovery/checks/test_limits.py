"""Where a check begins to complain: one byte or one sequence less, and it does not."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from recovery.checks.indexes import OffsetIndexCheck
from recovery.summaries.sequence_ranges import HALF_LAP
from storage.kernels.layouts import INDEX_ENTRY
from storage.kernels.protocol import HeaderTable
from tests.doubled_logs import Said, Sent, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

INTERVAL_BYTES, BATCH_BYTES = 4096, 1000
FIVE = (Said(),) * 5


@pytest.mark.parametrize("beyond_bytes", [0, 1])
def test_an_index_may_leave_out_two_intervals_and_a_batch(beyond_bytes: int) -> None:
    """IDX-6: an entry is written with the first batch behind an interval; one may be lost."""
    second_pos = 2 * INTERVAL_BYTES + BATCH_BYTES + beyond_bytes
    found: list[str] = []
    check = OffsetIndexCheck(
        "0.index",
        np.array([(9, second_pos)], INDEX_ENTRY).tobytes(),
        0,
        SimpleNamespace(interval_bytes=INTERVAL_BYTES, has_damage=False, is_clean=False),  # type: ignore[arg-type]
        SimpleNamespace(add=lambda check_id, *_, **__: found.append(check_id)),  # type: ignore[arg-type]
        is_active=False,
        is_recovered=False,
    )
    columns: dict[str, Any] = dict.fromkeys(HeaderTable._fields, np.zeros(2, np.int64))
    columns |= {
        "pos": np.array([0, second_pos]),
        "batch_bytes": np.array([second_pos, BATCH_BYTES]),
        "base_offset": np.array([0, 9]),
        "last_offset": np.array([8, 9]),
        "magic": np.full(2, 2),
        "crc_ok": np.ones(2, bool),
    }
    check.take(HeaderTable(**columns))
    check.finish(second_pos + BATCH_BYTES, BATCH_BYTES)
    assert found == ["IDX-6"] * beyond_bytes


def ids_of(eoctl: Cli, directory: Path) -> list[str]:
    checked = eoctl("check", directory, "--output", "jsonl")
    rows: list[dict[str, Any]] = [json.loads(line) for line in checked.text.splitlines()]
    return sorted(
        row["check_id"]
        for row in rows
        if row["kind"] == "finding" and row["check_id"].startswith("PRD")
    )


def kinds_of(eoctl: Cli, directory: Path) -> list[str]:
    rows = map(json.loads, eoctl("loss", directory, "--output", "jsonl").text.splitlines())
    return [row["kind"] for row in rows if row["kind"] == "suspected"]


@pytest.mark.parametrize(("first", "is_suspected"), [(HALF_LAP - 1, True), (HALF_LAP, False)])
def test_half_a_lap_never_came_through_one_log(
    first: int, is_suspected: bool, tmp_path: Path, eoctl: Cli
) -> None:
    directory = write_log(tmp_path / "t-0", [Sent(7, 0, first, FIVE)])
    assert ids_of(eoctl, directory) == ["PRD-6"] * is_suspected
    assert kinds_of(eoctl, directory) == ["suspected"] * is_suspected


@pytest.mark.parametrize(
    ("third", "expected"),
    [(15, []), (10, ["PRD-2"]), (9, ["PRD-1"]), (14, ["PRD-2"]), (16, ["PRD-1"])],
)
def test_sequences_that_the_log_has_are_no_gap(
    third: int, expected: list[str], tmp_path: Path, eoctl: Cli
) -> None:
    """Behind a gap the log has the sequences from its end on, not those that are missing."""
    sequences = (0, 10, third)
    batches = [Sent(7, 0, first, FIVE) for first in sequences]
    directory = write_log(tmp_path / "t-0", batches)
    assert ids_of(eoctl, directory) == sorted(["PRD-1", *expected])
