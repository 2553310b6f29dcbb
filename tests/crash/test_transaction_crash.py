"""Every crash state of one transaction over two partitions, and of its completion by another.

Whatever `eoctl produce --transactional-id` leaves, the next session of the id finds it wholly
committed or wholly aborted, and committed if that was answered. Whatever `eoctl txn complete`
leaves, the same call completes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from eoctl.clients.coordinators.log_dir_coordinator import Transactional
from recovery.changes.append_journal import AppendJournal
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.files.fsio import FileSystem
from tests.crash.scenario import Scenario, check_scenario, refusing_nothing
from tests.read_log import read_log
from tests.transactional import open_partitions, session
from tests.writing import NEW_TOPIC, make_log_dir, open_writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState
    from tests.running import Outcome

LOG_DIR = "log-dir"
COMBINATIONS_MAX = 64
STATES_COUNT = 2
LINES = {0: b"a", 1: b"b"}  # by partition; the keys take them there
KEYS = {0: b"k3", 1: b"k0"}


def prepare(root: Path) -> None:
    """The partitions are there and closed."""
    log_dir = make_log_dir(root / LOG_DIR)
    (log_dir / ".lock").touch()
    journal = AppendJournal(FileSystem(), [str(log_dir)], "test")
    partitions = open_partitions(log_dir, journal)
    partitions.create_topic(TRANSACTION_STATE_TOPIC, STATES_COUNT)
    assert partitions.close() is None
    journal.close()
    for number in LINES:
        directory = log_dir / f"t-{number}"
        writer = open_writer(directory)
        writer.store.begin()
        writer.close()
    lines = [KEYS[number] + b"\t" + LINES[number] for number in LINES]
    (root.parent / "input").write_bytes(b"\n".join(lines))


def run(
    fs: RecordingFileSystem,
    root: Path,
    *,
    is_commit: bool,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = Transactional.end

    def marked(self: Transactional, *, is_commit: bool) -> None:
        end(self, is_commit=is_commit)
        fs.mark("ended")

    monkeypatch.setattr("storage.files.fsio.FileSystem", lambda: fs)
    monkeypatch.setattr(Transactional, "end", marked)
    aborts = () if is_commit else ("--abort-every", 1)
    outcome = eoctl(
        *(
            "produce",
            root / LOG_DIR,
            root.parent / "input",
            "--to-topic",
            "t",
            "--key-separator",
            "\t",
        ),
        *("--transactional-id", "a", "--txn-records", len(LINES), *aborts),
        *("--fsync", "batch", "--apply", *NEW_TOPIC),
    )
    monkeypatch.undo()
    assert outcome.status == 0, outcome.errors
    assert [each.text for each in fs.operations].count("ended") == 1


def values(root: Path, number: int) -> list[bytes | None]:
    """What a read_committed consumer gets; nothing is undecided."""
    found = read_log(root / LOG_DIR / f"t-{number}")
    assert found.undecided == []
    return [each.value for each in found.committed]


def check(root: Path, state: CrashState, *, is_commit: bool) -> None:
    with session(root / LOG_DIR, "a") as begun:
        epoch = begun.transactional.producer.producer_epoch
        begun.send("t", 0, b"next")
        begun.send("t", 1, b"next")
        begun.transactional.end(is_commit=True)
    found = [values(root, number) for number in LINES]
    nothing = [[b"next"], [b"next"]]
    everything = [[each, b"next"] for each in LINES.values()]
    assert found in ([nothing, everything] if is_commit else [nothing])
    if "ended" in state.marks:
        assert found == (everything if is_commit else nothing)
        assert epoch >= 2  # one was raised by the end, one by the next session


@pytest.mark.share(1)
@pytest.mark.parametrize("is_commit", [True, False])
def test_every_crash_state(
    scratch: Path,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    is_commit: bool,
) -> None:
    scenario = Scenario(
        prepare,
        partial(run, is_commit=is_commit, eoctl=eoctl, monkeypatch=monkeypatch),
        refusing_nothing(partial(check, is_commit=is_commit)),
    )
    report = check_scenario(scenario, scratch, combinations_max=COMBINATIONS_MAX, share=50)
    print(report)
    assert report.failures == []
    assert report.states_count > 80


# --- completed by another -------------------------------------------------------------------------

COMPLETE = ("--single-copy", "--apply")


def leave_undecided(root: Path) -> None:
    """A process died before it had decided, longer ago than the timeout."""
    prepare(root)
    with session(root / LOG_DIR, "a", timeout_ms=1) as begun:
        for number, line in LINES.items():
            begun.send("t", number, line)


def leave_decided(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process died behind its decision."""
    prepare(root)
    with session(root / LOG_DIR, "a") as begun:
        for number, line in LINES.items():
            begun.send("t", number, line)
        begun.prepare(monkeypatch, is_commit=True)


@pytest.mark.share(1)
@pytest.mark.parametrize("is_decided", [True, False])
def test_every_crash_state_of_a_completion(
    scratch: Path,
    eoctl: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    is_decided: bool,
) -> None:
    wanted = [[each] if is_decided else [] for each in LINES.values()]

    def complete(fs: RecordingFileSystem, root: Path) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("storage.files.fsio.FileSystem", lambda: fs)
            outcome = eoctl("txn", "complete", root / LOG_DIR, *COMPLETE)
        assert outcome.status == 0, outcome.errors
        assert [values(root, number) for number in LINES] == wanted

    def check_again(root: Path, _: CrashState) -> None:
        outcome = eoctl("txn", "complete", root / LOG_DIR, *COMPLETE)
        assert outcome.status == 0, outcome.errors
        assert [values(root, number) for number in LINES] == wanted

    left = partial(leave_decided, monkeypatch=monkeypatch) if is_decided else leave_undecided
    scenario = Scenario(left, complete, refusing_nothing(check_again))
    report = check_scenario(scenario, scratch, combinations_max=COMBINATIONS_MAX, share=50)
    print(report)
    assert report.failures == []
    assert report.states_count > 50
