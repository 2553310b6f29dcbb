"""Consumed records as columns of a decoded table: the bulk twin of `consumed.Records`.

They refer to the buffer that they were decoded from: use them before the next are asked for, or
take their `lists`, which are copies.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from eoctl.clients.log.consumed import Records
from eoctl.clients.log.json_source import JsonSource
from storage.value_pieces import LARGE_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eoctl.clients.log.consumed import Headers
    from storage.kernels.record_table import RecordTable

    Ints = NDArray[np.int64]


FEW_ROWS = 64


class Decoded:
    """A decoded table that several pieces share, and what was made of its bytes."""

    def __init__(self, table: RecordTable) -> None:
        self.table = table

    @cached_property
    def data(self) -> bytes:
        """A copy of what positions refer to: slices of bytes are cheaper than those of an array."""
        return self.table.source.tobytes()

    @cached_property
    def json(self) -> JsonSource:
        """The bytes as JSON has them."""
        return JsonSource(self.data)


class TableRecords:
    """Some rows of a decoded table, at least one.

    Attributes:
        timestamp_type: of all of them.
        decoded: the table.
        rows: of it, ascending.
        next_offset: where to go on when all of them are consumed.
    """

    def __init__(self, timestamp_type: str, decoded: Decoded, rows: Ints, next_offset: int) -> None:
        self.timestamp_type = timestamp_type
        self.decoded = decoded
        self.rows = rows
        self.next_offset = next_offset

    @property
    def row_count(self) -> int:
        """Number of records."""
        return len(self.rows)

    @property
    def first_offset(self) -> int:
        """Offset of the first one."""
        return int(self.decoded.table.offset[self.rows[0]])

    @property
    def last_offset(self) -> int:
        """Offset of the last one."""
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
        # A copy of what a large record is in would be a second one of it.
        is_large = len(table.source) > LARGE_BYTES and len(rows) < FEW_ROWS
        data = table.source.data if is_large else self.decoded.data
        return Records(
            timestamp_type=self.timestamp_type,
            offsets=table.offset[rows].tolist(),
            timestamps_ms=table.timestamp_ms[rows].tolist(),
            keys=_slices(data, table.key_pos[rows], table.key_bytes[rows]),
            values=_slices(data, table.value_pos[rows], table.value_bytes[rows]),
            headers=self.headers(),
            next_offset=self.next_offset,
        )

    def headers(self) -> list[Headers] | None:
        """Return the headers of each record; None if no record has any."""
        table, rows = self.decoded.table, self.rows
        counts = table.headers_count[rows]
        ends = np.cumsum(counts)
        total = int(ends[-1])
        if not total:
            return None
        data = self.decoded.data
        first = np.searchsorted(table.header_record, rows)
        at = np.arange(total) + np.repeat(first - (ends - counts), counts)
        keys = _slices(data, table.header_key_pos[at], table.header_key_bytes[at])
        values = _slices(data, table.header_value_pos[at], table.header_value_bytes[at])
        pairs = list(zip((key or b"" for key in keys), values, strict=True))
        bounds = zip((ends - counts).tolist(), ends.tolist(), strict=True)
        return [pairs[start:end] for start, end in bounds]


def _slices(source: bytes | memoryview, pos: Ints, size_bytes: Ints) -> list[bytes | None]:
    least = int(size_bytes.min())
    if least == -1 == int(size_bytes.max()):
        return [None] * len(pos)
    bounds = zip(pos.tolist(), (pos + size_bytes).tolist(), strict=True)
    if least >= 0:
        return [bytes(source[start:end]) for start, end in bounds]
    return [None if end < start else bytes(source[start:end]) for start, end in bounds]
