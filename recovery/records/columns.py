"""Records as Arrow columns: from decoded tables without a step per record, or from single records.

The columns:

    column                  type     meaning
    broker                  string  the node id of the replica, else its place
                                    (`storage.places.list_places`)
    topic                   string
    partition               int32
    directory               string  of the partition
    path                    string  of the segment
    offset                  int64
    timestamp_ms            int64   as a consumer sees it. -1: none
    timestamp_type          string  CreateTime, LogAppendTime. null in message format 0
    key, value              binary  null and empty are different
    headers                 list    of structs of key and value, both binary. A key may be
                                    invalid UTF-8, which a consumer reads with losses
    batch_base_offset       int64   of the batch, or of the first record in a compressed
                                    legacy message
    partition_leader_epoch  int32   -1: none, as in the next three
    producer_id             int64
    producer_epoch          int16
    sequence                int32   of the record
    is_transactional        bool
    outcome                 string  committed (also without a transaction), aborted, open, unknown
    codec                   string  none, gzip, snappy, lz4, zstd
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from recovery.records.piece_reader import PieceReader
from recovery.records.read_options import OUTCOMES, RECORD_COLUMNS, ReadOptions
from storage.errors import UsageError
from storage.formats.compression import Codec
from storage.formats.record_batch import CODEC_MASK, LOG_APPEND_TIME_MASK, TRANSACTIONAL_MASK
from storage.limits import as_int64
from storage.places.list_places import open_place
from storage.value_pieces import LARGE_BYTES, is_large

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from recovery.records.read_options import DecodedBatch
    from storage.kernels.protocol import HeaderTable
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord, Segment
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split

    Ints = NDArray[np.int64]
    Kinds = NDArray[np.int8]


HEADERS_TYPE = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
TYPES = {
    "broker": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "directory": pa.string(),
    "path": pa.string(),
    "offset": pa.int64(),
    "timestamp_ms": pa.int64(),
    "timestamp_type": pa.string(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS_TYPE,
    "batch_base_offset": pa.int64(),
    "partition_leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "sequence": pa.int32(),
    "is_transactional": pa.bool_(),
    "outcome": pa.string(),
    "codec": pa.string(),
}
PLACE_COLUMNS = RECORD_COLUMNS[:5]
CONTENT_COLUMNS = ("key", "value", "headers")

_OUTCOME_NAMES = [str(OUTCOMES[kind]) for kind in sorted(OUTCOMES)]
_CODEC_NAMES = [each.label for each in Codec]
_TIMESTAMP_TYPES = ["CreateTime", "LogAppendTime"]


def record_schema(columns: Sequence[str] = RECORD_COLUMNS) -> pa.Schema:
    """Return the Arrow schema of some columns, in the order given.

    Raises:
        UsageError: a column is unknown or given twice, or there is none.
    """
    for name in columns:
        if name not in TYPES or list(columns).count(name) > 1:
            what = "given twice" if name in TYPES else "no column of records"
            raise UsageError(f"{name}: {what}", next_step=f"columns: {', '.join(TYPES)}")
    if not columns:
        raise UsageError("no column given", next_step=f"columns: {', '.join(TYPES)}")
    return pa.schema([(name, TYPES[name]) for name in columns])


class ColumnBuilder:
    """A builder of Arrow record batches with some columns, for the records of one segment."""

    def __init__(self, place: SegmentPlace, columns: Sequence[str]) -> None:
        self.schema = record_schema(columns)
        self.has_content = any(name in CONTENT_COLUMNS for name in columns)
        self._names = tuple(columns)
        self._place = {name: getattr(place, name) for name in PLACE_COLUMNS}

    def from_table(
        self, table: HeaderTable, outcome: Kinds, records: RecordTable, chosen: Ints | None
    ) -> pa.RecordBatch:
        """Build from decoded batches.

        Args:
            table: the headers of the batches.
            outcome: of each batch: COMMIT, ABORT, UNKNOWN, or NO_MARKER if it is open.
            records: the records of the batches.
            chosen: the rows of the wanted records, ascending. None: all.
        """
        rows = _TableRows(table, outcome, records, chosen)
        return self._batch(rows.row_count, rows.column)

    def from_batches(self, batches: Sequence[DecodedBatch]) -> pa.RecordBatch:
        """Build from single records."""
        rows = _SingleRows(batches)
        return self._batch(rows.row_count, rows.column)

    def _batch(self, row_count: int, column: Callable[[str], Any]) -> pa.RecordBatch:
        arrays = [
            pa.repeat(pa.scalar(self._place[name], TYPES[name]), row_count)
            if name in self._place
            else column(name)
            for name in self._names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _TableRows:
    def __init__(
        self, table: HeaderTable, outcome: Kinds, records: RecordTable, chosen: Ints | None
    ) -> None:
        self._table = table
        self._outcome = outcome
        self._records = records
        self._chosen = chosen
        self._batch_row = self._of_record("batch_row")
        self.row_count = len(self._batch_row)

    def column(self, name: str) -> Any:
        records, kind = self._records, TYPES[name]
        if name in {"key", "value"}:
            pos, size = self._of_record(f"{name}_pos"), self._of_record(f"{name}_bytes")
            return binary_array(records.source, pos, size)
        if name == "headers":
            return self._headers()
        if name in {"offset", "timestamp_ms", "sequence"}:
            return pa.array(self._of_record(name).astype(kind.to_pandas_dtype(), copy=False))
        attributes = self._table.attributes
        by_batch: dict[str, Callable[[], Any]] = {
            "batch_base_offset": lambda: self._table.base_offset,
            "is_transactional": lambda: (attributes & TRANSACTIONAL_MASK) != 0,
            "timestamp_type": lambda: (attributes & LOG_APPEND_TIME_MASK) != 0,
            "outcome": lambda: self._outcome,
            "codec": lambda: attributes & CODEC_MASK,
        }
        of_batch = by_batch[name]() if name in by_batch else getattr(self._table, name)
        values = of_batch[self._batch_row]
        if kind == pa.string():
            words = {"outcome": _OUTCOME_NAMES, "codec": _CODEC_NAMES}.get(name, _TIMESTAMP_TYPES)
            return pa.array(words).take(pa.array(values.astype(np.int8)))
        return pa.array(values)

    def _of_record(self, name: str) -> Ints:
        values: Ints = getattr(self._records, name)
        return values if self._chosen is None else values[self._chosen]

    def _headers(self) -> Any:
        records = self._records
        counts = self._of_record("headers_count")
        wanted: Any = slice(None)
        if self._chosen is not None:
            is_chosen = np.zeros(records.row_count, np.bool_)
            is_chosen[self._chosen] = True
            wanted = is_chosen[records.header_record]
        fields = [
            binary_array(
                records.source,
                getattr(records, f"header_{name}_pos")[wanted],
                getattr(records, f"header_{name}_bytes")[wanted],
            )
            for name in ("key", "value")
        ]
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        inside = pa.StructArray.from_arrays(fields, fields=list(HEADERS_TYPE.value_type))
        return pa.ListArray.from_arrays(pa.array(offsets), inside)


def binary_array(source: NDArray[np.uint8], pos: Ints, size: Ints) -> Any:
    """Copy ascending, separate stretches of `source` into a binary array.

    A negative size is null, at any position. Arrow does the copying: an array over `source` has the
    stretches and the gaps between them as neighbours. Every other value is taken.
    """
    count = len(pos)
    if not count:
        return pa.array([], pa.binary())
    if count == 1 and size[0] > LARGE_BYTES:  # without a copy
        return _one_value(source[pos[0] : pos[0] + size[0]])
    ends = np.empty(2 * count, np.int32)
    ends[0::2] = pos
    ends[1::2] = pos + np.maximum(size, 0)
    is_null = size < 0
    mask = is_null if is_null.any() else None
    if mask is not None:
        ends[0::2][mask] = ends[1::2][mask] = 0
        np.maximum.accumulate(ends, out=ends)  # the end of the previous stretch
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(source)]
    stretches = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return stretches.take(pa.array(np.arange(0, 2 * count, 2), mask=mask))


def _one_value(value: bytes | NDArray[np.uint8]) -> Any:
    """Return an array of one value without copying it."""
    ends = pa.py_buffer(np.array([0, len(value)], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(value)])


class _SingleRows:
    def __init__(self, batches: Sequence[DecodedBatch]) -> None:
        self._batches = batches
        self.row_count = sum(len(each.records) for each in batches)

    def column(self, name: str) -> Any:
        if name in _OF_RECORD:
            of_record = _OF_RECORD[name]
            if self.row_count == 1 and name in {"key", "value"}:
                value = of_record(self._batches[0].records[0])
                if is_large(value):
                    return _one_value(value)
            values = [of_record(record) for each in self._batches for record in each.records]
        else:
            of_batch = _OF_BATCH[name]
            values = []
            for each in self._batches:
                values += [of_batch(each)] * len(each.records)
        return pa.array(values, TYPES[name])


def _timestamp_type(batch: DecodedBatch) -> str | None:
    if batch.header.magic == 0:
        return None
    return _TIMESTAMP_TYPES[batch.header.is_log_append_time]


_OF_RECORD: dict[str, Callable[[LogRecord], Any]] = {
    "offset": lambda record: as_int64(record.offset),
    "timestamp_ms": lambda record: record.timestamp_ms,
    "sequence": lambda record: record.sequence,
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "headers": lambda record: [each._asdict() for each in record.headers],
}
_OF_BATCH: dict[str, Callable[[DecodedBatch], Any]] = {
    "timestamp_type": _timestamp_type,
    "batch_base_offset": lambda batch: batch.base_offset,
    "partition_leader_epoch": lambda batch: batch.header.partition_leader_epoch,
    "producer_id": lambda batch: batch.header.producer_id,
    "producer_epoch": lambda batch: batch.header.producer_epoch,
    "is_transactional": lambda batch: batch.header.is_transactional,
    "outcome": lambda batch: str(OUTCOMES[batch.outcome]),
    "codec": lambda batch: _CODEC_NAMES[batch.header.codec],
}


# -- read the records of a piece of a segment as Arrow record batches; see `piece_reader`


class RecordReader(PieceReader[pa.RecordBatch]):
    """The Arrow record batches of a piece. Iterate once.

    Attributes:
        schema: of the record batches.
    """

    def __init__(
        self,
        split: Split,
        options: ReadOptions | None = None,
        *,
        opener: Callable[[SegmentPlace], Segment] = open_place,
    ) -> None:
        """Use `opener` for tests and special devices. Raises UsageError for unknown columns."""
        options = ReadOptions() if options is None else options
        builder = ColumnBuilder(split.place, options.columns)
        super().__init__(split, options, builder, opener=opener)
        self.schema = builder.schema
