"""What of a damaged `.log` is provably good: a parser of its own. Imports nothing of ours.

Formats: message sets v0 and v1 (wrappers are one batch here) and record batches v2, in the words of
Kafka's protocol guide.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable

OVERHEAD_BYTES = 12  # offset and length
V2_HEADER_BYTES = 61


class Batch(NamedTuple):
    """A batch, or a message of formats v0 and v1, whose checksum is right.

    Attributes:
        pos, size: in bytes.
        magic: of the format whose checksum holds; `magic_byte` is what stands there.
        first_offset, last_offset: as the header says; v0 and v1 name the last one only.
        records_count: None in v0 and v1.
        is_data: it has records for a consumer.
    """

    pos: int
    size: int
    magic: int
    magic_byte: int
    first_offset: int
    last_offset: int
    records_count: int | None
    is_data: bool

    @property
    def end(self) -> int:
        return self.pos + self.size


def batch_at(data: bytes, pos: int) -> Batch | None:
    """Read the batch at a place; None unless a checksum proves it."""
    if pos < 0 or len(data) - pos < OVERHEAD_BYTES + 14:
        return None
    offset, length = struct.unpack_from(">qi", data, pos)
    end = pos + OVERHEAD_BYTES + length
    if length < 14 or end > len(data):
        return None
    magic = data[pos + 16]
    if length >= V2_HEADER_BYTES - OVERHEAD_BYTES:
        crc, attributes, delta = struct.unpack_from(">IHi", data, pos + 17)
        if crc32c.crc32c(data[pos + 21 : end]) == crc:
            count = struct.unpack_from(">i", data, pos + 57)[0]
            is_data = not attributes & 0x20 and count > 0
            size = end - pos
            return Batch(pos, size, 2, magic, offset, offset + delta, count, is_data)
    if magic in (0, 1) and length >= (14, 22)[magic]:
        crc = struct.unpack_from(">I", data, pos + 12)[0]
        if crc == zlib.crc32(data[pos + 16 : end]):
            return Batch(pos, end - pos, magic, magic, offset, offset, None, is_data=True)
    return None


def whole_log(data: bytes) -> list[Batch]:
    """Take an undamaged log apart."""
    batches, pos = [], 0
    while pos < len(data):
        batch = batch_at(data, pos)
        assert batch is not None, pos
        batches.append(batch)
        pos = batch.end
    return batches


def good_batches(data: bytes, places: Iterable[int]) -> list[Batch]:
    """Give the good ones of the batches that begin at `places`, none inside of another."""
    found: list[Batch] = []
    for pos in sorted(set(places)):
        batch = batch_at(data, pos)
        if batch is not None and not (found and pos < found[-1].end):
            found.append(batch)
    return found
