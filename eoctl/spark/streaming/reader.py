"""Streams of records and batches, as micro-batches of new data in the partitions.

A micro-batch is a range of offsets of each partition. Spark stores the ranges before it reads them,
and requests the same ranges again after a crash. Their records do not change, because they are
below the high watermark.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from eoctl.spark.rows.columns import AUDIT_STREAM_COLUMNS, rows_of
from eoctl.spark.rows.gc_freeze import keep_modules
from eoctl.spark.rows.kafka_options import DataLossError, PointKind
from eoctl.spark.rows.missing_segments import Needed, open_seen
from eoctl.spark.rows.record_plan import DirectoryRead, piece_bytes, starting_offset
from eoctl.spark.rows.source_options import ReadBounds, StreamLimits
from eoctl.spark.rows.task_rows import SplitsInput, batch_header_rows, read_piece, record_rows
from eoctl.spark.streaming.readable_end import Surveyor
from recovery.audit.local_workers import tasks_of
from recovery.transactions.isolation import Isolation
from storage.errors import AccessError
from storage.places.list_places import open_place
from storage.places.splits import plan_apart, prune_splits, split_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from eoctl.spark.rows.source_options import SourceOptions
    from eoctl.spark.streaming.readable_end import Reach
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split


# -- size of one micro-batch: by offsets, or by bytes of the logs


PIECES_COUNT = 8  # pieces of a partition's share, to meet the limit closely
LEAST_PIECE_BYTES = 64 << 10


def fair_shares(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """Share a limit. A partition with less data than its part leaves the rest to others."""
    shares = {}
    left = len(available)
    for name in sorted(available, key=lambda each: (available[each], each)):
        shares[name] = min(available[name], limit // left)
        limit -= shares[name]
        left -= 1
    return shares


def ends_by_offsets(
    begins: Mapping[str, int], reaches: Mapping[str, Reach], limit: int
) -> dict[str, int]:
    """Return the end of each partition, so that at most `limit` offsets are given."""
    available = {name: reaches[name].end_offset - begin for name, begin in begins.items()}
    shares = fair_shares(available, limit)
    return {name: begin + shares[name] for name, begin in begins.items()}


def ends_by_bytes(
    begins: Mapping[str, int], reaches: Mapping[str, Reach], limit: int
) -> dict[str, int]:
    """Return the end of each partition, so that about `limit` bytes of log are read.

    At least one piece is given, so that a batch larger than the limit is read too.
    """
    piece_bytes = max(limit // (max(len(begins), 1) * PIECES_COUNT), LEAST_PIECE_BYTES)
    pieces = {
        name: _pieces(reaches[name], begin, limit, piece_bytes) for name, begin in begins.items()
    }
    available = {name: sum(map(_size, found)) for name, found in pieces.items()}
    shares = fair_shares(available, limit)
    ends, given = {}, 0
    for name, begin in begins.items():
        taken, size = 0, 0
        for each in pieces[name]:
            if size + _size(each) > shares[name]:
                break
            taken, size = taken + 1, size + _size(each)
        ends[name] = _end_of(reaches[name], pieces[name], taken, begin)
        given += ends[name] - begin
    if not given and begins:
        name = max(begins, key=lambda each: reaches[each].end_offset - begins[each])
        taken = 1
        while ends[name] == begins[name] and taken <= len(pieces[name]):
            ends[name] = _end_of(reaches[name], pieces[name], taken, begins[name])
            taken += 1
    return ends


def _pieces(reach: Reach, begin: int, limit: int, piece_bytes: int) -> list[Split]:
    """Split the data to read into pieces, up to a little more than the limit."""
    bounds = ReadBounds(from_offset=begin, to_offset=reach.end_offset).inclusive()
    wanted, size = [], 0
    for place in reach.places:
        if not place.may_hold(begin, reach.end_offset):
            continue
        found = prune_splits(split_places([place], piece_bytes), bounds)
        wanted += found
        size += sum(map(_size, found))
        if size > limit:
            break
    return wanted


def _size(split: Split) -> int:
    return split.end_pos - split.start_pos


def _end_of(reach: Reach, pieces: list[Split], taken: int, begin: int) -> int:
    """Return the offset at which the first pieces end, and the next piece begins."""
    if not taken:
        return begin
    if taken == len(pieces):
        last = pieces[-1].place
        is_whole = last.end_offset is None or last.end_offset >= reach.end_offset
        return reach.end_offset if is_whole else max(begin, last.end_offset or 0)
    following = pieces[taken]
    if following.start_pos == 0:
        return min(max(begin, following.place.base_offset), reach.end_offset)
    with open_place(following.place) as segment:
        scan = segment.scan(start_pos=following.start_pos, is_active=following.place.is_active)
        batch = next(iter(scan), None)
    if batch is None or batch.pos != following.start_pos:  # its begin was proven before
        return begin
    return min(max(begin, batch.header.base_offset), reach.end_offset)


# -- position of a stream in each partition, as Spark stores it in the checkpoint of a query.
#
#     `{"1/txn-0": {"offset": 311, "epoch": 4, "topic_id": "..."}}`
#
# The name has broker and partition, so a broker may move the partition to another of its disks.
# `offset` is the next offset. `epoch` is the leader epoch of the record before it, and `topic_id`
# its topic's id. They show whether the query has read this log before (KIP-320, KIP-516). Unknown
# values are -1 and "".


NO_EPOCH = -1
GO_ON = '.option("failOnDataLoss", "false") goes on with the rest'


class StreamOffset(NamedTuple):
    """Position of a stream in one partition."""

    offset: int
    epoch: int = NO_EPOCH
    topic_id: str = ""


Offsets = dict[str, StreamOffset]


def encode_offsets(offsets: Mapping[str, StreamOffset]) -> dict[str, Any]:
    """Return offsets in the form that Spark stores."""
    return {name: offsets[name]._asdict() for name in sorted(offsets)}


def parse_offsets(kept: Mapping[str, Any]) -> Offsets:
    """Parse offsets that Spark has stored."""
    return {
        name: StreamOffset(int(each["offset"]), int(each["epoch"]), str(each["topic_id"]))
        for name, each in kept.items()
    }


def offset_at(reach: Reach, offset: int) -> StreamOffset:
    """Return the position of a stream after reading a partition up to an offset."""
    epoch = NO_EPOCH
    for entry in reach.epochs:
        if entry.start_offset < offset:
            epoch = entry.epoch
    return StreamOffset(offset, epoch, reach.topic_id)


def loss_since(stood: StreamOffset, reach: Reach) -> str | None:
    """Return the loss in a partition since a stream's position, in words, None without a loss."""
    if stood.topic_id and reach.topic_id and stood.topic_id != reach.topic_id:
        return (
            f"the topic was deleted and made again. Its id was {stood.topic_id} at offset"
            f" {stood.offset}, and is {reach.topic_id}"
        )
    if stood.offset < reach.first_offset:
        return (
            f"the query goes on from offset {stood.offset}, and the log begins at"
            f" {reach.first_offset}"
        )
    if stood.offset > reach.end_offset and stood.offset > reach.log_end_offset():
        return (
            f"the query goes on from offset {stood.offset}, and the log ends at"
            f" {reach.log_end_offset()}"
        )
    later = (each for each in reach.epochs if each.epoch > stood.epoch != NO_EPOCH)
    newer = next(later, None)
    if newer is not None and newer.start_offset < stood.offset:
        return (
            f"the query goes on from offset {stood.offset} of leader epoch {stood.epoch}, which"
            f" ends at {newer.start_offset}. The records behind that were replaced"
        )
    return None


def fail_on_loss(path: str, words: str) -> DataLossError:
    """Return the error of a query that cannot continue without skipping records."""
    return DataLossError(f"{path}: {words}", next_step=GO_ON)


# -- reader


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader that plans micro-batches. Subclasses define the rows of a task.

    One object plans a query from its start to its end. Only its options go to the tasks.
    """

    def __init__(self, options: SourceOptions, limits: StreamLimits) -> None:
        self.options = options
        self.limits = limits
        self._surveyor: Surveyor | None = None
        self._target: Offsets | None = None  # for Trigger.AvailableNow

    def __getstate__(self) -> dict[str, Any]:
        """Leave out data for planning alone."""
        return {**self.__dict__, "_surveyor": None, "_target": None}

    # --- planning ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a new query, by its options or at the start of the logs."""
        begins = {}
        for name, reach in self._survey().items():
            begins[name] = offset_at(reach, self._first_of(reach))
        return encode_offsets(begins)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Mapping[str, Any], limit: Any
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch.

        Raises:
            DataLossError: the next records are lost.
        """
        stood, reaches = parse_offsets(start), self._survey()
        self._require_kept(stood, reaches)
        begins = self._begins(stood, reaches)
        ends = self._limited(begins, reaches, limit)
        moved = {name: offset_at(reaches[name], end) for name, end in ends.items()}
        # An unmoved position stays as it is, because the record before it may be deleted by now.
        kept = {
            name: each
            for name, each in stood.items()
            if name in ends and (each.offset, each.topic_id) == (ends[name], moved[name].topic_id)
        }
        return encode_offsets({**stood, **moved, **kept})

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the options' limit of a micro-batch."""
        if self.limits.max_bytes is not None:
            return ReadMaxBytes(self.limits.max_bytes)
        if self.limits.max_offsets is not None:
            return ReadMaxRows(self.limits.max_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the readable end of the partitions, for monitoring of the query."""
        ends = {name: offset_at(each, each.end_offset) for name, each in self._survey().items()}
        return encode_offsets(ends)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the current ends, at which the query will end."""
        self._target = {
            name: offset_at(each, each.end_offset) for name, each in self._survey().items()
        }

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch.

        Raises:
            DataLossError: a part of it is lost.
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
        """Return the start of a micro-batch in a partition.

        It is at or above the log start offset. DeleteRecords moves that offset into a segment,
        whose file still has the deleted records.
        """
        if stood is None or (stood.topic_id and end.topic_id and stood.topic_id != end.topic_id):
            return reach.first_offset
        return max(stood.offset, reach.first_offset)

    def _splits(self, reach: Reach, bounds: ReadBounds) -> list[Split]:
        """Split the data between the bounds. Tasks prove the boundaries in whole segments.

        Boundaries in the segments at both ends are proven here, which leaves out most of their
        pieces.
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
        """Return the start offset of each partition that may have new records."""
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
        """Return where to continue in a log with lost records."""
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
        """Fail if records of the next range are lost, unless the options allow it.

        Args:
            stood: offsets that Spark got.
            reaches: current state of the partitions.
            is_end: the offsets end a micro-batch, and the log may begin after them by now.
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
        """Yield the rows of a task."""
        if isinstance(partition, SplitsInput):
            for split, read in zip(partition.splits, partition.reads, strict=True):
                rows = partial(self.rows, read=read)
                found = read_piece(split, read.bounds, rows, needed=self.needed)
                yield from found
        keep_modules()

    @property
    def needed(self) -> Needed:
        """The effect of a missing or unreadable segment on the query."""
        return Needed.BY_MICRO_BATCH if self.options.kafka.fails_on_loss else Needed.NOTHING

    @abstractmethod
    def rows(self, split: Split, read: DirectoryRead) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split."""


class RecordStreamReader(LogStreamReader):
    """Stream of records."""

    def rows(self, split: Split, read: DirectoryRead) -> Iterator[pa.RecordBatch]:
        """Yield the records of a split."""
        yield from record_rows(self.options, split, read, needed=self.needed)


class BatchStreamReader(LogStreamReader):
    """Stream of batch headers, each by its base offset."""

    def rows(self, split: Split, read: DirectoryRead) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a split that begin within the bounds."""
        yield from batch_header_rows(split, read.bounds, needed=self.needed)


class AuditStreamReader(LogStreamReader):
    """Stream of summaries of the new data in each piece."""

    def rows(self, split: Split, read: DirectoryRead) -> Iterator[pa.RecordBatch]:
        """Yield the row of a split, nothing if no batch begins within the bounds."""
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
