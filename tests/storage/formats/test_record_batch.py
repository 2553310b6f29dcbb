"""Record batches v2: the worked examples, sequence arithmetic, and every golden batch."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.checksum import crc32c
from storage.errors import FormatError, TruncatedError, UnsupportedError
from storage.formats.compression import decompress
from storage.formats.record import encode_record, parse_records
from storage.formats.record_batch import (
    CRC_START_POS,
    HEADER,
    HEADER_BYTES,
    MIN_BATCH_LENGTH,
    BatchHeader,
    compute_crc,
    decrement_sequence,
    encode_batch,
    encode_header,
    increment_sequence,
    parse_header,
    record_sequence,
    record_timestamp_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = 1_700_000_000_000

HEX_A = bytes.fromhex(
    "00 00 00 00 00 00 00 64 00 00 00 49 00 00 00 07"
    "02 ae cb e7 cd 00 00 00 00 00 01 00 00 01 8b cf"
    "e5 68 00 00 00 01 8b cf e5 68 05 00 00 00 00 00"
    "00 03 e8 00 00 00 00 00 00 00 00 00 02 1c 00 00"
    "00 04 6b 31 04 76 31 02 02 68 02 78 10 00 0a 02"
    "04 6b 32 01 00"
)
HEX_C = bytes.fromhex(
    "00 00 00 00 00 00 00 64 00 00 00 3d 00 00 00 07"
    "02 d9 3e 15 c8 00 40 00 00 00 01 00 00 01 8b d5"
    "0b c4 00 00 00 01 8b cf e5 68 05 00 00 00 00 00"
    "00 03 e8 00 00 00 00 00 00 00 00 00 01 16 00 f5"
    "ef b2 52 02 04 6b 32 01 00"
)
HEX_D = bytes.fromhex(
    "00 00 00 00 00 00 00 64 00 00 00 31 00 00 00 07"
    "02 37 a6 11 ba 00 00 00 00 00 01 ff ff ff ff ff"
    "ff ff ff 00 00 01 8b cf e5 68 05 00 00 00 00 00"
    "00 03 e8 00 00 00 00 00 00 00 00 00 00"
)
HEADER_A = BatchHeader(
    base_offset=100,
    batch_length=73,
    partition_leader_epoch=7,
    magic=2,
    crc=2932598733,
    attributes=0,
    last_offset_delta=1,
    base_timestamp_ms=T,
    max_timestamp_ms=T + 5,
    producer_id=1000,
    producer_epoch=0,
    base_sequence=0,
    records_count=2,
)

headers = st.builds(
    BatchHeader,
    base_offset=st.integers(-(2**63), 2**63 - 1),
    batch_length=st.integers(-(2**31), 2**31 - 1),
    partition_leader_epoch=st.integers(-(2**31), 2**31 - 1),
    magic=st.integers(2, 127),
    crc=st.integers(0, 2**32 - 1),
    attributes=st.integers(-(2**15), 2**15 - 1),
    last_offset_delta=st.integers(-(2**31), 2**31 - 1),
    base_timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    max_timestamp_ms=st.integers(-(2**63), 2**63 - 1),
    producer_id=st.integers(-(2**63), 2**63 - 1),
    producer_epoch=st.integers(-(2**15), 2**15 - 1),
    base_sequence=st.integers(-(2**31), 2**31 - 1),
    records_count=st.integers(-(2**31), 2**31 - 1),
)


def test_layout() -> None:
    assert HEADER.size == HEADER_BYTES == 61
    assert MIN_BATCH_LENGTH == 49


EXAMPLES = {
    "A": (HEX_A, HEADER_A),
    "C": (
        HEX_C,
        HEADER_A._replace(
            batch_length=61,
            crc=0xD93E15C8,
            attributes=0x40,
            base_timestamp_ms=T + 86_400_000,
            records_count=1,
        ),
    ),
    "D": (
        HEX_D,
        HEADER_A._replace(batch_length=49, crc=0x37A611BA, base_timestamp_ms=-1, records_count=0),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    data, header = EXAMPLES[name]
    assert parse_header(b"abc" + data, 3) == header
    assert encode_header(header) == data[:HEADER_BYTES]
    assert compute_crc(data) == header.crc
    assert header.batch_bytes == len(data)
    assert encode_batch(header._replace(crc=0, batch_length=0), data[HEADER_BYTES:]) == data


def test_derived_values() -> None:
    header = parse_header(HEX_C, 0)
    assert (header.last_offset, header.last_sequence) == (101, 1)
    assert header.delete_horizon_ms == T + 86_400_000
    assert HEADER_A.delete_horizon_ms is None
    (record,) = parse_records(HEX_C[HEADER_BYTES:], header.records_count)
    assert record.timestamp_delta_ms == -86_399_995
    assert record_timestamp_ms(header, record.timestamp_delta_ms) == T + 5
    assert record_sequence(header, record.offset_delta) == 1


@pytest.mark.parametrize(
    ("attributes", "codec", "flags"),
    [
        (0x00, 0, (False, False, False)),
        (0x04, 4, (False, False, False)),
        (0x0B, 3, (True, False, False)),
        (0x10, 0, (False, True, False)),
        (0x20, 0, (False, False, True)),
        (0x30, 0, (False, True, True)),
        (0x7F, 7, (True, True, True)),
        (0x80, 0, (False, False, False)),
    ],
)
def test_attributes(attributes: int, codec: int, flags: tuple[bool, bool, bool]) -> None:
    header = HEADER_A._replace(attributes=attributes)
    assert header.codec == codec
    assert (header.is_log_append_time, header.is_transactional, header.is_control) == flags


def test_log_append_time_is_the_time_of_all_records() -> None:
    header = HEADER_A._replace(attributes=0x08)
    assert record_timestamp_ms(header, -5) == header.max_timestamp_ms


def test_timestamps_wrap_as_in_java() -> None:
    latest = HEADER_A._replace(base_timestamp_ms=2**63 - 1)
    assert record_timestamp_ms(latest, 0) == 2**63 - 1
    assert record_timestamp_ms(latest, 1) == -(2**63)
    assert record_timestamp_ms(HEADER_A._replace(base_timestamp_ms=-(2**63)), -1) == 2**63 - 1


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [
        (0, 0, 0),
        (5, 7, 12),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 3, 1),
        (2**31 - 1, 2**31 - 1, 2**31 - 2),
    ],
)
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    assert increment_sequence(base, delta) == last
    assert decrement_sequence(last, delta) == base
    header = HEADER_A._replace(base_sequence=base, last_offset_delta=delta)
    assert header.last_sequence == record_sequence(header, delta) == last


def test_no_sequence_stays_none() -> None:
    header = HEADER_A._replace(base_sequence=-1, last_offset_delta=9)
    assert header.last_sequence == record_sequence(header, 4) == -1


@given(headers)
def test_header_round_trip(header: BatchHeader) -> None:
    assert parse_header(encode_header(header), 0) == header


@given(st.binary(max_size=100), st.integers(0, 110))
def test_any_bytes(buf: bytes, pos: int) -> None:
    error = None
    try:
        header = parse_header(buf, pos)
    except FormatError as caught:
        error = caught
    if error is not None:
        assert error.check_id == "BAT-2"
        return
    assert encode_header(header) == buf[pos : pos + HEADER_BYTES]
    assert parse_header(memoryview(buf), pos) == header


@given(headers, st.binary(max_size=50))
def test_batch_round_trip(header: BatchHeader, body: bytes) -> None:
    batch = encode_batch(header, body)
    found = parse_header(batch, 0)
    assert found == header._replace(batch_length=49 + len(body), crc=compute_crc(batch))
    assert found.crc == crc32c(batch[CRC_START_POS:])
    assert batch[HEADER_BYTES:] == body


def test_what_the_crc_covers() -> None:
    for pos in range(len(HEX_A)):
        flipped = bytearray(HEX_A)
        flipped[pos] ^= 0x10
        assert (compute_crc(flipped) == HEADER_A.crc) == (pos < CRC_START_POS)


def test_cut_short() -> None:
    for size_bytes in range(HEADER_BYTES):
        with pytest.raises(TruncatedError) as caught:
            parse_header(b"abc" + HEX_A[:size_bytes], 3)
        assert (caught.value.pos, caught.value.available_bytes) == (3, size_bytes)
        with pytest.raises(TruncatedError):
            compute_crc(HEX_A[:size_bytes])


@pytest.mark.parametrize("magic", [-128, -1, 0, 1])
def test_other_layouts_are_refused(magic: int) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_header(b"abc" + encode_header(HEADER_A._replace(magic=magic)), 3)
    assert (caught.value.check_id, caught.value.pos) == ("BAT-2", 19)


def test_values_outside_of_their_type_are_not_encoded() -> None:
    with pytest.raises(struct.error):
        encode_header(HEADER_A._replace(base_sequence=2**31))


def golden_batches(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every whole batch of every segment below `root`, found by lengths alone."""
    for path in sorted([*root.rglob("*.log"), *root.rglob("*.checkpoint")]):
        data = path.read_bytes()
        pos = 0
        while pos + 17 < len(data):
            end_pos = pos + 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
            if end_pos > len(data):
                break
            yield f"{path} at {pos}", data[pos:end_pos]
            pos = end_pos


@pytest.mark.parametrize(
    ("archive", "at_least"), [("kafka-4.3.1", 5000), ("kafka-4.3.1-three-brokers", 100)]
)
def test_golden_batches(golden: Callable[[str], Path], archive: str, at_least: int) -> None:
    batch_count = 0
    codecs = set()
    for where, batch in golden_batches(golden(archive)):
        header = parse_header(batch, 0)
        assert header.magic == 2, where
        assert encode_header(header) == batch[:HEADER_BYTES], where
        assert compute_crc(batch) == header.crc, where
        body = batch[HEADER_BYTES:]
        assert encode_batch(header, body) == batch, where
        plain = decompress(header.codec, body) if header.records_count else body
        records = list(parse_records(plain, header.records_count))
        assert b"".join(map(encode_record, records)) == plain, where
        if records and not header.is_log_append_time:
            times = [record_timestamp_ms(header, record.timestamp_delta_ms) for record in records]
            assert max(times) == header.max_timestamp_ms, where
        deltas = [record.offset_delta for record in records]
        assert deltas == sorted(set(deltas)), where
        assert not deltas or 0 <= deltas[0] <= deltas[-1] <= header.last_offset_delta, where
        batch_count += 1
        codecs.add(header.codec)
    assert batch_count > at_least
    if archive == "kafka-4.3.1":
        assert codecs == {0, 1, 2, 3, 4}
