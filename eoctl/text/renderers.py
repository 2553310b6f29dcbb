"""Renderers: windows of healthy batches are painted in bulk, all else goes through `plain`."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.text.painter import Painter, copy_slices
from eoctl.text.plain import (
    as_it_stands,
    as_the_tool_reads,
    batch_line,
    record_contents,
    record_metadata,
)
from storage.errors import FormatError
from storage.formats import control_record
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES, Codec
from storage.formats.control_record import END_TXN_MARKER_BYTES, KEY_BYTES, ControlRecordType
from storage.formats.java_text import kafka_text
from storage.formats.record_batch import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME_MASK,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
)
from storage.kernels.numpy_kernel import BulkScan, BulkWindow, rows_of
from storage.kernels.protocol import ScannedBatch
from storage.kernels.pure import parse_frame
from storage.kernels.record_table import PIECE_RECORDS, decode_in_pieces, decode_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable, Verdict
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord, Segment

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]
    Rows = NDArray[np.bool_]
    Write = Callable[[bytes | memoryview], object]


def batch_painter(table: HeaderTable) -> Painter:
    """Return the lines of all rows, line ends included. All rows have magic 2 and a good CRC."""
    lines = Painter(table.row_count)
    attributes = table.attributes
    lines.number(b"baseOffset: ", table.base_offset)
    lines.number(b" lastOffset: ", table.last_offset)
    lines.number(b" count: ", table.records_count)
    lines.number(b" baseSequence: ", table.base_sequence)
    lines.number(b" lastSequence: ", last_sequence(table))
    lines.number(b" producerId: ", table.producer_id)
    lines.number(b" producerEpoch: ", table.producer_epoch)
    lines.number(b" partitionLeaderEpoch: ", table.partition_leader_epoch)
    _boolean(lines, b" isTransactional: ", attributes & TRANSACTIONAL_MASK != 0)
    _boolean(lines, b" isControl: ", attributes & CONTROL_MASK != 0)
    has_horizon = attributes & DELETE_HORIZON_MASK != 0
    lines.literal(b" deleteHorizonMs: OptionalLong")
    lines.literal(b".empty", ~has_horizon)
    lines.number(b"[", table.base_timestamp_ms, has_horizon)
    lines.literal(b"]", has_horizon)
    lines.number(b" position: ", table.pos)
    timestamp_type(lines, attributes)
    lines.number(b": ", table.max_timestamp_ms)
    lines.number(b" size: ", table.batch_bytes)
    lines.literal(b" magic: 2 compresscodec: ")
    for codec in Codec:
        lines.literal(codec.label.encode(), attributes & CODEC_MASK == codec)
    lines.number(b" crc: ", table.crc)
    lines.literal(b" isvalid: true\n")
    return lines


def timestamp_type(lines: Painter, attributes: NDArray[np.int16]) -> None:
    """Add the name before a timestamp, with a blank: the type of the batch."""
    is_append_time = attributes & LOG_APPEND_TIME_MASK != 0
    lines.literal(b" CreateTime", ~is_append_time)
    lines.literal(b" LogAppendTime", is_append_time)


def _boolean(lines: Painter, label: bytes, values: NDArray[np.bool_]) -> None:
    lines.literal(label)
    lines.literal(b"true", values)
    lines.literal(b"false", ~values)


def last_sequence(table: HeaderTable) -> NDArray[np.int64]:
    """Return each batch's last sequence, wrapped as `BatchHeader.last_sequence`."""
    base = table.base_sequence.astype(np.int64)
    last = base + (table.last_offset - table.base_offset)
    wrapped = np.where(last > MAX_SEQUENCE, last - (MAX_SEQUENCE + 1), last)
    return np.where(base == NO_SEQUENCE, np.int64(NO_SEQUENCE), wrapped)


# -- record lines in bulk: what `plain.record_metadata` and `plain.record_contents` give
#
# Keys, values and header names are copied as they are. That is right if they are valid UTF-8;
# `with_replacements` looks at that afterwards, in the text, and mends the lines where they are
# not.


_COMMA = ord(",")


class LineOptions(NamedTuple):
    """What a record line shows, as the options of kafka-dump-log."""

    print_data: bool
    skip_record_metadata: bool


class Markers(NamedTuple):
    """The control records among some records."""

    is_control: Rows  # of each record
    is_known: Rows  # ... whether it is a whole COMMIT or ABORT; others are for the plain path
    is_commit: Rows
    coordinator_epoch: Ints


def read_markers(table: HeaderTable, records: RecordTable) -> Markers:
    """Read the control records as `control_record.describe` does, as far as they are markers."""
    is_control = (table.attributes[records.batch_row] & CONTROL_MASK) != 0
    is_known = is_control & (records.key_bytes >= KEY_BYTES)
    is_known &= records.value_bytes >= END_TXN_MARKER_BYTES
    rows = np.flatnonzero(is_known)
    key = _integers(records.source, records.key_pos[rows], ">i2", 2)
    value = _integers(records.source, records.value_pos[rows], ">i2", 3)
    kind = key[:, 1]
    is_commit = np.zeros(records.row_count, np.bool_)
    is_commit[rows] = kind == ControlRecordType.COMMIT
    is_known[rows] = (key[:, 0] >= 0) & (value[:, 0] >= 0)
    is_known[rows] &= (kind == ControlRecordType.COMMIT) | (kind == ControlRecordType.ABORT)
    epoch = np.zeros(records.row_count, np.int64)
    epoch[rows] = (value[:, 1] << 16) | (value[:, 2] & 0xFFFF)
    return Markers(
        is_control=is_control, is_known=is_known, is_commit=is_commit, coordinator_epoch=epoch
    )


def _integers(source: Bytes, pos: Ints, dtype: str, count: int) -> Ints:
    """Gather `count` integers that follow each other at each position: (rows, count)."""
    places = pos[:, None] + np.arange(2 * count)
    return np.asarray(source[places].view(dtype), np.int64)


def record_painter(table: HeaderTable, records: RecordTable, options: LineOptions) -> Painter:
    """Return the lines of all records, line ends included; `table` has their batches."""
    lines = Painter(records.row_count)
    markers = read_markers(table, records)
    if not options.skip_record_metadata:
        lines.number(b"| offset: ", records.offset)
        timestamp_type(lines, table.attributes[records.batch_row])
        lines.number(b": ", records.timestamp_ms)
        lines.number(b" keySize: ", records.key_bytes)
        lines.number(b" valueSize: ", records.value_bytes)
        lines.number(b" sequence: ", records.sequence)
        lines.literal(b" headerKeys: [")
        _header_keys(lines, records)
        lines.literal(b"]")
        _marker_parts(lines, markers)
    if options.print_data:
        has_key = (records.key_bytes >= 0) & ~markers.is_control
        has_value = (records.value_bytes >= 0) & ~markers.is_control
        if options.skip_record_metadata:
            lines.literal(b"|", has_key | has_value)
        lines.literal(b" key: ", has_key)
        lines.slices(records.source, records.key_pos, np.where(has_key, records.key_bytes, 0))
        lines.literal(b" payload: ", has_value)
        lines.slices(records.source, records.value_pos, np.where(has_value, records.value_bytes, 0))
    lines.literal(b"\n")
    return lines


def _marker_parts(lines: Painter, markers: Markers) -> None:
    if not markers.is_known.any():
        return
    lines.literal(b" endTxnMarker: ", markers.is_known)
    lines.literal(b"COMMIT", markers.is_known & markers.is_commit)
    lines.literal(b"ABORT", markers.is_known & ~markers.is_commit)
    lines.number(b" coordinatorEpoch: ", markers.coordinator_epoch, markers.is_known)


def _header_keys(lines: Painter, records: RecordTable) -> None:
    """Add the names of all record headers, with commas between those of one record."""
    lengths = records.header_key_bytes
    if not len(lengths):
        return
    owner = records.header_record
    after = np.cumsum(lengths + 1)  # each with a comma behind it; the last one's is no part
    before = after - (lengths + 1)
    first = np.cumsum(records.headers_count) - records.headers_count
    place = before - before[first[owner]]  # of a name among those of its record
    width = np.bincount(owner, lengths + 1, records.row_count).astype(np.int64)
    width[width > 0] -= 1
    follows = np.flatnonzero(place > 0)

    def paint(out: Bytes, ends: Ints) -> None:
        at = (ends - width)[owner] + place
        copy_slices(out, at, records.source, records.header_key_pos, lengths)
        out[at[follows] - 1] = _COMMA

    lines.piece(width, paint)


def with_replacements(text: Bytes, starts: Ints, ends: Ints) -> list[memoryview | bytes]:
    """Cut a text into pieces in which lines that are not UTF-8 are replaced; often it is one.

    `starts` and `ends` are those of the record lines. All that stands between keys, values and
    header names is ASCII, so decoding a whole line replaces what decoding each of them would.
    """
    view = text.data
    rows = _rows_not_ascii(text, starts, ends)
    if not len(rows):
        return [view]
    lines = [
        view[start:end]
        for start, end in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
    ]
    if _is_utf8(b"".join(lines)):
        return [view]
    pieces: list[memoryview | bytes] = []
    done = 0
    for start, end, line in zip(starts[rows].tolist(), ends[rows].tolist(), lines, strict=True):
        if not _is_utf8(line):
            pieces += [view[done:start], kafka_text(bytes(line)).encode()]
            done = end
    pieces.append(view[done:])
    return pieces


def _is_utf8(data: bytes | memoryview) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _rows_not_ascii(text: Bytes, starts: Ints, ends: Ints) -> Ints:
    """Find the lines with a byte above 127; some of their neighbours may be among them.

    Bytes are looked at in groups of eight, and counted up to each group. What is left at the end
    is no group: lines that reach into it are always taken.
    """
    if not len(starts):
        return starts
    groups = text[: len(text) // 8 * 8].view(np.uint64)
    is_high = groups & np.uint64(0x8080808080808080) != 0
    if not is_high.any():
        return np.flatnonzero(ends > len(groups) * 8)
    count = np.zeros(len(is_high) + 2, np.int32)
    np.cumsum(is_high, out=count[1:-1])
    count[-1] = len(text)
    return np.flatnonzero(count[(ends + 7) // 8] > count[starts // 8])


# -- renderers: windows of healthy batches are painted in bulk, all else goes through `plain`


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


# -- a whole `.log` as kafka-dump-log's lines, in bulk: the twin of printing batch by batch


class LogDumpResult(NamedTuple):
    """What is left to report when all lines are written.

    Attributes:
        valid_bytes: end of the last whole batch of the broker's walk.
        verdicts: every stretch that is not ok.
        last_offset: of the last record printed, -1 if there was none (or without `deep`).
        non_consecutive: offset -> the one printed after it, where that is not the next; -1 stands
            before the first. Empty without `deep`.
        is_resynced: good batches were found behind a break of the chain.
    """

    valid_bytes: int
    verdicts: list[Verdict]
    last_offset: int
    non_consecutive: dict[int, int]
    is_resynced: bool = False


def render_log(
    segment: Segment,
    write: Write,
    *,
    deep: bool,
    print_data: bool,
    skip_record_metadata: bool,
    on_error: Callable[[FormatError], object],
    end_pos: int | None = None,
    is_active: bool = True,
    end_offset: int | None = None,
    resume: bool = False,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> LogDumpResult:
    """Write the lines of all batches, and with `deep` of their records; nothing else.

    Keys and values are shown as UTF-8. A batch whose records do not parse has its line and those
    of its records before the fault; the fault is given to `on_error`.

    Args:
        segment: what to print.
        write: takes bytes; what it raises (a closed pipe) ends the work.
        deep: print a line per record too.
        print_data: with `deep`, keys and values as well.
        skip_record_metadata: record lines have nothing but key and value.
        on_error: gets what is wrong with the records of a batch.
        end_pos: how much of the file to look at; None is all of it.
        is_active: as in `Segment.scan`.
        end_offset: as in `Segment.scan`.
        resume: as in `Segment.scan`; False ends where the broker's reader ends.
        max_batch_bytes: a batch that would decompress to more is an error.

    Raises:
        AccessError: a batch that the plain path must read again cannot be read any more.
        OSError: writing failed.
    """
    file_bytes = segment.file_bytes
    end_pos = file_bytes if end_pos is None else min(end_pos, file_bytes)
    renderer = HeaderRenderer(write)
    if deep:
        options = LineOptions(print_data=print_data, skip_record_metadata=skip_record_metadata)
        renderer = DeepRenderer(segment, write, options, max_batch_bytes, on_error)
    scan = BulkScan(
        segment,
        end_pos=end_pos,
        is_active=is_active,
        resume=resume,
        end_offset=end_offset,
    )
    renderer.render(_parts_of(scan))
    follower = renderer.follower
    last_offset = -1 if follower.last_offset is None else follower.last_offset
    return LogDumpResult(
        valid_bytes=scan.valid_bytes,
        verdicts=scan.verdicts,
        last_offset=last_offset,
        non_consecutive=follower.non_consecutive,
        is_resynced=scan.resynced,
    )


def _parts_of(scan: BulkScan) -> Iterator[BulkWindow | ScannedBatch]:
    """Yield the windows of a scan, and its single batches as they are on disk."""
    for part in scan.parts():
        yield part if isinstance(part, BulkWindow) else as_it_stands(scan, part)
