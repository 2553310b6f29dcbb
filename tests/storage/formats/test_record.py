"""Records v2: the worked examples, every fault, and what kafka-dump-log says of real ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError
from storage.formats.compression import decompress
from storage.formats.record import (
    Record,
    RecordHeader,
    encode_record,
    parse_record,
    parse_records,
)
from storage.formats.record_batch import parse_header, record_sequence, record_timestamp_ms
from storage.formats.varint import encode_varint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST = Record(0, 0, 0, b"k1", b"v1", (RecordHeader(b"h", b"x"),))
SECOND = Record(0, 5, 1, b"k2", None, ())
FIRST_BYTES = bytes.fromhex("1c 00 00 00 04 6b 31 04 76 31 02 02 68 02 78")
SECOND_BYTES = bytes.fromhex("10 00 0a 02 04 6b 32 01 00")
BODY = FIRST_BYTES + SECOND_BYTES

nullable = st.none() | st.binary(max_size=5) | st.binary(min_size=60, max_size=70)
records = st.builds(
    Record,
    attributes=st.integers(-128, 127),
    timestamp_delta_ms=st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70),
    offset_delta=st.integers(-(2**31), 2**31 - 1) | st.integers(0, 70),
    key=nullable,
    value=nullable,
    headers=st.lists(
        st.builds(RecordHeader, key=st.binary(max_size=70), value=nullable), max_size=3
    ).map(tuple),
)


def broken(body: bytes, count: int, pos: int) -> list[Record]:
    """The body's error is at `pos`; returns the records read before it."""
    found, error = [], None
    try:
        found.extend(parse_records(body, count))
    except CorruptError as caught:
        error = caught
    assert error is not None
    assert (error.check_id, error.pos) == ("BAT-7", pos)
    return found


def test_examples() -> None:
    assert parse_record(BODY, 0, len(BODY)) == (FIRST, 15)
    assert parse_record(BODY, 15, len(BODY)) == (SECOND, len(BODY))
    assert list(parse_records(BODY, 2)) == [FIRST, SECOND]
    assert encode_record(FIRST) == FIRST_BYTES
    assert encode_record(SECOND) == SECOND_BYTES


@given(st.lists(records, max_size=4))
def test_round_trip(values: list[Record]) -> None:
    body = b"".join(map(encode_record, values))
    assert list(parse_records(body, len(values))) == values
    assert list(parse_records(memoryview(body), len(values))) == values


@given(records, st.binary(max_size=3), st.binary(max_size=3))
def test_one_record_within_a_buffer(record: Record, before: bytes, after: bytes) -> None:
    data = before + encode_record(record)
    for buf in (data + after, bytearray(data + after), memoryview(data + after)):
        assert parse_record(buf, len(before), len(data)) == (record, len(data))
        with pytest.raises(CorruptError) as caught:
            parse_record(buf, len(before), len(data) - 1)
        assert (caught.value.check_id, caught.value.pos) == ("BAT-7", len(before))


@given(st.binary(max_size=60), st.integers(-1, 4))
def test_any_bytes(body: bytes, count: int) -> None:
    check_any(body, count)


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_mutated_bytes(values: list[Record], data: st.DataObject) -> None:
    body = bytearray(b"".join(map(encode_record, values)))
    pos = data.draw(st.integers(0, len(body) - 1))
    body[pos] = data.draw(st.integers(0, 255))
    check_any(bytes(body), len(values))


def check_any(body: bytes, count: int) -> None:
    found, error = [], None
    try:
        found.extend(parse_records(body, count))
    except FormatError as caught:
        error = caught
    if error is not None:
        assert error.check_id == ("BAT-7" if count >= 0 else "BAT-4")
        assert 0 <= error.pos <= len(body)
        return
    assert len(found) == count
    if count:
        # Only varints longer than needed may come out shorter.
        assert len(b"".join(map(encode_record, found))) <= len(body)


def test_null_and_empty_are_distinct() -> None:
    empty = Record(0, 0, 0, b"", b"", (RecordHeader(b"", b""),))
    null = Record(0, 0, 0, None, None, (RecordHeader(b"", None),))
    assert encode_record(empty).hex() == "10000000000002" + "0000"
    assert encode_record(null).hex() == "10000000010102" + "0001"
    assert list(parse_records(encode_record(empty), 1)) == [empty]
    assert list(parse_records(encode_record(null), 1)) == [null]


def test_any_negative_length_is_null() -> None:
    body = bytes.fromhex("10 00 00 00 03 05 02 00 07")  # key -2, value -3, header value -4
    assert list(parse_records(body, 1)) == [Record(0, 0, 0, None, None, (RecordHeader(b"", None),))]


def test_longer_varints_are_read() -> None:
    body = bytes.fromhex("9c 80 00  00 80 00 82 00  82 80 80 80 00 6b  81 00  80 00")
    body = encode_varint(len(body) - 3) + body[3:]
    assert list(parse_records(body, 1)) == [Record(0, 0, 1, b"k", None, ())]


def test_header_keys_are_kept_as_bytes() -> None:
    header = RecordHeader(b"\xff\xfe", b"x")
    record = Record(0, 0, 0, None, None, (header, header))
    assert list(parse_records(encode_record(record), 1)) == [record]
    assert header.key_text == "\ufffd\ufffd"
    assert RecordHeader("ключ".encode(), None).key_text == "ключ"


def test_a_body_of_no_records_is_not_looked_at() -> None:
    assert list(parse_records(b"anything", 0)) == []


def test_negative_count() -> None:
    with pytest.raises(CorruptError) as caught:
        list(parse_records(BODY, -1))
    assert (caught.value.check_id, caught.value.pos) == ("BAT-4", 0)


def test_bytes_after_the_last_record() -> None:
    read = parse_records(BODY + b"\0", 2)
    assert next(read) == FIRST
    with pytest.raises(CorruptError) as caught:  # and not the second record, as in Kafka
        next(read)
    assert (caught.value.check_id, caught.value.pos) == ("BAT-7", len(BODY))
    broken(BODY, 1, 15)


def test_fewer_records_than_counted() -> None:
    broken(BODY, 3, len(BODY))
    broken(b"", 1, 0)


def test_every_cut_is_noticed() -> None:
    for size_bytes in range(len(BODY)):
        broken(BODY[:size_bytes], 2, 0 if size_bytes < 15 else 15)


FAULTS = {
    "no length": "",
    "zero length": "00",
    "negative length": "01",
    "length beyond the body": "12 00 0a 02 04 6b 32 01 00",
    "length too short": "0e 00 0a 02 04 6b 32 01 00",
    "length varint too long": "90 80 80 80 80 00 00 0a 02 04 6b 32 01 00",
    "timestamp delta too long": "20 00 80 80 80 80 80 80 80 80 80 80 00 02 01 01 00",
    "key beyond the record": "10 00 0a 02 7e 6b 32 01 00",
    "value beyond the record": "10 00 0a 02 04 6b 32 02 00",
    "record ends before the headers": "0e 00 0a 02 04 6b 32 01",
    "negative header count": "10 00 0a 02 04 6b 32 01 01",
    "header count above what is left": "10 00 0a 02 04 6b 32 01 02",
    "huge header count": "18 00 0a 02 04 6b 32 01 fe ff ff ff 0f",
    "negative header key length": "14 00 0a 02 04 6b 32 01 02 01 01",
    "header key beyond the record": "14 00 0a 02 04 6b 32 01 02 04 6b",
    "header value beyond the record": "16 00 0a 02 04 6b 32 01 02 00 04 6b",
    "header without value": "12 00 0a 02 04 6b 32 01 02 00",
    "bytes after the headers": "12 00 0a 02 04 6b 32 01 00 00",
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    record = bytes.fromhex(FAULTS[name])
    assert broken(record, 1, 0) == []
    assert broken(FIRST_BYTES + record, 2, 15) == [FIRST]


def test_what_does_not_fit_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="is not in"):
        encode_record(FIRST._replace(offset_delta=2**31))
    with pytest.raises(ValueError, match="is not in"):
        encode_record(FIRST._replace(timestamp_delta_ms=2**63))


DUMPED = re.compile(
    r"^\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+)"
    r" headerKeys: \[(.*?)\]",
    re.MULTILINE,
)


def test_golden_records_are_as_kafka_dumps_them(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1") / "clean"
    dump = golden("kafka-4.3.1.dump") / "clean"
    record_count = 0
    for path in sorted(root.glob("[!_]*-*/*.log")):
        expected = DUMPED.findall(
            (dump / path.relative_to(root)).with_suffix(".log.txt").read_text("utf-8", "replace")
        )
        data = path.read_bytes()
        found = []
        pos = 0
        while pos < len(data):
            header = parse_header(data, pos)
            body = b""
            if header.records_count:
                body = decompress(header.codec, data[pos + 61 : pos + header.batch_bytes])
            found += [
                (
                    str(header.base_offset + record.offset_delta),
                    str(record_timestamp_ms(header, record.timestamp_delta_ms)),
                    str(-1 if record.key is None else len(record.key)),
                    str(-1 if record.value is None else len(record.value)),
                    str(record_sequence(header, record.offset_delta)),
                    ",".join(one.key_text for one in record.headers),
                )
                for record in parse_records(body, header.records_count)
            ]
            pos += header.batch_bytes
        assert found == expected, path
        record_count += len(found)
    assert record_count > 2000
