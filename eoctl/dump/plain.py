"""kafka-dump-log 4.3.1's lines for batches and records, one at a time: the definition.

Source: class org.apache.kafka.tools.DumpLogSegments of 4.3.1. The bulk twins in this
package give the same bytes and are tested against this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.formats.compression import Codec
from storage.formats.record_batch import MAGIC_V2

if TYPE_CHECKING:
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.scan import Scan
    from storage.log.segment import LogRecord


def java_boolean(*, value: bool) -> str:
    """`true` or `false`, as Java prints it."""
    return "true" if value else "false"


def optional_long(value: int | None) -> str:
    """java.util.OptionalLong as text."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def timestamp_type(header: BatchHeader) -> str:
    """Name of the batch's timestamp type, which the tool uses as a field name."""
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def codec_name(header: BatchHeader) -> str:
    """Name of the codec; `unknown(N)` where the tool dies."""
    try:
        return Codec(header.codec).label
    except ValueError:
        return f"unknown({header.codec})"


def batch_line(batch: ScannedBatch) -> str:
    """One line for a batch (v2) or an outer message (v0, v1), without the line's end."""
    header = batch.header
    if header.magic >= MAGIC_V2:
        start = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
            f" count: {header.records_count} baseSequence: {header.base_sequence}"
            f" lastSequence: {header.last_sequence} producerId: {header.producer_id}"
            f" producerEpoch: {header.producer_epoch}"
            f" partitionLeaderEpoch: {header.partition_leader_epoch}"
            f" isTransactional: {java_boolean(value=header.is_transactional)}"
            f" isControl: {java_boolean(value=header.is_control)}"
            f" deleteHorizonMs: {optional_long(header.delete_horizon_ms)}"
        )
    else:
        start = f"offset: {header.base_offset}"
    return (
        f"{start} position: {batch.pos} {timestamp_type(header)}: {header.max_timestamp_ms}"
        f" size: {header.batch_bytes} magic: {header.magic} compresscodec: {codec_name(header)}"
        f" crc: {header.crc} isvalid: {java_boolean(value=batch.crc_ok is not False)}"
    )


def as_it_stands(scan: Scan, batch: ScannedBatch) -> ScannedBatch:
    """Return a batch with the magic that is in the file, as far as the tool takes it for v2."""
    magic = scan.wrong_magics.get(batch.pos, 0)
    if magic <= MAGIC_V2:
        return batch
    return batch._replace(header=batch.header._replace(magic=magic))


def as_the_tool_reads(batch: ScannedBatch) -> ScannedBatch:
    """Return a batch of a magic above 2 as one of 2: so Kafka's file reader takes it."""
    if batch.header.magic <= MAGIC_V2:
        return batch
    return batch._replace(header=batch.header._replace(magic=MAGIC_V2))


def record_metadata(header: BatchHeader, record: LogRecord) -> str:
    """What stands in a record line before the control part, the key and the payload."""
    key_bytes = -1 if record.key is None else len(record.key)
    value_bytes = -1 if record.value is None else len(record.value)
    line = (
        f"| offset: {record.offset} {timestamp_type(header)}: {record.timestamp_ms}"
        f" keySize: {key_bytes} valueSize: {value_bytes}"
    )
    if header.magic >= MAGIC_V2:
        keys = ",".join(each.key_text for each in record.headers)
        return f"{line} sequence: {record.sequence} headerKeys: [{keys}]"
    return f"{line} isValid: {java_boolean(value=bool(record.crc_ok))} crc: {record.crc}"


def record_contents(prefix: str, key: str | None, payload: str | None) -> str:
    """Key and payload as the tool appends them; `prefix` is a blank, or the bar when alone."""
    text = ""
    if key is not None:
        text = f"{prefix}key: {key}"
        prefix = " "
    if payload is not None:
        text += f"{prefix}payload: {payload}"
    return text
