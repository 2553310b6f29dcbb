"""Entries of index files: read one when it is asked for, and where they end."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.index_entries import (
    CHUNK_BYTES,
    EntrySequence,
    data_end_pos,
    first_data_pos,
    used_entry_count,
)
from storage.formats.offset_index import ENTRY, OffsetIndexEntry

INT32 = st.integers(-(2**31), 2**31 - 1)


@given(
    entries=st.lists(st.builds(OffsetIndexEntry, INT32, INT32), max_size=20),
    start=st.none() | st.integers(-25, 25),
    stop=st.none() | st.integers(-25, 25),
    step=st.sampled_from((None, 1, -1, 3)),
)
def test_it_is_as_the_list(
    entries: list[OffsetIndexEntry], start: int | None, stop: int | None, step: int | None
) -> None:
    data = b"".join(ENTRY.pack(*each) for each in entries)
    lazy = EntrySequence(ENTRY, OffsetIndexEntry._make, data)
    assert len(lazy) == len(entries)
    assert bool(lazy) == bool(entries)
    assert [*lazy] == entries
    assert [*reversed(lazy)] == entries[::-1]
    assert lazy[start:stop:step] == entries[start:stop:step]
    assert [lazy[place] for place in range(-len(entries), len(entries))] == entries + entries
    assert lazy == entries
    assert lazy != [*entries, OffsetIndexEntry(0, 0)]
    for place in (len(entries), -len(entries) - 1):
        with pytest.raises(IndexError):
            lazy[place]


def test_a_lookup_reads_a_few_of_them() -> None:
    made = 0

    def make(fields: tuple[int, int]) -> OffsetIndexEntry:
        nonlocal made
        made += 1
        return OffsetIndexEntry(*fields)

    data = b"".join(ENTRY.pack(number, number) for number in range(100_000))
    lazy = EntrySequence(ENTRY, make, data)
    assert bisect_right(lazy, 77_777, key=attrgetter("relative_offset")) == 77_778
    assert made <= 17


# -- the end of the data in front of a tail of zeros, against the obvious slow definition


SPARSE = st.lists(st.sampled_from([b"\0", b"\0\0\0\0", b"\0" * 8, b"\x01", b"\xff"])).map(b"".join)


@given(SPARSE)
def test_data_ends_behind_last_nonzero_byte(buf: bytes) -> None:
    assert data_end_pos(buf) == max((i + 1 for i, byte in enumerate(buf) if byte), default=0)


@given(SPARSE, st.integers(0, 40))
def test_first_data_is_first_nonzero_byte(buf: bytes, pos: int) -> None:
    expected = next((i for i in range(pos, len(buf)) if buf[i]), None)
    assert first_data_pos(buf, pos) == expected


@given(SPARSE, st.sampled_from([(8, 0), (12, 8)]))
def test_count_stops_at_first_zero_offset_after_entry_0(buf: bytes, shape: tuple[int, int]) -> None:
    entry_bytes, offset_pos = shape
    whole = len(buf) // entry_bytes
    entries = [buf[i * entry_bytes : (i + 1) * entry_bytes] for i in range(whole)]
    stops = [i for i in range(1, whole) if not any(entries[i][offset_pos : offset_pos + 4])]
    expected = min(stops, default=whole)
    if not any(b"".join(entries[:expected])):
        expected = 0
    for kind in (bytes, bytearray, memoryview):
        found = used_entry_count(kind(buf), entry_bytes=entry_bytes, relative_offset_pos=offset_pos)
        assert found == expected


@pytest.mark.parametrize(
    "at", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES]
)
def test_finds_the_byte_on_either_side_of_a_chunk_boundary(at: int) -> None:
    buf = bytearray(3 * CHUNK_BYTES + 5)
    buf[at] = 1
    assert data_end_pos(buf) == at + 1
    assert first_data_pos(buf, 0) == at
    assert first_data_pos(buf, at) == at
    assert first_data_pos(buf, at + 1) is None
