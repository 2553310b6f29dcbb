"""Changes to inputs that know a little of how the files are made.

A change at random almost always ends at a checksum. So lengths, counts and fields of batches are
changed on purpose, and a `Repair` gives the result its right checksums most of the time.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import crc32c

from storage.errors import FormatError
from storage.formats.compression import compress, decompress, xxh32

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    Repair = Callable[[bytearray, random.Random], None]
    Mutation = Callable[[bytearray, bytes, random.Random], None]

REPAIRED_RATIO = 0.75
HEADER_BYTES = 61
CRC_START_POS = 21
LENGTH_POS = 8
MAGIC_POS = 16
CRC_POS = 17
LEGACY_CRC_POS = 12
ATTRIBUTES_POS = 21
COUNT_POS = 57
# Position and width of every field of a v2 header.
BATCH_FIELDS = (
    (0, 8), (8, 4), (12, 4), (16, 1), (17, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2),
    (53, 4), (57, 4),
)  # fmt: skip

INTERESTING_BYTES = (0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
INTERESTING_INTEGERS = (
    0, 1, -1, 2, -2, 3, 7, 13, 14, 16, 48, 49, 50, 60, 61, 62, 127, 128, -128, 255, 256, 4095, 4096,
    32767, 32768, -32768, 65535, 65536, 2**24, 2**31 - 1, 2**31 - 2, -(2**31), 2**31, 2**32 - 1,
    2**62, 2**63 - 1, 2**63 - 2, -(2**63),
)  # fmt: skip
VARINTS = (
    b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80\x01", b"\xff\xff\x03", b"\xfe\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x00", b"\x80" * 5,
    b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\xff" * 10, b"\x80\x80\x80\x80\x10",
)  # fmt: skip
TEXTS = (
    b"9" * 20, b"9" * 4400, b"-1", b"-", b"+0", b"00000000000000000007", b"2147483648",
    b"9223372036854775808", b"-9223372036854775808", "٣".encode(), "\U0001d7e1".encode(), b"\xc3\x28",
    b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x00", b"\r", b"\r\n", b"\n", b"\x0b", b"\x0c", b"\x1c",
    b"\x85", "\u2028".encode(), b"\xc2\xa0", b"\t", b" ", b"  ", b":", b"=", b"\\", b"\\u", b"\\ud800",
    b"\\uDC00", b"\\udbff\\udfff", b"#", b"!", b"{", b"}", b"[" * 1200, b'{"a":' * 300, b'"', b"null",
    b"true", b"NaN", b"-Infinity", b"1e999", b"1e-999", b"0.1", b"-0", b"version: 0", b"version=1",
)  # fmt: skip


class Mutator:
    """Makes new inputs out of known ones."""

    def __init__(
        self, rng: random.Random, words: tuple[bytes, ...] = (), repair: Repair | None = None
    ) -> None:
        self._rng = rng
        self._words = words
        self._repair = repair or no_repair
        self._mutations = [*_MUTATIONS, *([_mutate_batch] * 4 if repair is repair_log else [])]
        if words:
            self._mutations += [self._insert_word, self._insert_word]

    def mutate(self, data: bytes, other: bytes, max_bytes: int) -> bytes:
        """Change `data` in one or a few places; `other` lends pieces."""
        rng = self._rng
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
            rng.choice(self._mutations)(changed, other, rng)
        del changed[max_bytes:]
        if rng.random() < REPAIRED_RATIO:
            self._repair(changed, rng)
        return bytes(changed)

    def repaired(self, data: bytes) -> bytes:
        """Return `data` with right checksums, most of the time."""
        changed = bytearray(data)
        if self._rng.random() < REPAIRED_RATIO:
            self._repair(changed, self._rng)
        return bytes(changed)

    def _insert_word(self, data: bytearray, _: bytes, rng: random.Random) -> None:
        word = rng.choice(self._words)
        pos = rng.randint(0, len(data))
        is_replacing = rng.random() < 0.5
        data[pos : pos + (len(word) if is_replacing else 0)] = word


# --- mutations: each changes `data` in place ------------------------------------------------------


def _flip_bit(data: bytearray, _: bytes, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_byte(data: bytearray, _: bytes, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((*INTERESTING_BYTES, rng.randrange(256)))


def _step_byte(data: bytearray, _: bytes, rng: random.Random) -> None:
    if data:
        pos = rng.randrange(len(data))
        data[pos] = (data[pos] + rng.choice((-2, -1, 1, 2))) % 256


def _set_integer(data: bytearray, _: bytes, rng: random.Random) -> None:
    width = rng.choice((2, 4, 8))
    if len(data) >= width:
        pos = rng.randrange(len(data) - width + 1)
        _put(data, pos, width, rng.choice(INTERESTING_INTEGERS), rng)


def _set_length(data: bytearray, _: bytes, rng: random.Random) -> None:
    """Make an integer state about what is left behind it."""
    width = rng.choice((1, 2, 4))
    if len(data) >= width:
        pos = rng.randrange(len(data) - width + 1)
        left = len(data) - pos - width
        _put(data, pos, width, left + rng.choice((-1, 0, 0, 1, 12)), rng)


def _put(data: bytearray, pos: int, width: int, value: int, rng: random.Random) -> None:
    unsigned = value % (1 << 8 * width)
    is_little = rng.random() < 0.25
    data[pos : pos + width] = unsigned.to_bytes(width, "little" if is_little else "big")


def _set_varint(data: bytearray, _: bytes, rng: random.Random) -> None:
    pos = rng.randint(0, len(data))
    varint = rng.choice(VARINTS)
    data[pos : pos + rng.choice((0, 1, len(varint)))] = varint


def _insert(data: bytearray, _: bytes, rng: random.Random) -> None:
    pos = rng.randint(0, len(data))
    byte = rng.choice((*INTERESTING_BYTES, rng.randrange(256)))
    data[pos:pos] = bytes([byte]) * rng.choice((1, 1, 1, 2, 5, 64))


def _delete(data: bytearray, _: bytes, rng: random.Random) -> None:
    if data:
        pos = rng.randrange(len(data))
        del data[pos : pos + rng.choice((1, 1, 2, 8, 64))]


def _cut(data: bytearray, _: bytes, rng: random.Random) -> None:
    del data[rng.randint(0, len(data)) :]


def _append_zeros(data: bytearray, _: bytes, rng: random.Random) -> None:
    data += bytes(rng.choice((1, 12, 17, 61, 512, 1024)))


def _repeat(data: bytearray, _: bytes, rng: random.Random) -> None:
    if data:
        start_pos = rng.randrange(len(data))
        piece = data[start_pos : start_pos + rng.choice((1, 4, 16, 64))]
        data[start_pos:start_pos] = piece * rng.choice((1, 1, 3))


def _splice(data: bytearray, other: bytes, rng: random.Random) -> None:
    pos = rng.randint(0, len(data))
    other_pos = rng.randint(0, len(other))
    data[pos:] = other[other_pos:]


def _copy_in(data: bytearray, other: bytes, rng: random.Random) -> None:
    """Overwrite a piece with one of another input."""
    if data and other:
        pos, other_pos = rng.randrange(len(data)), rng.randrange(len(other))
        size = rng.choice((1, 2, 4, 8, 61))
        piece = other[other_pos : other_pos + size]
        data[pos : pos + len(piece)] = piece


_MUTATIONS: tuple[Mutation, ...] = (
    _flip_bit, _set_byte, _step_byte, _set_integer, _set_length, _set_varint, _insert, _delete,
    _cut, _append_zeros, _repeat, _splice, _copy_in,
)  # fmt: skip


# --- batches --------------------------------------------------------------------------------------


def whole_batches(data: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Start and end of each batch or message from the start on, by their lengths alone."""
    pos = 0
    while pos + MAGIC_POS < len(data):
        (length,) = struct.unpack_from(">i", data, pos + LENGTH_POS)
        end_pos = pos + 12 + length
        if length < 14 or end_pos > len(data):
            return
        yield pos, end_pos
        pos = end_pos


def _mutate_batch(data: bytearray, other: bytes, rng: random.Random) -> None:
    """Change one batch as a whole, a field of its header, or what is in its body."""
    batches = list(whole_batches(data))
    if not batches:
        return
    start_pos, end_pos = rng.choice(batches)
    batch = bytes(data[start_pos:end_pos])
    match rng.randrange(6):
        case 0:
            data[start_pos:end_pos] = b""
        case 1:
            data[end_pos:end_pos] = batch
        case 2:
            others = [bytes(other[start:end]) for start, end in whole_batches(other)]
            data[end_pos:end_pos] = rng.choice(others) if others else b""
        case 3 | 4:
            field_pos, width = rng.choice(BATCH_FIELDS)
            if field_pos + width <= len(batch):
                pos = start_pos + field_pos
                now = int.from_bytes(data[pos : pos + width], "big", signed=True)
                value = rng.choice((now + 1, now - 1, *INTERESTING_INTEGERS))
                data[pos : pos + width] = (value % (1 << 8 * width)).to_bytes(width, "big")
        case 5:
            if len(batch) > HEADER_BYTES and batch[MAGIC_POS] == 2:
                data[start_pos:end_pos] = _with_other_body(batch, other, rng)


def _with_other_body(batch: bytes, other: bytes, rng: random.Random) -> bytes:
    """Change the records inside of a batch and compress them, perhaps with another codec."""
    head = bytearray(batch[:HEADER_BYTES])
    attributes = struct.unpack_from(">H", head, ATTRIBUTES_POS)[0]
    try:
        body = bytearray(decompress(attributes & 7, batch[HEADER_BYTES:], max_bytes=2**16))
    except FormatError:
        return batch
    for _ in range(rng.choice((0, 1, 1, 2))):
        rng.choice(_MUTATIONS)(body, other, rng)
    codec = rng.randrange(5)
    packed = compress(codec, body)
    struct.pack_into(">H", head, ATTRIBUTES_POS, attributes & ~7 | codec)
    struct.pack_into(">i", head, LENGTH_POS, HEADER_BYTES - 12 + len(packed))
    return bytes(head) + packed


# --- repairs --------------------------------------------------------------------------------------


def no_repair(_: bytearray, __: random.Random) -> None:
    """Leave the input as it is."""


def repair_log(data: bytearray, rng: random.Random) -> None:
    """Give batches their right checksums, now and then all but one."""
    batches = list(whole_batches(data))
    left_out = rng.randrange(len(batches)) if batches and rng.random() < 0.2 else -1
    for place, (pos, end_pos) in enumerate(batches):
        if place == left_out:
            continue
        if data[pos + MAGIC_POS] in (0, 1):
            crc = zlib.crc32(data[pos + MAGIC_POS : end_pos])
            struct.pack_into(">I", data, pos + LEGACY_CRC_POS, crc)
        elif end_pos - pos >= HEADER_BYTES:
            crc = crc32c.crc32c(data[pos + CRC_START_POS : end_pos])
            struct.pack_into(">I", data, pos + CRC_POS, crc)


def repair_snapshot(data: bytearray, rng: random.Random) -> None:
    """Give a producer snapshot its version and checksum, and mostly its count."""
    if len(data) >= 10:
        data[:2] = b"\x00\x01"
        if rng.random() < 0.8:
            del data[10 + (len(data) - 10) // 46 * 46 :]
            struct.pack_into(">i", data, 6, (len(data) - 10) // 46)
        struct.pack_into(">I", data, 2, crc32c.crc32c(bytes(data[6:])))


def repair_gzip(data: bytearray, _: random.Random) -> None:
    """Give the first member a header without options, and the trailer of what it inflates to."""
    data[:4] = b"\x1f\x8b\x08\x00"
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        plain = inflater.decompress(bytes(data[10:]), 2**20)
    except zlib.error:
        return
    if inflater.eof:
        pos = len(data) - len(inflater.unused_data)
        data[pos : pos + 8] = struct.pack("<II", zlib.crc32(plain), len(plain))


def repair_lz4(data: bytearray, _: random.Random) -> None:
    """Give an lz4 frame its magic and the checksum of its header."""
    data[:4] = b"\x04\x22\x4d\x18"
    end_pos = 14 if len(data) > 4 and data[4] & 8 else 6
    if len(data) > end_pos:
        data[end_pos] = xxh32(bytes(data[4:end_pos])) >> 8 & 0xFF


def repair_snappy(data: bytearray, rng: random.Random) -> None:
    """Give the first chunk of a snappy-java stream a length that fits."""
    if len(data) > 20:
        data[:16] = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
        if rng.random() < 0.5:
            struct.pack_into(">i", data, 16, len(data) - 20)
