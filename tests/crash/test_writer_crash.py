"""Every state that a crash may leave of an append, a roll and a close."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from storage.dirs.discovery import discover
from storage.dirs.log_tail import empty_tail, read_tail
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import LogConfig
from storage.errors import RefusedError
from storage.files import fsio
from storage.formats.producer_snapshot import encode_snapshot
from storage.log.segment import open_segment
from storage.writing.partition_store import FileStore, FlushPolicy
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from storage.writing.writer import PartitionWriter
from tests.crash.scenario import (
    Scenario,
    check_scenario,
    drawn_syncs,
    record,
    surviving_mutants,
    syncs_of,
)
from tests.writing import TOPIC_ID, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState

MARKER = ".kafka_cleanshutdown"
NOW_MS = 1_800_000_000_000
CONFIG = LogConfig(segment_bytes=170, index_interval_bytes=0)
BEFORE_COUNT = 1
APPENDED_COUNT = 3  # two batches to a segment


def batch(number: int) -> bytes:
    builder = BatchBuilder()
    builder.add(b"%d" % number, b"some value", NOW_MS + number)
    return builder.build(ProducerIdentity(7, 0, number))


def write(
    fs: fsio.FileSystem, log_dir: Path, first: int, count: int, flush: FlushPolicy
) -> PartitionWriter:
    directory = log_dir / "t-0"
    if directory.exists():
        (selected,) = discover([directory]).selected
        tail, topic_id = read_tail(Partition.of(selected), 0), None
    else:
        tail, topic_id = empty_tail(0, 0), TOPIC_ID
    writer = PartitionWriter(
        FileStore(str(directory), fs, topic_id=topic_id),
        tail,
        CONFIG,
        leader_epoch=0 if not first else 1,
        now_ms=lambda: NOW_MS,
        flush=flush,
    )
    for number in range(first, first + count):
        writer.append(batch(number))
        if flush is FlushPolicy.BATCH and hasattr(fs, "mark"):
            fs.mark(f"batch {number}")
    writer.close()
    return writer


def prepare(root: Path, *, is_new: bool) -> None:
    make_log_dir(root)
    if not is_new:
        write(fsio.FileSystem(), root, 0, BEFORE_COUNT, FlushPolicy.SEGMENT)
        (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {BEFORE_COUNT}\n")
    (root / MARKER).write_text('{"version":0,"brokerEpoch":9}')


def run(
    fs: RecordingFileSystem, root: Path, *, is_new: bool, flush: FlushPolicy = FlushPolicy.BATCH
) -> None:
    write(fs, root, 0 if is_new else BEFORE_COUNT, APPENDED_COUNT, flush)
    fs.mark("closed")


def check(root: Path, state: CrashState, *, is_new: bool) -> None:
    """With the marker nothing has changed; without it a broker finds all that was said to be safe."""
    before_count = 0 if is_new else BEFORE_COUNT
    directory = root / "t-0"
    names = {path.name for path in root.iterdir() if path.is_dir()}
    assert names <= {"t-0", f"t-0.{TOPIC_ID.hex()}-delete"}
    if (root / MARKER).exists():
        assert not names or not is_new
        logs = [path.stat().st_size for path in directory.glob("*.log")]
        assert logs == ([] if is_new else [BEFORE_COUNT * len(batch(0))])
        assert not state.marks
        return
    promised = before_count + sum(each.startswith("batch ") for each in state.marks)
    if not directory.exists():
        assert promised == 0
        return
    assert (directory / "partition.metadata").read_bytes().endswith(b"AAECAwQFBgcICQoLDA0ODw")
    (selected,) = discover([directory]).selected
    partition = Partition.of(selected)
    # As a broker recovers: whole batches from the first segment on, until the first bad one.
    found = []
    for files in partition.segments:
        with open_segment(files.log.path) as segment:
            scan = segment.scan(resume=False)
            found += [each.header for each in scan if each.crc_ok]
        if scan.verdicts:
            break
    offsets = [each.base_offset for each in found]
    assert offsets == list(range(len(found)))
    assert promised <= len(found) <= before_count + APPENDED_COUNT
    epochs = partition.leader_epochs() or []
    assert {each.partition_leader_epoch for each in found} <= {each.epoch for each in epochs}
    try:
        tail = read_tail(partition, 0)
    except RefusedError:
        assert "closed" not in state.marks
        return
    # What passes for closed is right: the state at its end is that of a replay.
    assert tail.end_offset == len(found)
    rebuilt = rebuild_partition(partition, RebuildSettings(NOW_MS, 0))
    if found:
        assert encode_snapshot(tail.producers) == rebuilt.snapshots[tail.end_offset]
    if "closed" in state.marks:
        assert len(found) == before_count + APPENDED_COUNT
        for name, data in rebuilt.files():
            assert (directory / name).read_bytes() == data


SCENARIOS = {
    f"{'new' if is_new else 'old'} partition, {flush}": Scenario(
        partial(prepare, is_new=is_new),
        partial(run, is_new=is_new, flush=flush),
        partial(check, is_new=is_new),
    )
    for is_new in (False, True)
    for flush in (FlushPolicy.BATCH, FlushPolicy.SEGMENT)
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_state(tmp_path: Path, name: str) -> None:
    report = check_scenario(SCENARIOS[name], tmp_path)
    print(report)
    assert report.failures == []


@pytest.mark.slow
def test_each_fsync_is_needed(tmp_path: Path) -> None:
    """But for those that a later one of the same file or directory covers."""
    scenario = SCENARIOS["old partition, segment"]
    syncs = syncs_of(record(scenario, tmp_path))
    chosen = drawn_syncs(scenario, tmp_path, 6)
    found = surviving_mutants(scenario, tmp_path, among=chosen)
    survivors = [each.partition(": ")[2] for each in found]
    assert len(set(syncs)) > 5
    for each in set(survivors):
        assert survivors.count(each) < syncs.count(each), each
