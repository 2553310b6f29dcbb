"""Columns of eoctl's data sources, with the types of Spark and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from eoctl.spark.rows.source_options import SourceOptions
    from recovery.records.piece_reader import PieceCounts
    from storage.kernels.protocol import HeaderTable
    from storage.places.listing import Listing, SegmentPlace
    from storage.places.log_reader import ReadFinding
    from storage.places.splits import Split

# Columns and their Spark types. The first columns are a SegmentPlace.
PLACE_COLUMNS = {
    "broker": "string",
    "topic": "string",
    "partition": "int",
    "directory": "string",
    "path": "string",
}
BATCH_COLUMNS = {
    **PLACE_COLUMNS,
    "pos": "bigint",
    "batch_bytes": "bigint",
    "base_offset": "bigint",
    "last_offset": "bigint",
    "partition_leader_epoch": "int",
    "magic": "tinyint",
    "attributes": "smallint",
    "base_timestamp_ms": "bigint",
    "max_timestamp_ms": "bigint",
    "producer_id": "bigint",
    "producer_epoch": "smallint",
    "base_sequence": "int",
    "records_count": "int",
    "crc": "bigint",
    "crc_ok": "boolean",
}
SEGMENT_COLUMNS = {
    **PLACE_COLUMNS,
    "start_pos": "bigint",
    "end_pos": "bigint",
    "batches": "bigint",
    "control_batches": "bigint",
    "batch_bytes": "bigint",
    "records": "bigint",
    "committed_records": "bigint",
    "aborted_records": "bigint",
    "open_records": "bigint",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "findings": "bigint",
}
FINDING_COLUMNS = {
    **PLACE_COLUMNS,
    "finding": "string",
    "check_id": "string",
    "start_pos": "bigint",
    "end_pos": "bigint",
    "base_offset": "bigint",
    "last_offset": "bigint",
    "reason": "string",
}
AUDIT_COLUMNS = {
    **{name: PLACE_COLUMNS[name] for name in ("broker", "topic", "partition", "directory")},
    "segment": "int",  # number of the segment in its directory, from 0 on
    "split": "binary",
    "piece": "binary",
}

# For a stream: the offsets of the split that count, without a segment number.
AUDIT_STREAM_COLUMNS = {
    **{name: each for name, each in AUDIT_COLUMNS.items() if name != "segment"},
    "from_offset": "bigint",
    "to_offset": "bigint",
}


def ddl_of(columns: Mapping[str, str]) -> str:
    """Return a schema in Spark's DDL."""
    return ", ".join(f"`{name}` {type_name}" for name, type_name in columns.items())


def ddl_of_records(columns: Sequence[str]) -> str:
    """Return the schema of record columns in Spark's DDL."""
    import pyarrow as pa

    from recovery.records.columns import record_schema

    types = {
        pa.string(): "string",
        pa.int16(): "smallint",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.bool_(): "boolean",
        pa.binary(): "binary",
    }
    headers = "array<struct<key: binary, value: binary>>"
    return ddl_of({each.name: types.get(each.type, headers) for each in record_schema(columns)})


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the same schema for Arrow. Spark's own translation would need its JVM."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
    }
    return pa.schema([(name, types[type_name]) for name, type_name in columns.items()])


def batch_rows(place: SegmentPlace, table: HeaderTable) -> pa.RecordBatch:
    """Return the rows of kafka-log-batches."""
    import pyarrow as pa

    schema = arrow_schema(BATCH_COLUMNS)
    constants = [getattr(place, name) for name in PLACE_COLUMNS]
    fields = list(schema)
    columns = [
        pa.repeat(pa.scalar(value, field.type), table.row_count)
        for value, field in zip(constants, fields, strict=False)
    ]
    columns += [
        pa.array(column).cast(field.type)
        for column, field in zip(table, fields[len(constants) :], strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def segment_row(split: Split, found: PieceCounts) -> pa.RecordBatch:
    """Return the row of kafka-log-segments for a piece."""
    records = found.records
    row = {
        **{name: getattr(split.place, name) for name in PLACE_COLUMNS},
        "start_pos": split.start_pos,
        "end_pos": split.end_pos,
        "batches": found.batches,
        "control_batches": found.control_batches,
        "batch_bytes": found.batch_bytes,
        "records": records.records,
        "committed_records": records.committed,
        "aborted_records": records.aborted,
        "open_records": records.open,
        "first_offset": records.first_offset,
        "last_offset": records.last_offset,
        "findings": found.findings,
    }
    return rows_of(SEGMENT_COLUMNS, [[row[name] for name in SEGMENT_COLUMNS]])


def finding_rows(place: SegmentPlace, findings: Iterable[ReadFinding]) -> pa.RecordBatch:
    """Return the rows of kafka-log-findings."""
    constants = [getattr(place, name) for name in PLACE_COLUMNS if name != "path"]
    rows = [
        (
            *constants,
            each.path,
            str(each.kind),
            each.check_id or None,
            each.start_pos,
            each.end_pos,
            each.base_offset,
            each.last_offset,
            each.reason,
        )
        for each in findings
    ]
    return rows_of(FINDING_COLUMNS, rows)


def problem_rows(listing: Listing) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of kafka-log-findings for unlisted directories."""
    known = {
        each.directory: (each.broker, each.topic, each.partition, each.directory)
        for each in listing.directories
    }
    unknown = (None,) * 4
    for each in listing.problems:
        path = getattr(each, "path", "") or None
        place = known.get(path or "") or known.get((path or "").rpartition("/")[0]) or unknown
        check_id = getattr(each, "check_id", None) or None
        kind = "unreadable" if isinstance(each, AccessError) else "corrupt"
        yield (*place, path, kind, check_id, *unknown, str(each))


def empty_rows(listing: Listing, options: SourceOptions) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of kafka-log-findings for empty directories that had offsets."""
    filled = {each.directory for each in listing.places}
    for each in listing.directories:
        if each.directory not in filled and options.kafka.choice.holds(each):
            for missing in listing.acknowledged_of(each.directory).not_given(None):
                place = (each.broker, each.topic, each.partition, each.directory, each.directory)
                offsets = (None, None, missing.base_offset, missing.last_offset)
                yield (*place, "missing", missing.check_id, *offsets, str(missing))


def rows_of(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Turn rows into an Arrow batch."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    values = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
