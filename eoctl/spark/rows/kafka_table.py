"""Records as the table of Spark's own Kafka source, so that a query moves over unchanged.

Columns, types and what is null are those of KafkaRecordToRowConverter: `headers` are there with
`includeHeaders` only, and null for a record without any; the type of a timestamp is its number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.formats.java_text import kafka_text
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    import pyarrow as pa

KAFKA_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS_COLUMN = {"headers": "array<struct<key: string, value: binary>>"}
# TimestampType.id of kafka-clients; a record of message format 0 has none.
_TIMESTAMP_TYPE_IDS = {"CreateTime": 0, "LogAppendTime": 1}
_NO_TIMESTAMP_TYPE = -1
_US_PER_MS = 1000
_MAX_TIMESTAMP_MS = INT64_MAX // _US_PER_MS - 1


def kafka_columns(*, has_headers: bool) -> dict[str, str]:
    """Return columns and their Spark types."""
    return {**KAFKA_COLUMNS, **(HEADERS_COLUMN if has_headers else {})}


def source_columns(*, has_headers: bool) -> tuple[str, ...]:
    """Return the columns of `kafka-log-records` that the table is made from."""
    names = ("key", "value", "topic", "partition", "offset", "timestamp_ms", "timestamp_type")
    return (*names, "headers") if has_headers else names


def kafka_rows(records: pa.RecordBatch) -> pa.RecordBatch:
    """Turn rows of `source_columns` into rows of `kafka_columns`."""
    import pyarrow as pa

    arrays: dict[str, Any] = {
        name: records.column(name) for name in ("key", "value", "topic", "partition", "offset")
    }
    arrays["timestamp"] = _timestamps(records.column("timestamp_ms"))
    arrays["timestampType"] = _timestamp_types(records.column("timestamp_type"))
    if "headers" in records.schema.names:
        arrays["headers"] = _headers(records.column("headers"))
    return pa.RecordBatch.from_pydict(arrays)


def _timestamps(timestamp_ms: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    # A timestamp that no calendar holds is given as the last one, or the first, that Spark has.
    values = timestamp_ms.to_numpy()
    bounded = np.clip(values, -_MAX_TIMESTAMP_MS, _MAX_TIMESTAMP_MS)
    return pa.array(bounded * _US_PER_MS).cast(pa.timestamp("us", tz="UTC"))


def _timestamp_types(names: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.index_in(names, value_set=pa.array(list(_TIMESTAMP_TYPE_IDS)))
    return pc.fill_null(numbers, _NO_TIMESTAMP_TYPE)


def _headers(headers: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    inside = headers.flatten()
    # What a Java consumer makes of bytes that are no UTF-8.
    keys = pa.array([kafka_text(key) for key in inside.field("key").to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([keys, inside.field("value")], names=["key", "value"])
    counts = pc.list_value_length(headers)
    offsets = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(counts).cast(pa.int32())]
    )
    return pa.ListArray.from_arrays(offsets, pairs, mask=pc.equal(counts, 0))
