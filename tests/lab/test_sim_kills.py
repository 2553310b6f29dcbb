"""`sim init`, `run` and `explore`, killed at any moment, and called again: nothing is lost.

Killed is the program that plays the cluster, with all its brokers and its controller at once.
EOCTL_KILLS=320 kills it so many times; without it, see `tests.drawn`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.environment.settings import MARKER_NAME
from eoctl.lab.guarantees import scenarios as scratch_module
from tests.writing import partition_at

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.kills import KillServer


KILLS_COUNT = int(os.environ.get("EOCTL_KILLS", "100"))
FAULTS = "kill leader at 20%, start all at 40%, stop any at 60%, start all at 80%"
IMPORTED: dict[str, dict[str, Any]] = {
    "eoctl.lab.sim.check": {},
    "eoctl.lab.sim.simulate": {},
    "recovery.rebuild.derive": {},
    "recovery.repair.broker_start": {},
    "recovery.truncate.plan": {},
}
SETTINGS = ("--min-insync-replicas", 2, "--segment-bytes", 2000)
MOMENTS = ("before", "middle", "after")


def require_readable(simulate: Path) -> None:
    """Of each replica every batch up to its end has a right checksum, but for a torn end."""
    for directory in simulate.glob("node-*/t-0"):
        placed = [*partition_at(directory).read(0)]
        wrong = [place for place, each in enumerate(placed) if not each.batch.crc_ok]
        assert wrong in ([], [len(placed) - 1])


@pytest.mark.exhaustive
def test_killed_at_any_moment_and_called_again(scratch: Path, server: KillServer) -> None:
    """First a kind of call, the rarest until now, then one of its calls; at times twice."""
    chooser = random.Random(os.environ["EOCTL_SEED"])
    made, simulate = scratch / "made", scratch / "play"

    def run(*arguments: object, **more: Any) -> dict[str, Any]:
        return server.run("sim", *arguments, settings=IMPORTED, everywhere=True, **more)

    def simulate_on(seed: int, **more: Any) -> dict[str, Any]:
        return run("run", simulate, "--records", 30, "--seed", seed, "--faults", FAULTS, **more)

    assert run("init", made, *SETTINGS)["status"] == 0
    shutil.copytree(made, simulate)
    known = simulate_on(0)
    assert known["status"] == 0
    kinds = sorted({*known["calls"]})
    assert len(kinds) >= 8
    per_kind: Counter[str] = Counter()
    ended = simulate
    simulated_once = scratch / "once"
    ended.rename(simulated_once)
    while per_kind.total() < KILLS_COUNT:
        shutil.rmtree(simulate, ignore_errors=True)
        begin = chooser.choice([made, simulated_once])
        shutil.copytree(begin, simulate)
        before = json.loads((simulate / MARKER_NAME).read_bytes())["runs_count"]
        kills = chooser.choice([1, 1, 2])
        for _ in range(kills):
            kind = min(kinds, key=lambda each: (per_kind[each], chooser.random()))
            places = [place for place, each in enumerate(known["calls"]) if each == kind]
            killed = simulate_on(
                0, operation=chooser.choice(places), moment=chooser.choice(MOMENTS)
            )
            per_kind[kind] += 1
            assert killed["killed"] or killed["status"] == 0
            require_readable(simulate)
        assert simulate_on(1)["status"] == 0
        marker = json.loads((simulate / MARKER_NAME).read_bytes())
        assert marker["runs_count"] == marker["ended_count"]
        assert before < marker["runs_count"] <= before + kills + 1
        assert run("check", simulate)["status"] == 0, (os.environ["EOCTL_SEED"], per_kind)


@pytest.mark.exhaustive
def test_a_cluster_whose_making_was_killed_is_none(scratch: Path, server: KillServer) -> None:
    """Its marker comes last: without it nothing is touched, and it is said so."""
    chooser = random.Random(os.environ["EOCTL_SEED"])
    simulate = scratch / "play"

    def make(**more: Any) -> dict[str, Any]:
        return server.run("sim", "init", simulate, settings=IMPORTED, everywhere=True, **more)

    calls = make()["calls"]
    for _ in range(40):
        shutil.rmtree(simulate, ignore_errors=True)
        made = make(operation=chooser.randrange(len(calls)), moment=chooser.choice(MOMENTS))
        assert made["killed"]
        found = {each: each.read_bytes() for each in simulate.rglob("*") if each.is_file()}
        is_whole = (simulate / MARKER_NAME).exists()
        is_empty = not simulate.is_dir() or not any(simulate.iterdir())
        again = server.run("sim", "run", simulate, "--records", 5, settings=IMPORTED)
        assert again["status"] == (0 if is_whole else 4)
        if not is_whole:
            assert found == {
                each: each.read_bytes() for each in simulate.rglob("*") if each.is_file()
            }
            assert make()["status"] == (0 if is_empty else 4)


@pytest.mark.exhaustive
def test_an_exploration_that_was_killed_is_done_again_and_leaves_nothing(
    scratch: Path, server: KillServer
) -> None:
    """The file of its witness is whole or not there; what was played goes with the next call."""
    chooser = random.Random(os.environ["EOCTL_SEED"])
    memory, witness, expected = (scratch / name for name in ("memory", "found", "expected"))
    memory.mkdir()
    settings = {"eoctl.lab.guarantees.scenarios": {"MEMORY": str(memory)}, **IMPORTED}

    def explore(to: Path, **more: Any) -> dict[str, Any]:
        return server.run(
            "sim", "explore", "--acks", 1, "--faults", "power-all", "--records", 20, "--rate", 2,
            "--witness", to, settings=settings, everywhere=True, **more,
        )  # fmt: skip

    known = explore(expected)
    assert known["status"] == 1
    assert [*memory.iterdir()] == []
    count = len(known["calls"])
    assert count > 500
    left_count = 0
    for _ in range(60):
        # At times one of the last calls: they write the file.
        operation = chooser.choice([chooser.randrange(count), count - 1 - chooser.randrange(8)])
        killed = explore(witness, operation=operation, moment=chooser.choice(MOMENTS))
        assert killed["killed"]
        left_count += len([*memory.iterdir()])
        is_written = witness.exists()
        if is_written:
            assert witness.read_bytes() == expected.read_bytes()
        assert explore(witness)["status"] == (4 if is_written else 1)
        assert [*memory.iterdir()] == []
        assert witness.read_bytes() == expected.read_bytes()
        witness.unlink()
        assert sorted(each.name for each in scratch.iterdir()) == ["expected", "memory"]
    assert left_count


def test_what_another_exploration_is_playing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_module, "MEMORY", str(tmp_path))
    other = tmp_path / "eoctl-something"
    other.mkdir()
    with scratch_module.scratch() as first:
        scratch_module.remove_abandoned.cache_clear()
        with scratch_module.scratch() as second:
            assert first != second
            assert {*tmp_path.iterdir()} == {other, first, second}
    assert [*tmp_path.iterdir()] == [other]


def test_where_there_are_no_locks_courses_are_played_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(scratch_module, "MEMORY", str(tmp_path))
    monkeypatch.setattr(scratch_module.fcntl, "flock", flock)
    with scratch_module.scratch() as path:
        assert path.is_dir()
    assert [*tmp_path.iterdir()] == []
