"""Rebuilding from the bare `.log` files gives, byte for byte, what a real broker's recovery wrote."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from recovery.cluster.clusters import Clusters
from recovery.rebuild.derive import RebuildSettings, leader_epochs, rebuild_partition
from recovery.rebuild.diff import FileState, compare_files, epochs_agree, first_difference
from recovery.rebuild.segment_pass import EpochRun, PassEnd, SegmentJob, pass_over
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.file_names import LEADER_EPOCHS_NAME, FileKind, classify
from storage.formats.checkpoint import LeaderEpochEntry, encode_leader_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DERIVED = {FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.SNAPSHOT}

# What the restarted broker appended: two timed-out transactions got their ABORT markers, and the
# coordinator wrote that down.
APPENDED = "the restarted broker appended to the log"
KEPT = "a snapshot below the recovery point was kept; it knows a producer that no batch tells of"

# Every difference between a rebuild of the first state and the files of the second.
ACCEPTED: dict[str, dict[tuple[str, str], str]] = {
    "crash": {},
    "hard": {
        ("__transaction_state-1", "00000000000000000064.snapshot"): APPENDED,
        ("__transaction_state-1", "00000000000000000000.timeindex"): APPENDED,
        ("__transaction_state-2", "00000000000000000034.snapshot"): APPENDED,
        ("__transaction_state-2", "00000000000000000000.timeindex"): APPENDED,
        ("txn-0", "00000000000000000000.timeindex"): APPENDED,
        ("txn-0", "00000000000000000000.txnindex"): APPENDED,
        ("txn-0", "00000000000000000330.snapshot"): APPENDED,
        ("txn-1", "00000000000000000000.timeindex"): APPENDED,
        ("txn-1", "00000000000000000000.txnindex"): APPENDED,
        ("txn-1", "00000000000000000295.snapshot"): APPENDED,
    },
    "tv2": {
        ("c2-0", "00000000000000000081.snapshot"): KEPT,
        ("c2-0", "00000000000000000082.snapshot"): KEPT,
    },
}
EXPECTED_COUNTS = {
    "crash": {"index": 26, "timeindex": 26, "txnindex": 5, "snapshot": 24},
    "hard": {"index": 33, "timeindex": 29, "txnindex": 13, "snapshot": 31},
    "tv2": {"index": 29, "timeindex": 29, "txnindex": 6, "snapshot": 25},
}
TARGETS = {"crash": "clean", "hard": "hard-clean", "tv2": "tv2-clean"}


class Rebuildable(NamedTuple):
    """A partition with only its `.log` files left, and what shapes the rest."""

    partition: Partition
    settings: RebuildSettings


def bare_partitions(source: Path, target: Path, tmp_path: Path) -> Iterator[Rebuildable]:
    """Copy `source` without any derived file; the clock is that of the recovery of `target`."""
    now_ns = (target / "recovery-point-offset-checkpoint").stat().st_mtime_ns
    copied = tmp_path / "bare"
    shutil.copytree(
        source,
        copied,
        ignore=lambda _, names: [
            name for name in names if classify(name).kind in {*DERIVED, FileKind.LEADER_EPOCHS}
        ],
    )
    found = discover([copied])
    clusters = Clusters(found.log_dirs)
    for selected in found.selected:
        if selected.partition.name.topic == "__cluster_metadata":
            continue  # it went on growing
        image = clusters.image_for(selected.log_dir)
        assert image is not None
        interval = image.topic_config(selected.partition.name.topic, "index.interval.bytes")
        settings = RebuildSettings(now_ns // 1_000_000, int(interval or 4096))
        yield Rebuildable(Partition.of(selected), settings)


def derived_on_disk(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if classify(path.name).kind in DERIVED and not classify(path.name).suffix
    }


@pytest.mark.share(3)
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("state", TARGETS)
def test_golden_recoveries(
    state: str, jobs: int, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Each remaining difference is one entry of the list, with its reason; no entry is idle."""
    root = golden("kafka-4.3.1")
    target = root / TARGETS[state]
    equal: dict[str, int] = {}
    different = set()
    for partition, settings in bare_partitions(root / state, target, tmp_path):
        rebuilt = rebuild_partition(partition, settings, jobs=jobs)
        assert rebuilt.cut is None
        ours = {name: data for name, data in rebuilt.files() if name != LEADER_EPOCHS_NAME}
        name = f"{partition.topic}-{partition.partition}"
        wanted = derived_on_disk(target / name)
        for each in ours.keys() | wanted.keys():
            if ours.get(each) == wanted.get(each):
                kind = each.rpartition(".")[2]
                equal[kind] = equal.get(kind, 0) + 1
            else:
                different.add((name, each))
    assert different == set(ACCEPTED[state])
    assert equal == EXPECTED_COUNTS[state]
    print(f"{state}: equal {equal}, accepted {len(different)}")


@pytest.mark.parametrize("state", TARGETS)
def test_leader_epochs_of_the_broker_agree_with_the_log(
    state: str, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """They may know more (an epoch at the log end without data); never something else."""
    root = golden("kafka-4.3.1")
    checked = 0
    for partition, settings in bare_partitions(root / state, root / TARGETS[state], tmp_path):
        rebuilt = rebuild_partition(partition, settings)
        directory = root / state / f"{partition.topic}-{partition.partition}"
        data = (directory / LEADER_EPOCHS_NAME).read_bytes()
        assert epochs_agree(data, rebuilt), directory
        checked += 1
    assert checked > 20


def test_epochs_that_contradict_the_log_do_not_agree(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """A wrong epoch, a start inside another epoch's batches, a missing entry, garbage."""
    root = golden("kafka-4.3.1")
    txn = next(
        each
        for each in bare_partitions(root / "tv2", root / "tv2-clean", tmp_path)
        if each.partition.topic == "txn" and each.partition.partition == 0
    )
    rebuilt = rebuild_partition(*txn)
    entries = leader_epochs(rebuilt.epochs, 0)
    assert len(entries) > 1
    assert epochs_agree(encode_leader_epochs(entries), rebuilt)
    beyond = LeaderEpochEntry(99, rebuilt.log_end_offset)
    assert epochs_agree(encode_leader_epochs([*entries, beyond]), rebuilt)
    wrong = [entries[0]._replace(epoch=5), LeaderEpochEntry(7, entries[1].start_offset)]
    assert not epochs_agree(encode_leader_epochs(wrong), rebuilt)
    assert not epochs_agree(encode_leader_epochs(entries[:1]), rebuilt)
    early = [entries[0], entries[1]._replace(start_offset=entries[1].start_offset - 20)]
    assert not epochs_agree(encode_leader_epochs(early), rebuilt)
    assert not epochs_agree(encode_leader_epochs(entries[::-1]), rebuilt)
    assert not epochs_agree(b"", rebuilt)
    assert not epochs_agree(b"0\nx\n", rebuilt)


def test_the_first_entry_starts_at_the_log_start() -> None:
    """EPOCH-4: the epoch in force there."""
    runs = [EpochRun(1, 0, 90), EpochRun(3, 100, 190), EpochRun(4, 200, 200)]
    assert leader_epochs(runs, 150) == [LeaderEpochEntry(3, 150), LeaderEpochEntry(4, 200)]
    assert leader_epochs(runs, 100) == [LeaderEpochEntry(3, 100), LeaderEpochEntry(4, 200)]
    assert leader_epochs(runs[1:], 50) == [LeaderEpochEntry(3, 100), LeaderEpochEntry(4, 200)]


def test_a_clean_directory_needs_nothing(golden: Callable[[str], Path]) -> None:
    """Every derived file of `clean` is equal; what differs is normal for the crashed one."""
    root = golden("kafka-4.3.1")
    now_ms = (root / "clean" / "recovery-point-offset-checkpoint").stat().st_mtime_ns // 10**6
    for name in ("txn-0", "rolled-0", "plain-0"):
        states = {}
        for state in ("clean", "crash"):
            (selected,) = discover([root / state / name]).selected
            partition = Partition.of(selected)
            interval = 4096 if name == "rolled-0" else 512
            rebuilt = rebuild_partition(partition, RebuildSettings(now_ms, interval))
            states[state] = {each.name: each.state for each in compare_files(partition, rebuilt)}
        assert set(states["clean"].values()) == {FileState.EQUAL}
        assert all(
            state is FileState.EQUAL
            for file, state in states["crash"].items()
            if file.endswith((".index", ".txnindex")) or file == LEADER_EPOCHS_NAME
        )
        assert FileState.MISSING in states["crash"].values()  # the snapshot at the log end


def test_damage_ends_the_rebuild_at_the_batch_before(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """As recovery would cut: later segments are not looked at, files hold what comes before."""
    source = golden("kafka-4.3.1") / "clean" / "rolled-0"
    copied = tmp_path / "rolled-0"
    shutil.copytree(source, copied)
    middle = sorted(copied.glob("*.log"))[1]
    middle.chmod(0o644)
    data = bytearray(middle.read_bytes())
    data[len(data) // 2] ^= 1
    middle.write_bytes(data)
    (selected,) = discover([copied]).selected
    rebuilt = rebuild_partition(Partition.of(selected), RebuildSettings(0))
    assert rebuilt.cut is not None
    assert rebuilt.cut.base_offset == int(middle.stem)
    assert 0 < rebuilt.cut.valid_bytes < len(data)
    assert len(rebuilt.segments) == 2
    assert max(rebuilt.snapshots) == rebuilt.log_end_offset == rebuilt.cut.next_offset


@pytest.mark.parametrize(
    ("one", "other", "pos"),
    [
        (b"", b"", 0),
        (b"abc", b"abd", 2),
        (b"ab", b"abc", 2),
        (b"x" * 5000, b"x" * 4999 + b"y", 4999),
    ],
)
def test_first_difference(one: bytes, other: bytes, pos: int) -> None:
    assert first_difference(one, other) == pos


def test_a_log_that_grows_is_not_cut(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """A broker appends while the segment is walked: that is no damage."""
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes((golden("kafka-4.3.1") / "clean" / "txn-0" / log.name).read_bytes())
    found = pass_over(SegmentJob(str(log), 0, is_last=True, interval_bytes=4096, ranges=None))
    next(found)
    with log.open("ab") as file:
        file.write(log.read_bytes())
    *_, end = found
    assert isinstance(end, PassEnd)
    assert (end.is_cut, end.valid_bytes) == (False, log.stat().st_size // 2)
