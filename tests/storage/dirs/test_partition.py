"""Partitions: listing, start and end, look-up with and without indexes, ranges, a live broker."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.dirs.partition_files import list_partition
from storage.errors import AccessError, CorruptError
from storage.formats.offset_index import OffsetIndexEntry, encode_entries
from storage.formats.record import Record
from storage.kernels.protocol import VerdictKind
from tests.batches import encoded_batch
from tests.drawn import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STATES = ["crash", "clean", "recovered", "hard", "hard-clean", "tv2", "tv2-clean"]


def open_partition(path: Path) -> Partition:
    (selected,) = discover([path]).selected
    return Partition.of(selected)


def partitions_of(path: Path) -> Iterator[Partition]:
    for selected in discover([path]).selected:
        yield Partition.of(selected)


def dump_of(golden: Callable[[str], Path], archive: str, partition: Partition) -> list[str]:
    """Lines of kafka-dump-log about all segments of a partition."""
    state = partition.path.split(f"/{archive}/", 1)[1]
    directory = golden(f"{archive}.dump") / state
    lines = []
    for path in sorted(directory.glob("*.log.txt")):
        lines += path.read_text("utf-8", "replace").splitlines()
    return lines


def records_in(lines: list[str]) -> list[tuple[int, int]]:
    """Offset and timestamp of each record line."""
    pattern = re.compile(r"\| offset: (\d+) \w+: (-?\d+) ")
    return [(int(m[1]), int(m[2])) for m in map(pattern.match, lines) if m]


@pytest.mark.share(3)
@pytest.mark.parametrize("state", STATES)
def test_log_end_is_where_the_dump_ends(golden: Callable[[str], Path], state: str) -> None:
    checked = 0
    for partition in partitions_of(golden("kafka-4.3.1") / state):
        lines = dump_of(golden, "kafka-4.3.1", partition)
        last_offsets = [
            int(m)
            for m in re.findall(
                r"^baseOffset: \d+ lastOffset: (\d+)", "\n".join(lines), re.MULTILINE
            )
        ]
        end = partition.log_end()
        assert end is not None
        assert end.offset == (last_offsets[-1] + 1 if last_offsets else 0), partition.path
        assert end.verdict.kind is VerdictKind.OK
        assert end.valid_bytes == partition.segments[-1].log.file_bytes
        checked += bool(last_offsets)
    assert checked > 15


def test_log_end_of_legacy_logs(golden: Callable[[str], Path]) -> None:
    for partition in partitions_of(golden("kafka-0.10.2-legacy")):
        end = partition.log_end()
        assert end is not None
        assert end.offset == partition.high_watermark


def test_listing(golden: Callable[[str], Path]) -> None:
    partition = open_partition(golden("kafka-4.3.1") / "clean" / "rolled-0")
    assert [each.base_offset for each in partition.segments] == [0, 25, 50]
    assert [each.name.offset for each in partition.files.snapshots] == [25, 50, 60]
    first, second, third = partition.segments
    assert first.snapshot is None
    assert second.snapshot is not None
    assert third.offset_index is not None
    assert third.txn_index is None
    assert partition.log_start_offset == 0
    assert partition.high_watermark == 60
    epochs = partition.leader_epochs()
    assert epochs is not None
    assert epochs[0] == (0, 0)
    assert partition.problems == []


def test_listing_of_unfinished_business(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    for name in (
        "00000000000000000005.log",
        "00000000000000000005.log.swap",
        "00000000000000000000.log.deleted",
        "00000000000000000009.index",
        "00000000000000000009.snapshot",
        "00000000000000000003-0000000001.checkpoint",
        "5.log",
        "server.log",
        "leader-epoch-checkpoint.tmp",
    ):
        (directory / name).touch()
    (directory / "00000000000000000007.log").mkdir()
    (directory / "00000000000000000008.log").symlink_to(tmp_path / "nowhere")
    (directory / "leader-epoch-checkpoint").mkdir()
    files = list_partition(directory)
    assert [each.base_offset for each in files.segments] == [5]
    assert [each.name.offset for each in files.orphans] == [9]
    assert [each.name.offset for each in files.snapshots] == [9]
    assert [each.name.offset for each in files.checkpoints] == [3]
    assert len(files.others) == 5
    foreign = [each for each in files.problems if isinstance(each, CorruptError)]
    assert {each.check_id for each in foreign} == {"DIR-9"}
    assert {each.path.rpartition("/")[2] for each in foreign} == {"5.log", "server.log"}
    others = [each for each in files.problems if isinstance(each, AccessError)]
    found = [each.path.rpartition("/")[2] for each in others]
    assert sorted(found) == [*(f"{each:020d}.log" for each in (7, 8)), "leader-epoch-checkpoint"]


def test_no_segments(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "meta.properties").touch()
    partition = open_partition(tmp_path / "t-0")
    assert partition.log_start_offset is None
    assert partition.log_end() is None
    assert partition.find_offset(0) is None
    assert partition.find_timestamp(0) is None
    assert list(partition.read(0)) == []
    assert partition.leader_epochs() is None


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(AccessError):
        list_partition(tmp_path / "t-0")


# --- look-up --------------------------------------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["crash", "tv2-clean", "hard-clean"])
def test_every_offset_is_found(golden: Callable[[str], Path], state: str) -> None:
    used_index = 0
    for partition in partitions_of(golden("kafka-4.3.1") / state):
        batches = [(each.files.base_offset, each.batch) for each in partition.read(0)]
        end = partition.log_end()
        assert end is not None
        offsets = range(0, end.offset, max(1, end.offset // 40))
        for offset in [*offsets, *(each.header.last_offset for _, each in batches[-2:])]:
            place = partition.find_offset(offset)
            assert place is not None
            expected = next(each for each in batches if each[1].header.last_offset >= offset)
            assert (place.files.base_offset, place.batch) == expected
            used_index += place.via_index
        assert partition.find_offset(end.offset) is None
    assert used_index > 50


@pytest.mark.parametrize(
    "name", ["txn-0", "rolled-0", "append-time-0", "idem-gzip-0", "compacted-0"]
)
@pytest.mark.parametrize("state", ["crash", "clean"])
def test_every_time_is_found_as_the_dump_says(
    golden: Callable[[str], Path], state: str, name: str
) -> None:
    partition = open_partition(golden("kafka-4.3.1") / state / name)
    records = records_in(dump_of(golden, "kafka-4.3.1", partition))
    assert records
    times = sorted({time for _, time in records})
    wanted = times[:: max(1, len(times) // 25)]
    for time in [times[0] - 1, *wanted, *(each + 1 for each in wanted), times[-1]]:
        place = partition.find_timestamp(time)
        expected = next((each for each in records if each[1] >= time), None)
        assert (None if place is None else (place.offset, place.timestamp_ms)) == expected
    assert partition.find_timestamp(times[-1] + 1) is None


def test_time_look_up_begins_at_the_log_start(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "plain-0", tmp_path / "plain-0")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nplain 0 100\n")
    partition = open_partition(tmp_path / "plain-0")
    assert partition.log_start_offset == 100
    place = partition.find_timestamp(0)
    assert place is not None
    assert place.offset == 100


def test_legacy_look_up(golden: Callable[[str], Path]) -> None:
    for name in ("v0-gzip-0", "v1-snappy-0", "v1-none-0"):
        partition = open_partition(golden("kafka-0.10.2-legacy") / name)
        batches = [each.batch for each in partition.read(0)]
        for offset in range(batches[-1].header.last_offset + 1):
            place = partition.find_offset(offset)
            assert place is not None
            assert place.batch == next(b for b in batches if b.header.last_offset >= offset)


# --- made logs ------------------------------------------------------------------------------------


def batch(offset: int, *, count: int = 1, timestamp_ms: int = 0, value: bytes = b"v") -> bytes:
    records = [Record(0, 0, delta, None, value, ()) for delta in range(count)]
    return encoded_batch(
        offset, records, base_timestamp_ms=timestamp_ms, max_timestamp_ms=timestamp_ms
    )


def make_partition(path: Path, *segments: tuple[int, int]) -> Partition:
    """Segments as (base offset, number of batches); every batch has one record at time = offset."""
    path.mkdir()
    for base_offset, count in segments:
        data = b"".join(
            batch(offset, timestamp_ms=offset) for offset in range(base_offset, base_offset + count)
        )
        (path / f"{base_offset:020d}.log").write_bytes(data)
    return open_partition(path)


BATCH_BYTES = len(batch(0))


def write_index(path: Path, *entries: tuple[int, int]) -> None:
    path.write_bytes(encode_entries([OffsetIndexEntry(*each) for each in entries]))


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.integers(-5, 60), st.integers(-3, 60)), max_size=6), st.booleans())
def test_no_index_can_mislead(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, int]], scaled: bool
) -> None:
    root = tmp_path_factory.mktemp("misleading")
    make_partition(root / "t-0", (0, 40))
    positions = [(offset, pos * (BATCH_BYTES if scaled else 61)) for offset, pos in entries]
    write_index(root / "t-0" / f"{0:020d}.index", *positions)
    partition = open_partition(root / "t-0")
    for offset in (0, 1, 17, 38, 39):
        place = partition.find_offset(offset)
        assert place is not None
        assert place.batch.header.base_offset == offset
    assert partition.find_offset(40) is None
    end = partition.log_end()
    assert end is not None
    assert end.offset == 40


def test_good_index_is_used(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 40))
    write_index(
        tmp_path / "t-0" / f"{0:020d}.index", (10, 10 * BATCH_BYTES), (30, 30 * BATCH_BYTES)
    )
    partition = open_partition(tmp_path / "t-0")
    place = partition.find_offset(35)
    assert place is not None
    assert place.via_index
    place = partition.find_offset(9)
    assert place is not None
    assert not place.via_index
    end = partition.log_end()
    assert end is not None
    assert (end.offset, end.start_pos) == (40, 10 * BATCH_BYTES)


def test_log_end_behind_an_index_that_points_beyond(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 10))
    write_index(tmp_path / "t-0" / f"{0:020d}.index", (5, 5 * BATCH_BYTES), (99, 99 * BATCH_BYTES))
    partition = open_partition(tmp_path / "t-0")
    end = partition.log_end()
    assert end is not None
    assert (end.offset, end.start_pos) == (10, 0)


def test_torn_tail_and_corrupt_batch(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 10))
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    path.write_bytes(data[:-5])
    end = partition.log_end()
    assert end is not None
    assert (end.offset, end.verdict.kind) == (9, VerdictKind.TORN_TAIL)
    data[5 * BATCH_BYTES + 61] ^= 1
    path.write_bytes(data)
    end = partition.log_end()
    assert end is not None
    assert (end.offset, end.verdict.kind, end.verdict.check_id) == (
        10,
        VerdictKind.CORRUPT,
        "BAT-1",
    )
    place = partition.find_offset(5)
    assert place is not None
    assert place.batch.crc_ok is False
    place = partition.find_offset(6)
    assert place is not None
    assert place.batch.header.base_offset == 6
    read = partition.read(3, 8)
    assert [each.batch.crc_ok for each in read] == [True, True, False, True, True]
    assert [verdict.check_id for _, verdict in read.verdicts] == ["BAT-1"]


def test_an_offset_that_cannot_be_right(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 10), (10, 10))
    for base in (0, 10):
        path = tmp_path / "t-0" / f"{base:020d}.log"
        data = bytearray(path.read_bytes())
        data[-BATCH_BYTES] ^= (
            0x10  # the highest byte of the last base offset: no checksum covers it
        )
        path.write_bytes(data)
    end = partition.log_end()
    assert end is not None
    assert (end.offset, end.verdict.check_id) == (19, "SEG-3")
    read = partition.read(0)
    assert len(list(read)) == 20
    assert read.next_offset == 19
    place = partition.find_offset(9)
    assert place is not None
    assert place.batch.header.base_offset == 10
    assert partition.find_offset(19) is None


def test_a_range_meets_what_reaches_into_the_next_segment(tmp_path: Path) -> None:
    """No checksum covers the offset; where the segment ends tells, as it does for a consumer."""
    partition = make_partition(tmp_path / "t-0", (0, 10), (10, 10))
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[7 - BATCH_BYTES] = 15  # of the last batch, which had 9
    path.write_bytes(data)
    read = partition.read(0)
    offsets = [(each.batch.header.base_offset, read.next_offset) for each in read]
    assert (15, 9) in offsets  # given as it is, and not counted
    assert [verdict.check_id for _, verdict in read.verdicts] == ["SEG-1"]
    place = partition.find_offset(9)
    assert place is not None
    assert place.batch.header.base_offset == 10


@pytest.mark.parametrize("has_index", [True, False])
def test_a_range_meets_damage_that_took_all_of_a_segment_from_its_start_on(
    tmp_path: Path, *, has_index: bool
) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 10), (10, 10))
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[: 5 * BATCH_BYTES] + b"\xa5" * 5 * BATCH_BYTES)
    if has_index:
        write_index(path.with_suffix(".index"), (2, 2 * BATCH_BYTES), (4, 4 * BATCH_BYTES))
        partition = open_partition(tmp_path / "t-0")
    read = partition.read(7)
    assert [each.batch.header.base_offset for each in read] == [*range(10, 20)]
    assert [(verdict.start_pos, verdict.end_pos) for _, verdict in read.verdicts] == [
        (5 * BATCH_BYTES, 10 * BATCH_BYTES)
    ]


def test_damage_is_told_once_where_a_segment_is_gone_while_it_is_read(tmp_path: Path) -> None:
    """The listing is made again at the end, and the last segment looked at again."""
    partition = make_partition(tmp_path / "t-0", (0, 5), (5, 5))
    path = tmp_path / "t-0" / f"{5:020d}.log"
    data = bytearray(path.read_bytes())
    data[BATCH_BYTES + 30] ^= 1
    path.write_bytes(data + b"\xa5" * 100)
    read = partition.read(0)
    found = [next(read).batch for _ in range(6)]
    (tmp_path / "t-0" / f"{0:020d}.log").unlink()
    found += [each.batch for each in read]
    assert [each.header.base_offset for each in found] == [*range(10)]
    assert [verdict.start_pos for _, verdict in read.verdicts] == [BATCH_BYTES, 5 * BATCH_BYTES]
    assert len(partition.notes) == 1


def test_an_empty_last_segment_ends_at_its_base(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 5), (5, 0))
    end = partition.log_end()
    assert end is not None
    assert end.offset == 5
    place = partition.find_offset(4)
    assert place is not None
    assert place.files.base_offset == 0
    assert partition.find_offset(5) is None


def test_gap_between_segments(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 5), (20, 5))
    place = partition.find_offset(10)
    assert place is not None
    assert place.batch.header.base_offset == 20
    assert [each.batch.header.base_offset for each in partition.read(3, 22)] == [3, 4, 20, 21]


def test_range_bounds(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 5), (5, 5), (10, 5))
    assert [each.batch.header.base_offset for each in partition.read(4, 11)] == [*range(4, 11)]
    assert [each.batch.header.base_offset for each in partition.read(5, 10)] == [*range(5, 10)]
    assert [each.batch.header.base_offset for each in partition.read(12)] == [12, 13, 14]
    assert list(partition.read(15)) == []
    assert list(partition.read(3, 3)) == []
    read = partition.read(0)
    values = [record.value for each in read for record in each.segment.records(each.batch)]
    assert values == [b"v"] * 15
    assert read.next_offset == 15


def test_time_look_up_skips_old_segments_only_if_their_index_holds(tmp_path: Path) -> None:
    from storage.formats.time_index import TimeIndexEntry
    from storage.formats.time_index import encode_entries as encode_times

    path = tmp_path / "t-0"
    make_partition(path, (0, 10), (10, 10))
    time_index = path / f"{0:020d}.timeindex"
    for entries in ([(9, 9)], [(3, 3)], [(3, 7)], [(9, 4)], [(2, 2), (1, 9)], []):
        time_index.write_bytes(encode_times([TimeIndexEntry(*each) for each in entries]))
        for time in (4, 5, 9, 10, 15):
            place = open_partition(path).find_timestamp(time)
            assert place is not None
            assert place.offset == time
    time_index.write_bytes(encode_times([TimeIndexEntry(9, 9)]))
    place = open_partition(path).find_timestamp(9)
    assert place is not None
    assert (place.offset, place.place.via_index) == (9, True)


def test_aborted_transactions(golden: Callable[[str], Path]) -> None:
    partition = open_partition(golden("kafka-4.3.1") / "clean" / "txn-0")
    found = partition.aborted_transactions(partition.segments[0])
    assert found
    assert all(each.first_offset < each.last_offset < 329 for each in found)
    plain = open_partition(golden("kafka-4.3.1") / "clean" / "plain-0")
    assert plain.aborted_transactions(plain.segments[0]) == []


def test_bad_leader_epochs_are_a_problem(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 1))
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n5\n")
    partition = open_partition(tmp_path / "t-0")
    assert partition.leader_epochs() is None
    (problem,) = partition.problems
    assert isinstance(problem, CorruptError)
    assert problem.path.endswith("leader-epoch-checkpoint")


# --- beside a broker ------------------------------------------------------------------------------


def test_segment_removed_while_reading(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 5), (5, 5), (10, 5))
    read = partition.read(0)
    first = next(read)
    assert first.batch.header.base_offset == 0
    (tmp_path / "t-0" / f"{0:020d}.log").unlink()
    (tmp_path / "t-0" / f"{5:020d}.log").unlink()
    # What is open goes on; the next segment is gone, the one behind it is not.
    assert [each.batch.header.base_offset for each in read] == [1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert len(partition.notes) == 1


def test_segment_rolled_while_reading(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 3))
    read = partition.read(0)
    next(read)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    with path.open("ab") as log:
        log.write(batch(3))
    (tmp_path / "t-0" / f"{4:020d}.log").write_bytes(batch(4))
    assert [each.batch.header.base_offset for each in read] == [1, 2, 3, 4]
    assert len(partition.notes) == 1


def test_look_up_after_a_segment_was_removed(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 5), (5, 5))
    (tmp_path / "t-0" / f"{0:020d}.log").unlink()
    place = partition.find_offset(2)
    assert place is not None
    assert place.batch.header.base_offset == 5
    assert len(partition.notes) == 1


def test_a_partition_that_vanishes(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0", (0, 5))
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(AccessError):
        partition.log_end()
    assert list(partition.read(0)) == []
    assert partition.problems
