"""Which records are wanted, by offset and time: for tables of them, and for single ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.transactions.isolation import Isolation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recovery.records.read_options import ReadOptions
    from storage.kernels.protocol import HeaderTable
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord


class WantedRecords:
    """Which offsets and times are wanted."""

    def __init__(self, options: ReadOptions) -> None:
        self._from_offset, self._to_offset = options.from_offset, options.to_offset
        self._end_offset = options.to_offset  # whatever the isolation level leaves out
        self._from_time_ms, self._to_time_ms = options.from_time_ms, options.to_time_ms
        stable_offset = options.stable_offset
        if options.isolation is Isolation.READ_COMMITTED and stable_offset is not None:
            to_offset = stable_offset if self._to_offset is None else self._to_offset
            self._to_offset = min(to_offset, stable_offset)
        limits = (self._from_offset, self._to_offset, self._from_time_ms, self._to_time_ms)
        self._is_open = limits == (None,) * len(limits)

    def may_hold(self, table: HeaderTable) -> NDArray[np.bool_]:
        """Tell which batches (v2) may have offsets within the bounds that were asked for."""
        is_wanted = np.ones(table.row_count, np.bool_)
        if self._from_offset is not None:
            is_wanted &= table.last_offset >= self._from_offset
        if self._end_offset is not None:
            is_wanted &= table.base_offset < self._end_offset
        return is_wanted

    def chosen(self, records: RecordTable) -> NDArray[np.int64] | None:
        """Return the wanted records, None for all."""
        if self._is_open:
            return None
        is_wanted = np.ones(records.row_count, np.bool_)
        for values, low, high in (
            (records.offset, self._from_offset, self._to_offset),
            (records.timestamp_ms, self._from_time_ms, self._to_time_ms),
        ):
            if low is not None:
                is_wanted &= values >= low
            if high is not None:
                is_wanted &= values < high
        return None if is_wanted.all() else np.flatnonzero(is_wanted)

    def holds(self, record: LogRecord) -> bool:
        """Is the record wanted?"""
        low, high = self._from_offset, self._to_offset
        from_ms, to_ms = self._from_time_ms, self._to_time_ms
        return (
            (low is None or record.offset >= low)
            and (high is None or record.offset < high)
            and (from_ms is None or record.timestamp_ms >= from_ms)
            and (to_ms is None or record.timestamp_ms < to_ms)
        )
