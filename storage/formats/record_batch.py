"""Record batch v2 (magic 2): the unit of a `.log` file and of almost everything else.

    pos  width  type   field                  unit   meaning
      0      8  int64  base_offset            offset of the first record as originally written
      8      4  int32  batch_length           bytes  after this field; the whole batch has 12 more
     12      4  int32  partition_leader_epoch epoch  of the leader that assigned offsets; -1 unknown
     16      1  int8   magic                         2
     17      4  uint32 crc                           CRC-32C of bytes 21 to the end
     21      2  int16  attributes                    bits below
     23      4  int32  last_offset_delta      offset last offset = base_offset + this
     27      8  int64  base_timestamp_ms      ms     of the first record; with bit 6 delete horizon
     35      8  int64  max_timestamp_ms       ms     of the records; with bit 3 append time
     43      8  int64  producer_id                   -1 none
     51      2  int16  producer_epoch                -1 none
     53      4  int32  base_sequence                 -1 none
     57      4  int32  records_count                 records present; 0 if compaction removed all
     61      -  -      records                       see `record`, compressed as one stream or not

attributes: bits 0-2 codec (`compression.Codec`), 3 log append time, 4 transactional, 5 control,
6 base_timestamp_ms is the delete horizon, 7-15 unused. Kafka reads only the low byte.

The CRC does not cover base_offset, batch_length, partition_leader_epoch and magic. It does not
prove records_count, deltas or lengths of records right: a broker in recovery never parses them.

Valid if and only if these rules hold. A scan and the checker apply them, `parse_header` only reads.

- BAT-1: crc is the CRC-32C of bytes 21 to the end.
- BAT-2: magic is 2, batch_length >= 49 and the batch ends within the file.
- BAT-4: last_offset_delta >= 0 and 0 <= records_count <= last_offset_delta + 1.
- BAT-7: codec is 0..4, the body decompresses and its records parse exactly (see `record`).
- BAT-10: attribute bits 7-15 are 0.
- BAT-11: with a producer id, epoch >= 0, and base_sequence >= 0 unless control. A transactional
  batch has a producer id.

Compaction keeps base_offset, last_offset_delta and base_sequence. So records_count may be less than
last_offset_delta + 1, and 0 in the batch kept for an active producer. Tail of a segment: a batch
that a crash truncated, or zeros if the file was preallocated.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from storage.checksum import crc32c
from storage.errors import TruncatedError, UnsupportedError
from storage.limits import INT32_MAX, as_int64

if TYPE_CHECKING:
    from storage.formats.varint import BytesLike

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
PLACE = Struct(">qii")  # of the header, the fields that a leader writes: up to the leader epoch
LOG_OVERHEAD_BYTES = 12  # base_offset and batch_length, which batch_length does not count
MAGIC_POS = 16
CRC = Struct(">I")
CRC_POS = 17
CRC_START_POS = 21
MIN_BATCH_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES

MAGIC_V2 = 2

FRAME_CHECK_ID = "BAT-2"

CODEC_MASK = 0x07
LOG_APPEND_TIME_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_TIMESTAMP_MS = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

MAX_SEQUENCE = INT32_MAX


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, in the order they are on disk.

    For a legacy message (`legacy_message`) base_offset is the offset in its header,
    last_offset_delta 0 and max_timestamp_ms its timestamp. Every field that v0 and v1 lack, also
    records_count, is -1.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def batch_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record as originally written."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """Compression codec id, see `compression.Codec`."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Return whether timestamps are the broker's clock at the append, not the producer's."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME_MASK)

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch is part of a transaction (data or marker)."""
        return self.magic >= MAGIC_V2 and bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Return whether the batch has control records: markers, or KRaft's own."""
        return self.magic >= MAGIC_V2 and bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which the cleaner may drop its tombstones or marker, or None."""
        has_horizon = self.magic >= MAGIC_V2 and self.attributes & DELETE_HORIZON_MASK
        return self.base_timestamp_ms if has_horizon else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record as originally written, or -1 without a sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, delta: int) -> int:
    """Return `sequence` plus `delta` (>= 0), wrapping from 2^31-1 to 0.

    The result is the same as in Kafka's DefaultRecordBatch.
    """
    if sequence > MAX_SEQUENCE - delta:
        return delta - (MAX_SEQUENCE - sequence) - 1
    return sequence + delta


def decrement_sequence(sequence: int, delta: int) -> int:
    """Return `sequence` minus `delta` (>= 0), wrapping from 0 to 2^31-1."""
    if sequence < delta:
        return MAX_SEQUENCE - (delta - sequence) + 1
    return sequence - delta


def parse_header(buf: BytesLike, pos: int) -> BatchHeader:
    """Read the 61 bytes at `pos`. Bounds and layout are checked, but no values.

    Any magic from 2 up is read with this layout, as Kafka's FileLogInputStream does.

    Raises:
        TruncatedError: BAT-2, fewer than 61 bytes are left.
        UnsupportedError: BAT-2, magic below 2, which has another layout (`legacy_message`).
    """
    if len(buf) - pos < HEADER_BYTES:
        raise TruncatedError(
            "record batch header",
            check_id=FRAME_CHECK_ID,
            pos=pos,
            needed_bytes=HEADER_BYTES,
            available_bytes=len(buf) - pos,
        )
    header = BatchHeader._make(HEADER.unpack_from(buf, pos))
    if header.magic < MAGIC_V2:
        raise UnsupportedError(
            "not a record batch v2",
            check_id=FRAME_CHECK_ID,
            pos=pos + MAGIC_POS,
            expected=f"magic {MAGIC_V2}",
            found=f"magic {header.magic}",
        )
    return header


def encode_header(header: BatchHeader) -> bytes:
    """Return the 61 bytes of a v2 header with its own batch_length and crc.

    Raises:
        struct.error: a field is outside of its integer type.
    """
    return HEADER.pack(*header)


def compute_crc(batch: BytesLike) -> int:
    """Return the right CRC-32C of one whole batch (from base_offset to its last byte).

    Raises:
        TruncatedError: BAT-2, `batch` is shorter than a header.
    """
    if len(batch) < HEADER_BYTES:
        raise TruncatedError(
            "record batch header",
            check_id=FRAME_CHECK_ID,
            pos=0,
            needed_bytes=HEADER_BYTES,
            available_bytes=len(batch),
        )
    return crc32c(memoryview(batch)[CRC_START_POS:])


def encode_batch(header: BatchHeader, body: bytes | memoryview) -> bytes:
    """Return the whole batch of `header` and `body` (the records, compressed by header.codec).

    batch_length and crc of `header` are ignored and computed.
    """
    length = MIN_BATCH_LENGTH + len(body)
    head = HEADER.pack(header.base_offset, length, *header[2:4], 0, *header[5:])
    crc = CRC.pack(crc32c(body, crc32c(head[CRC_START_POS:])))
    return b"".join((head[:CRC_POS], crc, head[CRC_START_POS:], body))


def record_timestamp_ms(header: BatchHeader, timestamp_delta_ms: int) -> int:
    """Return a record's timestamp: the append time, or base plus delta (wrapping at 64 bits)."""
    if header.attributes & LOG_APPEND_TIME_MASK:
        return header.max_timestamp_ms
    return as_int64(header.base_timestamp_ms + timestamp_delta_ms)


def record_sequence(header: BatchHeader, offset_delta: int) -> int:
    """Return the sequence number of a record by its offset delta, or -1 if the batch has none."""
    if header.base_sequence < 0:
        return NO_SEQUENCE
    return increment_sequence(header.base_sequence, offset_delta)
