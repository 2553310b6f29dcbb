"""One stream of events and one pairing: whoever asks about the transactions of a log is told the same."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.duplicates.search import OutcomeReader, outcome_sorter
from recovery.duplicates.spill import ABORTED, COMMITTED, OPEN, SpillSpace
from recovery.transactions.events import LogEvents
from recovery.transactions.outcomes import find_stability, later_segments, resolve_outcomes
from recovery.transactions.unknown_ends import read_ended
from recovery.transactions.view import TransactionView
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER
from storage.formats.record_batch import CRC_POS
from storage.log.decoded_records import BatchOutcome, MarkerIndex, marker_is_commit
from storage.places.list_places import list_places, open_place
from storage.producers.pairs import NO_DATA
from storage.producers.transactions import OpenTransactions
from tests.audit_logs import Batch, write_segments
from tests.drawn import examples
from tests.recovery.transactions.test_view import partition_in

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from storage.places.listing import SegmentPlace

Event = tuple[int, int, int]  # producer id, base offset, kind of marker

kinds = st.sampled_from(["data", "txn", "txn", "txn", "commit", "abort", "control", "corrupt"])
batches = st.lists(
    st.builds(lambda pid, count, kind: Batch(pid, 0, 0, count, kind), st.integers(1, 4),
              st.integers(1, 3), kinds),
    max_size=20,
)  # fmt: skip
OUTCOMES = {
    BatchOutcome.COMMITTED: (COMMIT, COMMITTED),
    BatchOutcome.ABORTED: (ABORT, ABORTED),
    BatchOutcome.OPEN: (NO_MARKER, OPEN),
}


def events_one_by_one(places: tuple[SegmentPlace, ...], log_start_offset: int) -> list[Event]:
    """What single batches say, without tables."""
    found: list[Event] = []
    for place in places:
        with open_place(place) as segment:
            for batch in segment.scan():
                header = batch.header
                if not batch.crc_ok or header.producer_id < 0:
                    continue
                if header.last_offset < log_start_offset:
                    continue
                name = header.producer_id, header.base_offset
                if header.is_control:
                    is_commit = marker_is_commit(segment, batch) if header.records_count else None
                    if is_commit is not None:
                        found.append((*name, COMMIT if is_commit else ABORT))
                elif header.is_transactional:
                    found.append((*name, NO_MARKER))
    return found


def pairs_of(events: list[Event]) -> tuple[list[tuple[int, int, int, bool]], dict[int, int]]:
    """The definition (TXN-1, TXN-2): ended transactions by marker, and what is open."""
    opened: dict[int, int] = {}
    ended = []
    for producer_id, offset, kind in events:
        if kind == NO_MARKER:
            opened.setdefault(producer_id, offset)
        else:
            first = opened.pop(producer_id, NO_DATA)
            ended.append((producer_id, first, offset, kind == ABORT))
    return ended, opened


def write(
    tmp_path_factory: pytest.TempPathFactory, *segments: list[Batch]
) -> tuple[Path, tuple[SegmentPlace, ...]]:
    directory = write_segments(tmp_path_factory.mktemp("log") / "t-0", *segments)
    return directory, list_places([str(directory)]).places


@settings(max_examples=examples(30))
@given(batches, batches, st.integers(0, 8))
def test_events_of_tables_are_those_of_batches(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[Batch],
    second: list[Batch],
    log_start_offset: int,
) -> None:
    _, places = write(tmp_path_factory, first, [*second, Batch(9)])
    found: list[Event] = []
    for table, marker in LogEvents(places, open_place, log_start_offset=log_start_offset):
        columns = table.producer_id, table.base_offset, marker
        found += zip(*(column.tolist() for column in columns), strict=True)
    assert found == events_one_by_one(places, log_start_offset)


@settings(max_examples=examples(30))
@given(batches, batches)
def test_every_reader_pairs_alike(
    tmp_path_factory: pytest.TempPathFactory, first: list[Batch], second: list[Batch]
) -> None:
    directory, places = write(tmp_path_factory, first, [*second, Batch(9)])
    ended, opened = pairs_of(events_one_by_one(places, 0))
    in_order = sorted((offset, producer_id) for producer_id, offset in opened.items())

    rows: list[tuple[int, int, int, bool]] = []
    for block in read_ended(partition_in(directory)).blocks:
        columns = block.producer_id, block.first_offset, block.marker_offset, block.is_abort
        rows += zip(*(column.tolist() for column in columns), strict=True)
    assert rows == ended

    stability = find_stability(places)
    view = TransactionView(partition_in(directory))
    view.update()
    by_header = OpenTransactions(log_start_offset=0, high_watermark=None)
    by_table = OpenTransactions(log_start_offset=0, high_watermark=None)
    for table, _ in LogEvents(places, open_place):
        by_table.add_table(table)
    is_event = {offset for _, offset, _ in events_one_by_one(places, 0)}
    for place in places:
        with open_place(place) as segment:
            for batch in segment.scan():
                if batch.header.base_offset in is_event:
                    by_header.add_batch(batch.header)
    for each in (stability.open_transactions, view.open_transactions, by_header, by_table):
        assert [(found.first_offset, found.producer_id) for found in each] == in_order
    assert stability.stable_offset == view.last_stable_offset


@settings(max_examples=examples(30))
@given(batches, batches)
def test_every_reader_tells_the_same_outcome(
    tmp_path_factory: pytest.TempPathFactory, first: list[Batch], second: list[Batch]
) -> None:
    """Of the same batch: the index of single markers, the bulk one, the sorted one."""
    whole = [[each for each in part if each.kind != "corrupt"] for part in (first, second)]
    directory, places = write(tmp_path_factory, whole[0], [*whole[1], Batch(9)])
    events = events_one_by_one(places, 0)
    data = {offset for _, offset, kind in events if kind == NO_MARKER}
    markers = MarkerIndex()
    for place in places:
        with open_place(place) as segment:
            markers.read_segment(segment)
    with outcome_sorter(
        partition_in(directory), SpillSpace(1 << 20, str(directory.parent))
    ) as all_:
        sorted_ones = OutcomeReader(all_).outcomes(np.array(sorted(data), np.int64))
    by_offset = dict(zip(sorted(data), sorted_ones.tolist(), strict=True))
    for place in places:
        with open_place(place) as segment:
            bulk = resolve_outcomes(segment, 0, None, partial(later_segments, place))
            for batch in segment.scan():
                header = batch.header
                if header.base_offset not in data:
                    continue
                kind, code = OUTCOMES[markers.outcome(header)]
                of = bulk.of(np.array([header.producer_id]), np.array([batch.pos]))
                assert (of.tolist(), by_offset[header.base_offset]) == ([kind], code)


def test_a_marker_with_a_wrong_checksum_decides_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory, places = write(
        tmp_path_factory, [Batch(1, 0, 0, 1, "txn"), Batch(1, 0, 0, 1, "abort")]
    )
    (log,) = directory.glob("*.log")
    with open_place(places[0]) as segment:
        data, marker = (each for each in segment.scan())
    spoilt = bytearray(log.read_bytes())
    spoilt[marker.pos + CRC_POS] ^= 1
    log.write_bytes(spoilt)
    markers = MarkerIndex()
    with open_place(places[0]) as segment:
        markers.read_segment(segment)
        bulk = resolve_outcomes(segment, 0, None, partial(later_segments, places[0]))
        of = bulk.of(np.array([data.header.producer_id]), np.array([data.pos]))
    assert (markers.outcome(data.header), of.tolist()) == (BatchOutcome.OPEN, [NO_MARKER])
