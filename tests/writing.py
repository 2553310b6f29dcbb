"""Partitions written by `storage.writing.writer` in tests: batches, opening, recovery, what is in the files."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from recovery.changes.apply import apply_plan
from recovery.changes.plans.plan import make_plan, source_of
from recovery.repair.broker_start import plan_recovery
from storage.dirs.discovery import discover
from storage.dirs.log_tail import LogTail, empty_tail, read_tail
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import LogConfig
from storage.files.fsio import FileSystem
from storage.formats.compression import Codec
from storage.formats.partition_metadata import format_uuid
from storage.log.segment import open_segment
from storage.writing.partition_store import FileStore, FlushPolicy, PlannedStore
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from recovery.changes.plans.plan import Step
    from recovery.repair.broker_start import Recovery
    from recovery.replay.snapshots import Clock
    from storage.files.fsio import OpenFile, StrPath

NOW_MS = 1_800_000_000_000
TOPIC_ID = bytes(range(16))
# Options of `produce` for a topic that no cluster's metadata knows.
NEW_TOPIC = ("--single-copy", "--topic-id", format_uuid(TOPIC_ID))
SMALL = LogConfig(segment_bytes=1800, index_interval_bytes=150)
_numbers = itertools.count()


class NoSyncFileSystem(FileSystem):
    """For tests that never look at what a power failure leaves."""

    def fsync(self, file: OpenFile) -> None:
        pass

    def fsync_dir(self, path: StrPath) -> None:
        pass


def batch(
    count: int = 1,
    identity: tuple[int, int, int] = (-1, -1, -1),
    *,
    timestamp_ms: int = NOW_MS,
    value: bytes = b"value",
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
) -> bytes:
    """A batch as a client sends it; `identity` is producer id, epoch, base sequence."""
    builder = BatchBuilder(codec=codec, batch_bytes=2**31 - 1)
    for n in range(count):
        builder.add(b"%d" % n, value, timestamp_ms)
    return builder.build(ProducerIdentity(*identity), is_transactional=is_transactional)


def make_log_dir(root: Path) -> Path:
    """An empty log dir."""
    root.mkdir(parents=True)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    return root


def partition_at(directory: Path) -> Partition:
    (selected,) = discover([directory]).selected
    return Partition.of(selected)


def tail_at(directory: Path, config: LogConfig) -> LogTail:
    if not directory.exists():
        return empty_tail(0, config.index_interval_bytes)
    return read_tail(partition_at(directory), config.index_interval_bytes)


def open_writer(
    directory: Path,
    config: LogConfig = SMALL,
    *,
    fs: FileSystem | None = None,
    leader_epoch: int = 0,
    flush: FlushPolicy = FlushPolicy.NEVER,
    tail: LogTail | None = None,
    store: PlannedStore | None = None,
    now_ms: int = NOW_MS,
) -> PartitionWriter:
    topic_id = None if (directory / "partition.metadata").exists() else TOPIC_ID
    if store is None:
        store = FileStore(str(directory), fs or FileSystem(), topic_id=topic_id)
    return PartitionWriter(
        store,
        tail_at(directory, config) if tail is None else tail,
        config,
        leader_epoch=leader_epoch,
        now_ms=lambda: now_ms,
        flush=flush,
    )


def recover(
    directory: Path, clock: Clock, interval_bytes: int, fs: FileSystem, backup_dir: Path
) -> Recovery:
    """Do to a partition what a broker's start without the clean-shutdown marker does."""
    partition = partition_at(directory)
    recovery = plan_recovery(partition, clock, interval_bytes)
    carry_out(partition, recovery.steps, fs, backup_dir, logs=recovery.logs)
    return recovery


def carry_out(
    partition: Partition,
    steps: Sequence[Step],
    fs: FileSystem,
    backup_dir: Path,
    *,
    logs: Sequence[str] = (),
) -> None:
    """Make a plan of the steps, if there are any, and apply it."""
    if not steps:
        return
    sources = [source_of(path) for path in logs]
    plan = make_plan("produce", {"path": partition.path}, steps, {}, sources)
    place = backup_dir / f"backup-{next(_numbers)}"
    place.mkdir(parents=True)
    apply_plan(fs, plan, backup_dir=str(place))


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def headers_of(directory: Path) -> list[Any]:
    """The headers of all batches, whose checksums are right."""
    found = []
    for path in sorted(directory.glob("*.log")):
        with open_segment(path) as segment:
            scan = segment.scan()
            found += [each.header for each in scan]
            assert scan.verdicts == []
    return found
