"""Record lines in bulk: what `plain.record_metadata` and `plain.record_contents` give.

Keys, values and header names are copied as they are. That is right if they are valid UTF-8;
`with_replacements` looks at that afterwards, in the text, and mends the lines where they are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.text.batch_lines import timestamp_type
from eoctl.text.painter import Painter, copy_slices
from storage.formats.control_record import (
    END_TXN_MARKER_BYTES,
    KEY_BYTES,
    ControlRecordType,
)
from storage.formats.java_text import kafka_text
from storage.formats.record_batch import CONTROL_MASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable
    from storage.kernels.record_table import RecordTable

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]
    Rows = NDArray[np.bool_]

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
