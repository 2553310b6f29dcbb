"""Recovery of unclean partitions: what a real broker's start left, and a tail to go on from."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from recovery.changes.apply import apply_plan
from recovery.changes.plans.plan import Action, make_plan, source_of
from recovery.cluster.clusters import Clusters
from recovery.repair.broker_start import Recovery, plan_recovery
from recovery.replay.snapshots import Clock
from storage.dirs.discovery import discover
from storage.dirs.log_tail import LogTail, NotClosedError, empty_tail, read_tail
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import LogConfig
from storage.errors import RefusedError
from storage.file_names import FileKind, classify
from storage.files.fsio import FileSystem
from storage.writing.partition_store import FileStore, FlushPolicy
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from storage.writing.writer import PartitionWriter
from tests.recovery.rebuild.test_derive import APPENDED
from tests.writing import TOPIC_ID, make_log_dir, partition_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMPARED = {
    FileKind.LOG,
    FileKind.INDEX,
    FileKind.TIMEINDEX,
    FileKind.TXNINDEX,
    FileKind.SNAPSHOT,
}
TARGETS = {"crash": "clean", "hard": "hard-clean", "tv2": "tv2-clean"}
# Files that the broker went on writing to after its recovery: two transactions timed out.
WRITTEN_ON = {"hard": {"__transaction_state-1", "__transaction_state-2", "txn-0", "txn-1"}}
CLOCK = Clock(1_800_000_000_000)


class Unclean(NamedTuple):
    """A partition and its `index.interval.bytes`."""

    partition: Partition
    interval_bytes: int


def partitions_of(root: Path) -> list[Unclean]:
    found = discover([root])
    clusters = Clusters(found.log_dirs)
    unclean = []
    for selected in found.selected:
        topic = selected.partition.name.topic
        if topic == "__cluster_metadata":
            continue
        image = clusters.image_for(selected.log_dir)
        assert image is not None
        interval = image.topic_config(topic, "index.interval.bytes")
        unclean.append(Unclean(Partition.of(selected), int(interval or 4096)))
    return unclean


def carry_out(partition: Partition, recovery: Recovery, tmp_path: Path) -> None:
    sources = [source_of(path) for path in recovery.logs]
    plan = make_plan("produce", {"path": partition.path}, recovery.steps, {}, sources)
    backups = tmp_path / f"backup-{partition.topic}-{partition.partition}"
    backups.mkdir(parents=True)
    apply_plan(FileSystem(), plan, backup_dir=str(backups))


def compared_files(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if classify(path.name).kind in COMPARED and path.suffix != ".deleted"
    }


def comparable(tail: LogTail) -> LogTail:
    """The same with values in the place of the object that goes on counting."""
    indexes = (tail.indexes.offset_index(), tail.indexes.time_index())
    return tail._replace(indexes=indexes)  # type: ignore[arg-type]


@pytest.mark.share(2)
@pytest.mark.parametrize("source", list(TARGETS))
def test_golden_as_a_real_start_left_them(
    golden: Callable[[str], Path], tmp_path: Path, source: str
) -> None:
    target = golden("kafka-4.3.1") / TARGETS[source]
    copied = tmp_path / "log-dir"
    shutil.copytree(golden("kafka-4.3.1") / source, copied, symlinks=True)
    now_ns = (target / "recovery-point-offset-checkpoint").stat().st_mtime_ns
    seen = 0
    for partition, interval_bytes in partitions_of(copied):
        if not partition.segments:
            continue
        name = f"{partition.topic}-{partition.partition}"
        recovery = plan_recovery(partition, Clock(now_ns // 1_000_000), interval_bytes)
        directory = copied / name
        if recovery.steps:
            carry_out(partition, recovery, tmp_path)
        tail = read_tail(partition_at(directory), interval_bytes)
        assert comparable(tail) == comparable(recovery.tail), name
        if name in WRITTEN_ON.get(source, ()):
            continue
        found, expected = compared_files(directory), compared_files(target / name)
        assert set(found) == set(expected), name
        assert [each for each in found if found[each] != expected[each]] == [], (name, APPENDED)
        seen += len(found)
    assert seen > 80


def batch(number: int, *, is_transactional: bool = False) -> bytes:
    builder = BatchBuilder()
    builder.add(b"%d" % number, b"some value", CLOCK.now_ms + number)
    return builder.build(ProducerIdentity(7, 0, number), is_transactional=is_transactional)


def open_writer(directory: Path, tail: LogTail) -> PartitionWriter:
    topic_id = None if directory.exists() else TOPIC_ID
    return PartitionWriter(
        FileStore(str(directory), FileSystem(), topic_id=topic_id),
        tail,
        LogConfig(segment_bytes=600, index_interval_bytes=0),
        leader_epoch=max(tail.last_leader_epoch, 0),
        now_ms=lambda: CLOCK.now_ms,
        flush=FlushPolicy.BATCH,
    )


def write(directory: Path, *, is_closed: bool) -> PartitionWriter:
    """Transactions over several segments, with and without a close at the end."""
    writer = open_writer(directory, empty_tail(0, 0))
    for number in range(20):
        writer.append(batch(number, is_transactional=True))
        if number % 3 == 2:
            writer.end_transaction(7, 0, is_commit=number % 2 == 0)
    if is_closed:
        writer.close()
    return writer


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return make_log_dir(tmp_path / "log-dir")


def test_a_writer_that_was_not_closed(log_dir: Path, tmp_path: Path) -> None:
    """Recovered, it has the files that closing would have left, and the same state."""
    writer = write(log_dir / "t-0", is_closed=False)
    closed = write(log_dir / "u-0", is_closed=True)
    assert writer.rolled_count == closed.rolled_count > 1
    with pytest.raises(NotClosedError):
        read_tail(partition_at(log_dir / "t-0"), 0)
    partition = partition_at(log_dir / "t-0")
    recovery = plan_recovery(partition, CLOCK, 0)
    assert recovery.cut_bytes == 0
    carry_out(partition, recovery, tmp_path)
    assert compared_files(log_dir / "t-0") == compared_files(log_dir / "u-0")
    assert comparable(recovery.tail) == comparable(read_tail(partition_at(log_dir / "u-0"), 0))
    again = plan_recovery(partition_at(log_dir / "t-0"), CLOCK, 0)
    assert again.steps == ()
    going_on = open_writer(log_dir / "t-0", again.tail)
    assert going_on.append(batch(19, is_transactional=True)).is_duplicate
    assert going_on.append(batch(20, is_transactional=True)).base_offset == writer.end_offset


def test_a_torn_batch_is_cut_and_kept_aside(log_dir: Path, tmp_path: Path) -> None:
    write(log_dir / "t-0", is_closed=False)
    log = max((log_dir / "t-0").glob("*.log"))
    whole = log.read_bytes()
    log.write_bytes(whole + batch(99)[:-3])
    partition = partition_at(log_dir / "t-0")
    recovery = plan_recovery(partition, CLOCK, 0)
    assert recovery.cut_bytes == len(batch(99)) - 3
    assert "torn tail" in recovery.notes[0]
    carry_out(partition, recovery, tmp_path)
    assert log.read_bytes() == whole
    assert list(tmp_path.glob("backup-t-0/**/*.backup")) or any(
        path.is_file() for path in (tmp_path / "backup-t-0").rglob("*")
    )


def test_damage_in_the_middle_removes_what_is_behind(log_dir: Path, tmp_path: Path) -> None:
    write(log_dir / "t-0", is_closed=True)
    logs = sorted((log_dir / "t-0").glob("*.log"))
    data = bytearray(logs[1].read_bytes())
    first_bytes = 78  # of a marker
    data[first_bytes + 70] ^= 1  # in the second batch
    logs[1].write_bytes(data)
    partition = partition_at(log_dir / "t-0")
    recovery = plan_recovery(partition, CLOCK, 0)
    removed = sum(path.stat().st_size for path in logs[2:])
    assert recovery.cut_bytes == len(data) - first_bytes + removed
    actions = {each.path.rsplit("/", 1)[1]: each.action for each in recovery.steps}
    assert all(actions[path.name] is Action.REMOVE for path in logs[2:])
    carry_out(partition, recovery, tmp_path)
    assert sorted((log_dir / "t-0").glob("*.log")) == logs[:2]
    tail = read_tail(partition_at(log_dir / "t-0"), 0)
    assert comparable(tail) == comparable(recovery.tail)
    assert tail.end_offset == int(logs[1].stem) + 1


def test_what_was_flushed_must_be_there(log_dir: Path) -> None:
    """A broker would go on below its recovery point, and give offsets out a second time."""
    writer = write(log_dir / "t-0", is_closed=True)
    checkpoint = log_dir / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\nt 0 {writer.end_offset}\n")
    log = max((log_dir / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-5])
    with pytest.raises(RefusedError, match="OFS-2"):
        plan_recovery(partition_at(log_dir / "t-0"), CLOCK, 0)


def test_what_is_below_the_recovery_point_is_trusted(log_dir: Path, tmp_path: Path) -> None:
    """REC-6: and its snapshots are used, as they are."""
    write(log_dir / "t-0", is_closed=True)
    logs = sorted((log_dir / "t-0").glob("*.log"))
    last_base = int(logs[-1].stem)
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {last_base}\n")
    data = bytearray(logs[0].read_bytes())
    data[80] ^= 1
    logs[0].write_bytes(data)
    (log_dir / "t-0" / f"{last_base:020d}.index").unlink()
    partition = partition_at(log_dir / "t-0")
    recovery = plan_recovery(partition, CLOCK, 0)
    assert [each.path.rsplit("/", 1)[1] for each in recovery.steps] == [f"{last_base:020d}.index"]
    carry_out(partition, recovery, tmp_path)
    read_tail(partition_at(log_dir / "t-0"), 0)


def test_leader_epochs_are_cut_and_extended(log_dir: Path, tmp_path: Path) -> None:
    writer = write(log_dir / "t-0", is_closed=False)
    end = writer.end_offset
    epochs = log_dir / "t-0" / "leader-epoch-checkpoint"
    epochs.write_text(f"0\n3\n0 0\n5 {end}\n6 {end + 1}\n")
    partition = partition_at(log_dir / "t-0")
    recovery = plan_recovery(partition, CLOCK, 0)
    assert [(each.epoch, each.start_offset) for each in recovery.tail.epochs] == [(0, 0), (5, end)]
    assert recovery.tail.last_leader_epoch == 6  # given out once: never stamp less
    carry_out(partition, recovery, tmp_path)
    assert epochs.read_text() == f"0\n2\n0 0\n5 {end}\n"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_empty_index_is_made_if_it_is_missing(
    log_dir: Path, tmp_path: Path, suffix: str
) -> None:
    """A segment without one is not closed, even if there is nothing to be in it."""
    writer = open_writer(log_dir / "t-0", empty_tail(0, 0))
    builder = BatchBuilder()
    builder.add(None, b"without a time, so that both have no entry", -1)
    writer.append(builder.build())
    writer.close()
    (log_dir / "t-0" / f"{0:020d}{suffix}").unlink()
    with pytest.raises(NotClosedError, match="missing"):
        read_tail(partition_at(log_dir / "t-0"), 0)
    partition = partition_at(log_dir / "t-0")
    recovery = plan_recovery(partition, CLOCK, 0)
    carry_out(partition, recovery, tmp_path)
    assert (log_dir / "t-0" / f"{0:020d}{suffix}").read_bytes() == b""
    assert comparable(read_tail(partition_at(log_dir / "t-0"), 0)) == comparable(recovery.tail)
