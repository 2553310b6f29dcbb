"""Streams of records and batches: micro-batches of what has come to the partitions since.

A micro-batch is a range of offsets of each partition. Spark keeps the ranges before it reads them,
and asks for the same ones again after a crash; what is in them does not change, for it lies below
the high watermark.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from eoctl.spark.rows.columns import AUDIT_STREAM_COLUMNS, rows_of
from eoctl.spark.rows.cuts import piece_bytes
from eoctl.spark.rows.kafka_options import PointKind
from eoctl.spark.rows.kept_modules import keep_modules
from eoctl.spark.rows.opening import Needed, open_seen
from eoctl.spark.rows.record_plan import DirectoryRead, starting_offset
from eoctl.spark.rows.source_options import (
    ReadBounds,
    StreamLimits,
)
from eoctl.spark.rows.task_rows import (
    SplitsInput,
    batch_header_rows,
    read_piece,
    record_rows,
)
from eoctl.spark.streaming.limits import ends_by_bytes, ends_by_offsets
from eoctl.spark.streaming.offsets import (
    Offsets,
    StreamOffset,
    encode_offsets,
    fail_on_loss,
    loss_since,
    offset_at,
    parse_offsets,
)
from eoctl.spark.streaming.reach import Surveyor
from recovery.audit.local import tasks_of
from recovery.transactions.isolation import Isolation
from storage.errors import AccessError
from storage.places.splits import plan_apart, prune_splits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from eoctl.spark.rows.source_options import SourceOptions
    from eoctl.spark.streaming.reach import Reach
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches; what a task gives is up to the class.

    One object plans a query from its start to its end. Only its options go to the tasks.
    """

    def __init__(self, options: SourceOptions, limits: StreamLimits) -> None:
        self.options = options
        self.limits = limits
        self._surveyor: Surveyor | None = None
        self._target: Offsets | None = None  # of Trigger.AvailableNow

    def __getstate__(self) -> dict[str, Any]:
        """Leave what only planning needs where it is."""
        return {**self.__dict__, "_surveyor": None, "_target": None}

    # --- planning ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query begins: as its options say, or where the logs do."""
        begins = {}
        for name, reach in self._survey().items():
            begins[name] = offset_at(reach, self._first_of(reach))
        return encode_offsets(begins)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Mapping[str, Any], limit: Any
    ) -> dict[str, Any]:
        """Return where the next micro-batch ends.

        Raises:
            DataLossError: what comes next is not there any more.
        """
        stood, reaches = parse_offsets(start), self._survey()
        self._require_kept(stood, reaches)
        begins = self._begins(stood, reaches)
        ends = self._limited(begins, reaches, limit)
        moved = {name: offset_at(reaches[name], end) for name, end in ends.items()}
        # One that has not moved stays as it is: what it stood behind may be gone by now.
        kept = {
            name: each
            for name, each in stood.items()
            if name in ends and (each.offset, each.topic_id) == (ends[name], moved[name].topic_id)
        }
        return encode_offsets({**stood, **moved, **kept})

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return what the options allow a micro-batch."""
        if self.limits.max_bytes is not None:
            return ReadMaxBytes(self.limits.max_bytes)
        if self.limits.max_offsets is not None:
            return ReadMaxRows(self.limits.max_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return how far the partitions can be read, for whoever watches the query."""
        ends = {name: offset_at(each, each.end_offset) for name, each in self._survey().items()}
        return encode_offsets(ends)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note what is there now: the query ends with it."""
        self._target = {
            name: offset_at(each, each.end_offset) for name, each in self._survey().items()
        }

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch.

        Raises:
            DataLossError: a part of it is not there any more.
        """
        stood, ends = parse_offsets(start), parse_offsets(end)
        moved = {name: each for name, each in ends.items() if stood.get(name) != each}
        if not moved:
            return []
        reaches = self._survey()
        self._require_kept({name: stood[name] for name in moved if name in stood}, reaches)
        self._require_kept(moved, reaches, is_end=True)
        splits: list[Split] = []
        reads: dict[str, DirectoryRead] = {}
        for name in sorted(moved.keys() & reaches.keys()):
            reach = reaches[name]
            begin = self._begin_of(stood.get(name), moved[name], reach)
            bounds = ReadBounds(from_offset=begin, to_offset=moved[name].offset)
            if begin >= moved[name].offset:
                continue
            splits += self._splits(reach, bounds)
            reads[reach.directory] = DirectoryRead(
                bounds=self.options.bounds.narrowed(bounds),
                stable_offset=moved[name].offset if self._is_committed_only else None,
            )
        return [
            SplitsInput(tuple(task), reads=tuple(reads[each.place.directory] for each in task))
            for task in tasks_of(splits, self.options.task_bytes)
        ]

    @staticmethod
    def _begin_of(stood: StreamOffset | None, end: StreamOffset, reach: Reach) -> int:
        """Return where a micro-batch begins in a partition.

        Not below where its log does: DeleteRecords moves that into a segment, whose file still has
        what was deleted.
        """
        if stood is None or (stood.topic_id and end.topic_id and stood.topic_id != end.topic_id):
            return reach.first_offset
        return max(stood.offset, reach.first_offset)

    def _splits(self, reach: Reach, bounds: ReadBounds) -> list[Split]:
        """Cut what lies between the bounds; tasks prove the cuts of segments that are whole in it.

        Of the two at the ends the cuts are proven here, which leaves most of them out.
        """
        low, high = bounds.from_offset, bounds.to_offset
        places = [each for each in reach.places if each.may_hold(low, high)]
        size = piece_bytes(self.options, places)

        def is_at_an_end(place: SegmentPlace) -> bool:
            is_below = low is not None and place.base_offset < low
            is_above = place.end_offset is None or (high is not None and place.end_offset > high)
            return is_below or is_above

        splits = plan_apart(places, size, is_at_an_end)
        known = [each for each in splits if each.part is None]
        kept = set(prune_splits(known, bounds.inclusive()))
        return [each for each in splits if each.part is not None or each in kept]

    @property
    def _is_committed_only(self) -> bool:
        return self.options.isolation is Isolation.READ_COMMITTED

    def _survey(self) -> dict[str, Reach]:
        if self._surveyor is None:
            self._surveyor = Surveyor(self.options)
        return self._surveyor.survey()

    def _first_of(self, reach: Reach) -> int:
        point = self.options.kafka.starting
        if point is None or not reach.places:
            return reach.first_offset
        if point.kind is PointKind.LATEST:
            return reach.end_offset
        found = starting_offset(
            self.options.kafka, point, reach.places, reach.first_offset, may_be_latest=True
        )
        return reach.first_offset if found is None else found

    def _begins(self, stood: Offsets, reaches: Mapping[str, Reach]) -> dict[str, int]:
        """Return from where on each partition is read; those that have nothing new are left out."""
        found = {}
        for name, reach in reaches.items():
            begin = reach.first_offset
            if name in stood:
                is_other = loss_since(stood[name], reach) is not None
                begin = self._after_loss(stood[name], reach) if is_other else stood[name].offset
            elif self._target is not None and name not in self._target:
                continue
            found[name] = begin
        return found

    @staticmethod
    def _after_loss(stood: StreamOffset, reach: Reach) -> int:
        """Return where to go on in a log of which something is gone."""
        if stood.topic_id and reach.topic_id and stood.topic_id != reach.topic_id:
            return reach.first_offset
        return min(max(stood.offset, reach.first_offset), max(reach.end_offset, reach.first_offset))

    def _limited(
        self, begins: Mapping[str, int], reaches: Mapping[str, Reach], limit: Any
    ) -> dict[str, int]:
        ends = {name: max(reaches[name].end_offset, begin) for name, begin in begins.items()}
        if self._target is not None:
            for name, end in ends.items():
                target = self._target.get(name)
                ends[name] = begins[name] if target is None else min(end, target.offset)
                ends[name] = max(ends[name], begins[name])
        waiting = {name: begin for name, begin in begins.items() if ends[name] > begin}
        bounded = {name: reaches[name].until(ends[name]) for name in waiting}
        if isinstance(limit, ReadMaxRows):
            ends |= ends_by_offsets(waiting, bounded, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            ends |= ends_by_bytes(waiting, bounded, limit.max_bytes)
        return ends

    def _require_kept(
        self, stood: Offsets, reaches: Mapping[str, Reach], *, is_end: bool = False
    ) -> None:
        """Fail where something of what comes next is gone, unless that is allowed.

        Args:
            stood: offsets that were given to Spark.
            reaches: what is there now.
            is_end: they are where a micro-batch ends: the log may begin behind them by now.
        """
        if not self.options.kafka.fails_on_loss:
            return
        for name, each in stood.items():
            reach = reaches.get(name)
            if reach is None:
                raise fail_on_loss(name, f"it is gone; the query stands at offset {each.offset}")
            words = loss_since(each, reach)
            if words is not None and not (is_end and each.offset < reach.first_offset):
                raise fail_on_loss(reach.directory, words)

    # --- reading ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of a task."""
        if isinstance(partition, SplitsInput):
            for split, read in zip(partition.splits, partition.reads, strict=True):
                rows = partial(self.rows, read=read)
                found = read_piece(split, read.bounds, rows, needed=self.needed)
                yield from found
        keep_modules()

    @property
    def needed(self) -> Needed:
        """Whether a segment that is gone, or cannot be opened, fails the query."""
        return Needed.BY_MICRO_BATCH if self.options.kafka.fails_on_loss else Needed.NOTHING

    @abstractmethod
    def rows(self, split: Split, read: DirectoryRead) -> Iterator[pa.RecordBatch]:
        """Give the rows of a split."""


class RecordStreamReader(LogStreamReader):
    """Streams records."""

    def rows(self, split: Split, read: DirectoryRead) -> Iterator[pa.RecordBatch]:
        """Give the records of a split."""
        yield from record_rows(self.options, split, read, needed=self.needed)


class BatchStreamReader(LogStreamReader):
    """Streams headers of batches, each by its base offset."""

    def rows(self, split: Split, read: DirectoryRead) -> Iterator[pa.RecordBatch]:
        """Give the batches of a split that begin within the bounds."""
        yield from batch_header_rows(split, read.bounds, needed=self.needed)


class AuditStreamReader(LogStreamReader):
    """Streams summaries of what has come to each piece."""

    def rows(self, split: Split, read: DirectoryRead) -> Iterator[pa.RecordBatch]:
        """Give the row of a split; nothing where no batch begins within the bounds."""
        from recovery.summaries.codec import pack_piece, pack_split
        from recovery.summaries.segment import summarize_split

        place = split.place
        offsets = (read.bounds.from_offset or 0, read.bounds.to_offset or 0)
        try:
            piece = summarize_split(
                split, None, offsets, opener=partial(open_seen, needed=self.needed)
            )
        except AccessError:
            if self.needed is Needed.NOTHING:
                return
            raise
        counts = piece.summary.counts
        if counts.batches or counts.corrupt_batches:
            where = place.broker, place.topic, place.partition, place.directory
            row = (*where, pack_split(split), pack_piece(piece), *offsets)
            yield rows_of(AUDIT_STREAM_COLUMNS, [row])
