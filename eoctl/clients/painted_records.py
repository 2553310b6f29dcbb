"""Many consumed records as text or JSON Lines at once: the bulk twin of `record_writers`.

Whole columns are painted (`eoctl.text.painter`). Keys and values are copied as they are where that
is right; a string that JSON has to escape, one that is not UTF-8, and base64 are made one by one.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING

import numpy as np

from eoctl.clients.inputs import BytesAs
from eoctl.clients.record_writers import (
    NO_HEADERS,
    NULL_TEXT,
    TextOptions,
    header_text,
    json_headers,
    json_text,
)
from eoctl.text.painter import Painter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eoctl.clients.table_records import TableRecords

    Ints = NDArray[np.int64]

# Of bytes, and of strings that have one of them: the more there is to do, the higher.
QUOTES, ODD, HIGH = 1, 2, 4
_CLASSES = bytes(
    HIGH if each >= 0x80 else ODD if each < 0x20 else QUOTES if each in b'"\\' else 0
    for each in range(256)
)


def paint_json(records: TableRecords, bytes_as: BytesAs) -> memoryview:
    """Return JSON Lines."""
    table, rows = records.decoded.table, records.rows
    lines = Painter(len(rows))
    lines.number(b'{"offset":', table.offset[rows])
    lines.number(b',"timestamp_ms":', table.timestamp_ms[rows])
    lines.literal(b',"timestamp_type":"%s","key":' % records.timestamp_type.encode())
    _json_column(lines, records, table.key_pos[rows], table.key_bytes[rows], bytes_as)
    lines.literal(b',"value":')
    _json_column(lines, records, table.value_pos[rows], table.value_bytes[rows], bytes_as)
    lines.literal(b',"headers":[')
    headers = records.headers()
    if headers is not None:
        _texts(lines, [json_headers(each, bytes_as) for each in headers])
    lines.literal(b"]}\n")
    return _painted(lines)


def paint_text(records: TableRecords, options: TextOptions) -> memoryview:
    """Return lines as kafka-console-consumer prints them."""
    table, rows = records.decoded.table, records.rows
    separator = options.key_separator
    lines = Painter(len(rows))
    if options.print_timestamp:
        lines.number(records.timestamp_type.encode() + b":", table.timestamp_ms[rows])
        lines.literal(separator)
    if options.print_partition:
        lines.literal(b"Partition:%d" % options.partition + separator)
    if options.print_offset:
        lines.number(b"Offset:", table.offset[rows])
        lines.literal(separator)
    if options.print_headers:
        headers = records.headers()
        if headers is None:
            lines.literal(NO_HEADERS)
        else:
            made = list(map(header_text, headers))
            _own(lines, b"".join(made), np.fromiter(map(len, made), np.int64, len(made)))
        lines.literal(separator)
    if options.print_key:
        _text_column(lines, records, table.key_pos[rows], table.key_bytes[rows])
        lines.literal(separator)
    _text_column(lines, records, table.value_pos[rows], table.value_bytes[rows])
    lines.literal(b"\n")
    return _painted(lines)


def _painted(lines: Painter) -> memoryview:
    ends = np.cumsum(lines.widths())
    out = np.empty(int(ends[-1]), np.uint8)
    lines.paint(out, np.concatenate(([0], ends[:-1])))
    return out.data


def _text_column(lines: Painter, records: TableRecords, pos: Ints, size_bytes: Ints) -> None:
    lines.literal(NULL_TEXT, size_bytes < 0)
    lines.slices(records.decoded.table.source, pos, np.maximum(size_bytes, 0))


def _json_column(
    lines: Painter, records: TableRecords, pos: Ints, size_bytes: Ints, bytes_as: BytesAs
) -> None:
    lines.literal(NULL_TEXT, size_bytes < 0)
    if bytes_as is BytesAs.BASE64:
        rows = np.flatnonzero(size_bytes >= 0)
        made = [
            b2a_base64(each, newline=False) for each in _strings(records, pos, size_bytes, rows)
        ]
        lines.literal(b'"', size_bytes >= 0)
        _own(lines, b"".join(made), (size_bytes[rows] + 2) // 3 * 4, rows)
        lines.literal(b'"', size_bytes >= 0)
        return
    kinds = _kinds(records, pos, size_bytes)
    is_quoted = (kinds < ODD) & (size_bytes >= 0)
    is_plain = is_quoted & (kinds == 0)
    lines.literal(b'"', is_quoted)
    lines.slices(records.decoded.table.source, pos, np.where(is_plain, size_bytes, 0))
    rows = np.flatnonzero(is_quoted & ~is_plain)
    if len(rows):
        _escaped(lines, _strings(records, pos, size_bytes, rows), rows)
    lines.literal(b'"', is_quoted)
    rows = np.flatnonzero(kinds >= ODD)
    if len(rows):
        _texts(lines, list(map(json_text, _strings(records, pos, size_bytes, rows))), rows)


def _strings(records: TableRecords, pos: Ints, size_bytes: Ints, rows: Ints) -> list[bytes]:
    data = records.decoded.data
    starts = pos[rows]
    bounds = zip(starts.tolist(), (starts + size_bytes[rows]).tolist(), strict=True)
    return [data[start:end] for start, end in bounds]


def _escaped(lines: Painter, strings: list[bytes], rows: Ints) -> None:
    """Add strings with quotes and backslashes, but no control characters, all at once."""
    data = b"\n".join(strings).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    sizes = np.fromiter(map(len, data.split(b"\n")), np.int64, len(strings))
    _own(lines, data, sizes, rows, gap_bytes=1)


def _texts(lines: Painter, texts: list[str], places: Ints | None = None) -> None:
    """Add a text of its own to each line, or to those at `places`."""
    text = "".join(texts)
    data = text.encode()
    lengths = map(len, texts) if len(data) == len(text) else (len(each.encode()) for each in texts)
    sizes = np.fromiter(lengths, np.int64, len(texts))
    _own(lines, data, sizes, places)


def _own(
    lines: Painter, data: bytes, sizes: Ints, places: Ints | None = None, *, gap_bytes: int = 0
) -> None:
    """Add to each line, or to those at `places`, what lies in `data` one behind the other."""
    starts = np.cumsum(sizes + gap_bytes) - sizes - gap_bytes
    if places is not None:
        all_sizes, all_starts = (np.zeros(lines.row_count, np.int64) for _ in range(2))
        all_sizes[places], all_starts[places] = sizes, starts
        sizes, starts = all_sizes, all_starts
    lines.slices(np.frombuffer(data, np.uint8), starts, sizes)


def _kinds(records: TableRecords, pos: Ints, size_bytes: Ints) -> NDArray[np.uint8]:
    """Tell what strings are: 0 as they stand in JSON, QUOTES to be escaped, ODD anything else."""
    kinds = np.zeros(len(pos), np.uint8)
    filled = np.flatnonzero(size_bytes > 0)
    if not len(filled):
        return kinds
    first, last = int(pos[filled[0]]), int(pos[filled[-1]] + size_bytes[filled[-1]])
    edges = np.empty(2 * len(filled), np.int64)
    edges[::2] = pos[filled] - first
    edges[1::2] = edges[::2] + size_bytes[filled]
    classes = records.decoded.translated(_CLASSES)[first : last + 1]
    found = np.bitwise_or.reduceat(classes, edges)[::2]
    rows = filled[found & HIGH != 0]
    # What stands between keeps a cut character from being completed by the next string.
    is_text = not len(rows) or _is_utf8(b" ".join(_strings(records, pos, size_bytes, rows)))
    kinds[filled] = found & (QUOTES | ODD if is_text else QUOTES | ODD | HIGH)
    return kinds


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
