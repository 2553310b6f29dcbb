"""Python data sources over log directories.

- `kafka-log-batches`: headers of all batches, with any checksum (`crc_ok` has the result).
- `kafka-log-records`: records with key, value, headers and the outcome of their transaction.
- `kafka-log-segments`: a row for each segment or piece, with its numbers of batches and records.
- `kafka-log-findings`: stretches that are corrupt or unreadable, directories that cannot be listed,
  and offsets without a batch.
- `kafka-log-audit`: a row per split with its packed summary. `eoctl.spark.audit` joins them.
- `kafka-log-audit-stream`: the same rows in a stream. `eoctl.spark.running_audit` joins them.

Options:

- `path`, `paths`: the argument of load(): log dirs, partition directories or files in them. Paths
  are local or URIs, with wildcards, and several paths are a JSON list. A relative path starts at
  the working directory of Spark's planning, which may be anywhere.
- `split_bytes`: size of the pieces of large segments. Tasks prove that a batch begins at each piece
  (default: 128 MiB to 1 GiB, for 20,000 pieces in all).
- `task_bytes`: small pieces share a task up to this size (default 32 MiB).
- `failOnDataLoss`: `true` (default) fails the query if a planned segment is missing, or if a path
  cannot be listed or opened. `false` gives no rows for it, and a warning in the log of the process.
- `isolation`: read_uncommitted (default) or read_committed, for records. read_committed begins at
  the log start offset, unless from_offset is given.
- `until`: for records: log-end (default), or hw, the high watermark in the log dir's checkpoint. If
  it is unknown (behind URIs), the log end.
- `columns`: for records: the decoded columns, with commas (default: all).
- `from_offset`, `to_offset`: bounds of records, the second excluded. For batches, bounds of the
  data that is read.
- `from_time_ms`, `to_time_ms`: the same for timestamps.
- `schema`: for records: log (default) or kafka, the columns of Spark's Kafka source.
- `startingOffsets` and others, for records, with Kafka's names: see
  `eoctl.spark.rows.kafka_options`.
- `push_filters`: true uses filters of the query to choose files, and parts of files (batches and
  records). The filters are on broker, topic, partition, directory, path, offsets and timestamp_ms.
  Spark 4.1 or later does it if spark.sql.python.filterPushdown.enabled is true, and fails
  otherwise.

An unknown option is an error, because it may have been meant to leave data out.

The reader returns rows as Arrow batches. No content of a file fails a job. Damaged data has no
rows, but is a row of kafka-log-findings. A path that cannot be listed or opened fails the job,
unless failOnDataLoss is false. A job also fails if a segment changes that several tasks read
(`storage.places.splits`), or if a planned segment is missing. Every executor must reach the
directories under the same path.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from importlib.util import find_spec
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import eoctl.spark.own_packages  # isort: skip - says what is missing before the rest fails to import

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

import eoctl.arrow_files
from eoctl.spark.executors import make_ready
from eoctl.spark.rows.columns import (
    AUDIT_COLUMNS,
    AUDIT_STREAM_COLUMNS,
    BATCH_COLUMNS,
    FINDING_COLUMNS,
    SEGMENT_COLUMNS,
    ddl_of,
    ddl_of_records,
    empty_rows,
    finding_rows,
    problem_rows,
    rows_of,
)
from eoctl.spark.rows.gc_freeze import keep_modules
from eoctl.spark.rows.kafka_options import kafka_columns, value_of
from eoctl.spark.rows.missing_segments import needed_by_query, require_listed
from eoctl.spark.rows.record_plan import (
    cut_in_tasks,
    piece_bytes,
    plan_records,
    prune_whole,
    pruned,
)
from eoctl.spark.rows.source_options import (
    AUDIT_STREAM_OPTIONS,
    BATCH_OPTIONS,
    PLACE_OPTIONS,
    RECORD_OPTIONS,
    SEGMENT_OPTIONS,
    STREAM_OPTIONS,
    TableKind,
    Wanted,
    by_place,
    parse_options,
    parse_stream,
    read_splits,
    refuse_stream_options,
    wants_filters,
)
from eoctl.spark.rows.task_rows import (
    SplitsInput,
    batch_header_rows,
    count_rows,
    read_piece,
    record_rows,
    uncounted_row,
)
from recovery.audit.local_workers import tasks_of
from recovery.export.plan import Until
from storage.errors import UsageError
from storage.places.splits import plan_places, proven, segment_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from eoctl.spark.rows.missing_segments import Needed
    from eoctl.spark.rows.source_options import ReadBounds, SourceOptions
    from eoctl.spark.streaming.reader import LogStreamReader
    from recovery.summaries.segment import PieceSummary
    from storage.places.listing import Listing
    from storage.places.log_reader import ReadFinding
    from storage.places.splits import Split

__all__ = ["SOURCES", "register"]
_IMPORTED_FOR_THEIR_EFFECT = (eoctl.spark.own_packages, eoctl.arrow_files)


class SplitsReader(DataSourceReader):
    """Reader that plans tasks over splits. Subclasses define the rows of a task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = parse_options(options)
        self.wanted = Wanted()

    def bounds(self) -> ReadBounds:
        """Return the bounds of the options and the filters."""
        return self.options.bounds.narrowed(self.wanted.bounds)

    @property
    def needed(self) -> Needed:
        """The effect of a missing or unreadable segment on the query."""
        return needed_by_query(self.options.kafka)

    def listed(self) -> tuple[list[Split], Listing | None]:
        """List the chosen segments.

        Raises:
            UnopenedError: a part cannot be listed, and failOnDataLoss is not false.
        """
        splits, listing = read_splits(self.options, self.wanted)
        if listing is not None:
            require_listed(self.options, listing)
        return splits, listing

    def partitions(self) -> Sequence[InputPartition]:
        """List the directories, and plan a task per large piece or for several small pieces."""
        splits, listing = self.listed()
        splits = prune_whole(splits, self.bounds(), len(splits))
        splits = cut_in_tasks(self.options, splits, listing)
        # This object goes to each task, so data for planning alone is removed.
        self.options = self.options._replace(splits=None)
        return [SplitsInput(tuple(task)) for task in tasks_of(splits, self.options.task_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        if isinstance(partition, SplitsInput):
            yield from self.read_task(partition)
        keep_modules()

    def read_task(self, task: SplitsInput) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the splits of a task."""
        for split in task.splits:
            yield from self.read_split(split)

    @abstractmethod
    def read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""


class BatchesReader(SplitsReader):
    """Reader of the headers of batches."""

    def read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield a row per batch."""
        rows = partial(batch_header_rows, needed=self.needed)
        yield from read_piece(split, self.bounds(), rows, needed=self.needed)


class RecordsReader(SplitsReader):
    """Reader of records."""

    def partitions(self) -> Sequence[InputPartition]:
        """Plan as for batches. read_committed also finds each partition's last stable offset."""
        splits, listing = self.listed()
        reads = plan_records(self.options, self.bounds(), splits, listing)
        splits = cut_in_tasks(self.options, pruned(splits, reads), listing)
        self.options = self.options._replace(splits=None)
        return [
            SplitsInput(tuple(task), reads=tuple(reads[each.place.directory] for each in task))
            for task in tasks_of(splits, self.options.task_bytes)
        ]

    def read_task(self, task: SplitsInput) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task."""
        for split, read in zip(task.splits, task.reads, strict=True):
            rows = partial(record_rows, self.options, read=read, needed=self.needed)
            yield from read_piece(split, read.bounds, rows, needed=self.needed)

    def read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield no rows, because `read_task` has the options of each split."""
        del split
        yield from ()


class SegmentsReader(RecordsReader):
    """Reader that counts the records of each piece in the task, one row per piece."""

    def read_task(self, task: SplitsInput) -> Iterator[pa.RecordBatch]:
        """Yield the counts of a task."""
        for split, read in zip(task.splits, task.reads, strict=True):
            rows = partial(count_rows, self.options, read=read, needed=self.needed)
            yield from read_piece(
                split, read.bounds, rows, needed=self.needed, unopened=uncounted_row
            )


class _Pushing(SplitsReader):
    """Reader that gets the query's filters from Spark. It fails if the pushdown is switched off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters as hints. Spark applies all of them to the rows."""
        self.wanted.take(filters)
        return filters


class PushedBatchesReader(_Pushing, BatchesReader):
    """Reader of the headers of batches that match the filters."""


class PushedRecordsReader(_Pushing, RecordsReader):
    """Reader of records that match the filters."""


class PushedSegmentsReader(_Pushing, SegmentsReader):
    """Reader of counts in segments that match the filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take only filters on places. A filter on counts must not change the counts."""
        self.wanted.take(by_place(filters))
        return filters


class FindingsReader(SplitsReader):
    """Reader that searches segments for damage."""

    def partitions(self) -> Sequence[InputPartition]:
        """Plan whole segments, because damage is judged with its surroundings.

        One task reads the whole directory of a topic that may be compacted, because any batch may
        explain absent offsets. Another task has directories that cannot be listed or are empty.
        """
        splits, listing = read_splits(self.options, self.wanted)
        if listing is None:
            return [SplitsInput(tuple(task)) for task in tasks_of(splits, self.options.task_bytes)]
        tasks: list[InputPartition] = [*_findings_tasks(splits, listing, self.options.task_bytes)]
        problems = (*problem_rows(listing), *empty_rows(listing, self.options))
        if problems:
            tasks.append(SplitsInput((), problems=problems))
        return tasks

    def read_task(self, task: SplitsInput) -> Iterator[pa.RecordBatch]:
        """Yield the findings of a task."""
        from recovery.summaries.partition import ReadPiece, absent_from, absent_in
        from recovery.summaries.segment import read_split
        from recovery.summaries.summary import Summary

        for directory, group in groupby(task.splits, attrgetter("place.directory")):
            known = (task.known or {}).get(directory)
            pieces = []
            for split in group:
                piece = read_split(split)._replace(summary=Summary())
                found = [*piece.findings, *_unlisted(split, piece)]
                if task.is_by_directory:
                    pieces.append(ReadPiece(split, piece))
                elif known is not None:
                    found += absent_in(split.place, piece, known)
                if found:
                    yield finding_rows(split.place, found)
            if pieces and known is not None:
                found = absent_from(pieces, known)
                if found:
                    yield finding_rows(pieces[0].split.place, found)
        if task.problems:
            yield rows_of(FINDING_COLUMNS, task.problems)

    def read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield no rows, because `read_task` has the context of each split."""
        del split
        yield from ()


def _findings_tasks(
    splits: Iterable[Split], listing: Listing, task_bytes: int
) -> Iterator[SplitsInput]:
    """Put segments into tasks, and keep a directory that may be compacted in one task."""
    from storage.dirs.partition import cleanup_of

    apart: list[Split] = []
    together: list[Split] = []
    size = 0  # of `together`

    def task_of(splits: Iterable[Split], *, is_by_directory: bool) -> SplitsInput:
        task = tuple(splits)
        directories = {each.place.directory for each in task}
        known = {each: listing.acknowledged_of(each) for each in directories}
        return SplitsInput(task, known=known, is_by_directory=is_by_directory)

    for directory, group in groupby(splits, attrgetter("place.directory")):
        if cleanup_of(directory).is_compacted is False:
            apart += group
            continue
        own = [*group]
        together += own
        size += sum(each.end_pos - each.start_pos for each in own)
        if size >= task_bytes:
            yield task_of(together, is_by_directory=True)
            together, size = [], 0
    if together:
        yield task_of(together, is_by_directory=True)
    for task in tasks_of(apart, task_bytes):
        yield task_of(task, is_by_directory=False)


def _unlisted(split: Split, piece: PieceSummary) -> Iterator[ReadFinding]:
    """Yield a finding for bad stretches that are not listed."""
    from storage.places.log_reader import ReadFinding

    findings = piece.findings
    if piece.findings_count > len(findings) > 1:
        yield ReadFinding(
            path=split.place.path,
            start_pos=findings[-1].end_pos,
            end_pos=split.end_pos,
            kind="more",
            check_id="",
            reason=f"{piece.findings_count - len(findings)} more are not listed",
        )


class AuditReader(SplitsReader):
    """Reader that summarizes splits in the task, so that only summaries leave it."""

    def partitions(self) -> Sequence[InputPartition]:
        """Split by sizes alone. Tasks prove their boundaries, and the join checks them."""
        splits, listing = read_splits(self.options, self.wanted)
        if listing is not None:
            places = [each.place for each in splits]
            splits = plan_places(places, piece_bytes(self.options, places))
        self.options = self.options._replace(splits=None)
        tasks = tasks_of(splits, self.options.task_bytes)
        numbers = segment_numbers(splits)
        return [
            SplitsInput(tuple(task), segments=tuple(islice(numbers, len(task)))) for task in tasks
        ]

    def read_task(self, task: SplitsInput) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        for split, number in zip(task.splits, task.segments, strict=True):
            yield from self.read_segment(split, number)

    def read_split(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the row of a single split."""
        yield from self.read_segment(split, 0)

    def read_segment(self, split: Split, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the row of a split of a segment, nothing for an empty part."""
        from recovery.summaries.codec import pack_piece, pack_split
        from recovery.summaries.segment import read_split

        found = proven(split)
        if found is None:
            return
        place = found.place
        where = place.broker, place.topic, place.partition, place.directory
        row = (*where, number, pack_split(found), pack_piece(read_split(found)))
        yield rows_of(AUDIT_COLUMNS, [row])


class _Source(DataSource):
    """Common parts of eoctl's data sources."""

    format_name: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]
    reader_class: ClassVar[type[SplitsReader]]
    pushed_class: ClassVar[type[SplitsReader] | None] = None
    known_options: ClassVar[frozenset[str]] = BATCH_OPTIONS
    is_streamed: ClassVar[bool] = True

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return cls.format_name

    def schema(self) -> str:
        """Return the columns."""
        self.parsed()
        return ddl_of(self.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        del schema
        self.parsed()
        refuse_stream_options(self.options, self.format_name)
        is_pushed = wants_filters(self.options)
        return ((is_pushed and self.pushed_class) or self.reader_class)(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream.

        Raises:
            UsageError: this source has no stream, Spark is too old, or an option is not for
                streams.
        """
        del schema
        options = self.parsed()
        limits = parse_stream(self.options, self.format_name)
        if not self.is_streamed:
            raise UsageError(
                f"{self.format_name} cannot be read as a stream",
                next_step=f"spark.read.format({self.format_name!r})",
            )
        if find_spec("pyspark.sql.streaming.datasource") is None:
            raise UsageError(
                "a stream needs Spark 4.2 or later", next_step="pip install -U pyspark"
            )
        if value_of(self.options, "until") is None:
            options = options._replace(until=Until.HW)
        return self.stream_class()(options, limits)

    @staticmethod
    def stream_class() -> type[LogStreamReader]:
        """Return the class of its stream readers. Spark before 4.2 cannot import it."""
        from eoctl.spark.streaming.reader import BatchStreamReader

        return BatchStreamReader

    def parsed(self) -> SourceOptions:
        """Parse the options. Raises UsageError for a wrong or unknown option."""
        # Spark requests the schema first, without saying whether it wants a stream.
        known = self.known_options | (STREAM_OPTIONS if self.is_streamed else frozenset())
        return parse_options(self.options, known, self.format_name)


class KafkaLogBatches(_Source):
    """The headers of all batches."""

    format_name = "kafka-log-batches"
    columns = BATCH_COLUMNS
    reader_class = BatchesReader
    pushed_class = PushedBatchesReader


class KafkaLogRecords(_Source):
    """Records and the outcome of their transactions."""

    format_name = "kafka-log-records"
    reader_class = RecordsReader
    pushed_class = PushedRecordsReader
    known_options = RECORD_OPTIONS

    @staticmethod
    def stream_class() -> type[LogStreamReader]:
        """Return the class of its stream readers."""
        from eoctl.spark.streaming.reader import RecordStreamReader

        return RecordStreamReader

    def schema(self) -> str:
        """Return the columns that the options choose."""
        options = self.parsed()
        if options.table is TableKind.KAFKA:
            return ddl_of(kafka_columns(has_headers=options.kafka.has_headers))
        return ddl_of_records(options.columns)


class KafkaLogSegments(_Source):
    """Numbers of batches and records in segments."""

    format_name = "kafka-log-segments"
    columns = SEGMENT_COLUMNS
    reader_class = SegmentsReader
    pushed_class = PushedSegmentsReader
    known_options = SEGMENT_OPTIONS
    is_streamed = False


class KafkaLogFindings(_Source):
    """Damage in the files."""

    format_name = "kafka-log-findings"
    columns = FINDING_COLUMNS
    reader_class = FindingsReader
    known_options = PLACE_OPTIONS
    is_streamed = False


class KafkaLogAudit(_Source):
    """A row per split with its packed summary."""

    format_name = "kafka-log-audit"
    columns = AUDIT_COLUMNS
    reader_class = AuditReader
    known_options = PLACE_OPTIONS
    is_streamed = False


class KafkaLogAuditStream(_Source):
    """Packed summaries of new data, for streams only. `running_audit` joins them."""

    format_name = "kafka-log-audit-stream"
    columns = AUDIT_STREAM_COLUMNS
    reader_class = AuditReader
    known_options = AUDIT_STREAM_OPTIONS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuse to read without a stream. Raises UsageError."""
        del schema
        raise UsageError(
            f"{self.format_name} is read as a stream only", next_step="eoctl spark-audit PATH..."
        )

    @staticmethod
    def stream_class() -> type[LogStreamReader]:
        """Return the class of its stream readers."""
        from eoctl.spark.streaming.reader import AuditStreamReader

        return AuditStreamReader


SOURCES = (
    KafkaLogBatches,
    KafkaLogRecords,
    KafkaLogSegments,
    KafkaLogFindings,
    KafkaLogAudit,
    KafkaLogAuditStream,
)


def register(session: Any) -> None:
    """Register the formats in a Spark session.

    On a cluster this also sends eoctl's packages to the executors, and checks the executors, once.

    Raises:
        SparkUnavailableError: an executor cannot run the tasks, with host, missing parts and next
            step.
    """
    make_ready(session)
    for source in SOURCES:
        session.dataSource.register(source)
