"""Every state that a crash may leave of applying a plan and of undoing it, and the mutants."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import pytest

from recovery.changes.journals.journal import JOURNAL_NAME, Status, read_journal
from recovery.changes.journals.listing import UNFINISHED_NAME
from recovery.changes.plans.plan import parse_plan
from storage.file_names import CLEAN_SHUTDOWN_NAME
from storage.files.fsio import TEMP_SUFFIX
from tests.crash.faults import UnsyncedFileSystem
from tests.crash.scenario import (
    Scenario,
    check_scenario,
    drawn_syncs,
    refusing_nothing,
    surviving_mutants,
)
from tests.crash.small_plan import (
    AFTER,
    FILES,
    GONE,
    LOG,
    PLAN_ID,
    apply,
    plan_of,
    prepare,
    revert,
)
from tests.crash.states import RUN_NAME
from tests.crash.trees import difference, leftovers, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.files.fsio import OpenFile, StrPath
    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState
    from tests.crash.trees import Entry

DONE = "done"


class Made:
    """What the states are compared with; the plan is the same in every run."""

    def __init__(self, work_dir: Path) -> None:
        root = work_dir / RUN_NAME
        prepare(root)
        self.plan = plan_of(root)
        self.before = tree_of(root / "log-dir")
        self.after = {name: data for name, data in {**FILES, **AFTER}.items() if name not in GONE}
        shutil.rmtree(root)

    def require_before(self, root: Path) -> None:
        assert difference(self.before, tree_of(root / "log-dir")) == []

    def require_after(self, root: Path) -> None:
        found = tree_of(root / "log-dir")
        files = {name: each.data for name, each in found.items() if each.data is not None}
        assert files == self.after
        assert leftovers(root / "log-dir") == []

    def changed(self, found: dict[str, Entry]) -> set[str]:
        names = {name for name, each in found.items() if each != self.before.get(name)}
        return names | (self.before.keys() - found.keys())

    def require_safe(self, root: Path) -> None:
        """No marker beside a change: a broker would trust it. What is half done is flagged."""
        found = tree_of(root / "log-dir")
        changed = self.changed(found)
        assert not changed or CLEAN_SHUTDOWN_NAME in changed, changed
        contents = {name: each.data for name, each in found.items() if each.data is not None}
        if changed and contents != self.after:
            assert (root / "log-dir" / UNFINISHED_NAME).exists(), changed

    def require_a_log(self, root: Path) -> None:
        """While it is applied: first the checkpoint, then segment by segment from the last one."""
        found = self.changed(tree_of(root / "log-dir"))
        order = [
            "recovery-point-offset-checkpoint",
            "t-0/00000000000000000030.log",
            "t-0/00000000000000000020.log",
            LOG,
        ]
        done = [name in found for name in order]
        assert done == sorted(done, reverse=True), found


@pytest.fixture
def made(scratch: Path) -> Made:
    return Made(scratch)


def no_links(old: object, new: object) -> None:
    """As on a file system without hard links: whole files are copied then."""
    raise OSError(errno.EPERM, "Operation not permitted")


def applying(made: Made, backup_dir: str | None = None, *, has_links: bool = True) -> Scenario:
    def run(fs: RecordingFileSystem, root: Path) -> None:
        if not has_links:
            fs.link = no_links  # type: ignore[assignment]
        apply(fs, made.plan, backup_dir=None if backup_dir is None else str(root / backup_dir))
        fs.mark(DONE)

    def check(root: Path, state: CrashState) -> None:
        """Undo, or nothing to undo; and what is said to be done is done."""
        made.require_safe(root)
        made.require_a_log(root)
        journal = root / (backup_dir or "log-dir.eoctl") / PLAN_ID / JOURNAL_NAME
        if DONE in state.marks:
            made.require_after(root)
            assert read_journal(journal).status is Status.APPLIED
        if journal.exists():
            revert(UnsyncedFileSystem(), root, backup_dir or "log-dir.eoctl")
            assert leftovers(root / "log-dir") == []
            assert read_journal(journal).status is Status.UNDONE
        made.require_before(root)

    return Scenario(prepare, run, refusing_nothing(check))


def completing(made: Made, scenario: Scenario, *, is_short: bool = False) -> Scenario:
    """From every state the same plan, applied again, gives the same result."""

    def check(root: Path, state: CrashState) -> None:
        apply(UnsyncedFileSystem(), made.plan)
        made.require_after(root)
        if is_short:
            return
        apply(UnsyncedFileSystem(), made.plan)
        made.require_after(root)
        revert(UnsyncedFileSystem(), root)
        made.require_before(root)

    return scenario._replace(check=refusing_nothing(check))


def undoing(made: Made, *, is_finished: bool = True, has_links: bool = True) -> Scenario:
    """Take back what is applied; or what an interrupted run left in the middle."""

    def prepare_applied(root: Path) -> None:
        prepare(root)
        if is_finished:
            fs = UnsyncedFileSystem()
            if not has_links:
                fs.link = no_links  # type: ignore[assignment]
            apply(fs, made.plan)
            return

        class Dying(UnsyncedFileSystem):
            def open_new(self, path: StrPath, mode: int = 0o600) -> OpenFile:
                if str(path).endswith(f".snapshot{TEMP_SUFFIX}"):  # all but the last step is done
                    raise KeyboardInterrupt
                return super().open_new(path, mode)

        with pytest.raises(KeyboardInterrupt):
            apply(Dying(), made.plan)
        assert (root / "log-dir" / UNFINISHED_NAME).exists()

    def run(fs: RecordingFileSystem, root: Path) -> None:
        revert(fs, root)
        fs.mark(DONE)

    def check(root: Path, state: CrashState) -> None:
        made.require_safe(root)
        if (root / "log-dir" / CLEAN_SHUTDOWN_NAME).exists() or DONE in state.marks:
            made.require_before(root)  # the marker comes last
        if DONE in state.marks:
            assert leftovers(root / "log-dir") == []
            assert read_journal(root / "log-dir.eoctl" / PLAN_ID).status is Status.UNDONE
        for _ in range(2):
            revert(UnsyncedFileSystem(), root)
            made.require_before(root)
            assert leftovers(root / "log-dir") == []

    return Scenario(prepare_applied, run, refusing_nothing(check))


SCENARIOS: dict[str, Callable[[Made], Scenario]] = {
    "apply, then undo": applying,
    "apply, then apply": lambda made: completing(made, applying(made)),
    "apply with --backup-dir": lambda made: applying(made, "elsewhere"),
    "apply with copies, then undo": lambda made: applying(made, has_links=False),
    "apply with copies, then apply": lambda made: completing(made, applying(made, has_links=False)),
    "undo, then undo": undoing,
    "undo from copies": lambda made: undoing(made, has_links=False),
    "undo what is unfinished": lambda made: undoing(made, is_finished=False),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_state_leads_on_and_back(
    name: str, made: Made, scratch: Path, record_property: Callable[[str, object], None]
) -> None:
    report = check_scenario(SCENARIOS[name](made), scratch, share=60)
    record_property("crash_states", f"{name}: {report}")
    print(f"{name}: {report}")
    assert report.failures == []
    assert report.states_count > 20


def also(one: Scenario, made: Made) -> tuple[Scenario, Scenario]:
    """What either of two checks finds out about is found out."""
    return one, completing(made, one, is_short=True)


NEEDED: dict[str, Callable[[Made], tuple[Scenario, ...]]] = {
    "apply": lambda made: also(applying(made), made),
    "apply with copies": lambda made: also(applying(made, has_links=False), made),
    "undo": lambda made: (undoing(made),),
    "undo from copies": lambda made: (undoing(made, has_links=False),),
    "undo what is unfinished": lambda made: (undoing(made, is_finished=False),),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NEEDED)
def test_each_fsync_is_needed(name: str, made: Made, scratch: Path) -> None:
    survivors = drawn_syncs(NEEDED[name](made)[0], scratch, 6)
    for scenario in NEEDED[name](made):
        survivors = surviving_mutants(scenario, scratch, among=survivors)
    assert survivors == []


def test_the_plan_is_the_same_after_a_journey_through_json(made: Made) -> None:
    from recovery.changes.plans.plan import encode_plan

    assert parse_plan(encode_plan(made.plan), "plan.json") == made.plan
