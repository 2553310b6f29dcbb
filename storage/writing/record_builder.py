"""Records into record batches v2, as a Kafka producer sends them: no offset, no leader epoch yet.

A `BatchBuilder` collects records until the next record would not fit. The limit of a batch is its
size before compression, with its header. A larger record becomes a batch of its own. The limit of
the topic, `max.message.bytes`, is checked by the log. Offsets and timestamps of the records are
relative, so that a leader changes only the header.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from storage.formats.compression import Codec, compress
from storage.formats.control_record import (
    CURRENT_VERSION,
    ControlRecordType,
    EndTxnMarker,
    encode_control_key,
    encode_end_txn_marker,
)
from storage.formats.record import NULL_LENGTH, Record, encode_record
from storage.formats.record_batch import (
    CONTROL_MASK,
    HEADER_BYTES,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    encode_batch,
)
from storage.formats.varint import encode_varint, encode_varlong
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.formats.record import RecordHeader


# -- the bytes around a value in a record without key, headers and timestamp delta, by its size.
#
# Between two values of a batch there are only the end of a record and the start of the next record.
# Both depend only on the length of the value and the width of the offset delta. So records are
# built without a line of Python per record.


# Lengths and offset deltas are small, so their varints are looked up. The table is made at every
# start. Its varints of two bytes are made without `encode_varint`, in a fifth of the time.
VARINTS_COUNT = 8192
ONE_BYTE_COUNT = 64
VARINTS = (
    *map(encode_varint, range(ONE_BYTE_COUNT)),
    *[bytes((n << 1 & 0x7F | 0x80, n >> 6)) for n in range(ONE_BYTE_COUNT, VARINTS_COUNT)],
)
NO_HEADERS = b"\x00"
NO_ATTRIBUTES = b"\x00"

_T = TypeVar("_T")


class _BySize(dict[int, _T]):
    """Data that depends on the length of a value, cached for short values."""

    def __init__(self, make: Callable[[int], _T]) -> None:
        self._make = make

    def __missing__(self, size: int) -> _T:
        made = self._make(size)
        if size < VARINTS_COUNT:
            self[size] = made
        return made


def short_varint(value: int) -> bytes:
    """Encode a number that is not negative, and usually small."""
    return VARINTS[value] if value < VARINTS_COUNT else encode_varint(value)


# By length of the value: a null key, and the length.
VALUE_HEADS = _BySize(lambda size: NULL_LENGTH + short_varint(size))


class ValueRecords:
    """Records whose offset deltas have equal widths.

    Attributes:
        stop: the first offset delta that is wider.
        heads: by length of the value: the end of the record before, and the bytes before the offset
            delta.
        record_bytes: by length of the value: size of the record.
    """

    def __init__(self, stop: int) -> None:
        self.stop = stop
        self._delta_bytes = len(VARINTS[stop - 1])
        self.heads = _BySize(self._head)
        self.record_bytes = _BySize(self._record_bytes)

    def _body_bytes(self, size: int) -> int:
        return (
            len(NO_ATTRIBUTES)
            + 1
            + self._delta_bytes
            + len(VALUE_HEADS[size])
            + size
            + len(NO_HEADERS)
        )

    def _head(self, size: int) -> bytes:
        return NO_HEADERS + short_varint(self._body_bytes(size)) + NO_ATTRIBUTES + VARINTS[0]

    def _record_bytes(self, size: int) -> int:
        body_bytes = self._body_bytes(size)
        return len(short_varint(body_bytes)) + body_bytes


SHORT_DELTAS = ValueRecords(ONE_BYTE_COUNT)
LONG_DELTAS = ValueRecords(VARINTS_COUNT)


# -- record builder


DEFAULT_BATCH_BYTES = 16_384  # batch.size
MAX_BATCH_RECORDS = INT32_MAX


class ProducerIdentity(NamedTuple):
    """The sender of a batch, with its first sequence number. All are -1 without idempotence."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


class BatchBuilder:
    """A builder of successive batches.

    Args:
        codec: compression of the records.
        batch_bytes: largest size of a batch before compression.
        batch_records: largest number of records in a batch.

    Attributes:
        is_compressed: with any codec but none.
    """

    def __init__(
        self,
        *,
        codec: Codec = Codec.NONE,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        batch_records: int = MAX_BATCH_RECORDS,
    ) -> None:
        self.codec = codec
        self.batch_bytes = batch_bytes
        self.batch_records = batch_records
        self.is_compressed = codec is not Codec.NONE
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0
        self._size_bytes = HEADER_BYTES
        self._base_timestamp_ms = 0
        self._max_timestamp_ms = 0

    def __len__(self) -> int:
        """Return the number of waiting records."""
        return self._count

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: tuple[RecordHeader, ...] = (),
    ) -> bool:
        """Take one more record. Returns False and takes nothing if the batch has to be built first.

        An empty builder takes any record.

        Raises:
            ValueError: it is too large for the format.
        """
        offset_delta = self._count
        if not offset_delta:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        elif offset_delta >= self.batch_records:
            return False
        delta_ms = timestamp_ms - self._base_timestamp_ms
        data = encode_fields(delta_ms, offset_delta, key, value, headers)
        size_bytes = self._size_bytes + len(data)
        if size_bytes > self.batch_bytes and offset_delta:
            return False
        self._size_bytes = size_bytes
        self._parts.append(data)
        self._count += 1
        self._max_timestamp_ms = max(self._max_timestamp_ms, timestamp_ms)
        return True

    def add_values(self, values: Sequence[bytes], start: int, end: int, timestamp_ms: int) -> int:
        """Take values[start:end] as records without key and headers, as far as the batch has room.

        The result is the same as `add` for each value, several times as fast.

        Returns:
            The index of the first value that was not taken. If it is below `end`, the batch has to
                be built
            first. An empty builder takes at least one value.
        """
        if not self._count:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        if timestamp_ms == self._base_timestamp_ms:
            while start < end and self._count < VARINTS_COUNT:
                taken_count, is_full = self._add_run(values, start, end)
                start += taken_count
                if is_full and self._count:
                    return start
                if is_full:
                    break  # an empty builder takes any record
        while start < end and self.add(None, values[start], timestamp_ms):
            start += 1
        return start

    def _add_run(self, values: Sequence[bytes], start: int, end: int) -> tuple[int, bool]:
        """Take some of values[start:end]. Returns their number, and whether the next does not fit.

        Their offset deltas have equal widths, so that the rest depends only on the values' lengths.
        No line of Python runs for a single record.
        """
        begun = self._count
        run = SHORT_DELTAS if begun < SHORT_DELTAS.stop else LONG_DELTAS
        left_bytes = self.batch_bytes - self._size_bytes
        # As many as fit if all were as long as the first, and one more.
        fit_count = left_bytes // run.record_bytes[len(values[start])] + 1
        stop = min(end, start + min(fit_count, run.stop - begun, self.batch_records - begun))
        values = values[start:stop]
        sizes = list(map(len, values))
        sums = list(accumulate(map(run.record_bytes.__getitem__, sizes)))
        count = bisect_right(sums, left_bytes)
        if not count:
            return 0, True
        is_full = count < len(values)
        del sizes[count:]
        parts = [NO_HEADERS] * (4 * count + 1)
        parts[0:-1:4] = map(run.heads.__getitem__, sizes)
        parts[1::4] = VARINTS[begun : begun + count]
        parts[2::4] = map(VALUE_HEADS.__getitem__, sizes)
        parts[3::4] = values[:count]
        parts[0] = parts[0][len(NO_HEADERS) :]
        self._parts.append(b"".join(parts))
        self._count += count
        self._size_bytes += sums[count - 1]
        return count, is_full

    def build(
        self, identity: ProducerIdentity | None = None, *, is_transactional: bool = False
    ) -> bytes:
        """Return the batch of all records taken, with base offset 0 and no leader epoch.

        The builder is empty afterwards.

        Raises:
            ValueError: there is no record.
        """
        count = self._count
        if not count:
            raise ValueError("a batch needs a record")
        body = b"".join(self._parts)
        if self.is_compressed:
            body = compress(self.codec, body)
        identity = identity or ProducerIdentity()
        header = BatchHeader(  # by position, since this runs for every batch
            0,  # base offset
            0,  # length
            NO_LEADER_EPOCH,
            MAGIC_V2,
            0,  # crc
            self.codec | (TRANSACTIONAL_MASK if is_transactional else 0),
            count - 1,
            self._base_timestamp_ms,
            self._max_timestamp_ms,
            *identity,
            count,
        )
        self._clear()
        return encode_batch(header, body)


def build_marker(
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    *,
    is_commit: bool,
    coordinator_epoch: int,
) -> bytes:
    """Return the control batch that ends a transaction, as a coordinator requests it.

    It has one record, no compression and no sequence number
    (MemoryRecords.writeEndTransactionalMarker).
    """
    control_type = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
    key = encode_control_key(control_type)
    value = encode_end_txn_marker(EndTxnMarker(CURRENT_VERSION, coordinator_epoch))
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC_V2,
        crc=0,
        attributes=CONTROL_MASK | TRANSACTIONAL_MASK,
        last_offset_delta=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        records_count=1,
    )
    return encode_batch(header, encode_fields(0, 0, key, value))


def encode_fields(
    timestamp_delta_ms: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[RecordHeader, ...] = (),
) -> bytes:
    """Encode a record as `record.encode_record` does, without headers three times as fast.

    Raises:
        ValueError: a delta or a length does not fit its varint.
    """
    if headers or offset_delta >= VARINTS_COUNT or timestamp_delta_ms < 0:
        return encode_record(Record(0, timestamp_delta_ms, offset_delta, key, value, headers))
    if timestamp_delta_ms < VARINTS_COUNT:
        head = NO_ATTRIBUTES + VARINTS[timestamp_delta_ms] + VARINTS[offset_delta]
    else:
        head = NO_ATTRIBUTES + encode_varlong(timestamp_delta_ms) + VARINTS[offset_delta]
    if key is None:
        head += NULL_LENGTH
    else:
        head += short_varint(len(key)) + key
    if value is None:
        body = head + NULL_LENGTH + NO_HEADERS
    else:
        body = b"%b%b%b\x00" % (head, short_varint(len(value)), value)
    return short_varint(len(body)) + body
