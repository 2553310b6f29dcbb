"""Offset and time index of a segment from its batches, in bulk, as recovery writes them (FIX-2).

For each batch at position p with last offset o and maximum timestamp m:
  1 if m is above the greatest so far, remember (m, o).
  2 if p - (position of the last indexed batch, 0 at first) > index.interval.bytes: `.index` gets
    (o, p). `.timeindex` gets the remembered pair if its timestamp is above the last entry's (-1 at
    first).
At the end `.timeindex` gets the remembered pair by the same test. Source: LogSegment.recover.

An index takes only offsets above its last offset. `.timeindex` takes only offsets at or above its
last offset. Neither takes more entries than its size allows. In each of these cases a broker throws
an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.kernels.layouts import INDEX_ENTRY, TIME_ENTRY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]

DEFAULT_INTERVAL_BYTES = 4096  # index.interval.bytes
DEFAULT_INDEX_MAX_BYTES = 10_485_760  # segment.index.bytes


class BuiltIndexes(NamedTuple):
    """The two index files, trimmed."""

    offset_index: bytes
    time_index: bytes


class IndexFailure(NamedTuple):
    """The first entry that a broker's index does not take.

    Attributes:
        row: of the batch in the added table. None for the last time entry, at the end.
        is_full: the index is full. Otherwise the offset decreases.
        reason: in words.
    """

    row: int | None
    is_full: bool
    reason: str


class IndexBuilder:
    """A builder that takes the batches of one segment, block by block, in order.

    Attributes:
        failure: the first entry that a broker's index does not take. None if it takes all.
    """

    def __init__(
        self,
        base_offset: int,
        interval_bytes: int = DEFAULT_INTERVAL_BYTES,
        max_bytes: int = DEFAULT_INDEX_MAX_BYTES,
    ) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.failure: IndexFailure | None = None
        self._max_entries = max_bytes // INDEX_ENTRY.itemsize
        self._max_time_entries = max_bytes // TIME_ENTRY.itemsize - 1  # one is kept for the close
        self._entries_count = self._time_entries_count = 0
        self._last_offset = self._last_time_offset = -1  # of the entries
        self._last_indexed_pos = 0
        self._max_timestamp_ms = -1
        self._max_timestamp_offset = -1
        self._last_entry_ms = -1
        self._index_parts: list[bytes] = []
        self._time_parts: list[bytes] = []

    def add(self, table: HeaderTable) -> None:
        """Take the next batches."""
        if not table.row_count:
            return
        greatest_ms, greatest_offset = self._running_maximum(table)
        rows = self._rows_to_index(table.pos)
        if len(rows):
            if self.failure is None:
                self._judge(rows, table.last_offset[rows], greatest_ms[rows], greatest_offset[rows])
            entries = np.empty(len(rows), INDEX_ENTRY)
            entries["relative_offset"] = table.last_offset[rows] - self.base_offset
            entries["segment_pos"] = table.pos[rows]
            self._index_parts.append(entries.tobytes())
            self._last_indexed_pos = int(table.pos[rows[-1]])
            self._add_time_entries(greatest_ms[rows], greatest_offset[rows])
        self._max_timestamp_ms = int(greatest_ms[-1])
        self._max_timestamp_offset = int(greatest_offset[-1])

    def finish(self) -> BuiltIndexes:
        """Return both files, the final time entry included."""
        is_later = self._max_timestamp_ms > self._last_entry_ms
        goes_back = self._time_entries_count and self._max_timestamp_offset < self._last_time_offset
        if self.failure is None and is_later and goes_back:
            self.failure = _goes_back(None, self._max_timestamp_offset, self._last_time_offset)
        self._add_time_entries(
            np.array([self._max_timestamp_ms], np.int64),
            np.array([self._max_timestamp_offset], np.int64),
        )
        return BuiltIndexes(b"".join(self._index_parts), b"".join(self._time_parts))

    def _judge(self, rows: Ints, offsets: Ints, times_ms: Ints, time_offsets: Ints) -> None:
        """Find the first entry that the index does not take. `rows` are rows of the table."""
        before = np.concatenate(([self._last_offset], offsets[:-1]))
        is_back = offsets <= before
        if not self._entries_count:
            is_back[0] = False
        is_later = times_ms > np.concatenate(([self._last_entry_ms], times_ms[:-1]))
        holder = np.maximum.accumulate(np.where(is_later, np.arange(len(rows)), -1))
        held = np.where(holder >= 0, time_offsets[holder], self._last_time_offset)
        last_time = np.concatenate(([self._last_time_offset], held[:-1]))
        counts = self._time_entries_count + np.cumsum(is_later) - is_later
        is_time_back = is_later & (time_offsets < last_time) & (counts > 0)
        is_full = self._entries_count + np.arange(len(rows)) >= self._max_entries
        is_full |= counts >= self._max_time_entries
        failed = np.flatnonzero(is_back | is_time_back | is_full)
        if len(failed):
            at = int(failed[0])
            row = int(rows[at])
            if is_full[at]:
                self.failure = IndexFailure(row, True, "an index has no room for another entry")
            elif is_back[at]:
                self.failure = _goes_back(row, int(offsets[at]), int(before[at]))
            else:
                self.failure = _goes_back(row, int(time_offsets[at]), int(last_time[at]))
        self._entries_count += len(rows)
        self._last_offset = int(offsets[-1])
        self._time_entries_count += int(is_later.sum())
        self._last_time_offset = int(held[-1])

    def _rows_to_index(self, pos: Ints) -> Ints:
        """Return rows that get an entry: each is the first far enough after the previous entry."""
        following = np.searchsorted(pos, pos + self.interval_bytes, "right").tolist()
        row = int(np.searchsorted(pos, self._last_indexed_pos + self.interval_bytes, "right"))
        rows = []
        while row < len(following):
            rows.append(row)
            row = following[row]
        return np.array(rows, np.int64)

    def _running_maximum(self, table: HeaderTable) -> tuple[Ints, Ints]:
        """Return the greatest timestamp up to each row, and the last offset of its first batch."""
        greatest_ms = np.maximum.accumulate(
            np.concatenate(([self._max_timestamp_ms], table.max_timestamp_ms))
        )
        is_new = greatest_ms[1:] > greatest_ms[:-1]
        holder = np.maximum.accumulate(np.where(is_new, np.arange(len(is_new)), -1))
        offsets = np.where(holder >= 0, table.last_offset[holder], self._max_timestamp_offset)
        return greatest_ms[1:], offsets

    def _add_time_entries(self, timestamps_ms: Ints, offsets: Ints) -> None:
        """Add new entries. Timestamps do not decrease, so a new entry has a higher timestamp."""
        before = np.concatenate(([self._last_entry_ms], timestamps_ms[:-1]))
        rows = np.flatnonzero(timestamps_ms > before)
        if not len(rows):
            return
        entries = np.empty(len(rows), TIME_ENTRY)
        entries["timestamp_ms"] = timestamps_ms[rows]
        entries["relative_offset"] = offsets[rows] - self.base_offset
        self._time_parts.append(entries.tobytes())
        self._last_entry_ms = int(timestamps_ms[rows[-1]])


def _goes_back(row: int | None, offset: int, last: int) -> IndexFailure:
    return IndexFailure(row, False, f"an index does not take offset {offset} after {last}")
