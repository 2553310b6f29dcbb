"""End markers of control batches, read as recovery reads them (PROD-9).

A broker that replays a log reads the first record of each control batch with a producer id.

    content                                      result
    the batch is empty                           ignored
    ABORT or COMMIT, whole                       a marker
    the record, its key or value does not parse  CorruptError CTL-1, CTL-2, BAT-7. Recovery
                                                 truncates the log after this batch, loads the
                                                 producers' state, reads it again, and ends
    no key, another type, a value that is short  CorruptError BAT-12. It cannot load the log

Sources: ProducerAppendInfo.append, EndTransactionMarker, DefaultRecordBatch.iterator of Kafka
4.3.1. With a short value 4.0 truncates the log.

Summaries, replays and costs of changes follow these rules. For a client, the key of the marker
alone decides the end (`storage.log.decoded_records`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.replay.producer_columns import MarkerColumns
from storage.errors import AccessError, CorruptError, FormatError
from storage.formats.control_record import (
    END_TXN_MARKER_BYTES,
    KEY_BYTES,
    REFUSED_CHECK_ID,
    ControlRecordType,
    parse_control_key,
    parse_end_txn_marker,
)
from storage.formats.record_batch import (
    CONTROL_MASK,
    HEADER_BYTES,
    MAGIC_V2,
    BatchHeader,
)
from storage.kernels.numpy_kernel import batch_at
from storage.kernels.protocol import HeaderTable, ScannedBatch
from storage.kernels.record_table import decode_records
from storage.producers.producer_state import Marker

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.numpy_kernel import BulkWindow, ScanBlock
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import Segment
    from storage.places.log_reader import Block

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

# Errors after which recovery truncates the log after the batch.
CUT_CHECK_IDS = frozenset({"CTL-1", "CTL-2", "BAT-7"})
_MARKER_TYPES = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


def marker_rows(table: HeaderTable) -> Ints:
    """Return rows of control batches with a record and a producer."""
    is_marker = (table.attributes & CONTROL_MASK != 0) & (table.producer_id >= 0)
    return np.flatnonzero(is_marker & (table.magic >= MAGIC_V2) & (table.records_count != 0))


def has_marker(header: BatchHeader) -> bool:
    """Return whether `marker_rows` would return the row of this header."""
    return (
        header.is_control
        and header.producer_id >= 0
        and header.magic >= MAGIC_V2
        and header.records_count != 0
    )


def read_marker(segment: Segment, batch: ScannedBatch) -> Marker:
    """Read the marker of one control batch that is not empty.

    Raises:
        FormatError: as above, with its place in the file. BAT-12 or another rule.
        AccessError: the batch cannot be read.
    """
    # A broker uses one layout for magic 2 and above.
    batch = batch._replace(header=batch.header._replace(magic=MAGIC_V2))
    records = segment.records(batch)
    record = next(records, None)
    if batch.header.records_count == 1 or batch.header.codec:
        for _ in records:  # later records count where a broker reads them
            pass
    if record is None:
        raise _bad("BAT-7", "records count", "> 0", str(batch.header.records_count), segment, batch)
    if record.key is None:
        raise _refused("no key", segment, batch)
    try:
        control_type = parse_control_key(record.key).type
        if control_type not in _MARKER_TYPES:
            raise _refused(f"type {control_type}", segment, batch)
        if record.value is None or len(record.value) < END_TXN_MARKER_BYTES:
            raise _refused("a value that is too short", segment, batch)
        coordinator_epoch = parse_end_txn_marker(record.value).coordinator_epoch
    except FormatError as error:
        if not error.path:
            error.located(segment.path, batch.pos + HEADER_BYTES - error.pos)
        raise
    is_commit = control_type == ControlRecordType.COMMIT
    return Marker(is_commit, coordinator_epoch, record.timestamp_ms)


def _refused(found: str, segment: Segment, batch: ScannedBatch) -> CorruptError:
    what = "a producer's control batch without an end marker: a broker cannot load it"
    return _bad(REFUSED_CHECK_ID, what, "ABORT or COMMIT", found, segment, batch)


def _bad(
    check_id: str, what: str, expected: str, found: str, segment: Segment, batch: ScannedBatch
) -> CorruptError:
    error = CorruptError(what, check_id=check_id, pos=0, expected=expected, found=found)
    return error.located(segment.path, batch.pos)


def read_markers(
    segment: Segment, window: BulkWindow, table: HeaderTable, rows: Ints
) -> tuple[MarkerColumns, tuple[int, FormatError] | None]:
    """Read the markers of the control batches at `rows` of a table, all in one window.

    Returns the markers before the first that does not parse, and its row with the error.
    """
    parts: list[MarkerColumns] = []
    while len(rows):
        taken = HeaderTable._make(column[rows] for column in table)
        records = decode_records(*window.controls(taken))
        columns, good = marker_columns(records, rows)
        parts.append(columns)
        failed = _read_rest(segment, taken, rows, good, parts)
        if failed is not None:
            return _in_order(parts, failed[0]), failed
        rows = rows[records.batch_count :]
    return _in_order(parts, None), None


def read_good_markers(
    segment: Segment, window: BulkWindow, table: HeaderTable, rows: Ints
) -> tuple[MarkerColumns, list[tuple[int, FormatError]]]:
    """Read markers like `read_markers`, but skip bad markers. Return their errors with rows."""
    parts: list[MarkerColumns] = []
    failures: list[tuple[int, FormatError]] = []
    while len(rows):
        markers, failed = read_markers(segment, window, table, rows)
        parts.append(markers)
        if failed is None:
            break
        failures.append(failed)
        rows = rows[rows > failed[0]]
    return MarkerColumns.joined(parts), failures


def block_markers(
    segment: Segment, block: ScanBlock | Block
) -> tuple[MarkerColumns, list[tuple[int, FormatError | AccessError]]]:
    """Read the markers of a block. Skip unreadable markers, and return their errors with rows."""
    failures: list[tuple[int, FormatError | AccessError]] = []
    if block.window is not None:
        rows = marker_rows(block.table)
        markers, malformed = read_good_markers(segment, block.window, block.table, rows)
        failures += malformed
        return markers, failures
    found: list[tuple[int, Marker]] = []
    for row, batch in enumerate(block.singles):
        if batch.crc_ok is not False and has_marker(batch.header):
            try:
                found.append((row, read_marker(segment, batch)))
            except (FormatError, AccessError) as error:
                failures.append((row, error))
    return MarkerColumns.of(found), failures


def marker_columns(records: RecordTable, rows: Ints) -> tuple[MarkerColumns, Flags]:
    """Return the healthy markers, and which of the decoded batches are healthy."""
    batch = np.arange(records.batch_count)
    first = np.minimum(np.searchsorted(records.batch_row, batch), max(records.row_count - 1, 0))
    good = records.is_whole.copy()
    if not records.row_count:
        return MarkerColumns.of(()), np.zeros(len(batch), np.bool_)
    good &= records.batch_row[first] == batch
    good &= records.key_bytes[first] >= KEY_BYTES
    good &= records.value_bytes[first] >= END_TXN_MARKER_BYTES
    first, batch = first[good], batch[good]
    key, value = records.key_pos[first], records.value_pos[first]
    source = records.source
    control_type = _int16(source, key + 2)
    healthy = (_int16(source, key) >= 0) & (_int16(source, value) >= 0)
    healthy &= np.isin(control_type, _MARKER_TYPES)
    good[batch[~healthy]] = False
    batch, first, value = batch[healthy], first[healthy], value[healthy]
    epoch = (_int16(source, value + 2) << 16) | (_int16(source, value + 4) & 0xFFFF)
    columns = MarkerColumns(
        row=rows[batch],
        is_commit=control_type[healthy] == ControlRecordType.COMMIT,
        coordinator_epoch=epoch.astype(np.int32),
        timestamp_ms=records.timestamp_ms[first],
    )
    return columns, good


def _int16(source: NDArray[np.uint8], pos: Ints) -> Ints:
    """Read a big-endian int16 at each position."""
    high: Ints = source[pos].astype(np.int8).astype(np.int64)
    return (high << 8) | source[pos + 1]


def _read_rest(
    segment: Segment, taken: HeaderTable, rows: Ints, good: Flags, parts: list[MarkerColumns]
) -> tuple[int, FormatError] | None:
    """Read the remaining markers one by one. Stop at the first that does not parse."""
    found: list[tuple[int, Marker]] = []
    failed = None
    for place in np.flatnonzero(~good).tolist():
        row = int(rows[place])
        try:
            found.append((row, read_marker(segment, batch_at(taken, place))))
        except FormatError as error:
            failed = row, error
            break
    parts.append(MarkerColumns.of(found))
    return failed


def _in_order(parts: list[MarkerColumns], end_row: int | None) -> MarkerColumns:
    """Sort markers by row, and keep the markers before `end_row`."""
    joined = MarkerColumns.joined(parts)
    order = np.argsort(joined.row, kind="stable")
    if end_row is not None:
        order = order[joined.row[order] < end_row]
    return MarkerColumns._make(column[order] for column in joined)
