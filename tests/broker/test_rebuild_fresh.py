"""rebuild and recover-state on a log directory that was made, killed and recovered in this run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.cluster.clusters import Clusters
from recovery.rebuild.derive import RebuildSettings, rebuild_partition
from recovery.replay.recover_state import recover_state
from recovery.replay.snapshots import Clock
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.file_names import DirState
from storage.formats.producer_snapshot import parse_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.dirs.cluster_image import ClusterImage
    from tests.kafka.fresh import FreshLogDir

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def logs_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.log")}


def unchanged(fresh: FreshLogDir) -> Iterator[tuple[Partition, Path, ClusterImage]]:
    """Partitions of the crash whose logs the recovered broker left as they were."""
    found = discover([fresh.crash])
    clusters = Clusters(found.log_dirs)
    for selected in found.selected:
        name = selected.partition.name
        target = fresh.clean / f"{name.topic}-{name.partition}"
        if name.state is not DirState.LIVE or name.topic == "__cluster_metadata":
            continue
        partition = Partition.of(selected)
        image = clusters.image_for(selected.log_dir)
        assert image is not None
        if target.is_dir() and logs_of(target) == logs_of(fresh.crash / target.name):
            yield partition, target, image


def clock_of(fresh: FreshLogDir) -> int:
    return (fresh.clean / RECOVERY_POINTS).stat().st_mtime_ns // 1_000_000


def assert_knows_no_more(ours: bytes, path: Path, *, is_compacted: bool) -> None:
    """Our producers are among the broker's, with the same values.

    Only the cleaner takes more away: the last batch of a producer below this snapshot goes when a
    later one of it is kept, so that a rebuild finds an earlier one there.
    """
    known = {each.producer_id: each for each in parse_snapshot(path.read_bytes())}
    for each in parse_snapshot(ours):
        other = known.get(each.producer_id)
        assert other is not None, (path, each)
        if is_compacted:
            assert each.last_offset <= other.last_offset, (path, each, other)
            assert each.producer_epoch <= other.producer_epoch, (path, each, other)
        else:
            assert each == other, path


def test_derived_files_are_the_brokers(fresh_log_dir: FreshLogDir) -> None:
    """Indexes and aborted transactions byte for byte; snapshots too, or in another order.

    A snapshot that the live broker wrote at a roll is kept below the recovery point, and recovery
    goes on from it. Its order may be that of a larger table, and it may know producers that have
    expired or lost their batches to the cleaner; so may those that are made from it.
    """
    equal = dict.fromkeys(("index", "timeindex", "txnindex", "snapshot"), 0)
    different, reordered = [], []
    for partition, target, image in unchanged(fresh_log_dir):
        interval = image.topic_config(partition.topic, "index.interval.bytes")
        settings = RebuildSettings(clock_of(fresh_log_dir), int(interval or 4096))
        files = dict(rebuild_partition(partition, settings).files())
        recovery_point = partition.log_dir.recovery_point(partition.directory) or 0
        for path in sorted(target.iterdir()):
            kind = path.suffix.lstrip(".")
            if kind not in equal:
                continue
            ours = files.get(path.name, b"" if kind == "txnindex" else None)
            if ours == path.read_bytes():
                equal[kind] += 1
            elif kind == "snapshot" and recovery_point > partition.segments[0].base_offset:
                assert ours is not None
                is_compacted = image.topic_config(partition.topic, "cleanup.policy") == "compact"
                assert_knows_no_more(ours, path, is_compacted=is_compacted)
                reordered.append(path.name)
            else:
                different.append(f"{target.name}/{path.name}")
    assert different == []
    assert min(equal.values()) > 0, equal
    assert equal["index"] > 20
    print(f"equal {equal}, kept by the broker in its own order {len(reordered)}")


def test_recovered_state_is_the_brokers(fresh_log_dir: FreshLogDir) -> None:
    """The newest snapshot after the broker's own recovery, byte for byte."""
    compared, different = 0, []
    for partition, target, _ in unchanged(fresh_log_dir):
        snapshots = sorted(target.glob("*.snapshot"))
        recovered = recover_state(partition, Clock(clock_of(fresh_log_dir)))
        if not snapshots:
            assert recovered.offset == 0
            continue
        newest = snapshots[-1]
        compared += 1
        if (newest.name, newest.read_bytes()) != (recovered.file_name, recovered.content):
            different.append(target.name)
    assert different == []
    assert compared > 8
