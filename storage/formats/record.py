"""Record v2: the content of a record batch v2, `records_count` times, without gaps.

    order type     field               unit    meaning
        1 varint   length              bytes   of what follows this field
        2 int8     attributes                  unused, 0
        3 varlong  timestamp_delta_ms  ms      timestamp = the batch's base_timestamp_ms + this
        4 varint   offset_delta        offset  offset = the batch's base_offset + this
        5 varint   key_length          bytes   negative: null key
        6 bytes    key
        7 varint   value_length        bytes   negative: null value (a tombstone)
        8 bytes    value
        9 varint   header count
       10 a header: varint key_length (>= 0), key (UTF-8), varint value_length (< 0: null), value

All lengths are zig-zag varints (see `varint`), unlike lengths in generated messages.

A body is valid if and only if these conditions hold (BAT-7):

- The fields of each record end exactly at its length.
- A header count is >= 0 and not above the bytes left in the record. Header key lengths are >= 0.
- The last record ends exactly where the body ends.

A body without records is not read. The batch's checksum covers all of it (as compressed). A checker
verifies order and range of the offset deltas (BAT-8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError
from storage.formats.java_text import kafka_text
from storage.formats.varint import (
    BytesLike,
    encode_varint,
    encode_varlong,
    parse_varint,
    parse_varlong,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK_ID = "BAT-7"
COUNT_CHECK_ID = "BAT-4"

NULL_LENGTH = b"\x01"  # varint -1


class RecordHeader(NamedTuple):
    """A header of a record. Keys may repeat. The key is bytes, valid UTF-8 or not."""

    key: bytes
    value: bytes | None

    @property
    def key_text(self) -> str:
        """The key as text. Bytes that are not UTF-8 become U+FFFD."""
        return kafka_text(self.key)


class Record(NamedTuple):
    """One record as it is on disk, with time and offset relative to the batch."""

    attributes: int
    timestamp_delta_ms: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]


def parse_record(buf: BytesLike, pos: int, end_pos: int) -> tuple[Record, int]:
    """Read the record at `pos` that must end at or before `end_pos`. Returns (record, next_pos).

    Raises:
        CorruptError: BAT-7, at the record's first byte (Kafka's DefaultRecord).
    """
    if type(buf) is bytes:
        return _parse_record(buf, pos, min(end_pos, len(buf)))
    data = bytes(memoryview(buf)[pos:end_pos])
    try:
        record, next_pos = _parse_record(data, 0, len(data))
    except FormatError as error:
        error.pos += pos
        raise
    return record, pos + next_pos


def parse_records(body: BytesLike, count: int) -> Iterator[Record]:
    """Read the `count` records of a decompressed body, one at a time.

    As in Kafka's DefaultRecordBatch, a body without records is not read. If bytes are left over,
    the error replaces the last record.

    Raises:
        CorruptError: BAT-7 (positions are in the decompressed body), BAT-4 for a negative count.
    """
    if count < 0:
        raise CorruptError(
            "negative number of records",
            check_id=COUNT_CHECK_ID,
            pos=0,
            expected=">= 0",
            found=str(count),
        )
    data = bytes(body)
    end_pos = len(data)
    pos = 0
    left_count = count
    while left_count:
        record, pos = _parse_record(data, pos, end_pos)
        left_count -= 1
        if not left_count and pos != end_pos:
            raise CorruptError(
                f"bytes are left after the last of {count} records",
                check_id=CHECK_ID,
                pos=pos,
                expected="0 bytes",
                found=f"{end_pos - pos} bytes",
            )
        yield record


def _parse_record(data: bytes, pos: int, end_pos: int) -> tuple[Record, int]:
    """Read one record. Every error is a CorruptError at its first byte."""
    start_pos = pos
    try:
        return _parse_fields(data, pos, end_pos)
    except (IndexError, FormatError) as error:
        reason = error.message if isinstance(error, FormatError) else "it is truncated"
        raise CorruptError(
            f"record does not parse: {reason}", check_id=CHECK_ID, pos=start_pos
        ) from error


def _parse_fields(data: bytes, pos: int, end_pos: int) -> tuple[Record, int]:
    """Read one record. Raises IndexError if `data` ends first, FormatError for any other fault.

    Most varints have one byte. That case is inlined, because a function call would cost more than
    its work. Fields may run past the record's end, but not past `data`. The last check finds that.
    """
    length = data[pos]
    pos += 1
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
    else:
        length, pos = parse_varint(data, pos - 1)
    record_end_pos = pos + length
    if length < 0 or record_end_pos > end_pos:
        raise _fault(f"length {length} with {end_pos - pos} bytes left", pos)

    attributes = data[pos]
    timestamp_delta_ms = data[pos + 1]
    pos += 2
    if timestamp_delta_ms < 0x80:
        timestamp_delta_ms = (timestamp_delta_ms >> 1) ^ -(timestamp_delta_ms & 1)
    else:
        timestamp_delta_ms, pos = parse_varlong(data, pos - 1)
    offset_delta = data[pos]
    pos += 1
    if offset_delta < 0x80:
        offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
    else:
        offset_delta, pos = parse_varint(data, pos - 1)

    key_length = data[pos]
    pos += 1
    if key_length < 0x80:
        key_length = (key_length >> 1) ^ -(key_length & 1)
    else:
        key_length, pos = parse_varint(data, pos - 1)
    key = None
    if key_length >= 0:
        key_end_pos = pos + key_length
        if key_end_pos > record_end_pos:
            raise _fault(f"key of {key_length} bytes", pos)
        key = data[pos:key_end_pos]
        pos = key_end_pos

    value_length = data[pos]
    pos += 1
    if value_length < 0x80:
        value_length = (value_length >> 1) ^ -(value_length & 1)
    else:
        value_length, pos = parse_varint(data, pos - 1)
    value = None
    if value_length >= 0:
        value_end_pos = pos + value_length
        if value_end_pos > record_end_pos:
            raise _fault(f"value of {value_length} bytes", pos)
        value = data[pos:value_end_pos]
        pos = value_end_pos

    headers: tuple[RecordHeader, ...] = ()
    if data[pos]:
        headers, pos = _parse_headers(data, pos, record_end_pos)
    else:
        pos += 1
    if pos != record_end_pos:
        raise _fault(f"fields end {pos - record_end_pos:+d} bytes from its length", pos)
    if attributes > 0x7F:
        attributes -= 0x100
    return (
        Record(attributes, timestamp_delta_ms, offset_delta, key, value, headers),
        pos,
    )


def _parse_headers(data: bytes, pos: int, end_pos: int) -> tuple[tuple[RecordHeader, ...], int]:
    count, pos = parse_varint(data, pos)
    if not 0 <= count <= end_pos - pos:
        raise _fault(f"{count} headers with {end_pos - pos} bytes left", pos)
    headers = []
    for _ in range(count):
        length, pos = parse_varint(data, pos)
        if not 0 <= length <= end_pos - pos:
            raise _fault(f"header key of {length} bytes", pos)
        key = data[pos : pos + length]
        pos += length
        length, pos = parse_varint(data, pos)
        if length > end_pos - pos:
            raise _fault(f"header value of {length} bytes", pos)
        value = None
        if length >= 0:
            value = data[pos : pos + length]
            pos += length
        headers.append(RecordHeader(key, value))
    return tuple(headers), pos


def _fault(message: str, pos: int) -> CorruptError:
    return CorruptError(message, check_id=CHECK_ID, pos=pos)


def encode_record(record: Record) -> bytes:
    """Return the bytes of a record as Kafka's DefaultRecord writes it, with the shortest varints.

    Raises:
        ValueError: a delta or a length does not fit its varint.
    """
    parts = [
        (record.attributes & 0xFF).to_bytes(1, "big"),
        encode_varlong(record.timestamp_delta_ms),
        encode_varint(record.offset_delta),
        _encode_nullable(record.key),
        _encode_nullable(record.value),
        encode_varint(len(record.headers)),
    ]
    for header in record.headers:
        parts.append(_encode_nullable(header.key))
        parts.append(_encode_nullable(header.value))
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_nullable(data: bytes | None) -> bytes:
    return NULL_LENGTH if data is None else encode_varint(len(data)) + data
