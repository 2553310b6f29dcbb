"""Producer ids: blocks, leases and their generations, what is refused to whom, several processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from storage.dirs.topic_settings import LogConfig
from storage.errors import RefusedError
from storage.files.broker_lock import LockHeldError, take
from storage.formats.producer_id_record import END_ID, FIRST_ID, MAX_GENERATION, FreeId, Lease
from storage.producers.producer_state import AppendError
from storage.writing import producer_ids
from storage.writing.producer_ids import DIRECTORY_NAME, LeaseError, ProducerIds
from tests.writing import (
    NOW_MS,
    TOPIC_ID,
    NoSyncFileSystem,
    batch,
    content,
    headers_of,
    make_log_dir,
)

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.fsio import FileSystem

HOUR_MS = 3_600_000


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


class Context:
    """A log dir, and anybody's view of its ids."""

    def __init__(self, root: Path) -> None:
        self.log_dir = make_log_dir(root / "log-dir")
        self.directory = self.log_dir / DIRECTORY_NAME
        self.clock = Clock()

    def open(self, fs: FileSystem | None = None, **more: Any) -> ProducerIds:
        fs = fs or NoSyncFileSystem()
        options = {"now_ms": self.clock, "topic_id": TOPIC_ID, **more}
        return ProducerIds.at(self.log_dir, fs, **options)

    def inspect(self) -> ProducerIds:
        found = ProducerIds.at(self.log_dir, None, now_ms=self.clock)
        found.refresh()
        return found


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path)


# --- the sequence ---------------------------------------------------------------------------------


def test_blocks_of_several_owners_never_meet(context: Context) -> None:
    one, other = context.open(block_size=3), context.open(block_size=100)
    given = [each.next_id() for each in (one, other, one, other, one, one, other)]
    first = FIRST_ID
    assert given == [first, first + 3, first + 1, first + 4, first + 2, first + 103, first + 5]
    assert context.inspect().ids.next_block_id == first + 106


def test_a_block_is_on_disk_before_an_id_of_it_is_given(context: Context) -> None:
    ids = context.open()
    assert ids.next_id() == FIRST_ID
    ids.close()
    assert context.open().next_id() == FIRST_ID + 1000


def test_leases_use_up_a_block_that_all_share(context: Context) -> None:
    given = [context.open(block_size=2).acquire(f"app-{n}", 1).producer_id for n in range(3)]
    assert given == [FIRST_ID, FIRST_ID + 1, FIRST_ID + 2]
    assert context.open().next_id() == FIRST_ID + 4


def test_a_block_begins_above_what_is_in_use(context: Context) -> None:
    """As after the log was lost; ids that are none of ours do not count."""
    in_use = (5, FIRST_ID - 1, FIRST_ID + 4711, FIRST_ID + 3, END_ID, END_ID + 7)
    assert context.open(ids_in_use=lambda: in_use).next_id() == FIRST_ID + 4712
    assert context.open(ids_in_use=lambda: in_use).acquire("a", 1).producer_id == FIRST_ID + 5712


def test_the_sequence_ends(context: Context) -> None:
    assert context.open(block_size=2, ids_in_use=lambda: (END_ID - 4,)).next_id() == END_ID - 3
    with pytest.raises(RefusedError, match="all producer ids below"):
        context.open(block_size=2).next_id()
    assert context.open(block_size=1).next_id() == END_ID - 1
    with pytest.raises(RefusedError, match="all producer ids below"):
        context.open(block_size=1).next_id()


# --- leases ---------------------------------------------------------------------------------------


def test_the_same_app_gets_its_id_with_a_higher_generation(context: Context) -> None:
    first = context.open().acquire("a", HOUR_MS, partitions=[("t", 0), ("u", 3)])
    assert first == Lease("a", FIRST_ID, 0, HOUR_MS, NOW_MS + HOUR_MS, False, (("t", 0), ("u", 3)))
    assert context.open().acquire("b", 1).producer_id == FIRST_ID + 1
    second = context.open().acquire("a", 5)
    assert (second.producer_id, second.generation, second.partitions) == (FIRST_ID, 1, ())
    for refused in (context.open().renew, lambda *a: context.open().release(*a[:2])):
        with pytest.raises(LeaseError, match="PRODUCER_FENCED") as caught:
            refused("a", 0, 1)
        assert caught.value.kafka_error == "PRODUCER_FENCED"
        assert caught.value.exit_status == 4
    with pytest.raises(LeaseError, match="PRODUCER_FENCED"):
        context.open().renew("a", 2, 1)
    assert context.inspect().lease("a") == second


def test_a_lease_lapses_and_can_be_renewed_until_then(context: Context) -> None:
    ids = context.open()
    ids.acquire("a", 10)
    context.clock.ms += 9
    assert ids.renew("a", 0, 20).expires_at_ms == NOW_MS + 29
    context.clock.ms += 20
    with pytest.raises(LeaseError, match="INVALID_PRODUCER_ID_MAPPING: the lease of a has lapsed"):
        ids.renew("a", 0, 20)
    assert ids.acquire("a", 20)[1:3] == (FIRST_ID, 1)


def test_a_lease_that_outlasts_the_clock(context: Context) -> None:
    """What is written can be read: a lease that ended later would make the log damaged."""
    ids = context.open()
    context.clock.ms = 2**63 - 3
    assert ids.acquire("a", 10).expires_at_ms == 2**63 - 1
    assert ids.renew("a", 0, 20).expires_at_ms == 2**63 - 1
    assert [each.app_id for each in context.inspect().leases()] == ["a"]


def test_a_released_lease(context: Context) -> None:
    ids = context.open()
    ids.acquire("a", 10)
    assert ids.release("a", 0).is_released
    assert ids.release("a", 0).is_released
    with pytest.raises(LeaseError, match="was released"):
        ids.renew("a", 0, 20)
    assert ids.acquire("a", 20)[1:3] == (FIRST_ID, 1)
    assert not ids.require_held("a").is_released
    for call in (lambda: ids.renew("b", 0, 1), lambda: ids.release("b", 0)):
        with pytest.raises(LeaseError, match="INVALID_PRODUCER_ID_MAPPING: b has no producer id"):
            call()


def test_generations_end_with_a_new_id(context: Context) -> None:
    ids = context.open()
    known = {FIRST_ID: MAX_GENERATION - 1}
    ids.acquire("a", 10)
    assert ids.acquire("a", 10, last_epoch=known.__getitem__).generation == MAX_GENERATION
    assert ids.acquire("a", 10)[1:3] == (FIRST_ID + 1, 0)
    known = {FIRST_ID + 1: 32767}
    assert ids.acquire("a", 10, last_epoch=known.__getitem__)[1:3] == (FIRST_ID + 2, 0)


def test_freed_ids_are_leased_again_with_the_next_generation(context: Context) -> None:
    ids = context.open()
    for app in ("a", "b", "c"):
        ids.acquire(app, 10)
    ids.acquire("b", 10)
    ids.release("b", 1)
    released = Lease("b", FIRST_ID + 1, 1, 10, NOW_MS + 10, is_released=True)
    assert ids.free({FIRST_ID, FIRST_ID + 1}) == [released]
    assert ids.free_ids() == [FreeId(FIRST_ID + 1, 1)]
    assert ids.lease("b") is None
    assert ids.acquire("a", 10)[1:3] == (FIRST_ID, 1)  # its own, not the free one
    assert ids.acquire("d", 10)[1:3] == (FIRST_ID + 1, 2)
    assert ids.free_ids() == []
    context.clock.ms += 10
    assert [each.app_id for each in ids.free({FIRST_ID + 2})] == ["c"]
    known = {FIRST_ID + 2: 9}
    assert ids.acquire("e", 10, last_epoch=known.__getitem__)[1:3] == (FIRST_ID + 2, 10)


def test_a_used_up_id_is_never_free(context: Context) -> None:
    ids = context.open()
    ids.acquire("a", 10)
    ids.acquire("a", 10, last_epoch=lambda _: MAX_GENERATION - 1)
    context.clock.ms += 10
    assert ids.free({FIRST_ID})[0].generation == MAX_GENERATION
    assert (ids.free_ids(), ids.leases()) == ([], [])
    assert ids.acquire("a", 10)[1:3] == (FIRST_ID + 1, 0)


def test_what_is_too_large_changes_nothing(context: Context) -> None:
    ids = context.open(config=LogConfig(max_message_bytes=300))
    ids.acquire("a", 10)
    before = content(context.directory)
    with pytest.raises(AppendError, match="MESSAGE_TOO_LARGE"):
        ids.acquire("b" * 300, 10)
    assert content(context.directory) == before
    assert ids.acquire("c", 10).producer_id == FIRST_ID + 1


# --- the log --------------------------------------------------------------------------------------


def test_the_log_is_rewritten_when_it_has_grown(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_ids, "COMPACT_BYTES", 4000)
    ids, other = context.open(), context.open()
    for n in range(7):
        ids.acquire(f"kept-{n}", HOUR_MS)
    ids.acquire("gone", 1)
    context.clock.ms += 1
    ids.free({FIRST_ID + 7})
    ids.acquire("taken", HOUR_MS)
    generations = []
    for _ in range(200):
        generations += [each.acquire("a", HOUR_MS).generation for each in (ids, other)]
        assert sum(path.stat().st_size for path in context.directory.glob("*.log")) < 9000
    assert generations == list(range(400))
    found = context.inspect()
    assert [each.app_id for each in found.leases()] == [
        "a",
        *(f"kept-{n}" for n in range(7)),
        "taken",
    ]
    assert found.lease("taken")[1:3] == (FIRST_ID + 7, 1)  # type: ignore[index]
    names = sorted(
        path.suffix for path in context.directory.iterdir() if path.suffix != ".snapshot"
    )
    (log,) = context.directory.glob("*.log")
    assert int(log.stem) > 400
    assert names == ["", ".log", ".metadata"]
    assert len(list(context.directory.glob("*.snapshot"))) <= 1
    assert context.inspect().ids == ids.ids


def test_segments_roll_as_the_topic_says(context: Context) -> None:
    ids, other = (context.open(config=LogConfig(segment_bytes=600)) for _ in range(2))
    given = [each.acquire(f"app-{n}", 10) for n in range(20) for each in (ids, other)]
    assert len(list(context.directory.glob("*.log"))) > 5
    assert sorted(given[1::2]) == sorted(context.inspect().leases())
    assert len(headers_of(context.directory)) == 40


def test_the_clean_marker_goes_before_each_change(context: Context) -> None:
    """Also when a broker has run between two changes of one process."""
    marker = context.log_dir / ".kafka_cleanshutdown"
    ids = context.open()
    for _ in range(2):
        marker.write_text("{}")
        ids.acquire("a", 10)
        assert not marker.exists()
    marker.write_text("{}")
    context.inspect()
    with pytest.raises(LeaseError):
        ids.renew("a", 0, 10)
    assert marker.exists()


def test_it_goes_on_in_the_last_leader_epoch(context: Context) -> None:
    ids = context.open()
    ids.acquire("a", 10)
    (context.directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n4 1\n")
    ids.acquire("a", 10)
    assert [each.partition_leader_epoch for each in headers_of(context.directory)] == [0, 4]


def test_what_another_wrote_there_is_refused(context: Context) -> None:
    context.open().acquire("a", 10)
    log = context.directory / f"{0:020d}.log"
    size = log.stat().st_size
    foreign = bytearray(batch(1, (7, 0, 0)))
    foreign[7] = 2  # its base offset
    log.write_bytes(log.read_bytes() + foreign)
    with pytest.raises(RefusedError, match=f"position {size}, offset 2: written by a producer"):
        context.inspect()


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_log_whose_records_are_gone_is_refused(context: Context, name: str) -> None:
    context.open().acquire("a", 10)
    (context.log_dir / name).write_text("0\n1\n__eoctl_producer_ids 0 9\n")
    with pytest.raises(RefusedError, match="Records are gone"):
        context.open().acquire("a", 10)
    for path in context.directory.glob("*.log"):
        path.unlink()
    with pytest.raises(RefusedError, match="Records are gone"):
        context.open().next_id()


def test_a_directory_that_is_gone_is_noticed(context: Context) -> None:
    ids = context.open()
    ids.acquire("a", 10)
    context.directory.rename(context.log_dir / "away")
    ids.refresh()
    assert ids.leases() == []


# --- locks and processes --------------------------------------------------------------------------


def test_each_change_takes_the_lock_for_itself(context: Context) -> None:
    ids = context.open(lock_wait_ms=0)
    with take([context.log_dir]), pytest.raises(LockHeldError):
        ids.next_id()
    assert ids.next_id() == FIRST_ID
    with take([context.log_dir]):
        assert ids.next_id() == FIRST_ID + 1  # of its block: no lock is needed


HOLDER = """
import sys, time
from storage.files.broker_lock import take
with take([sys.argv[1]]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("held_s, is_given", [(0.3, True), (30, False)])
def test_it_waits_its_turn(context: Context, held_s: float, is_given: bool) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(context.log_dir), str(held_s)], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        if is_given:
            assert context.open(lock_wait_ms=30_000).next_id() == FIRST_ID
        else:
            with pytest.raises(LockHeldError) as caught:
                context.open(lock_wait_ms=50).next_id()
            assert caught.value.pid == holder.pid
            assert not context.directory.exists()
    finally:
        holder.kill()
        holder.communicate()


PROCESSES_COUNT = 8
SECONDS = float(os.environ.get("EOCTL_LEASE_SECONDS", "3"))


def work(log_dir: str, number: int, seconds: float, answers: Any) -> None:
    """Take ids and leases, of apps that others want, too, until the time is over."""
    given: list[int] = []
    leases: list[tuple[str, int, int]] = []
    ids = ProducerIds.at(
        log_dir, NoSyncFileSystem(), lock_wait_ms=60_000, block_size=5, topic_id=TOPIC_ID
    )
    end_s = time.monotonic() + seconds
    step = number
    while time.monotonic() < end_s or len(leases) < 5:
        step += 1
        given += [ids.next_id() for _ in range(3)]
        leases.append(ids.acquire(f"app-{step % 11}", 60_000)[:3])
        try:
            if step % 5 == 0:
                ids.release(*leases[-1][::2])
            elif step % 7 == 0:
                ids.renew(*leases[-1][::2], 60_000)
        except LeaseError as error:
            # Another one has acquired it since; it may be released and freed, too.
            if error.kafka_error not in {"PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"}:
                raise
        if step % 13 == 0:
            ids.free({leases[-1][1]})
    answers.put((given, leases))


@pytest.mark.exhaustive
def test_processes_at_once(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """No id twice, no generation of an id twice, whoever asks."""
    monkeypatch.setattr(producer_ids, "COMPACT_BYTES", 20_000)  # processes are forked
    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    workers = [
        forking.Process(target=work, args=(str(context.log_dir), n, SECONDS, answers))
        for n in range(PROCESSES_COUNT)
    ]
    for each in workers:
        each.start()
    found = [answers.get(timeout=SECONDS + 120) for _ in workers]
    for each in workers:
        each.join()
        assert each.exitcode == 0
    given = [each for ids, _ in found for each in ids]
    leases = [each for _, of_one in found for each in of_one]
    assert len(set(given)) == len(given)
    assert (
        max(Counter((producer_id, generation) for _, producer_id, generation in leases).values())
        == 1
    )
    assert {producer_id for _, producer_id, _ in leases}.isdisjoint(given)
    for app in {app for app, _, _ in leases}:
        last = context.inspect().lease(app)
        if last is not None:
            mine = [g for a, i, g in leases if (a, i) == (app, last.producer_id)]
            assert max(mine) == last.generation
    print(f"{len(given)} ids, {len(leases)} leases")
