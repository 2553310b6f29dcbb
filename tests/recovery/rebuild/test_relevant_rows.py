"""Replaying the relevant rows alone gives what replaying all rows gives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from recovery.rebuild.segment_pass import relevant_rows, take_rows
from recovery.replay.bulk_state import BulkState
from storage.formats.record_batch import CONTROL_MASK, TRANSACTIONAL_MASK
from storage.kernels.layouts import empty_table
from storage.kernels.protocol import HeaderTable
from storage.producers.producer_state import Marker, ProducerStateManager

if TYPE_CHECKING:
    from collections.abc import Iterator


def random_log(rng: random.Random, rows_count: int) -> tuple[HeaderTable, dict[int, Marker]]:
    """Producers that write alone and in transactions, with epoch changes both ways."""
    columns = {
        name: np.zeros(rows_count, each.dtype)
        for name, each in zip(HeaderTable._fields, empty_table(), strict=True)
    }
    columns["magic"][:] = 2
    columns["crc_ok"][:] = True
    markers: dict[int, Marker] = {}
    is_open: dict[int, bool] = {}
    for row in range(rows_count):
        producer_id = rng.choice((-1, 1, 1, 1, 2, 3))
        epoch = rng.choice((0, 0, 0, 0, 1, 2))
        kind = 0
        if producer_id >= 0 and is_open.get(producer_id):
            kind = TRANSACTIONAL_MASK
            if rng.random() < 0.2:
                kind |= CONTROL_MASK
                markers[row] = Marker(rng.random() < 0.5, rng.randrange(3), row)
                is_open[producer_id] = False
        elif producer_id > 1 and rng.random() < 0.5:
            kind = TRANSACTIONAL_MASK
            is_open[producer_id] = True
        columns["attributes"][row] = kind
        columns["producer_id"][row] = producer_id
        columns["producer_epoch"][row] = -1 if producer_id < 0 else epoch
        columns["base_offset"][row] = 10 * row
        columns["last_offset"][row] = 10 * row + rng.randrange(10)
        columns["base_sequence"][row] = rng.randrange(100)
        columns["max_timestamp_ms"][row] = rng.randrange(1000)
        columns["records_count"][row] = 1
    return HeaderTable(**columns), markers


def pieces(rng: random.Random, rows_count: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < rows_count:
        end = min(start + rng.randint(1, 60), rows_count)
        yield start, end
        start = end


@pytest.mark.parametrize("seed", range(25))
def test_the_rest_leaves_no_trace(seed: int) -> None:
    """Entries and their order, completed transactions, violations, end offset; at any split."""
    rng = random.Random(seed)
    table, markers = random_log(rng, 400)
    whole = BulkState.from_manager(ProducerStateManager())
    reduced = BulkState.from_manager(ProducerStateManager())
    kept_count = 0
    for start, end in pieces(rng, table.row_count):
        piece = take_rows(table, np.arange(start, end))
        inside = [(row - start, each) for row, each in markers.items() if start <= row < end]
        rows = relevant_rows(piece)
        kept_count += len(rows)
        places = {row: place for place, row in enumerate(rows.tolist())}
        fewer = [(places[row], each) for row, each in inside]
        assert reduced.apply_table(take_rows(piece, rows), fewer) == whole.apply_table(
            piece, inside
        )
    one, other = whole.to_manager(), reduced.to_manager()
    assert one.entries() == other.entries()
    assert one.violations == other.violations
    assert one.map_end_offset == other.map_end_offset
    assert one.first_undecided_offset == other.first_undecided_offset
    assert 0 < kept_count < table.row_count


def test_long_runs_shrink_to_their_ends() -> None:
    """One producer, one epoch: the first row and the last five."""
    table, _ = random_log(random.Random(1), 100)
    table.producer_id[:] = 7
    table.producer_epoch[:] = 0
    table.attributes[:] = 0
    assert relevant_rows(table).tolist() == [0, 95, 96, 97, 98, 99]
    table.producer_id[:] = -1
    assert relevant_rows(table).tolist() == [99]
    assert relevant_rows(empty_table()).tolist() == []
