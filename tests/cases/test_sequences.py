"""Sequences that no batch has, where no offset is missing: `loss` suspects lost records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome


@pytest.mark.parametrize(
    ("state", "offset", "count", "sequences"),
    [("sequence-gap", 5, 5, "5 to 9"), ("first-sequence-not-zero", 0, 17, "0 to 16")],
)
def test_loss_names_producer_epoch_and_sequences(
    state: str,
    offset: int,
    count: int,
    sequences: str,
    case: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
) -> None:
    outcome = eoctl("loss", case(state), "--output", "jsonl")
    assert outcome.status == 1
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    [found] = [row for row in rows if row["kind"] == "suspected"]
    assert (found["producer_id"], found["producer_epoch"]) == (7, 0)
    assert (found["base_offset"], found["records_count"]) == (offset, count)
    assert found["reason"].startswith(f"no batch has sequences {sequences} of the producer")
