"""From a high watermark, an offset, an epoch or a time to where a log is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from recovery.truncate.target import (
    CutTarget,
    EpochEnd,
    TargetKind,
    TargetRequest,
    find_agreed_end,
    find_common_end,
    find_epoch_end,
    find_target,
)
from storage.errors import EXIT_REFUSED, EXIT_USAGE, RefusedError, UsageError
from storage.formats.checkpoint import LeaderEpochEntry
from storage.log.segment import open_segment
from tests.truncations import EPOCHS, LOG_START, copy_log_dir, open_partition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HW, OFFSET, EPOCH, TIME = TargetKind


def target(path: Path, kind: TargetKind, value: int | None = None, **fields: Any) -> CutTarget:
    return find_target(open_partition(path), TargetRequest(kind, value, **fields))


# --- the high watermark ---------------------------------------------------------------------------


def test_no_line_of_a_high_watermark(golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "crash" / "trimmed-0"
    with pytest.raises(RefusedError, match="replication-offset-checkpoint has no line") as caught:
        target(path, HW)
    assert caught.value.exit_status == EXIT_REFUSED
    assert "--assume-hw N" in caught.value.next_step
    found = target(path, HW, assume_hw=120)
    assert found.offset == 120
    assert "as given" in found.notes[0]


def test_a_high_watermark_that_other_replicas_contradict(golden: Callable[[str], Path]) -> None:
    """Broker 1 has 37; broker 2 went on in epoch 1 from 36, broker 3 has a part of what 1 has."""
    root = golden("kafka-4.3.1-three-brokers") / "diverged"
    path = root / "broker-1" / "div-0"
    second, third = (open_partition(root / f"broker-{n}" / "div-0") for n in (2, 3))
    assert target(path, HW).offset == 37
    with pytest.raises(RefusedError) as caught:
        target(path, HW, replicas=(second,))
    for part in ("high watermark 37", "diverge at 36", second.path):
        assert part in str(caught.value)
    for part in ("--to-offset 36", "--to-leader-epoch", "--assume-hw"):
        assert part in caught.value.next_step
    # A replica that is only shorter contradicts it as well.
    with pytest.raises(RefusedError, match=r"broker-3/div-0: that ends at 36"):
        target(path, HW, replicas=(third, second))
    assert target(path, HW, assume_hw=37, replicas=(second,)).offset == 37
    # From the other side 36 is what both have.
    assert target(root / "broker-2" / "div-0", HW, replicas=(open_partition(path),)).offset == 36
    calm = tuple(open_partition(root / f"broker-{n}" / "calm-0") for n in (2, 3))
    found = target(root / "broker-1" / "calm-0", HW, replicas=calm)
    assert (found.offset, found.cut.is_nothing) == (30, True)
    with pytest.raises(UsageError, match="no replica of div-0"):
        target(path, HW, replicas=calm)


def test_after_the_brokers_agreed(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-three-brokers") / "after"
    paths = [root / f"broker-{n}" / "div-0" for n in (1, 2, 3)]
    for path in paths:
        others = tuple(open_partition(each) for each in paths if each != path)
        found = target(path, HW, replicas=others)
        assert (found.offset, found.end_offset, found.cut.is_nothing) == (66, 66, True)


def test_a_high_watermark_is_brought_into_the_log(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "txn-0")
    path = log_dir / "txn-0"
    found = target(path, HW)
    assert (found.offset, found.end_offset, found.cut.log_end_offset) == (311, 311, 329)
    assert "lower bound" in found.notes[0]
    assert target(path, HW, assume_hw=400).offset == 329
    assert target(path, HW, assume_hw=400).cut.is_nothing
    (log_dir / LOG_START).write_text("0\n1\ntxn 0 200\n")
    found = target(path, HW, assume_hw=150)
    assert (found.offset, found.log_start_offset) == (200, 200)
    assert "beyond the log start 200" in found.notes[1]
    with pytest.raises(UsageError):
        target(path, HW, assume_hw=-1)
    (log_dir / LOG_START).write_text("0\n1\ntxn 0 330\n")
    with pytest.raises(RefusedError, match="OFS-1"):
        target(path, HW)


# --- offsets --------------------------------------------------------------------------------------


def test_offsets_outside_of_the_log(golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "crash" / "txn-0"
    with pytest.raises(UsageError, match="not negative") as caught:
        target(path, OFFSET, -1)
    assert caught.value.exit_status == EXIT_USAGE
    for offset, note in ((329, "ends at 329"), (330, "ends at 329, below 330")):
        found = target(path, OFFSET, offset)
        assert (found.end_offset, found.cut.is_nothing) == (329, True)
        assert any(each.endswith(note) for each in found.notes)
    with pytest.raises(UsageError):
        target(path, OFFSET)


def test_a_follower_asks_until_it_has_an_epoch_that_the_leader_has() -> None:
    """EPOCH-7: an answer for an epoch that is not known here is a question about the one before."""
    ours = [LeaderEpochEntry(1, 0), LeaderEpochEntry(3, 100)]
    theirs = [LeaderEpochEntry(1, 0), LeaderEpochEntry(2, 50), LeaderEpochEntry(5, 80)]
    assert find_agreed_end(ours, 200, theirs, 300, epoch=3) == 50
    assert find_agreed_end(ours, 200, theirs, 300, epoch=1) == 50
    assert find_agreed_end(ours, 200, ours, 150, epoch=3) == 150
    assert find_agreed_end(ours, 200, [LeaderEpochEntry(0, 0)], 70, epoch=3) is None
    later = [LeaderEpochEntry(2, 40), LeaderEpochEntry(4, 60)]
    assert find_agreed_end([LeaderEpochEntry(3, 30)], 90, later, 99, epoch=3) == 30
    assert find_agreed_end(ours, 200, (), 0, epoch=3) is None


def test_inside_of_a_batch(golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "crash" / "rolled-0"
    for offset in (5, 10, 25, 50):
        found = target(path, OFFSET, offset, exact=True)
        assert (found.end_offset, found.notes) == (offset, ())
    for offset in (6, 7, 8, 9):
        found = target(path, OFFSET, offset)
        assert found.end_offset == 5
        assert "batch with offsets 5 to 9 (position 180522 of " in found.notes[0]
        with pytest.raises(RefusedError, match=r"offsets 5 to 9 \(position 180522 of ") as caught:
            target(path, OFFSET, offset, exact=True)
        assert "--to-offset 5, --to-offset 10" in caught.value.next_step
    # A wrapper tells its last offset only.
    path = golden("kafka-0.10.2-legacy") / "v1-gzip-0"
    assert target(path, OFFSET, 48, exact=True).end_offset == 48
    with pytest.raises(RefusedError, match="offsets 48 to 59"):
        target(path, OFFSET, 53, exact=True)


# --- leader epochs --------------------------------------------------------------------------------

EPOCHS_135 = [LeaderEpochEntry(1, 0), LeaderEpochEntry(3, 10), LeaderEpochEntry(5, 30)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, None),
        (0, EpochEnd(0, 0)),
        (1, EpochEnd(1, 10)),
        (2, EpochEnd(1, 10)),
        (3, EpochEnd(3, 30)),
        (4, EpochEnd(3, 30)),
        (5, EpochEnd(5, 50)),
        (6, None),
    ],
)
def test_epoch_ends(epoch: int, expected: EpochEnd | None) -> None:
    assert find_epoch_end(EPOCHS_135, epoch, 50) == expected


def test_epoch_ends_at_odd_places() -> None:
    assert find_epoch_end([], 0, 50) is None
    assert find_epoch_end(EPOCHS_135, 3, 20) == EpochEnd(3, 20)  # a stale entry above the end


def test_common_ends() -> None:
    def entries(*pairs: tuple[int, int]) -> list[LeaderEpochEntry]:
        return [LeaderEpochEntry(*each) for each in pairs]

    assert find_common_end(entries((0, 0)), 37, entries((0, 0), (1, 36)), 40) == 36
    assert find_common_end(entries((0, 0), (2, 36)), 40, entries((0, 0), (1, 36)), 50) == 36
    assert find_common_end(entries((0, 0), (1, 36)), 36, entries((0, 0)), 36) == 36
    assert find_common_end(entries((0, 0), (2, 10)), 30, entries((1, 3), (2, 10)), 25) == 25
    assert find_common_end(entries((0, 0)), 30, entries((1, 0)), 25) is None


def test_leader_epochs(golden: Callable[[str], Path]) -> None:
    """`txn-0` got a second epoch at its end when its broker was restarted; div-0 has data of two."""
    root = golden("kafka-4.3.1-three-brokers")
    path = root / "after" / "broker-1" / "div-0"
    found = target(path, EPOCH, 0)
    assert (found.offset, found.end_offset, found.notes) == (36, 36, ())
    assert target(path, EPOCH, 1).cut.is_nothing
    with pytest.raises(RefusedError, match="latest leader epoch is 1") as caught:
        target(path, EPOCH, 2)
    assert "eoctl rebuild" in caught.value.next_step
    # Where a replica says that the epoch ends earlier, it does (EPOCH-7).
    diverged = root / "diverged"
    second = open_partition(diverged / "broker-2" / "div-0")
    found = target(diverged / "broker-1" / "div-0", EPOCH, 0, replicas=(second,))
    assert found.offset == 36
    assert "the two diverge at 36: the target is that instead of 73" in found.notes[0]
    found = target(path, EPOCH, 1, replicas=(open_partition(diverged / "broker-1" / "div-0"),))
    assert found.offset == 66
    assert "cannot say where leader epoch 1 ends" in found.notes[0]


def test_epochs_that_are_not_known(golden: Callable[[str], Path], tmp_path: Path) -> None:
    path = copy_log_dir(golden("kafka-4.3.1") / "crash", tmp_path, "txn-0") / "txn-0"
    (path / EPOCHS).write_text("0\n2\n1 0\n3 100\n")
    assert target(path, EPOCH, 1).offset == 100
    found = target(path, EPOCH, 2)
    assert found.offset == 100
    assert "leader epoch 2 is unknown here" in found.notes[0]
    found = target(path, EPOCH, 0)
    assert found.offset == 0
    assert "leader epoch 0 is unknown here" in found.notes[0]
    for content in ("", "0\n0\n", "0\n1\nx 0\n", "0\n2\n1 0\n0 5\n"):
        (path / EPOCHS).write_text(content)
        with pytest.raises(RefusedError) as caught:
            target(path, EPOCH, 1)
        assert caught.value.next_step == f"eoctl rebuild {path}"
    (path / EPOCHS).unlink()
    with pytest.raises(RefusedError, match="missing or empty"):
        target(path, EPOCH, 1)
    # To compare with such a replica is not possible.
    other = golden("kafka-4.3.1") / "clean" / "txn-0"
    found = target(other, HW, replicas=(open_partition(path),))
    assert "knows no leader epochs" in found.notes[0]


# --- times ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain-0", "rolled-0", "txn-0", "append-time-0"])
def test_times(name: str, golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "crash" / name
    records = []
    for log in sorted(path.glob("*.log")):
        with open_segment(log) as segment:
            for batch in segment.scan():
                records += [
                    (each.offset, each.timestamp_ms, batch.header.base_offset)
                    for each in segment.records(batch)
                ]
    times = sorted({each[1] for each in records})
    for time_ms in [*times[:: max(len(times) // 9, 1)], times[0] - 5, times[-1]]:
        offset, _, base_offset = next(each for each in records if each[1] >= time_ms)
        found = target(path, TIME, time_ms)
        assert (found.offset, found.end_offset) == (offset, base_offset)
        assert "earlier timestamps are removed, too" in found.notes[0]
    found = target(path, TIME, times[-1] + 1)
    assert found.cut.is_nothing
    assert found.notes[0] == "no record has that timestamp or a later timestamp"
