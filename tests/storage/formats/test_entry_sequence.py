"""Entries that are read when they are asked for are those that reading all of them gives."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.entry_sequence import EntrySequence
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
