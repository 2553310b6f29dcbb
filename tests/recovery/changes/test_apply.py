"""Applying and undoing beyond crashes: what others did meanwhile, and what is left alone."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from recovery.changes.apply import finish
from recovery.changes.journals import backups
from recovery.changes.journals.journal import JOURNAL_NAME, Status, read_journal
from recovery.changes.journals.listing import UNFINISHED_NAME
from recovery.changes.plans.plan import encode_plan, make_plan, parse_plan, replace_step
from recovery.changes.undo import check_undo
from storage.errors import RefusedError
from storage.file_names import CLEAN_SHUTDOWN_NAME
from storage.files.fsio import FileSystem
from tests.crash.faults import FailingFileSystem
from tests.crash.small_plan import LOG, PLAN_ID, apply, plan_of, prepare, revert
from tests.crash.trees import difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recovery.changes.plans.plan import Plan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    prepare(tmp_path)
    return tmp_path


@pytest.fixture
def plan(root: Path) -> Plan:
    return plan_of(root)


def journal_dir(root: Path) -> Path:
    return root / "log-dir.eoctl" / PLAN_ID


def interrupt(plan: Plan) -> None:
    """Stop in the middle, after some of the steps."""

    class Dying(FileSystem):
        def truncate(self, file: object, size_bytes: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        apply(Dying(), plan)
    assert any("eoctl undo" in each for each in caught.value.__notes__)


def test_it_goes_through_json(root: Path, plan: Plan) -> None:
    before = tree_of(root / "log-dir", directory_times=True)
    apply(FileSystem(), parse_plan(encode_plan(plan), "p"))
    assert difference(before, tree_of(root / "log-dir"))
    revert(FileSystem(), root)
    assert difference(before, tree_of(root / "log-dir", directory_times=True)) == []


def test_applied_twice_it_is_left_alone(root: Path, plan: Plan) -> None:
    apply(FileSystem(), plan)
    once = tree_of(root, directory_times=True)
    counting = FailingFileSystem(10**9, 0)
    apply(counting, plan)
    assert set(counting.calls) <= {"open_existing", "close", "unlink", "fsync_dir"}
    assert difference(once, tree_of(root, directory_times=True)) == []


def test_applied_undone_and_applied_again(root: Path, plan: Plan) -> None:
    before = tree_of(root / "log-dir")
    for _ in range(3):
        apply(FileSystem(), plan)
        assert read_journal(journal_dir(root)).status is Status.APPLIED
        revert(FileSystem(), root)
        assert difference(before, tree_of(root / "log-dir")) == []


CHANGES: list[Callable[[Path], object]] = [
    lambda log_dir: (log_dir / CLEAN_SHUTDOWN_NAME).write_bytes(b"{}"),
    lambda log_dir: (log_dir / "t-0/00000000000000000040.snapshot").write_bytes(b"x"),
    lambda log_dir: os.utime(log_dir / "meta.properties", ns=(1, 1)),
    lambda log_dir: (log_dir / "t-0/leader-epoch-checkpoint").write_bytes(b"0\n1\n1 0\n"),
    lambda log_dir: os.truncate(log_dir / LOG, 99),
    lambda log_dir: (log_dir / "t-0/leader-epoch-checkpoint").unlink(),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_what_a_broker_did_since_is_kept(
    root: Path, plan: Plan, change: Callable[[Path], object], is_interrupted: bool
) -> None:
    """Undo refuses, and so does going on; nothing is touched."""
    if is_interrupted:
        interrupt(plan)
    else:
        apply(FileSystem(), plan)
    change(root / "log-dir")
    found = tree_of(root, directory_times=True)
    with pytest.raises(RefusedError, match=r"changed|was not there"):
        revert(FileSystem(), root)
    if is_interrupted:
        with pytest.raises(RefusedError, match=r"changed|was not there") as caught:
            finish(FileSystem(), str(journal_dir(root)))
        assert UNFINISHED_NAME in caught.value.next_step
    assert difference(found, tree_of(root, directory_times=True)) == []


def test_what_is_not_kafkas_does_not_matter(root: Path, plan: Plan) -> None:
    before = tree_of(root / "log-dir")
    apply(FileSystem(), plan)
    (root / "log-dir" / "out.log.txt").write_text("x")
    (root / "log-dir" / "t-0" / "notes").write_text("x")
    (root / "log-dir" / "x.eoctl-tmp").mkdir()
    revert(FileSystem(), root)
    found = tree_of(root / "log-dir")
    assert {name: found[name] for name in before} == before


def test_a_journal_of_the_same_id_is_not_another_plan_s(root: Path, plan: Plan) -> None:
    """A plan that was copied for another log dir must not clear, nor finish, the first one's."""
    interrupt(plan)
    other = root / "other"
    prepare(other)
    copied = plan_of(other)
    found = tree_of(root, directory_times=True)
    with pytest.raises(RefusedError, match="another plan with that id"):
        apply(FileSystem(), copied, backup_dir=str(root / "log-dir.eoctl"))
    (other / "log-dir" / UNFINISHED_NAME).write_text(f"{journal_dir(root)}\n")
    with pytest.raises(RefusedError, match="has not been finished"):
        apply(FileSystem(), copied)
    (other / "log-dir" / UNFINISHED_NAME).unlink()
    changed = difference(found, tree_of(root, directory_times=True))
    assert [each for each in changed if not each.startswith("other/log-dir: ")] == []


def test_the_old_file_put_back_by_hand_is_a_change(root: Path, plan: Plan) -> None:
    apply(FileSystem(), plan)
    journal = journal_dir(root)
    os.link(
        journal / "00003-00000000000000000020.log", root / "log-dir/t-0/00000000000000000020.log"
    )
    with pytest.raises(RefusedError, match="changed"):
        check_undo(read_journal(journal))


@pytest.mark.parametrize(
    "name", ["00004-00000000000000000000.log", "00003-00000000000000000020.log"]
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_damaged_backup_is_not_put_back(root: Path, plan: Plan, name: str, is_gone: bool) -> None:
    apply(FileSystem(), plan)
    backup = journal_dir(root) / name
    if is_gone:
        backup.unlink()
    else:
        backup.write_bytes(b"?" * backup.stat().st_size)
    found = tree_of(root / "log-dir")
    with pytest.raises(RefusedError, match="is not what was kept"):
        revert(FileSystem(), root)
    assert difference(found, tree_of(root / "log-dir")) == []


def test_a_plan_that_was_exchanged_is_not_finished(root: Path, plan: Plan) -> None:
    interrupt(plan)
    other = [
        each if each.content is None else each._replace(content=b"?" * len(each.content))
        for each in plan.steps
    ]
    (journal_dir(root) / "plan.json").write_bytes(encode_plan(plan._replace(steps=tuple(other))))
    with pytest.raises(RefusedError, match="is not the plan"):
        finish(FileSystem(), str(journal_dir(root)))
    revert(FileSystem(), root)


def test_the_user_s_own_directory_keeps_its_mode(root: Path, plan: Plan) -> None:
    place = root / "own"
    place.mkdir()
    place.chmod(0o1757)
    apply(FileSystem(), plan, backup_dir=str(place))
    assert stat.S_IMODE(place.stat().st_mode) == 0o1757
    assert (place / PLAN_ID / JOURNAL_NAME).exists()
    revert(FileSystem(), root, "own")


def test_without_a_backup_there_is_no_way_back_but_forward(root: Path, plan: Plan) -> None:
    class Dying(FileSystem):
        def truncate(self, file: object, size_bytes: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(Dying(), plan, has_backup=False)
    with pytest.raises(RefusedError, match="without a backup"):
        revert(FileSystem(), root)
    assert not finish(FileSystem(), str(journal_dir(root))).was_done
    assert finish(FileSystem(), str(journal_dir(root))).was_done


def test_backups_are_links_and_cuts(root: Path) -> None:
    """Zeros behind the last batch are in no backup, and come back all the same."""
    log = root / "log-dir" / LOG
    with log.open("r+b") as file:
        file.truncate(1 << 30)
    plan = plan_of(root)
    before = log.stat()
    apply(FileSystem(), plan)
    kept = {path.name: path.stat() for path in journal_dir(root).iterdir()}
    assert kept["00003-00000000000000000020.log"].st_size == len(b"a later segment")
    assert sum(each.st_blocks * 512 for each in kept.values()) < 100_000
    revert(FileSystem(), root)
    found = log.stat()
    assert (found.st_size, found.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert found.st_blocks <= before.st_blocks + 16


def test_room_is_asked_for_where_it_is_needed(
    root: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = backups.choose_place(plan.log_dirs, None)
    asked = []
    monkeypatch.setattr(backups, "free_bytes", lambda path: asked.append(path) or (1 << 40))
    backups.require_room(plan, place, has_backup=True)
    assert len(set(asked)) == 1
    monkeypatch.setattr(backups, "free_bytes", lambda path: 1000)
    with pytest.raises(RefusedError, match="1000 are free"):
        backups.require_room(plan, place, has_backup=True)


def test_links_in_the_way_are_refused(root: Path) -> None:
    checkpoint = root / "log-dir" / "recovery-point-offset-checkpoint"
    checkpoint.rename(root / "elsewhere")
    checkpoint.symlink_to(root / "elsewhere")
    with pytest.raises(RefusedError, match="no regular file"):
        make_plan("x", {}, [replace_step(str(checkpoint), b"", "")], {})
