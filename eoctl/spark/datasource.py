"""Python data sources over log directories: one row per batch, or one audit per segment.

  kafka-log-batches   the headers of all batches, whatever their checksum (`crc_ok` tells)
  kafka-log-audit     a row per segment: counts that `eoctl.spark.audit` joins per partition

Options
  path        a log dir, a partition directory or a file in one of them; also what load() is given
  paths       several of them, as a JSON list; load([...]) sets it
  pack_bytes  small segments share a task up to this many bytes (default 32 MiB)

Rows come out of the reader as Arrow batches. A segment that is damaged, cannot be read or has gone
since the listing never fails a job: for batches its rows are missing, for audits its row says so.
The directories must be reachable under the same path on every executor.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from recovery.audit import UNSEQUENCED_TOPICS
from storage.errors import AccessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from storage.kernels.protocol import HeaderTable

DEFAULT_PACK_BYTES = 32 << 20

# Columns and their Spark types.
PLACE_COLUMNS = {
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
AUDIT_COLUMNS = {
    **PLACE_COLUMNS,
    "segment_base_offset": "bigint",
    "is_active": "boolean",
    "audit": "binary",
    "problems_count": "int",
    "notes": "array<string>",
    "is_corrupt": "boolean",
    "is_unreadable": "boolean",
}


def ddl_of(columns: Mapping[str, str]) -> str:
    """Return a schema in Spark's words."""
    return ", ".join(f"{name} {type_name}" for name, type_name in columns.items())


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the same schema for Arrow; Spark's own translation would need its JVM."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "array<string>": pa.list_(pa.string()),
    }
    return pa.schema([(name, types[type_name]) for name, type_name in columns.items()])


class SegmentPlace(NamedTuple):
    """One segment of a partition directory."""

    topic: str
    partition: int
    directory: str
    path: str
    base_offset: int
    is_active: bool

    @property
    def has_sequences(self) -> bool:
        """Sequence rules hold in its topic (PROD-12)."""
        return self.topic not in UNSEQUENCED_TOPICS


@dataclass
class SegmentsInput(InputPartition):
    """The segments of one task."""

    places: tuple[SegmentPlace, ...]


class KafkaLogBatches(DataSource):
    """The headers of all batches."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-log-batches"

    def schema(self) -> str:
        """Return the columns."""
        return ddl_of(BATCH_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        del schema
        return BatchesReader(self.options)


class KafkaLogAudit(DataSource):
    """A row per segment with its audit, packed."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafka-log-audit"

    def schema(self) -> str:
        """Return the columns."""
        return ddl_of(AUDIT_COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        del schema
        return AuditReader(self.options)


class SegmentsReader(DataSourceReader):
    """Plans tasks over segments; what a task gives is up to the class."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.paths = paths_of(options)
        self.pack_bytes = int(options.get("pack_bytes", DEFAULT_PACK_BYTES))

    def partitions(self) -> Sequence[InputPartition]:
        """List the directories; a task for each large segment, or for several small ones."""
        return [
            SegmentsInput(places) for places in pack(list_segments(self.paths), self.pack_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of a task."""
        if isinstance(partition, SegmentsInput):
            for place in partition.places:
                yield from self.read_segment(place)

    def read_segment(self, place: SegmentPlace) -> Iterator[pa.RecordBatch]:
        """Give the rows of a segment."""
        raise NotImplementedError


class BatchesReader(SegmentsReader):
    """Reads the headers of batches."""

    def read_segment(self, place: SegmentPlace) -> Iterator[pa.RecordBatch]:
        """Give a row per batch; nothing if the file cannot be opened."""
        from storage.segment import open_segment

        try:
            segment = open_segment(place.path, base_offset=place.base_offset)
        except AccessError:
            return
        with segment:
            for table in segment.scan_tables(is_active=place.is_active):
                yield _batch_rows(place, table)


class AuditReader(SegmentsReader):
    """Counts over segments where they are read: only sums leave the task."""

    def read_segment(self, place: SegmentPlace) -> Iterator[pa.RecordBatch]:
        """Give the row of a segment; none if it has gone since the listing."""
        from errno import ENOENT

        from recovery.audit import PieceAudit, pack_audit
        from recovery.segment_audit import SegmentAudit, audit_segment

        try:
            found = audit_segment(
                place.path,
                base_offset=place.base_offset,
                is_active=place.is_active,
                has_sequences=place.has_sequences,
            )
        except AccessError as exc:
            is_gone = exc.errno == ENOENT
            note = f"{place.path}: removed since the directory was listed" if is_gone else str(exc)
            found = SegmentAudit(
                PieceAudit(),
                problems_count=0 if is_gone else 1,
                notes=(note,),
                is_corrupt=False,
                is_unreadable=not is_gone,
            )
        values = (
            *place,
            pack_audit(found.audit),
            found.problems_count,
            list(found.notes),
            found.is_corrupt,
            found.is_unreadable,
        )
        yield _one_row(values)


def paths_of(options: Mapping[str, str]) -> list[str]:
    """Return the directories that the options name.

    Raises:
        UsageError: none, or `paths` is no JSON list of strings.
    """
    paths = [options["path"]] if options.get("path") else []
    if options.get("paths"):
        try:
            more = json.loads(options["paths"])
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(each, str) for each in more):
            raise UsageError("option paths: not a JSON list of strings")
        paths += more
    if not paths:
        raise UsageError("no directory given", next_step='.load("DIR") or .option("paths", JSON)')
    return paths


def list_segments(paths: Iterable[str]) -> list[tuple[SegmentPlace, int]]:
    """Return the segments behind the paths, with their sizes, by directory and base offset.

    What cannot be listed is left out, as are names that no Spark string can hold.
    """
    from storage.discovery import discover
    from storage.partition import Partition

    found = []
    for selected in discover(paths).selected:
        if not is_text(selected.partition.path):
            continue
        try:
            partition = Partition.of(selected)
        except AccessError:
            continue
        for files in partition.segments:
            place = SegmentPlace(
                topic=partition.topic,
                partition=partition.partition,
                directory=partition.path,
                path=files.log.path,
                base_offset=files.base_offset,
                is_active=partition.is_active(files),
            )
            found.append((place, files.log.file_bytes))
    return found


def is_text(path: str) -> bool:
    """Is the path valid UTF-8, as every Spark string must be?"""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def pack(
    segments: Iterable[tuple[SegmentPlace, int]], pack_bytes: int
) -> Iterator[tuple[SegmentPlace, ...]]:
    """Put neighbours together as long as they are not larger than `pack_bytes` in sum."""
    places: list[SegmentPlace] = []
    sum_bytes = 0
    for place, file_bytes in segments:
        if places and sum_bytes + file_bytes > pack_bytes:
            yield tuple(places)
            places, sum_bytes = [], 0
        places.append(place)
        sum_bytes += file_bytes
    if places:
        yield tuple(places)


def _batch_rows(place: SegmentPlace, table: HeaderTable) -> pa.RecordBatch:
    import pyarrow as pa

    schema = arrow_schema(BATCH_COLUMNS)
    constants = place[: len(PLACE_COLUMNS)]
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


def _one_row(values: Sequence[Any]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = arrow_schema(AUDIT_COLUMNS)
    columns = [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
