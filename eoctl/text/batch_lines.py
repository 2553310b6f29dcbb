"""Batch lines in bulk: what `plain.batch_line` gives, for a table of healthy v2 batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eoctl.text.painter import Painter
from storage.formats.compression import Codec
from storage.formats.record_batch import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME_MASK,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable


def batch_painter(table: HeaderTable) -> Painter:
    """Return the lines of all rows, line ends included. All rows have magic 2 and a good CRC."""
    lines = Painter(table.row_count)
    attributes = table.attributes
    lines.number(b"baseOffset: ", table.base_offset)
    lines.number(b" lastOffset: ", table.last_offset)
    lines.number(b" count: ", table.records_count)
    lines.number(b" baseSequence: ", table.base_sequence)
    lines.number(b" lastSequence: ", last_sequence(table))
    lines.number(b" producerId: ", table.producer_id)
    lines.number(b" producerEpoch: ", table.producer_epoch)
    lines.number(b" partitionLeaderEpoch: ", table.partition_leader_epoch)
    _boolean(lines, b" isTransactional: ", attributes & TRANSACTIONAL_MASK != 0)
    _boolean(lines, b" isControl: ", attributes & CONTROL_MASK != 0)
    has_horizon = attributes & DELETE_HORIZON_MASK != 0
    lines.literal(b" deleteHorizonMs: OptionalLong")
    lines.literal(b".empty", ~has_horizon)
    lines.number(b"[", table.base_timestamp_ms, has_horizon)
    lines.literal(b"]", has_horizon)
    lines.number(b" position: ", table.pos)
    timestamp_type(lines, attributes)
    lines.number(b": ", table.max_timestamp_ms)
    lines.number(b" size: ", table.batch_bytes)
    lines.literal(b" magic: 2 compresscodec: ")
    for codec in Codec:
        lines.literal(codec.label.encode(), attributes & CODEC_MASK == codec)
    lines.number(b" crc: ", table.crc)
    lines.literal(b" isvalid: true\n")
    return lines


def timestamp_type(lines: Painter, attributes: NDArray[np.int16]) -> None:
    """Add the name before a timestamp, with a blank: the type of the batch."""
    is_append_time = attributes & LOG_APPEND_TIME_MASK != 0
    lines.literal(b" CreateTime", ~is_append_time)
    lines.literal(b" LogAppendTime", is_append_time)


def _boolean(lines: Painter, label: bytes, values: NDArray[np.bool_]) -> None:
    lines.literal(label)
    lines.literal(b"true", values)
    lines.literal(b"false", ~values)


def last_sequence(table: HeaderTable) -> NDArray[np.int64]:
    """Return each batch's last sequence, wrapped as `BatchHeader.last_sequence`."""
    base = table.base_sequence.astype(np.int64)
    last = base + (table.last_offset - table.base_offset)
    wrapped = np.where(last > MAX_SEQUENCE, last - (MAX_SEQUENCE + 1), last)
    return np.where(base == NO_SEQUENCE, np.int64(NO_SEQUENCE), wrapped)
