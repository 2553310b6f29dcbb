"""A replica's log at run time: led, followed, cut, killed and started again."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.nodes.power_loss import ForgettingFileSystem
from eoctl.lab.nodes.running_log import RECENT_COUNT, LogTerms, RunningLog, RunningLogDir
from storage.dirs.topic_settings import LogConfig
from storage.file_names import TopicPartition
from storage.formats.checkpoint import LeaderEpochEntry
from storage.producers.producer_state import AppendError
from storage.writing.partition_store import FlushPolicy
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from tests.writing import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path


AT_MS = 1_700_000_000_000
T0 = TopicPartition("t", 0)
BATCH_OFFSET = Struct(">q")


def terms(path: Path, *, segment_bytes: int = 1 << 20) -> LogTerms:
    config = LogConfig(segment_bytes=segment_bytes)
    return LogTerms(ForgettingFileSystem(path), config, lambda: AT_MS, FlushPolicy.SEGMENT)


def batch(*values: str, sequence: int | None = None) -> bytes:
    builder = BatchBuilder()
    for each in values:
        builder.add(None, each.encode(), AT_MS)
    return builder.build(None if sequence is None else ProducerIdentity(7, 0, sequence))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = make_log_dir(tmp_path / "log-dir")
    (path / "t-0").mkdir()
    return path


def test_what_is_led_is_followed_byte_for_byte(log_dir: Path, tmp_path: Path) -> None:
    other = make_log_dir(tmp_path / "other")
    (other / "t-0").mkdir()
    leader = RunningLog(str(log_dir / "t-0"), terms(log_dir, segment_bytes=200))
    follower = RunningLog(str(other / "t-0"), terms(other, segment_bytes=300))
    for number in range(8):
        if number in {0, 5}:
            leader.begin_epoch(number)
        leader.append(batch(f"a{number}", f"b{number}"))
    while found := leader.read(follower.end_offset, leader.end_offset, 150):
        follower.follow(found)
    assert follower.end_offset == leader.end_offset == 16
    assert follower.epochs == (LeaderEpochEntry(0, 0), LeaderEpochEntry(5, 10)) == leader.epochs
    whole = [b"".join(each.read(0, 16, 1 << 20)) for each in (leader, follower)]
    assert whole[0] == whole[1]
    assert (leader.rolled_count, follower.rolled_count) == (3, 2)
    for each in (leader, follower):
        each.close()


def test_read_gives_whole_batches_below_an_end(log_dir: Path) -> None:
    log = RunningLog(str(log_dir / "t-0"), terms(log_dir))
    for number in range(4):
        log.append(batch(f"{number}", "second"))
    assert len(log.read(0, 8, 1)) == 1  # one at least
    assert len(log.read(3, 7, 1 << 20)) == 2  # 2 to 3, 4 to 5
    assert log.read(8, 8, 1 << 20) == []
    log.close()


def test_any_range_is_read_from_memory_and_from_segments_alike(log_dir: Path) -> None:
    count = RECENT_COUNT + 20
    log = RunningLog(str(log_dir / "t-0"), terms(log_dir, segment_bytes=500))
    log.begin_epoch(0)
    for number in range(count):
        log.append(batch(f"a{number}", f"b{number}"))
    assert log.rolled_count > 3
    whole = [each for offset in range(0, 2 * count, 2) for each in log.read(offset, offset + 2, 1)]
    assert [BATCH_OFFSET.unpack_from(each)[0] for each in whole] == [*range(0, 2 * count, 2)]
    log.close()
    reopened = RunningLog(str(log_dir / "t-0"), terms(log_dir, segment_bytes=500))
    for each in (log, reopened):
        for begin in (0, 1, 7, 2 * count - 40, 2 * count - 3, 2 * count - 2, 2 * count - 1):
            for end in (begin, begin + 1, begin + 2, begin + 41, 2 * count):
                first, last = begin // 2, min(end // 2, count)
                assert each.read(begin, end, 1 << 20) == whole[first : max(first, last)]
    assert reopened.read(2, 2 * count, 3 * len(whole[1])) == whole[1:4]
    reopened.abandon()


def test_a_cut_takes_epochs_and_producers_with_it(log_dir: Path) -> None:
    log = RunningLog(str(log_dir / "t-0"), terms(log_dir, segment_bytes=200))
    for number in range(6):
        if number in {0, 4}:
            log.begin_epoch(number)
        log.append(batch(f"{number}", sequence=number))
    assert log.cut(3) == 3
    assert log.epochs == (LeaderEpochEntry(0, 0),)
    assert log.append(batch("again", sequence=3)).base_offset == 3
    with pytest.raises(AppendError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        log.append(batch("gap", sequence=9))
    assert log.cut(9) == 4
    log.close()


def test_what_was_killed_is_whole_and_what_lost_power_is_not(log_dir: Path) -> None:
    chosen = terms(log_dir)
    log = RunningLog(str(log_dir / "t-0"), chosen)
    log.append(batch("synced"))
    log.sync()
    log.append(batch("not synced"))
    log.abandon()
    again = RunningLog(str(log_dir / "t-0"), chosen)
    assert (again.end_offset, again.started) == (2, "")
    again.abandon()
    assert isinstance(chosen.fs, ForgettingFileSystem)
    chosen.fs.lose_power(lambda _: 0)
    after = RunningLog(str(log_dir / "t-0"), chosen)
    assert after.end_offset == 1
    after.close()


def test_a_cut_takes_an_epoch_that_nothing_was_appended_in(log_dir: Path) -> None:
    """Else a follower that led for a moment is told to cut there for ever."""
    log = RunningLog(str(log_dir / "t-0"), terms(log_dir))
    log.begin_epoch(0)
    log.append(batch("a", "b"))
    log.begin_epoch(1)
    assert log.epochs == (LeaderEpochEntry(0, 0), LeaderEpochEntry(1, 2))
    assert log.cut(2) == 2
    assert log.epochs == (LeaderEpochEntry(0, 0),)
    assert log.cut(9) == 2
    assert log.append(batch("c")).base_offset == 2
    log.close()


def test_a_torn_end_is_cut_off_and_told(log_dir: Path) -> None:
    log = RunningLog(str(log_dir / "t-0"), terms(log_dir))
    log.append(batch("whole"))
    log.abandon()
    path = log_dir / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + b"torn")
    again = RunningLog(str(log_dir / "t-0"), terms(log_dir))
    assert again.end_offset == 1
    assert again.started.startswith("4 bytes cut off")
    again.close()


def test_an_epoch_at_the_end_is_dropped_by_a_start(log_dir: Path) -> None:
    log = RunningLog(str(log_dir / "t-0"), terms(log_dir))
    log.begin_epoch(0)
    log.append(batch("first"))
    log.begin_epoch(3)
    log.abandon()
    again = RunningLog(str(log_dir / "t-0"), terms(log_dir))
    assert again.epochs == (LeaderEpochEntry(0, 0),)
    again.close()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: data[:-1], "CORRUPT_MESSAGE"),
        (lambda data: data[:-1] + b"!", "CORRUPT_MESSAGE"),
        (lambda data: data, "OFFSETS_OUT_OF_ORDER"),
    ],
)
def test_a_follower_refuses_what_its_leader_cannot_have(
    log_dir: Path, change: object, error: str
) -> None:
    log = RunningLog(str(log_dir / "t-0"), terms(log_dir))
    log.append(batch("first"))
    (data,) = log.read(0, 1, 1000)
    assert callable(change)
    with pytest.raises(AppendError, match=error):
        log.follow([change(data)])
    log.close()


def test_a_clean_stop_leaves_what_a_start_goes_on_from(log_dir: Path) -> None:
    chosen = terms(log_dir)
    running = RunningLogDir(str(log_dir), [T0], chosen)
    assert not running.was_clean
    running.replicas[T0].append(batch("first"))
    running.checkpoint_high_watermarks({T0: 1})
    running.close({T0: 1}, broker_epoch=17)
    again = RunningLogDir(str(log_dir), [T0], chosen)
    assert (again.was_clean, again.stopped_epoch) == (True, 17)
    assert again.high_watermarks == {T0: 1}
    assert not (log_dir / ".kafka_cleanshutdown").exists()
    again.abandon()
    assert not RunningLogDir(str(log_dir), [T0], chosen).was_clean
