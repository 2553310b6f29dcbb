"""Messages v0 and v1: the worked examples, the rules of wrappers, and real 0.10.2 logs."""

from __future__ import annotations

import re
import struct
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import (
    CorruptError,
    FormatError,
    TooLargeError,
    TruncatedError,
    UnsupportedError,
)
from storage.formats.compression import Codec, compress, decompress
from storage.formats.legacy_message import (
    LegacyRecord,
    Message,
    encode_message,
    header_of,
    inner_messages,
    message_crc_ok,
    parse_message,
    with_crc,
)
from storage.formats.record_batch import BatchHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = 1_700_000_000_000

HEX_F0 = bytes.fromhex(
    "00 00 00 00 00 00 00 05 00 00 00 10 1f ec d7 0a00 00 00 00 00 01 6b 00 00 00 01 76"
)
HEX_F1 = bytes.fromhex(
    "00 00 00 00 00 00 00 05 00 00 00 17 83 e9 91 c6"
    "01 00 00 00 01 8b cf e5 68 00 00 00 00 01 6b ff"
    "ff ff ff"
)
HEX_FI = bytes.fromhex(
    "00 00 00 00 00 00 00 00 00 00 00 17 42 b4 af 02"
    "01 00 00 00 01 8b cf e5 68 00 ff ff ff ff 00 00"
    "00 01 61 00 00 00 00 00 00 00 01 00 00 00 17 34"
    "7f 95 86 01 00 00 00 01 8b cf e5 68 01 ff ff ff"
    "ff 00 00 00 01 62"
)
HEX_FW = bytes.fromhex(
    "00 00 00 00 00 00 00 0b 00 00 00 50 13 db 3c b3"
    "01 01 00 00 01 8b cf e5 68 01 ff ff ff ff 00 00"
    "00 3a 1f 8b 08 00 00 00 00 00 00 ff 63 60 80 03"
    "71 a7 2d eb 99 18 81 0c c6 ee f3 4f 33 18 fe 03"
    "01 88 93 08 95 06 c9 88 9b d4 4f 6d 83 2b 61 84"
    "29 49 02 00 87 a5 1a 0e 46 00 00 00"
)
MESSAGE_F0 = Message(5, 0x1FECD70A, 0, 0, -1, b"k", b"v")
MESSAGE_F1 = Message(5, 0x83E991C6, 1, 0, T, b"k", None)
INNER_A = Message(0, 0x42B4AF02, 1, 0, T, None, b"a")
INNER_B = Message(1, 0x347F9586, 1, 0, T + 1, None, b"b")

messages = st.builds(
    Message,
    offset=st.integers(-(2**63), 2**63 - 1),
    crc=st.just(0),
    magic=st.integers(0, 1),
    attributes=st.integers(-128, 127),
    timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    key=st.none() | st.binary(max_size=5),
    value=st.none() | st.binary(max_size=5),
    tail=st.just(b"") | st.binary(max_size=2),
).map(
    lambda message: with_crc(
        message if message.magic else message._replace(timestamp_ms=-1)  # v0 has no timestamp
    )
)


def message(offset: int, *, magic: int = 1, timestamp_ms: int = T, value: bytes = b"v") -> Message:
    timestamp_ms = timestamp_ms if magic else -1
    return with_crc(Message(offset, 0, magic, 0, timestamp_ms, None, value))


def wrapper(
    offset: int,
    inner: list[Message] | bytes,
    *,
    magic: int = 1,
    codec: int = Codec.GZIP,
    attributes: int = 0,
) -> Message:
    entries = inner if isinstance(inner, bytes) else b"".join(map(encode_message, inner))
    value = compress(codec, entries, magic=magic)
    timestamp_ms = T + 1000 if magic else -1
    return with_crc(Message(offset, 0, magic, codec | attributes, timestamp_ms, None, value))


def corrupt(outer: Message, pos: int = 0, check_id: str = "BAT-17") -> None:
    with pytest.raises(CorruptError) as caught:
        inner_messages(outer)
    assert (caught.value.check_id, caught.value.pos) == (check_id, pos)


EXAMPLES = {"F0": (HEX_F0, MESSAGE_F0), "F1": (HEX_F1, MESSAGE_F1)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    data, expected = EXAMPLES[name]
    assert parse_message(b"abc" + data + b"d", 3) == expected
    assert encode_message(expected) == data
    assert with_crc(expected._replace(crc=1)) == expected
    assert message_crc_ok(b"abc" + data + b"d", 3, len(data))
    assert inner_messages(expected) == [
        LegacyRecord(
            5, expected.timestamp_ms, b"k", expected.value, expected.crc, True, expected.magic
        )
    ]


def test_example_of_a_wrapper() -> None:
    outer = parse_message(HEX_FW, 0)
    assert outer._replace(value=None) == Message(11, 0x13DB3CB3, 1, 1, T + 1, None, None)
    assert outer.value is not None
    assert decompress(outer.codec, outer.value, magic=1) == HEX_FI
    assert encode_message(outer) == HEX_FW
    assert message_crc_ok(HEX_FW, 0, len(HEX_FW))
    assert inner_messages(outer) == [
        LegacyRecord(10, T, None, b"a", 0x42B4AF02, True, 1),
        LegacyRecord(11, T + 1, None, b"b", 0x347F9586, True, 1),
    ]


def test_example_of_inner_entries() -> None:
    assert parse_message(HEX_FI, 0) == INNER_A
    assert parse_message(HEX_FI, 35) == INNER_B
    assert encode_message(INNER_A) + encode_message(INNER_B) == HEX_FI


def test_headers_for_scans() -> None:
    absent = {
        "partition_leader_epoch": -1,
        "last_offset_delta": 0,
        "base_timestamp_ms": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records_count": -1,
    }
    assert header_of(b"abc" + HEX_FW, 3) == BatchHeader(
        base_offset=11,
        batch_length=80,
        magic=1,
        crc=0x13DB3CB3,
        attributes=1,
        max_timestamp_ms=T + 1,
        **absent,
    )
    header = header_of(HEX_F0[:18], 0)
    assert (header.magic, header.max_timestamp_ms, header.batch_bytes) == (0, -1, len(HEX_F0))
    assert header_of(HEX_FW[:26], 0).last_offset == 11


@given(messages)
def test_round_trip(value: Message) -> None:
    data = encode_message(value)
    assert parse_message(data, 0) == value
    assert parse_message(b"x" + data + b"x", 1) == value
    assert parse_message(memoryview(data), 0) == parse_message(bytearray(data), 0) == value
    assert value.crc == zlib.crc32(data[16:])
    assert header_of(data, 0).batch_bytes == len(data)


@given(st.binary(max_size=60), st.integers(0, 65))
def test_any_bytes(buf: bytes, pos: int) -> None:
    check_any(buf, pos)


@given(messages, st.data())
def test_mutated_bytes(value: Message, data: st.DataObject) -> None:
    entry = bytearray(encode_message(value))
    pos = data.draw(st.integers(0, len(entry) - 1))
    entry[pos] ^= data.draw(st.integers(1, 255))
    check_any(bytes(entry), 0)
    size_kept = pos < 8 or pos >= 12
    assert message_crc_ok(entry, 0, len(entry)) == (pos < 12)
    if size_kept:
        try:
            found = parse_message(entry, 0)
        except FormatError:
            return
        assert found.crc_ok == (pos < 8)


def check_any(buf: bytes, pos: int) -> None:
    error = None
    try:
        value = parse_message(buf, pos)
    except FormatError as caught:
        error = caught
    if error is not None:
        assert error.check_id in {"BAT-2", "BAT-17"}
        assert pos <= error.pos <= max(pos, len(buf))
        return
    end_pos = pos + header_of(buf, pos).batch_bytes
    encoded = encode_message(value)
    assert len(encoded) == end_pos - pos
    if encoded != buf[pos:end_pos]:  # a null length other than -1
        assert value.key is None or value.value is None
    assert value.crc_ok == message_crc_ok(buf, pos, end_pos - pos)
    try:
        inner_messages(value, max_bytes=10_000)
    except FormatError as caught:
        error = caught
    assert error is None or error.check_id in {"BAT-2", "BAT-17"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_cut_short(name: str) -> None:
    data, _ = EXAMPLES[name]
    for size_bytes in range(len(data)):
        with pytest.raises(TruncatedError) as caught:
            parse_message(b"abc" + data[:size_bytes], 3)
        error = caught.value
        assert (error.check_id, error.pos, error.available_bytes) == ("BAT-2", 3, size_bytes)
        assert not message_crc_ok(data[:size_bytes], 0, len(data))
    header_bytes = 18 if name == "F0" else 26
    for size_bytes in range(header_bytes):
        with pytest.raises(TruncatedError):
            header_of(data[:size_bytes], 0)
    seventeen = bytes(12) + struct.pack(">I", zlib.crc32(b"\x01")) + b"\x01"
    assert not message_crc_ok(seventeen, 0, 17)


@pytest.mark.parametrize("magic", [-1, 2, 3, 127])
def test_other_magics_are_refused(magic: int) -> None:
    data = HEX_F1[:16] + struct.pack("b", magic) + HEX_F1[17:]
    for parse in (parse_message, header_of):
        with pytest.raises(UnsupportedError) as caught:
            parse(data, 0)
        assert (caught.value.check_id, caught.value.pos) == ("BAT-2", 16)
    with pytest.raises(ValueError, match="magic"):
        encode_message(MESSAGE_F1._replace(magic=magic))


@pytest.mark.parametrize(("name", "least"), [("F0", 14), ("F1", 22)])
def test_size_below_the_minimum(name: str, least: int) -> None:
    data, _ = EXAMPLES[name]
    for size in (least - 1, 0, -1):
        with pytest.raises(CorruptError) as caught:
            parse_message(data[:8] + struct.pack(">i", size) + data[12:], 0)
        assert (caught.value.check_id, caught.value.pos) == ("BAT-2", 8)
    minimal = encode_message(with_crc(EXAMPLES[name][1]._replace(key=None, value=None)))
    assert len(minimal) == 12 + least
    assert parse_message(minimal, 0).key is None


@pytest.mark.parametrize(
    ("length_pos", "length", "pos"), [(18, 7, 22), (18, 5, 27), (23, 2, 27), (18, 2**31 - 1, 22)]
)
def test_lengths_must_fit(length_pos: int, length: int, pos: int) -> None:
    data = HEX_F0[:length_pos] + struct.pack(">i", length) + HEX_F0[length_pos + 4 :]
    with pytest.raises(CorruptError) as caught:
        parse_message(data, 0)
    assert (caught.value.check_id, caught.value.pos) == ("BAT-17", pos)


def test_any_negative_length_is_null_and_noticed_by_the_crc() -> None:
    data = HEX_F1[:-4] + b"\xff\xff\xfe\xff"
    found = parse_message(data, 0)
    assert found == MESSAGE_F1._replace(crc_ok=False)
    assert [record.crc_ok for record in inner_messages(found)] == [False]


def test_bytes_after_the_value_are_kept() -> None:
    padded = with_crc(MESSAGE_F0._replace(tail=b"??"))
    data = encode_message(padded)
    assert len(data) == len(HEX_F0) + 2
    assert parse_message(data, 0) == padded
    assert padded.crc != MESSAGE_F0.crc


# Wrappers

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def offsets(outer: Message) -> list[int]:
    return [record.offset for record in inner_messages(outer)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_round_trip_of_wrappers(codec: Codec, magic: int) -> None:
    inner = [message(number, magic=magic, timestamp_ms=T + number) for number in range(3)]
    outer = wrapper(2, inner, magic=magic, codec=codec)
    assert parse_message(encode_message(outer), 0) == outer
    found = inner_messages(outer)
    assert [record.offset for record in found] == [0, 1, 2]
    assert [record.crc for record in found] == [one.crc for one in inner]
    assert all(record.crc_ok and record.magic == magic for record in found)


def test_v0_offsets_are_absolute() -> None:
    inner = [message(offset, magic=0) for offset in (40, 7, 45)]
    assert offsets(wrapper(45, inner, magic=0)) == [40, 7, 45]
    assert offsets(wrapper(3, inner, magic=0)) == [40, 7, 45]


def test_v1_offsets_are_relative_to_the_last() -> None:
    assert offsets(wrapper(102, [message(number) for number in range(3)])) == [100, 101, 102]
    compacted = [message(offset) for offset in (1, 4, 6)]
    assert offsets(wrapper(106, compacted)) == [101, 104, 106]
    assert offsets(wrapper(6, compacted)) == [1, 4, 6]
    same = [message(0), message(0)]  # librdkafka, before a broker assigned offsets
    assert offsets(wrapper(9, same)) == [9, 9]


def test_v1_wrapper_at_offset_zero() -> None:
    assert offsets(wrapper(0, [message(number) for number in range(3)])) == [0, 1, 2]
    assert offsets(wrapper(0, [message(5)])) == [5]


@pytest.mark.parametrize("offset", [1, 4, -1, -(2**63)])
def test_v1_wrapper_below_its_last_inner_offset(offset: int) -> None:
    corrupt(wrapper(offset, [message(0), message(5)]))


def test_v1_offsets_wrap_as_in_java() -> None:
    found = offsets(wrapper(2**63 - 1, [message(2), message(1)]))
    assert found == [-(2**63), 2**63 - 1]


def test_timestamps() -> None:
    inner = [message(0, timestamp_ms=T + 7), message(1, timestamp_ms=-1)]
    created = inner_messages(wrapper(1, inner))
    assert [record.timestamp_ms for record in created] == [T + 7, -1]
    appended = inner_messages(wrapper(1, inner, attributes=0x08))
    assert [record.timestamp_ms for record in appended] == [T + 1000, T + 1000]
    ignored = [message(0)._replace(attributes=0x08)]
    assert inner_messages(wrapper(0, ignored))[0].timestamp_ms == T


def test_a_plain_message_keeps_its_own_timestamp() -> None:
    for attributes in (0x00, 0x08):
        plain = with_crc(MESSAGE_F1._replace(attributes=attributes))
        assert inner_messages(plain)[0].timestamp_ms == T
        assert plain.is_log_append_time == bool(attributes)
    assert not MESSAGE_F0._replace(attributes=0x08).is_log_append_time


def test_inner_magic_may_differ() -> None:
    inner = [message(0, magic=0), message(1, magic=1)]
    appended = inner_messages(wrapper(1, inner, attributes=0x08))
    assert [(one.magic, one.timestamp_ms) for one in appended] == [(0, -1), (1, T + 1000)]
    older = inner_messages(wrapper(1, inner, magic=0, attributes=0x08))
    assert [(one.magic, one.timestamp_ms, one.offset) for one in older] == [(0, -1, 0), (1, T, 1)]
    unknown = bytearray(encode_message(message(0)))
    unknown[16] = 3
    with pytest.raises(UnsupportedError):
        inner_messages(wrapper(0, bytes(unknown)))


def test_nested_compression() -> None:
    first = message(0)
    corrupt(wrapper(1, [first, wrapper(1, [message(0)])]), pos=len(encode_message(first)))


def test_wrappers_without_messages() -> None:
    corrupt(wrapper(5, b""))
    corrupt(wrapper(5, encode_message(message(0))[:-1]))
    corrupt(wrapper(5, [message(0)])._replace(value=None))


def test_inner_crcs_are_checked_one_by_one() -> None:
    bad = message(1)._replace(crc=7)
    found = inner_messages(wrapper(2, [message(0), bad, message(2)]))
    assert [(record.crc_ok, record.crc == 7) for record in found] == [
        (True, False),
        (False, True),
        (True, False),
    ]


def test_the_wrappers_own_crc_is_not_looked_at() -> None:
    assert offsets(wrapper(1, [message(0), message(1)])._replace(crc=7)) == [0, 1]


def test_a_cut_last_entry_ends_the_set() -> None:
    whole = encode_message(message(0))
    last = encode_message(message(1))
    for size_bytes in range(len(last)):
        assert offsets(wrapper(0, whole + last[:size_bytes])) == [0]


@pytest.mark.parametrize("size", [13, 0, -1])
def test_inner_size_below_the_minimum(size: int) -> None:
    first = encode_message(message(0))
    corrupt(wrapper(1, first + bytes(8) + struct.pack(">i", size)), pos=len(first) + 8)


def test_inner_frame_faults_are_located() -> None:
    first = encode_message(message(0))
    short_v1 = bytearray(encode_message(message(1, magic=0, value=b"")))
    short_v1[16] = 1
    corrupt(wrapper(1, first + bytes(short_v1)), pos=len(first) + 8, check_id="BAT-2")


def test_values_that_do_not_decompress() -> None:
    corrupt(with_crc(Message(5, 0, 1, Codec.GZIP, T, None, b"no gzip")))
    cut = wrapper(5, [message(0)])
    assert cut.value is not None
    with pytest.raises(CorruptError) as caught:
        inner_messages(cut._replace(value=cut.value[:-1]))
    assert caught.value.check_id == "BAT-17"


@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_codecs_that_are_not_of_the_old_formats(codec: int) -> None:
    for magic in (0, 1):
        with pytest.raises(UnsupportedError) as caught:
            inner_messages(Message(5, 0, magic, codec, T, None, b"value"))
        assert caught.value.check_id == "BAT-17"


def test_a_bomb_is_bounded() -> None:
    bomb = wrapper(0, [message(0, value=bytes(1_000_000))])
    with pytest.raises(TooLargeError):
        inner_messages(bomb, max_bytes=100_000)


# Real logs

DUMPED = re.compile(
    r"^\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) isValid: (\w+) crc: (\d+)",
    re.MULTILINE,
)


def entries_of(data: bytes) -> Iterator[bytes]:
    pos = 0
    while pos < len(data):
        end_pos = pos + 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
        yield data[pos:end_pos]
        pos = end_pos


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_golden_messages(golden: Callable[[str], Path], magic: int, codec: Codec) -> None:
    name = f"v{magic}-{codec.label}-0/00000000000000000000.log"
    found = []
    for data in entries_of((golden("kafka-0.10.2-legacy") / name).read_bytes()):
        outer = parse_message(data, 0)
        assert (outer.magic, outer.codec) == (magic, codec)
        assert outer.crc_ok
        assert encode_message(outer) == data
        assert with_crc(outer) == outer
        if codec is not Codec.NONE:
            assert outer.value is not None
            entries = decompress(codec, outer.value, magic=magic)
            for entry in entries_of(entries):
                assert encode_message(parse_message(entry, 0)) == entry
        inner = inner_messages(outer)
        assert inner[-1].offset == outer.offset
        found += inner
    dump = (golden("kafka-0.10.2-legacy.dump") / name).with_suffix(".log.txt").read_text("utf-8")
    assert DUMPED.findall(dump) == [
        (
            str(record.offset),
            str(record.timestamp_ms),
            str(-1 if record.key is None else len(record.key)),
            str(-1 if record.value is None else len(record.value)),
            str(record.crc_ok).lower(),
            str(record.crc),
        )
        for record in found
    ]
    assert len(found) == 60
