"""A batch of the source as the copier sends it, and the comparison with a batch of the destination.

A batch is copied as bytes. Only the base offset, the leader epoch, the producer's identity and the
transactional bit of its header change, and with them its checksum. A batch that a client may not
send (`batch_reader`) is re-encoded from its records, with its codec.

Timestamps stay the same. A batch of a topic with LogAppendTime keeps that bit, and the time that
consumers of the source see. Only the leader of a topic with LogAppendTime sets its own time there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.checksum import crc32c
from storage.errors import RefusedError
from storage.formats.compression import Codec
from storage.formats.record_batch import (
    CRC,
    CRC_POS,
    CRC_START_POS,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_MASK,
    MAX_SEQUENCE,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_MASK,
    BatchHeader,
    encode_batch,
    parse_header,
)
from storage.kernels.kernel_choice import load_native
from storage.kernels.numpy_kernel import batch_at, checksums, headers_in, rows_of
from storage.limits import INT32_MAX
from storage.writing.batch_run import BatchRun, RunColumns, headers_needed
from storage.writing.record_builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.clients.log.batch_reader import LogBatch, TableBatches
    from storage.kernels.protocol import HeaderTable
    from storage.writing.record_builder import ProducerIdentity

MAX_BATCH_BYTES = INT32_MAX
WORD_BYTES = 8
ROWS_AT_ONCE = 256
STAMPED = ("base_offset", "partition_leader_epoch", "attributes", "producer_id", "producer_epoch",
           "base_sequence")  # fmt: skip


def stamp(
    source: LogBatch, identity: ProducerIdentity
) -> tuple[BatchHeader, bytearray | memoryview]:
    """Make the batch to send out of a batch of the source, whose bytes are overwritten.

    Returns:
        Its header, with a checksum of 0, and all of its bytes, with the right checksum.

    Raises:
        FormatError, AccessError: its records had to be re-encoded, and cannot be decoded.
        RefusedError: they do not fit into one batch.
    """
    if source.own_records is not None:
        data = bytearray(_encoded(source, identity))
        return parse_header(data, 0)._replace(crc=0), data
    found, view = source.header, source.data
    header = BatchHeader(  # without keywords, because this runs for every batch
        0,
        found.batch_length,
        NO_LEADER_EPOCH,
        found.magic,
        0,
        found.attributes & ~TRANSACTIONAL_MASK,
        found.last_offset_delta,
        found.base_timestamp_ms,
        found.max_timestamp_ms,
        *identity,
        found.records_count,
    )
    HEADER.pack_into(view, 0, *header)
    CRC.pack_into(view, CRC_POS, crc32c(view[CRC_START_POS:]))
    return header, view


def stamp_run(
    source: TableBatches, identity: ProducerIdentity, base_offset: int, leader_epoch: int
) -> BatchRun:
    """Make consecutive batches to send out of batches of the source.

    Args:
        source: consecutive batches.
        identity: of the first batch.
        base_offset: of the first batch.
        leader_epoch: of all batches.
    """
    table = source.table
    counts = table.records_count.astype(np.int64)
    before = counts.cumsum() - counts
    base_offsets = base_offset + before
    table = table._replace(
        base_offset=base_offsets,
        last_offset=base_offsets + counts - 1,
        partition_leader_epoch=np.full(len(counts), leader_epoch, np.int32),
        attributes=table.attributes & ~np.int16(TRANSACTIONAL_MASK),
        producer_id=np.full(len(counts), identity.producer_id),
        producer_epoch=np.full(len(counts), identity.producer_epoch, np.int16),
        base_sequence=((identity.base_sequence + before) & MAX_SEQUENCE).astype(np.int32),
    )
    start = int(table.pos[0]) - source.first_pos
    data = source.data[start : start + int(table.batch_bytes.sum())]
    native = load_native()
    stamped: bytes | memoryview = data
    if native is None:
        _stamp_all(data, table)
    else:
        stamp = (base_offset, leader_epoch, *identity)
        stamped = native.stamp_batches(data, np.ascontiguousarray(table.batch_bytes), stamp)
    found = [batch_at(table, row).header for row in headers_needed(table.row_count)]
    return BatchRun(found, run_columns(table), stamped)


def _stamp_all(data: memoryview, table: HeaderTable) -> None:
    """Write the values of a table into the bytes of its batches, which are consecutive."""
    pos = table.pos - table.pos[0]
    headers = headers_in(data)
    rows = headers[pos]
    for name in STAMPED:
        rows[name] = getattr(table, name)
    headers[pos] = rows
    rows["crc"] = checksums(data, pos, table.batch_bytes)
    headers[pos] = rows


def run_parts(table: HeaderTable) -> Iterator[RunColumns]:
    """Yield the columns of batches that are needed before they are appended, in parts."""
    for start in range(0, table.row_count, ROWS_AT_ONCE):
        yield run_columns(rows_of(table, start, min(start + ROWS_AT_ONCE, table.row_count)))


def run_columns(table: HeaderTable) -> RunColumns:
    """Return these columns for all batches of a table."""
    columns = (table.batch_bytes, table.records_count, table.max_timestamp_ms)
    return RunColumns(*(each.tolist() for each in columns))


def _encoded(source: LogBatch, identity: ProducerIdentity) -> bytes:
    builder = BatchBuilder(codec=Codec(source.header.codec), batch_bytes=MAX_BATCH_BYTES)
    try:
        is_whole = all(
            builder.add(each.key, each.value, each.timestamp_ms, each.headers)
            for each in source.records()
        )
    except ValueError as exc:
        raise _too_large(source, str(exc)) from exc
    if not is_whole:
        raise _too_large(source, "they are too large together")
    data = builder.build(identity)
    if source.header.is_log_append_time:
        header = parse_header(data, 0)
        header = header._replace(attributes=header.attributes | LOG_APPEND_TIME_MASK)
        data = encode_batch(header, memoryview(data)[HEADER_BYTES:])
    return data


def _too_large(source: LogBatch, why: str) -> RefusedError:
    return RefusedError(
        f"{source.segment.path}: position {source.batch.pos}: the records of the batch at offset"
        f" {source.header.base_offset} cannot be encoded as one batch: {why}"
    )


def difference(source: LogBatch, copy: LogBatch, *, has_own_times: bool) -> str:
    """Return the difference between a batch of the destination and its source, "" if there is none.

    Args:
        source: the original batch.
        copy: the batch of the destination.
        has_own_times: its leader sets its own time instead of the timestamps.

    Raises:
        FormatError, AccessError: the records of one of them cannot be decoded.
    """
    if source.own_records is None and copy.own_records is None:
        if _is_same_bytes(source, copy, has_own_times=has_own_times):
            return ""
        if source.header.records_count != copy.header.records_count:
            return (
                f"{source.header.records_count} records in the source,"
                f" {copy.header.records_count} in the destination"
            )
    ours, theirs = source.records(), copy.records()
    if len(ours) != len(theirs):
        return f"{len(ours)} records in the source, {len(theirs)} in the destination"
    names = ["key", "value", "headers"] + ([] if has_own_times else ["timestamp_ms"])
    for one, other in zip(ours, theirs, strict=True):
        for name in names:
            if getattr(one, name) != getattr(other, name):
                return f"{name} of source offset {one.offset}, destination offset {other.offset}"
    is_same_type = source.header.is_log_append_time == copy.header.is_log_append_time
    return "" if is_same_type or has_own_times else "timestamp type"


def _is_same_bytes(source: LogBatch, copy: LogBatch, *, has_own_times: bool) -> bool:
    one, other = source.header, copy.header
    ignored = _ignored(has_own_times=has_own_times)
    is_same = (
        (one.attributes | ignored) == (other.attributes | ignored)
        and one.records_count == other.records_count
        and one.base_timestamp_ms == other.base_timestamp_ms
        and (has_own_times or one.max_timestamp_ms == other.max_timestamp_ms)
    )
    if not is_same or len(source.data) != len(copy.data):
        return False
    return _is_equal(source.data[HEADER_BYTES:], copy.data[HEADER_BYTES:])


def equal_count(source: TableBatches, copy: TableBatches, *, has_own_times: bool) -> int:
    """Return how many of the first batches are equal as bytes. 0: compare them one by one.

    The headers among the copy's bytes are overwritten.
    """
    count = min(len(source), len(copy), source.joined_count, copy.joined_count)
    one, other = (rows_of(each.table, 0, count) for each in (source, copy))
    is_same = one.batch_bytes == other.batch_bytes
    is_same &= one.records_count == other.records_count
    is_same &= one.base_timestamp_ms == other.base_timestamp_ms
    if not has_own_times:
        is_same &= one.max_timestamp_ms == other.max_timestamp_ms
    ignored = _ignored(has_own_times=has_own_times)
    is_same &= (one.attributes | ignored) == (other.attributes | ignored)
    count = count if is_same.all() else int(is_same.argmin())
    if not count:
        return 0
    places = [each.table.pos[:count] - each.first_pos for each in (source, copy)]
    ours, theirs = headers_in(source.data), headers_in(copy.data)
    theirs[places[1]] = ours[places[0]]
    size = int(one.batch_bytes[:count].sum())
    mine, its = (
        each.data[int(pos[0]) : int(pos[0]) + size]
        for each, pos in zip((source, copy), places, strict=True)
    )
    return count if _is_equal(mine, its) else 0


def _is_equal(one: memoryview, other: memoryview) -> bool:
    """Compare two buffers. Python compares views item by item, which takes ten times as long."""
    end = len(one) & -WORD_BYTES
    words, other_words = (np.frombuffer(each[:end], np.uint64) for each in (one, other))
    return np.array_equal(words, other_words) and bytes(one[end:]) == bytes(other[end:])


def _ignored(*, has_own_times: bool) -> int:
    """Return the attributes that may differ in a copy."""
    return TRANSACTIONAL_MASK | (LOG_APPEND_TIME_MASK if has_own_times else 0)
