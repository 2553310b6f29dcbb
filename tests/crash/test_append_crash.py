"""Every state that a crash may leave of a run that appends and of its undo, and the mutants."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest

from recovery.changes.append_journal import AppendJournal
from recovery.changes.apply import close_appends
from recovery.changes.journals.journal import JOURNAL_NAME, Status, read_journal
from recovery.changes.journals.listing import UNFINISHED_NAME
from recovery.changes.undo import undo
from storage.dirs.topic_settings import LogConfig
from storage.file_names import CLEAN_SHUTDOWN_NAME
from storage.writing.partition_store import FileStore, FlushPolicy
from tests.crash.faults import UnsyncedFileSystem
from tests.crash.scenario import (
    Scenario,
    check_scenario,
    record,
    refusing_nothing,
    surviving_mutants,
    syncs_of,
)
from tests.crash.trees import difference, leftovers, tree_of
from tests.drawn import drawn
from tests.writing import TOPIC_ID, batch, make_log_dir, open_writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.files.fsio import FileSystem, OpenFile
    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState
    from tests.crash.trees import Entry

DONE, UNDONE = "done", "undone"
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=0)
COMBINATIONS_MAX = 64
LOG_DIR = "log-dir"
JOURNAL_ID = "20261122T000000.000Z-test-0001"


def data(number: int) -> bytes:
    return batch(1, (7, 0, number), value=b"v" * 40)


def prepare(root: Path) -> None:
    log_dir = make_log_dir(root / LOG_DIR)
    writer = open_writer(log_dir / "t-0", CONFIG)
    for number in range(3):
        writer.append(data(number))
    writer.close()
    for name in (".lock", CLEAN_SHUTDOWN_NAME):
        (log_dir / name).touch()
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 3\n")


def append(fs: FileSystem, root: Path) -> AppendJournal:
    """More for a partition that is there, with a roll, and for one that is not."""
    log_dir = root / LOG_DIR
    journal = AppendJournal(fs, [str(log_dir)], "test")
    for name, numbers in (("t-0", range(3, 6)), ("t-1", range(2))):
        directory = log_dir / name
        topic_id = None if directory.exists() else TOPIC_ID
        store = FileStore(str(directory), fs, topic_id=topic_id, keeper=journal)
        writer = open_writer(directory, CONFIG, store=store, leader_epoch=1,
                             flush=FlushPolicy.SEGMENT)  # fmt: skip
        for number in numbers:
            writer.append(data(number))
        writer.close()
    journal.close()
    return journal


def with_times(fs: RecordingFileSystem) -> FileSystem:
    """An fsync makes the time of a file durable, too; the model knows those that are set only."""
    fsync = fs.fsync

    def timed(file: OpenFile) -> None:
        found = os.fstat(file.fd)
        fs.set_times(file, atime_ns=found.st_atime_ns, mtime_ns=found.st_mtime_ns)
        fsync(file)

    fs.fsync = timed  # type: ignore[method-assign]
    return fs


def journals(root: Path) -> list[Path]:
    return sorted(path.parent for path in (root / f"{LOG_DIR}.eoctl").glob(f"*/{JOURNAL_NAME}"))


def revert(fs: FileSystem, root: Path) -> None:
    for each in journals(root):
        undo(fs, str(each))


@pytest.fixture
def before(scratch: Path) -> dict[str, Entry]:
    prepare(scratch / "run")
    found = tree_of(scratch / "run" / LOG_DIR)
    shutil.rmtree(scratch / "run")
    return found


def same(before: dict[str, Entry], root: Path) -> list[str]:
    """What is not as it was; when the files of a directory were made is another moment."""
    now = tree_of(root / LOG_DIR)
    untimed = [
        {name: each._replace(mtime_ns=None) for name, each in found.items()}
        for found in (before, now)
    ]
    return difference(*untimed)


def require_flagged(before: dict[str, Entry], root: Path, state: CrashState) -> None:
    """No marker beside a change, and what is not done is flagged, with a journal."""
    log_dir = root / LOG_DIR
    changed = [each for each in same(before, root) if not each.startswith(".:")]
    assert not changed or not (log_dir / CLEAN_SHUTDOWN_NAME).exists()
    if changed:
        (journal,) = journals(root)
        found = read_journal(journal)
        is_marked = (log_dir / UNFINISHED_NAME).exists()
        assert is_marked or found.status is Status.APPLIED
    if DONE in state.marks and UNDONE not in state.marks:
        assert changed or "undo" in str(state)


def contents(root: Path) -> dict[str, bytes | None]:
    return {name: each.data for name, each in tree_of(root / LOG_DIR).items()}


def appending(before: dict[str, Entry], way: str) -> Scenario:
    after: dict[str, bytes | None] = {}

    def run(fs: RecordingFileSystem, root: Path) -> None:
        append(with_times(fs), root)
        after.update(contents(root))
        fs.mark(DONE)

    def check(root: Path, state: CrashState) -> None:
        require_flagged(before, root, state)
        if DONE in state.marks:
            (journal,) = journals(root)
            assert read_journal(journal).status is Status.APPLIED
            assert contents(root) == after
            assert leftovers(root / LOG_DIR) == []
        fs = UnsyncedFileSystem()
        if way == "close":
            close_appends(fs, [str(root / LOG_DIR)])
            assert not (root / LOG_DIR / UNFINISHED_NAME).exists()
        revert(fs, root)
        assert same(before, root) == []
        assert leftovers(root / LOG_DIR) == []

    return Scenario(prepare, run, refusing_nothing(check))


def undoing(before: dict[str, Entry]) -> Scenario:
    def prepare_appended(root: Path) -> None:
        prepare(root)
        append(UnsyncedFileSystem(), root)

    def run(fs: RecordingFileSystem, root: Path) -> None:
        revert(fs, root)
        fs.mark(UNDONE)

    def check(root: Path, state: CrashState) -> None:
        require_flagged(before, root, state)
        if UNDONE in state.marks:
            assert same(before, root) == []
            assert leftovers(root / LOG_DIR) == []
            assert [read_journal(each).status for each in journals(root)] == [Status.UNDONE]
        # What is left is always a log: the last segment goes first.
        logs = sorted((root / LOG_DIR / "t-0").glob("*.log"))
        is_cut = logs[0].stat().st_size == len(before[f"t-0/{logs[0].name}"].data or b"")
        assert not is_cut or len(logs) == 1
        revert(UnsyncedFileSystem(), root)
        assert same(before, root) == []
        assert leftovers(root / LOG_DIR) == []

    return Scenario(prepare_appended, run, refusing_nothing(check))


SCENARIOS: dict[str, Callable[[dict[str, Entry]], Scenario]] = {
    "append, then undo": partial(appending, way="undo"),
    "append, closed later, then undo": partial(appending, way="close"),
    "undo": undoing,
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_state_can_be_taken_back(name: str, before: dict[str, Entry], scratch: Path) -> None:
    report = check_scenario(
        SCENARIOS[name](before), scratch, combinations_max=COMBINATIONS_MAX, share=60
    )
    print(f"{name}: {report}")
    assert report.failures == []
    assert report.states_count > 50


@pytest.mark.share(1)
@pytest.mark.parametrize("name", ["append, then undo", "undo"])
def test_each_fsync_is_needed(
    name: str, before: dict[str, Entry], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an append's own files are what `test_writer_crash` is about."""
    monkeypatch.setattr("recovery.changes.append_journal.new_id", lambda _: JOURNAL_ID)
    scenario = SCENARIOS[name](before)
    texts = [f"{n}: {text}" for n, text in enumerate(syncs_of(record(scenario, scratch)))]
    if name != "undo":
        texts = [each for each in texts if JOURNAL_ID in each or UNFINISHED_NAME in each]
    assert len(texts) >= 5
    chosen = drawn(texts, 4)
    assert surviving_mutants(scenario, scratch, combinations_max=8, among=chosen) == []
