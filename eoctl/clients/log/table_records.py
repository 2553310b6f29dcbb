"""Consumed records as columns of a decoded table, many at a time: a bulk variant of `consumed`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.clients.log.consumed import CREATE_TIME, LOG_APPEND_TIME, MAX_ROWS, Records
from recovery.transactions.events import is_data_of_transaction
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES
from storage.formats.record_batch import CONTROL_MASK, LOG_APPEND_TIME_MASK
from storage.kernels.numpy_kernel import batch_at, rows_of, table_of
from storage.kernels.protocol import HeaderTable
from storage.kernels.record_table import (
    byte_slices,
    decode_in_pieces,
    decode_records,
    headers_of,
)
from storage.value_pieces import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from eoctl.clients.log.consumed import Headers
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.record_table import RecordTable

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]
    IsHidden = Callable[[HeaderTable], NDArray[np.bool_]] | None


# -- strings in a buffer as JSON: which strings can be copied, and where the escaped strings are
#
# The whole buffer is escaped at once, with the bytes between the strings. Each quote and backslash
# grows by one byte. A string is shifted by the number of these bytes before it.


# Classes of bytes, and of strings with such bytes, by rising effort.
QUOTES, ODD, HIGH = 1, 2, 4
_CLASSES = bytes(
    HIGH if each >= 0x80 else ODD if each < 0x20 else QUOTES if each in b'"\\' else 0
    for each in range(256)
)


class JsonSource:
    """A buffer that is searched and escaped once for all its strings."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def kinds(self, pos: Ints, size_bytes: Ints) -> Bytes:
        """Return the kinds of strings: 0 to copy into JSON, QUOTES to escape, ODD for any other.

        The strings are in the order of the buffer. A negative size is no string.
        """
        kinds = np.zeros(len(pos), np.uint8)
        filled = np.flatnonzero(size_bytes > 0)
        if not len(filled):
            return kinds
        first, last = int(pos[filled[0]]), int(pos[filled[-1]] + size_bytes[filled[-1]])
        edges = np.empty(2 * len(filled), np.int64)
        edges[::2] = pos[filled] - first
        edges[1::2] = edges[::2] + size_bytes[filled]
        found = np.bitwise_or.reduceat(self._classes[first : last + 1], edges)[::2]
        rows = filled[found & HIGH != 0]
        # The blank between strings keeps the next string from completing a partial character.
        is_text = not len(rows) or _is_utf8(b" ".join(self.strings(pos[rows], size_bytes[rows])))
        kinds[filled] = found & (QUOTES | ODD if is_text else QUOTES | ODD | HIGH)
        return kinds

    def strings(self, pos: Ints, size_bytes: Ints) -> list[bytes]:
        """Return some strings."""
        data = self._data
        bounds = zip(pos.tolist(), (pos + size_bytes).tolist(), strict=True)
        return [data[start:end] for start, end in bounds]

    def escaped(self, pos: Ints, size_bytes: Ints) -> tuple[Bytes, Ints, Ints]:
        """Return a buffer with escaped quotes, and start and size of each string in it."""
        start = pos + np.searchsorted(self._quotes_pos, pos)
        end_pos = pos + size_bytes
        end = end_pos + np.searchsorted(self._quotes_pos, end_pos)
        return self._escaped, start, end - start

    @cached_property
    def _classes(self) -> Bytes:
        # One more byte, so that the end of the last string is a position in it, too.
        return np.frombuffer(self._data.translate(_CLASSES) + b"\0", np.uint8)

    @cached_property
    def _quotes_pos(self) -> Ints:
        return np.flatnonzero(self._classes == QUOTES)

    @cached_property
    def _escaped(self) -> Bytes:
        escaped = self._data.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        return np.frombuffer(escaped, np.uint8)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- consumed records as columns of a decoded table: the bulk variant of `consumed.Records`
#
# They refer to the buffer that they were decoded from. Use them before the next records are
# requested, or use their `lists`, which are copies.


FEW_ROWS = 64


class Decoded:
    """A decoded table that several pieces share, and texts made of its bytes."""

    def __init__(self, table: RecordTable) -> None:
        self.table = table

    @cached_property
    def data(self) -> bytes:
        """A copy of the bytes that positions refer to.

        Slices of bytes are faster than of an array.
        """
        return self.table.source.tobytes()

    @cached_property
    def json(self) -> JsonSource:
        """The bytes as JSON."""
        return JsonSource(self.data)


class TableRecords:
    """Rows of a decoded table, at least one.

    Attributes:
        timestamp_type: of all rows.
        decoded: the table.
        rows: of the table, ascending.
        next_offset: the position after all of these records.
    """

    def __init__(self, timestamp_type: str, decoded: Decoded, rows: Ints, next_offset: int) -> None:
        self.timestamp_type = timestamp_type
        self.decoded = decoded
        self.rows = rows
        self.next_offset = next_offset

    @property
    def row_count(self) -> int:
        """The number of records."""
        return len(self.rows)

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return int(self.decoded.table.offset[self.rows[0]])

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return int(self.decoded.table.offset[self.rows[-1]])

    def part(self, start: int, end: int) -> TableRecords:
        """Return some of the records, at least one."""
        rows = self.rows[start:end]
        is_last = end >= self.row_count
        next_offset = self.next_offset if is_last else int(self.decoded.table.offset[rows[-1]]) + 1
        return TableRecords(self.timestamp_type, self.decoded, rows, next_offset)

    def lists(self) -> Records:
        """Return copies."""
        table, rows = self.decoded.table, self.rows
        # Copying the whole buffer would copy a large record twice.
        is_large = len(table.source) > LARGE_BYTES and len(rows) < FEW_ROWS
        data = table.source.data if is_large else self.decoded.data
        return Records(
            timestamp_type=self.timestamp_type,
            offsets=table.offset[rows].tolist(),
            timestamps_ms=table.timestamp_ms[rows].tolist(),
            keys=byte_slices(data, table.key_pos[rows], table.key_bytes[rows]),
            values=byte_slices(data, table.value_pos[rows], table.value_bytes[rows]),
            headers=self.headers(),
            next_offset=self.next_offset,
        )

    def headers(self) -> list[Headers] | None:
        """Return the headers of each record, None if no record has any."""
        table, rows = self.decoded.table, self.rows
        if not table.headers_count[rows].any():
            return None
        return headers_of(table, rows, self.decoded.data)


# -- the records of a window of batches, decoded many at a time


MAX_RECORDS = 65_536  # of a decoded table


class ReadStop(NamedTuple):
    """The position up to which a window is read.

    Attributes:
        pos: the next position in the file. The batch there may have been returned in part.
        next_offset: the first offset that was not returned.
        is_over: the requested end is reached.
    """

    pos: int
    next_offset: int
    is_over: bool


def stop_in(table: HeaderTable, end_offset: int) -> ReadStop:
    """Return the position up to which batches may be read, for an exclusive `end_offset`."""
    taken = int(np.searchsorted(table.base_offset, end_offset))
    if not taken:
        return ReadStop(int(table.pos[0]), end_offset, is_over=True)
    last = taken - 1
    pos, next_offset = int(table.pos[last]), int(table.last_offset[last]) + 1
    if next_offset > end_offset:
        return ReadStop(pos, end_offset, is_over=True)
    is_over = taken < table.row_count or next_offset == end_offset
    pos += int(table.batch_bytes[last])
    return ReadStop(pos, end_offset if is_over else next_offset, is_over)


def records_of_window(
    window: BulkWindow,
    next_offset: int,
    end_offset: int,
    is_hidden: IsHidden,
    *,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> Iterator[TableRecords | ScannedBatch]:
    """Yield the records in [next_offset, end_offset).

    Unusual and huge batches are yielded as batches, for the caller to decode.

    Args:
        window: healthy batches.
        next_offset: the first wanted offset.
        end_offset: the exclusive end.
        is_hidden: as for `visible`.
        max_batch_bytes: a batch that decompresses to more is left to the caller, too.
    """
    table = window.table
    is_wanted = (table.attributes & CONTROL_MASK) == 0
    is_wanted &= (table.records_count > 0) & (table.last_offset >= next_offset)
    is_wanted &= table.base_offset < end_offset
    wanted = visible(HeaderTable._make(column[is_wanted] for column in table), is_hidden)
    ends = np.cumsum(wanted.records_count, dtype=np.int64)
    done = 0
    while done < wanted.row_count:
        before = int(ends[done - 1]) if done else 0
        end = max(int(np.searchsorted(ends, before + MAX_RECORDS, "right")), done + 1)
        part = rows_of(wanted, done, end)
        if int(ends[end - 1]) - before > MAX_RECORDS:  # a single huge batch
            yield from _of_huge_batch(part, window, next_offset, end_offset, max_batch_bytes)
            done = end
            continue
        records = decode_records(part, window.buf, window.file_pos, max_batch_bytes=max_batch_bytes)
        part = rows_of(part, 0, records.batch_count)
        yield from _of_batches(part, records, next_offset, end_offset)
        done += records.batch_count


def _of_huge_batch(
    table: HeaderTable,
    window: BulkWindow,
    next_offset: int,
    end_offset: int,
    max_batch_bytes: int,
) -> Iterator[TableRecords | ScannedBatch]:
    """Yield the records of one batch in pieces."""
    pieces = decode_in_pieces(table, window.buf, window.file_pos, max_batch_bytes=max_batch_bytes)
    if pieces is None:
        yield batch_at(table, 0)
        return
    waiting: RecordTable | None = None  # the next piece shows the offset after it
    for piece in pieces:
        if waiting is not None:
            yield from _of_piece(table, waiting, next_offset, end_offset, int(piece.offset[0]))
        waiting = piece
    if waiting is not None:
        behind_offset = int(table.last_offset[0]) + 1
        yield from _of_piece(table, waiting, next_offset, end_offset, behind_offset)


def _of_piece(
    table: HeaderTable, piece: RecordTable, next_offset: int, end_offset: int, behind_offset: int
) -> Iterator[TableRecords]:
    rows = np.flatnonzero((piece.offset >= next_offset) & (piece.offset < end_offset))
    yield from _of_rows(table, piece, rows, min(behind_offset, end_offset))


def visible(table: HeaderTable, is_hidden: IsHidden) -> HeaderTable:
    """Leave out the transactional data batches that are hidden. None: none is hidden."""
    if is_hidden is None:
        return table
    hidden = is_data_of_transaction(table)
    if hidden.any():
        hidden &= is_hidden(table)
    if not hidden.any():
        return table
    return HeaderTable._make(column[~hidden] for column in table)


def is_visible(batch: ScannedBatch, is_hidden: IsHidden) -> bool:
    """Return whether a single batch is not hidden."""
    return bool(visible(table_of([batch]), is_hidden).row_count)


def _of_batches(
    table: HeaderTable, records: RecordTable, next_offset: int, end_offset: int
) -> Iterator[TableRecords | ScannedBatch]:
    """Yield the records of decoded batches, and between them the batches that were not decoded."""
    start = 0
    for row in (*np.flatnonzero(~records.is_whole).tolist(), table.row_count):
        if row > start:
            is_all = (start, row) == (0, table.row_count)
            part = records if is_all else records.part(start, row)
            rows = np.flatnonzero((part.offset >= next_offset) & (part.offset < end_offset))
            behind_offset = min(int(table.last_offset[row - 1]) + 1, end_offset)
            yield from _of_rows(rows_of(table, start, row), part, rows, behind_offset)
        if row < table.row_count:
            yield batch_at(table, row)
        start = row + 1


def _of_rows(
    table: HeaderTable, records: RecordTable, rows: Ints, behind_offset: int
) -> Iterator[TableRecords]:
    """Yield records in pieces with one timestamp type each.

    `behind_offset` is after all of them.
    """
    if not len(rows):
        return
    is_append_time = (table.attributes[records.batch_row[rows]] & LOG_APPEND_TIME_MASK) != 0
    edges = (np.flatnonzero(np.diff(is_append_time)) + 1).tolist()
    decoded = Decoded(records)
    for start, end in zip([0, *edges], [*edges, len(rows)], strict=True):
        kind = LOG_APPEND_TIME if is_append_time[start] else CREATE_TIME
        for place in range(start, end, MAX_ROWS):
            piece = rows[place : min(place + MAX_ROWS, end)]
            is_last = place + len(piece) == len(rows)
            next_offset = behind_offset if is_last else int(records.offset[piece[-1]]) + 1
            yield TableRecords(kind, decoded, piece, next_offset)
