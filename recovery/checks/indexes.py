"""`.index` and `.timeindex` of a segment compared with its batches: IDX-1 to IDX-6, TIM-1 to TIM-4.

An index may differ from a rebuilt index, because the entries depend on how batches were appended
(APP-8, COMP-10). The rule is that every look-up must succeed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from recovery.rules.findings import Severity
from storage.counts import agreeing, counted
from storage.formats import offset_index, time_index
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.layouts import INDEX_ENTRY, TIME_ENTRY

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from recovery.checks.context.collector import Circumstances, Collector
    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]


class _IndexFile(ABC):
    """The common base of both indexes: a good or damaged file, and a tail of zeros."""

    format: ModuleType  # a module of storage.formats
    entry: np.dtype[np.void]

    def __init__(
        self,
        path: str,
        data: bytes,
        base_offset: int,
        circumstances: Circumstances,
        collector: Collector,
        *,
        is_active: bool,
        is_recovered: bool,
    ) -> None:
        self._path = path
        self._circumstances = circumstances
        self._collector = collector
        self._is_active = is_active
        # The next start rebuilds it, so errors in it are harmless.
        self._severity = Severity.NOTE if is_recovered else None
        count = self.format.logical_entry_count(data)
        for problem in self.format.problems(data, base_offset):
            collector.add_error(problem, path=path, severity=self._severity)
        self._judge_tail(data, count * self.entry.itemsize)
        self._entries = np.frombuffer(data, self.entry, count)
        self._absolute = self._entries["relative_offset"].astype(np.int64) + base_offset
        self._begin(base_offset)

    @abstractmethod
    def _begin(self, base_offset: int) -> None:
        """Sort the entries in the order in which the batches need them."""

    def _judge_tail(self, data: bytes, tail_pos: int) -> None:
        is_entry = len(data) - tail_pos >= self.entry.itemsize
        has_tail = is_entry and not data[tail_pos:].strip(b"\0")
        if has_tail and (self._circumstances.is_trimmed or not self._is_active):
            self._add(
                "IDX-5",
                "zeros behind the entries: a broker takes the index for full",
                severity=self._severity or Severity.ERROR,
                start_pos=tail_pos,
                end_pos=len(data),
            )

    def _add(
        self,
        check_id: str,
        message: str,
        *,
        start_pos: int,
        end_pos: int,
        severity: Severity | None = None,
        expected: str = "",
        found: str = "",
        base_offset: int | None = None,
    ) -> None:
        self._collector.add(
            check_id,
            self._path,
            message,
            severity=severity or self._severity,
            start_pos=start_pos,
            end_pos=end_pos,
            expected=expected,
            found=found,
            base_offset=base_offset,
        )


class OffsetIndexCheck(_IndexFile):
    """The check of an `.index`, fed with the batches of its segment as tables."""

    format = offset_index
    entry = INDEX_ENTRY

    def _begin(self, base_offset: int) -> None:
        pos = self._entries["segment_pos"].astype(np.int64)
        self._place = np.argsort(pos, kind="stable")  # place of each entry in the file
        self._pos = pos[self._place]
        self._offset = self._absolute[self._place]
        self._last_offset = base_offset - 1
        self._has_batches = False
        self._walked_pos = 0

    def take(self, table: HeaderTable) -> None:
        """Check the entries that point to the next batches."""
        end_pos = table.end_pos
        start, stop = np.searchsorted(self._pos, (int(table.pos[0]), end_pos))
        entries = np.arange(start, stop)
        if len(entries):
            self._judge(table, entries)
        self._has_batches = True
        self._last_offset = max(self._last_offset, int(table.last_offset[-1]))
        self._walked_pos = end_pos

    def _judge(self, table: HeaderTable, entries: Ints) -> None:
        pos, offset = self._pos[entries], self._offset[entries]
        row = np.searchsorted(table.pos, pos, "right") - 1
        is_start = table.pos[row] == pos
        # A hole between the rows has a verdict. Entries that point into it are not checked.
        is_inside = pos < table.pos[row] + table.batch_bytes[row]
        for place in np.flatnonzero(~is_start & is_inside).tolist():
            self._wrong(int(entries[place]), "no batch starts at the entry's position")
        before = np.concatenate(([self._last_offset], table.last_offset[:-1]))
        is_judged = is_start & table.crc_ok[row] & (table.magic[row] >= MAGIC_V2)
        too_high = is_judged & (table.base_offset[row] > offset)
        too_low = is_start & table.crc_ok[row] & (before[row] >= offset)
        for place in np.flatnonzero(too_high).tolist():
            self._wrong(
                int(entries[place]),
                "the batch at the entry's position starts above its offset",
                expected=f"base offset <= {offset[place]}",
                found=f"base offset {table.base_offset[row[place]]}",
            )
        for place in np.flatnonzero(too_low & ~too_high).tolist():
            self._wrong(
                int(entries[place]),
                "a batch before the entry's position has its offset already",
                expected=f"last offset < {offset[place]}",
                found=f"last offset {before[row[place]]}",
            )

    def _wrong(self, entry: int, message: str, *, expected: str = "", found: str = "") -> None:
        file_pos = int(self._place[entry]) * offset_index.ENTRY_BYTES
        self._add(
            "IDX-3",
            message,
            start_pos=file_pos,
            end_pos=file_pos + offset_index.ENTRY_BYTES,
            expected=expected or f"a batch at position {self._pos[entry]} of the .log",
            found=found or "none",
            base_offset=int(self._offset[entry]),
        )

    def finish(self, log_bytes: int, max_batch_bytes: int) -> None:
        """Check the entries that point beyond all batches, and the gaps between the entries."""
        for entry in np.flatnonzero(self._pos >= log_bytes).tolist():
            self._wrong(entry, "the entry points behind the end of the .log")
        beyond = np.flatnonzero(self._offset > self._last_offset)
        if len(beyond):
            file_pos = int(self._place[beyond[0]]) * offset_index.ENTRY_BYTES
            self._add(
                "IDX-4",
                f"{counted(len(beyond), 'entry', 'entries')}"
                f" {agreeing(len(beyond), 'has an offset', 'have offsets')} beyond every batch"
                " of the .log",
                start_pos=file_pos,
                end_pos=file_pos + offset_index.ENTRY_BYTES,
                expected=f"an offset <= {self._last_offset}",
                found=str(int(self._offset[beyond[0]])),
            )
        interval_bytes = self._circumstances.interval_bytes
        if interval_bytes is None or self._circumstances.has_damage or not self._has_batches:
            return
        stops = np.concatenate(([0], self._pos[self._pos < log_bytes], [self._walked_pos]))
        gaps = np.diff(stops)
        widest = int(np.argmax(gaps))
        if gaps[widest] > 2 * interval_bytes + max_batch_bytes:
            self._add(
                "IDX-6",
                f"no entry for {gaps[widest]} bytes of the .log from {stops[widest]} on",
                severity=Severity.NOTE,
                start_pos=widest * offset_index.ENTRY_BYTES,
                end_pos=widest * offset_index.ENTRY_BYTES,
            )


class TimeIndexCheck(_IndexFile):
    """The check of a `.timeindex`, fed with the batches of its segment as tables."""

    format = time_index
    entry = TIME_ENTRY

    def _begin(self, base_offset: int) -> None:
        del base_offset  # a time has no own position
        ms = self._entries["timestamp_ms"].astype(np.int64)
        self._last_ms = int(ms[-1]) if len(ms) else -1
        self._place = np.argsort(self._absolute, kind="stable")
        self._offset = self._absolute[self._place]
        self._ms = ms[self._place]
        self._done = 0  # number of entries below the checked offsets
        self._max_ms = -1

    def take(self, table: HeaderTable) -> None:
        """Check the entries whose offsets the next batches reach."""
        table = type(table)._make(column[table.crc_ok] for column in table)
        if not table.row_count:
            return
        greatest_ms = np.maximum.accumulate(
            np.concatenate(([self._max_ms], table.max_timestamp_ms))
        )
        last_offset = np.maximum.accumulate(table.last_offset)
        stop = int(np.searchsorted(self._offset, int(last_offset[-1]), "right"))
        if stop > self._done:
            entries = np.arange(self._done, stop)
            offset, ms = self._offset[entries], self._ms[entries]
            passed = np.searchsorted(last_offset, offset, "right")
            is_late = greatest_ms[passed] > ms
            for place in np.flatnonzero(is_late).tolist():
                self._late(int(entries[place]), int(greatest_ms[passed[place]]))
            row = np.minimum(np.searchsorted(last_offset, offset), table.row_count - 1)
            is_other = (table.max_timestamp_ms[row] != ms) | (table.base_offset[row] > offset)
            is_other &= (table.magic[row] >= MAGIC_V2) & ~is_late
            for entry in entries[is_other].tolist():
                self._wrong("TIM-3", entry, "no batch with the entry's offset has its timestamp")
            self._done = stop
        self._max_ms = int(greatest_ms[-1])

    def _late(self, entry: int, greatest_ms: int) -> None:
        self._wrong(
            "TIM-2",
            entry,
            "a batch at or before the entry's offset has a later timestamp: look-ups skip it",
            expected=f"timestamp >= {greatest_ms}",
        )

    def _wrong(
        self, check_id: str, entry: int, message: str, *, expected: str = "", found: str = ""
    ) -> None:
        file_pos = int(self._place[entry]) * time_index.ENTRY_BYTES
        self._add(
            check_id,
            message,
            start_pos=file_pos,
            end_pos=file_pos + time_index.ENTRY_BYTES,
            expected=expected,
            found=found or f"timestamp {self._ms[entry]}",
            base_offset=int(self._offset[entry]),
        )

    def finish(self) -> None:
        """Check the entries that no batch reaches, and the end of the index."""
        for entry in range(self._done, len(self._offset)):
            if self._max_ms > self._ms[entry]:
                self._late(entry, self._max_ms)
            else:
                self._wrong("TIM-3", entry, "the entry's offset is beyond every batch of the .log")
        is_behind = self._max_ms > self._last_ms
        if is_behind and (not self._is_active or self._circumstances.is_trimmed):
            self._add(
                "TIM-4",
                "the last entry is older than the youngest batch",
                start_pos=max(len(self._offset) - 1, 0) * time_index.ENTRY_BYTES,
                end_pos=len(self._offset) * time_index.ENTRY_BYTES,
                expected=f"timestamp {self._max_ms}",
                found=f"timestamp {self._last_ms}",
            )
