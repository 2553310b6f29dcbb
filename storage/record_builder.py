"""Records into record batches v2, as a Kafka producer sends them: no offset, no leader epoch yet.

A `BatchBuilder` gathers records until the next one would not fit. A batch is bounded by its size
before compression, header included; a record that is larger than that becomes a batch of its own
(the limit of the topic, `max.message.bytes`, is the log's business). Offsets and timestamps of the
records are relative, so that a leader changes the header alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.formats.record import RecordHeader

DEFAULT_BATCH_BYTES = 16_384  # batch.size
MAX_BATCH_RECORDS = 2**31 - 1

# Lengths and offset deltas are small, so their varints are looked up.
_VARINTS = tuple(map(encode_varint, range(8192)))
_VARINTS_COUNT = len(_VARINTS)
_NO_HEADERS = b"\x00"
_NO_ATTRIBUTES = b"\x00"
_VALUE_RECORD_BYTES = 16  # of a record with a short value, all but the value: at most


class ProducerIdentity(NamedTuple):
    """Who sends a batch, and the sequence number of its first record; -1 without idempotence."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


class BatchBuilder:
    """Gathers the records of one batch after the other.

    Args:
        codec: how the records are compressed.
        batch_bytes: largest size of a batch before compression.
        batch_records: largest number of records in a batch.
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
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0
        self._size_bytes = HEADER_BYTES
        self._base_timestamp_ms = 0
        self._max_timestamp_ms = 0

    def __len__(self) -> int:
        """Count the records that wait."""
        return self._count

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: tuple[RecordHeader, ...] = (),
    ) -> bool:
        """Take one more record; False, and nothing is taken, if the batch has to be built first.

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
        """Take values[start:end] as records without key and headers, as far as the batch goes.

        The same as `add` for each, several times as fast.

        Returns:
            The index of the first value that was not taken: below `end`, the batch has to be built
            first. An empty builder takes at least one.
        """
        if not self._count or timestamp_ms != self._base_timestamp_ms:
            # The first record, and those with another timestamp, go the long way.
            while start < end and self.add(None, values[start], timestamp_ms):
                start += 1
                if timestamp_ms == self._base_timestamp_ms:
                    break
            else:
                return start
        varints, varints_count = _VARINTS, _VARINTS_COUNT
        first, begun = start, self._count
        extend, left_bytes = self._parts.extend, self.batch_bytes - self._size_bytes
        stop = min(end, start + varints_count - begun, start + self.batch_records - begun)
        for delta in range(begun, begun + stop - start):
            value = values[start]
            size = len(value)
            if size >= varints_count - _VALUE_RECORD_BYTES:
                break
            offset_delta, length = varints[delta], varints[size]
            body_bytes = len(offset_delta) + len(length) + size + 4
            prefix = b"%b\0\0%b\1%b" % (varints[body_bytes], offset_delta, length)
            record_bytes = len(prefix) + size + 1
            if record_bytes > left_bytes:
                end = start  # it is full
                break
            left_bytes -= record_bytes
            extend((prefix, value, _NO_HEADERS))
            start += 1
        self._count += start - first
        self._size_bytes = self.batch_bytes - left_bytes
        while start < end and self.add(None, values[start], timestamp_ms):
            start += 1
        return start

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
        body = compress(self.codec, b"".join(self._parts))
        identity = identity or ProducerIdentity()
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_V2,
            crc=0,
            attributes=self.codec | (TRANSACTIONAL_MASK if is_transactional else 0),
            last_offset_delta=count - 1,
            base_timestamp_ms=self._base_timestamp_ms,
            max_timestamp_ms=self._max_timestamp_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=identity.base_sequence,
            records_count=count,
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
    """Return the control batch that ends a transaction, as a coordinator has it written.

    One record, never compressed, no sequence number (reference 2.8, MemoryRecords).
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
    """Encode what `record.encode_record` encodes, three times as fast for a record without headers.

    Raises:
        ValueError: a delta or a length does not fit its varint.
    """
    if headers or offset_delta >= _VARINTS_COUNT or timestamp_delta_ms < 0:
        return encode_record(Record(0, timestamp_delta_ms, offset_delta, key, value, headers))
    if timestamp_delta_ms < _VARINTS_COUNT:
        head = _NO_ATTRIBUTES + _VARINTS[timestamp_delta_ms] + _VARINTS[offset_delta]
    else:
        head = _NO_ATTRIBUTES + encode_varlong(timestamp_delta_ms) + _VARINTS[offset_delta]
    if key is None:
        head += NULL_LENGTH
    else:
        head += _varint(len(key)) + key
    if value is None:
        body = head + NULL_LENGTH + _NO_HEADERS
    else:
        body = b"%b%b%b\x00" % (head, _varint(len(value)), value)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    return _VARINTS[value] if value < _VARINTS_COUNT else encode_varint(value)
