"""The scan kernel in bulk: `pure.scan_window` with columns instead of a Python object per batch.

`scan_window` finds the same healthy v2 batches, stops at the same place and leaves the same
`Neighbours`. `pure` is the definition, and only `pure` decides about a place that is not healthy.
The bulk kernel replaces these steps:

- batch starts: a loop of one unpack and one addition per batch. All rules are checked afterwards on
  columns. The first row that breaks a rule ends the window.
- headers: one gather of 61 bytes per row from a view of the buffer with stride 1.
- checksums: map over slices, without bytecode per batch.

`BulkScan` is `scan.Scan` with this loop instead of the plain loop. `scan_tables` returns its result
only as tables.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from storage.checksum import load_crc32c
from storage.files.positioned_file import ReadWindow
from storage.formats.compression import MAX_CODEC
from storage.formats.record_batch import (
    CODEC_MASK,
    CONTROL_MASK,
    CRC_START_POS,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    BatchHeader,
)
from storage.kernels import pure
from storage.kernels.kernel_choice import load_native
from storage.kernels.layouts import COLUMN_DTYPES, HEADER_DTYPE, empty_table
from storage.kernels.native_kernel import HeaderReader
from storage.kernels.native_kernel import scan_window as native_scan_window
from storage.kernels.offset_order import INSPECTED_COUNT, Span
from storage.kernels.protocol import MAX_BLOCK_ROWS, MAX_SINGLES, HeaderTable, ScannedBatch
from storage.kernels.pure import LENGTH_POS, UNUSED_ATTRIBUTES
from storage.kernels.scan import Scan
from storage.limits import as_int64

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from storage.files.positioned_file import PositionedFile
    from storage.kernels.protocol import Verdict
    from storage.kernels.pure import Neighbours

MAX_WINDOW_BYTES = 32 << 20  # such a batch may have millions of records, which need tables
WINDOW_BYTES = 2 << 20  # calls cost less per batch than with 1 MiB; 4 MiB do not fit into the cache
CAREFUL_BYTES = 64 << 10  # read by the plain loop after a place that was not healthy

# Unsigned: a negative length becomes a huge length and ends the walk like any length that is too
# big.
_BATCH_LENGTH = Struct(">I")


def scan_window(
    buf: bytearray,
    start_pos: int,
    end_pos: int,
    *,
    file_pos: int,
    neighbours: Neighbours,
    verify_crc: bool,
    begin_before: int | None = None,
) -> tuple[HeaderTable, int]:
    """Scan as `pure.scan_window` does, with a table of any number of rows as the result.

    With `begin_before`, only batches that begin before that place in `buf` are walked.
    """
    last_pos = end_pos - HEADER_BYTES
    if begin_before is not None:
        last_pos = min(last_pos, begin_before - 1)
    starts, next_pos = _walk(buf, start_pos, last_pos, end_pos)
    if not starts:
        return empty_table(), start_pos
    pos = np.array(starts, np.int64)
    table = _gather(buf, pos, next_pos)
    crc_ok = np.ones(len(pos), np.bool_)
    if verify_crc:
        crc_ok = checksums(buf, pos, table.batch_bytes) == table.crc
    delta = table.last_offset - table.base_offset
    healthy = crc_ok & _keeps_rules(table, delta, neighbours)
    row_count = len(pos)
    if not healthy.all():
        row_count = int(healthy.argmin())
        if row_count == 0:
            return empty_table(), start_pos
        next_pos = int(pos[row_count - 1] + table.batch_bytes[row_count - 1])
        table = rows_of(table, 0, row_count)
    neighbours.pass_over(table)
    return table._replace(pos=pos[:row_count] + file_pos), next_pos


def _walk(buf: bytearray, start_pos: int, last_pos: int, end_pos: int) -> tuple[list[int], int]:
    """Follow the lengths of batches that begin at or before `last_pos`.

    Returns the starts of the batches that end by `end_pos`, and the end of the last batch.
    """
    starts: list[int] = []
    append, unpack = starts.append, _BATCH_LENGTH.unpack_from
    pos = start_pos
    while pos <= last_pos:
        append(pos)
        pos += unpack(buf, pos + LENGTH_POS)[0] + LOG_OVERHEAD_BYTES
    if pos > end_pos and starts:
        pos = starts.pop()
    return starts, pos


def _gather(buf: bytearray, pos: NDArray[np.int64], next_pos: int) -> HeaderTable:
    """Read the headers at `pos` (batches back to back up to `next_pos`) into columns."""
    rows = headers_in(buf)[pos]
    base_offset = rows["base_offset"].astype(np.int64)
    columns: dict[str, Any] = {
        name: rows[name].astype(COLUMN_DTYPES[name])
        for name in COLUMN_DTYPES
        if name in HEADER_DTYPE.fields  # type: ignore[operator]
    }
    columns["pos"] = pos
    columns["batch_bytes"] = np.diff(pos, append=next_pos)
    columns["base_offset"] = base_offset
    columns["last_offset"] = base_offset + rows["last_offset_delta"]
    columns["crc_ok"] = np.ones(len(pos), np.bool_)
    return HeaderTable(**columns)


def headers_in(buf: bytearray | memoryview) -> NDArray[np.void]:
    """View a buffer as headers that begin at each of its bytes."""
    return np.ndarray((len(buf) - HEADER_BYTES + 1,), HEADER_DTYPE, buf, 0, (1,))


def checksums(
    buf: bytearray | memoryview, pos: NDArray[np.int64], batch_bytes: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Compute the CRC of each batch at `pos` in a buffer."""
    slices = map(slice, (pos + CRC_START_POS).tolist(), (pos + batch_bytes).tolist())
    with memoryview(buf) as view:
        return np.fromiter(map(load_crc32c(), map(view.__getitem__, slices)), np.uint32, len(pos))


def _keeps_rules(
    table: HeaderTable, delta: NDArray[np.int64], neighbours: Neighbours
) -> NDArray[np.bool_]:
    """Return for each row whether it is healthy, if all rows before it are."""
    base_offset, epoch = table.base_offset, table.partition_leader_epoch
    count, attributes = table.records_count, table.attributes
    healthy = table.magic == MAGIC_V2
    healthy &= table.batch_bytes >= MIN_BATCH_LENGTH + LOG_OVERHEAD_BYTES
    healthy &= delta >= 0
    healthy &= (count >= 0) & (count <= delta + 1)
    healthy &= (attributes & CODEC_MASK) <= MAX_CODEC
    healthy &= (attributes & UNUSED_ATTRIBUTES) == 0
    healthy &= base_offset >= neighbours.min_offset
    healthy &= base_offset <= neighbours.max_offset - delta
    healthy[0] &= bool(base_offset[0] > neighbours.last_offset)
    healthy[1:] &= base_offset[1:] > table.last_offset[:-1]
    # Healthy epochs never decrease, so the last known epoch is the maximum so far.
    known = np.maximum.accumulate(epoch)
    healthy &= (epoch == -1) | ((epoch >= known) & (epoch >= neighbours.leader_epoch))
    return np.asarray(healthy, np.bool_)


def table_of(batches: Iterable[ScannedBatch]) -> HeaderTable:
    """Turn batches of a plain scan into rows."""
    rows = [
        (
            each.pos,
            each.header.batch_bytes,
            each.header.base_offset,
            as_int64(each.header.last_offset),
            each.header.partition_leader_epoch,
            each.header.magic,
            each.header.attributes,
            each.header.base_timestamp_ms,
            each.header.max_timestamp_ms,
            each.header.producer_id,
            each.header.producer_epoch,
            each.header.base_sequence,
            each.header.records_count,
            each.header.crc,
            each.crc_ok is not False,
        )
        for each in batches
    ]
    if not rows:
        return empty_table()
    columns = zip(*rows, strict=True)
    dtypes = COLUMN_DTYPES.values()
    return HeaderTable._make(
        np.array(column, dtype) for column, dtype in zip(columns, dtypes, strict=True)
    )


def batch_at(table: HeaderTable, row: int) -> ScannedBatch:
    """Turn a row into the value of a plain scan."""
    base_offset = int(table.base_offset[row])
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=int(table.batch_bytes[row]) - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=int(table.partition_leader_epoch[row]),
        magic=int(table.magic[row]),
        crc=int(table.crc[row]),
        attributes=int(table.attributes[row]),
        last_offset_delta=int(table.last_offset[row]) - base_offset,
        base_timestamp_ms=int(table.base_timestamp_ms[row]),
        max_timestamp_ms=int(table.max_timestamp_ms[row]),
        producer_id=int(table.producer_id[row]),
        producer_epoch=int(table.producer_epoch[row]),
        base_sequence=int(table.base_sequence[row]),
        records_count=int(table.records_count[row]),
    )
    return ScannedBatch(int(table.pos[row]), header, bool(table.crc_ok[row]))


class BulkWindow(NamedTuple):
    """Healthy v2 batches in one buffer, back to back. Valid until the next window.

    Attributes:
        table: a row per batch, any number of rows.
        buf: contains the batches. buf[0] is byte `file_pos` of the file.
        has_bodies: all batches are there as in the file. If not, there are only the control
            batches, back to back.
    """

    table: HeaderTable
    buf: bytes | bytearray
    file_pos: int
    has_bodies: bool = True

    def controls(self, table: HeaderTable) -> tuple[HeaderTable, bytes | bytearray, int]:
        """Return the arguments of `decode_records` for some of the control batches."""
        if self.has_bodies:
            return table, self.buf, self.file_pos
        rows = np.flatnonzero(self.table.attributes & CONTROL_MASK)
        sizes = self.table.batch_bytes[rows]
        place = (np.cumsum(sizes) - sizes)[np.searchsorted(self.table.pos[rows], table.pos)]
        return table._replace(pos=place), self.buf, 0


class ScannedFile(Protocol):
    """The part of a `storage.log.segment.Segment` that a scan uses."""

    @property
    def file(self) -> PositionedFile:
        """The underlying file."""

    @property
    def known_base_offset(self) -> int | None:
        """The base offset, or None if neither the caller nor the name gave it."""


class BulkScan(Scan):
    """A Scan whose hot loop works on whole windows. Its result is in `parts`.

    After a place that is not healthy the plain loop comes first. Windows grow until the next such
    place. So the bulk work behind that place, which is wasted, stays a fixed share of the good
    data.
    """

    max_window_bytes = MAX_WINDOW_BYTES

    def __init__(
        self, segment: ScannedFile, *, with_bodies: bool = True, threads: int = 1, **options: Any
    ) -> None:
        """Take the options of `Segment.scan`.

        Without bodies, windows may contain only the bytes of their control batches. With several
        `threads`, the data behind them is read meanwhile.
        """
        super().__init__(segment.file, segment.known_base_offset, **options)
        left = max(self.end_pos - self.start_pos, 0)
        self._window = ReadWindow(self._range, min(WINDOW_BYTES, left))
        self._reach_bytes = WINDOW_BYTES
        native = load_native()
        self._scan_window = partial(native_scan_window, native) if native else scan_window
        self._headers = None
        if native is not None and not with_bodies and left >= WINDOW_BYTES:
            self._headers = HeaderReader.of(native, segment.file, threads)

    def parts(self) -> Iterator[BulkWindow | ScannedBatch]:
        """Yield windows of healthy batches and, as single batches, all others."""
        return cast("Iterator[BulkWindow | ScannedBatch]", self._rows)

    def _run(self, pos: int) -> Generator[list[Any], None, int]:
        window, neighbours, wanted_bytes = self._window, self._neighbours, HEADER_BYTES
        while True:
            if (stretch := self._stretch(pos)) is not None:
                pos, wanted_bytes = stretch.table.end_pos, HEADER_BYTES
                self._search.seen_v2 = True
                self._passed(pos)
                yield [stretch]
                continue
            left = window.load(pos, wanted_bytes)
            start = pos - window.pos
            reach = min(left, self._reach_bytes)
            last_offset, leader_epoch = neighbours.last_offset, neighbours.leader_epoch
            table, stop = self._healthy(start, start + reach)
            doubted = self._first_doubted(table, last_offset)
            if doubted is not None:
                stop = int(table.pos[doubted]) - window.pos
                table = rows_of(table, 0, doubted)
                neighbours.last_offset, neighbours.leader_epoch = last_offset, leader_epoch
                if doubted:
                    neighbours.pass_over(table)
            if stop > start:
                self._search.seen_v2 = True
                pos = window.pos + stop
                self._passed(pos)
                yield [BulkWindow(table, window.buf, window.pos)]
            if doubted is not None:
                self._reach_bytes = CAREFUL_BYTES
                return pos
            if reach < left and _is_cut(window.buf, stop, start + reach):
                self._reach_bytes *= 4
                continue
            wanted_bytes = self._cut_batch_bytes(pos, left - (stop - start))
            if not wanted_bytes:
                self._reach_bytes = CAREFUL_BYTES
                return pos
            self._reach_bytes = max(self._reach_bytes * 4, wanted_bytes)

    def _stretch(self, pos: int) -> BulkWindow | None:
        """Read on without a window, if that is possible and yields rows."""
        if self._headers is None or self._reach_bytes < WINDOW_BYTES:
            return None
        hole = self._range.first_unreadable(pos, self.end_pos)
        end_pos = self.end_pos if hole is None else hole.start_pos
        if end_pos - pos < WINDOW_BYTES:
            return None
        table, controls = self._headers.read(
            pos,
            min(pos + self._reach_bytes, end_pos),
            end_pos=end_pos,
            neighbours=self._neighbours,
            verify_crc=self._verify_crc,
        )
        if not table.row_count:
            return None
        self._reach_bytes *= 4
        return BulkWindow(table, controls, pos, has_bodies=False)

    def _first_doubted(self, table: HeaderTable, last_offset: int) -> int | None:
        """Return the first row whose offset is behind a gap and contradicts later rows."""
        if not table.row_count:
            return None
        first = max(0, table.row_count - INSPECTED_COUNT)
        last_offsets = table.last_offset[max(first - 1, 0) :].tolist()
        if not first:
            last_offsets.insert(0, last_offset)
        tail = rows_of(table, first, table.row_count)
        pos, size = tail.pos.tolist(), tail.batch_bytes.tolist()
        spans = [
            Span(
                start_pos=each,
                end_pos=each + size[row],
                base_offset=base_offset,
                last_offset=last_offsets[row + 1],
            )
            for row, (each, base_offset) in enumerate(
                zip(pos, tail.base_offset.tolist(), strict=True)
            )
        ]
        doubted = self._doubted_of(spans, last_offsets[0])
        return None if doubted is None else first + doubted

    def _healthy(self, start: int, end: int) -> tuple[HeaderTable, int]:
        """Walk one window, or the first piece after a bad place."""
        buf, file_pos, neighbours = self._window.buf, self._window.pos, self._neighbours
        verify_crc = self._verify_crc
        if self._reach_bytes > CAREFUL_BYTES:
            return self._scan_window(
                buf, start, end, file_pos=file_pos, neighbours=neighbours, verify_crc=verify_crc
            )
        rows, stop = pure.scan_window(
            buf, start, end, file_pos=file_pos, neighbours=neighbours, verify_crc=verify_crc
        )
        return table_of(rows), stop


def _is_cut(buf: bytearray, pos: int, end_pos: int) -> bool:
    """Return whether the batch at `pos` is not whole before `end_pos`."""
    if end_pos - pos < HEADER_BYTES:
        return True
    return bool(
        pos + _BATCH_LENGTH.unpack_from(buf, pos + LENGTH_POS)[0] > end_pos - LOG_OVERHEAD_BYTES
    )


class TableScan:
    """Iterator of HeaderTable, of at most MAX_BLOCK_ROWS rows each. Verdicts may run ahead."""

    def __init__(self, scan: BulkScan) -> None:
        self.scan = scan
        self._tables = self._blocks()

    def __iter__(self) -> Iterator[HeaderTable]:
        return self._tables

    def __next__(self) -> HeaderTable:
        return next(self._tables)

    @property
    def verdicts(self) -> list[Verdict]:
        """Every stretch that is not ok, by position."""
        return self.scan.verdicts

    @property
    def verdict(self) -> Verdict:
        """The first verdict that is not ok, or ok for the whole range."""
        return self.scan.verdict

    @property
    def suspicions(self) -> list[Verdict]:
        """Legal data that no healthy broker writes (BAT-10, BAT-14)."""
        return self.scan.suspicions

    @property
    def valid_bytes(self) -> int:
        """End of the last whole batch of the broker's walk."""
        return self.scan.valid_bytes

    @property
    def resynced(self) -> bool:
        """Return whether further rows are behind a break of the chain."""
        return self.scan.resynced

    def _blocks(self) -> Iterator[HeaderTable]:
        for block in blocks(self.scan, most=MAX_BLOCK_ROWS):
            for start in range(0, block.table.row_count, MAX_BLOCK_ROWS):
                yield rows_of(block.table, start, start + MAX_BLOCK_ROWS)


def rows_of(table: HeaderTable, start: int, end: int) -> HeaderTable:
    """Return some rows of a table."""
    return HeaderTable._make(column[start:end] for column in table)


def scan_tables(segment: ScannedFile, **options: Any) -> TableScan:
    """Scan a segment in blocks of columns, with the options of `Segment.scan`."""
    return TableScan(BulkScan(segment, with_bodies=False, **options))


class ScanBlock(NamedTuple):
    """Successive batches of a scan.

    Attributes:
        table: their headers.
        window: the window of all of them, if they are healthy. None if they needed single checks or
            are of an old format.
        singles: these batches. Empty for a window.
    """

    table: HeaderTable
    window: BulkWindow | None
    singles: Sequence[ScannedBatch] = ()


def blocks(
    scan: BulkScan,
    *,
    most: int = MAX_SINGLES,
    meet: Callable[[BulkWindow | ScannedBatch], bool] | None = None,
) -> Iterator[ScanBlock]:
    """Yield the batches of a scan in order. Single batches outside of windows are collected.

    Args:
        scan: at its start.
        most: most batches to collect.
        meet: gets each part before it is yielded or collected. If it returns True, the collected
            batches are yielded first.
    """
    singles: list[ScannedBatch] = []
    for part in scan.parts():
        is_apart = meet is not None and meet(part)
        is_apart = is_apart or isinstance(part, BulkWindow) or len(singles) >= most
        if singles and is_apart:
            yield ScanBlock(table_of(singles), None, singles)
            singles = []
        if isinstance(part, BulkWindow):
            yield ScanBlock(part.table, part)
        else:
            singles.append(part)
    if singles:
        yield ScanBlock(table_of(singles), None, singles)
