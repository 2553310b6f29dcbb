"""eoctl sim table: what may be lost with which settings, and a course of events that loses it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.guarantees.matrix import load_matrix
from eoctl.lab.sim.guarantees import range_words
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Run = Callable[..., Outcome]


ASKED = ("--acks", "all", "--min-insync-replicas", "1")


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(each) for each in outcome.text.splitlines()]


def test_one_call_says_what_may_be_lost_and_how(eoctl: Run) -> None:
    outcome = eoctl("sim", "table", *ASKED)
    assert outcome.status == 0, outcome.errors
    reported = outcome.errors.splitlines()
    assert reported[0] == "acks=all, min-insync-replicas=1, truncation=epoch:"
    assert "may lose, duplicate or diverge" in reported[1]
    classes = [each for each in reported if "followers are stopped, then the leader" in each]
    assert classes
    assert classes[0].startswith("  may lose")
    steps = [each for each in reported if re.match(r" *[0-9]+\. +[0-9.]+ s  ", each)]
    assert 1 <= len(steps) <= 12
    assert any("was acknowledged" in each or "was read" in each for each in reported)


@pytest.mark.exhaustive
def test_a_terminal_has_the_answer_first_and_80_columns() -> None:
    shown = on_terminal("sim", "table", *ASKED, "--no-pager", "-q", rows=200)
    assert shown.status == 0
    lines = shown.text.splitlines()
    assert max(map(len, lines)) <= 80
    answer = next(place for place, each in enumerate(lines) if "may lose, duplicate" in each)
    heading = next(place for place, each in enumerate(lines) if re.match("settings +faults", each))
    assert answer < heading
    whole = on_terminal("sim", "table", "--no-pager", "-q", rows=200)
    assert max(map(len, whole.text.splitlines())) <= 80


def test_programs_get_every_cell(eoctl: Run) -> None:
    found = rows(eoctl("sim", "table", *ASKED, "--faults", "power-all", "-o", "jsonl"))
    assert found
    assert {(each["acks"], each["min_insync_replicas"], each["faults"]) for each in found} == {
        ("all", 1, "power-all")
    }
    assert all(each["seeds_count"] > 0 for each in found)
    verdicts = {
        (each["fsync"], each["verdict"])
        for each in found
        if each["replication_factor"] == 3 and each["is_idempotent"] and not each["is_unclean"]
    }
    assert ("never", "may lose") in verdicts
    assert {verdict for fsync, verdict in verdicts if fsync == "batch"} <= {
        "none lost",
        "none found",
    }


def test_its_witness_is_repeated_and_condemned(
    eoctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = eoctl("sim", "table", *ASKED, "--witness", "loses.json")
    assert outcome.status == 0, outcome.errors
    assert "eoctl sim run ./play --replay loses.json" in outcome.errors
    assert eoctl("sim", "run", "play", "--replay", "loses.json").status == 0
    checked = eoctl("sim", "check", "play", "-o", "jsonl")
    assert checked.status == 1
    saved = json.loads((tmp_path / "loses.json").read_text())
    assert {each["kind"] for each in rows(checked)} == {*saved["kinds"]}
    again = eoctl("sim", "table", *ASKED, "--witness", "loses.json")
    assert again.status == 4
    assert "is there already" in again.errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--acks", "2"], "--acks 2: one of 0, 1, all"),
        (["--unclean-leader-election", "maybe"], "one of no, yes"),
        (["--faults", "melt"], "power-all"),
        (["--truncation", "hw", "--elr", "yes"], "no release of Kafka has"),
        (["--acks", "1", "--idempotence", "yes"], "no release of Kafka has"),
    ],
)
def test_wrong_calls(eoctl: Run, options: list[str], words: str) -> None:
    outcome = eoctl("sim", "table", *options)
    assert outcome.status == 2
    assert words in outcome.errors


def test_where_nothing_was_found_there_is_no_witness(eoctl: Run, tmp_path: Path) -> None:
    cell = next(each.cell for each in load_matrix().results if not each.effects)
    options = [
        "--acks", cell.acks, "--min-insync-replicas", cell.min_insync_replicas,
        "--replication-factor", cell.replication_factor, "--truncation", cell.truncation,
        "--fsync", cell.fsync, "--faults", cell.faults,
    ]  # fmt: skip
    for name, value in (
        ("--idempotence", cell.idempotence),
        ("--unclean-leader-election", cell.unclean),
        ("--elr", cell.elr),
    ):
        options += [name, "yes" if value else "no"]
    outcome = eoctl("sim", "table", *options, "--witness", tmp_path / "none.json")
    assert outcome.status == 2
    assert "nothing was found" in outcome.errors
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(
    ("counts", "words"), [([120], "120"), ([120, 120], "120"), ([2000, 120, 500], "120 to 2,000")]
)
def test_a_range_of_one_number_is_that_number(counts: list[int], words: str) -> None:
    assert range_words(counts) == words
