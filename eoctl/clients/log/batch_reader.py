"""Reads the data batches of a partition, whole and as bytes, from an offset on.

Control batches are left out, and so are batches that hold no record any more and those that are
hidden; they are counted. A batch is never divided at the end of what is asked for: it is given once
all of it may be read. At the start it may be (an offset inside, after DeleteRecords): then, as of
every batch that is not as a client may send one (APP-3), its records are given too:
  offsets with no record      what a cleaner has left of it; a client's are dense
  a delete horizon            a cleaner's note, which stands in place of the base timestamp
  message formats 0 and 1     which no broker of today writes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from eoctl.clients.log.bulk_records import visible
from eoctl.clients.log.log_damage import content_damage
from eoctl.clients.log.log_walk import LogWalk
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MAGIC_V2,
)
from storage.kernels.numpy_kernel import batch_at
from storage.kernels.protocol import HeaderTable, ScannedBatch
from storage.log.decoded_records import decoded_records

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from numpy.typing import NDArray

    from eoctl.clients.log.bulk_records import IsHidden
    from storage.dirs.partition import Partition
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.log.segment import LogRecord, Segment

GATHERED_BYTES = 2 << 20  # of batches that come one by one


class LogBatch(NamedTuple):
    """A data batch.

    Attributes:
        batch: its place and its header.
        data: all of its bytes, which may be overwritten.
        segment: where it is. Both are there until the next block is asked for.
        own_records: those that count, of a batch that is not as a client may send one; else None.
    """

    batch: ScannedBatch
    data: memoryview
    segment: Segment
    own_records: tuple[LogRecord, ...] | None

    @property
    def header(self) -> BatchHeader:
        """As it is in the log."""
        return self.batch.header

    @property
    def records_count(self) -> int:
        """How many records count."""
        return self.header.records_count if self.own_records is None else len(self.own_records)

    def records(self) -> tuple[LogRecord, ...]:
        """Return the records that count. Raises FormatError, AccessError."""
        if self.own_records is not None:
            return self.own_records
        return tuple(decoded_records(self.batch, self.segment))


class TableBatches(Sequence[LogBatch]):
    """Batches that go as they are, as columns; each becomes a LogBatch when it is asked for.

    Attributes:
        table: their headers, as they are in the log.
        first_pos: the place of the first one in the segment.
        data: all of their bytes, which may be overwritten; data[0] is at `first_pos`.
    """

    def __init__(
        self, table: HeaderTable, first_pos: int, data: memoryview, segment: Segment
    ) -> None:
        self.table = table
        self.first_pos = first_pos
        self.data = data
        self._segment = segment

    def __len__(self) -> int:
        """Count them."""
        return self.table.row_count

    @overload
    def __getitem__(self, place: int) -> LogBatch: ...

    @overload
    def __getitem__(self, place: slice) -> TableBatches: ...

    def __getitem__(self, place: int | slice) -> LogBatch | TableBatches:
        """Return one of them, or some."""
        if isinstance(place, slice):
            rows = HeaderTable._make(column[place] for column in self.table)
            return TableBatches(rows, self.first_pos, self.data, self._segment)
        batch = batch_at(self.table, place)
        start = batch.pos - self.first_pos
        data = self.data[start : start + batch.header.batch_bytes]
        return LogBatch(batch=batch, data=data, segment=self._segment, own_records=None)

    @property
    def records_count(self) -> int:
        """How many records all of them hold."""
        return int(self.table.records_count.sum(dtype=np.int64))

    def where(self, is_wanted: NDArray[np.bool_]) -> TableBatches:
        """Return some of them."""
        return TableBatches(_rows(self.table, is_wanted), self.first_pos, self.data, self._segment)

    @property
    def joined_count(self) -> int:
        """So many of them, from the first on, are one behind the other."""
        pos, size = self.table.pos, self.table.batch_bytes
        is_joined = pos[1:] == pos[:-1] + size[:-1]
        return len(self) if is_joined.all() else int(is_joined.argmin()) + 1


class LeftOut(NamedTuple):
    """How much was passed over, in batches and, where they are known, in records."""

    aborted_batches: int = 0
    aborted_records: int = 0
    control_batches: int = 0

    def plus(self, other: LeftOut) -> LeftOut:
        """Return the sums."""
        return LeftOut(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class BatchBlock(NamedTuple):
    """Batches in log order, maybe none; `next_offset` is behind them and what was left out."""

    batches: Sequence[LogBatch]
    left_out: LeftOut
    next_offset: int

    @property
    def records_count(self) -> int:
        """How many records count in all of them."""
        if isinstance(self.batches, TableBatches):
            return self.batches.records_count
        return sum(each.records_count for each in self.batches)


class BatchReader(LogWalk[BatchBlock]):
    """Gives the batches, many at a time."""

    def __init__(
        self, partition: Partition, next_offset: int, *, is_hidden: IsHidden = None
    ) -> None:
        """`is_hidden` tells which transactional data batches are not to be given."""
        super().__init__(partition, next_offset, is_hidden=is_hidden)
        self._gathered: list[LogBatch] = []
        self._gathered_bytes = 0
        self._left_out = LeftOut()
        self._run: TableBatches | None = None

    def seek(self, offset: int) -> None:
        """Go on at another offset."""
        super().seek(offset)
        self._gathered, self._gathered_bytes, self._left_out = [], 0, LeftOut()
        self._run = None

    # --- many at a time ---

    def _read_window(
        self, window: BulkWindow, segment: Segment, end_offset: int
    ) -> Generator[BatchBlock, None, bool]:
        table = window.table
        taken = int(np.searchsorted(table.last_offset, end_offset))
        is_new = table.last_offset >= self.next_offset
        is_new[taken:] = False
        is_control = is_new & ((table.attributes & CONTROL_MASK) != 0)
        data = _rows(table, is_new & ~is_control & (table.records_count > 0))
        kept = visible(data, self._is_hidden)
        self._left_out = self._left_out.plus(
            LeftOut(
                data.row_count - kept.row_count,
                int(data.records_count.sum() - kept.records_count.sum()),
                int(is_control.sum()),
            )
        )
        yield from self._take_rows(kept, window, segment)
        if taken:
            self._pos = int(table.pos[taken - 1] + table.batch_bytes[taken - 1])
            self._passed(int(table.last_offset[taken - 1]) + 1)
        yield from self._flush()
        return taken < table.row_count or self.next_offset >= end_offset

    def _take_rows(
        self, table: HeaderTable, window: BulkWindow, segment: Segment
    ) -> Iterator[BatchBlock]:
        """Gather batches of a window; what was walked of its buffer nobody looks at again."""
        if not table.row_count:
            return
        first_pos = int(table.pos[0])
        end_pos = table.end_pos
        data = memoryview(window.buf)[first_pos - window.file_pos : end_pos - window.file_pos]
        is_odd = table.records_count != table.last_offset - table.base_offset + 1
        is_odd |= (table.attributes & DELETE_HORIZON_MASK) != 0
        is_odd |= table.base_offset < self.next_offset
        batches = TableBatches(table, first_pos, data, segment)
        if not is_odd.any():
            self._run = batches
            return
        for each, odd in zip(batches, is_odd.tolist(), strict=True):
            yield from self._gather(each.batch, each.data, segment, is_odd=odd)
            self._passed(each.header.last_offset + 1)

    # --- one by one ---

    def _read_single(
        self, batch: ScannedBatch, segment: Segment, end_offset: int
    ) -> Generator[BatchBlock, None, bool]:
        header = batch.header
        if header.last_offset >= end_offset:
            return True
        if header.last_offset >= self.next_offset:
            yield from self._take_single(batch, segment)
        self._pos = batch.pos + header.batch_bytes
        self._passed(header.last_offset + 1)
        if self._gathered_bytes >= GATHERED_BYTES:
            yield from self._flush()
        return self.next_offset >= end_offset

    def _take_single(self, batch: ScannedBatch, segment: Segment) -> Iterator[BatchBlock]:
        header = batch.header
        if header.is_control:
            self._left_out = self._left_out.plus(LeftOut(control_batches=1))
        elif not self._is_visible(batch):
            self._left_out = self._left_out.plus(LeftOut(1, header.records_count, 0))
        elif header.records_count:
            try:
                data = memoryview(bytearray(segment.read_batch(batch)))
            except (FormatError, AccessError) as exc:
                yield from self._flush()
                self._lose(content_damage(batch, segment.path, exc, self._floor_offset))
                return
            is_odd = header.magic < MAGIC_V2 or header.base_offset < self.next_offset
            is_odd = is_odd or header.records_count != header.last_offset_delta + 1
            is_odd = is_odd or header.delete_horizon_ms is not None
            yield from self._gather(batch, data, segment, is_odd=is_odd)

    # --- what is given ---

    def _gather(
        self, batch: ScannedBatch, data: memoryview, segment: Segment, *, is_odd: bool
    ) -> Iterator[BatchBlock]:
        own_records = None
        if is_odd:
            try:
                found = decoded_records(batch, segment, self._floor_offset)
            except (FormatError, AccessError) as exc:
                yield from self._flush()
                self._lose(content_damage(batch, segment.path, exc, self._floor_offset))
                return
            own_records = tuple(each for each in found if each.offset >= self.next_offset)
            if not own_records:
                return
        self._gathered.append(
            LogBatch(batch=batch, data=data, segment=segment, own_records=own_records)
        )
        self._gathered_bytes += len(data)

    def _flush(self) -> Iterator[BatchBlock]:
        left_out, run = self._left_out, self._run
        if not self._gathered and run is None and not any(left_out):
            return
        batches = tuple(self._gathered) if run is None else run
        self._gathered, self._gathered_bytes, self._left_out = [], 0, LeftOut()
        self._run = None
        yield BatchBlock(batches, left_out, self.next_offset)


def _rows(table: HeaderTable, is_wanted: NDArray[np.bool_]) -> HeaderTable:
    return HeaderTable._make(column[is_wanted] for column in table)
