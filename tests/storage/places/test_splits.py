"""Cutting segments: every start is where the plain walk from the first byte finds a batch."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recovery.rebuild.index_builder import IndexBuilder
from storage.formats.offset_index import OffsetIndexEntry, encode_entries, parse_entries
from storage.formats.record import Record
from storage.kernels.numpy_kernel import table_of
from storage.places.list_places import list_places, open_place
from storage.places.splits import Split, split_places
from tests.batches import encoded_batch
from tests.drawn import examples
from tests.made_logs import damaged_logs, logs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from storage.kernels.protocol import HeaderTable
    from storage.places.listing import SegmentPlace

LOG_NAME = "00000000000000000000.log"


def batch(offset: int, *values: bytes) -> bytes:
    records = [Record(0, 0, delta, None, value, ()) for delta, value in enumerate(values)]
    time_ms = 1_000 + offset
    return encoded_batch(offset, records, base_timestamp_ms=time_ms, max_timestamp_ms=time_ms)


def write_segment(
    directory: Path, data: bytes, entries: Sequence[tuple[int, int]] | None = None
) -> SegmentPlace:
    """A segment with the index that a broker would give it with index.interval.bytes=0."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / LOG_NAME).write_bytes(data)
    (place,) = list_places([str(directory)]).places
    (directory / "00000000000000000000.index").write_bytes(
        encode_entries(
            true_entries(place)
            if entries is None
            else [OffsetIndexEntry(*each) for each in entries]
        )
    )
    return place


def true_entries(place: SegmentPlace) -> list[OffsetIndexEntry]:
    builder = IndexBuilder(0, 0)
    with open_place(place) as segment:
        builder.add(table_of(segment.scan(resume=False)))
    return parse_entries(builder.finish().offset_index)


def lying_entries(
    place: SegmentPlace, left_out: set[int], others: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Entries of its index but for those of some numbers, and others among them, by position."""
    entries = [tuple(each) for each in true_entries(place)]
    some = [each for number, each in enumerate(entries) if number not in left_out]
    return sorted([*some, *others], key=lambda each: each[1])


def starts_of(splits: Sequence[Split]) -> list[int]:
    return [each.start_pos for each in splits]


def positions_of(place: SegmentPlace) -> list[int]:
    with open_place(place) as segment:
        return [each.pos for each in segment.scan(resume=False)]


def healthy(table: HeaderTable) -> list[tuple[Any, ...]]:
    rows = np.flatnonzero(table.crc_ok)
    return list(zip(*(column[rows].tolist() for column in table), strict=True))


def rows_of(place: SegmentPlace) -> list[tuple[Any, ...]]:
    with open_place(place) as segment:
        return [
            row
            for table in segment.scan_tables(is_active=place.is_active)
            for row in healthy(table)
        ]


def rows_of_splits(splits: Sequence[Split]) -> list[tuple[Any, ...]]:
    rows = []
    for each in splits:
        with open_place(each.place) as segment:
            tables = segment.scan_tables(
                start_pos=each.start_pos,
                end_pos=None if each.is_last else each.end_pos,
                is_active=each.place.is_active and each.is_last,
            )
            rows += [row for table in tables for row in healthy(table)]
    return rows


def check(splits: Sequence[Split], place: SegmentPlace) -> None:
    """The pieces cover the segment, begin at batches, and have its rows."""
    assert splits[0].start_pos == 0
    assert splits[-1].end_pos == place.file_bytes
    assert [each.is_last for each in splits] == [False] * (len(splits) - 1) + [True]
    assert [each.end_pos for each in splits[:-1]] == starts_of(splits)[1:]
    assert starts_of(splits) == sorted(set(starts_of(splits)))
    rows = rows_of(place)
    assert set(starts_of(splits)[1:]) <= {row[0] for row in rows}
    assert rows_of_splits(splits) == rows


# --- where pieces begin


TEN = b"".join(batch(offset, b"v" * 39) for offset in range(10))
SIZE = len(TEN) // 10


def test_every_entry_that_holds_begins_a_piece_with_the_smallest_size(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    splits = split_places([place], 1)
    assert starts_of(splits) == list(range(0, 10 * SIZE, SIZE))
    check(splits, place)


@pytest.mark.parametrize(
    ("split_bytes", "starts"),
    [
        (10 * SIZE, [0]),
        (10 * SIZE - 1, [0, 5]),
        (6 * SIZE, [0, 5]),
        (5 * SIZE, [0, 5]),
        (4 * SIZE, [0, 4, 8]),
        (3 * SIZE, [0, 3, 6, 9]),
        (SIZE, list(range(10))),
        (SIZE - 1, list(range(10))),
    ],
)
def test_pieces_are_about_equal(tmp_path: Path, split_bytes: int, starts: list[int]) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    splits = split_places([place], split_bytes)
    assert [each / SIZE for each in starts_of(splits)] == starts
    check(splits, place)


@pytest.mark.parametrize("split_bytes", [0, -1])
def test_no_piece_can_be_empty(split_bytes: int) -> None:
    with pytest.raises(ValueError, match="split_bytes"):
        split_places([], split_bytes)


def test_pieces_are_in_the_order_of_the_places(tmp_path: Path) -> None:
    first = write_segment(tmp_path / "t-0", TEN)
    second = write_segment(tmp_path / "t-1", TEN[: 4 * SIZE])
    splits = split_places([second, first, second], 5 * SIZE)
    assert [(each.place, each.start_pos) for each in splits] == [
        (second, 0), (first, 0), (first, 5 * SIZE), (second, 0),
    ]  # fmt: skip


def test_a_segment_that_cannot_be_opened_is_one_piece(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    (tmp_path / "t-0" / LOG_NAME).unlink()
    assert split_places([place], 1) == [Split(place, 0, len(TEN), is_last=True)]
    empty = write_segment(tmp_path / "t-1", b"")
    assert split_places([empty], 1) == [Split(empty, 0, 0, is_last=True)]


def test_what_is_written_after_the_listing_belongs_to_the_last_piece(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN[: 4 * SIZE])
    (tmp_path / "t-0" / LOG_NAME).write_bytes(TEN)
    index = encode_entries(true_entries(place))
    (tmp_path / "t-0" / "00000000000000000000.index").write_bytes(index)
    splits = split_places([place], 1)
    assert starts_of(splits) == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert splits[-1].end_pos == 4 * SIZE
    assert rows_of_splits(splits) == rows_of(place)
    assert len(rows_of(place)) == 10


def test_a_segment_that_has_shrunk_is_cut_where_it_still_can_be(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    (tmp_path / "t-0" / LOG_NAME).write_bytes(TEN[: 3 * SIZE + 20])
    splits = split_places([place], 1)
    assert starts_of(splits) == [0, SIZE, 2 * SIZE]
    assert rows_of_splits(splits) == rows_of(place)


# --- indexes that lie


def test_without_a_usable_index_it_is_one_piece(tmp_path: Path) -> None:
    index = tmp_path / "t-0" / "00000000000000000000.index"
    place = write_segment(tmp_path / "t-0", TEN)
    for content in (b"", bytes(800), b"\xff" * 800, index.read_bytes()[:7]):
        index.write_bytes(content)
        assert starts_of(split_places([place], 1)) == [0]
    index.unlink()
    assert starts_of(split_places([place], 1)) == [0]
    index.mkdir()
    assert starts_of(split_places([place], 1)) == [0]


def test_the_zeros_behind_a_live_index_are_no_entries(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    index = tmp_path / "t-0" / "00000000000000000000.index"
    index.write_bytes(index.read_bytes() + bytes(10 << 20))
    assert len(split_places([place], 1)) == 10


@pytest.mark.parametrize("relative_offset", [0, 4, 6, 2**31 - 1, -5])
def test_an_entry_with_another_offset_is_passed_over(tmp_path: Path, relative_offset: int) -> None:
    """The entry of batch 5; after an offset of 0 the index has no more entries."""
    place = write_segment(tmp_path / "t-0", TEN)
    entries = [list(each) for each in true_entries(place)]
    entries[4][0] = relative_offset
    place = write_segment(tmp_path / "t-0", TEN, entries)
    expected = [0, 1, 2, 3, 4] if relative_offset == 0 else [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert [each // SIZE for each in starts_of(split_places([place], 1))] == expected


def test_an_entry_with_another_position_is_passed_over(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    for pos in (0, 5 * SIZE - 1, 5 * SIZE + 1, 4 * SIZE, 10 * SIZE - 5, 10 * SIZE, 2**31 - 1, -1):
        entries = [list(each) for each in true_entries(place)]
        entries[4][1] = pos
        write_segment(tmp_path / "t-0", TEN, entries)
        starts = [each / SIZE for each in starts_of(split_places([place], 1))]
        # Two entries for one batch: one of them tells another offset.
        allowed = [0, 1, 2, 3, 6, 7, 8, 9]
        assert starts in ([*allowed[:4], 4, *allowed[4:]], allowed)


def test_a_damaged_batch_begins_no_piece(tmp_path: Path) -> None:
    place = write_segment(tmp_path / "t-0", TEN)
    entries = true_entries(place)
    data = bytearray(TEN)
    data[5 * SIZE + 80] ^= 1
    place = write_segment(tmp_path / "t-0", bytes(data), entries)
    splits = split_places([place], 1)
    assert 5 * SIZE not in starts_of(splits)
    assert {6 * SIZE, 7 * SIZE, 8 * SIZE, 9 * SIZE} & set(starts_of(splits))
    check(splits, place)


def with_batches_in_a_value(inner: bytes) -> tuple[bytes, int]:
    """Ten batches, the fifth with whole batches in its value; and where those begin."""
    parts = [batch(offset, inner if offset == 5 else b"v" * 39) for offset in range(10)]
    data = b"".join(parts)
    return data, data.index(inner)


@pytest.mark.parametrize("split_bytes", [1, 150, 400])
def test_a_batch_in_a_value_with_a_wrong_offset_begins_no_piece(
    tmp_path: Path, split_bytes: int
) -> None:
    data, pos = with_batches_in_a_value(batch(77, b"inner") + b"tail")
    place = write_segment(tmp_path / "t-0", data)
    entries = true_entries(place)
    lying = sorted([*entries, OffsetIndexEntry(6, pos)], key=lambda each: each.segment_pos)
    place = write_segment(tmp_path / "t-0", data, lying)
    splits = split_places([place], split_bytes)
    assert len(splits) > 1
    assert pos not in starts_of(splits)
    check(splits, place)


@pytest.mark.parametrize("split_bytes", [1, 150, 400])
@pytest.mark.parametrize("is_alone", [True, False])
def test_not_even_one_with_the_offset_of_the_entry(
    tmp_path: Path, split_bytes: int, is_alone: bool
) -> None:
    """Mirrors keep batches with their offsets; only the chain tells what is inside of what."""
    inner = batch(5, b"inner") + batch(6, b"another one") + batch(7, b"the last one")
    data, pos = with_batches_in_a_value(inner + b"tail")
    place = write_segment(tmp_path / "t-0", data)
    entries = true_entries(place)
    liars = []
    for offset in (5, 6, 7):
        liars.append(OffsetIndexEntry(offset, pos))
        pos += len(batch(5, b"inner")) if offset == 5 else len(batch(6, b"another one"))
    lying = liars if is_alone else sorted([*entries, *liars], key=lambda each: each.segment_pos)
    place = write_segment(tmp_path / "t-0", data, lying)
    splits = split_places([place], split_bytes)
    assert not {each.segment_pos for each in liars} & set(starts_of(splits))
    check(splits, place)


def test_the_chain_may_begin_far_from_the_last_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a value longer than a chain may be, two entries in it could prove each other."""
    monkeypatch.setattr("storage.places.splits.CHAIN_BYTES", 3 * SIZE)
    data = b"".join(batch(offset, b"v" * 39) for offset in range(60))
    place = write_segment(tmp_path / "t-0", data)
    splits = split_places([place], 20 * SIZE)
    assert [each / SIZE for each in starts_of(splits)] == [0, 20, 40]
    entries = true_entries(place)
    for missing in (16, 17, 18, 19):  # of batches 17 to 20
        kept = [each for index, each in enumerate(entries) if index not in range(missing, 20)]
        write_segment(tmp_path / "t-0", data, kept)
        found = starts_of(split_places([place], 20 * SIZE))
        assert [each / SIZE for each in found] == [0, 21, 41]


def test_a_chain_begins_only_at_an_entry_that_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two entries into one value the first tells another offset than the batch there has."""
    monkeypatch.setattr("storage.places.splits.CHAIN_BYTES", 200)
    inner = batch(5, b"inner") + batch(6, b"another one") + batch(7, b"the last one")
    data, pos = with_batches_in_a_value(inner + b"tail")
    second_pos = pos + len(batch(5, b"inner"))
    for offset, starts in ((5, [0, second_pos]), (9, [0])):
        # No value may be longer than a chain: what is told apart here is the anchor alone.
        place = write_segment(tmp_path / "t-0", data, [(offset, pos), (6, second_pos)])
        assert starts_of(split_places([place], len(data) // 2)) == starts


def test_a_foreign_index_cuts_only_where_it_happens_to_be_right(tmp_path: Path) -> None:
    other = b"".join(batch(offset, b"v" * (offset % 7)) for offset in range(60))
    entries = true_entries(write_segment(tmp_path / "u-0", other))
    place = write_segment(tmp_path / "t-0", TEN, entries)
    check(split_places([place], 1), place)


# --- any log, any index


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=logs(max_batches=20), split_bytes=st.integers(1, 600))
def test_healthy_logs(tmp_path: Path, data: bytes, split_bytes: int) -> None:
    place = write_segment(tmp_path / "t-0", data)
    splits = split_places([place], split_bytes)
    check(splits, place)
    assert set(starts_of(splits)) <= set(positions_of(place)) | {0}


lies = st.lists(st.tuples(st.integers(-2, 2_000), st.integers(-2, 3_000)), max_size=6)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=logs(), damage=damaged_logs(), lies=lies, cut=st.integers(0, 3), seed=st.randoms())
@example(TEN, TEN[:300], [(5, 530)], 0, None)
def test_damaged_logs_and_indexes(
    tmp_path: Path, data: bytes, damage: bytes, lies: list[tuple[int, int]], cut: int, seed: Any
) -> None:
    """The index of one log beside another one, with some entries lost and some made up."""
    place = write_segment(tmp_path / "t-0", data)
    entries = [tuple(each) for each in true_entries(place)]
    for _ in range(cut if seed else 0):
        if entries:
            entries.pop(seed.randrange(len(entries)))
    mixed = sorted([*entries, *lies], key=lambda each: each[1])
    for content in (data, damage):
        place = write_segment(tmp_path / "t-0", content, mixed)
        for split_bytes in (1, 200):
            splits = split_places([place], split_bytes)
            assert splits[0].start_pos == 0
            with open_place(place) as segment:
                walked = {row[0] for row in rows_of(place)}
                assert segment.file_bytes == place.file_bytes
            assert set(starts_of(splits)[1:]) <= walked
            assert rows_of_splits(splits) == rows_of(place)


@pytest.mark.share(1)
@pytest.mark.parametrize("split_bytes", [1, 10_000, 100_000])
def test_golden_logs(
    golden: Callable[[str], Path], golden_names: list[str], split_bytes: int
) -> None:
    cut_count = 0
    for name in golden_names:
        log_dirs = {str(each.parent.parent) for each in golden(name).rglob("*.log")}
        places = [place for each in sorted(log_dirs) for place in list_places([each]).places]
        for place in places:
            splits = split_places([place], split_bytes)
            check(splits, place)
            cut_count += len(splits) - 1
    assert cut_count > 0
