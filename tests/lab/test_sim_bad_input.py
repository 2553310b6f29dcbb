"""eoctl sim with what it cannot take: which path or option, what is wrong, what to do instead."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.environment.settings import PlaySettings, RunSettings
from eoctl.lab.guarantees.scenarios import SavedCourse, encode_scenario
from eoctl.lab.sim.guarantees import parse_kinds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Run = Callable[..., Outcome]


SCENARIO = encode_scenario(
    SavedCourse("a title", PlaySettings(), RunSettings(records=5), ("kill 0 at 50%",))
)
SAFE = "--acks all --idempotence yes --faults partition-leader"


def _file(place: Path) -> None:
    place.write_text("x\n")


def _full(place: Path) -> None:
    place.mkdir()
    (place / "x").touch()


def _without(name: str) -> Callable[[Path], None]:
    def remove(place: Path) -> None:
        shutil.copytree(place.parent / "play", place)
        target = place / name
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()

    return remove


def _as_directory(name: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        _without(name)(place)
        (place / name).mkdir()

    return change


def _as_file(name: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        _without(name)(place)
        (place / name).touch()

    return change


def _with(name: str, content: bytes) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        shutil.copytree(place.parent / "play", place)
        (place / name).write_bytes(content)

    return change


def _scenario(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        value = json.loads(SCENARIO)
        change(value)
        place.write_text(json.dumps(value, indent=1))

    return write


def _cut_scenario(place: Path) -> None:
    place.write_bytes(SCENARIO[:150])


# What is made as `it`, the call, the exit status, what is said of it, and what to try.
BAD = [
    (_file, "run it", 4, "it: is no simulated cluster: it is a file", "eoctl sim init"),
    (_file, "check it", 4, "it: is no simulated cluster: it is a file", "eoctl sim init"),
    (_file, "run it/x", 4, "it/x: is no simulated cluster: it is below a file", "eoctl sim init"),
    (_file, "check it/x", 4, "it/x: is no simulated cluster: it is below a file", "eoctl sim init"),
    (None, "run it", 4, "it: is no simulated cluster: it is not there", "eoctl sim init it"),
    (None, "check it", 4, "it: is no simulated cluster: it is not there", "eoctl sim init it"),
    (_full, "run it", 4, "it has no cluster.json", "the directory of a simulated cluster"),
    (_full, "check it", 4, "it has no cluster.json", "the directory of a simulated cluster"),
    (_as_directory("cluster.json"), "run it", 4, "it/cluster.json: is not what", "make another"),
    (_with("cluster.json", b"{"), "check it", 4, "it/cluster.json: is not what", "make another"),
    (_without("node-1"), "run it", 4, "it/node-1: is not there", "eoctl sim init"),
    (_without("node-1"), "check it", 4, "it/node-1: is not there", "eoctl sim init"),
    (_as_file("node-1"), "run it", 4, "it/node-1: is no directory", "eoctl sim init"),
    (_as_file("node-1"), "check it", 4, "it/node-1: is no directory", "eoctl sim init"),
    (_without("node-1/t-0"), "run it", 4, "it/node-1/t-0: is not there", "eoctl sim init"),
    (_without("node-1/t-0"), "check it", 4, "it/node-1/t-0: is not there", "eoctl sim init"),
    (_without("controller"), "run it", 4, "it/controller: is not there", "eoctl sim init"),
    (_without("history-1.jsonl"), "check it", 3, "it/history-1.jsonl: No such", "eoctl check it/"),
    (_as_directory("history-1.jsonl"), "check it", 4, "is no plain file", "save it as a file"),
    (_with("history-1.jsonl", b""), "check it", 4, "history-1.jsonl: is empty", "eoctl-history(5)"),
    (_with("history-1.jsonl", b"{}\n"), "check it", 4, "line 1 is not the", "eoctl-history(5)"),
    (_file, "init it", 4, "it: is a file; nothing was touched", "not there yet"),
    (_file, "init it/x", 4, "it is no directory", "not there yet"),
    (_full, "init it", 4, "it: is not empty", "not there yet"),
    (None, "init it/x", 4, "there is no directory", "mkdir -p"),
    (None, "init it --replication-factor 4", 2, "there are 3 nodes", "--nodes 4"),
    (None, "explore --replication-factor 4", 2, "there are 3 nodes", "--nodes 4"),
    (None, "run play --replay it", 3, "it: No such file", "that right"),
    (_full, "run new --replay it", 3, "it: Not a regular file", "that right"),
    (_file, "run new --replay it", 4, "it: line 1: no JSON", "--witness FILE"),
    (_cut_scenario, "run new --replay it", 4, "it: line 9: no JSON", "--witness FILE"),
    (_scenario(dict.clear), "run new --replay it", 4, "is no course of events", "--witness FILE"),
    (_scenario(lambda v: v.update(version=9)), "run new --replay it", 4, "of version 9", "--witness"),
    (_scenario(lambda v: v.update(faults=["kill 0 at 5%", "kill me at 3s"])), "run new --replay it",
     4, "it: fault 2: 'kill me at 3s': 'me' is no node", "0 to 2, or one of all"),
    (_scenario(lambda v: v.update(faults=["melt"])), "run new --replay it", 4, "it: fault 1: 'melt'",
     "such as 'kill leader"),
    (_scenario(lambda v: v["settings"].update(replication_factor=9)), "run new --replay it", 4,
     "it: replication_factor 9: of 3 nodes", "--witness FILE"),
    (_scenario(lambda v: v["run"].update(records="many")), "run new --replay it", 4,
     "it: run.records: 'many' is no int", "--witness FILE"),
    (_scenario(lambda v: v["run"].pop("seed")), "run new --replay it", 4,
     "it: is damaged: RunSettings with or without seed", "--witness FILE"),
    (_scenario(lambda v: v.update(run=[])), "run new --replay it", 4, "it: is damaged",
     "--witness FILE"),
    (None, "run new --script it", 2, "--script it: there is none", "one of 1-one-dead"),
    (None, "run new --script 1-one-dead --replay it", 2, "one of them", "eoctl sim run new"),
    (None, "run play --faults melt", 2, "'melt' is no fault", "such as 'kill leader"),
    (None, "run play --retries it", 2, "a number, or max", "--retries max"),
    (_file, "explore --seeds 1 --witness it", 4, "it: is there already", "not there yet"),
    (None, "explore --seeds 1 --witness it/x", 4, "there is no directory it", "mkdir -p it"),
    (_file, "explore --seeds 1 --witness it/x", 4, "it is no directory", "another"),
    (None, "explore --faults it", 2, "'it' is none of kill, power", "--faults kill"),
    (None, "explore --faults ,", 2, "names no kind", "--faults kill"),
    (_file, "table --witness it", 4, "it: is there already", "not there yet"),
    (None, "table --witness it/x", 4, "there is no directory it", "mkdir -p it"),
    (None, "table --acks it", 2, "--acks it: one of 0, 1, all", "eoctl sim table"),
    (None, f"table {SAFE} --witness it", 2, "nothing was found to lose", "without --witness"),
    (None, "check", 2, "neither a simulated cluster nor a history", "eoctl sim check DIR"),
    (None, "check play --history it", 2, "has its own histories", "leave DIR out"),
    (None, "check --history it", 3, "it: No such file", "that right"),
    (_full, "check --history it", 4, "it: is no plain file", "save it as a file"),
    (_file, "check --history it", 4, "it: line 1 is not the header", "eoctl-history(5)"),
]  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eoctl: Run) -> Path:
    """A directory with a cluster `simulate` that has been run."""
    monkeypatch.chdir(tmp_path)
    assert eoctl("sim", "init", "play").status == 0
    assert eoctl("sim", "run", "play", "--records", 5).status == 0
    return tmp_path


def _tree(root: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(root.rglob("*")) if each.is_file()}


@pytest.mark.share(8)
@pytest.mark.parametrize(("make", "call", "status", "words", "next_step"), BAD)
def test_what_cannot_be_taken_is_told_with_what_to_do(
    eoctl: Run,
    here: Path,
    make: Callable[[Path], None] | None,
    call: str,
    status: int,
    words: str,
    next_step: str,
) -> None:
    if make is not None:
        make(here / "it")
    before = _tree(here)
    outcome = eoctl("sim", *call.split())
    assert (outcome.status, outcome.text) == (status, ""), outcome.errors
    first, second = outcome.errors.splitlines()
    assert words in first
    assert second.startswith("  try: ")
    assert next_step in second
    assert _tree(here) == before


@pytest.mark.parametrize("call", ["run", "check", "init"])
def test_an_empty_name_is_no_directory(eoctl: Run, here: Path, call: str) -> None:
    """It was taken for the directory that one is in."""
    assert here.is_dir()
    outcome = eoctl("sim", call, "")
    assert outcome.status == 2
    assert "the name of the directory is empty" in outcome.errors


def test_a_history_that_is_broken_in_the_middle_is_judged_but_for_its_lines(
    eoctl: Run, here: Path
) -> None:
    path = here / "play" / "history-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for place, line in ((3, b'{"type":"ok","pro\n'), (5, b"\xff\n"), (7, b"\n"), (9, b"[]\n")):
        lines[place] = line
    path.write_bytes(b"".join(lines))
    outcome = eoctl("sim", "check", "play")
    assert outcome.status == 5
    for line, why in ((4, "no JSON"), (6, "no JSON"), (8, "empty"), (10, "no JSON object")):
        assert f"history-1.jsonl: line {line}: {why}" in outcome.errors
    assert "not all could be judged" in outcome.errors


def test_a_crash_is_a_kill() -> None:
    """As people say it; a kind is there once."""
    assert parse_kinds("crash, partition,power,kill") == ("kill", "partition", "power")
