"""A reader of the data batches of a partition, whole and as bytes, from an offset on.

Control batches, batches without records and hidden batches are left out and counted. A batch is
never divided at the end of the range. It is returned once all of it may be read. At the start it
may be divided (an offset inside a batch, after DeleteRecords). The records of such a batch are
returned, too, as for every batch that a client may not send (APP-3):

- offsets without a record: a cleaner has removed some. A client's offsets are dense
- a delete horizon: a cleaner's note instead of the base timestamp
- message formats 0 and 1: no current broker writes them
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from eoctl.clients.log.consumer import TAIL_GRACE_S, Consumed, LogConsumer
from eoctl.clients.log.log_walk import LogWalk, LogWatch
from eoctl.clients.log.table_records import visible
from storage.checksum import crc32c
from storage.errors import AccessError, FormatError, RefusedError
from storage.formats.record_batch import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
)
from storage.kernels.numpy_kernel import batch_at
from storage.kernels.protocol import HeaderTable, ScannedBatch
from storage.log.decoded_records import decoded_records
from storage.log.segment import open_segment
from storage.places.log_reader import content_finding

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from numpy.typing import NDArray

    from eoctl.clients.log.consumer import ConsumeOptions
    from eoctl.clients.log.table_records import IsHidden
    from storage.dirs.partition import Partition
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.log.segment import LogRecord, Segment


GATHERED_BYTES = 2 << 20  # of batches that are read one by one


class LogBatch(NamedTuple):
    """A data batch.

    Attributes:
        batch: its position and its header.
        data: all of its bytes, which may be overwritten.
        segment: its segment. Both exist until the next block is requested.
        own_records: its valid records, if it is a batch that a client may not send. Else None.
    """

    batch: ScannedBatch
    data: memoryview
    segment: Segment
    own_records: tuple[LogRecord, ...] | None

    @property
    def header(self) -> BatchHeader:
        """The header in the log."""
        return self.batch.header

    @property
    def records_count(self) -> int:
        """The number of its valid records."""
        return self.header.records_count if self.own_records is None else len(self.own_records)

    def records(self) -> tuple[LogRecord, ...]:
        """Return its valid records. Raises FormatError, AccessError."""
        if self.own_records is not None:
            return self.own_records
        return tuple(decoded_records(self.batch, self.segment))


class TableBatches(Sequence[LogBatch]):
    """Batches that are copied unchanged, as columns. Each becomes a LogBatch on access.

    Attributes:
        table: their headers, as they are in the log.
        first_pos: position of the first batch in the segment.
        data: all of their bytes, which may be overwritten. data[0] is at `first_pos`.
    """

    def __init__(
        self, table: HeaderTable, first_pos: int, data: memoryview, segment: Segment
    ) -> None:
        self.table = table
        self.first_pos = first_pos
        self.data = data
        self._segment = segment

    def __len__(self) -> int:
        """Return the number of batches."""
        return self.table.row_count

    @overload
    def __getitem__(self, place: int) -> LogBatch: ...

    @overload
    def __getitem__(self, place: slice) -> TableBatches: ...

    def __getitem__(self, place: int | slice) -> LogBatch | TableBatches:
        """Return a batch, or a slice of the batches."""
        if isinstance(place, slice):
            rows = HeaderTable._make(column[place] for column in self.table)
            return TableBatches(rows, self.first_pos, self.data, self._segment)
        batch = batch_at(self.table, place)
        start = batch.pos - self.first_pos
        data = self.data[start : start + batch.header.batch_bytes]
        return LogBatch(batch=batch, data=data, segment=self._segment, own_records=None)

    @property
    def records_count(self) -> int:
        """The number of records of all batches."""
        return int(self.table.records_count.sum(dtype=np.int64))

    def where(self, is_wanted: NDArray[np.bool_]) -> TableBatches:
        """Return the wanted batches."""
        return TableBatches(_rows(self.table, is_wanted), self.first_pos, self.data, self._segment)

    @property
    def joined_count(self) -> int:
        """The number of batches, from the first on, without a gap between them."""
        pos, size = self.table.pos, self.table.batch_bytes
        is_joined = pos[1:] == pos[:-1] + size[:-1]
        return len(self) if is_joined.all() else int(is_joined.argmin()) + 1


class LeftOut(NamedTuple):
    """The batches that were left out, and their records if they are known."""

    aborted_batches: int = 0
    aborted_records: int = 0
    control_batches: int = 0

    def plus(self, other: LeftOut) -> LeftOut:
        """Return the sums."""
        return LeftOut(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class BatchBlock(NamedTuple):
    """Batches in log order, possibly none. `next_offset` is after them and the batches left out."""

    batches: Sequence[LogBatch]
    left_out: LeftOut
    next_offset: int

    @property
    def records_count(self) -> int:
        """The number of valid records of all batches."""
        if isinstance(self.batches, TableBatches):
            return self.batches.records_count
        return sum(each.records_count for each in self.batches)


class BatchReader(LogWalk[BatchBlock]):
    """A reader of batches, many at a time."""

    def __init__(
        self, partition: Partition, next_offset: int, *, is_hidden: IsHidden = None
    ) -> None:
        """Make a reader. `is_hidden` selects transactional data batches to leave out."""
        super().__init__(partition, next_offset, is_hidden=is_hidden)
        self._gathered: list[LogBatch] = []
        self._gathered_bytes = 0
        self._left_out = LeftOut()
        self._run: TableBatches | None = None

    def seek(self, offset: int) -> None:
        """Continue at another offset."""
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
        """Gather batches of a window. The walked part of its buffer is not used otherwise."""
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
                self._lose(content_finding(segment.path, batch, exc, self._floor_offset))
                return
            is_odd = header.magic < MAGIC_V2 or header.base_offset < self.next_offset
            is_odd = is_odd or header.records_count != header.last_offset_delta + 1
            is_odd = is_odd or header.delete_horizon_ms is not None
            yield from self._gather(batch, data, segment, is_odd=is_odd)

    # --- results ---

    def _gather(
        self, batch: ScannedBatch, data: memoryview, segment: Segment, *, is_odd: bool
    ) -> Iterator[BatchBlock]:
        own_records = None
        if is_odd:
            try:
                found = decoded_records(batch, segment, self._floor_offset)
            except (FormatError, AccessError) as exc:
                yield from self._flush()
                self._lose(content_finding(segment.path, batch, exc, self._floor_offset))
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


# -- a consumer of batches: the source of a copy


NEW_SESSION = "another --session begins a copy of its own, --from says where"


class BatchConsumer(LogConsumer[BatchBlock]):
    """A consumer of the batches of one partition, in passes over the present log.

    Missing offsets are an error here, because they would be a gap in the copy.
    """

    def __init__(self, path: str, options: ConsumeOptions, report: Callable[[str], None]) -> None:
        """Make a consumer as `LogConsumer` does."""
        super().__init__(path, options, report)
        self._path = path
        self._watch = LogWatch(self.partition)
        self._tail_since_s: float | None = None

    def _new_reader(self, offset: int, is_hidden: IsHidden) -> BatchReader:
        return BatchReader(self.partition, offset, is_hidden=is_hidden)

    def _count(self, given: BatchBlock) -> BatchBlock:
        before = self.consumed
        if given.batches:
            first = before.first_offset
            if first is None:
                first = given.batches[0].header.base_offset
            self.consumed = Consumed(
                records=before.records + given.records_count,
                first_offset=first,
                last_offset=given.batches[-1].header.last_offset,
                next_offset=given.next_offset,
            )
        return given

    # --- passes ---

    def blocks(self) -> Iterator[BatchBlock]:
        """Yield the present batches, from the end of the last pass on.

        Raises:
            DamageError, RefusedError, AccessError: the next batches are not available.
        """
        assert self.reader is not None
        return self._pass(self.reader)

    def has_more(self) -> bool:
        """Return whether the log has changed, and load the change. This does not wait."""
        reader = self.reader
        assert reader is not None
        if not self._watch.has_changed():
            if not reader.tail:
                self._tail_since_s = None
            elif self._tail_since_s is None:
                self._tail_since_s = time.monotonic()
            elif time.monotonic() - self._tail_since_s > TAIL_GRACE_S:
                reader.finish()
            return False
        self._tail_since_s = None
        self._take_in(self._watch, reader)
        return True

    def finish(self) -> None:
        """Report the damage at the end of the log. Raises DamageError."""
        assert self.reader is not None
        self._read_behind_end(self.reader)
        self.reader.finish()

    def blocks_again(self, start_offset: int, end_offset: int) -> Iterator[Sequence[LogBatch]]:
        """Yield the batches of a range again, at the same isolation level."""
        is_hidden = self._is_hidden if self._is_committed else None
        reader = BatchReader(self.partition, start_offset, is_hidden=is_hidden)
        return (block.batches for block in reader.read(end_offset))

    # --- parts that must be unchanged ---

    def require_batch(self, last_offset: int, digest: int) -> None:
        """Require that a batch that was copied is unchanged.

        A batch that was deleted at the start of the log meanwhile is ignored.

        Args:
            last_offset: last offset of the batch.
            digest: as from `records_digest`.

        Raises:
            RefusedError: the batch has changed.
        """
        log_end_offset = self.log_end_offset
        if log_end_offset <= last_offset:
            self._meet_truncation(last_offset + 1, log_end_offset)
        if last_offset < (self.partition.local_log_start_offset or 0):
            return
        found = self.partition.find_offset(last_offset)
        if found is not None and found.batch.header.last_offset == last_offset:
            with open_segment(found.files.log.path) as segment:
                data = segment.read_batch(found.batch)
            if records_digest(found.batch.header, data) == digest:
                return
        place = self._path
        if found is not None:
            place = f"{found.files.log.path}: position {found.batch.pos}"
        raise RefusedError(
            f"{place}: the batch that ends at offset {last_offset} is not the batch that was "
            "copied. The source was truncated and written again, or compacted, since",
            next_step=NEW_SESSION,
        )

    def _meet_truncation(self, offset: int, end_offset: int) -> None:
        raise RefusedError(
            f"{self._path}: was truncated to offset {end_offset}, and copied up to {offset}. The"
            " copy has records that the source has no more",
            next_step=NEW_SESSION,
        )

    def _meet_deletion(self, offset: int, first_offset: int) -> None:
        raise RefusedError(
            f"{self._path}: offsets {offset} to {first_offset - 1} were deleted before they were"
            f" copied. Its log starts at {first_offset} now",
            next_step=NEW_SESSION,
        )

    def require_from(self, offset: int) -> None:
        """Require that the batches from an offset on were not deleted. Raises RefusedError."""
        first_offset = self.partition.local_log_start_offset or 0
        if offset < first_offset:
            self._meet_deletion(offset, first_offset)


def records_digest(header: BatchHeader, data: bytes | memoryview) -> int:
    """Return a digest of a batch's records, as bytes, without fields of a leader or a producer."""
    start = HEADER_BYTES if header.magic >= MAGIC_V2 else LOG_OVERHEAD_BYTES
    return crc32c(memoryview(data)[start:])
