"""Trims against DeleteRecords of a real broker, its retention run, and a restart: the same files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.changes.plans.plan import Action, read_plan
from storage.formats.checkpoint import (
    LeaderEpochEntry,
    encode_leader_epochs,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from tests.crash.trees import tree_of
from tests.kafka.broker import CLEAN_MARKER, Broker, copy_log_dir
from tests.kafka.client import (
    READ_UNCOMMITTED,
    Outgoing,
    consume,
    create_topics,
    delete_records,
    producer,
    send,
)
from tests.once import once_per_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

pytestmark = pytest.mark.broker

TOPIC = "trimmed"
# A segment holds ten of the records, and a broker begins a leader epoch at each of its starts.
SEGMENT_BYTES = 1 << 20
RECORD_BYTES = 100_000
PARTS = (12, 13, 5)
END = sum(PARTS)
OFFSETS = (5, 10, 12, 15, 20, 25, 29, 30)
CHECKPOINTS = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint")
# Segments below the log start go at once, with their files.
DELETING = {
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.retention.ms": "-1",
}
WAIT_S = 60


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir after a clean stop: three segments, leader epochs that begin at 0, 12 and 25."""
    return once_per_run(tmp_path_factory, "trim", make_log_dir)


def make_log_dir(directory: Path) -> Path:
    log_dir = directory / "log-dir"
    first = 0
    for part in PARTS:
        with Broker(log_dir, overrides=DELETING) as broker:
            if not first:
                settings = {"segment.bytes": str(SEGMENT_BYTES)}
                create_topics(broker.bootstrap, {TOPIC: (len(OFFSETS), settings)})
            client = producer(broker.bootstrap, enable_idempotence="true", linger_ms=0)
            for number in range(first, first + part):  # one batch each
                value = bytes([number]) * RECORD_BYTES
                send(client, [Outgoing(TOPIC, each, b"k", value) for each in range(len(OFFSETS))])
        first += part
    return log_dir


def by_a_broker(made: Path, log_dir: Path) -> Path:
    """DeleteRecords in each partition, its retention run, a stop, and a start with another stop."""
    copy_log_dir(made, log_dir)
    with Broker(log_dir, overrides=DELETING) as broker:
        wanted = {(TOPIC, place): offset for place, offset in enumerate(OFFSETS)}
        delete_records(broker.bootstrap, wanted)
        deadline_s = time.monotonic() + WAIT_S
        while any(
            names_of(log_dir, place) != segments_from(offset)
            for place, offset in enumerate(OFFSETS)
        ):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
    with Broker(log_dir, overrides=DELETING):
        pass
    return log_dir


def names_of(log_dir: Path, place: int) -> set[str]:
    """The `.log` files of a partition, and the files that are to be unlinked."""
    names = {each.name for each in (log_dir / f"{TOPIC}-{place}").iterdir()}
    return {each for each in names if each.endswith((".log", ".deleted"))}


def segments_from(offset: int) -> set[str]:
    return {f"{base:020d}.log" for base in (0, 10, 20) if base + 10 > offset or base == 20}


def files_of(log_dir: Path, place: int) -> dict[str, bytes]:
    """The files of a partition, without the number of the epoch of the last election."""
    found = tree_of(log_dir / f"{TOPIC}-{place}")
    files = {name: each.data for name, each in found.items() if each.data is not None}
    epochs = parse_leader_epochs(files["leader-epoch-checkpoint"])
    kept = [each for each in epochs if each.start_offset < END]
    files["leader-epoch-checkpoint"] = encode_leader_epochs([*kept, LeaderEpochEntry(99, END)])
    return files


# Of an earlier stop inside of a segment. Each start removes it, also without a trim.
STRAY = f"{PARTS[0] + PARTS[1]:020d}.snapshot"


def lines_of(log_dir: Path, place: int) -> list[tuple[str, list[int]]]:
    return [
        (
            name,
            [
                each.offset
                for each in parse_offset_checkpoint((log_dir / name).read_bytes())
                if each[:2] == (TOPIC, place)
            ],
        )
        for name in CHECKPOINTS
    ]


@pytest.mark.exhaustive
def test_a_trim_leaves_what_a_broker_leaves(
    made: Path, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """Byte for byte, but for the epoch of the election that the start with DeleteRecords made.

    Then a broker recovers both, as it does after every change of eoctl, and the files are the same.
    Its clients begin at the same offset.
    """
    theirs = by_a_broker(made, tmp_path / "theirs")
    ours = copy_log_dir(made, tmp_path / "ours")
    for place, offset in enumerate(OFFSETS):
        done = eoctl("trim", ours / f"{TOPIC}-{place}", "--to-offset", offset, "--apply")
        assert done.status == 0, done.errors
    for place, offset in enumerate(OFFSETS):
        assert names_of(ours, place) == segments_from(offset)
        mine = files_of(ours, place)
        assert (STRAY in mine) == (offset < END - PARTS[2])
        mine.pop(STRAY, None)
        assert mine == files_of(theirs, place), offset
        assert lines_of(ours, place) == lines_of(theirs, place), offset
    checked = eoctl("check", ours, "--fail-on", "warning")
    assert checked.status == 0, checked.text
    with Broker(ours, overrides=DELETING) as broker:
        for place, offset in enumerate(OFFSETS):
            read = consume(broker.bootstrap, TOPIC, place, isolation=READ_UNCOMMITTED)
            assert read.log_start_offset == offset
            assert [each.offset for each in read.records] == [*range(offset, END)]
        assert broker.error_lines() == []
    (theirs / CLEAN_MARKER).unlink()
    with Broker(theirs, overrides=DELETING):
        pass
    for place, offset in enumerate(OFFSETS):
        assert files_of(ours, place) == files_of(theirs, place), offset
        assert lines_of(ours, place) == lines_of(theirs, place), offset


@pytest.mark.exhaustive
def test_a_broker_loads_the_log_after_each_step(
    made: Path, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """The marker and more steps of the same trim in each partition, one more in each."""
    offset = 15
    log_dir = copy_log_dir(made, tmp_path / "log-dir")
    plans = []
    for place in range(len(OFFSETS)):
        call = ("trim", log_dir / f"{TOPIC}-{place}", "--to-offset", offset)
        saved = eoctl(*call, "--save-plan", tmp_path / f"plan-{place}")
        assert saved.status == 0, saved.errors
        plans.append(read_plan(tmp_path / f"plan-{place}"))
    assert {len(each.steps) for each in plans} <= {*range(2, len(OFFSETS) + 1)}
    for place, plan in enumerate(plans):
        for step in plan.steps[: place + 1]:
            if step.action is Action.REMOVE:
                Path(step.path).unlink(missing_ok=True)  # the marker is gone since the first one
            else:
                assert step.content is not None
                Path(step.path).write_bytes(step.content)
    with Broker(log_dir, overrides=DELETING) as broker:
        starts = []
        for place in range(len(OFFSETS)):
            read = consume(broker.bootstrap, TOPIC, place, isolation=READ_UNCOMMITTED)
            assert [each.offset for each in read.records] == [*range(read.log_start_offset, END)]
            starts.append(read.log_start_offset)
        assert broker.error_lines() == []
    assert starts == sorted(starts)
    assert (starts[0], starts[-1]) == (0, offset)
