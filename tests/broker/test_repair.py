"""Repaired partitions, judged by a real broker and a real client; the broker's own repair, too."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from recovery.changes.plans.preconditions import RECOVERY_POINT_NAME
from storage.file_names import FileKind, classify
from tests.damage.faults import read_batches
from tests.damage.planted import FAULTS
from tests.kafka.broker import Broker, copy_log_dir
from tests.kafka.cut_topic import (
    PARTITIONS_COUNT,
    TOPIC,
    CutTopic,
    consume_all,
    make_cut_topic,
    read_logs,
)
from tests.kafka.reference_log import read_committed
from tests.once import once_per_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

DERIVED = {
    FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.SNAPSHOT,
}  # fmt: skip
MAGIC_PLACE = 16
UNCHECKED = (0, 3, 6, 8, 10, 11, MAGIC_PLACE)  # places that no checksum covers


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> CutTopic:
    """A log dir after kill -9, and what a client had read of it; not to be changed."""
    return once_per_run(tmp_path_factory, "cut-topic", make_cut_topic)


def damage(log_dir: Path, places: tuple[int, ...] = UNCHECKED) -> dict[int, set[int]]:
    """Spoil data batches of every partition, middle segments too; the offsets lost, by partition.

    A batch of which nothing but the magic is spoiled is whole: salvage puts that byte right.
    """
    spoiled: dict[int, set[int]] = {}
    for number in range(PARTITIONS_COUNT):
        source = random.Random(number)
        for log in sorted((log_dir / f"{TOPIC}-{number}").glob("*.log"))[:-1]:
            data = bytearray(log.read_bytes())
            batches = read_batches(bytes(data))
            wanted = [n for n in range(len(batches) - 1) if not data[batches[n].pos + 22] & 0x20]
            for each in source.sample(wanted, min(1 + number % 2, len(wanted))):
                batch = batches[each]
                place = source.choice([*places, 40, batch.size - 3])
                data[batch.pos + place] ^= 0x20
                if place != MAGIC_PLACE:
                    offsets = range(batch.base_offset, batch.last_offset + 1)
                    spoiled.setdefault(number, set()).update(offsets)
            log.write_bytes(data)
    assert len(spoiled) > PARTITIONS_COUNT // 2
    return spoiled


def repair(eoctl: Callable[..., Outcome], log_dir: Path, *arguments: object) -> dict[str, Any]:
    done = eoctl("repair", log_dir, *arguments, "--apply", "--output", "jsonl")
    assert done.status == 0, done.errors
    rows = [json.loads(line) for line in done.text.splitlines()]
    (price,) = (row for row in rows if row["kind"] == "price")
    return dict(price)


def files_of(log_dir: Path) -> dict[str, bytes]:
    return {
        f"{number}/{path.name}": path.read_bytes()
        for number in range(PARTITIONS_COUNT)
        for path in (log_dir / f"{TOPIC}-{number}").iterdir()
        if classify(path.name).kind in DERIVED and path.suffix != ".deleted"
    }


def trimmed(data: bytes) -> bytes:
    """An index without its preallocated zeros, which an active one has until the broker stops."""
    return data.rstrip(b"\0")


@pytest.mark.exhaustive
def test_a_client_reads_what_a_salvage_kept(
    made: CutTopic, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """All but the spoiled batches, at their offsets; and the broker leaves the files as they are."""
    log_dir = copy_log_dir(made.log_dir, tmp_path / "log-dir")
    spoiled = damage(log_dir)
    price = repair(eoctl, log_dir, "--strategy", "salvage")
    lost: dict[int, set[int]] = {}
    for each in price["lost_ranges"]:
        if each["base_offset"] is None or not each["file"].startswith(f"{TOPIC}-"):
            continue
        number = int(each["file"].split("/")[0].rpartition("-")[2])
        lost.setdefault(number, set()).update(range(each["base_offset"], each["last_offset"] + 1))
    assert lost == spoiled
    repaired = files_of(log_dir)
    logs = read_logs(log_dir)
    with Broker(log_dir) as broker:
        for number in range(PARTITIONS_COUNT):
            said = broker.log_lines(f"{TOPIC}-{number}")
            assert any("Completed load of Log" in line for line in said), number
        assert broker.error_lines() == []
        read = consume_all(broker.bootstrap)
        broker.stop()
    for number, (uncommitted, committed) in enumerate(read):
        gone = spoiled.get(number, set())
        before = made.read[number].uncommitted.records
        left = [each for each in before if each.offset not in gone]
        assert uncommitted.records == left, number
        assert committed.records == read_committed(logs[number], left), number
    after = files_of(log_dir)
    assert {*repaired} <= {*after}
    assert [name for name, data in repaired.items() if trimmed(after[name]) != trimmed(data)] == []


@pytest.mark.exhaustive
def test_as_broker_is_what_the_broker_does(
    made: CutTopic, tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """The same damage, repaired by a start of the broker and by us: the same files.

    A broker whose recovery meets a wrong base offset does not start at all (REC-10), and it keeps
    a batch of a wrong magic (REC-8): both are refused, see the tests of the command.
    """
    ours = copy_log_dir(made.log_dir, tmp_path / "ours")
    damage(ours, (8, 10, 11))
    theirs = copy_log_dir(ours, tmp_path / "theirs")
    with Broker(theirs) as broker:
        broker.stop()
    # When it expired producers; and it removes what it cut off only later.
    now_ms = (theirs / RECOVERY_POINT_NAME).stat().st_mtime_ns // 1_000_000
    price = repair(eoctl, ours, "--strategy", "as-broker", "--jobs", 2, "--now", now_ms)
    assert price["lost_bytes"] > 0
    found, expected = files_of(ours), files_of(theirs)
    assert {*found} == {*expected}
    assert [name for name in found if found[name] != expected[name]] == []


@pytest.mark.exhaustive
def test_a_broker_loads_what_it_could_not(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """Whole batches that it refuses, foreign `.log` files, topic ids and checkpoints that are gone."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "log-dir")
    for name in ("transactional-bit-lost", "unknown-control-type", "log-without-number"):
        (fault,) = [each for each in FAULTS if each.name == name]
        fault.planted_in(log_dir)
    (log_dir / "plain-1" / "partition.metadata").unlink()
    (log_dir / "idem-none-0" / "partition.metadata").write_text("version: 0\ntopic_id: x")
    (log_dir / RECOVERY_POINT_NAME).write_text("0\n1\nplain 0\n")
    (log_dir / "replication-offset-checkpoint").write_text("0\n9\nplain 0 179\n")
    price = repair(eoctl, log_dir, "--strategy", "salvage")
    assert {each["check_id"] for each in price["lost_ranges"]} == {"PRD-4", "BAT-12"}
    names = {each.name for each in log_dir.iterdir() if each.is_dir()}
    with Broker(log_dir) as broker:
        for name in ("txn-0", "plain-0", "plain-1", "idem-none-0"):
            assert any("Completed load of Log" in line for line in broker.log_lines(name)), name
        assert broker.error_lines() == []
        broker.stop()
    left = {each.name for each in log_dir.iterdir() if each.is_dir()}
    assert names <= left
    assert [name for name in left if name.endswith("-stray")] == []
