"""Logs made by hypothesis: any records, batches of every kind, and what damage does to them.

Only for comparing two of our own paths with each other; what Kafka writes is in tests/golden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from storage.formats.compression import compress
from storage.formats.record import Record, RecordHeader, encode_record
from storage.formats.record_batch import BatchHeader, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable

CONTROL = 0x20
CODECS = (0, 0, 0, 0, 0, 1, 2, 3, 4)
FLAGS = (0, 0, 0, 0x08, 0x10, 0x30, 0x20, 0x40, 0x48)

lengths = st.sampled_from([0, 1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 127, 128, 200, 8191, 8192, 9000])
texts = st.sampled_from(["a", "k1", "ключ", "値", "é", "\n", "|", "\x00", "\ufffd", "😀"])
blobs = st.one_of(
    st.just(b""),
    st.builds(lambda text, times: (text * times).encode(), texts, st.integers(0, 40)),
    st.binary(max_size=12),  # mostly not UTF-8
    st.builds(lambda length: b"x" * length, lengths),
)
nullable = st.one_of(st.none(), blobs)
headers = st.lists(st.builds(RecordHeader, key=blobs, value=nullable), max_size=4).map(tuple)
markers = st.one_of(
    st.builds(
        lambda kind, epoch: (b"\0\0\0" + bytes([kind]), b"\0\0" + epoch.to_bytes(4, "big")),
        st.sampled_from([0, 1]),
        st.integers(0, 2**32 - 1),
    ),
    st.sampled_from(
        [
            (b"\0\0\0\7", b""),  # of no known type
            (b"\0\0", b""),
            (None, None),
            (b"\0\0\0\1", b"\0\0\0\0"),
            (b"\xff\xff\0\1", bytes(6)),
            (b"\0\5\0\1xx", b"\0\3" + bytes(9)),
        ]
    ),
)


@st.composite
def batches(draw: Callable[..., object], base_offset: int) -> tuple[bytes, int]:
    """One batch as bytes, and the offset behind it."""
    count = draw(st.sampled_from([0, 1, 1, 1, 2, 3, 5, 9]))
    attributes = draw(st.sampled_from(CODECS)) | draw(st.sampled_from(FLAGS))
    wide = draw(st.booleans())
    records = []
    delta = -1
    for _ in range(count):
        delta += draw(st.sampled_from([1, 1, 1, 2, 70, 9000]))
        key, value = draw(markers) if attributes & CONTROL else (draw(nullable), draw(nullable))
        times = st.integers(-(2**63), 2**63 - 1) if wide else st.integers(0, 300)
        records.append(Record(0, draw(times), delta, key, value, draw(headers)))
    body = b"".join(map(encode_record, records))
    numbers = st.sampled_from([-5, -1, 0, 1, 9, 10, 99_999, 2**31 - 3])
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=draw(st.sampled_from([-1, 0, 0, 0, 3])),
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=max(delta, 0),
        base_timestamp_ms=draw(st.sampled_from([-1, 0, 1_700_000_000_000, -(2**63), 2**63 - 1])),
        max_timestamp_ms=draw(st.sampled_from([-1, 7, 1_700_000_000_000])),
        producer_id=draw(st.sampled_from([-1, 0, 1000, 2**63 - 1])),
        producer_epoch=draw(st.sampled_from([-1, 0, 32767])),
        base_sequence=draw(numbers),
        records_count=count,
    )
    return encode_batch(header, compress(attributes & 7, body)), base_offset + max(delta, 0) + 1


@st.composite
def logs(draw: Callable[..., object], max_batches: int = 12) -> bytes:
    """A healthy segment with base offset 0."""
    parts = []
    offset = draw(st.sampled_from([0, 0, 5, 2**31 - 100_000]))
    for _ in range(draw(st.integers(0, max_batches))):
        batch, offset = draw(batches(offset))
        parts.append(batch)
        offset += draw(st.sampled_from([0, 0, 0, 3]))
    return b"".join(parts)


@st.composite
def damaged_logs(draw: Callable[..., object]) -> bytes:
    """A segment to which something happened, or nothing."""
    data = bytearray(draw(logs()))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        pos = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(["flip", "set", "cut", "drop", "zeros", "insert"]))
        if kind == "flip":
            data[pos] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set":
            data[pos] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[pos:]
        elif kind == "drop":
            del data[pos : pos + draw(st.integers(1, 80))]
        elif kind == "zeros":
            data += bytes(draw(st.integers(1, 100)))
        else:
            data[pos:pos] = draw(st.binary(min_size=1, max_size=20))
    return bytes(data)


def with_right_checksums(data: bytes) -> bytes:
    """Give each batch of a plain walk its right checksum, so that what is in it is looked at."""
    from storage.formats.record_batch import CRC, CRC_POS, compute_crc

    out = bytearray(data)
    pos = 0
    while pos + 61 <= len(out):
        length = int.from_bytes(out[pos + 8 : pos + 12], "big", signed=True)
        end = pos + 12 + length
        if length < 49 or end > len(out):
            break
        CRC.pack_into(out, pos + CRC_POS, compute_crc(out[pos:end]))
        pos = end
    return bytes(out)


def many_batches(count: int) -> bytes:
    """Return healthy batches of one record, 70 bytes each, from offset 0 on."""
    body = encode_record(Record(0, 0, 0, None, b"xx", ()))
    assert len(body) == 9
    return b"".join(
        encode_batch(BatchHeader(offset, 0, 0, 2, 0, 0, 0, 5, 5, -1, -1, -1, 1), body)
        for offset in range(count)
    )
