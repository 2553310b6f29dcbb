"""Whole commands: what a crash at any point leaves, and that the same command, or undo, mends it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from recovery.changes.journals.journal import Status, read_journal
from storage.file_names import CLEAN_SHUTDOWN_NAME
from tests.crash.commands import CHANGES, Runs
from tests.crash.faults import UnsyncedFileSystem
from tests.crash.scenario import Scenario, check_scenario, drawn_syncs, surviving_mutants
from tests.crash.states import RUN_NAME
from tests.crash.trees import leftovers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.commands import Cli
    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState

DONE = "done"
MUTANT_COMBINATIONS_MAX = 24
STATES_SHARE = 30
SYNCS_SHARE = 3


class Crashes(Runs):
    """What is checked of all that a crash may leave of them."""

    def undone(self) -> Scenario:
        """Applied; from every state undo leads back."""

        def run(fs: RecordingFileSystem, root: Path) -> None:
            self.apply(fs, root)
            fs.mark(DONE)

        def check(root: Path, state: CrashState) -> None:
            self.require_safe(root)
            self.require_a_log(root)
            if DONE in state.marks:
                self.require_after(root)
                assert {read_journal(each).status for each in self.journals(root)} == {
                    Status.APPLIED
                }
            if self.journals(root):
                self.undo(UnsyncedFileSystem(), root)
            self.require_before(root)
            assert leftovers(root / "log-dir") == []

        return Scenario(self.prepare, run, check)

    def completed(self) -> Scenario:
        """Applied; from every state the same command leads on."""

        def check(root: Path, state: CrashState) -> None:
            if DONE not in state.marks:
                self.apply(UnsyncedFileSystem(), root)
            self.require_after(root)

        return self.undone()._replace(check=check)

    def undo_crashed(self) -> Scenario:
        """Undone; from every state undo leads back."""

        def prepare(root: Path) -> None:
            self.prepare(root)
            self.apply(UnsyncedFileSystem(), root)

        def run(fs: RecordingFileSystem, root: Path) -> None:
            self.undo(fs, root)
            fs.mark(DONE)

        def check(root: Path, state: CrashState) -> None:
            self.require_safe(root)
            if DONE in state.marks or (root / "log-dir" / CLEAN_SHUTDOWN_NAME).exists():
                self.require_before(root)
            if DONE in state.marks:
                (journal,) = self.journals(root)
                assert read_journal(journal).status is Status.UNDONE
                assert leftovers(root / "log-dir") == []
            self.undo(UnsyncedFileSystem(), root)
            self.require_before(root)
            assert leftovers(root / "log-dir") == []

        return Scenario(prepare, run, check)


@pytest.fixture
def runs(
    golden: Callable[[str], Path], eoctl: Cli, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> Callable[[str], Crashes]:
    clean = golden("kafka-4.3.1") / "clean"
    return lambda name: Crashes(CHANGES[name], clean, eoctl, monkeypatch, scratch / RUN_NAME)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", CHANGES)
def test_every_state_leads_back_and_on(
    name: str,
    runs: Callable[[str], Crashes],
    scratch: Path,
    record_property: Callable[[str, object], None],
) -> None:
    made = runs(name)
    scenarios = {
        "undone": made.undone(),
        "completed": made.completed(),
        "undo crashed": made.undo_crashed(),
    }
    reports = {
        what: check_scenario(each, scratch, share=STATES_SHARE) for what, each in scenarios.items()
    }
    for what, report in reports.items():  # at the end: what the commands print is taken away
        record_property("crash_states", f"{name}, {what}: {report}")
        print(f"{name}, {what}: {report}")
    for report in reports.values():
        assert report.failures == []
        assert report.states_count > 20


@pytest.mark.share(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_each_fsync_is_needed(name: str, runs: Callable[[str], Crashes], scratch: Path) -> None:
    made = runs(name)
    survivors = partial(
        surviving_mutants, work_dir=scratch, combinations_max=MUTANT_COMBINATIONS_MAX
    )
    chosen = drawn_syncs(made.undone(), scratch, SYNCS_SHARE)
    assert survivors(made.completed(), among=survivors(made.undone(), among=chosen)) == []
    undone = made.undo_crashed()
    assert survivors(undone, among=drawn_syncs(undone, scratch, SYNCS_SHARE)) == []
