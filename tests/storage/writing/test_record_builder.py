"""The batch builder: what it writes parses back, and its fast encoder is the definition's twin."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.formats.compression import Codec, decompress
from storage.formats.record import Record, RecordHeader, encode_record, parse_records
from storage.formats.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    compute_crc,
    parse_header,
    record_timestamp_ms,
)
from storage.writing.record_builder import BatchBuilder, ProducerIdentity, encode_fields
from tests.drawn import examples
from tests.made_logs import headers, nullable

deltas = st.one_of(st.integers(0, 9000), st.integers(-(2**40), 2**40))


def parsed(batch: bytes) -> tuple[BatchHeader, list[Record]]:
    header = parse_header(batch, 0)
    assert header.batch_bytes == len(batch)
    assert compute_crc(batch) == header.crc
    body = decompress(header.codec, batch[HEADER_BYTES:])
    return header, list(parse_records(body, header.records_count))


@given(
    delta_ms=deltas, offset=st.integers(0, 2**31 - 1), key=nullable, value=nullable, more=headers
)
@settings(max_examples=examples(200))
def test_fields_are_encoded_as_the_format_does(
    delta_ms: int, offset: int, key: bytes | None, value: bytes | None, more: tuple
) -> None:
    wanted = encode_record(Record(0, delta_ms, offset, key, value, more))
    assert encode_fields(delta_ms, offset, key, value, more) == wanted


@pytest.mark.parametrize("length", [63, 64, 8190, 8191, 8192, 8193, 1 << 20])
def test_lengths_around_the_table(length: int) -> None:
    for key, value in [(b"k" * length, None), (None, b"v" * length)]:
        wanted = encode_record(Record(0, 0, 0, key, value, ()))
        assert encode_fields(0, 0, key, value) == wanted


records = st.lists(st.tuples(nullable, nullable, st.integers(-5, 300), headers), max_size=40)


@given(
    made=records,
    codec=st.sampled_from(list(Codec)),
    batch_bytes=st.sampled_from([1, 100, 500, 20_000]),
    batch_records=st.sampled_from([1, 3, 1000]),
)
@settings(max_examples=examples(120))
def test_batches_hold_all_records_in_order(
    made: list, codec: Codec, batch_bytes: int, batch_records: int
) -> None:
    builder = BatchBuilder(codec=codec, batch_bytes=batch_bytes, batch_records=batch_records)
    batches, sequence = [], 7
    for key, value, time_ms, more in made:
        if not builder.add(key, value, time_ms, more):
            count = len(builder)
            batches.append(builder.build(ProducerIdentity(5, 2, sequence)))
            sequence += count
            assert len(builder) == 0
            assert builder.add(key, value, time_ms, more)
    if len(builder):
        batches.append(builder.build(ProducerIdentity(5, 2, sequence)))
    found, sequence = [], 7
    for batch in batches:
        header, inner = parsed(batch)
        assert (header.base_offset, header.partition_leader_epoch, header.magic) == (0, -1, 2)
        assert header.attributes == codec
        assert header.records_count == len(inner) == header.last_offset_delta + 1
        assert header.records_count <= batch_records
        assert [each.offset_delta for each in inner] == list(range(len(inner)))
        assert (header.producer_id, header.producer_epoch) == (5, 2)
        assert header.base_sequence == sequence
        sequence += len(inner)
        plain_bytes = HEADER_BYTES + sum(len(encode_record(each)) for each in inner)
        assert plain_bytes <= batch_bytes or len(inner) == 1
        times = [record_timestamp_ms(header, each.timestamp_delta_ms) for each in inner]
        assert header.max_timestamp_ms == max(times)
        assert header.base_timestamp_ms == times[0]
        found += [
            (each.key, each.value, time_ms, each.headers)
            for each, time_ms in zip(inner, times, strict=True)
        ]
    assert found == made


def test_a_batch_is_full_only_when_the_next_record_does_not_fit() -> None:
    size = len(encode_fields(0, 0, None, b"12345"))
    builder = BatchBuilder(batch_bytes=HEADER_BYTES + 3 * size)
    assert [builder.add(None, b"12345", 0) for _ in range(4)] == [True, True, True, False]
    assert len(builder.build()) == HEADER_BYTES + 3 * size


@given(
    sizes=st.lists(st.sampled_from([0, 1, 57, 58, 59, 63, 64, 300, 8191, 8192, 9000]), max_size=60),
    repeat=st.sampled_from([1, 1, 5, 200]),
    times_ms=st.lists(st.sampled_from([100, 100, 99, 300]), min_size=1, max_size=4),
    batch_bytes=st.sampled_from([1, 500, 16_384, 1 << 20]),
    batch_records=st.sampled_from([1, 3, 64, 65, 10**6]),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=5),
)
@settings(max_examples=examples(150), deadline=None)
@example([1] * 60, 200, [100], 1 << 20, 10**6, [400])  # offset deltas beyond the tables
@example([9000, 1, 9000], 1, [100], 500, 10**6, [2])  # records that are larger than a batch
def test_many_values_are_added_as_one_by_one(
    sizes: list, repeat: int, times_ms: list, batch_bytes: int, batch_records: int, cuts: list
) -> None:
    values = [b"%d" % n + b"x" * size for n, size in enumerate(sizes * repeat)]
    slow = BatchBuilder(batch_bytes=batch_bytes, batch_records=batch_records)
    fast = BatchBuilder(batch_bytes=batch_bytes, batch_records=batch_records)
    wanted, found = [], []
    start = 0
    for cut, time_ms in zip(cycle(cuts), cycle(times_ms), strict=False):
        end = min(len(values), start + cut)
        for value in values[start:end]:
            if not slow.add(None, value, time_ms):
                wanted.append(slow.build())
                assert slow.add(None, value, time_ms)
        while True:
            start = fast.add_values(values, start, end, time_ms)
            if start == end:
                break
            found.append(fast.build())
        assert len(fast) == len(slow)
        if end == len(values):
            break
    wanted += [slow.build()] if len(slow) else []
    found += [fast.build()] if len(fast) else []
    assert found == wanted


def test_without_a_producer_id_there_is_none_of_its_fields() -> None:
    builder = BatchBuilder()
    builder.add(b"k", b"v", 1000, (RecordHeader(b"h", None),))
    header, (record,) = parsed(builder.build())
    assert header[9:12] == (-1, -1, -1)
    assert record == Record(0, 0, 0, b"k", b"v", (RecordHeader(b"h", None),))


def test_a_transaction_is_marked() -> None:
    builder = BatchBuilder(codec=Codec.LZ4)
    builder.add(None, b"v", 1000)
    assert parse_header(builder.build(is_transactional=True), 0).is_transactional


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        BatchBuilder().build()
