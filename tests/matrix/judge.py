"""What is on disk: batches of `.log` files, taken apart by hand. Imports nothing of ours.

A batch is good if its length leads to the next one or to the end, and its checksum is right. Behind damage the next good batch is looked for at every byte.
"""

from __future__ import annotations

import struct
import zlib
from gzip import decompress
from typing import TYPE_CHECKING, NamedTuple

import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAST_BYTES = 26  # an empty message of format v0
HEADER_BYTES = 61
CONTROL = 0x20
GZIP = 1


class Good(NamedTuple):
    """A batch that nothing is wrong with; `count` of records, None where no gzip holds them."""

    pos: int
    size: int
    base_offset: int
    last_offset: int
    count: int | None
    is_control: bool

    @property
    def end(self) -> int:
        return self.pos + self.size


def good_batches(path: Path) -> list[Good]:
    """All good batches of a file, in its order; none of what is no file."""
    if not path.is_file():  # a pipe would make us wait
        return []
    return list(_walk(path.read_bytes()))


def is_good_at(path: Path, pos: int) -> bool:
    """Is there a good batch?"""
    data = path.read_bytes() if path.is_file() else b""
    return pos + LEAST_BYTES <= len(data) and _good_at(data, pos) is not None


def _walk(data: bytes) -> Iterator[Good]:
    pos = 0
    while pos + LEAST_BYTES <= len(data):
        batch = _good_at(data, pos)
        if batch is not None:
            yield batch
        pos = pos + 1 if batch is None else batch.end


def _good_at(data: bytes, pos: int) -> Good | None:
    offset, length = struct.unpack_from(">qi", data, pos)
    end, magic = pos + 12 + length, data[pos + 16]
    if length < LEAST_BYTES - 12 or end > len(data) or offset < 0:
        return None
    if length >= HEADER_BYTES - 12:
        # It does not cover the magic, and proves the batch whatever stands there.
        crc, attributes, delta = struct.unpack_from(">IHi", data, pos + 17)
        if crc == crc32c.crc32c(data[pos + 21 : end]):
            count = struct.unpack_from(">i", data, pos + 57)[0]
            return Good(pos, length + 12, offset, offset + delta, count, bool(attributes & CONTROL))
    if magic > 1:
        return None
    if struct.unpack_from(">I", data, pos + 12)[0] != zlib.crc32(data[pos + 16 : end]):
        return None
    return Good(pos, length + 12, offset, offset, _legacy_count(data[pos:end]), is_control=False)


def _legacy_count(message: bytes) -> int | None:
    """Records of a message of format v0 or v1: itself, or those in its value."""
    codec = message[17] & 7
    if not codec:
        return 1
    at = 18 + (8 if message[16] == 1 else 0)
    key_bytes = struct.unpack_from(">i", message, at)[0]
    at += 4 + max(key_bytes, 0)
    if codec != GZIP:
        return None
    try:
        inner = decompress(message[at + 4 :])
    except (OSError, EOFError, zlib.error):
        return None
    count = pos = 0
    while pos + 12 <= len(inner):
        pos += 12 + int(struct.unpack_from(">i", inner, pos + 8)[0])
        count += 1
    return count
