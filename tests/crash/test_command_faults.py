"""Commands whose file system fails at each call, or that are killed at any: nothing is lost."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.commands import CHANGES, Runs
from tests.crash.faults import FailingFileSystem, UnsyncedFileSystem
from tests.crash.kills import KillServer
from tests.crash.states import RUN_NAME
from tests.crash.trees import difference, leftovers, tree_of
from tests.drawn import IS_ALL, drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.crash.commands import Cli
    from tests.crash.trees import Entry

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
KILLS_COUNT = 200
FAILURES_SHARE = 24  # of each change and its undo
# What an error says of the state that things are in.
AS_AT_START = ("nothing was touched", "nothing was changed")
UNFINISHED = ("the change is unfinished", "the undo is unfinished")
APPLIED, UNDONE = "the plan is applied", "the plan is undone"


@pytest.fixture
def runs(
    golden: Callable[[str], Path], eoctl: Cli, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> Callable[[str], Runs]:
    clean = golden("kafka-4.3.1") / "clean"
    return lambda name: Runs(CHANGES[name], clean, eoctl, monkeypatch, scratch / RUN_NAME)


def require_undo(made: Runs, root: Path) -> None:
    """As it was; or undo makes it so."""
    if made.journals(root):
        made.undo(UnsyncedFileSystem(), root)
    made.require_before(root)
    assert leftovers(root / "log-dir") == []


def require_reported(
    made: Runs, root: Path, errors: str, error_number: int, start: dict[str, Entry]
) -> None:
    """The message names the error, and the state that things are really in."""
    assert os.strerror(error_number) in errors
    assert "Traceback" not in errors
    states = (*AS_AT_START, *UNFINISHED, APPLIED, UNDONE)
    (state,) = [each for each in states if each in errors]
    if state in AS_AT_START:
        assert difference(start, tree_of(root / "log-dir")) == [], errors
    elif state == UNDONE:
        made.require_before(root)
    elif state == APPLIED:
        assert made.contents(root) == made.after
    else:
        assert "eoctl undo" in errors


@pytest.mark.share(3)
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("what", ["apply", "undo"])
def test_every_call_may_fail(
    name: str, what: str, runs: Callable[[str], Runs], scratch: Path
) -> None:
    """The original is intact or undoable; exit status 3, or 0 where the call did not matter."""
    made = runs(name)
    root = scratch / RUN_NAME

    def run(fs: FailingFileSystem) -> Any:
        if what == "apply":
            return made.try_call(fs, *made.apply_arguments(root))
        return made.try_call(fs, "undo", *made.journals(root))

    def prepare() -> None:
        made.prepare(root)
        if what == "undo":
            made.apply(UnsyncedFileSystem(), root)

    prepare()
    counting = FailingFileSystem(10**9, 0)
    assert run(counting).status == 0
    shutil.rmtree(root)
    statuses: Counter[int] = Counter()
    numbers = range(len(counting.calls))
    every = itertools.product(numbers, enumerate(ERRORS))
    for number, (place, error_number) in drawn(every, FAILURES_SHARE):
        prepare()
        start = tree_of(root / "log-dir")
        is_dead = bool((number + place) % 2)
        outcome = run(FailingFileSystem(number, error_number, for_ever=is_dead))
        statuses[outcome.status] += 1
        where = f"{counting.calls[number]} {number}: {outcome.errors}"
        assert outcome.status in (0, 3), where
        if outcome.status:
            require_reported(made, root, outcome.errors, error_number, start)
        elif what == "undo":
            made.require_before(root)
        else:
            made.require_after(root)
        require_undo(made, root)
        shutil.rmtree(root)
    print(f"{what} {name}: {len(counting.calls)} calls, exit status {dict(statuses)}")
    assert statuses[3] > (statuses[0] if IS_ALL else 0)


@pytest.fixture
def server() -> Iterator[KillServer]:
    started = KillServer()
    yield started
    started.close()


@pytest.mark.exhaustive
def test_killed_at_any_moment(
    runs: Callable[[str], Runs], scratch: Path, server: KillServer
) -> None:
    """Moments spread over all kinds of calls: undo leads back, or the same command on."""
    chooser = random.Random(os.environ["EOCTL_SEED"])
    root = scratch / RUN_NAME
    histogram: Counter[str] = Counter()
    per_kind: Counter[str] = Counter()
    cases = [(name, what) for name in CHANGES for what in ("apply", "undo")]
    for name, what in cases:
        made = runs(name)

        def arguments(made: Runs = made, what: str = what) -> tuple[object, ...]:
            if what == "apply":
                return made.apply_arguments(root)
            return ("undo", *made.journals(root))

        def prepare(made: Runs = made, what: str = what) -> None:
            made.prepare(root)
            if what == "undo":
                made.apply(UnsyncedFileSystem(), root)

        prepare()
        calls = server.run(*arguments(), operation=10**9)["calls"]
        shutil.rmtree(root)
        for _ in range(KILLS_COUNT // len(cases)):
            # First a kind of call, the rarest until now, then one of its calls.
            kind = min(set(calls), key=lambda each: (per_kind[each], chooser.random()))
            operation = chooser.choice([n for n, each in enumerate(calls) if each == kind])
            moment = chooser.choice(["before", "middle", "after"])
            prepare()
            found = server.run(*arguments(), operation=operation, moment=moment)
            assert found["killed"], f"{operation} {moment} {calls[operation]} {len(calls)} {found}"
            assert found["calls"][-1] == kind
            per_kind[kind] += 1
            histogram[f"{what} {kind}"] += 1
            made.require_safe(root)
            if chooser.random() < 0.5 and what == "apply":
                made.apply(UnsyncedFileSystem(), root)
                made.require_after(root)
            require_undo(made, root)
            shutil.rmtree(root)
    print(f"killed {sum(histogram.values())} times:")
    for what, count in sorted(histogram.items()):
        print(f"  {count:4} {what}")
    assert sum(histogram.values()) == KILLS_COUNT // len(cases) * len(cases)
    assert len(per_kind) >= 10
