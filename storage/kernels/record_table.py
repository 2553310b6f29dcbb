"""Records of many v2 batches as columns: `record.parse_records` in bulk.

Records follow each other by their lengths. So first the lengths of all batches are followed in
lockstep: step j reads the length of record j of every batch. A few long batches are followed
singly. Then one numpy call reads each field of all records. A batch is taken only if it keeps every
rule of `record` and all its numbers are of ordinary size. `Segment.records` is the definition. It
decodes any other batch and raises its errors.

A record takes some hundred bytes of columns. In a batch it may take seven bytes, and almost nothing
in a compressed batch. So a batch of very many records is decoded in pieces, each a table of its
own.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.errors import FormatError
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES, decompress
from storage.formats.record_batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_MASK,
    MAX_SEQUENCE,
    NO_SEQUENCE,
)
from storage.kernels.kernel_choice import load_native
from storage.kernels.native_kernel import decode_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from storage.kernels.kernel_choice import Native
    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

MIN_RECORD_BYTES = 7  # a length and six fields of one byte
LENGTH_BYTES = 4  # a longer varint cannot be the length in a batch that fits in memory
DELTA_BYTES = 8
MAX_HEADERS = 64  # of one record: each further header is a round over all records
MIN_LANES = 48  # below this a step of lockstep costs more than following each batch singly
MAX_BASE_OFFSET = 1 << 62  # higher record offsets need more than 63 bits, and Python's numbers

# The maximum of decompressed bytes in one table. A single batch may have more.
MAX_SOURCE_BYTES = 8 << 20
PIECE_RECORDS = 65_536  # of a batch that is decoded in pieces


_NOWHERE: tuple[array[int], array[int]] = (array("q"), array("q"))


class RecordTable(NamedTuple):
    """Records in log order as columns. Positions are places in `source`. Null has -1 bytes.

    The record headers have their own columns (`header_*`), one row per header in log order. Record
    r has headers_count[r] of them.

    Attributes:
        source: the target of positions: the window, or the decompressed bodies of its batches.
        batch_count: the number of processed rows of the header table.
        is_whole: for each of them, whether its records are here. The other batches have no records.
        batch_row: of each record, the row of its batch.
    """

    source: NDArray[np.uint8]
    batch_count: int
    is_whole: Flags
    batch_row: Ints
    offset: Ints
    timestamp_ms: Ints
    sequence: Ints
    key_pos: Ints
    key_bytes: Ints
    value_pos: Ints
    value_bytes: Ints
    headers_count: Ints
    header_record: Ints
    header_key_pos: Ints
    header_key_bytes: Ints
    header_value_pos: Ints
    header_value_bytes: Ints

    @property
    def row_count(self) -> int:
        """Number of records."""
        return len(self.offset)

    def part(self, start: int, end: int) -> RecordTable:
        """Return the records of batches [start, end), which become rows from 0 on."""
        first, last = np.searchsorted(self.batch_row, (start, end)).tolist()
        first_header, last_header = np.searchsorted(self.header_record, (first, last)).tolist()
        columns = {name: getattr(self, name)[first:last] for name in _RECORD_COLUMNS}
        columns |= {name: getattr(self, name)[first_header:last_header] for name in _HEADER_COLUMNS}
        columns["batch_row"] = columns["batch_row"] - start
        columns["header_record"] = columns["header_record"] - first
        is_whole = self.is_whole[start:end]
        return self._replace(batch_count=len(is_whole), is_whole=is_whole, **columns)

    def without(self, batch_rows: Ints) -> RecordTable:
        """Remove the records of some batches, as if these had not been whole."""
        is_whole = self.is_whole.copy()
        is_whole[batch_rows] = False
        keep = is_whole[self.batch_row]
        keep_header = keep[self.header_record]
        columns = {name: getattr(self, name)[keep] for name in _RECORD_COLUMNS}
        columns |= {name: getattr(self, name)[keep_header] for name in _HEADER_COLUMNS}
        columns["header_record"] = (np.cumsum(keep) - 1)[columns["header_record"]]
        return self._replace(is_whole=is_whole, **columns)


_HEADER_COLUMNS = tuple(each for each in RecordTable._fields if each.startswith("header_"))
_RECORD_COLUMNS = RecordTable._fields[3 : -len(_HEADER_COLUMNS)]


class _Bodies(NamedTuple):
    """Decompressed bodies of consecutive batches, with the position of each in `source`."""

    buf: bytes | bytearray
    pos: Ints
    end_pos: Ints
    is_whole: Flags


def decode_records(
    table: HeaderTable,
    buf: bytes | bytearray,
    file_pos: int,
    *,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> RecordTable:
    """Decode the records of the first rows of `table`, healthy v2 batches in `buf`.

    `file_pos` is the place of buf[0] in the file. All rows are processed unless compressed batches
    grow beyond MAX_SOURCE_BYTES. `batch_count` is the number of processed rows. The result refers
    to `buf`, so use it before `buf` is filled again.
    """
    native = load_native()
    if native is not None and table.row_count:
        return _decode_natively(native, table, buf, file_pos, max_batch_bytes)
    bodies = _bodies(table, buf, file_pos, max_batch_bytes)
    taken = len(bodies.pos)
    counts = table.records_count[:taken].astype(np.int64)
    # A batch cannot have more records than its bytes hold, so nothing is allocated for such a
    # count.
    whole = bodies.is_whole & (counts * MIN_RECORD_BYTES <= bodies.end_pos - bodies.pos)
    whole &= table.base_offset[:taken] <= MAX_BASE_OFFSET
    counts[~whole] = 0
    pos, end_pos = _follow_lengths(bodies, counts, whole)
    return _read_fields(table, bodies._replace(is_whole=whole), counts, pos, end_pos)


def _decode_natively(
    native: Native, table: HeaderTable, buf: bytes | bytearray, file_pos: int, max_batch_bytes: int
) -> RecordTable:
    source, is_whole, columns = decode_columns(
        native,
        table,
        buf,
        file_pos,
        max_batch_bytes=max_batch_bytes,
        max_source_bytes=MAX_SOURCE_BYTES,
    )
    return RecordTable(
        source=np.frombuffer(buf, np.uint8) if source is None else source,
        batch_count=len(is_whole),
        is_whole=is_whole,
        **dict(zip((*_RECORD_COLUMNS, *_HEADER_COLUMNS), columns, strict=True)),
    )


def byte_slices(source: bytes | memoryview, pos: Ints, size_bytes: Ints) -> list[bytes | None]:
    """Return copies of at least one stretch. None if the size is -1."""
    least = int(size_bytes.min())
    if least == -1 == int(size_bytes.max()):
        return [None] * len(pos)
    bounds = zip(pos.tolist(), (pos + size_bytes).tolist(), strict=True)
    if least >= 0:
        return [bytes(source[start:end]) for start, end in bounds]
    return [None if end < start else bytes(source[start:end]) for start, end in bounds]


def headers_of(
    table: RecordTable, rows: Ints, source: bytes | memoryview
) -> list[Sequence[tuple[bytes, bytes | None]]]:
    """Return the keys and values of headers of some records, at least one of which has headers.

    `source`: of the table.
    """
    counts = table.headers_count[rows]
    ends = np.cumsum(counts)
    first = np.searchsorted(table.header_record, rows)
    at = np.arange(int(ends[-1])) + np.repeat(first - (ends - counts), counts)
    keys = byte_slices(source, table.header_key_pos[at], table.header_key_bytes[at])
    values = byte_slices(source, table.header_value_pos[at], table.header_value_bytes[at])
    pairs = list(zip((key or b"" for key in keys), values, strict=True))
    bounds = zip((ends - counts).tolist(), ends.tolist(), strict=True)
    return [pairs[start:end] for start, end in bounds]


def decode_in_pieces(
    table: HeaderTable,
    buf: bytes | bytearray,
    file_pos: int,
    *,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> Iterator[RecordTable] | None:
    """Decode one batch in pieces of at most PIECE_RECORDS, or return None for `Segment.records`.

    All of it is decoded before the first piece, and once more piece by piece. Arguments and results
    are as in `decode_records`, for a table with one row. Each piece has some of the records and a
    `source` of its own, a copy.
    """
    bodies = _bodies(table, buf, file_pos, max_batch_bytes)
    start_pos, end_pos = int(bodies.pos[0]), int(bodies.end_pos[0])
    left, pos = int(table.records_count[0]), start_pos
    is_whole = bool(bodies.is_whole[0]) and left * MIN_RECORD_BYTES <= end_pos - start_pos
    if not is_whole or int(table.base_offset[0]) > MAX_BASE_OFFSET:
        return None
    bounds: list[tuple[int, int, int]] = []  # of each piece: its bytes, and its number of records
    with memoryview(bodies.buf) as view:
        while left > 0:
            piece = _piece(table, view, pos, end_pos, min(left, PIECE_RECORDS))
            if piece is None:
                return None
            next_pos = pos + len(piece.source)
            bounds.append((pos, next_pos, piece.row_count))
            left, pos = left - piece.row_count, next_pos
    return _pieces(table, bodies, bounds) if pos == end_pos else None


def _pieces(
    table: HeaderTable, bodies: _Bodies, bounds: list[tuple[int, int, int]]
) -> Iterator[RecordTable]:
    with memoryview(bodies.buf) as view:
        for pos, end_pos, count in bounds:
            piece = _piece(table, view, pos, end_pos, count)
            if piece is not None:
                yield piece


def _piece(
    table: HeaderTable, view: memoryview, pos: int, limit_pos: int, count: int
) -> RecordTable | None:
    """Decode `count` records from `pos` on. None if there is any doubt."""
    fields_pos, ends = _follow_batch(view, pos, limit_pos, count)
    if not ends:
        return None
    source = bytes(view[pos : ends[-1]]).ljust(DELTA_BYTES, b"\0")
    whole = np.ones(1, np.bool_)
    bodies = _Bodies(
        buf=source,
        pos=np.zeros(1, np.int64),
        end_pos=np.array([ends[-1] - pos], np.int64),
        is_whole=whole,
    )
    places = (np.frombuffer(each, np.int64) - pos for each in (fields_pos, ends))
    records = _read_fields(table, bodies, np.array([count], np.int64), *places)
    if not records.is_whole[0]:
        return None
    return records._replace(source=records.source[: ends[-1] - pos])


def _bodies(
    table: HeaderTable, buf: bytes | bytearray, file_pos: int, max_batch_bytes: int
) -> _Bodies:
    codecs = table.attributes & CODEC_MASK
    start = table.pos - file_pos
    end = start + table.batch_bytes
    if not codecs.any():
        return _Bodies(
            buf=buf, pos=start + HEADER_BYTES, end_pos=end, is_whole=np.ones(len(start), np.bool_)
        )
    parts: list[bytes] = []
    whole: list[bool] = []
    total_bytes = 0
    with memoryview(buf) as view:
        rows = zip(codecs.tolist(), start.tolist(), end.tolist(), table.records_count, strict=True)
        for codec, start_pos, end_pos, count in rows:
            body: bytes = b""
            is_whole = True
            if count:
                try:
                    part = view[start_pos + HEADER_BYTES : end_pos]
                    body = decompress(codec, part, max_bytes=max_batch_bytes)
                except FormatError:
                    is_whole = False
            parts.append(body)
            whole.append(is_whole)
            total_bytes += len(body)
            if total_bytes >= MAX_SOURCE_BYTES:
                break
    sizes = np.array([len(each) for each in parts], np.int64)
    ends = np.cumsum(sizes)
    if len(parts) > 1 or len(parts[0]) < DELTA_BYTES:
        parts.append(bytes(DELTA_BYTES))  # so that any source can be viewed as integers
    return _Bodies(
        buf=b"".join(parts), pos=ends - sizes, end_pos=ends, is_whole=np.array(whole, np.bool_)
    )


def _follow_lengths(bodies: _Bodies, counts: Ints, whole: Flags) -> tuple[Ints, Ints]:
    """Return the start of the fields (behind the length) and the end of each record.

    Clears `whole` and `counts` of a batch that its records do not fill exactly.
    """
    first = np.cumsum(counts) - counts
    pos = np.zeros(int(counts.sum()), np.int64)
    end_pos = np.zeros(len(pos), np.int64)
    source = np.frombuffer(bodies.buf, np.uint8)
    order = np.argsort(-counts, kind="stable")  # lanes, sorted so that the first to end are last
    lane_counts, lane_first = counts[order], first[order]
    at, limit = bodies.pos[order], bodies.end_pos[order]
    bad = np.zeros(len(order), np.bool_)
    step = 0
    while (lanes := _lanes_longer_than(step, lane_counts)) >= MIN_LANES:
        length, fields_pos, wrong = _read_varints(source, at[:lanes], LENGTH_BYTES)
        next_pos = fields_pos + length
        wrong |= (length < MIN_RECORD_BYTES - 1) | (next_pos > limit[:lanes])
        if wrong.any():
            bad[:lanes] |= wrong
            next_pos[wrong] = at[:lanes][wrong]  # does not move, and stays within bounds
        pos[lane_first[:lanes] + step] = fields_pos
        end_pos[lane_first[:lanes] + step] = next_pos
        at[:lanes] = next_pos
        step += 1
    for lane in range(lanes):
        found = _follow_batch(
            bodies.buf, int(at[lane]), int(limit[lane]), int(lane_counts[lane]) - step
        )
        start = int(lane_first[lane]) + step
        pos[start : start + len(found[0])] = found[0]
        end_pos[start : start + len(found[1])] = found[1]
        at[lane] = found[1][-1] if found[1] else -1
    bad |= (lane_counts > 0) & (at != limit)
    if not bad.any():
        return pos, end_pos
    whole[order[bad]] = False
    keep = np.repeat(whole, counts)
    counts[~whole] = 0
    return pos[keep], end_pos[keep]


def _lanes_longer_than(step: int, descending_counts: Ints) -> int:
    return len(descending_counts) - int(np.searchsorted(descending_counts[::-1], step, "right"))


def _follow_batch(
    buf: bytes | bytearray | memoryview, pos: int, limit_pos: int, count: int
) -> tuple[array[int], array[int]]:
    """Return the start of the fields of each record of one batch, and the end of each record.

    Both are empty if the records do not fit.
    """
    fields_pos, ends = array("q"), array("q")
    add_fields_pos, add_end = fields_pos.append, ends.append
    for _ in range(count):
        if pos >= limit_pos:
            return _NOWHERE
        length = buf[pos]
        pos += 1
        if length > 0x7F:
            length &= 0x7F
            for shift in range(7, 7 * LENGTH_BYTES, 7):
                if pos >= limit_pos:
                    return _NOWHERE
                byte = buf[pos]
                pos += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
            else:
                return _NOWHERE
        if length & 1:  # negative
            return _NOWHERE
        add_fields_pos(pos)
        pos += length >> 1
        add_end(pos)
    return (fields_pos, ends) if pos <= limit_pos else _NOWHERE


def _read_varints(
    source: NDArray[np.uint8], pos: Ints, most_bytes: int
) -> tuple[Ints, Ints, Flags]:
    """Read a zig-zag varint at each position. Returns values, next positions, and which are longer.

    Bytes beyond the source are read as zeros.
    """
    word = _words(source, pos)
    value = word & 0x7F
    more = (word & 0x80) != 0
    next_pos = pos + 1
    for place in range(1, most_bytes):
        if not more.any():
            break
        byte = (word >> np.uint64(8 * place)) & 0xFF
        value |= np.where(more, (byte & 0x7F) << np.uint64(7 * place), 0)
        next_pos += more
        more &= byte > 0x7F
    value = value.view(np.int64)
    return (value >> 1) ^ -(value & 1), next_pos, more


def _words(source: NDArray[np.uint8], pos: Ints) -> NDArray[np.uint64]:
    """Gather the 8 bytes at each position as little-endian integers."""
    view: NDArray[np.uint64] = np.ndarray((len(source) - 7,), "<u8", source, 0, (1,))
    if not len(pos) or int(pos.max()) < len(view):
        return view[pos]
    inside = np.minimum(pos, len(view) - 1)
    beyond = np.minimum(pos - inside, 7)
    word: NDArray[np.uint64] = view[inside]
    word >>= (beyond * 8).astype(np.uint64)
    return word


def _read_fields(
    table: HeaderTable, bodies: _Bodies, counts: Ints, pos: Ints, end_pos: Ints
) -> RecordTable:
    """Read all fields of records with known positions."""
    source = np.frombuffer(bodies.buf, np.uint8)
    batch_row = np.repeat(np.arange(len(counts)), counts)
    pos = pos + 1  # attributes, unused
    timestamp_delta_ms, pos, wrong = _read_varints(source, pos, DELTA_BYTES)
    offset_delta, pos, longer = _read_varints(source, pos, LENGTH_BYTES)
    wrong |= longer
    key_bytes, key_pos, longer = _read_varints(source, pos, LENGTH_BYTES)
    pos, over = _skip(key_pos, key_bytes, end_pos)
    wrong |= longer | over
    value_bytes, value_pos, longer = _read_varints(source, pos, LENGTH_BYTES)
    pos, over = _skip(value_pos, value_bytes, end_pos)
    wrong |= longer | over
    headers_count, pos, longer = _read_varints(source, pos, LENGTH_BYTES)
    wrong |= longer | (headers_count < 0) | (headers_count > MAX_HEADERS)
    headers_count[wrong] = 0
    headers = _read_headers(source, headers_count, pos, end_pos, wrong)
    wrong |= pos != end_pos

    base_sequence = table.base_sequence[batch_row]
    attributes = table.attributes[batch_row]
    records = RecordTable(
        source=source,
        batch_count=len(counts),
        is_whole=bodies.is_whole,
        batch_row=batch_row,
        offset=table.base_offset[batch_row] + offset_delta,
        timestamp_ms=np.where(
            attributes & LOG_APPEND_TIME_MASK,
            table.max_timestamp_ms[batch_row],
            table.base_timestamp_ms[batch_row] + timestamp_delta_ms,
        ),
        sequence=_add_to_sequence(base_sequence.astype(np.int64), offset_delta),
        key_pos=key_pos,
        key_bytes=np.maximum(key_bytes, -1),
        value_pos=value_pos,
        value_bytes=np.maximum(value_bytes, -1),
        headers_count=headers_count,
        **headers,
    )
    return records.without(np.unique(batch_row[wrong])) if wrong.any() else records


def _skip(pos: Ints, length: Ints, end_pos: Ints) -> tuple[Ints, Flags]:
    """Move behind a field (null has no bytes). Positions never leave the record."""
    next_pos = pos + np.maximum(length, 0)
    return np.minimum(next_pos, end_pos), next_pos > end_pos


def _add_to_sequence(base: Ints, delta: Ints) -> Ints:
    """Return `record_batch.record_sequence` of each row."""
    last = base + delta
    last[last > MAX_SEQUENCE] -= MAX_SEQUENCE + 1
    last[base < 0] = NO_SEQUENCE
    return last


def _read_headers(
    source: NDArray[np.uint8], headers_count: Ints, pos: Ints, end_pos: Ints, wrong: Flags
) -> dict[str, Ints]:
    """Read record headers: the first of all records, then the second, and so on.

    Moves `pos` behind them and marks records in `wrong` whose headers do not fit.
    """
    first = np.cumsum(headers_count) - headers_count
    total = int(headers_count.sum())
    names = ("key_pos", "key_bytes", "value_pos", "value_bytes")
    columns = {f"header_{name}": np.zeros(total, np.int64) for name in names}
    columns["header_record"] = np.repeat(np.arange(len(headers_count)), headers_count)
    rows = np.flatnonzero(headers_count)
    for place in range(int(headers_count.max(initial=0))):
        rows = rows[headers_count[rows] > place]
        key_bytes, key_pos, longer = _read_varints(source, pos[rows], LENGTH_BYTES)
        next_pos, over = _skip(key_pos, key_bytes, end_pos[rows])
        bad = longer | over | (key_bytes < 0)
        value_bytes, value_pos, longer = _read_varints(source, next_pos, LENGTH_BYTES)
        pos[rows], over = _skip(value_pos, value_bytes, end_pos[rows])
        wrong[rows] |= bad | longer | over
        at = first[rows] + place
        columns["header_key_pos"][at] = key_pos
        columns["header_key_bytes"][at] = key_bytes
        columns["header_value_pos"][at] = value_pos
        columns["header_value_bytes"][at] = np.maximum(value_bytes, -1)
    return columns
