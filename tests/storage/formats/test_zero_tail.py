"""The end of the data in front of a tail of zeros, against the obvious slow definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.zero_tail import CHUNK_BYTES, data_end_pos, first_data_pos, used_entry_count

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
