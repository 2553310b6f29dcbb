"""`.index` and `.timeindex` of a segment while it is written, batch by batch (rules APP-8, APP-9).

Per batch at position p with last offset o and maximum timestamp m:
  if m is above the greatest so far, it and o are remembered;
  if p - (position of the last indexed batch, 0 at first) > index.interval.bytes:
    `.index` gets (o, p); `.timeindex` gets the remembered pair if its timestamp is above that of
    the last entry there (-1 at first);
when the segment is rolled or closed the remembered pair is tried once more (ROLL-6).
Source: LogSegment.append. `recovery.rebuild.index_builder` does the same for tables of batches.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from storage.formats import offset_index, time_index

if TYPE_CHECKING:
    from collections.abc import Sequence


class SegmentIndexes:
    """The entries of one segment so far.

    Attributes:
        offset_entries_count, time_entries_count: what a broker would have in the two files.
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offset_entries_count = 0
        self.time_entries_count = 0
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self._last_indexed_pos = 0
        self._max_timestamp_ms = -1
        self._max_timestamp_offset = -1
        self._last_entry_ms = -1

    def add(self, pos: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Take the next batch."""
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._max_timestamp_offset = last_offset
        if pos - self._last_indexed_pos > self.interval_bytes:
            self._add_entry(pos, last_offset)

    def add_run(
        self, pos: Sequence[int], last_offsets: Sequence[int], timestamps_ms: Sequence[int]
    ) -> None:
        """Take the next batches; most of small ones get no entry, and no line is run for them."""
        count, done = len(pos), 0
        while done < count:
            row = bisect_right(pos, self._last_indexed_pos + self.interval_bytes, done, count)
            behind = min(row + 1, count)
            newest_ms = max(timestamps_ms[done:behind])
            if newest_ms > self._max_timestamp_ms:
                self._max_timestamp_ms = newest_ms
                self._max_timestamp_offset = last_offsets[timestamps_ms.index(newest_ms, done)]
            if row < count:
                self._add_entry(pos[row], last_offsets[row])
            done = behind

    def _add_entry(self, pos: int, last_offset: int) -> None:
        self._offset_entries += offset_index.ENTRY.pack(last_offset - self.base_offset, pos)
        self.offset_entries_count += 1
        self._last_indexed_pos = pos
        entry = self._time_entry()
        if entry:
            self._time_entries += entry
            self.time_entries_count += 1
            self._last_entry_ms = self._max_timestamp_ms

    def free_slots(self, index_max_bytes: int) -> int:
        """So many entries fit into each; the last slot of the time index is for its last entry."""
        offset_slots = index_max_bytes // offset_index.ENTRY_BYTES
        time_slots = index_max_bytes // time_index.ENTRY_BYTES
        return min(
            offset_slots - self.offset_entries_count, time_slots - 1 - self.time_entries_count
        )

    def is_full(self, index_max_bytes: int) -> bool:
        """Whether one of them is."""
        # As `free_slots`, without a call: it is asked for every batch.
        return (
            self.offset_entries_count >= index_max_bytes // offset_index.ENTRY_BYTES
            or self.time_entries_count >= index_max_bytes // time_index.ENTRY_BYTES - 1
        )

    def offset_index(self) -> bytes:
        """Return `.index`, trimmed."""
        return bytes(self._offset_entries)

    def time_index(self) -> bytes:
        """Return `.timeindex`, trimmed, with the last entry that a roll or a close adds."""
        return bytes(self._time_entries) + self._time_entry()

    def _time_entry(self) -> bytes:
        if self._max_timestamp_ms <= self._last_entry_ms:
            return b""
        offset = self._max_timestamp_offset - self.base_offset
        return time_index.ENTRY.pack(self._max_timestamp_ms, offset)
