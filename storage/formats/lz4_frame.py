"""LZ4 frames as Kafka reads and writes them: the codec lz4 of `compression`.

part        width  meaning (integers little endian)
magic           4  04 22 4d 18
flags           1  bits 6-7 version 1, 5 independent blocks, 4 block checksums, 3 content size,
                   2 content checksum, 0-1 reserved
descriptor      1  bits 4-6 block maximum: 4 64 KiB, 5 256 KiB, 6 1 MiB, 7 4 MiB; others reserved
content size  0/8  not looked at
checksum        1  second byte of xxHash32 over flags, descriptor and content size
block         4+n  uint32: bit 31 stored, else compressed; the other bits n. Then n bytes
  checksum    0/4  xxHash32 of the n bytes
end mark        4  a block of n = 0, without bytes
  checksum    0/4  of the content; not looked at

Valid if and only if (BAT-7):
  version 1, independent blocks, reserved bits 0, block maximum 4..7, no block above the maximum
  the header checksum matches. Not so in v0 messages: their writers hashed the magic bytes as well,
  so that readers must not look at it (KAFKA-3160)
  block checksums match where there are any, and the end mark is there
Bytes after the frame are ignored. Kafka writes flags 60, descriptor 40 and nothing optional.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.formats.varint import BytesLike

CHECK_ID = "BAT-7"

UINT32 = Struct("<I")
MAGIC = bytes.fromhex("04224d18")
MIN_HEADER_BYTES = 6  # what Kafka demands before it looks at anything

FLAG_RESERVED = 0x03
FLAG_CONTENT_CHECKSUM = 0x04
FLAG_CONTENT_SIZE = 0x08
FLAG_BLOCK_CHECKSUM = 0x10
FLAG_INDEPENDENT = 0x20
VERSION_SHIFT = 6
VERSION = 1
DESCRIPTOR_RESERVED = 0x8F
STORED_MASK = 0x8000_0000

WRITTEN_DESCRIPTOR = bytes.fromhex("6040")  # flags: version, independent; 64 KiB blocks
WRITTEN_BLOCK_BYTES = 64 * 1024
END_MARK = bytes(4)


class _Frame(NamedTuple):
    """What a frame header says."""

    blocks_pos: int
    max_block_bytes: int
    has_block_checksums: bool
    has_content_checksum: bool


def decompress_blocks(data: memoryview, *, verify_header: bool) -> Iterator[BytesLike]:
    """Decompress one frame, block by block (at most 4 MiB each).

    Raises:
        CorruptError: BAT-7, at the position in `data` where the fault shows (Kafka's
            Lz4BlockInputStream).
    """
    import lz4.block

    pos, max_block_bytes, has_block_checksums, has_content_checksum = _parse_header(
        data, verify_header=verify_header
    )
    while True:
        mark = UINT32.unpack(_take(data, pos, UINT32.size, "frame"))[0]
        block_bytes = mark & ~STORED_MASK
        if block_bytes > max_block_bytes:
            raise _fault(f"block of {block_bytes} bytes, maximum {max_block_bytes}", pos)
        pos += UINT32.size
        if block_bytes == 0:
            break
        block = _take(data, pos, block_bytes, "block")
        block_pos = pos
        pos += block_bytes
        if has_block_checksums:
            stored = UINT32.unpack(_take(data, pos, UINT32.size, "block checksum"))[0]
            if xxh32(block) != stored:
                raise _fault("block checksum does not match", pos)
            pos += UINT32.size
        if mark & STORED_MASK:
            yield block
            continue
        try:
            plain = lz4.block.decompress(block, uncompressed_size=max_block_bytes)
        except lz4.block.LZ4BlockError as error:
            raise _fault(str(error), block_pos) from error
        yield plain
    if has_content_checksum:
        _take(data, pos, UINT32.size, "content checksum")


def _parse_header(data: memoryview, *, verify_header: bool) -> _Frame:
    header = _take(data, 0, MIN_HEADER_BYTES, "frame header")
    if header[:4] != MAGIC:
        raise _fault("no frame begins here", 0)
    flags, descriptor = header[4], header[5]
    if flags & FLAG_RESERVED or flags >> VERSION_SHIFT != VERSION:
        raise _fault(f"flags {flags:#04x} are not of version {VERSION}", 4)
    if not flags & FLAG_INDEPENDENT:
        raise _fault("dependent blocks", 4)
    size_code = descriptor >> 4
    if descriptor & DESCRIPTOR_RESERVED or not 4 <= size_code <= 7:
        raise _fault(f"block descriptor {descriptor:#04x}", 5)
    pos = MIN_HEADER_BYTES
    if flags & FLAG_CONTENT_SIZE:
        pos += len(_take(data, pos, 8, "content size"))
    checksum = _take(data, pos, 1, "frame header")[0]
    if verify_header and checksum != xxh32(data[4:pos]) >> 8 & 0xFF:
        raise _fault("header checksum does not match", pos)
    return _Frame(
        blocks_pos=pos + 1,
        max_block_bytes=1 << (2 * size_code + 8),
        has_block_checksums=bool(flags & FLAG_BLOCK_CHECKSUM),
        has_content_checksum=bool(flags & FLAG_CONTENT_CHECKSUM),
    )


def compress_blocks(data: BytesLike, level: int | None, *, hash_covers_magic: bool) -> bytes:
    """One frame as Kafka's Lz4BlockOutputStream writes it.

    Args:
        data: what to compress.
        level: of the high-compression mode; None is the fast mode, Kafka's default.
        hash_covers_magic: write the header checksum that is expected in v0 messages.
    """
    import lz4.block

    hashed = MAGIC + WRITTEN_DESCRIPTOR if hash_covers_magic else WRITTEN_DESCRIPTOR
    parts = [MAGIC, WRITTEN_DESCRIPTOR, bytes([xxh32(hashed) >> 8 & 0xFF])]
    view = memoryview(data)
    for pos in range(0, len(view), WRITTEN_BLOCK_BYTES):
        plain = view[pos : pos + WRITTEN_BLOCK_BYTES]
        if level is None:
            block = lz4.block.compress(plain, store_size=False)
        else:
            block = lz4.block.compress(
                plain, mode="high_compression", compression=level, store_size=False
            )
        if len(block) < len(plain):
            parts += (UINT32.pack(len(block)), block)
        else:
            parts += (UINT32.pack(len(plain) | STORED_MASK), bytes(plain))
    parts.append(END_MARK)
    return b"".join(parts)


def xxh32(data: BytesLike) -> int:
    """The xxHash32 function with seed 0; none of our dependencies offers it."""
    mask = 0xFFFF_FFFF
    prime_1, prime_2, prime_3 = 0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D
    prime_4, prime_5 = 0x27D4_EB2F, 0x1656_67B1
    view = memoryview(data)
    lanes_end = len(view) & ~15
    words_end = len(view) & ~3
    value = prime_5
    if lanes_end:
        lanes = [(prime_1 + prime_2) & mask, prime_2, 0, -prime_1 & mask]
        for words in Struct("<4I").iter_unpack(view[:lanes_end]):
            for lane, word in enumerate(words):
                mixed = (lanes[lane] + word * prime_2) & mask
                lanes[lane] = (mixed << 13 | mixed >> 19) * prime_1 & mask
        value = sum(
            (lane << turn | lane >> 32 - turn) & mask
            for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)
        )
    value = (value + len(view)) & mask
    for (word,) in UINT32.iter_unpack(view[lanes_end:words_end]):
        value = (value + word * prime_3) & mask
        value = (value << 17 | value >> 15) * prime_4 & mask
    for byte in view[words_end:]:
        value = (value + byte * prime_5) & mask
        value = (value << 11 | value >> 21) * prime_1 & mask
    value = (value ^ value >> 15) * prime_2 & mask
    value = (value ^ value >> 13) * prime_3 & mask
    return value ^ value >> 16


def _take(data: memoryview, pos: int, size_bytes: int, what: str) -> memoryview:
    """The bytes [pos, pos + size_bytes); a fault when they are not all there."""
    if size_bytes > len(data) - pos:
        raise _fault(f"{what} is cut short", pos)
    return data[pos : pos + size_bytes]


def _fault(message: str, pos: int) -> CorruptError:
    return CorruptError(f"lz4: {message}", check_id=CHECK_ID, pos=pos)
