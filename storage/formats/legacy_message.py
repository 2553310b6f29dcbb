"""Messages v0 and v1 (magic 0, 1), written by brokers before message format v2 (Kafka 0.11).

    v0   v1   width  type    field         unit    meaning
      0    0      8  int64   offset        offset  of the message, or of a wrapper's last message
      8    8      4  int32   size          bytes   after this field
     12   12      4  uint32  crc                   CRC-32 (as zip's) of magic to the end
     16   16      1  int8    magic                 0 or 1
     17   17      1  int8    attributes            bits 0-2 codec (0..3), 3 log append time (v1)
      -   18      8  int64   timestamp_ms  ms      -1 none
     18   26      4  int32   key_length    bytes   negative: null key
     22   30      k  bytes   key
      .    .      4  int32   value_length  bytes   negative: null value
      .    .      v  bytes   value

A message with a codec is a wrapper. Its value is the compressed run of inner entries, each laid out
as above. Offsets of inner entries:

- v0 wrapper: absolute.
- v1 wrapper: relative. The last inner offset is the wrapper's offset. If the wrapper's offset is 0,
  the inner offsets are absolute (some librdkafka wrote such sets).

A v1 wrapper with log append time gives its timestamp to all its inner v1 messages.

Valid if and only if these rules hold:

- BAT-1: crc matches (a wrapper's crc covers the compressed bytes).
- BAT-2: magic is 0 or 1, size >= 14 (v0) or 22 (v1) and the message ends within the file.
- BAT-17: key and value end within the message. A wrapper has a value that decompresses to at least
  one inner message, none of them compressed. A v1 wrapper's offset is 0 or not below its last inner
  offset.

A truncated inner entry ends the set without an error. An inner magic may differ from the wrapper's.
Both are as in Kafka's AbstractLegacyRecordBatch.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, TruncatedError, UnsupportedError
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES, Codec, decompress
from storage.formats.record_batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_MASK,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP_MS,
    BatchHeader,
)
from storage.limits import as_int64

if TYPE_CHECKING:
    from storage.formats.varint import BytesLike

MAGIC_V0 = 0
MAGIC_V1 = 1

ENTRY = Struct(">qiIbb")  # offset, size, crc, magic, attributes
ENTRY_BYTES = 18
PREFIX = Struct(">qi")  # offset, size
PREFIX_BYTES = 12
TIMESTAMP = Struct(">q")
LENGTH = Struct(">i")
CRC = Struct(">I")

CRC_POS = 12
CRC_START_POS = 16
TIMESTAMP_POS = 18
KEY_LENGTH_POS = {MAGIC_V0: 18, MAGIC_V1: 26}
MIN_SIZE = {MAGIC_V0: 14, MAGIC_V1: 22}

NULL_LENGTH = -1
UNKNOWN_RECORDS_COUNT = -1

FRAME_CHECK_ID = "BAT-2"
CONTENT_CHECK_ID = "BAT-17"


class Message(NamedTuple):
    """One entry of a legacy log: a message, or a wrapper of messages."""

    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp_ms: int  # -1 in v0
    key: bytes | None
    value: bytes | None
    tail: bytes = b""  # within the size, after the value: Kafka ignores it, the crc covers it
    crc_ok: bool = True  # set by `parse_message`

    @property
    def codec(self) -> int:
        """Compression codec id, see `compression.Codec`. Not 0 in a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Return whether the timestamp is the broker's clock at the append. v0 has no timestamp."""
        return self.magic > MAGIC_V0 and bool(self.attributes & LOG_APPEND_TIME_MASK)


class LegacyRecord(NamedTuple):
    """A message for a consumer: absolute offset, effective timestamp (-1 none)."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    crc: int
    crc_ok: bool
    magic: int


def parse_entry(buf: BytesLike, pos: int) -> tuple[int, int, int, int, int]:
    """Read (offset, size, crc, magic, attributes) at `pos`. Checks magic and minimum size.

    Raises:
        TruncatedError: BAT-2, fewer than 18 bytes are left.
        UnsupportedError: BAT-2, magic is not 0 or 1.
        CorruptError: BAT-2, size below the minimum of its magic.
    """
    available_bytes = len(buf) - pos
    if available_bytes < ENTRY_BYTES:
        raise TruncatedError(
            "message header",
            check_id=FRAME_CHECK_ID,
            pos=pos,
            needed_bytes=ENTRY_BYTES,
            available_bytes=available_bytes,
        )
    entry = ENTRY.unpack_from(buf, pos)
    size, magic = entry[1], entry[3]
    if magic not in MIN_SIZE:
        raise UnsupportedError(
            "not a message v0 or v1",
            check_id=FRAME_CHECK_ID,
            pos=pos + CRC_START_POS,
            expected="magic 0 or 1",
            found=f"magic {magic}",
        )
    if size < MIN_SIZE[magic]:
        raise CorruptError(
            "message size below the minimum",
            check_id=FRAME_CHECK_ID,
            pos=pos + 8,
            expected=f">= {MIN_SIZE[magic]}",
            found=str(size),
        )
    return entry


def parse_message(buf: BytesLike, pos: int) -> Message:
    """Read the whole entry at `pos` (its end: pos + 12 + size).

    `crc_ok` is whether its crc matches.

    Raises:
        TruncatedError: BAT-2, the buffer ends before the message.
        UnsupportedError: BAT-2, magic is not 0 or 1.
        CorruptError: BAT-2 for the size, BAT-17 for lengths that do not fit into it.
    """
    offset, size, crc, magic, attributes = parse_entry(buf, pos)
    end_pos = pos + PREFIX_BYTES + size
    if end_pos > len(buf):
        raise TruncatedError(
            "message",
            check_id=FRAME_CHECK_ID,
            pos=pos,
            needed_bytes=PREFIX_BYTES + size,
            available_bytes=len(buf) - pos,
        )
    timestamp_ms = NO_TIMESTAMP_MS
    if magic == MAGIC_V1:
        timestamp_ms = TIMESTAMP.unpack_from(buf, pos + TIMESTAMP_POS)[0]
    key, key_end_pos = _parse_nullable(buf, pos + KEY_LENGTH_POS[magic], end_pos, "key")
    value, value_end_pos = _parse_nullable(buf, key_end_pos, end_pos, "value")
    tail = bytes(buf[value_end_pos:end_pos])
    crc_ok = crc == compute_crc(buf, pos, PREFIX_BYTES + size)
    return Message(offset, crc, magic, attributes, timestamp_ms, key, value, tail, crc_ok)


def _parse_nullable(buf: BytesLike, pos: int, end_pos: int, what: str) -> tuple[bytes | None, int]:
    if pos + LENGTH.size > end_pos:
        raise CorruptError(
            f"no room for the length of the {what}", check_id=CONTENT_CHECK_ID, pos=pos
        )
    length = LENGTH.unpack_from(buf, pos)[0]
    pos += LENGTH.size
    if length < 0:
        return None, pos
    if length > end_pos - pos:
        raise CorruptError(
            f"{what} does not fit into the message",
            check_id=CONTENT_CHECK_ID,
            pos=pos,
            expected=f"at most {end_pos - pos} bytes",
            found=f"{length} bytes",
        )
    return bytes(buf[pos : pos + length]), pos + length


def encode_message(message: Message) -> bytes:
    """Return the bytes of one entry with the crc of the value. See `with_crc`.

    A negative length other than -1 is not kept: null is written as -1.

    Raises:
        ValueError: magic is not 0 or 1.
        struct.error: a field is outside of its integer type.
    """
    if message.magic not in MIN_SIZE:
        raise ValueError(f"magic {message.magic} is not 0 or 1")
    parts = []
    if message.magic != MAGIC_V0:
        parts.append(TIMESTAMP.pack(message.timestamp_ms))
    for data in (message.key, message.value):
        parts.append(LENGTH.pack(NULL_LENGTH if data is None else len(data)))
        parts.append(data or b"")
    parts.append(message.tail)
    body = b"".join(parts)
    size = ENTRY_BYTES - PREFIX_BYTES + len(body)
    header = ENTRY.pack(message.offset, size, message.crc, message.magic, message.attributes)
    return header + body


def compute_crc(buf: BytesLike, pos: int, message_bytes: int) -> int:
    """Return the right CRC-32 of the entry of `message_bytes` (12 + size) at `pos`."""
    from zlib import crc32

    return crc32(memoryview(buf)[pos + CRC_START_POS : pos + message_bytes])


def with_crc(message: Message) -> Message:
    """Return the message with the right crc for its content."""
    entry = encode_message(message)
    return message._replace(crc=compute_crc(entry, 0, len(entry)), crc_ok=True)


def message_crc_ok(buf: BytesLike, pos: int, message_bytes: int) -> bool:
    """Return whether the crc of the entry at `pos` matches. Its whole size is `message_bytes`.

    This is 12 + size. The result is False too if the entry is shorter than its header or not all in
    the buffer.
    """
    if message_bytes < ENTRY_BYTES or len(buf) - pos < message_bytes:
        return False
    crc: int = CRC.unpack_from(buf, pos + CRC_POS)[0]
    return crc == compute_crc(buf, pos, message_bytes)


def header_of(buf: BytesLike, pos: int) -> BatchHeader:
    """Return the message at `pos` as a `BatchHeader`, which describes its fields for a message.

    Reads 18 bytes (v0) or 26 (v1). Errors: `parse_entry`.
    """
    offset, size, crc, magic, attributes = parse_entry(buf, pos)
    timestamp_ms = NO_TIMESTAMP_MS
    if magic == MAGIC_V1:
        if len(buf) - pos < TIMESTAMP_POS + TIMESTAMP.size:
            raise TruncatedError(
                "message header",
                check_id=FRAME_CHECK_ID,
                pos=pos,
                needed_bytes=TIMESTAMP_POS + TIMESTAMP.size,
                available_bytes=len(buf) - pos,
            )
        timestamp_ms = TIMESTAMP.unpack_from(buf, pos + TIMESTAMP_POS)[0]
    return BatchHeader(
        base_offset=offset,
        batch_length=size,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp_ms=NO_TIMESTAMP_MS,
        max_timestamp_ms=timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=UNKNOWN_RECORDS_COUNT,
    )


def inner_messages(
    message: Message, *, max_bytes: int = DEFAULT_MAX_BATCH_BYTES
) -> list[LegacyRecord]:
    """Return the records of a message: the inner messages of a wrapper, or the message itself.

    Offsets are absolute, and timestamps effective. The wrapper's own crc is not checked. Each
    record has the result of its own crc.

    Raises:
        CorruptError: BAT-17, or BAT-2 for the frame of an inner entry. Positions are in the
            wrapper's decompressed value, or 0.
        UnsupportedError: BAT-17 for the codec, BAT-2 for an inner magic above 1.
        TooLargeError: the value decompresses to more than `max_bytes`.
    """
    if message.codec == Codec.NONE:
        return [_record(message, message.offset, message.timestamp_ms)]
    if message.value is None:
        raise CorruptError("wrapper message without a value", check_id=CONTENT_CHECK_ID, pos=0)
    entries = decompress(message.codec, message.value, magic=message.magic, max_bytes=max_bytes)
    inner = _parse_inner(entries)
    if not inner:
        raise CorruptError("wrapper message holds no messages", check_id=CONTENT_CHECK_ID, pos=0)
    base_offset = _base_offset(message, inner[-1].offset)
    records = []
    for entry in inner:
        timestamp_ms = entry.timestamp_ms
        if message.is_log_append_time and entry.magic == MAGIC_V1:
            timestamp_ms = message.timestamp_ms
        offset = as_int64(base_offset + entry.offset)
        records.append(_record(entry, offset, timestamp_ms))
    return records


class InnerOffsets(NamedTuple):
    """The offsets and the number of the messages in a wrapper, by their frames."""

    first_offset: int
    last_offset: int
    messages_count: int

    @property
    def is_thinned(self) -> bool:
        """Return whether messages are missing in between, which only a cleaner removes."""
        return self.messages_count <= self.last_offset - self.first_offset


def inner_offsets(
    message: Message, *, max_bytes: int = DEFAULT_MAX_BATCH_BYTES
) -> InnerOffsets | None:
    """Return the offsets in a wrapper by the frames in it, or None if it contains no message.

    Raises the errors of `inner_messages`, except the errors of single inner messages.
    """
    value = message.value or b""
    entries = decompress(message.codec, value, magic=message.magic, max_bytes=max_bytes)
    first = last = None
    pos = count = 0
    while len(entries) - pos >= PREFIX_BYTES:
        offset, size = PREFIX.unpack_from(entries, pos)
        if size < MIN_SIZE[MAGIC_V0] or len(entries) - pos < PREFIX_BYTES + size:
            break
        first, last = offset if first is None else first, offset
        pos += PREFIX_BYTES + size
        count += 1
    if first is None or last is None:
        return None
    base_offset = _base_offset(message, last)
    return InnerOffsets(as_int64(base_offset + first), as_int64(base_offset + last), count)


def _record(message: Message, offset: int, timestamp_ms: int) -> LegacyRecord:
    return LegacyRecord(
        offset,
        timestamp_ms,
        message.key,
        message.value,
        message.crc,
        message.crc_ok,
        message.magic,
    )


def _parse_inner(entries: bytes) -> list[Message]:
    inner = []
    pos = 0
    while len(entries) - pos >= PREFIX_BYTES:
        size = PREFIX.unpack_from(entries, pos)[1]
        if size < MIN_SIZE[MAGIC_V0]:
            raise CorruptError(
                "inner message size below the minimum",
                check_id=CONTENT_CHECK_ID,
                pos=pos + 8,
                expected=f">= {MIN_SIZE[MAGIC_V0]}",
                found=str(size),
            )
        message_bytes = PREFIX_BYTES + size
        if len(entries) - pos < message_bytes:
            break
        entry = parse_message(entries, pos)
        if entry.codec != Codec.NONE:
            raise CorruptError(
                "inner message is compressed",
                check_id=CONTENT_CHECK_ID,
                pos=pos,
                expected="codec 0",
                found=f"codec {entry.codec}",
            )
        inner.append(entry)
        pos += message_bytes
    return inner


def _base_offset(wrapper: Message, last_inner_offset: int) -> int:
    """Return the base of inner offsets: 0 in v0 and in a v1 wrapper at offset 0."""
    if wrapper.magic == MAGIC_V0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last_inner_offset:
        raise CorruptError(
            "offset of the wrapper message is below its last inner offset",
            check_id=CONTENT_CHECK_ID,
            pos=0,
            expected=f"0, or >= {last_inner_offset}",
            found=str(wrapper.offset),
        )
    return wrapper.offset - last_inner_offset
