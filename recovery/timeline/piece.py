"""The timeline of a contiguous piece of log: its contents, its join, and its bytes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.replay.producer_columns import group_starts
from recovery.timeline.spans import (
    COMMITTED,
    COMMITTED_HIGHS,
    COMMITTED_LOWS,
    COMMITTED_SUMS,
    EDGE_DTYPE,
    ENDED_DTYPE,
    PRODUCER_DTYPE,
    SPAN_DTYPE,
    Bins,
    Layout,
    SpanEvents,
    Spans,
    bin_rows,
    find_producers,
    find_spans,
    join_bins,
    join_producers,
    join_spans,
    no_bins,
    no_producers,
    no_spans,
    widened,
)
from storage.dirs.lookup import put_right
from storage.errors import AccessError, CorruptError, FormatError
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER
from storage.formats.record_batch import CODEC_MASK, CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.log.decoded_records import marker_is_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from recovery.replay.producer_columns import MarkerColumns
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.log.segment import Segment

    Ints = NDArray[np.int64]
    Rows = NDArray[Any]


# -- the contents for a contiguous piece of a partition's log, and the join of two neighbours.
#
# The time of a batch is the greatest timestamp in it. All batches with a right checksum count, also
# below the log start and above the high watermark. Transactions that end below the given log start
# do not count. Only headers are read: a compressed message of v0 or v1 counts as one record.
#
# Bins by time and by offset have the same columns of a batch, so each axis can be expressed in
# terms of the other. Decreasing timestamps show in the bins by offset: a bin has a lower time than
# an earlier bin.


VOLUME_SUMS = ("batches", "records", "bytes")
VOLUME_LOWS = ("first_offset", "first_timestamp_ms")
VOLUME_HIGHS = ("last_offset", "last_timestamp_ms")
VOLUME_COLUMNS = (*VOLUME_SUMS, *VOLUME_LOWS, *VOLUME_HIGHS)
VOLUME = Layout(len(VOLUME_SUMS), len(VOLUME_LOWS), len(VOLUME_HIGHS), max_bins=512)
SEGMENT_DTYPE = np.dtype(
    [
        ("base_offset", "<i8"),
        ("batches", "<i8"),
        ("records", "<i8"),
        ("bytes", "<i8"),
        ("first_offset", "<i8"),
        ("last_offset", "<i8"),
        ("first_timestamp_ms", "<i8"),  # the smallest
        ("last_timestamp_ms", "<i8"),  # the greatest
        ("wrappers", "<i8"),  # compressed messages of v0 and v1: their records were not counted
    ]
)
EPOCH_DTYPE = np.dtype(
    [
        ("leader_epoch", "<i4"),
        ("first_offset", "<i8"),
        ("timestamp_ms", "<i8"),
        ("segment", "<i8"),
        ("pos", "<i8"),
    ]
)
WAITING_ROWS = 8_192  # short tables are joined: each costs some hundred calls of numpy


class Timeline(NamedTuple):
    """A contiguous piece of a partition's log.

    Attributes:
        by_time, by_offset: bins of VOLUME. Batches without a time are in no bin by time.
        segments: rows of SEGMENT_DTYPE in log order, without segments that have no batch.
        epochs: rows of EPOCH_DTYPE: where the leader epoch changes, in log order. The first row of
            a right piece is its first batch's epoch.
        last_epoch: of the last batch. -1: none.
        producers: rows of `producers.PRODUCER_DTYPE`.
    """

    by_time: Bins
    by_offset: Bins
    segments: Rows
    epochs: Rows
    last_epoch: int
    producers: Rows
    spans: Spans


def no_timeline() -> Timeline:
    """Return an empty timeline."""
    return Timeline(
        by_time=no_bins(VOLUME),
        by_offset=no_bins(VOLUME),
        segments=np.empty(0, SEGMENT_DTYPE),
        epochs=np.empty(0, EPOCH_DTYPE),
        last_epoch=-1,
        producers=no_producers(),
        spans=no_spans(),
    )


def join_timelines(left: Timeline, right: Timeline, volume: Layout = VOLUME) -> Timeline:
    """Join two neighbours. The whole is the same in any order of joining."""
    return Timeline(
        by_time=join_bins(volume, left.by_time, right.by_time),
        by_offset=join_bins(volume, left.by_offset, right.by_offset),
        segments=_join_segments(left.segments, right.segments),
        epochs=_join_epochs(left, right),
        last_epoch=right.last_epoch if len(right.epochs) else left.last_epoch,
        producers=join_producers(left.producers, right.producers),
        spans=join_spans(left.spans, right.spans),
    )


def join_all(pieces: Iterable[Timeline]) -> Timeline:
    """Join the pieces of a log, in log order."""
    whole = no_timeline()
    for each in pieces:
        whole = join_timelines(whole, each)
    return whole


def with_fewer_bins(timeline: Timeline, max_bins: int) -> Timeline:
    """Return a timeline for a smaller picture, which does not have room for all bins."""
    return timeline._replace(
        by_time=widened(VOLUME, timeline.by_time, max_bins),
        by_offset=widened(VOLUME, timeline.by_offset, max_bins),
    )


def _join_segments(left: Rows, right: Rows) -> Rows:
    if not len(left) or not len(right):
        return left if len(left) else right
    if left["base_offset"][-1] != right["base_offset"][0]:
        return np.concatenate((left, right))
    before, after = left[-1], right[0]
    joined = before.copy()
    for name in ("batches", "records", "bytes", "wrappers"):
        joined[name] = before[name] + after[name]
    joined["first_offset"] = min(before["first_offset"], after["first_offset"])
    joined["last_offset"] = max(before["last_offset"], after["last_offset"])
    joined["first_timestamp_ms"] = _earlier(
        before["first_timestamp_ms"], after["first_timestamp_ms"]
    )
    joined["last_timestamp_ms"] = max(before["last_timestamp_ms"], after["last_timestamp_ms"])
    return np.concatenate((left[:-1], joined[np.newaxis], right[1:]))


def _earlier(one: int, other: int) -> int:
    """Return the smaller of two times. -1 is no time."""
    if one < 0 or other < 0:
        return max(one, other)
    return min(one, other)


def _join_epochs(left: Timeline, right: Timeline) -> Rows:
    is_same = len(right.epochs) and right.epochs["leader_epoch"][0] == left.last_epoch
    return np.concatenate((left.epochs, right.epochs[1 if is_same and len(left.epochs) else 0 :]))


class TimelineBuilder:
    """A builder that takes the good batches of a piece of log, in blocks of any size."""

    def __init__(self, log_start_offset: int = 0, max_bins: int = VOLUME.max_bins) -> None:
        """Begin.

        Args:
            log_start_offset: batches that end below it belong to no transaction.
            max_bins: by time, and by offset, as in `with_fewer_bins`, but in one step.
        """
        self._log_start_offset = log_start_offset
        self._volume = VOLUME._replace(max_bins=min(max_bins, VOLUME.max_bins))
        self._whole = no_timeline()
        self._waiting: list[tuple[HeaderTable, NDArray[np.int8]]] = []
        self._waiting_count = 0
        self._segment = -1

    def take(self, table: HeaderTable, marker: NDArray[np.int8], segment: int) -> None:
        """Take batches with right checksums.

        Args:
            table: their headers.
            marker: COMMIT or ABORT for control batches, NO_MARKER for all other rows.
            segment: base offset of their segment.
        """
        if segment != self._segment or self._waiting_count >= WAITING_ROWS:
            self._flush()
        self._segment = segment
        self._waiting.append((table, marker))
        self._waiting_count += table.row_count
        if self._waiting_count >= WAITING_ROWS:
            self._flush()

    def finish(self) -> Timeline:
        """Return the timeline of all batches."""
        self._flush()
        return self._whole

    def _flush(self) -> None:
        waiting, self._waiting, self._waiting_count = self._waiting, [], 0
        if not waiting:
            return
        table, marker = waiting[0]
        if len(waiting) > 1:
            tables = zip(*(each for each, _ in waiting), strict=True)
            table = type(table)._make(map(np.concatenate, tables))
            marker = np.concatenate([each for _, each in waiting])
        if table.row_count:
            # Bins are at least as wide as now: narrower bins would only be joined.
            widths = self._whole.by_time.width_bits, self._whole.by_offset.width_bits
            place = self._segment, self._log_start_offset
            found = _timeline_of(table, marker, place, widths, self._volume)
            if len(self._whole.segments):
                found = join_timelines(self._whole, found, self._volume)
            self._whole = found


def _timeline_of(
    table: HeaderTable,
    marker: NDArray[np.int8],
    place: tuple[int, int],
    widths: tuple[int, int],
    volume: Layout,
) -> Timeline:
    segment, _ = place
    is_v2 = table.magic >= MAGIC_V2
    records = np.where(is_v2, np.maximum(table.records_count, 0), 1).astype(np.int64)
    times = table.max_timestamp_ms
    columns = (
        *(np.ones(table.row_count, np.int64), records, table.batch_bytes),
        *(table.base_offset, times, table.last_offset, times),
    )
    has_time = times >= 0
    timed = columns if has_time.all() else tuple(each[has_time] for each in columns)
    by_time = bin_rows(volume, timed[-1], timed, widths[0])
    by_offset = bin_rows(volume, table.base_offset, columns, widths[1])
    epochs = _epochs_of(table, segment)
    return Timeline(
        by_time=by_time,
        by_offset=by_offset,
        segments=_segment_of(table, segment, by_time.values, by_offset.values),
        epochs=epochs,
        last_epoch=int(epochs["leader_epoch"][-1]) if len(epochs) else -1,
        producers=find_producers(table, records),
        spans=_spans_of(table, marker, records, place),
    )


def _segment_of(table: HeaderTable, segment: int, by_time: Ints, by_offset: Ints) -> Rows:
    """Sum up the values of the bins, which are fewer than the batches."""
    row = np.zeros(1, SEGMENT_DTYPE)
    row["base_offset"] = segment
    sums = by_offset[:, : len(VOLUME_SUMS)].sum(axis=0)
    for name, value in zip(VOLUME_SUMS, sums, strict=True):
        row[name] = value
    is_wrapper = (table.magic < MAGIC_V2) & (table.attributes & CODEC_MASK != 0)
    row["wrappers"] = np.count_nonzero(is_wrapper)
    _, _, _, first_offset, _, last_offset, _ = by_offset.T
    row["first_offset"], row["last_offset"] = first_offset.min(), last_offset.max()
    row["first_timestamp_ms"] = row["last_timestamp_ms"] = -1
    if len(by_time):
        _, _, _, _, first_ms, _, last_ms = by_time.T
        row["first_timestamp_ms"], row["last_timestamp_ms"] = first_ms.min(), last_ms.max()
    return row


def _epochs_of(table: HeaderTable, segment: int) -> Rows:
    with_epoch = np.flatnonzero(table.partition_leader_epoch >= 0)
    at = with_epoch[group_starts(table.partition_leader_epoch[with_epoch])]
    rows = np.zeros(len(at), EPOCH_DTYPE)
    rows["leader_epoch"] = table.partition_leader_epoch[at]
    rows["first_offset"], rows["pos"] = table.base_offset[at], table.pos[at]
    rows["timestamp_ms"], rows["segment"] = table.max_timestamp_ms[at], segment
    return rows


def _spans_of(
    table: HeaderTable, marker: NDArray[np.int8], records: Ints, place: tuple[int, int]
) -> Spans:
    segment, log_start_offset = place
    kind = table.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK)
    is_event = (kind == TRANSACTIONAL_MASK) & (table.magic >= MAGIC_V2)
    is_event |= marker != NO_MARKER
    is_event &= (table.producer_id >= 0) & (table.last_offset >= log_start_offset)
    rows = np.flatnonzero(is_event)
    return find_spans(
        SpanEvents(
            producer_id=table.producer_id[rows],
            epoch=table.producer_epoch[rows],
            marker=marker[rows],
            base_offset=table.base_offset[rows],
            last_offset=table.last_offset[rows],
            records=records[rows],
            batch_bytes=table.batch_bytes[rows],
            timestamp_ms=table.max_timestamp_ms[rows],
            segment=np.full(len(rows), segment),
            pos=table.pos[rows],
        )
    )


# -- timelines as bytes, to send between processes or to keep for the next run


# The order of the contents: rows, then bins with the layout of their values.
ROW_DTYPES = (SEGMENT_DTYPE, EPOCH_DTYPE, PRODUCER_DTYPE, EDGE_DTYPE, SPAN_DTYPE, ENDED_DTYPE)
LAYOUTS = (VOLUME, VOLUME, COMMITTED)
COLUMN_NAMES = {
    VOLUME: (VOLUME_SUMS, VOLUME_LOWS, VOLUME_HIGHS),
    COMMITTED: (COMMITTED_SUMS, COMMITTED_LOWS, COMMITTED_HIGHS),
}
COMPRESSION_LEVEL = 1


def pack_timeline(read: ReadTimeline) -> bytes:
    """Encode a timeline. Equal timelines give equal bytes."""
    from msgpack import packb

    timeline, spans = read.timeline, read.timeline.spans
    beside = (timeline.segments, timeline.epochs, timeline.producers)
    rows = (*beside, spans.edges, spans.aborted, spans.ended)
    value = [
        read.floor_offset,
        read.needs_floor,
        timeline.last_epoch,
        [np.ascontiguousarray(each).tobytes() for each in rows],
        [*map(_packed_bins, (timeline.by_time, timeline.by_offset, spans.committed))],
    ]
    return zlib.compress(packb(value, use_bin_type=True), COMPRESSION_LEVEL)


def _packed_bins(bins: Bins) -> list[Any]:
    key, values = (np.ascontiguousarray(each, "<i8").tobytes() for each in (bins.key, bins.values))
    return [bins.width_bits, key, values]


def unpack_timeline(data: bytes) -> ReadTimeline:
    """Decode the output of `pack_timeline`. Raises CorruptError if it is no timeline."""
    from msgpack import unpackb

    try:
        floor_offset, needs_floor, last_epoch, rows, bins = unpackb(zlib.decompress(data))
        segments, epochs, producers, edges, aborted, ended = _rows_of(rows)
        by_time, by_offset, committed = (
            _bins_of(layout, *each) for layout, each in zip(LAYOUTS, bins, strict=True)
        )
    except (ValueError, TypeError, zlib.error) as exc:
        raise CorruptError(f"not a packed timeline: {exc}", check_id="AUD-1", pos=0) from None
    timeline = Timeline(
        by_time=by_time,
        by_offset=by_offset,
        segments=segments,
        epochs=epochs,
        last_epoch=last_epoch,
        producers=producers,
        spans=Spans(edges=edges, aborted=aborted, committed=committed, ended=ended),
    )
    return ReadTimeline(timeline, floor_offset, needs_floor)


def _rows_of(packed: list[bytes]) -> Iterator[Any]:
    for each, dtype in zip(packed, ROW_DTYPES, strict=True):
        yield np.frombuffer(each, dtype).copy()


def _bins_of(layout: Layout, width_bits: int, key: bytes, values: bytes) -> Bins:
    keys = np.frombuffer(key, "<i8").astype(np.int64)
    table = np.frombuffer(values, "<i8").astype(np.int64)
    return Bins(width_bits, keys, table.reshape(len(keys), layout.columns))


# -- the timeline of a separately read part of a log, and what it needs from the part before.
#
# A batch whose offset cannot be right is placed after the previous batch. If a part begins with
# such a batch, the previous part has that offset. Then the part is read again.


class ReadTimeline(NamedTuple):
    """The timeline of a part of a log.

    Attributes:
        floor_offset: one above its last batch with a right offset. -1: it has none.
        needs_floor: it begins with batches whose offsets depend on the part before.
    """

    timeline: Timeline
    floor_offset: int
    needs_floor: bool


def join_read(left: ReadTimeline, right: ReadTimeline) -> ReadTimeline:
    """Join two neighbours."""
    return ReadTimeline(
        join_timelines(left.timeline, right.timeline),
        right.floor_offset if right.floor_offset >= 0 else left.floor_offset,
        left.needs_floor,
    )


class PlacedOffsets:
    """A corrector of offsets that cannot be right, table by table.

    Attributes:
        floor_offset: one above the last batch with a right offset so far. -1: there is none.
        was_needed: it was needed when there was none.
    """

    def __init__(self, floor_offset: int = -1) -> None:
        self.floor_offset = floor_offset
        self.was_needed = False

    def put_right(self, table: HeaderTable, doubtful: AbstractSet[int]) -> HeaderTable:
        """Return a table of good batches with usable offsets. `doubtful`: positions."""
        is_placed = np.ones(table.row_count, np.bool_)
        if doubtful and table.row_count:
            is_placed = ~np.isin(table.pos, list(doubtful))
            self.was_needed |= self.floor_offset < 0 and not is_placed[0]
            table = put_right(table, doubtful, self.floor_offset)
        if is_placed.any():
            self.floor_offset = int(table.last_offset[is_placed][-1]) + 1
        return table


class TimelineReading:
    """A reading that takes the batches of a part of a log in order."""

    def __init__(
        self,
        log_start_offset: int,
        floor_offset: int = -1,
        *,
        is_built: bool = True,
        max_bins: int = VOLUME.max_bins,
    ) -> None:
        """Begin.

        Args:
            log_start_offset: see `TimelineBuilder`.
            floor_offset: as in `ReadTimeline` of all earlier parts, if known.
            is_built: False: only correct offsets, and leave the timeline empty.
            max_bins: see `TimelineBuilder`.
        """
        self._builder = TimelineBuilder(log_start_offset, max_bins)
        self._is_built = is_built
        self._placed = PlacedOffsets(floor_offset)

    def take(
        self,
        table: HeaderTable,
        kinds: NDArray[np.int8],
        segment: int,
        doubtful: AbstractSet[int],
    ) -> HeaderTable:
        """Take batches with right checksums. Return them with usable offsets.

        Args:
            table: their headers.
            kinds: see `marker_kinds`.
            segment: base offset of their segment.
            doubtful: positions of batches whose offset cannot be right.
        """
        table = self._placed.put_right(table, doubtful)
        if self._is_built:
            self._builder.take(table, kinds, segment)
        return table

    def finish(self) -> ReadTimeline:
        """Return the timeline of all batches."""
        placed = self._placed
        return ReadTimeline(self._builder.finish(), placed.floor_offset, placed.was_needed)


def marker_kinds(count: int, markers: MarkerColumns) -> NDArray[np.int8]:
    """Return COMMIT or ABORT for each of `count` batches, NO_MARKER if it is no end marker."""
    kinds = np.full(count, NO_MARKER, np.int8)
    kinds[markers.row] = np.where(markers.is_commit, COMMIT, ABORT)
    return kinds


def kind_by_key(segment: Segment, batch: ScannedBatch) -> int:
    """Return the kind of a control batch from its key alone, if a broker cannot read the marker.

    A consumer uses the key alone.
    """
    try:
        is_commit = marker_is_commit(segment, batch)
    except (AccessError, FormatError):
        return NO_MARKER
    if is_commit is None:
        return NO_MARKER
    return COMMIT if is_commit else ABORT
