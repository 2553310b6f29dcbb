"""LZ4 frames: optional parts as the reference implementation writes them, and every fault."""

from __future__ import annotations

import random
import struct

import lz4.block
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError
from storage.formats.compression import compress_blocks, decompress_blocks, xxh32

KAFKA = bytes.fromhex("04224d18604082050000806b61666b6100000000")  # "kafka", stored
NOISE = random.Random(4).randbytes(70_000)


def decompress(frame: bytes, *, verify_header: bool = True) -> bytes:
    return b"".join(decompress_blocks(memoryview(frame), verify_header=verify_header))


def with_header(flags: int, descriptor: int, content_size: bytes, rest: bytes) -> bytes:
    """A frame with a right header checksum, whatever its flags say."""
    fields = bytes([flags, descriptor]) + content_size
    return KAFKA[:4] + fields + bytes([xxh32(fields) >> 8 & 0xFF]) + rest


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Known answers of the xxHash project's own test program and documentation.
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32(text: bytes, value: int) -> None:
    assert xxh32(text) == value


@pytest.mark.parametrize("size_bytes", [1, 15, 16, 17, 31, 33, 1000])
def test_xxh32_is_what_the_library_writes(size_bytes: int) -> None:
    text = NOISE[:size_bytes]
    frame = lz4.frame.compress(text, content_checksum=True)
    assert struct.unpack("<I", frame[-4:])[0] == xxh32(text)


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("options", range(8))
def test_optional_parts(block_size: int, options: int) -> None:
    for text in (b"", b"kafka", b"abc" * 50_000, NOISE):
        frame = lz4.frame.compress(
            text,
            block_size=block_size,
            block_linked=False,
            block_checksum=bool(options & 1),
            content_checksum=bool(options & 2),
            store_size=bool(options & 4),
        )
        assert decompress(frame) == text
        assert decompress(frame + b"after the end mark") == text


@given(st.binary(max_size=300), st.sampled_from([None, 1, 9, 17]), st.booleans())
def test_written_frames(text: bytes, level: int | None, v0: bool) -> None:
    frame = compress_blocks(text, level, hash_covers_magic=v0)
    assert frame[:7].hex() == ("04224d1860401a" if v0 else "04224d18604082")
    assert decompress(frame, verify_header=not v0) == text
    patched = frame[:6] + b"\x82" + frame[7:]
    assert lz4.frame.decompress(patched) == text


def test_blocks_are_independent_and_stored_when_incompressible() -> None:
    frame = compress_blocks(NOISE, None, hash_covers_magic=False)
    sizes = struct.unpack_from("<I", frame, 7)[0], struct.unpack_from("<I", frame, 11 + 65536)[0]
    assert [size - 2**31 for size in sizes] == [65536, 70_000 - 65536]
    assert decompress(frame) == NOISE
    packed = compress_blocks(bytes(200_000), None, hash_covers_magic=False)
    assert len(packed) < 1000
    assert decompress(packed) == bytes(200_000)


def test_content_size_and_checksum_are_not_verified() -> None:
    frame = with_header(0x6C, 0x40, struct.pack("<Q", 999), KAFKA[7:] + b"\x01\x02\x03\x04")
    assert decompress(frame) == b"kafka"


def test_a_stored_block_of_no_bytes_is_the_end_mark() -> None:
    assert decompress(KAFKA[:16] + bytes.fromhex("00000080") + b"more") == b"kafka"


BLOCK_WITH_CHECKSUM = KAFKA[7:16] + struct.pack("<I", xxh32(b"kafka"))
FAULTS = {
    "empty": (b"", 0),
    "magic": (b"\x05" + KAFKA[1:], 0),
    "version 0": (with_header(0x20, 0x40, b"", KAFKA[7:]), 4),
    "version 2": (with_header(0xA0, 0x40, b"", KAFKA[7:]), 4),
    "reserved flag": (with_header(0x62, 0x40, b"", KAFKA[7:]), 4),
    "dictionary flag": (with_header(0x61, 0x40, b"", KAFKA[7:]), 4),
    "dependent blocks": (with_header(0x40, 0x40, b"", KAFKA[7:]), 4),
    "block size 3": (with_header(0x60, 0x30, b"", KAFKA[7:]), 5),
    "reserved low bits": (with_header(0x60, 0x41, b"", KAFKA[7:]), 5),
    "reserved high bit": (with_header(0x60, 0xC0, b"", KAFKA[7:]), 5),
    "header checksum": (KAFKA[:6] + b"\x83" + KAFKA[7:], 6),
    "content size cut": (with_header(0x68, 0x40, b"", b"")[:10], 6),
    "header cut": (KAFKA[:6], 6),
    "no end mark": (KAFKA[:16], 16),
    "end mark cut": (KAFKA[:-1], 16),
    "block cut": (KAFKA[:14], 11),
    "block above the maximum": (KAFKA[:7] + struct.pack("<I", 65537) + bytes(65541), 7),
    "compressed block": (KAFKA[:7] + b"\x02\x00\x00\x00\xff\xff" + bytes(4), 11),
    "block checksum": (
        with_header(0x70, 0x40, b"", BLOCK_WITH_CHECKSUM[:-1] + b"?" + bytes(4)),
        16,
    ),
    "block checksum cut": (with_header(0x70, 0x40, b"", BLOCK_WITH_CHECKSUM[:-1]), 16),
    "content checksum cut": (with_header(0x64, 0x40, b"", KAFKA[7:] + b"\x01\x02\x03"), 20),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    frame, pos = FAULTS[name]
    with pytest.raises(CorruptError) as caught:
        decompress(frame)
    assert (caught.value.check_id, caught.value.pos) == ("BAT-7", pos)


def test_the_frames_of_the_faults_are_right_without_them() -> None:
    assert decompress(with_header(0x60, 0x40, b"", KAFKA[7:])) == b"kafka"
    checked = with_header(0x70, 0x40, b"", BLOCK_WITH_CHECKSUM + bytes(4))
    assert decompress(checked) == b"kafka"


def test_block_of_the_maximum() -> None:
    block = lz4.block.compress(bytes(65_537), store_size=False)
    frame = KAFKA[:7] + struct.pack("<I", len(block)) + block + bytes(4)
    with pytest.raises(CorruptError):  # decompresses to a byte more than the descriptor allows
        decompress(frame)
