"""Every state that a crash may leave of the log of producer ids: no answer is lost, none is given twice."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from storage.formats.producer_id_record import FIRST_ID
from storage.writing import producer_ids
from storage.writing.producer_ids import DIRECTORY_NAME, ProducerIds
from tests.crash.faults import CALLS
from tests.crash.recording import RecordingFileSystem
from tests.crash.scenario import (
    Scenario,
    check_scenario,
    drawn_syncs,
    record,
    refusing_nothing,
    surviving_mutants,
    syncs_of,
)
from tests.crash.states import check_states
from tests.writing import NOW_MS, TOPIC_ID, NoSyncFileSystem, make_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.files.fsio import FileSystem
    from tests.crash.states import CrashState

MARKER = ".kafka_cleanshutdown"
LONG_MS = 10**9
NEVER = 1 << 30


def open_ids(fs: FileSystem | None, root: Path) -> ProducerIds:
    return ProducerIds.at(root, fs, now_ms=lambda: NOW_MS, topic_id=TOPIC_ID, block_size=2)


def prepare(root: Path, earlier: int) -> None:
    make_log_dir(root)
    ids = open_ids(NoSyncFileSystem(), root)
    for number in range(earlier):
        ids.acquire(f"early-{number % 3}", LONG_MS)
    ids.close()
    (root / MARKER).write_text('{"version":0,"brokerEpoch":9}')


def begin(fs: RecordingFileSystem, root: Path) -> None:
    """Each kind of change; what is answered is marked."""
    ids = open_ids(fs, root)
    fs.mark(f"id {ids.next_id()}")
    for app in ("a", "b", "a"):
        lease = ids.acquire(app, LONG_MS)
        fs.mark(f"lease {app} {lease.producer_id} {lease.generation}")
    ids.release("b", 0)
    fs.mark("released b")
    ids.free({lease.producer_id for lease in ids.leases()})
    fs.mark("freed b")


def one(fs: RecordingFileSystem, root: Path) -> None:
    lease = open_ids(fs, root).acquire("a", LONG_MS)
    fs.mark(f"lease a {lease.producer_id} {lease.generation}")


def rewrite(fs: RecordingFileSystem, root: Path) -> None:
    """One change, before which the log is written anew."""
    producer_ids.COMPACT_BYTES = 1
    lease = open_ids(fs, root).acquire("a", LONG_MS)
    fs.mark(f"lease a {lease.producer_id} {lease.generation}")
    producer_ids.COMPACT_BYTES = NEVER


def check(root: Path, state: CrashState, earlier: int) -> None:
    directory = root / DIRECTORY_NAME
    if (root / MARKER).exists():
        assert not state.marks
    ids = open_ids(NoSyncFileSystem(), root)
    ids.refresh()
    answered = [each.split() for each in state.marks]
    given = {int(each[1]) for each in answered if each[0] == "id"}
    leases = {each[1]: (int(each[2]), int(each[3])) for each in answered if each[0] == "lease"}
    if "freed b" in state.marks:
        producer_id, generation = leases.pop("b")
        assert (producer_id, generation) in ids.free_ids()
    elif "released b" in state.marks and ids.lease("b") is not None:
        assert ids.lease("b").is_released  # type: ignore[union-attr]
    for app, answer in leases.items():
        lease = ids.lease(app)
        if lease is None:
            assert app == "b"  # freed, and not answered yet
            assert answer in ids.free_ids()
        else:
            assert (lease.producer_id, lease.generation) >= answer
            assert lease.producer_id == answer[0]
    for number in range(min(earlier, 3)):
        generation = (earlier - 1 - number) // 3
        lease = ids.lease(f"early-{number}")
        assert lease is not None
        assert (lease.producer_id, lease.generation) == (FIRST_ID + number, generation)
    # It goes on: nothing is given out again.
    known = {(each.producer_id, each.generation) for each in ids.leases()} | {*ids.free_ids()}
    for app in ("a", "b", "new"):
        again = ids.acquire(app, LONG_MS)
        assert (again.producer_id, again.generation) not in known | {*leases.values()}
        assert again.producer_id not in given
    assert ids.next_id() not in given | {each for each, _ in known}
    ids.close()
    found = open_ids(None, root)
    found.refresh()
    assert found.leases() == ids.leases()
    assert any(directory.glob("*.log"))


def scenario(run: Callable[[RecordingFileSystem, Path], None], earlier: int) -> Scenario:
    return Scenario(
        partial(prepare, earlier=earlier), run, refusing_nothing(partial(check, earlier=earlier))
    )


SCENARIOS = {
    "new log": scenario(begin, 0),
    "old log": scenario(begin, 2),
    "rewritten log": scenario(rewrite, 9),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_state(scratch: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "COMPACT_BYTES", NEVER)
    monkeypatch.setattr(producer_ids, "COMPACT_RATIO", 1)
    report = check_scenario(SCENARIOS[name], scratch, combinations_max=64, share=60)
    print(f"{name}: {report}")
    assert report.failures == []
    assert report.states_count > 20


class KilledError(BaseException):
    """The first process ends here."""


class KilledFileSystem(RecordingFileSystem):
    """Ends the process before a call, counted from 0; the next process makes all of its calls."""

    def __init__(self, root: Path, left: int) -> None:
        super().__init__(root)
        self.left = left
        self.was_killed = False

    def meet(self) -> None:
        self.left -= 1
        if self.left == -1:
            self.was_killed = True
            raise KilledError


def _killed(name: str) -> Any:
    def call(self: KilledFileSystem, *args: Any, **options: Any) -> Any:
        if name not in {"close", "unlink"}:  # what it does on its way out
            self.meet()
        return getattr(RecordingFileSystem, name)(self, *args, **options)

    return call


for _name in CALLS:
    setattr(KilledFileSystem, _name, _killed(_name))


def killed_and_gone_on(fs: KilledFileSystem, root: Path) -> None:
    """What the second process answers holds, though the first one did not sync what it builds on."""
    with suppress(KilledError):
        open_ids(fs, root).acquire("a", LONG_MS)
    fs.left = -1
    one(fs, root)
    one(fs, root)


@pytest.mark.share(1)
@pytest.mark.parametrize("earlier", [0, 2])
def test_every_crash_state_after_a_kill(scratch: Path, earlier: int) -> None:
    after_kill = scenario(cast("Any", killed_and_gone_on), earlier)
    left = states_count = 0
    was_killed = True
    while was_killed:
        recording = record(
            after_kill, scratch, lambda root, left=left: KilledFileSystem(root, left)
        )
        report = check_states(recording, after_kill.check, scratch, combinations_max=64, share=12)
        assert report.failures == [], left
        states_count += report.states_count
        was_killed = recording.was_killed
        left += 1
    print(f"{left} kills, {states_count} crash states")
    assert left > 8


LOG = "__eoctl_producer_ids-0/00000000000000000000.log"
# What only a process needs that goes on after one that was killed (the first three); what a later
# sync of the same directory or file covers before anything is answered; and, below the floor of a
# rewritten log, names that may come back.
NOT_MISSED = {
    "old log": [f"0: fsync {LOG}", "1: fsync __eoctl_producer_ids-0/", "2: fsync ./"],
    "rewritten log": [
        f"0: fsync {LOG}",
        "1: fsync __eoctl_producer_ids-0/",
        "2: fsync ./",
        "3: fsync ./",
        "4: fsync __eoctl_producer_ids-0/00000000000000000012.log",
        "8: fsync __eoctl_producer_ids-0/",
        "10: fsync __eoctl_producer_ids-0/",
        "11: fsync ./",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_MISSED)
def test_each_fsync_is_needed(scratch: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "COMPACT_BYTES", NEVER)
    monkeypatch.setattr(producer_ids, "COMPACT_RATIO", 1)
    syncs = syncs_of(record(SCENARIOS[name], scratch))
    chosen = drawn_syncs(SCENARIOS[name], scratch, 5)
    survivors = surviving_mutants(SCENARIOS[name], scratch, combinations_max=8, among=chosen)
    assert len(syncs) > 4
    assert survivors == [each for each in NOT_MISSED[name] if each in chosen]
