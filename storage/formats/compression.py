"""Compression of record bodies (v2) and of wrapper messages (v0, v1), framed as Kafka frames it.

The codecs by id:

- 0 none: the bytes themselves.
- 1 gzip: RFC 1952 members. Bytes after a member that do not begin another member are ignored.
- 2 snappy: snappy-java's block stream (not the official framing format), or one raw block.
- 3 lz4: one LZ4 frame of independent blocks, see `decompress_blocks`.
- 4 zstd: zstd frames (RFC 8878), not in v0 and v1.

A snappy block stream begins with a header:

    0  8  magic 82 "SNAPPY" 00    8  4  int32 version    12  4  int32 lowest compatible

Chunks follow until the end: int32 compressed length, raw block. In place of a length the magic may
begin a second stream. There is no end mark and no checksum. Integers of the snappy framing are big
endian, integers of gzip and zstd little endian.

A body is valid if and only if Kafka's readers can read it to its end (BAT-7, in v0 and v1 BAT-17):

- gzip: members are whole, and CRC-32 and size of each match.
- snappy: no chunk is truncated, has a negative length or other bytes than its length. Less than 4
  bytes at the end are ignored.
- lz4: see the rules of the LZ4 frame below.
- zstd: frames are whole, and the window is at most 128 MiB. Checksum and size of the content match
  if there are any. Kafka's zstd-jni does not detect that a frame after the first is truncated.

Compressed bytes differ between compressors, so only compare the decompressed bytes. A library is
imported when its codec is first used.
"""

from __future__ import annotations

from enum import IntEnum
from io import BytesIO
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError, TooLargeError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from storage.formats.varint import BytesLike


# -- LZ4 frames as Kafka reads and writes them: the codec lz4.
#
# Integers are little endian. The parts of a frame with their widths in bytes:
#
# * Magic, 4: 04 22 4d 18.
# * Flags, 1: bits 6-7 version 1, 5 independent blocks, 4 block checksums, 3 content size, 2 content
#   checksum, 0-1 reserved.
# * Descriptor, 1: bits 4-6 block maximum (4 64 KiB, 5 256 KiB, 6 1 MiB, 7 4 MiB, others reserved).
# * Content size, 0 or 8: ignored.
# * Header checksum, 1: second byte of xxHash32 over flags, descriptor and content size.
# * Block, 4+n: uint32 with bit 31 for stored, else compressed, n in the other bits. Then n bytes.
# * Block checksum, 0 or 4: xxHash32 of the n bytes.
# * End mark, 4: a block of n = 0, without bytes.
# * Content checksum, 0 or 4: ignored.
#
# Valid if and only if (BAT-7) these rules hold.
#
# * Version 1, independent blocks, reserved bits 0, block maximum 4..7, no block above the maximum.
# * The header checksum matches. Readers must not check it in v0 messages, whose writers hashed the
#   magic bytes as well (KAFKA-3160).
# * Block checksums match if there are any, and the end mark exists.
#
# Bytes after the frame are ignored. Kafka writes flags 60, descriptor 40 and nothing optional.


CHECK_ID = "BAT-7"

UINT32 = Struct("<I")
MAGIC = bytes.fromhex("04224d18")
MIN_HEADER_BYTES = 6  # Kafka requires them before it checks anything

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
    """The content of a frame header."""

    blocks_pos: int
    max_block_bytes: int
    has_block_checksums: bool
    has_content_checksum: bool


def decompress_blocks(data: memoryview, *, verify_header: bool) -> Iterator[BytesLike]:
    """Decompress one frame, block by block (at most 4 MiB each).

    Raises:
        CorruptError: BAT-7, at the position in `data` where Kafka's Lz4BlockInputStream finds the
            fault.
    """
    import lz4.block

    pos, max_block_bytes, has_block_checksums, has_content_checksum = _parse_header(
        data, verify_header=verify_header
    )
    while True:
        mark = UINT32.unpack(_frame_bytes(data, pos, UINT32.size, "frame"))[0]
        block_bytes = mark & ~STORED_MASK
        if block_bytes > max_block_bytes:
            raise _frame_fault(f"block of {block_bytes} bytes, maximum {max_block_bytes}", pos)
        pos += UINT32.size
        if block_bytes == 0:
            break
        block = _frame_bytes(data, pos, block_bytes, "block")
        block_pos = pos
        pos += block_bytes
        if has_block_checksums:
            stored = UINT32.unpack(_frame_bytes(data, pos, UINT32.size, "block checksum"))[0]
            if xxh32(block) != stored:
                raise _frame_fault("block checksum does not match", pos)
            pos += UINT32.size
        if mark & STORED_MASK:
            yield block
            continue
        try:
            plain = lz4.block.decompress(block, uncompressed_size=max_block_bytes)
        except lz4.block.LZ4BlockError as error:
            raise _frame_fault(str(error), block_pos) from error
        yield plain
    if has_content_checksum:
        _frame_bytes(data, pos, UINT32.size, "content checksum")


def _parse_header(data: memoryview, *, verify_header: bool) -> _Frame:
    header = _frame_bytes(data, 0, MIN_HEADER_BYTES, "frame header")
    if header[:4] != MAGIC:
        raise _frame_fault("no frame begins here", 0)
    flags, descriptor = header[4], header[5]
    if flags & FLAG_RESERVED or flags >> VERSION_SHIFT != VERSION:
        raise _frame_fault(f"flags {flags:#04x} are not of version {VERSION}", 4)
    if not flags & FLAG_INDEPENDENT:
        raise _frame_fault("dependent blocks", 4)
    size_code = descriptor >> 4
    if descriptor & DESCRIPTOR_RESERVED or not 4 <= size_code <= 7:
        raise _frame_fault(f"block descriptor {descriptor:#04x}", 5)
    pos = MIN_HEADER_BYTES
    if flags & FLAG_CONTENT_SIZE:
        pos += len(_frame_bytes(data, pos, 8, "content size"))
    checksum = _frame_bytes(data, pos, 1, "frame header")[0]
    if verify_header and checksum != xxh32(data[4:pos]) >> 8 & 0xFF:
        raise _frame_fault("header checksum does not match", pos)
    return _Frame(
        blocks_pos=pos + 1,
        max_block_bytes=1 << (2 * size_code + 8),
        has_block_checksums=bool(flags & FLAG_BLOCK_CHECKSUM),
        has_content_checksum=bool(flags & FLAG_CONTENT_CHECKSUM),
    )


def compress_blocks(data: BytesLike, level: int | None, *, hash_covers_magic: bool) -> bytes:
    """Return one frame as Kafka's Lz4BlockOutputStream writes it.

    Args:
        data: the content.
        level: of the high-compression mode. None is the fast mode, Kafka's default.
        hash_covers_magic: write the header checksum that v0 messages require.
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
    """Return the xxHash32 with seed 0, which no dependency of eoctl offers."""
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


def _frame_bytes(data: memoryview, pos: int, size_bytes: int, what: str) -> memoryview:
    """Return the bytes [pos, pos + size_bytes). Raises a fault if some are missing."""
    if size_bytes > len(data) - pos:
        raise _frame_fault(f"{what} is truncated", pos)
    return data[pos : pos + size_bytes]


def _frame_fault(message: str, pos: int) -> CorruptError:
    return CorruptError(f"lz4: {message}", check_id=CHECK_ID, pos=pos)


# -- compression


DEFAULT_MAX_BATCH_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 256 * 1024  # of output at a time, which may exceed the limit
INPUT_CHUNK_BYTES = 64 * 1024

LEGACY_CHECK_ID = "BAT-17"

MAGIC_V0 = 0
MAGIC_V2 = 2

INT32_BE = Struct(">i")
UINT32_LE = Struct("<I")

# RFC 1952: flags, mtime and extra flags 0; OS byte 255, as Java 16 and later write it.
GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
GZIP_MAGIC_AND_METHOD = GZIP_HEADER[:3]
GZIP_TRAILER = Struct("<II")  # CRC-32, size modulo 2^32
GZIP_HEADER_CRC, GZIP_EXTRA, GZIP_NAME, GZIP_COMMENT = 0x02, 0x04, 0x08, 0x10
GZIP_MIN_REST_BYTES = 18  # Java looks for a further member only in more bytes

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + bytes.fromhex("0000000100000001")
XERIAL_MIN_VERSION = 1
XERIAL_CHUNK_BYTES = 32 * 1024
SNAPPY_MAX_RATIO = 64  # a copy element of 2 bytes or more yields at most 64

ZSTD_MAGIC = 0xFD2F_B528
ZSTD_SKIPPABLE_MAGIC = 0x184D_2A50  # and the 15 values after it
ZSTD_MAX_HEADER_BYTES = 18
ZSTD_MAX_WINDOW_BYTES = 1 << 27  # the library's default limit, which Kafka keeps
ZSTD_LEVEL = 3  # Kafka's default


class Codec(IntEnum):
    """Codec id, bits 0-2 of the attributes of a batch or message."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name of the codec, as in compression.type."""
        return self.name.lower()


def _fault(message: str, pos: int) -> CorruptError:
    return CorruptError(message, check_id=CHECK_ID, pos=pos)


class Framing(NamedTuple):
    """The reader and the writer of bodies of a codec.

    Attributes:
        unpack: from data, magic and a limit in bytes to an iterator of plain bytes.
        pack: from plain bytes, magic and level to a body.
        is_legacy: whether v0 and v1 have the codec too.
    """

    unpack: Callable[[memoryview, int, int], Iterator[BytesLike]]
    pack: Callable[[BytesLike, int, int | None], bytes]
    is_legacy: bool = True


def is_known(codec: int, magic: int) -> bool:
    """Return whether batches of a magic may have this codec."""
    if codec == Codec.NONE:
        return True
    framing = FRAMINGS.get(codec)
    return framing is not None and (magic >= MAGIC_V2 or framing.is_legacy)


def _framing_of(codec: int, magic: int) -> Framing | None:
    """Return the framing of a codec, or None for uncompressed bodies."""
    if not is_known(codec, magic):
        is_legacy = magic < MAGIC_V2
        raise UnsupportedError(
            f"codec {codec} is not one of magic {magic}",
            check_id=LEGACY_CHECK_ID if is_legacy else CHECK_ID,
            pos=0,
            expected=f"0..{MAX_LEGACY_CODEC if is_legacy else MAX_CODEC}",
            found=str(codec),
        )
    return FRAMINGS.get(codec)


def decompress(
    codec: int, data: BytesLike, *, magic: int = 2, max_bytes: int = DEFAULT_MAX_BATCH_BYTES
) -> bytes:
    """Decompress the body of a batch, or the value of a v0 or v1 wrapper (`magic`).

    Accepts what Kafka's readers accept. Memory is limited to `max_bytes` and a chunk, however large
    the decompressed data would be. Uncompressed data is returned as it is.

    Raises:
        CorruptError: BAT-7 (v0, v1: BAT-17), at the position of the fault in `data`.
        TooLargeError: it would be more than `max_bytes`.
        UnsupportedError: codec 5-7, or zstd in v0 or v1.
    """
    framing = _framing_of(codec, magic)
    if framing is None:
        return bytes(data)
    parts = framing.unpack(memoryview(data), magic, max_bytes)
    plain = BytesIO()  # returns its bytes without a copy
    try:
        for part in parts:
            _require_limit(plain.tell() + len(part), max_bytes)
            plain.write(part)
    except FormatError as error:
        if magic < MAGIC_V2:
            error.check_id = LEGACY_CHECK_ID
        raise
    return plain.getvalue()


def _require_limit(plain_bytes: int, max_bytes: int) -> None:
    if plain_bytes > max_bytes:
        raise TooLargeError(
            f"decompressed data exceeds the limit of {max_bytes:,} bytes",
            check_id=CHECK_ID,
            pos=0,
            expected=f"at most {max_bytes} bytes",
            found="more",
        )


def _take(data: memoryview, pos: int, size_bytes: int, what: str) -> memoryview:
    """Return the bytes [pos, pos + size_bytes). Raises a fault if some are missing."""
    if size_bytes > len(data) - pos:
        raise _fault(f"{what} is truncated", pos)
    return data[pos : pos + size_bytes]


# gzip


def _gunzip(data: memoryview, _magic: int, _max_bytes: int) -> Iterator[bytes]:
    pos = _gzip_body_pos(data, 0)
    if pos is None:
        raise _fault("gzip: no member begins here", 0)
    while pos is not None:
        pos = yield from _inflate_member(data, pos)
        pos = _gzip_body_pos(data, pos) if len(data) - pos > GZIP_MIN_REST_BYTES else None


def _gzip_body_pos(data: memoryview, pos: int) -> int | None:
    """Return the start of the deflate stream of the member at `pos`, None without a member.

    Java's GZIPInputStream skips the optional fields of the flags and ignores unknown flags.
    """
    import zlib

    start_pos = pos
    if len(data) - pos < len(GZIP_HEADER) or data[pos : pos + 3] != GZIP_MAGIC_AND_METHOD:
        return None
    flags = data[pos + 3]
    pos += len(GZIP_HEADER)
    if flags & GZIP_EXTRA:
        if len(data) - pos < 2:
            return None
        pos += 2 + int.from_bytes(data[pos : pos + 2], "little")
    for flag in (GZIP_NAME, GZIP_COMMENT):
        if flags & flag:
            while pos < len(data) and data[pos]:
                pos += 1
            pos += 1
    if flags & GZIP_HEADER_CRC:
        crc = zlib.crc32(data[start_pos:pos]) & 0xFFFF
        if int.from_bytes(data[pos : pos + 2], "little") != crc:
            return None
        pos += 2
    return pos if pos <= len(data) else None


def _inflate_member(data: memoryview, pos: int) -> Generator[bytes, None, int]:
    """Inflate from `pos` on and verify the trailer. Returns the position after it."""
    import zlib

    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    crc = size_bytes = 0
    rest: BytesLike = b""
    while not inflater.eof:
        rest = inflater.unconsumed_tail
        if not rest:
            rest = data[pos : pos + INPUT_CHUNK_BYTES]
            pos += len(rest)
        try:
            part = inflater.decompress(rest, CHUNK_BYTES)
        except zlib.error as error:
            raise _fault(f"gzip: {error}", pos - len(rest)) from error
        if not rest and not part and not inflater.eof:
            raise _fault("gzip: stream is truncated", len(data))
        crc = zlib.crc32(part, crc)
        size_bytes += len(part)
        yield part
    pos -= len(inflater.unused_data)
    trailer = GZIP_TRAILER.unpack(_take(data, pos, GZIP_TRAILER.size, "gzip: trailer"))
    if trailer != (crc, size_bytes & 0xFFFF_FFFF):
        raise _fault("gzip: CRC-32 or size of the trailer does not match", pos)
    return pos + GZIP_TRAILER.size


# snappy


def _unsnap(data: memoryview, _magic: int, max_bytes: int) -> Iterator[bytes]:
    if len(data) < len(XERIAL_HEADER) or data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield _unsnap_block(data, 0, max_bytes)
        return
    pos = len(XERIAL_HEADER)  # its version is not checked, unlike that in a second header
    left_bytes = max_bytes
    while pos + INT32_BE.size <= len(data):
        # The first four bytes of the magic would be a negative length, so a second stream begins
        # here.
        if data[pos : pos + 4] == XERIAL_MAGIC[:4]:
            header = _take(data, pos, len(XERIAL_HEADER), "snappy: header")
            version = INT32_BE.unpack_from(header, len(XERIAL_MAGIC))[0]
            if header[: len(XERIAL_MAGIC)] == XERIAL_MAGIC and version < XERIAL_MIN_VERSION:
                raise _fault(f"snappy: version {version} of the framing", pos + len(XERIAL_MAGIC))
            pos += len(XERIAL_HEADER)
            continue
        chunk_bytes = INT32_BE.unpack_from(data, pos)[0]
        if chunk_bytes < 0:
            raise _fault(f"snappy: chunk of {chunk_bytes} bytes", pos)
        pos += INT32_BE.size
        part = _unsnap_block(_take(data, pos, chunk_bytes, "snappy: chunk"), pos, left_bytes)
        pos += chunk_bytes
        left_bytes -= len(part)
        yield part


def _unsnap_block(block: memoryview, pos: int, max_bytes: int) -> bytes:
    """Decompress one raw block. Errors are at `pos`."""
    from cramjam import snappy

    try:
        size_bytes = snappy.decompress_raw_len(block)
    except Exception as error:
        raise _fault(f"snappy: block: {error}", pos) from error
    if size_bytes > len(block) * SNAPPY_MAX_RATIO:
        raise _fault(f"snappy: block of {len(block)} bytes announces {size_bytes}", pos)
    _require_limit(size_bytes, max_bytes)
    try:
        return bytes(snappy.decompress_raw(block))
    except Exception as error:
        raise _fault(f"snappy: block: {error}", pos) from error


# lz4


def _unlz4(data: memoryview, magic: int, _max_bytes: int) -> Iterator[BytesLike]:
    return decompress_blocks(data, verify_header=magic != MAGIC_V0)


# zstd


def _unzstd(data: memoryview, _magic: int, _max_bytes: int) -> Iterator[bytes]:
    pos = 0
    while pos < len(data):
        magic = UINT32_LE.unpack(_take(data, pos, 4, "zstd: frame"))[0]
        if magic & 0xFFFF_FFF0 == ZSTD_SKIPPABLE_MAGIC:
            size_bytes = UINT32_LE.unpack(_take(data, pos + 4, 4, "zstd: skippable frame"))[0]
            pos += 8 + len(_take(data, pos + 8, size_bytes, "zstd: skippable frame"))
        elif magic == ZSTD_MAGIC:
            pos = yield from _unzstd_frame(data, pos)
        else:
            raise _fault("zstd: no frame", pos)


def _unzstd_frame(data: memoryview, pos: int) -> Generator[bytes, None, int]:
    """Decompress the frame at `pos`. Returns the position after it.

    The library gets one block at a time. A block yields at most 128 KiB, so that output is limited
    although the size of the whole is unknown.
    """
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW_BYTES)
    frame = decompressor.decompressobj()
    try:
        header_bytes = zstandard.frame_header_size(data[pos : pos + ZSTD_MAX_HEADER_BYTES])
        block_pos = pos + len(_take(data, pos, header_bytes, "zstd: frame header"))
        is_last = False
        while not is_last:
            block_header = int.from_bytes(_take(data, block_pos, 3, "zstd: block"), "little")
            is_last = bool(block_header & 1)
            is_run = block_header >> 1 & 3 == 1  # one byte, repeated
            block_bytes = 1 if is_run else block_header >> 3
            block_pos += 3 + len(_take(data, block_pos + 3, block_bytes, "zstd: block"))
            yield frame.decompress(data[pos:block_pos])
            pos = block_pos
        if not frame.eof:
            frame.decompress(_take(data, pos, 4, "zstd: content checksum"))
            pos += 4
    except zstandard.ZstdError as error:
        raise _fault(f"zstd: {error}", pos) from error
    return pos


def compress(codec: int, data: BytesLike, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress a body as a Kafka producer frames it. `magic` belongs to the batch or wrapper.

    Args:
        codec: see `Codec`.
        data: the records, or the inner entries of a wrapper.
        magic: 0 writes the lz4 header checksum that v0 readers expect.
        level: gzip 1..9, lz4 1..17, zstd -131072..22. None is Kafka's default. Snappy has none.

    Raises:
        UnsupportedError: codec 5-7, or zstd in v0 or v1.
        ValueError: the codec does not have this `level`.
    """
    framing = _framing_of(codec, magic)
    return bytes(data) if framing is None else framing.pack(data, magic, level)


def _require_level(level: int | None, low: int, high: int) -> None:
    if level is not None and not low <= level <= high:
        raise ValueError(f"level {level} is not in {low}..{high}")


def _compress_gzip(data: BytesLike, _magic: int, level: int | None) -> bytes:
    import zlib

    _require_level(level, 1, 9)
    deflater = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflater.compress(data) + deflater.flush()
    return GZIP_HEADER + body + GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFF_FFFF)


def _compress_snappy(data: BytesLike, _magic: int, _level: int | None) -> bytes:
    from cramjam import snappy

    parts = [XERIAL_HEADER]
    view = memoryview(data)
    for pos in range(0, len(view), XERIAL_CHUNK_BYTES):
        block = bytes(snappy.compress_raw(view[pos : pos + XERIAL_CHUNK_BYTES]))
        parts += (INT32_BE.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: BytesLike, magic: int, level: int | None) -> bytes:
    _require_level(level, 1, 17)
    return compress_blocks(data, level, hash_covers_magic=magic == MAGIC_V0)


def _compress_zstd(data: BytesLike, _magic: int, level: int | None) -> bytes:
    import zstandard

    _require_level(level, -131072, 22)
    compressor = zstandard.ZstdCompressor(
        level=ZSTD_LEVEL if level is None else level,
        write_content_size=False,
        write_checksum=False,
    )
    stream = compressor.compressobj()  # one-shot compression would shrink the window to the data
    return stream.compress(data) + stream.flush()


# All codecs but NONE. Their ids have no gaps, since the kernels compare with the highest id.
FRAMINGS: dict[int, Framing] = {
    Codec.GZIP: Framing(_gunzip, _compress_gzip),
    Codec.SNAPPY: Framing(_unsnap, _compress_snappy),
    Codec.LZ4: Framing(_unlz4, _compress_lz4),
    Codec.ZSTD: Framing(_unzstd, _compress_zstd, is_legacy=False),
}
MAX_CODEC = int(max(FRAMINGS))
MAX_LEGACY_CODEC = int(max(codec for codec, framing in FRAMINGS.items() if framing.is_legacy))
