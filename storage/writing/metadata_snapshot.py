"""A KRaft snapshot as its writer makes it: a header, the records of the cluster, a footer.

Kafka's RecordsSnapshotWriter puts each of the two ends into a control batch of its own. Offsets
begin at 0, no batch has a producer, and the leader epoch is that of the snapshot: 0 in a
`bootstrap.checkpoint`, which kafka-storage writes when it formats a log dir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.formats.control_record import (
    CURRENT_VERSION,
    ControlRecordType,
    encode_control_key,
    encode_control_message,
)
from storage.formats.record_batch import (
    CONTROL_MASK,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    encode_batch,
)
from storage.writing.record_builder import encode_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Readers take batches of up to 8 MiB (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
BATCH_RECORDS = 1000
BOOTSTRAP_EPOCH = 0


def encode_bootstrap(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """The content of a `bootstrap.checkpoint` with these records.

    Args:
        values: of metadata records, as `cluster_metadata.encode_record` gives them.
        timestamp_ms: of all records.
    """
    return b"".join(_batches(values, timestamp_ms))


def _batches(values: Sequence[bytes], timestamp_ms: int) -> Iterator[bytes]:
    header = {"version": CURRENT_VERSION, "lastContainedLogTimestamp": 0}
    yield _control_batch(ControlRecordType.SNAPSHOT_HEADER, header, 0, timestamp_ms)
    offset = 1
    for start in range(0, len(values), BATCH_RECORDS):
        part = values[start : start + BATCH_RECORDS]
        records = [encode_fields(0, number, None, each) for number, each in enumerate(part)]
        yield _batch(records, offset, timestamp_ms)
        offset += len(part)
    footer = {"version": CURRENT_VERSION}
    yield _control_batch(ControlRecordType.SNAPSHOT_FOOTER, footer, offset, timestamp_ms)


def _control_batch(
    control_type: ControlRecordType, message: dict[str, int], offset: int, timestamp_ms: int
) -> bytes:
    key = encode_control_key(control_type)
    value = encode_control_message(control_type, message)
    record = encode_fields(0, 0, key, value)
    return _batch([record], offset, timestamp_ms, attributes=CONTROL_MASK)


def _batch(
    records: Sequence[bytes], offset: int, timestamp_ms: int, *, attributes: int = 0
) -> bytes:
    header = BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=BOOTSTRAP_EPOCH,
        magic=MAGIC_V2,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=len(records),
    )
    return encode_batch(header, b"".join(records))
