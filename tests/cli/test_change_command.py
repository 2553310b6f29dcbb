"""Every command that changes files goes through the same situations, and does the same in each.

Looked at, saved and applied, applied, nothing to do, interrupted, refused, read by nobody, undone.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from eoctl.change_options import ChangeOptions
from storage.errors import UsageError
from storage.file_names import CLEAN_SHUTDOWN_NAME
from tests.changes import held, in_a_closed_pipe, interrupt, journal_of, rows_of
from tests.crash.commands import CHANGES, call_of, prepare
from tests.crash.trees import difference, leftovers, tree_of
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.trees import Entry
    from tests.running import Outcome

    Cli = Callable[..., Outcome]

# Each by the name of what tests/crash gives it to do.
PLANNED = {
    "truncate": "truncate within a segment",
    "trim": "trim over segments",
    "repair": "repair by salvage",
    "rejoin": "rejoin within a segment",
    "rebuild": "rebuild",
    "recover-state": "recover-state",
    "txn abort": "txn abort",
    "groups import": "groups import",
    "txn commit": "txn commit",
}
COMPARING = ("rebuild", "recover-state")  # without --apply they compare, and have no plan
APPENDING = {
    "produce": ("clean", "produce log-dir/plain-0 lines --single-copy"),
    "copy": ("clean", "copy other/plain-0 log-dir/txn-1 --single-copy"),
    "txn complete": ("crash", "txn complete log-dir"),
}
EVERY = (*PLANNED, "apply", *APPENDING)
UNDO_STEPS = re.compile(r"eoctl (undo \S+) undoes it")
IS_PLAN = "this is a plan, nothing was changed: --apply runs it\n"


class Prepared(NamedTuple):
    """A call without `--apply`, and how it is told to do it."""

    call: tuple[object, ...]
    do_it: tuple[str, ...] = ("--apply",)

    @property
    def full(self) -> tuple[object, ...]:
        """The call that changes files."""
        return (*self.call, *self.do_it)


@pytest.fixture
def prepared(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eoctl: Cli
) -> Callable[[str], Prepared]:
    """Makes `log-dir` in the working directory, with something to do for a command."""

    def make(name: str) -> Prepared:
        monkeypatch.chdir(tmp_path)
        directory = golden("kafka-4.3.1")
        if name in APPENDING:
            kind, words = APPENDING[name]
            copy_log_dir(directory / kind, tmp_path / "log-dir")
            copy_log_dir(directory / "clean", tmp_path / "other")
            Path("lines").write_text("one\ntwo\n")
            Path("log-dir/.lock").touch()
            return Prepared(tuple(shlex.split(words)))
        change = CHANGES[PLANNED.get(name, PLANNED["truncate"])]
        prepare(change, directory / "clean", tmp_path)
        call = call_of(change, tmp_path)
        if name == "apply":
            assert eoctl(*call, "--save-plan", "plan").status == 0
            return Prepared(("apply", "plan"), ())
        return Prepared(call)

    return make


def state() -> dict[str, Entry]:
    """Without the time of the log dir itself, which a lock file that is opened may change."""
    found = tree_of(Path("log-dir"), directory_times=True)
    return {name: each for name, each in found.items() if name != "."}


def contents() -> dict[str, bytes | None]:
    return {name: each.data for name, each in state().items()}


def require_undone(eoctl: Cli, words: str, before: dict[str, Entry]) -> None:
    """By the one call that the words name."""
    (call,) = set(UNDO_STEPS.findall(words))
    undone = eoctl(*shlex.split(call))
    assert undone.status == 0, undone.errors
    assert difference(before, state()) == []


@pytest.mark.parametrize("name", [each for each in EVERY if each != "apply"])
def test_only_looked_at(name: str, prepared: Callable[..., Prepared], eoctl: Cli) -> None:
    made = prepared(name)
    before = state()
    outcome = eoctl(*made.call)
    assert outcome.status == (1 if name in COMPARING else 0), outcome.errors
    assert (IS_PLAN in outcome.errors) == (name not in COMPARING)
    assert difference(before, state()) == []
    assert not Path("log-dir.eoctl").exists()


@pytest.mark.parametrize("name", PLANNED)
def test_saved_and_applied(name: str, prepared: Callable[..., Prepared], eoctl: Cli) -> None:
    """With the result of --apply."""
    made = prepared(name)
    before = state()
    saved = eoctl(*made.call, "--save-plan", "plan")
    assert saved.status == 0, saved.errors
    assert saved.errors.endswith("nothing was changed: eoctl apply plan runs it\n")
    assert difference(before, state()) == []
    applied = eoctl("apply", "plan")
    assert applied.status == 0, applied.errors
    after = contents()
    require_undone(eoctl, applied.errors, before)
    assert eoctl(*made.full).status == 0
    assert contents() == after


@pytest.mark.share(5)
@pytest.mark.parametrize("name", EVERY)
def test_applied(name: str, prepared: Callable[..., Prepared], eoctl: Cli) -> None:
    """The way back comes before anything else that is said, and is one."""
    made = prepared(name)
    before = state()
    outcome = eoctl(*made.full)
    assert outcome.status == 0, outcome.errors
    assert difference(before, state()) != []
    if name in PLANNED or name == "apply":
        assert UNDO_STEPS.fullmatch(outcome.errors.splitlines()[0])
    require_undone(eoctl, outcome.errors, before)


@pytest.mark.parametrize("name", PLANNED)
def test_nothing_to_do(name: str, prepared: Callable[..., Prepared], eoctl: Cli) -> None:
    made = prepared(name)
    assert eoctl(*made.full).status == 0
    before = state()
    again = eoctl(*made.full)
    assert again.status == 0, again.errors
    assert again.errors.endswith(": nothing was changed\n")
    saved = eoctl(*made.call, "--save-plan", "plan")
    assert saved.status == 0, saved.errors
    assert saved.errors.endswith(": nothing would be changed, and no plan was saved\n")
    assert not Path("plan").exists()
    assert difference(before, state()) == []
    assert len([*Path("log-dir.eoctl").iterdir()]) == 1


def test_applied_twice(prepared: Callable[..., Prepared], eoctl: Cli) -> None:
    made = prepared("apply")
    assert eoctl(*made.full).status == 0
    before = state()
    assert "it had been applied before" in eoctl(*made.full).errors
    assert difference(before, state()) == []


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [*PLANNED, "apply"])
def test_interrupted_and_run_again(
    name: str, prepared: Callable[..., Prepared], eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Completed, told at once with the way back, and `applied` in the rows."""
    made = prepared(name)
    before = state()
    assert eoctl(*made.full).status == 0
    after = contents()
    assert eoctl("undo", journal_of(Path("log-dir"))).status == 0
    assert eoctl("journal", "prune", "log-dir", "--apply").status == 0
    with monkeypatch.context() as patch:
        if name == "txn abort":  # the marker of a clean stop is gone already
            interrupt(patch, "rename", call=3)
        else:
            interrupt(patch, "unlink", name=CLEAN_SHUTDOWN_NAME)
        assert eoctl(*made.full).status == 130
    assert leftovers(Path("log-dir")) != []
    again = eoctl(*made.full, "--output", "jsonl")
    assert again.status == 0, again.errors
    assert contents() == after
    if name != "apply":
        assert "completed what an earlier run began: eoctl undo" in again.errors.splitlines()[0]
        assert "nothing was changed" not in again.errors
        flags = [each.get("applied", each.get("written")) for each in rows_of(again)]
        assert True in flags or name in {"txn abort", "recover-state"}
    require_undone(eoctl, again.errors, before)


REFUSALS = {
    "rejoin": ("leader/txn-0/leader-epoch-checkpoint", 4, "leader/txn-0"),
    "truncate": ("other/txn-0", 3, "other/txn-0"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_behind_a_completed_run_is_an_error(
    name: str, prepared: Callable[..., Prepared], eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a note, with status 0: what was completed is told, and stays."""
    made = prepared(name)
    full = made.full
    if name == "truncate":
        shutil.copytree("log-dir", "other")
        full = (*full, "--replica", "other/txn-0")
    before = state()
    with monkeypatch.context() as patch:
        interrupt(patch, "unlink", name=CLEAN_SHUTDOWN_NAME)
        assert eoctl(*full).status == 130
    path, status, reported = REFUSALS[name]
    Path(path).rename("gone")
    refused = eoctl(*full)
    assert refused.status == status, refused.errors
    first, *rest = refused.errors.splitlines()
    assert "completed what an earlier run began: eoctl undo" in first
    assert reported in rest[0]
    assert "what an earlier run began is completed, and stays" in refused.errors
    assert refused.stdout == b""
    assert leftovers(Path("log-dir")) == []
    require_undone(eoctl, refused.errors, before)


@pytest.mark.parametrize("name", EVERY)
def test_no_backup_must_be_meant(name: str, prepared: Callable[..., Prepared], eoctl: Cli) -> None:
    made = prepared(name)
    before = state()
    refused = eoctl(*made.full, "--no-backup")
    assert refused.status == 2
    assert "a change with --no-backup cannot be undone" in refused.errors
    assert eoctl(*made.full, "--i-accept-the-loss").status == 2
    assert difference(before, state()) == []


@pytest.mark.parametrize("name", EVERY)
def test_a_broker_holds_the_lock(name: str, prepared: Callable[..., Prepared], eoctl: Cli) -> None:
    made = prepared(name)
    before = state()
    with held(Path("log-dir")):
        refused = eoctl(*made.full)
    assert refused.status == 4, refused.errors
    assert refused.stdout == b""
    assert difference(before, state()) == []


@pytest.mark.share(2)
@pytest.mark.parametrize("name", EVERY)
def test_nobody_reads_the_rows(name: str, prepared: Callable[..., Prepared], eoctl: Cli) -> None:
    """It is done all the same, and the way back is told."""
    made = prepared(name)
    before = state()
    done = in_a_closed_pipe(*made.full)
    assert done.returncode == 0, done.stderr
    assert difference(before, state()) != []
    require_undone(eoctl, os.fsdecode(done.stderr), before)


# --- several plans --------------------------------------------------------------------------------


@pytest.fixture
def two(golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two log dirs, `one` and `two`, with two partitions each."""
    monkeypatch.chdir(tmp_path)
    clean = golden("kafka-4.3.1") / "clean"
    for log_dir, number in (("one", 0), ("two", 1)):
        copy_log_dir(clean, tmp_path / log_dir)
        kept = {f"plain-{number}", f"txn-{number}"}
        for each in (tmp_path / log_dir).iterdir():
            if each.is_dir() and each.name not in kept:
                shutil.rmtree(each)
        for each in (tmp_path / log_dir).glob("*-checkpoint"):
            lines = each.read_text().splitlines()[2:]
            lines = [line for line in lines if "-".join(line.split()[:2]) in kept]
            each.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return tmp_path


PARTITIONS = ("one/plain-0", "one/txn-0", "two/plain-1", "two/txn-1")
REPAIR = ("repair", "one/txn-0", "two/txn-1", "--strategy", "salvage", "--single-copy")


def damage_one_of_each(two: Path) -> None:
    for each in ("one/txn-0", "two/txn-1"):
        with (two / each / f"{0:020d}.log").open("r+b") as file:
            file.seek(75)
            file.write(b"?")


def test_each_log_dir_has_its_way_back_before_the_next_one(
    two: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second log dir fails: the first is changed, and what leads back was told."""
    damage_one_of_each(two)
    before = tree_of(two / "one")
    with monkeypatch.context() as patch:
        interrupt(patch, "unlink", name=f"two/{CLEAN_SHUTDOWN_NAME}")
        outcome = eoctl(*REPAIR, "--apply")
    assert outcome.status == 130
    call = f"undo {journal_of(two / 'one')}"
    assert outcome.errors.splitlines()[0] == f"eoctl {call} undoes it"
    again = eoctl(*REPAIR, "--apply", "--output", "jsonl")
    assert again.status == 0, again.errors
    rows = {each["path"]: each["applied"] for each in rows_of(again, "repair")}
    assert rows == {"one/txn-0": False, "two/txn-1": True}
    assert eoctl(*shlex.split(call)).status == 0
    assert difference(before, tree_of(two / "one")) == []


def test_a_plan_is_not_saved_in_a_log_dir(two: Path, eoctl: Cli) -> None:
    before = tree_of(two)
    call = ("truncate", two / "one/txn-0", "--to-offset", "311", "--single-copy")
    refused = eoctl(*call, "--save-plan", two / "one/plan")
    assert refused.status == 4
    assert "only a broker's files belong" in refused.errors
    assert tree_of(two) == before


def test_a_partition_that_is_refused_is_not_called_sound(two: Path, eoctl: Cli) -> None:
    """Without metadata nobody knows how many replicas there are: salvage of txn-0 is refused."""
    damage_one_of_each(two)
    refused = eoctl("repair", two / "one", "--strategy", "salvage")
    assert refused.status == 5
    assert "there is nothing to repair in the other partitions" in refused.errors


def test_several_plans_are_not_saved(two: Path, eoctl: Cli) -> None:
    damage_one_of_each(two)
    refused = eoctl(*REPAIR, "--save-plan", "plan")
    assert refused.status == 2
    assert "2 log dirs have something to change. A saved plan is for one" in refused.errors
    assert not (two / "plan").exists()


def test_journals_of_two_log_dirs_in_one_place(two: Path, eoctl: Cli) -> None:
    """`undo --with-later` goes by log dir: the way back of the second one was never told."""
    Path("place").mkdir()
    for each in PARTITIONS:
        (two / each / f"{0:020d}.timeindex").unlink()
    before = {each: tree_of(two / each) for each in PARTITIONS}
    outcome = eoctl("rebuild", *PARTITIONS, "--apply", "--backup-dir", "place")
    assert outcome.status == 0, outcome.errors
    assert len([*Path("place").iterdir()]) == 4
    calls = re.findall(r"eoctl (undo --with-later \S+) undoes all of it", outcome.errors)
    assert len(calls) == 2
    for each in calls:
        assert eoctl(*shlex.split(each)).status == 0
    for each in PARTITIONS:
        assert difference(before[each], tree_of(two / each)) == []


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"no_backup": True}, {"accept_loss": True}, {"apply": True, "save_plan": "plan"}]
)
def test_options_that_mean_nothing_are_never_made(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ChangeOptions(**wrong)  # type: ignore[arg-type]


def test_options_have_no_positions() -> None:
    """Four of them are flags: two that are swapped would leave no backup."""
    with pytest.raises(TypeError):
        ChangeOptions(True)  # type: ignore[misc]
