"""Open transactions and the last stable offset of a partition, from batch headers alone.

The rules:

- TXN-1: a transaction opens with the first transactional data batch of a producer without an open
  transaction, at that batch's base offset.
- TXN-2: a control batch of the producer ends it, COMMIT or ABORT. Without an open transaction it
  ends nothing. An empty control batch (compacted) has no effect (PROD-9).
- TXN-3: ongoing means no marker yet. Unreplicated means that the marker's offset is at or above the
  high watermark.
- TXN-4: the first unstable offset is the smallest first offset of both, not below the log start.
  The last stable offset is that offset if it is below the high watermark, else the high watermark.

Only batches at or above the log start count, as when a broker rebuilds its state by a scan. A
transaction that only a snapshot knows (all its data is below the log start) is not seen here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import HeaderTable

DEFAULT_MAX_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms
LATE_BUFFER_MS = 300_000  # additional time before a broker calls a transaction late (5.8)


class OpenTransaction(NamedTuple):
    """A transaction without a marker."""

    producer_id: int
    first_offset: int


class OpenTransactions:
    """Follows transactions over batches given in log order, one by one or in tables.

    Args:
        log_start_offset: batches that end below it are skipped.
        high_watermark: markers at or above it leave their transaction unstable. None if unknown:
            then only ongoing transactions are followed, and the last stable offset is unknown.
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
        """Take the next batch, which must have a right checksum."""
        if header.producer_id < 0 or header.last_offset < self.log_start_offset:
            return
        if header.is_control:
            if header.records_count > 0:
                self._end(header.producer_id, header.base_offset)
        elif header.is_transactional:
            self._ongoing.setdefault(header.producer_id, header.base_offset)

    def add_table(self, table: HeaderTable) -> None:
        """Take the next batches, without batches that have a wrong checksum."""
        import numpy as np

        from storage.formats.control_record import COMMIT, NO_MARKER
        from storage.formats.record_batch import CONTROL_MASK, TRANSACTIONAL_MASK
        from storage.producers.pairs import NO_DATA, TransactionPairs

        is_control = (table.attributes & CONTROL_MASK) != 0
        is_data = ~is_control & ((table.attributes & TRANSACTIONAL_MASK) != 0)
        is_marker = is_control & (table.records_count > 0)
        counts = table.crc_ok & (table.producer_id >= 0) & (is_data | is_marker)
        counts &= table.last_offset >= self.log_start_offset
        if not counts.any():
            return
        marker = np.where(is_marker[counts], COMMIT, NO_MARKER).astype(np.int8)
        base_offset = table.base_offset[counts]
        pairs = TransactionPairs(self._ongoing)
        row, first_offset = pairs.pair(table.producer_id[counts], base_offset, marker)
        is_late = (base_offset[row] >= self._unreplicated_from) & (first_offset != NO_DATA)
        if is_late.any():
            self._leave_unstable(int(first_offset[is_late].min()))

    def _end(self, producer_id: int, marker_offset: int) -> None:
        first_offset = self._ongoing.pop(producer_id, None)
        if first_offset is None or marker_offset < self._unreplicated_from:
            return
        self._leave_unstable(first_offset)

    def _leave_unstable(self, first_offset: int) -> None:
        known = self._unreplicated_first_offset
        self._unreplicated_first_offset = (
            first_offset if known is None else min(known, first_offset)
        )

    def forget(self, producer_ids: Iterable[int]) -> None:
        """Remove open transactions that a broker does not know."""
        for each in producer_ids:
            self._ongoing.pop(each, None)

    @property
    def ongoing(self) -> dict[int, int]:
        """First offsets of open transactions, by producer id."""
        return dict(self._ongoing)

    def first_offset(self, producer_id: int) -> int | None:
        """Return the first offset of a producer's open transaction, or None."""
        return self._ongoing.get(producer_id)

    def __len__(self) -> int:
        return len(self._ongoing)

    def __iter__(self) -> Iterator[OpenTransaction]:
        """Yield the ongoing transactions by first offset."""
        by_offset = sorted((first, producer_id) for producer_id, first in self._ongoing.items())
        return (OpenTransaction(producer_id, first) for first, producer_id in by_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first unstable offset (TXN-4).

        None when every transaction has ended and is replicated.
        """
        firsts = list(self._ongoing.values())
        if self._unreplicated_first_offset is not None:
            firsts.append(self._unreplicated_first_offset)
        return max(min(firsts), self.log_start_offset) if firsts else None

    def last_stable_offset(self, log_end_offset: int) -> int | None:
        """Return the last stable offset (TXN-4). None when the high watermark is unknown.

        The high watermark is first limited to [log start, log end], as a broker does at its start.
        """
        if self.high_watermark is None:
            return None
        high_watermark = max(min(self.high_watermark, log_end_offset), self.log_start_offset)
        first_unstable = self.first_unstable_offset
        if first_unstable is None:
            return high_watermark
        return min(first_unstable, high_watermark)
