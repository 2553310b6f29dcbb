"""Sequences that no batch has, where no offset is missing: `loss` suspects lost records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.terminal import on_terminal

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


@pytest.mark.parametrize(
    ("state", "check_id", "severity"),
    [("sequence-gap", "PRD-1", "warning"), ("first-sequence-not-zero", "PRD-6", "note")],
)
def test_check_suspects_what_loss_suspects(
    state: str,
    check_id: str,
    severity: str,
    case: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
) -> None:
    log_dir = case(state)
    checked = eoctl("check", log_dir, "--output", "jsonl")
    rows = [json.loads(line) for line in checked.text.splitlines()]
    [found] = [row for row in rows if row["kind"] == "finding"]
    assert (found["check_id"], found["severity"]) == (check_id, severity)
    assert "producer 7, epoch 0" in found["message"]
    shown = on_terminal("check", str(log_dir))
    assert "suspected: 1 producer with missing sequences" in shown.text
    assert f"eoctl loss {log_dir}" in " ".join(shown.text.split())
