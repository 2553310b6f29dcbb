"""Batches for the logs that tests make, and their sequences without the turns of 2**31."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.formats.compression import compress
from storage.formats.control_record import (
    COMMIT,
    EndTxnMarker,
    encode_control_key,
    encode_end_txn_marker,
)
from storage.formats.record import Record, encode_record
from storage.formats.record_batch import BatchHeader, encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

LAP = 2**31
# One record at time 0, of no producer; length and checksum are filled in when it is encoded.
PLAIN_HEADER = BatchHeader(
    base_offset=0,
    batch_length=0,
    partition_leader_epoch=0,
    magic=2,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp_ms=0,
    max_timestamp_ms=0,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    records_count=1,
)


def encoded_batch(offset: int, records: Sequence[Record], **fields: int) -> bytes:
    """One batch of these records; `fields` are what its header has other than `PLAIN_HEADER`."""
    count = len(records)
    header = PLAIN_HEADER._replace(
        base_offset=offset, last_offset_delta=count - 1, records_count=count
    )._replace(**fields)
    return encode_batch(
        header, compress(header.attributes & 7, b"".join(map(encode_record, records)))
    )


def commit_marker(offset: int, producer_id: int, coordinator_epoch: int) -> bytes:
    """Return a COMMIT of a producer whose epoch is 0."""
    value = encode_end_txn_marker(EndTxnMarker(0, coordinator_epoch))
    records = [Record(0, 0, 0, encode_control_key(COMMIT), value, ())]
    producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": -1}
    return encoded_batch(offset, records, attributes=0x30, **producer)


def unwrapped(sequence: int, end: int) -> int:
    """The number nearest to `end`, where the batch before ended, that is written as `sequence`."""
    near = end - LAP // 2
    return near + (sequence - near) % LAP
