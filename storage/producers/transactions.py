"""Open transactions and the last stable offset of a partition, from batch headers alone.

Rules
  TXN-1  a transaction opens with the first transactional data batch of a producer without an open
         one, at that batch's base offset
  TXN-2  a control batch of the producer ends it, COMMIT or ABORT; without an open one it ends
         nothing. An empty control batch (compacted) has no effect (PROD-9)
  TXN-3  ongoing: no marker yet; unreplicated: the marker's offset is at or above the high watermark
  TXN-4  first unstable offset: the smallest first offset of both, not below the log start;
         last stable offset: that, if there is one and it is below the high watermark, else the
         high watermark

Only batches at or above the log start count, as when a broker rebuilds its state by a scan. What
is known from snapshots alone (all data of the transaction below the log start) is not seen here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import HeaderTable

DEFAULT_MAX_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms
LATE_BUFFER_MS = 300_000  # so much longer a broker waits before it calls a transaction late (5.8)


class OpenTransaction(NamedTuple):
    """A transaction without a marker."""

    producer_id: int
    first_offset: int


class OpenTransactions:
    """Follows transactions over batches given in log order, one by one or in tables.

    Args:
        log_start_offset: batches that end below it are passed over.
        high_watermark: markers at or above it leave their transaction unstable; None if unknown:
            only ongoing transactions are then followed, and the last stable offset is unknown.
    """

    def __init__(self, *, log_start_offset: int, high_watermark: int | None) -> None:
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark
        self._unreplicated_from = (
            MAX_OFFSET if high_watermark is None else max(high_watermark, log_start_offset)
        )
        self._ongoing: dict[int, int] = {}  # producer id -> first offset
        self._unreplicated_first_offset: int | None = None

    def add_batch(self, header: BatchHeader) -> None:
        """Take the next batch; its checksum must have been found right."""
        if header.producer_id < 0 or header.last_offset < self.log_start_offset:
            return
        if header.is_control:
            if header.records_count > 0:
                self._end(header.producer_id, header.base_offset)
        elif header.is_transactional:
            self._ongoing.setdefault(header.producer_id, header.base_offset)

    def add_table(self, table: HeaderTable) -> None:
        """Take the next batches; those with a wrong checksum are passed over."""
        import numpy as np

        from storage.formats.record_batch import CONTROL_MASK, TRANSACTIONAL_MASK

        is_control = (table.attributes & CONTROL_MASK) != 0
        is_data = ~is_control & ((table.attributes & TRANSACTIONAL_MASK) != 0)
        is_marker = is_control & (table.records_count > 0)
        counts = table.crc_ok & (table.producer_id >= 0) & (is_data | is_marker)
        counts &= table.last_offset >= self.log_start_offset
        rows = np.flatnonzero(counts)
        if not rows.size:
            return
        # Where each marker may matter by itself, one at a time; the rest by producer at once.
        unstable = np.flatnonzero(table.base_offset[rows] >= self._unreplicated_from)
        replicated_count = int(unstable[0]) if unstable.size else rows.size
        self._add_rows(table, rows[:replicated_count], is_marker)
        for row in rows[replicated_count:].tolist():
            producer_id, offset = int(table.producer_id[row]), int(table.base_offset[row])
            if is_marker[row]:
                self._end(producer_id, offset)
            else:
                self._ongoing.setdefault(producer_id, offset)

    def _add_rows(self, table: HeaderTable, rows: Any, is_marker: Any) -> None:
        """Apply rows below the high watermark: per producer only what follows its last marker."""
        import numpy as np

        if not rows.size:
            return
        order = np.argsort(table.producer_id[rows], kind="stable")
        rows = rows[order]
        producer_ids = table.producer_id[rows]
        starts = np.flatnonzero(np.r_[True, producer_ids[1:] != producer_ids[:-1]])
        places = np.arange(rows.size)
        marker = is_marker[rows]
        last_markers = np.maximum.reduceat(np.where(marker, places, -1), starts)
        group_counts = np.diff(np.r_[starts, rows.size])
        is_open = ~marker & (places > np.repeat(last_markers, group_counts))
        firsts = np.minimum.reduceat(np.where(is_open, places, rows.size), starts)
        for producer_id, last_marker, first in zip(
            producer_ids[starts].tolist(), last_markers.tolist(), firsts.tolist(), strict=True
        ):
            if last_marker >= 0:
                self._ongoing.pop(producer_id, None)
            if first < rows.size:
                self._ongoing.setdefault(producer_id, int(table.base_offset[rows[first]]))

    def _end(self, producer_id: int, marker_offset: int) -> None:
        first_offset = self._ongoing.pop(producer_id, None)
        if first_offset is None or marker_offset < self._unreplicated_from:
            return
        if self._unreplicated_first_offset is None:
            self._unreplicated_first_offset = first_offset
        else:
            self._unreplicated_first_offset = min(self._unreplicated_first_offset, first_offset)

    def __len__(self) -> int:
        return len(self._ongoing)

    def __iter__(self) -> Iterator[OpenTransaction]:
        """Yield the ongoing transactions by first offset."""
        by_offset = sorted((first, producer_id) for producer_id, first in self._ongoing.items())
        return (OpenTransaction(producer_id, first) for first, producer_id in by_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """TXN-4; None when every transaction has ended and is replicated."""
        firsts = list(self._ongoing.values())
        if self._unreplicated_first_offset is not None:
            firsts.append(self._unreplicated_first_offset)
        return max(min(firsts), self.log_start_offset) if firsts else None

    def last_stable_offset(self, log_end_offset: int) -> int | None:
        """TXN-4; None when the high watermark is unknown.

        The high watermark is first brought into [log start, log end], as a broker does at start.
        """
        if self.high_watermark is None:
            return None
        high_watermark = max(min(self.high_watermark, log_end_offset), self.log_start_offset)
        first_unstable = self.first_unstable_offset
        if first_unstable is None:
            return high_watermark
        return min(first_unstable, high_watermark)
