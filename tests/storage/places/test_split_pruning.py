"""Leaving out pieces: never one with a batch in range, and those that are surely out of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.rebuild.index_builder import IndexBuilder
from storage.dirs.lookup import DoubtfulOffsets
from storage.formats import time_index
from storage.formats.record import Record
from storage.kernels.numpy_kernel import table_of
from storage.places.list_places import list_places, open_place
from storage.places.splits import SearchBounds, Split, prune_splits, split_places, splits_at
from tests.batches import encoded_batch
from tests.drawn import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def batch(base_offset: int, count: int, max_timestamp_ms: int) -> bytes:
    records = [Record(0, 0, delta, None, b"v" * 20, ()) for delta in range(count)]
    return encoded_batch(
        base_offset,
        records,
        base_timestamp_ms=max_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
    )


def write_log(directory: Path, segments: Sequence[Sequence[tuple[int, int]]]) -> list[Split]:
    """Segments of (records, timestamp) batches with all their indexes, cut at every batch."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    offset = 0
    for batches in segments:
        base_offset, data = offset, b""
        for count, timestamp_ms in batches:
            data += batch(offset, count, timestamp_ms)
            offset += count
        path = directory / f"{base_offset:020d}.log"
        path.write_bytes(data)
        builder = IndexBuilder(base_offset, 0)
        with open_place(str(path)) as segment:
            builder.add(table_of(segment.scan()))
        built = builder.finish()
        path.with_suffix(".index").write_bytes(built.offset_index)
        path.with_suffix(".timeindex").write_bytes(built.time_index)
    return split_places(list_places([str(directory)]).places, 1)


def in_range(splits: Sequence[Split], bounds: SearchBounds) -> set[tuple[str, int]]:
    """(segment, position) of every batch in range, by a walk over everything."""
    found = set()
    for place in {each.place for each in splits}:
        with open_place(place) as segment:
            scan = segment.scan(is_active=place.is_active)
            rows = list(scan)
            doubtful = DoubtfulOffsets(scan).positions
        for row in rows:
            header = row.header
            if (
                row.crc_ok
                and row.pos not in doubtful
                and (bounds.min_offset is None or header.last_offset >= bounds.min_offset)
                and (bounds.max_offset is None or header.base_offset <= bounds.max_offset)
                and (
                    bounds.min_timestamp_ms is None
                    or header.max_timestamp_ms >= bounds.min_timestamp_ms
                )
            ):
                found.add((place.path, row.pos))
    return found


def lost(splits: Sequence[Split], bounds: SearchBounds) -> set[tuple[str, int]]:
    """The batches in range that no split is kept for."""
    kept = prune_splits(splits, bounds)
    assert kept == [each for each in splits if each in kept]
    return {
        (path, pos)
        for path, pos in in_range(splits, bounds)
        if not any(
            each.place.path == path
            and each.start_pos <= pos
            and (each.is_last or pos < each.end_pos)
            for each in kept
        )
    }


# Three segments of ten batches with ten records: offsets 0, 100, 200; times grow by 10.
GROWING = [[(10, 1_000 * n + 10 * m) for m in range(10)] for n in range(1, 4)]


def kept_places(splits: Sequence[Split], bounds: SearchBounds) -> dict[int, list[int]]:
    """Base offset of a segment -> numbers of its batches that are kept."""
    found: dict[int, list[int]] = {}
    for each in prune_splits(splits, bounds):
        size = each.place.file_bytes // 10
        found.setdefault(each.place.base_offset, []).append(each.start_pos // size)
    return found


ALL = list(range(10))


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        (SearchBounds(), {0: ALL, 100: ALL, 200: ALL}),
        (SearchBounds(min_offset=0, max_offset=10**9), {0: ALL, 100: ALL, 200: ALL}),
        (SearchBounds(min_offset=100), {100: ALL, 200: ALL}),
        (SearchBounds(min_offset=99), {0: [9], 100: ALL, 200: ALL}),
        (SearchBounds(max_offset=99), {0: ALL}),
        (SearchBounds(max_offset=100), {0: ALL, 100: [0]}),
        (SearchBounds(min_offset=130, max_offset=149), {100: [3, 4]}),
        (SearchBounds(min_offset=139, max_offset=150), {100: [3, 4, 5]}),
        (SearchBounds(min_offset=150, max_offset=150), {100: [5]}),
        (SearchBounds(min_offset=295), {200: [9]}),
        (SearchBounds(min_offset=10**9), {200: [9]}),  # it may have grown
        (SearchBounds(max_offset=-1), {}),
        (SearchBounds(min_timestamp_ms=0), {0: ALL, 100: ALL, 200: ALL}),
        (SearchBounds(min_timestamp_ms=2_000), {100: ALL, 200: ALL}),
        (
            SearchBounds(min_timestamp_ms=2_001),
            {100: ALL, 200: ALL},
        ),  # no entry for the first batch
        (SearchBounds(min_timestamp_ms=2_011), {100: ALL[2:], 200: ALL}),
        (SearchBounds(min_timestamp_ms=2_090), {100: [9], 200: ALL}),
        (SearchBounds(min_timestamp_ms=2_091), {200: ALL}),
        (SearchBounds(min_timestamp_ms=3_050), {200: [5, 6, 7, 8, 9]}),
        (SearchBounds(min_timestamp_ms=9_999), {200: [9]}),
        (SearchBounds(min_offset=140, min_timestamp_ms=2_060), {100: [6, 7, 8, 9], 200: ALL}),
        (SearchBounds(max_timestamp_ms=1), {0: ALL, 100: ALL, 200: ALL}),
    ],
)
def test_what_is_left(tmp_path: Path, bounds: SearchBounds, kept: dict[int, list[int]]) -> None:
    splits = write_log(tmp_path / "t-0", GROWING)
    assert len(splits) == 30
    assert kept_places(splits, bounds) == kept
    assert lost(splits, bounds) == set()


def test_the_order_stays(tmp_path: Path) -> None:
    splits = write_log(tmp_path / "t-0", GROWING)[::-1]
    found = prune_splits(splits, SearchBounds(min_offset=95, max_offset=205))
    assert found == [each for each in splits if each in found]
    assert len(found) == 12


def test_partitions_are_apart(tmp_path: Path) -> None:
    """The end of a segment is known from the next one of the same directory only."""
    first = write_log(tmp_path / "t-0", GROWING[:1])
    second = write_log(tmp_path / "t-1", GROWING)
    assert {
        each.place.partition for each in prune_splits([*first, *second], SearchBounds(120))
    } == {0, 1}
    found = prune_splits([*first, *second], SearchBounds(120))
    assert [each.start_pos for each in found if each.place.partition == 0] == [first[-1].start_pos]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"", b"\xff" * 96, bytes(960), b"\0\0\0\7" * 24])
def test_without_good_indexes_pieces_stay(
    tmp_path: Path, suffix: str, content: bytes | None
) -> None:
    splits = write_log(tmp_path / "t-0", GROWING)
    for path in (tmp_path / "t-0").glob(f"*{suffix}"):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    for bounds in (
        SearchBounds(min_offset=135, max_offset=165), SearchBounds(min_timestamp_ms=2_055),
        SearchBounds(min_offset=135, min_timestamp_ms=2_055), SearchBounds(min_timestamp_ms=9_999),
    ):  # fmt: skip
        assert lost(splits, bounds) == set()
    kept = kept_places(splits, SearchBounds(min_offset=135, max_offset=165))
    assert kept == {100: ALL if suffix == ".index" else [3, 4, 5, 6]}


def test_a_segment_that_cannot_be_opened_stays(tmp_path: Path) -> None:
    splits = write_log(tmp_path / "t-0", GROWING)
    (tmp_path / "t-0" / f"{100:020d}.log").unlink()
    assert kept_places(splits, SearchBounds(150, 160)) == {100: ALL}
    assert kept_places(splits, SearchBounds(min_timestamp_ms=2_050)) == {100: ALL, 200: ALL}


def test_boundaries_given_by_hand_stay_in_doubt(tmp_path: Path) -> None:
    splits = write_log(tmp_path / "t-0", GROWING)
    place = splits[10].place
    size = place.file_bytes // 10
    pieces = splits_at(place, [0, 2 * size, 5 * size + 1, 8 * size])
    bounds = SearchBounds(min_offset=185)
    assert [each.start_pos for each in prune_splits(pieces, bounds)] == [8 * size]
    bounds = SearchBounds(min_offset=125, max_offset=155)
    assert prune_splits(pieces, bounds) == pieces[1:3]
    bounds = SearchBounds(max_offset=130)
    assert prune_splits(pieces, bounds) == pieces[:3]


def test_an_older_batch_behind_a_newer_one_leaves_nothing_out(tmp_path: Path) -> None:
    """Times of creation come in any order; the time index tells the maximum so far."""
    batches = [(1, 50), (1, 90), (1, 10), (1, 20), (1, 60), (1, 95), (1, 5)]
    splits = write_log(tmp_path / "t-0", [batches, batches])
    for least in range(0, 100, 5):
        assert lost(splits, SearchBounds(min_timestamp_ms=least)) == set()
    size = splits[0].place.file_bytes // 7
    kept = prune_splits(splits[:7], SearchBounds(min_timestamp_ms=92))
    assert [each.start_pos // size for each in kept] == [2, 3, 4, 5, 6]


def test_a_time_index_that_has_lost_its_end(tmp_path: Path) -> None:
    splits = write_log(tmp_path / "t-0", GROWING)
    path = tmp_path / "t-0" / f"{100:020d}.timeindex"
    whole = path.read_bytes()
    for count in range(len(whole) // 12):
        path.write_bytes(whole[: 12 * count])
        for least in (2_000, 2_045, 2_090, 2_091):
            assert lost(splits, SearchBounds(min_timestamp_ms=least)) == set()
    path.write_bytes(whole[:60])
    assert 100 not in kept_places(splits, SearchBounds(min_timestamp_ms=2_091))


def test_damage_behind_the_last_entry_of_a_time_index(tmp_path: Path) -> None:
    """What a broken length hides may be newer."""
    batches = [(1, 50), (1, 60), (1, 10), (1, 10), (1, 90)]
    splits = write_log(tmp_path / "t-0", [batches, [(1, 1)]])
    log, times = (tmp_path / "t-0" / f"{0:020d}{suffix}" for suffix in (".log", ".timeindex"))
    data = bytearray(log.read_bytes())
    times.write_bytes(times.read_bytes()[:12])  # (60, offset 1) is left
    data[3 * (len(data) // 5) + 8] = 0xFF  # a negative length
    log.write_bytes(data)
    for least in (61, 70, 90):
        assert lost(splits, SearchBounds(min_timestamp_ms=least)) == set()
        assert 0 in {
            each.place.base_offset for each in prune_splits(splits, SearchBounds(None, None, least))
        }


def test_a_time_index_that_is_not_borne_out(tmp_path: Path) -> None:
    """Of another log: its entries are below the times of this one."""
    splits = write_log(tmp_path / "t-0", GROWING)
    path = tmp_path / "t-0" / f"{100:020d}.timeindex"
    entry = time_index.TimeIndexEntry
    for entries in (
        [entry(7, 99)],
        [entry(7, 49)],
        [entry(1, 9), entry(2, 59)],
        [entry(7, 10_000)],
    ):
        path.write_bytes(time_index.encode_entries(entries))
        assert kept_places(splits, SearchBounds(min_timestamp_ms=1_500)) == {100: ALL, 200: ALL}


def test_a_damaged_batch_bears_nothing_out(tmp_path: Path) -> None:
    splits = write_log(tmp_path / "t-0", GROWING)
    assert kept_places(splits, SearchBounds(min_timestamp_ms=2_055))[100] == [6, 7, 8, 9]
    path = tmp_path / "t-0" / f"{100:020d}.log"
    data = bytearray(path.read_bytes())
    data[5 * (len(data) // 10) + 100] ^= 1
    path.write_bytes(data)
    assert kept_places(splits, SearchBounds(min_timestamp_ms=2_055))[100] == [5, 6, 7, 8, 9]


def test_the_offset_of_a_batch_is_covered_by_no_checksum(tmp_path: Path) -> None:
    """A wrong base offset is found by the index, which tells another last offset."""
    splits = write_log(tmp_path / "t-0", GROWING)
    path = tmp_path / "t-0" / f"{100:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 10
    data[5 * size + 5] ^= 1  # 65,536 more
    path.write_bytes(data)
    for bounds in (
        SearchBounds(max_offset=165),
        SearchBounds(min_offset=165),
        SearchBounds(160, 170),
    ):
        assert lost(splits, bounds) == set()
    data[5 * size + 5] ^= 1
    data[5 * size + 7] ^= 64  # below those before it
    path.write_bytes(data)
    for bounds in (
        SearchBounds(max_offset=165),
        SearchBounds(min_offset=115),
        SearchBounds(100, 110),
    ):
        assert lost(splits, bounds) == set()


batches_of_logs = st.lists(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60)), max_size=9), min_size=1, max_size=3
)
bounds_of_logs = st.builds(
    SearchBounds,
    min_offset=st.one_of(st.none(), st.integers(-1, 40)),
    max_offset=st.one_of(st.none(), st.integers(-1, 40)),
    min_timestamp_ms=st.one_of(st.none(), st.integers(-1, 62)),
    max_timestamp_ms=st.one_of(st.none(), st.integers(-1, 62)),
)


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segments=batches_of_logs, bounds=st.lists(bounds_of_logs, min_size=1, max_size=4))
def test_no_batch_in_range_is_lost(
    tmp_path: Path, segments: list[list[tuple[int, int]]], bounds: list[SearchBounds]
) -> None:
    splits = write_log(tmp_path / "t-0", [each for each in segments if each] or [[(1, 1)]])
    for each in bounds:
        assert lost(splits, each) == set()


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segments=batches_of_logs, bounds=bounds_of_logs, data=st.data())
def test_none_is_lost_by_damage(
    tmp_path: Path, segments: list[list[tuple[int, int]]], bounds: SearchBounds, data: Any
) -> None:
    """Bytes of logs and offset indexes are changed after the cut, ends of time indexes lost."""
    splits = write_log(tmp_path / "t-0", [each for each in segments if each] or [[(1, 1)]])
    for _ in range(data.draw(st.integers(1, 3))):
        paths = sorted(each for each in (tmp_path / "t-0").iterdir() if each.stat().st_size)
        path = data.draw(st.sampled_from(paths))
        content = bytearray(path.read_bytes())
        pos = data.draw(st.integers(0, len(content) - 1))
        if path.suffix == ".timeindex":
            del content[pos:]
        else:
            content[pos] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
    assert lost(splits, bounds) == set()


@pytest.mark.exhaustive
def test_golden_logs(golden: Callable[[str], Path], golden_names: list[str]) -> None:
    left_out_count = 0
    for name in golden_names:
        log_dirs = {str(each.parent.parent) for each in golden(name).rglob("*.log")}
        places = [place for each in sorted(log_dirs) for place in list_places([each]).places]
        splits = split_places(places, 10_000)
        times, offsets = set(), {0}
        for place in places[::7]:
            with open_place(place) as segment:
                headers = [each.header for each in segment.scan(is_active=place.is_active)]
            times |= {each.max_timestamp_ms + more for each in headers[::200] for more in (0, 1)}
            offsets |= {each.base_offset for each in headers[::200]}
        some_times = sorted(times)[:: max(1, len(times) // 4)]
        some_offsets = sorted(offsets)[:: max(1, len(offsets) // 4)]
        for bounds in (
            *(SearchBounds(min_timestamp_ms=each) for each in some_times),
            *(SearchBounds(min_offset=each, max_offset=each + 50) for each in some_offsets),
        ):
            assert lost(splits, bounds) == set()
            left_out_count += len(splits) - len(prune_splits(splits, bounds))
    assert left_out_count > 0
