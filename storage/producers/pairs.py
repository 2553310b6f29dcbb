"""Transactions in bulk: each end marker with the first data of its producer before it.

An end marker ends the data of its producer since its last marker (TXN-1, TXN-2). So markers and
transactional data batches of a partition are enough, in log order and in blocks of any size. The
result is the view of consumers. A broker that recovers its producer state (`recovery.replay`,
Kafka's ProducerStateManager) also judges epochs, and begins with the state of a snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.formats.control_record import ABORT, NO_MARKER, UNKNOWN
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Kinds = NDArray[np.int8]

NO_DATA = INT64_MAX  # as the first offset of a transaction


class EndedBlock(NamedTuple):
    """End markers in log order. `first_offset` is NO_DATA if a marker ends nothing."""

    producer_id: Ints
    epoch: NDArray[np.int16]  # of the marker
    first_offset: Ints
    marker_offset: Ints
    timestamp_ms: Ints  # of the marker, or -1 without a marker
    is_abort: Flags
    is_unknown: Flags  # no marker: it ended, or may have, in a damaged or missing part of the log


class TransactionPairs:
    """Follows the transactions of a partition.

    Attributes:
        open: first offset by producer id, of transactions without a marker yet.
    """

    def __init__(self, open_before: dict[int, int] | None = None) -> None:
        """Begin with the open transactions `open_before`, which is kept and changed."""
        self.open = {} if open_before is None else open_before

    def take(self, table: HeaderTable, marker: Kinds) -> EndedBlock:
        """Take the next data batches of transactions and end markers.

        Returns the ended transactions.

        `marker` is NO_MARKER for data, else the type of the end marker.
        """
        row, first_offset = self.pair(table.producer_id, table.base_offset, marker)
        in_order = np.argsort(table.base_offset[row])
        row, first_offset = row[in_order], first_offset[in_order]
        return EndedBlock(
            producer_id=table.producer_id[row],
            epoch=table.producer_epoch[row],
            first_offset=first_offset,
            marker_offset=table.base_offset[row],
            timestamp_ms=table.max_timestamp_ms[row],
            is_abort=marker[row] == ABORT,
            is_unknown=marker[row] == UNKNOWN,
        )

    def pair(self, producer_id: Ints, base_offset: Ints, marker: Kinds) -> tuple[Ints, Ints]:
        """Take the next events by their columns. Returns the rows of end markers, in any order.

        Each row comes with the first offset of the transaction that it ends, or NO_DATA.
        """
        order = np.argsort(producer_id, kind="stable")
        producer_id, offset, kinds = producer_id[order], base_offset[order], marker[order]
        groups = np.flatnonzero(np.r_[True, producer_id[1:] != producer_id[:-1]])
        ends = np.flatnonzero(kinds != NO_MARKER)
        group_of_end = groups[np.searchsorted(groups, ends, "right") - 1]
        behind_last = np.r_[-1, ends[:-1]][: len(ends)] + 1
        starts = np.maximum(group_of_end, behind_last)
        first_offset = np.where(starts < ends, offset[starts], NO_DATA)
        for place in np.flatnonzero(starts == group_of_end).tolist():  # may have begun earlier
            known = self.open.pop(int(producer_id[ends[place]]), None)
            if known is not None:
                first_offset[place] = known
        self._keep_open(producer_id, offset, kinds, groups)
        return order[ends], first_offset

    def _keep_open(self, producer_id: Ints, offset: Ints, kinds: Kinds, groups: Ints) -> None:
        """Store the first data behind the last marker of each producer."""
        rows = np.arange(len(offset))
        last_marker = np.maximum.reduceat(np.where(kinds != NO_MARKER, rows, -1), groups)
        first_open = np.maximum(last_marker + 1, groups)
        group_ends = np.r_[groups[1:], len(offset)]
        for row in first_open[first_open < group_ends].tolist():
            self.open.setdefault(int(producer_id[row]), int(offset[row]))
