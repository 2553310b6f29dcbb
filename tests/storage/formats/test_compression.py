"""Codecs: the worked examples, what other writers produce, what Kafka's readers tolerate."""

from __future__ import annotations

import gzip
import io
import re
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard
from cramjam import snappy
from hypothesis import example, given
from hypothesis import strategies as st

from eoctl.commands.produce import Compression
from storage.dirs.topic_settings import SETTING_VALUES, Choices
from storage.errors import CorruptError, FormatError, TooLargeError, UnsupportedError
from storage.formats import compression
from storage.formats.compression import CHUNK_BYTES, Codec, compress, decompress, is_known

ROOT = Path(__file__).parents[3]

GZIP = bytes.fromhex("1f8b08000000000000ffcb4e4ccb4e04001775bc5b05000000")
SNAPPY = bytes.fromhex("82534e4150505900000000010000000100000007") + bytes.fromhex("05106b61666b61")
LZ4 = bytes.fromhex("04224d18604082050000806b61666b6100000000")
LZ4_V0 = bytes.fromhex("04224d1860401a050000806b61666b6100000000")  # a worked example
ZSTD = bytes.fromhex("28b52ffd00582900006b61666b61")
KAFKA = {Codec.NONE: b"kafka", Codec.GZIP: GZIP, Codec.SNAPPY: SNAPPY, Codec.LZ4: LZ4}
KAFKA[Codec.ZSTD] = ZSTD
FRAMED = [codec for codec in Codec if codec is not Codec.NONE]
every_codec = pytest.mark.parametrize("codec", FRAMED, ids=lambda codec: codec.label)

SNAPPY_HEADER = SNAPPY[:16]
SNAPPY_CHUNK = SNAPPY[16:]
SNAPPY_BLOCK = SNAPPY[20:]


def corrupt(codec: Codec, data: bytes, pos: int, magic: int = 2) -> None:
    with pytest.raises(CorruptError) as caught:
        decompress(codec, data, magic=magic)
    error = caught.value
    assert (error.check_id, error.pos) == ("BAT-7" if magic == 2 else "BAT-17", pos)
    assert error.message.startswith(codec.label)


def test_labels() -> None:
    assert [codec.label for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", Codec)
def test_examples(codec: Codec) -> None:
    assert decompress(codec, KAFKA[codec]) == b"kafka"
    assert decompress(codec, memoryview(KAFKA[codec])) == b"kafka"
    assert decompress(codec, bytearray(KAFKA[codec])) == b"kafka"


@pytest.mark.parametrize("codec", Codec)
def test_examples_are_written(codec: Codec) -> None:
    # All but the deflate stream is laid down by the framing for so short a text.
    assert compress(codec, b"kafka") == KAFKA[codec]


def test_v0_lz4_header_checksum() -> None:
    assert compress(Codec.LZ4, b"kafka", magic=0) == LZ4_V0
    assert compress(Codec.LZ4, b"kafka", magic=1) == LZ4
    assert decompress(Codec.LZ4, LZ4_V0, magic=0) == b"kafka"
    assert decompress(Codec.LZ4, LZ4, magic=0) == b"kafka"
    corrupt(Codec.LZ4, LZ4_V0, 6, magic=1)
    corrupt(Codec.LZ4, LZ4_V0, 6, magic=2)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7, 8])
def test_unknown_codecs(codec: int) -> None:
    for call in (compress, decompress):
        with pytest.raises(UnsupportedError) as caught:
            call(codec, b"kafka")
        assert caught.value.check_id == "BAT-7"


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_not_of_the_old_formats(magic: int) -> None:
    for call in (compress, decompress):
        with pytest.raises(UnsupportedError) as caught:
            call(Codec.ZSTD, ZSTD, magic=magic)
        assert caught.value.check_id == "BAT-17"


@every_codec
@given(
    text=st.binary(max_size=200)
    | st.builds(bytes.__mul__, st.binary(max_size=9), st.integers(0, 20_000)),
    magic=st.sampled_from([0, 1, 2]),
)
@example(text=bytes(65_536), magic=2)
@example(text=bytes(65_537), magic=2)
def test_round_trip(codec: Codec, text: bytes, magic: int) -> None:
    if codec is Codec.ZSTD:
        magic = 2
    data = compress(codec, text, magic=magic)
    assert decompress(codec, data, magic=magic, max_bytes=len(text)) == text
    assert compress(codec, memoryview(text), magic=magic) == data


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("codec", "levels", "wrong"),
    [
        (Codec.GZIP, [1, 6, 9], [0, 10]),
        (Codec.LZ4, [1, 9, 17], [0, 18]),
        (Codec.ZSTD, [-131072, -1, 1, 22], [-131073, 23]),
    ],
)
def test_levels(codec: Codec, levels: list[int], wrong: list[int]) -> None:
    text = b"a level changes the bytes, not the text " * 50
    for level in levels:
        assert decompress(codec, compress(codec, text, level=level)) == text
    for level in wrong:
        with pytest.raises(ValueError, match="level"):
            compress(codec, text, level=level)


@every_codec
def test_every_cut_is_noticed(codec: Codec) -> None:
    text = b"".join(b"%d " % number for number in range(300))
    data = compress(codec, text)
    tolerated = {16, 17, 18, 19} if codec is Codec.SNAPPY else {0} if codec is Codec.ZSTD else set()
    for size_bytes in range(len(data)):
        if size_bytes in tolerated:  # nothing begins there: an empty body, and no records in it
            assert decompress(codec, data[:size_bytes]) == b""
            continue
        with pytest.raises(CorruptError):
            decompress(codec, data[:size_bytes])


@every_codec
@given(data=st.data())
def test_mutated_bytes(codec: Codec, data: st.DataObject) -> None:
    good = bytearray(compress(codec, data.draw(st.binary(max_size=60)) * 3))
    pos = data.draw(st.integers(0, len(good) - 1))
    good[pos] = data.draw(st.integers(0, 255))
    any_bytes_give_a_value_or_an_error(codec, bytes(good))


@every_codec
@given(data=st.binary(max_size=80), with_start=st.booleans())
def test_any_bytes(codec: Codec, data: bytes, with_start: bool) -> None:
    start_bytes = {Codec.GZIP: 10, Codec.SNAPPY: 16, Codec.LZ4: 7, Codec.ZSTD: 4}[codec]
    any_bytes_give_a_value_or_an_error(codec, KAFKA[codec][:start_bytes] * with_start + data)


def any_bytes_give_a_value_or_an_error(codec: Codec, data: bytes) -> None:
    error = None
    try:
        text = decompress(codec, data, max_bytes=100_000)
    except FormatError as caught:
        error = caught
    if error is not None:
        assert error.check_id == "BAT-7"
        assert 0 <= error.pos <= len(data)
        return
    assert len(text) <= 100_000


# Bombs


@every_codec
def test_limit_is_exact(codec: Codec) -> None:
    text = bytes(1_000_000)
    data = compress(codec, text)
    assert decompress(codec, data, max_bytes=len(text)) == text
    with pytest.raises(TooLargeError) as caught:
        decompress(codec, data, max_bytes=len(text) - 1)
    assert caught.value.check_id == "BAT-7"


def test_limit_in_the_old_formats() -> None:
    with pytest.raises(TooLargeError) as caught:
        decompress(Codec.LZ4, LZ4_V0, magic=0, max_bytes=4)
    assert caught.value.check_id == "BAT-17"


@every_codec
def test_a_bomb_stays_within_the_limit(codec: Codec) -> None:
    data = compress(codec, bytes(30_000_000))
    max_bytes = 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            decompress(codec, data, max_bytes=max_bytes)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # BytesIO asks for an eighth more than it holds.
    assert peak_bytes < max_bytes * 9 / 8 + 3 * CHUNK_BYTES


def test_a_snappy_block_that_announces_too_much_is_not_allocated() -> None:
    block = b"\xff\xff\xff\xff\x0f" + SNAPPY_BLOCK[1:]  # 4 GiB from six bytes
    corrupt(Codec.SNAPPY, block, 0)
    corrupt(Codec.SNAPPY, SNAPPY_HEADER + struct.pack(">i", len(block)) + block, 20)


def test_snappy_blocks_beyond_the_limit_are_not_decompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def decompress_raw(block: memoryview) -> object:
        made.append(snappy_decompress_raw(block))
        return made[-1]

    snappy_decompress_raw = snappy.decompress_raw
    monkeypatch.setattr(snappy, "decompress_raw", decompress_raw)
    for data, made_bytes in [
        (bytes(snappy.compress_raw(bytes(50_001))), []),
        (compress(Codec.SNAPPY, bytes(50_001)), [32_768]),  # two chunks
    ]:
        made.clear()
        with pytest.raises(TooLargeError):
            decompress(Codec.SNAPPY, data, max_bytes=50_000)
        assert [len(part) for part in made] == made_bytes


def test_uncompressed_data_has_no_limit() -> None:
    assert decompress(Codec.NONE, b"kafka", max_bytes=1) == b"kafka"


# gzip


def test_gzip_of_other_writers() -> None:
    text = b"kafka" * 100
    named = io.BytesIO()
    with gzip.GzipFile("a name", "wb", fileobj=named, mtime=5) as file:
        file.write(text)
    assert decompress(Codec.GZIP, named.getvalue()) == text


def gzip_header(*, crc_error: int = 0) -> bytes:
    """A header with all optional fields: extra, name, comment and its own checksum."""
    header = bytes([0x1F, 0x8B, 8, 2 | 4 | 8 | 16, 0, 0, 0, 0, 0, 255])
    header += struct.pack("<H", 3) + b"ext" + b"name\0" + b"comment\0"
    return header + struct.pack("<H", zlib.crc32(header) & 0xFFFF ^ crc_error)


def test_gzip_optional_header_fields() -> None:
    assert decompress(Codec.GZIP, gzip_header() + GZIP[10:]) == b"kafka"
    assert decompress(Codec.GZIP, GZIP[:3] + b"\xe0" + GZIP[4:]) == b"kafka"  # as Java's
    corrupt(Codec.GZIP, gzip_header(crc_error=1) + GZIP[10:], 0)
    for size_bytes in range(len(gzip_header())):
        corrupt(Codec.GZIP, gzip_header()[:size_bytes], 0)


def test_gzip_members_and_what_follows() -> None:
    assert decompress(Codec.GZIP, GZIP + GZIP) == b"kafka" * 2
    assert decompress(Codec.GZIP, GZIP + gzip_header() + GZIP[10:]) == b"kafka" * 2
    assert decompress(Codec.GZIP, GZIP + b"no member, but long enough for one") == b"kafka"
    assert decompress(Codec.GZIP, GZIP + GZIP[:18]) == b"kafka"  # too short for Java to look
    corrupt(Codec.GZIP, GZIP + GZIP[:19], len(GZIP) + 17)


def test_gzip_checksum_and_size() -> None:
    for pos in range(len(GZIP) - 8, len(GZIP)):
        bad = bytearray(GZIP)
        bad[pos] ^= 1
        corrupt(Codec.GZIP, bytes(bad), len(GZIP) - 8)


def test_gzip_larger_than_the_chunks() -> None:
    text = b"".join(b"%d," % (number * number) for number in range(200_000))
    assert decompress(Codec.GZIP, gzip.compress(text)) == text


# snappy


def test_snappy_raw_block() -> None:
    assert decompress(Codec.SNAPPY, SNAPPY_BLOCK) == b"kafka"
    text = b"librdkafka" * 20_000
    assert decompress(Codec.SNAPPY, bytes(snappy.compress_raw(text))) == text


def test_snappy_streams_and_chunks() -> None:
    assert decompress(Codec.SNAPPY, SNAPPY + SNAPPY) == b"kafka" * 2
    assert decompress(Codec.SNAPPY, SNAPPY + SNAPPY_CHUNK * 3) == b"kafka" * 4
    assert decompress(Codec.SNAPPY, SNAPPY + SNAPPY_HEADER) == b"kafka"
    chunks = compress(Codec.SNAPPY, bytes(100_000))
    sizes = []
    pos = 16
    while pos < len(chunks):
        size_bytes = int.from_bytes(chunks[pos : pos + 4], "big")
        sizes.append(snappy.decompress_raw_len(chunks[pos + 4 : pos + 4 + size_bytes]))
        pos += 4 + size_bytes
    assert sizes == [32768, 32768, 32768, 1696]


def test_snappy_ends() -> None:
    for tail in (b"", b"\0", b"\0\0", b"\x82SN"):  # snappy-java drops less than a length
        assert decompress(Codec.SNAPPY, SNAPPY + tail) == b"kafka"
    corrupt(Codec.SNAPPY, b"", 0)
    corrupt(Codec.SNAPPY, SNAPPY + b"\0\0\0\0", len(SNAPPY) + 4)  # an empty chunk is no block
    corrupt(Codec.SNAPPY, SNAPPY + b"\0\0\0\x05ab", len(SNAPPY) + 4)
    corrupt(Codec.SNAPPY, SNAPPY + b"\x7f\xff\xff\xffab", len(SNAPPY) + 4)
    corrupt(Codec.SNAPPY, SNAPPY + b"\xff\xff\xff\xffab", len(SNAPPY))
    corrupt(Codec.SNAPPY, SNAPPY + SNAPPY_HEADER[:15], len(SNAPPY))


def test_snappy_versions() -> None:
    old = SNAPPY_HEADER[:8] + bytes(4) + SNAPPY_HEADER[12:]
    assert decompress(Codec.SNAPPY, old + SNAPPY_CHUNK) == b"kafka"
    corrupt(Codec.SNAPPY, SNAPPY + old + SNAPPY_CHUNK, len(SNAPPY) + 8)
    newer = SNAPPY_HEADER[:8] + struct.pack(">ii", 9, 9)
    assert decompress(Codec.SNAPPY, SNAPPY + newer + SNAPPY_CHUNK) == b"kafka" * 2


def test_snappy_without_the_whole_magic_is_a_block() -> None:
    corrupt(Codec.SNAPPY, SNAPPY[:4] + b"????" + SNAPPY[8:], 0)
    corrupt(Codec.SNAPPY, SNAPPY[:15], 0)


# zstd


def skippable(size_bytes: int, data: bytes) -> bytes:
    return struct.pack("<II", 0x184D2A53, size_bytes) + data


def test_zstd_of_other_writers() -> None:
    for text in (b"", b"kafka", bytes(300_000), b"".join(b"%d" % n for n in range(90_000))):
        for has_size in (False, True):
            compressor = zstandard.ZstdCompressor(
                level=7, write_content_size=has_size, write_checksum=True
            )
            assert decompress(Codec.ZSTD, compressor.compress(text)) == text


def test_zstd_frames_and_what_follows() -> None:
    assert decompress(Codec.ZSTD, b"") == b""
    assert decompress(Codec.ZSTD, ZSTD + ZSTD) == b"kafka" * 2
    assert decompress(Codec.ZSTD, skippable(3, b"abc") + ZSTD + skippable(0, b"")) == b"kafka"
    corrupt(Codec.ZSTD, ZSTD + b"kafka", len(ZSTD))
    corrupt(Codec.ZSTD, ZSTD + b"\x28", len(ZSTD))
    corrupt(Codec.ZSTD, ZSTD + skippable(4, b"abc"), len(ZSTD) + 8)
    corrupt(Codec.ZSTD, ZSTD + skippable(4, b"")[:7], len(ZSTD) + 4)


def test_zstd_checksum_and_size_of_the_content() -> None:
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(b"kafka" * 40)
    corrupt(Codec.ZSTD, checked[:-1] + bytes([checked[-1] ^ 1]), len(checked) - 4)
    # One byte content size 6, one raw block of "kafka".
    corrupt(Codec.ZSTD, bytes.fromhex("28b52ffd 20 06 290000") + b"kafka", 0)
    assert decompress(Codec.ZSTD, bytes.fromhex("28b52ffd 20 05 290000") + b"kafka") == b"kafka"
    corrupt(Codec.ZSTD, bytes.fromhex("28b52ffd 20 08 010000"), 0)  # 8, and an empty block


@pytest.mark.parametrize(("window_log", "is_read"), [(27, True), (28, False), (31, False)])
def test_zstd_window_is_bounded(window_log: int, is_read: bool) -> None:
    frame = ZSTD[:5] + bytes([(window_log - 10) << 3]) + ZSTD[6:]
    if is_read:
        assert decompress(Codec.ZSTD, frame) == b"kafka"
    else:
        with pytest.raises(CorruptError):
            decompress(Codec.ZSTD, frame)


def test_libraries_are_loaded_when_needed() -> None:
    program = (
        "import sys; import storage.formats.compression as c; c.decompress(0, b'')\n"
        "print([m for m in ('lz4', 'zstandard', 'cramjam') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout.strip() == b"[]"


def test_a_codec_without_framing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not taken for another one."""
    monkeypatch.delitem(compression.FRAMINGS, Codec.ZSTD)
    assert not is_known(Codec.ZSTD, 2)
    with pytest.raises(UnsupportedError):
        decompress(Codec.ZSTD, ZSTD)
    with pytest.raises(UnsupportedError):
        compress(Codec.ZSTD, b"kafka")


def test_all_tables_have_the_same_codecs() -> None:
    """The kernels compare with the highest id; the command line and the settings say the names."""
    assert [*Codec] == [*range(compression.MAX_CODEC + 1)]
    assert {Codec.NONE, *compression.FRAMINGS} == {*Codec}
    for magic, highest in ((0, compression.MAX_LEGACY_CODEC), (2, compression.MAX_CODEC)):
        assert [each for each in range(8) if is_known(each, magic)] == [*range(highest + 1)]
    labels = [each.label for each in Codec]
    assert [*Compression] == labels
    setting = SETTING_VALUES["compression.type"]
    assert isinstance(setting, Choices)
    assert {*setting.words} - {"producer"} == {*labels, "uncompressed"} - {"none"}
    source = (ROOT / "native/src/bodies.rs").read_text()
    (names,) = re.findall(r"CODEC_NAMES: .* = \[(.*)\];", source)
    assert re.findall(r'b"(\w+)"', names) == labels
