"""Which partitions are closed: those of cleanly stopped brokers, and none that a crash has left."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from recovery.replay.snapshots import Clock
from storage.dirs.discovery import discover
from storage.dirs.log_tail import LogTail, NotClosedError, read_tail
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import LogConfig, read_log_config
from storage.errors import RefusedError
from storage.file_names import METADATA_TOPIC
from storage.writing.record_builder import BatchBuilder
from tests.writing import NOW_MS, NoSyncFileSystem, batch, make_log_dir, open_writer, recover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def tail_of(directory: Path, interval_bytes: int = 4096) -> LogTail:
    (selected,) = discover([directory]).selected
    return read_tail(Partition.of(selected), interval_bytes)


@pytest.fixture
def copied(golden: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A partition of `clean` that may be changed, with the log dir's own files around it."""

    def copied(name: str) -> Path:
        source = golden("kafka-4.3.1") / "clean"
        for path in source.iterdir():
            if path.is_file():
                shutil.copy(path, tmp_path)
        target = tmp_path / name
        shutil.copytree(source / name, target)
        for path in [*tmp_path.iterdir(), target, *target.iterdir()]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        return target

    return copied


@pytest.mark.parametrize("state", ["clean", "hard-clean", "tv2-clean"])
def test_every_partition_of_a_stopped_broker_is_closed(
    golden: Callable[[str], Path], state: str
) -> None:
    log_dir = golden("kafka-4.3.1") / state
    checked = 0
    for selected in discover([log_dir]).selected:
        if selected.partition.name.topic == METADATA_TOPIC:
            continue
        partition = Partition.of(selected)
        tail = read_tail(partition, 4096)
        assert selected.log_dir is not None
        # At a clean stop the recovery point is the log end offset.
        assert tail.end_offset == selected.log_dir.recovery_point(selected.partition)
        assert tail.base_offset == partition.segments[-1].base_offset
        assert tail.log_bytes == partition.segments[-1].log.file_bytes
        assert tail.epochs == tuple(partition.leader_epochs() or ())
        checked += 1
    assert checked > 20


def test_index_entries_are_counted_as_a_broker_has_them(golden: Callable[[str], Path]) -> None:
    """The whole log of `clean` was recovered, so its indexes are those of a recovery."""
    log_dir = golden("kafka-4.3.1") / "clean"
    from recovery.cluster.clusters import Clusters

    found = discover([log_dir])
    image = Clusters(found.log_dirs).image_for(found.log_dirs[0])
    entries = 0
    for selected in found.selected:
        topic = selected.partition.name.topic
        if topic == METADATA_TOPIC:
            continue
        partition = Partition.of(selected)
        interval_bytes = read_log_config(image, topic).index_interval_bytes
        indexes = read_tail(partition, interval_bytes).indexes
        files = partition.segments[-1]
        assert indexes.offset_index() == partition.read_file(files.offset_index)
        assert indexes.time_index() == partition.read_file(files.time_index)
        entries += indexes.offset_entries_count
    assert entries > 50


@pytest.mark.parametrize("state", ["crash", "recovered", "hard", "tv2"])
def test_what_a_crash_leaves_is_refused(golden: Callable[[str], Path], state: str) -> None:
    """Also what was recovered and then not stopped cleanly, and partitions without any record."""
    refused = 0
    for selected in discover([golden("kafka-4.3.1") / state]).selected:
        if selected.partition.name.topic == METADATA_TOPIC:
            continue
        with pytest.raises(RefusedError, match="not closed cleanly") as caught:
            read_tail(Partition.of(selected), 4096)
        assert caught.value.next_step
        refused += 1
    assert refused > 20


def test_an_older_message_format_is_refused(golden: Callable[[str], Path]) -> None:
    refused = []
    for selected in discover([golden("kafka-0.10.2-legacy")]).selected:
        partition = Partition.of(selected)
        if partition.files.log_bytes:
            with pytest.raises(RefusedError, match="older message format"):
                read_tail(partition, 4096)
            refused.append(partition.path)
    assert refused


def test_an_empty_directory_begins_at_its_log_start(copied: Callable[[str], Path]) -> None:
    path = copied("plain-0")
    for each in path.iterdir():
        each.unlink()
    assert tail_of(path)[:4] == (0, 0, 0, None)
    (path.parent / "log-start-offset-checkpoint").write_text("0\n1\nplain 0 77\n")
    (path / "partition.metadata").touch()
    assert tail_of(path)[:4] == (77, 0, 77, None)
    (path / "00000000000000000078.snapshot").touch()
    with pytest.raises(RefusedError, match="above the end"):
        tail_of(path)


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def grow(path: Path, more: bytes) -> None:
    path.write_bytes(path.read_bytes() + more)


def flip(path: Path, pos: int) -> None:
    data = bytearray(path.read_bytes())
    data[pos] ^= 1
    path.write_bytes(data)


LOG = "00000000000000000000.log"
DAMAGE = {
    "torn batch": (lambda p: cut(p / LOG, 10), "torn_tail"),
    "junk at the end": (lambda p: grow(p / LOG, b"junk"), "torn_tail"),
    "zeros at the end": (lambda p: grow(p / LOG, bytes(50)), "preallocated"),
    "a flipped bit in the last batch": (lambda p: flip(p / LOG, -1), "BAT-1"),
    "a flipped bit in the first batch": (lambda p: flip(p / LOG, 80), "BAT-1"),
    "a swap file": (lambda p: (p / f"{LOG}.swap").touch(), "compaction"),
    "a cleaned file": (lambda p: (p / f"{LOG}.cleaned").touch(), "compaction"),
    "a foreign log": (lambda p: (p / "copy.log").touch(), "DIR-9"),
    "no index": (lambda p: (p / LOG).with_suffix(".index").unlink(), "missing"),
    "no time index": (lambda p: (p / LOG).with_suffix(".timeindex").unlink(), "missing"),
    "an untrimmed index": (
        lambda p: grow((p / LOG).with_suffix(".index"), bytes(80)),
        "IDX-5",
    ),
    "an untrimmed time index": (
        lambda p: grow((p / LOG).with_suffix(".timeindex"), bytes(120)),
        "IDX-5",
    ),
    "an index entry behind the end": (
        lambda p: grow((p / LOG).with_suffix(".index"), struct.pack(">ii", 179, 2**30)),
        "IDX-4",
    ),
    "a time index entry behind the end": (
        lambda p: grow((p / LOG).with_suffix(".timeindex"), struct.pack(">qi", 2**42, 179)),
        "IDX-4",
    ),
    "a snapshot above the end": (
        lambda p: (p / "00000000000000000180.snapshot").write_bytes(
            (p / "00000000000000000179.snapshot").read_bytes()
        ),
        "above the end",
    ),
    "no snapshot": (lambda p: (p / "00000000000000000179.snapshot").unlink(), "SNP-3"),
    "a bad snapshot": (lambda p: flip(p / "00000000000000000179.snapshot", -1), "SNP-1"),
    "bad leader epochs": (lambda p: (p / "leader-epoch-checkpoint").write_text("7"), "DIR-7"),
    "log start beyond the end": (
        lambda p: (p.parent / "log-start-offset-checkpoint").write_text("0\n1\nplain 0 180\n"),
        "OFS-1",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused(copied: Callable[[str], Path], damage: str) -> None:
    path = copied("plain-0")
    assert tail_of(path).end_offset == 179
    change, word = DAMAGE[damage]
    change(path)
    # A broker would recover from here on, marker or not.
    checkpoint = path.parent / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nplain 0 179\n")
    for has_marker in (True, False):
        if not has_marker:
            (path.parent / ".kafka_cleanshutdown").unlink()
        with pytest.raises(RefusedError, match=word):
            tail_of(path)


@pytest.mark.parametrize(("recovery_point", "is_refused"), [(60, False), (49, True), (0, True)])
def test_segments_below_the_recovery_point_are_not_read(
    copied: Callable[[str], Path], recovery_point: int, is_refused: bool
) -> None:
    """REC-14: no start reads them, so damage there is nobody's business here."""
    path = copied("rolled-0")
    flip(path / "00000000000000000025.log", 500_000)
    checkpoint = path.parent / "recovery-point-offset-checkpoint"
    checkpoint.write_text(f"0\n1\nrolled 0 {recovery_point}\n")
    if is_refused:
        with pytest.raises(RefusedError, match="BAT-1"):
            tail_of(path)
    else:
        assert tail_of(path).end_offset == 60


def test_segments_that_overlap_are_refused(copied: Callable[[str], Path]) -> None:
    path = copied("plain-0")
    builder = BatchBuilder()
    builder.add(None, b"v", 1)
    (path / "00000000000000000100.log").write_bytes(builder.build())
    (path.parent / "recovery-point-offset-checkpoint").unlink()
    with pytest.raises(RefusedError, match="SEG-1"):
        tail_of(path)


def test_offsets_that_were_flushed_are_not_given_out_again(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """OFS-2: a log that ends below its recovery point has lost what a broker had on disk."""
    clean = tmp_path / "clean"
    shutil.copytree(golden("kafka-4.3.1") / "clean", clean)
    checkpoint = clean / "recovery-point-offset-checkpoint"
    checkpoint.chmod(0o644)
    text = checkpoint.read_text()
    assert "txn 0 329\n" in text
    checkpoint.write_text(text.replace("txn 0 329\n", "txn 0 330\n"))
    (selected,) = discover([clean / "txn-0"]).selected
    with pytest.raises(RefusedError, match="OFS-2"):
        read_tail(Partition.of(selected), 512)


def test_a_linked_log_is_refused(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Appending would replace the link or follow it out of the log dir."""
    clean = tmp_path / "clean"
    shutil.copytree(golden("kafka-4.3.1") / "clean", clean)
    log = clean / "txn-0" / "00000000000000000000.log"
    (clean / "txn-0").chmod(0o755)
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    (selected,) = discover([clean / "txn-0"]).selected
    with pytest.raises(RefusedError, match="symbolic link"):
        read_tail(Partition.of(selected), 512)


def test_offsets_end_somewhere(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """A base offset at the top of 63 bits, and batches far below it: refused, not a crash."""
    source = golden("kafka-4.3.1") / "clean" / "txn-0"
    for base in (2**63 - 1, 9 * 10**18):
        target = tmp_path / str(base) / "txn-0"
        shutil.copytree(source, target)
        target.chmod(0o755)
        for path in target.glob("0000000000000000000*"):
            path.chmod(0o644)
            path.rename(target / f"{base:020d}{path.suffix}")
        (selected,) = discover([target]).selected
        with pytest.raises(RefusedError):
            read_tail(Partition.of(selected), 512)
    (tmp_path / str(2**63 - 1) / "txn-0" / f"{2**63 - 1:020d}.log").write_bytes(b"")
    (selected,) = discover([tmp_path / str(2**63 - 1) / "txn-0"]).selected
    with pytest.raises(RefusedError, match="no offsets left"):
        read_tail(Partition.of(selected), 512)


@pytest.mark.parametrize("lost_count", [0, 1, 3])
def test_a_segment_that_lost_its_end(tmp_path: Path, lost_count: int) -> None:
    """Never synced, and the power failed: what a producer is known for must be in the log."""
    directory = make_log_dir(tmp_path / "log-dir") / "t-0"
    data = [batch(1, (7, 0, n)) for n in range(6)]
    config = LogConfig(segment_bytes=5 * len(data[0]))
    writer = open_writer(directory, config)
    for each in data[:5]:
        writer.append(each)
    writer.append(batch(1, (8, 0, 0)))
    writer.close()
    assert writer.rolled_count == 1
    log = directory / LOG
    log.write_bytes(log.read_bytes()[: (5 - lost_count) * len(data[0])])
    if lost_count:
        with pytest.raises(NotClosedError, match=r"offset 4, .* producer 7 \[SNP-6\]"):
            tail_of(directory)
        fs = NoSyncFileSystem()
        recover(directory, Clock(NOW_MS), config.index_interval_bytes, fs, tmp_path)
    tail = tail_of(directory)
    assert tail.end_offset == 6
    known = {each.producer_id: each.last_offset for each in tail.producers}
    assert known == {7: 4 - lost_count, 8: 5}
    # A gap as such is none of its business.
    assert open_writer(directory, config).append(data[5 - lost_count]).base_offset == 6
