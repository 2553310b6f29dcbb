"""Ended transactions, in blocks of any size: as one walk over plain batches finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recovery.transactions.unknown_ends import read_ended
from storage.kernels.numpy_kernel import table_of
from storage.producers.pairs import NO_DATA, TransactionPairs
from tests.audit_logs import CONTROL_KINDS, NO_MARKER, Batch, write_segments
from tests.recovery.transactions.test_view import every_batch, partition_in

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

Ended = tuple[int, int, int, int, bool]

kinds = st.sampled_from(["txn", "txn", "commit", "abort"])
events = st.lists(
    st.builds(Batch, st.integers(1, 4), st.integers(0, 3), st.just(0), st.integers(1, 3), kinds),
    max_size=30,
)


def define(batches: list[Batch]) -> tuple[list[Ended], dict[int, int]]:
    """Producer id, epoch, first offset, marker offset, is it an abort; and what is open."""
    opened: dict[int, int] = {}
    ended: list[Ended] = []
    offset = 0
    for each in batches:
        if each.kind == "txn":
            opened.setdefault(each.pid, offset)
            offset += each.count
        else:
            first = opened.pop(each.pid, NO_DATA)
            ended.append((each.pid, each.epoch, first, offset, each.kind == "abort"))
            offset += 1
    return ended, opened


@given(events, st.integers(1, 7))
def test_blocks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Batch], rows_count: int
) -> None:
    directory = tmp_path_factory.mktemp("pairs") / "t-0"
    partition = partition_in(write_segments(directory, batches))
    scanned = every_batch(partition)
    pairs = TransactionPairs()
    found: list[Ended] = []
    for start in range(0, len(scanned), rows_count):
        rows = scanned[start : start + rows_count]
        marker = [CONTROL_KINDS.get(each.kind, NO_MARKER) for each in batches[start:][:rows_count]]
        block = pairs.take(table_of(rows), np.array(marker, np.int8))
        columns = (
            *(block.producer_id, block.epoch, block.first_offset, block.marker_offset),
            block.is_abort,
        )
        found += zip(*(column.tolist() for column in columns), strict=True)
    assert (found, pairs.open) == define(batches)
    reported: list[int] = []
    blocks = read_ended(partition, reported.append).blocks
    offsets = [offset for block in blocks for offset in block.marker_offset.tolist()]
    assert offsets == [each[3] for each in found]
    assert sum(reported) == partition.files.log_bytes


def test_over_segments(tmp_path: Path) -> None:
    """A transaction may begin in one and end in the next; one that is gone becomes a problem."""
    first = [Batch(1, 0, 0, 2, "txn"), Batch(2, 0, 0, 1, "txn")]
    second = [Batch(1, 1, 0, 1, "commit"), Batch(3, 0, 0, 1, "abort")]
    directory = write_segments(tmp_path / "t-0", first, second)
    (block,) = read_ended(partition_in(directory)).blocks
    assert block.first_offset.tolist() == [0, NO_DATA]
    assert block.marker_offset.tolist() == [3, 4]
    partition = partition_in(directory)
    (directory / "00000000000000000000.log").unlink()
    (block,) = read_ended(partition).blocks
    assert block.first_offset.tolist() == [NO_DATA, NO_DATA]
    assert len(partition.problems) == 1
