"""Variable-length integers: base 128, least significant group first, high bit = one more byte.

    name      bytes  value               use
    uvarint   1-5    0 .. 2^32-1         lengths in generated messages (length + 1)
    varint    1-5    -2^31 .. 2^31-1     zig-zag: lengths and offset deltas of records v2
    uvarlong  1-10   0 .. 2^64-1         generated messages
    varlong   1-10   -2^63 .. 2^63-1     zig-zag: timestamp deltas of records v2

Zig-zag puts the sign into bit 0: 0, -1, 1, -2 become 0, 1, 2, 3. A null length is -1, byte 01.

Valid if and only if these rules hold:

- VAR-1: the buffer does not end before a byte without the high bit.
- VAR-2: the 5th (32-bit) or 10th (64-bit) byte has no high bit.

Longer forms than needed can be read. As in Kafka's ByteUtils, bits of the last byte beyond the
width are dropped. The encoders write the shortest form.
"""

from __future__ import annotations

from typing import TypeAlias

from storage.errors import CorruptError, TruncatedError
from storage.limits import INT32_MAX, INT64_MAX

BytesLike: TypeAlias = bytes | bytearray | memoryview

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10

MASK_32 = 0xFFFF_FFFF
MASK_64 = 0xFFFF_FFFF_FFFF_FFFF

TRUNCATED_CHECK_ID = "VAR-1"
TOO_LONG_CHECK_ID = "VAR-2"


def _parse(buf: BytesLike, pos: int, max_bytes: int, mask: int) -> tuple[int, int]:
    value = 0
    shift = 0
    limit_pos = pos + max_bytes
    for place in range(pos, min(limit_pos, len(buf))):
        byte = buf[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & mask, place + 1
        shift += 7
    if limit_pos <= len(buf):
        raise CorruptError(
            f"variable-length integer goes on after {max_bytes} bytes",
            check_id=TOO_LONG_CHECK_ID,
            pos=pos,
            expected=f"at most {max_bytes} bytes",
            found="more",
        )
    available_bytes = max(len(buf) - pos, 0)
    raise TruncatedError(
        "variable-length integer",
        check_id=TRUNCATED_CHECK_ID,
        pos=pos,
        needed_bytes=available_bytes + 1,
        available_bytes=available_bytes,
    )


def parse_uvarint(buf: BytesLike, pos: int) -> tuple[int, int]:
    """Read an unsigned 32-bit integer at `pos`. Returns (value, next_pos).

    Raises:
        TruncatedError: VAR-1.
        CorruptError: VAR-2.
    """
    if pos < len(buf) and (byte := buf[pos]) < 0x80:
        return byte, pos + 1
    return _parse(buf, pos, MAX_VARINT_BYTES, MASK_32)


def parse_varint(buf: BytesLike, pos: int) -> tuple[int, int]:
    """Read a zig-zag 32-bit integer at `pos`, with results and errors as `parse_uvarint`."""
    if pos < len(buf) and (byte := buf[pos]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw, next_pos = _parse(buf, pos, MAX_VARINT_BYTES, MASK_32)
    return (raw >> 1) ^ -(raw & 1), next_pos


def parse_uvarlong(buf: BytesLike, pos: int) -> tuple[int, int]:
    """Read an unsigned 64-bit integer at `pos`, with results and errors as `parse_uvarint`."""
    return _parse(buf, pos, MAX_VARLONG_BYTES, MASK_64)


def parse_varlong(buf: BytesLike, pos: int) -> tuple[int, int]:
    """Read a zig-zag 64-bit integer at `pos`, with results and errors as `parse_uvarint`."""
    raw, next_pos = _parse(buf, pos, MAX_VARLONG_BYTES, MASK_64)
    return (raw >> 1) ^ -(raw & 1), next_pos


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _require(value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{value} is not in {low}..{high}")


def encode_uvarint(value: int) -> bytes:
    """Return the shortest form of 0 .. 2^32-1. ValueError for other values."""
    _require(value, 0, MASK_32)
    return _encode(value)


def encode_varint(value: int) -> bytes:
    """Return the shortest zig-zag form of -2^31 .. 2^31-1. ValueError for other values."""
    _require(value, -INT32_MAX - 1, INT32_MAX)
    return _encode((value << 1) ^ (value >> 31))


def encode_uvarlong(value: int) -> bytes:
    """Return the shortest form of 0 .. 2^64-1. ValueError for other values."""
    _require(value, 0, MASK_64)
    return _encode(value)


def encode_varlong(value: int) -> bytes:
    """Return the shortest zig-zag form of -2^63 .. 2^63-1. ValueError for other values."""
    _require(value, -INT64_MAX - 1, INT64_MAX)
    return _encode((value << 1) ^ (value >> 63))
