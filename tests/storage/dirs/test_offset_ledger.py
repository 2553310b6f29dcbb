"""The ledger of offsets: tables and single batches, pieces and wholes give the same gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.dirs.acknowledged_offsets import Acknowledged
from storage.dirs.log_dir import StoppedState
from storage.dirs.offset_ledger import (
    MAX_GAPS,
    Cleanup,
    OffsetLedger,
    OffsetSpan,
    absent,
    joined,
    lost_range,
    unread,
)
from storage.formats.record_batch import parse_header
from storage.kernels.numpy_kernel import table_of
from storage.kernels.protocol import ScannedBatch
from tests.cases.files import batch

if TYPE_CHECKING:
    from collections.abc import Sequence

# (offsets skipped before a batch, its records, offsets that it spans)
BATCHES = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 7]), st.integers(1, 3), st.integers(0, 2)), max_size=12
)


def headers(shapes: Sequence[tuple[int, int, int]], start: int) -> list[ScannedBatch]:
    found, offset = [], start
    for skipped, count, more in shapes:
        base = offset + skipped
        offset = base + count + more
        data = batch(base, n=count, last=offset - 1)
        found.append(ScannedBatch(0, parse_header(data, 0), crc_ok=True))
    return found


def span_of(batches: Sequence[ScannedBatch], begin: int | None, *, one_by_one: bool) -> OffsetSpan:
    ledger = OffsetLedger(begin)
    if one_by_one:
        for each in batches:
            ledger.take_batch(each.header)
    elif batches:
        ledger.take(table_of(batches))
    return ledger.span


@given(BATCHES, st.integers(0, 5), st.integers(0, 12))
def test_tables_and_pieces_give_the_same(
    shapes: list[tuple[int, int, int]], start: int, cut: int
) -> None:
    batches = headers(shapes, start)
    whole = span_of(batches, 0, one_by_one=False)
    assert whole == span_of(batches, 0, one_by_one=True)
    pieces = [
        span_of(batches[:cut], 0, one_by_one=False),
        span_of(batches[cut:], None, one_by_one=False),
    ]
    assert joined(pieces) == whole
    given = {
        offset
        for each in batches
        for offset in range(each.header.base_offset, each.header.last_offset + 1)
    }
    gaps = {offset for first, last in whole.gaps for offset in range(first, last + 1)}
    assert gaps == set(range(max(given, default=-1) + 1)) - given


def test_very_many_gaps_are_few() -> None:
    batches = headers([(1, 1, 0)] * (MAX_GAPS + 50), 0)
    whole = span_of(batches, 0, one_by_one=False)
    assert whole == span_of(batches, 0, one_by_one=True)
    assert len(whole.gaps) == MAX_GAPS
    assert whole.gaps[-1][1] == batches[-1].header.base_offset - 1


SPAN = OffsetSpan(first_offset=0, end_offset=30, gaps=((10, 19),), begin_offset=0)
BASES = (0, 20)


@pytest.mark.parametrize(
    ("cleanup", "cleaned_offset", "stopped", "cleaned_end", "is_lost"),
    [
        (Cleanup(is_compacted=False), 0, StoppedState.CLEAN, 0, True),
        (Cleanup(is_compacted=False), 20, StoppedState.CLEAN, 0, False),
        (Cleanup(is_compacted=False), 15, StoppedState.CLEAN, 0, True),
        (Cleanup(is_compacted=False), 0, StoppedState.CLEAN, 25, True),
        (Cleanup(is_compacted=True, has_other_replicas=False), 0, StoppedState.CLEAN, 0, True),
        (Cleanup(is_compacted=True, has_other_replicas=False), None, StoppedState.CLEAN, 0, False),
        (Cleanup(is_compacted=True, has_other_replicas=False), 0, StoppedState.UNCLEAN, 0, False),
        (Cleanup(is_compacted=True, has_other_replicas=True), 0, StoppedState.CLEAN, 0, False),
        (Cleanup(), None, StoppedState.CLEAN, 0, True),
        (Cleanup(), None, StoppedState.CLEAN, 5, False),
    ],
)
def test_what_compaction_explains(
    cleanup: Cleanup,
    cleaned_offset: int | None,
    stopped: StoppedState,
    cleaned_end: int,
    is_lost: bool,
) -> None:
    known = Acknowledged(bases=BASES, stopped=stopped, cleaned_offset=cleaned_offset)
    span = SPAN._replace(cleaned_end=cleaned_end)
    found = absent(known, span, lambda: cleanup)
    assert bool(found) is is_lost
    if is_lost:
        assert found[-1].last_offset == 19


def test_what_is_told_already_is_told_once() -> None:
    known = Acknowledged(bases=BASES, stopped=StoppedState.CLEAN, cleaned_offset=0)
    found = absent(known, SPAN, lambda: Cleanup(is_compacted=False), [unread(12, 15)])
    assert [(each.base_offset, each.last_offset) for each in found] == [(10, 11), (15, 19)]


def test_the_metadata_are_read_for_gaps_only() -> None:
    def fail() -> Cleanup:
        raise AssertionError

    known = Acknowledged(bases=BASES, stopped=StoppedState.CLEAN)
    assert absent(known, SPAN._replace(gaps=()), fail) == ()


@pytest.mark.parametrize(
    ("first", "last", "stated", "expected"),
    [
        (5, 9, (7, 8), (5, 9)),  # room for it
        (5, 4, (7, 8), (7, 8)),  # none: it lies in a wrong place
        (5, None, (5, 9), (5, 9)),  # the last one, in its place
        (5, None, (7, 9), (5, None)),  # the last one, and more may be missing before it
        (5, None, (2, 3), (2, 3)),  # behind the log's end, and not of it
        (5, 4, None, (5, 4)),
    ],
)
def test_a_bad_batch_costs_its_room_or_its_own_offsets(
    first: int, last: int | None, stated: tuple[int, int] | None, expected: tuple[int, int | None]
) -> None:
    assert lost_range(first, last, stated) == expected
