"""Offset and time index of a segment from its batches, in bulk: what recovery writes (FIX-2).

Per batch at position p with last offset o and maximum timestamp m:
  if m is above the greatest so far, it and o are remembered;
  if p - (position of the last indexed batch, 0 at first) > index.interval.bytes:
    `.index` gets (o, p); `.timeindex` gets the remembered pair if its timestamp is above that of
    the last entry there (-1 at first);
at the end the remembered pair is tried once more. Source: LogSegment.recover.
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
    """The two files, trimmed."""

    offset_index: bytes
    time_index: bytes


class IndexBuilder:
    """Takes the batches of one segment, block by block, in order."""

    def __init__(self, base_offset: int, interval_bytes: int = DEFAULT_INTERVAL_BYTES) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
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
        self._add_time_entries(
            np.array([self._max_timestamp_ms], np.int64),
            np.array([self._max_timestamp_offset], np.int64),
        )
        return BuiltIndexes(b"".join(self._index_parts), b"".join(self._time_parts))

    def _rows_to_index(self, pos: Ints) -> Ints:
        """Rows that get an entry: each is the first one far enough behind the one before."""
        following = np.searchsorted(pos, pos + self.interval_bytes, "right").tolist()
        row = int(np.searchsorted(pos, self._last_indexed_pos + self.interval_bytes, "right"))
        rows = []
        while row < len(following):
            rows.append(row)
            row = following[row]
        return np.array(rows, np.int64)

    def _running_maximum(self, table: HeaderTable) -> tuple[Ints, Ints]:
        """Greatest timestamp up to each row, and the last offset of the first batch that had it."""
        greatest_ms = np.maximum.accumulate(
            np.concatenate(([self._max_timestamp_ms], table.max_timestamp_ms))
        )
        is_new = greatest_ms[1:] > greatest_ms[:-1]
        holder = np.maximum.accumulate(np.where(is_new, np.arange(len(is_new)), -1))
        offsets = np.where(holder >= 0, table.last_offset[holder], self._max_timestamp_offset)
        return greatest_ms[1:], offsets

    def _add_time_entries(self, timestamps_ms: Ints, offsets: Ints) -> None:
        """Timestamps do not decrease, so each is new if it is above the one before."""
        before = np.concatenate(([self._last_entry_ms], timestamps_ms[:-1]))
        rows = np.flatnonzero(timestamps_ms > before)
        if not len(rows):
            return
        entries = np.empty(len(rows), TIME_ENTRY)
        entries["timestamp_ms"] = timestamps_ms[rows]
        entries["relative_offset"] = offsets[rows] - self.base_offset
        self._time_parts.append(entries.tobytes())
        self._last_entry_ms = int(timestamps_ms[rows[-1]])
