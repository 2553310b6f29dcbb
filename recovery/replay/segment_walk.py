"""The walk of `replay_segment`: what a scan gives, up to where recovery ends, in large tables.

Ends before the first batch
  with a wrong checksum                                             BAT-1
  whose offsets do not fit the segment's base offset                SEG-2, SEG-3
  that reaches the end offset
and behind the first control batch whose record is no marker (see `end_markers`): recovery counts a
batch as valid before it looks at that record, so the batch stays, and producer state ignores it.
Nothing else of a batch matters to recovery (REC-8); the scan itself ends at a broken frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.replay.end_markers import (
    REFUSED_CHECK_ID,
    has_marker,
    marker_rows,
    read_marker,
    read_markers,
)
from recovery.replay.producer_columns import MarkerColumns
from storage.errors import FormatError
from storage.kernels.numpy_kernel import rows_of, table_of
from storage.kernels.protocol import MAX_BLOCK_ROWS, HeaderTable, Verdict, VerdictKind
from storage.limits import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment
    from storage.producers.producer_state import Marker

# Tables of fewer rows are joined: a table costs some hundred numpy calls, however short it is.
MIN_TABLE_ROWS = 16_384


class SegmentWalk:
    """Collects batches and hands them on, with their markers, in tables.

    Attributes:
        is_over: nothing more is to be taken.
        stop: why, unless the end offset was met.
        refusal: why a broker cannot load this log.
        batches_count, last_offset, max_timestamp_ms, valid_bytes: of what was taken.
    """

    def __init__(
        self,
        segment: Segment,
        hand_on: Callable[[HeaderTable, MarkerColumns, slice], None],
        *,
        start_offset: int | None,
        end_offset: int | None,
    ) -> None:
        """`hand_on` gets a table, its markers and which of its rows producer state reflects."""
        self.is_over = False
        self.stop: Verdict | None = None
        self.refusal: FormatError | None = None
        self.batches_count = 0
        self.last_offset = -1
        self.max_timestamp_ms = -1
        self.valid_bytes = 0
        self._segment = segment
        self._hand_on = hand_on
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._tables: list[HeaderTable] = []
        self._markers: list[MarkerColumns] = []
        self._row_count = 0
        self._skip_count = 0  # of these rows: first ones, below the start offset
        self._ignored_count = 0  # the last one, if it is no marker
        self._singles: list[ScannedBatch] = []
        self._single_markers: list[tuple[int, Marker]] = []

    def take_window(self, window: BulkWindow) -> None:
        """Take healthy batches."""
        self._join_singles()
        table = window.table
        if self._end_offset is not None:
            reached = np.flatnonzero(table.last_offset >= self._end_offset)
            if len(reached):
                self.is_over = True
                table = rows_of(table, 0, int(reached[0]))
        first = self._first_wanted(table)
        rows = marker_rows(table)
        markers, failed = read_markers(self._segment, window, table, rows[rows >= first])
        if failed is not None:
            row, error = failed
            pos = int(table.pos[row])
            self._fail(error, pos, pos + int(table.batch_bytes[row]))
            table = rows_of(table, 0, row + 1)
        self._keep(table, markers)

    def take_batch(self, batch: ScannedBatch) -> None:
        """Take a batch that is not healthy, or of an old format, unless it ends the walk."""
        header, pos = batch.header, batch.pos
        self.stop = self._why_stop(batch)
        if self.stop is not None or (
            self._end_offset is not None and header.last_offset >= self._end_offset
        ):
            self.is_over = True
            return
        if self._start_offset is not None and header.last_offset < self._start_offset:
            self._skip_count += 1
        else:
            self._start_offset = None
            if has_marker(header):
                try:
                    marker = read_marker(self._segment, batch)
                    self._single_markers.append((len(self._singles), marker))
                except FormatError as error:
                    self._fail(error, pos, pos + header.batch_bytes)
        self._singles.append(batch)
        if len(self._singles) >= MIN_TABLE_ROWS:
            self._join_singles()

    def flush(self) -> None:
        """Hand on what was collected."""
        self._join_singles()
        if not self._row_count:
            return
        tables, markers = self._tables, MarkerColumns.joined(self._markers)
        whole = tables[0]
        if len(tables) > 1:
            whole = HeaderTable._make(map(np.concatenate, zip(*tables, strict=True)))
        skip_count, end_row = self._skip_count, whole.row_count - self._ignored_count
        self._tables, self._markers, self._row_count, self._skip_count = [], [], 0, 0
        for start in range(0, whole.row_count, MAX_BLOCK_ROWS):
            table = rows_of(whole, start, start + MAX_BLOCK_ROWS)
            part = markers.between(start, start + MAX_BLOCK_ROWS)
            self._hand_on(table, part, slice(max(skip_count - start, 0), max(end_row - start, 0)))

    def _first_wanted(self, table: HeaderTable) -> int:
        """Return the first row that is not below the start offset."""
        if self._start_offset is None:
            return 0
        reached = np.flatnonzero(table.last_offset >= self._start_offset)
        if not len(reached):
            self._skip_count += table.row_count
            return table.row_count
        self._start_offset = None
        self._skip_count += int(reached[0])
        return int(reached[0])

    def _why_stop(self, batch: ScannedBatch) -> Verdict | None:
        header, base_offset = batch.header, self._segment.known_base_offset
        end_pos = batch.pos + header.batch_bytes
        if batch.crc_ok is False:
            reason = f"checksum {header.crc} does not match"
            return Verdict(
                kind=VerdictKind.CORRUPT,
                start_pos=batch.pos,
                end_pos=end_pos,
                check_id="BAT-1",
                reason=reason,
            )
        if base_offset is None:
            return None
        relative_offset = header.last_offset - base_offset
        if 0 <= relative_offset <= MAX_RELATIVE_OFFSET:
            return None
        check_id = "SEG-2" if relative_offset < 0 else "SEG-3"
        reason = f"last offset {header.last_offset} does not fit base offset {base_offset}"
        return Verdict(
            kind=VerdictKind.CORRUPT,
            start_pos=batch.pos,
            end_pos=end_pos,
            check_id=check_id,
            reason=reason,
        )

    def _fail(self, error: FormatError, pos: int, end_pos: int) -> None:
        self.is_over = True
        self._ignored_count = 1
        if error.check_id == REFUSED_CHECK_ID:
            self.refusal = error
        self.stop = Verdict(
            kind=VerdictKind.CORRUPT,
            start_pos=pos,
            end_pos=end_pos,
            check_id=error.check_id,
            reason=error.message,
        )

    def _join_singles(self) -> None:
        if self._singles:
            table, markers = table_of(self._singles), MarkerColumns.of(self._single_markers)
            self._singles, self._single_markers = [], []
            self._keep(table, markers)

    def _keep(self, table: HeaderTable, markers: MarkerColumns) -> None:
        if not table.row_count:
            return
        self._tables.append(table)
        self._markers.append(markers._replace(row=markers.row + self._row_count))
        self._row_count += table.row_count
        self.batches_count += table.row_count
        self.last_offset = int(table.last_offset[-1])
        self.max_timestamp_ms = max(self.max_timestamp_ms, int(table.max_timestamp_ms.max()))
        self.valid_bytes = table.end_pos
        if self._row_count >= MIN_TABLE_ROWS:
            self.flush()
