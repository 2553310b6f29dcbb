"""Renderers: windows of healthy batches are painted in bulk, all else goes through `plain`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from eoctl.text.batch_lines import batch_painter
from eoctl.text.plain import as_the_tool_reads, batch_line, record_contents, record_metadata
from eoctl.text.record_lines import (
    LineOptions,
    read_markers,
    record_painter,
    with_replacements,
)
from storage.errors import FormatError
from storage.formats import control_record
from storage.formats.java_text import kafka_text
from storage.kernels.numpy_kernel import BulkWindow, rows_of
from storage.kernels.protocol import ScannedBatch
from storage.kernels.pure import parse_frame
from storage.kernels.record_table import PIECE_RECORDS, decode_in_pieces, decode_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from eoctl.text.painter import Painter
    from storage.kernels.protocol import HeaderTable
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord, Segment

    Ints = NDArray[np.int64]
    Bytes = NDArray[np.uint8]
    Write = Callable[[bytes | memoryview], object]

PAINT_LINES = 8192  # at a time: their columns stay in the processor's cache
WRITE_BYTES = 64 << 10  # of plain lines that are gathered before they are written


class OffsetFollower:
    """Follows record offsets as they are printed and notes where one is not the next.

    Attributes:
        first_offset, last_offset: of the records seen; None before the first.
        non_consecutive: offset -> the one that came after it, where that is not the next.
    """

    def __init__(self, last_offset: int | None) -> None:
        self.first_offset: int | None = None
        self.last_offset = last_offset
        self.non_consecutive: dict[int, int] = {}

    def follow(self, offsets: Ints) -> None:
        """Note a column of offsets."""
        if not len(offsets):
            return
        self.follow_each([int(offsets[0])])
        rows = np.flatnonzero(offsets[1:] != offsets[:-1] + 1)
        befores, afters = offsets[rows].tolist(), offsets[rows + 1].tolist()
        self.non_consecutive.update(zip(befores, afters, strict=True))
        self.last_offset = int(offsets[-1])

    def follow_each(self, offsets: list[int]) -> None:
        """Note offsets one by one."""
        for offset in offsets:
            if self.first_offset is None:
                self.first_offset = offset
            if self.last_offset is not None and offset != self.last_offset + 1:
                self.non_consecutive[self.last_offset] = offset
            self.last_offset = offset


class HeaderRenderer:
    """Renders batch lines. What is rendered goes to `write`, which may be exchanged."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.follower = OffsetFollower(-1)
        self._canvas: Bytes = np.empty(0, np.uint8)  # reused

    def render(self, parts: Iterable[BulkWindow | ScannedBatch]) -> None:
        """Write the lines of all parts of a scan."""
        texts: list[bytes] = []
        gathered_bytes = 0
        for part in parts:
            for text in self.batch_texts(part) if isinstance(part, ScannedBatch) else ():
                texts.append(text)
                gathered_bytes += len(text)
                if gathered_bytes >= WRITE_BYTES:
                    self.write(b"".join(texts))
                    texts.clear()
                    gathered_bytes = 0
            if isinstance(part, BulkWindow) and texts:
                self.write(b"".join(texts))
                texts.clear()
                gathered_bytes = 0
            if isinstance(part, BulkWindow):
                self.render_window(part)
        self.write(b"".join(texts))

    def render_window(self, window: BulkWindow) -> None:
        """Write the lines of a window."""
        for start in range(0, window.table.row_count, PAINT_LINES):
            lines = batch_painter(rows_of(window.table, start, start + PAINT_LINES))
            ends = np.cumsum(widths := lines.widths())
            out = self._take(int(ends[-1]))
            lines.paint(out, ends - widths)
            self.write(out.data)

    def batch_texts(self, batch: ScannedBatch) -> Iterator[bytes]:
        """Give all lines of one batch, made plainly."""
        yield _encoded(batch_line(batch))

    def _take(self, size: int) -> Bytes:
        """Return `size` bytes to paint on; what was painted before is lost."""
        if size > len(self._canvas):
            self._canvas = np.empty(size + size // 4, np.uint8)
        return self._canvas[:size]


class DeepRenderer(HeaderRenderer):
    """Renders batch lines, each with the lines of its records behind it.

    What is wrong with the records of a batch is given to `on_error`; its lines end there.
    """

    def __init__(
        self,
        segment: Segment,
        write: Write,
        options: LineOptions,
        max_batch_bytes: int,
        on_error: Callable[[FormatError], object],
    ) -> None:
        super().__init__(write)
        self.on_error = on_error
        self._segment = segment
        self._options = options
        self._max_batch_bytes = max_batch_bytes

    def render_window(self, window: BulkWindow) -> None:
        """Write the lines of a window."""
        table = window.table
        while table.row_count:
            behind = np.cumsum(table.records_count, dtype=np.int64)
            if int(behind[0]) > PIECE_RECORDS:
                self._render_huge(window, rows_of(table, 0, 1))
                table = rows_of(table, 1, table.row_count)
                continue
            wanted = rows_of(table, 0, int(np.searchsorted(behind, PIECE_RECORDS, "right")))
            records = decode_records(
                wanted, window.buf, window.file_pos, max_batch_bytes=self._max_batch_bytes
            )
            done = rows_of(table, 0, records.batch_count)
            markers = read_markers(done, records)
            unknown = markers.is_control & ~markers.is_known
            if unknown.any():
                records = records.without(np.unique(records.batch_row[unknown]))
            for start, end in _chunks(records):
                self._paint(window, rows_of(done, start, end), records.part(start, end))
            table = rows_of(table, records.batch_count, table.row_count)

    def _render_huge(self, window: BulkWindow, table: HeaderTable) -> None:
        """Write the lines of one batch, those of its records in pieces."""
        pos = int(table.pos[0])
        batch = ScannedBatch(pos, parse_frame(window.buf, pos - window.file_pos), crc_ok=True)
        pieces = None
        if not batch.header.is_control:
            pieces = decode_in_pieces(
                table, window.buf, window.file_pos, max_batch_bytes=self._max_batch_bytes
            )
        if pieces is None:
            texts = self.batch_texts(batch)
            while some := b"".join(islice(texts, PAINT_LINES)):
                self.write(some)
            return
        self.write(_encoded(batch_line(batch)))
        for piece in pieces:
            self.follower.follow(piece.offset)
            lines = record_painter(table, piece, self._options)
            ends = np.cumsum(widths := lines.widths())
            out = self._take(int(ends[-1]))
            lines.paint(out, ends - widths)
            for text in with_replacements(out, ends - widths, ends):
                self.write(text)

    def _paint(self, window: BulkWindow, table: HeaderTable, records: RecordTable) -> None:
        """Write the lines of some batches, each with those of its records behind it."""
        batch_lines = batch_painter(table)
        plain_rows = np.flatnonzero(~records.is_whole)
        if len(plain_rows):
            self._add_plain_records(batch_lines, window, table, records, plain_rows)
        else:
            self.follower.follow(records.offset)
        record_lines = record_painter(table, records, self._options)
        batch_widths, record_widths = batch_lines.widths(), record_lines.widths()
        batch_ends, record_ends = np.cumsum(batch_widths), np.cumsum(record_widths)
        # What stands before a line: batch lines up to its own, record lines up to its own.
        records_before = np.searchsorted(records.batch_row, np.arange(table.row_count))
        bytes_before = np.concatenate([[0], record_ends])
        batch_starts = batch_ends - batch_widths + bytes_before[records_before]
        record_starts = bytes_before[:-1] + batch_ends[records.batch_row]
        out = self._take(int(batch_ends[-1] + bytes_before[-1]))
        batch_lines.paint(out, batch_starts)
        record_lines.paint(out, record_starts)
        for piece in with_replacements(out, record_starts, record_starts + record_widths):
            self.write(piece)

    def _add_plain_records(
        self,
        lines: Painter,
        window: BulkWindow,
        table: HeaderTable,
        records: RecordTable,
        plain_rows: Ints,
    ) -> None:
        """Put the lines that the plain path makes behind those of their batches."""
        lengths = np.zeros(table.row_count, np.int64)
        texts: list[bytes] = []
        record_count = 0
        for row in plain_rows.tolist():
            before = int(np.searchsorted(records.batch_row, row))
            self.follower.follow(records.offset[record_count:before])
            record_count = before
            pos = int(table.pos[row])
            header = parse_frame(window.buf, pos - window.file_pos)
            texts.append(b"".join(self._record_texts(ScannedBatch(pos, header, crc_ok=True))))
            lengths[row] = len(texts[-1])
        self.follower.follow(records.offset[record_count:])
        source = np.frombuffer(b"".join(texts), np.uint8)
        lines.slices(source, np.cumsum(lengths) - lengths, lengths)

    def batch_texts(self, batch: ScannedBatch) -> Iterator[bytes]:
        """Give all lines of one batch, made plainly."""
        yield _encoded(batch_line(batch))
        yield from self._record_texts(batch)

    def _record_texts(self, batch: ScannedBatch) -> Iterator[bytes]:
        """Render the records of one batch plainly; up to the fault if there is one."""
        try:
            for record in self._segment.records(
                as_the_tool_reads(batch), max_batch_bytes=self._max_batch_bytes
            ):
                self.follower.follow_each([record.offset])
                yield _encoded(self._record_text(batch, record))
        except FormatError as error:
            self.on_error(error)
            self.follower.last_offset = batch.header.last_offset

    def _record_text(self, batch: ScannedBatch, record: LogRecord) -> str:
        text, prefix = "", "| "
        if not self._options.skip_record_metadata:
            text, prefix = record_metadata(batch.header, record), " "
            if batch.header.is_control:
                try:
                    text += control_record.describe(record.key, record.value)
                except FormatError as error:
                    self.on_error(error.located(self._segment.path, batch.pos))
        if not self._options.print_data or batch.header.is_control:
            return text
        return text + record_contents(prefix, _text(record.key), _text(record.value))


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "surrogateescape") + b"\n"


def _text(data: bytes | None) -> str | None:
    return None if data is None else kafka_text(data)


def _chunks(records: RecordTable) -> Iterator[tuple[int, int]]:
    """Cut batches into ranges of about PAINT_LINES lines."""
    counts = np.bincount(records.batch_row, minlength=records.batch_count)
    lines_up_to = np.cumsum(counts + 1)
    start = 0
    while start < records.batch_count:
        done = int(lines_up_to[start - 1]) if start else 0
        end = int(np.searchsorted(lines_up_to, done + PAINT_LINES, "right"))
        end = max(end, start + 1)
        yield start, end
        start = end
