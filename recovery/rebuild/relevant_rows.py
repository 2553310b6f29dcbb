"""The few rows of a block of batches that producer state depends on.

Of one producer's batches in a row, with the same epoch and the same kind, only the first and the
last five leave a trace. Replaying just these rows gives the same state, the same transactions and
the same violations as replaying all of them, so that a process that scans need not hand over more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.formats.record_batch import CONTROL_MASK, TRANSACTIONAL_MASK
from storage.kernels.protocol import HeaderTable
from storage.producers.producer_state import CACHED_BATCHES_COUNT

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND_MASK = CONTROL_MASK | TRANSACTIONAL_MASK


def relevant_rows(table: HeaderTable) -> NDArray[np.int64]:
    """Rows to keep, ascending: those that matter, and the last one for the end offset."""
    rows = np.flatnonzero((table.producer_id >= 0) & (table.magic >= 2))
    if not len(rows):
        return np.arange(max(table.row_count - 1, 0), table.row_count)
    order = rows[np.argsort(table.producer_id[rows], kind="stable")]
    producer_id = table.producer_id[order]
    producer_epoch = table.producer_epoch[order]
    kind = table.attributes[order] & KIND_MASK
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (
        (producer_id[1:] != producer_id[:-1])
        | (producer_epoch[1:] != producer_epoch[:-1])
        | (kind[1:] != kind[:-1])
        | ((kind[1:] & CONTROL_MASK) != 0)
    )
    is_kept = is_first.copy()
    # The last five of each run: a row with a run's first among the five rows behind it.
    for distance in range(1, CACHED_BATCHES_COUNT + 1):
        is_kept[:-distance] |= is_first[distance:]
    is_kept[-CACHED_BATCHES_COUNT:] = True
    is_relevant = np.zeros(table.row_count, np.bool_)
    is_relevant[order[is_kept]] = True
    is_relevant[-1] = True
    return np.flatnonzero(is_relevant)


def take_rows(table: HeaderTable, rows: NDArray[np.int64]) -> HeaderTable:
    """Return a table of these rows only."""
    return HeaderTable._make(column[rows] for column in table)
