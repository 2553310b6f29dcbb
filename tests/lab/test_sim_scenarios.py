"""eoctl sim run --replay and --script: courses of events that are saved are repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Run = Callable[..., Outcome]


def rows(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(each) for each in outcome.text.splitlines()]


@pytest.fixture
def witness(eoctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    found = eoctl(
        "sim", "explore", "--acks", 1, "--faults", "kill", "--seeds", 200,
        "--witness", "witness.json",
    )  # fmt: skip
    assert found.status == 1, found.errors
    assert "sim run ./play --replay witness.json" in found.errors
    return tmp_path / "witness.json"


@pytest.mark.exhaustive
def test_a_witness_is_repeated_and_condemned(eoctl: Run, witness: Path) -> None:
    saved = json.loads(witness.read_text())
    assert 1 <= len(saved["faults"]) <= 12
    ran = eoctl("sim", "run", "play", "--replay", witness)
    assert ran.status == 0, ran.errors
    assert saved["digest"][:16] in ran.errors
    checked = eoctl("sim", "check", "play", "-o", "jsonl")
    assert checked.status == 1
    assert {each["kind"] for each in rows(checked)} == {*saved["kinds"]}


@pytest.mark.exhaustive
def test_what_was_run_or_is_another_cluster_is_refused(eoctl: Run, witness: Path) -> None:
    assert eoctl("sim", "init", "new", "--min-insync-replicas", 2).status == 0
    other = eoctl("sim", "run", "new", "--replay", witness)
    assert other.status == 4
    assert "is another cluster" in other.errors
    assert eoctl("sim", "init", "same").status == 0
    assert eoctl("sim", "run", "same", "--replay", witness).status == 0
    again = eoctl("sim", "run", "same", "--replay", witness)
    assert again.status == 4
    assert "was run already" in again.errors
    twice = eoctl("sim", "explore", "--acks", 1, "--witness", witness)
    assert twice.status == 4
    assert "is there already" in twice.errors


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--replay", "witness.json", "--acks", "1"], "--replay witness.json"),
        (["--replay", "witness.json", "--script", "1-one-dead"], "one of them"),
        (["--script", "nothing"], "4-both-lost"),
        (["--script", "../scripts/1-one-dead"], "none of that name"),
    ],
)
def test_wrong_calls(eoctl: Run, witness: Path, options: list[str], words: str) -> None:
    outcome = eoctl("sim", "run", "play", *options)
    assert outcome.status == 2
    assert words in outcome.errors
    assert not (witness.parent / "play").exists()


@pytest.mark.exhaustive
def test_files_that_are_no_course(eoctl: Run, witness: Path) -> None:
    whole = json.loads(witness.read_text())
    for name, content in (
        ("empty.json", ""),
        ("other.json", "{}"),
        ("newer.json", json.dumps({**whole, "version": 99})),
        ("large.json", " " * (1 << 20) + witness.read_text()),
    ):
        (witness.parent / name).write_text(content)
    for name, status in (
        ("empty.json", 4), ("other.json", 4), ("newer.json", 4), ("large.json", 3),
        ("missing.json", 3), (".", 3), ("/dev/null", 3),
    ):  # fmt: skip
        outcome = eoctl("sim", "run", "play", "--replay", name)
        assert outcome.status == status, name
        assert name in outcome.errors
    assert not (witness.parent / "play").exists()


@pytest.mark.exhaustive
def test_another_course_than_the_saved_one_is_told(eoctl: Run, witness: Path) -> None:
    saved = json.loads(witness.read_text())
    saved["digest"] = "0" * 64
    witness.write_text(json.dumps(saved))
    outcome = eoctl("sim", "run", "play", "--replay", witness)
    assert outcome.status == 5
    assert "not the course of events that was saved" in outcome.errors


def test_scripts_are_listed_and_played(eoctl: Run, tmp_path: Path) -> None:
    listed = eoctl("sim", "scripts", "-o", "jsonl")
    assert listed.status == 0
    assert [each["script"] for each in rows(listed)] == [
        "1-one-dead", "2-both-dead", "3-last-dead-lost", "4-both-lost",
    ]  # fmt: skip
    simulate = tmp_path / "play"
    ran = eoctl("sim", "run", simulate, "--script", "3-last-dead-lost", "-o", "jsonl")
    assert ran.status == 0, ran.errors
    serves = [each["words"] for each in rows(ran) if each["event"] == "serves"]
    assert serves[2] == "read no, write no (LEADER_NOT_AVAILABLE); leader none, ISR 1"
    assert serves[-1] == "read yes (13 records), write yes; leader 0, ISR 0"
    assert eoctl("sim", "check", simulate).status == 0
