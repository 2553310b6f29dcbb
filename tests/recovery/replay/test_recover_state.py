"""The recovered producer state equals the snapshots that a real broker wrote at its next start."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from recovery.replay.recover_state import (
    EntryState,
    compare_entries,
    first_recovered,
    recover_state,
)
from recovery.replay.snapshots import Clock
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import UsageError
from storage.formats.producer_snapshot import parse_snapshot
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TARGETS = {"crash": "clean", "hard": "hard-clean", "tv2": "tv2-clean"}
# The restarted broker aborted two timed-out transactions: markers behind the recovered end.
APPENDED = {
    "hard": {"__transaction_state-1", "__transaction_state-2", "txn-0", "txn-1"},
}


def partitions(root: Path) -> Iterator[Partition]:
    for selected in discover([root]).selected:
        if selected.partition.name.topic != "__cluster_metadata":
            yield Partition.of(selected)


def clock_of(target: Path) -> Clock:
    """The recovery's own clock: the broker wrote its checkpoints right after it."""
    mtime_ns = (target / "recovery-point-offset-checkpoint").stat().st_mtime_ns
    return Clock(mtime_ns // 1_000_000)


@pytest.mark.parametrize("state", TARGETS)
def test_newest_snapshots_of_the_next_start(state: str, golden: Callable[[str], Path]) -> None:
    """Byte for byte, values and order, on every partition; accepted ones have grown on."""
    root = golden("kafka-4.3.1")
    target = root / TARGETS[state]
    equal, different = 0, set()
    for partition in partitions(root / state):
        name = f"{partition.topic}-{partition.partition}"
        snapshots = sorted((target / name).glob("*.snapshot"))
        recovered = recover_state(partition, clock_of(target))
        if not snapshots:
            assert recovered.offset == 0
            assert recovered.entries == []
        elif (snapshots[-1].name, snapshots[-1].read_bytes()) == (
            recovered.file_name,
            recovered.content,
        ):
            equal += 1
        else:
            different.add(name)
    assert different == APPENDED.get(state, set())
    assert equal >= 17
    print(f"{state}: {equal} newest snapshots equal, accepted {sorted(different)}")


def test_a_clean_stop_is_confirmed_from_scratch(golden: Callable[[str], Path]) -> None:
    """Replaying the whole log gives the snapshot that the broker left at the log end."""
    root = golden("kafka-4.3.1") / "clean"
    compared = 0
    for partition in partitions(root):
        recovered = recover_state(partition, clock_of(root), from_scratch=True)
        assert recovered.started_from is None
        if recovered.offset:
            assert recovered.disk_entries == recovered.entries
            compared += 1
    assert compared > 15


def test_at_an_offset(golden: Callable[[str], Path]) -> None:
    """The state in the middle of a segment equals the snapshot that a roll wrote there."""
    root = golden("kafka-4.3.1") / "clean"
    (selected,) = discover([root / "rolled-0"]).selected
    for snapshot in sorted((root / "rolled-0").glob("*.snapshot")):
        offset = int(snapshot.stem)
        for from_scratch in (True, False):
            recovered = recover_state(
                Partition.of(selected), clock_of(root), from_scratch=from_scratch, at_offset=offset
            )
            assert recovered.entries == parse_snapshot(snapshot.read_bytes())
    with pytest.raises(UsageError, match="outside"):
        recover_state(Partition.of(selected), clock_of(root), at_offset=10**6)


def test_expired_producers_drop_out_of_what_is_loaded(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """From a snapshot: not there any more; from scratch: still there, as a scan does not expire."""
    root = golden("kafka-4.3.1") / "clean"
    (selected,) = discover([root / "rolled-0"]).selected
    partition = Partition.of(selected)
    end = max(int(each.stem) for each in (root / "rolled-0").glob("*.snapshot"))
    now_ms = clock_of(root).now_ms + DEFAULT_EXPIRATION_MS
    kept = recover_state(partition, Clock(now_ms), from_scratch=True, at_offset=end)
    assert kept.entries
    # Between two snapshots, so that the newest one below has to be loaded and replayed from.
    late = recover_state(partition, Clock(now_ms), at_offset=end - 1)
    assert len(late.entries) <= len(kept.entries)


def test_corrupt_snapshots_are_passed_over(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """The next older one serves, as in a broker; a note names the bad one."""
    copied = tmp_path / "clean"
    shutil.copytree(golden("kafka-4.3.1") / "clean", copied)
    snapshots = sorted((copied / "rolled-0").glob("*.snapshot"))
    assert len(snapshots) > 1
    wanted = snapshots[-1].read_bytes()
    snapshots[-1].chmod(0o644)
    snapshots[-1].write_bytes(wanted[:-1] + bytes([wanted[-1] ^ 1]))
    (selected,) = discover([copied / "rolled-0"]).selected
    recovered = recover_state(Partition.of(selected), clock_of(copied))
    assert recovered.started_from == int(snapshots[-2].stem)
    assert recovered.content == wanted
    assert any("SNP-1" in note for note in recovered.notes)


def test_a_clean_stop_without_snapshots_is_a_trap(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """SNP-4: a broker would forget every producer; the note says so."""
    copied = tmp_path / "clean"
    shutil.copytree(golden("kafka-4.3.1") / "clean", copied)
    for path in (copied / "txn-0").glob("*.snapshot"):
        path.unlink()
    (selected,) = discover([copied / "txn-0"]).selected
    recovered = recover_state(Partition.of(selected), clock_of(copied))
    assert any("SNP-4" in note for note in recovered.notes)


def test_differences_entry_by_entry(golden: Callable[[str], Path]) -> None:
    """Equal, differing with its fields, missing on either side."""
    snapshot = max((golden("kafka-4.3.1") / "clean" / "txn-0").glob("*.snapshot"))
    entries = parse_snapshot(snapshot.read_bytes())
    changed = entries[0]._replace(last_sequence=7, producer_epoch=9)
    states = list(compare_entries([changed, *entries[1:-1]], entries[:1] + entries[2:]))
    by_id = {each.producer_id: each for each in states}
    assert by_id[entries[0].producer_id].state is EntryState.DIFFERS
    assert set(by_id[entries[0].producer_id].fields) == {"last_sequence", "producer_epoch"}
    assert by_id[entries[1].producer_id].state is EntryState.ONLY_RECOVERED
    assert by_id[entries[-1].producer_id].state is EntryState.ONLY_DISK
    assert sum(each.state is EntryState.EQUAL for each in states) == len(entries) - 3


def test_recovery_starts_at_the_segment_of_the_recovery_point(
    golden: Callable[[str], Path],
) -> None:
    """REC-6: all, if the point is below the first one."""
    (selected,) = discover([golden("kafka-4.3.1") / "clean" / "rolled-0"]).selected
    segments = Partition.of(selected).segments
    bases = [each.base_offset for each in segments]
    assert first_recovered(segments, 0) == 0
    assert first_recovered(segments, bases[1] - 1) == 0
    assert first_recovered(segments, bases[1]) == 1
    assert first_recovered(segments, 10**9) == len(bases) - 1
