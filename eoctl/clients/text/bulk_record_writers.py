"""Many consumed records as text or JSON Lines at once: the bulk twin of `record_writers`.

The native kernel makes JSON Lines where it is there. Else whole columns are painted
(`eoctl.text.painter`): keys and values are copied as they are where that is right; a string that
JSON has to escape, one that is not UTF-8, and base64 are made one by one.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING

import numpy as np

from eoctl.clients.log.table_records import ODD, QUOTES
from eoctl.clients.text.inputs import BytesAs
from eoctl.clients.text.record_text import (
    NO_HEADERS,
    NULL_TEXT,
    TextOptions,
    header_text,
    json_headers,
    json_text,
)
from eoctl.text.painter import Painter
from storage.kernels.select import load_native

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eoctl.clients.log.table_records import TableRecords
    from storage.kernels.select import Native

    Ints = NDArray[np.int64]


def paint_json(records: TableRecords, bytes_as: BytesAs) -> memoryview:
    """Return JSON Lines."""
    native = load_native()
    if native is not None:
        return memoryview(_json_lines(native, records, bytes_as))
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


def _json_lines(native: Native, records: TableRecords, bytes_as: BytesAs) -> bytes:
    table, rows = records.decoded.table, records.rows
    names = ["offset", "timestamp_ms", "key_pos", "key_bytes", "value_pos", "value_bytes"]
    columns = [getattr(table, name)[rows] for name in (*names, "headers_count")]
    columns.append(np.searchsorted(table.header_record, rows))
    columns += [table.header_key_pos, table.header_key_bytes]
    columns += [table.header_value_pos, table.header_value_bytes]
    kind = f'"{records.timestamp_type}"'
    is_base64 = bytes_as is BytesAs.BASE64
    return native.json_lines(table.source, columns, kind, is_base64=is_base64)


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
    is_null = size_bytes < 0
    lines.literal(NULL_TEXT, is_null)
    source = records.decoded.json
    if bytes_as is BytesAs.BASE64:
        rows = np.flatnonzero(~is_null)
        made = [
            b2a_base64(each, newline=False) for each in source.strings(pos[rows], size_bytes[rows])
        ]
        lines.literal(b'"', ~is_null)
        _own(lines, b"".join(made), (size_bytes[rows] + 2) // 3 * 4, rows)
        lines.literal(b'"', ~is_null)
        return
    kinds = source.kinds(pos, size_bytes)
    is_odd = kinds >= ODD
    is_string = ~is_null & ~is_odd
    lines.literal(b'"', is_string)
    if (kinds == QUOTES).any():
        buffer, start, sizes = source.escaped(pos, size_bytes)
    else:
        buffer, start, sizes = records.decoded.table.source, pos, size_bytes
    lines.slices(buffer, start, np.where(is_string, sizes, 0))
    lines.literal(b'"', is_string)
    rows = np.flatnonzero(is_odd)
    if len(rows):
        _texts(lines, list(map(json_text, source.strings(pos[rows], size_bytes[rows]))), rows)


def _texts(lines: Painter, texts: list[str], places: Ints | None = None) -> None:
    """Add a text of its own to each line, or to those at `places`."""
    text = "".join(texts)
    data = text.encode()
    lengths = map(len, texts) if len(data) == len(text) else (len(each.encode()) for each in texts)
    sizes = np.fromiter(lengths, np.int64, len(texts))
    _own(lines, data, sizes, places)


def _own(lines: Painter, data: bytes, sizes: Ints, places: Ints | None = None) -> None:
    """Add to each line, or to those at `places`, what lies in `data` one behind the other."""
    starts = np.cumsum(sizes) - sizes
    if places is not None:
        all_sizes, all_starts = (np.zeros(lines.row_count, np.int64) for _ in range(2))
        all_sizes[places], all_starts[places] = sizes, starts
        sizes, starts = all_sizes, all_starts
    lines.slices(np.frombuffer(data, np.uint8), starts, sizes)
