"""What the records of a batch must be together (BAT-8, BAT-9): for tables, and one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import HeaderTable
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord

    Flags = NDArray[np.bool_]


class RecordBounds:
    """Offsets and timestamps of the records of one batch, in the order they come."""

    def __init__(self, header: BatchHeader) -> None:
        self.count = 0
        self.max_timestamp_ms = 0
        self.has_tombstone = False
        self.wrong_offset = ""  # the first one
        self.is_outside = False
        self._before: int | None = None
        self._first, self._last = header.base_offset, header.last_offset
        # With a last offset that cannot be (BAT-4) nothing is inside.
        self._is_bounded = 0 < header.records_count <= header.last_offset_delta + 1

    def take(self, record: LogRecord) -> None:
        """Note the next record."""
        offset = record.offset
        self._take_offset(offset, self._before)
        self._before = offset
        self.has_tombstone = self.has_tombstone or record.value is None
        if not self.count or record.timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = record.timestamp_ms
        self.count += 1

    def take_table(self, records: RecordTable) -> None:
        """Note the next records, one or more; the same as `take` of each."""
        offset = records.offset
        before = np.concatenate(([offset[0] - 1], offset[:-1]))
        if self._before is not None:
            before[0] = self._before
        doubtful = offset <= before
        if self._is_bounded:
            doubtful |= (offset < self._first) | (offset > self._last)
        for row in np.flatnonzero(doubtful).tolist():
            self._take_offset(int(offset[row]), int(before[row]))
        self._before = int(offset[-1])
        self.has_tombstone = self.has_tombstone or bool((records.value_bytes < 0).any())
        latest_ms = int(records.timestamp_ms.max())
        self.max_timestamp_ms = max(latest_ms, self.max_timestamp_ms) if self.count else latest_ms
        self.count += len(offset)

    def _take_offset(self, offset: int, before: int | None) -> None:
        is_outside = self._is_bounded and not self._first <= offset <= self._last
        if is_outside and not self.is_outside:
            self.is_outside = True
            self.wrong_offset = str(offset)
        elif before is not None and offset <= before and not self.wrong_offset:
            self.wrong_offset = f"{offset} after {before}"


def has_good_offsets(table: HeaderTable, records: RecordTable) -> Flags:
    """BAT-8 for each batch; records of batches that are not whole are not there."""
    row, offset = records.batch_row, records.offset
    wrong = (offset < table.base_offset[row]) | (offset > table.last_offset[row])
    wrong[1:] |= (offset[1:] <= offset[:-1]) & (row[1:] == row[:-1])
    good = np.ones(records.batch_count, np.bool_)
    good[row[wrong]] = False
    return good


def has_its_max_timestamp(table: HeaderTable, records: RecordTable) -> Flags:
    """BAT-9 for each batch; with the append time a record's timestamp is the batch's anyway."""
    good = np.ones(records.batch_count, np.bool_)
    if records.row_count:
        starts = np.flatnonzero(np.diff(records.batch_row, prepend=-1))
        latest_ms = np.maximum.reduceat(records.timestamp_ms, starts)
        batch = records.batch_row[starts]
        good[batch] = latest_ms == table.max_timestamp_ms[batch]
    return good
