"""What is kept of a contiguous piece of a partition's log, and how two neighbours are joined.

The time of a batch is the greatest timestamp in it. Batches with a right checksum count, all that
are in the files: below the log start and above the high watermark, too; of transactions only what
does not end below the log start that was given. Headers are all that is looked at: a compressed
message of v0 or v1 counts as one record.

Bins by time and by offset have the same columns of a batch, so that each axis can be told in terms
of the other. Where timestamps go back is seen in the bins by offset: a bin with a time below one
that an earlier bin has had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.replay.producer_columns import group_starts
from recovery.timeline.bins import Bins, Layout, bin_rows, join_bins, no_bins, widened
from recovery.timeline.producers import find_producers, join_producers, no_producers
from recovery.timeline.spans import SpanEvents, Spans, find_spans, join_spans, no_spans
from storage.formats.control_record import NO_MARKER
from storage.formats.record_batch import CODEC_MASK, CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]
    Rows = NDArray[Any]

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
WAITING_ROWS = 8_192  # short tables are put together: each costs some hundred calls of numpy


class Timeline(NamedTuple):
    """A contiguous piece of a partition's log.

    Attributes:
        by_time, by_offset: bins of VOLUME; batches without a time are in neither bin by time.
        segments: rows of SEGMENT_DTYPE in log order; those without a batch are left out.
        epochs: rows of EPOCH_DTYPE: where the leader epoch changes, in log order; what is joined
            begins with that of its first batch.
        last_epoch: of the last batch; -1: none.
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
    """Return that of nothing."""
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
    """Join two neighbours; the whole is the same in any order of joining."""
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
    """Return a timeline for a smaller picture: of very many there is not room for all bins."""
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
    """The smaller of two times, of which -1 is none."""
    if one < 0 or other < 0:
        return max(one, other)
    return min(one, other)


def _join_epochs(left: Timeline, right: Timeline) -> Rows:
    is_same = len(right.epochs) and right.epochs["leader_epoch"][0] == left.last_epoch
    return np.concatenate((left.epochs, right.epochs[1 if is_same and len(left.epochs) else 0 :]))


class TimelineBuilder:
    """Takes the good batches of a piece of log, in blocks of any size."""

    def __init__(self, log_start_offset: int = 0, max_bins: int = VOLUME.max_bins) -> None:
        """Begin.

        Args:
            log_start_offset: batches that end below it are of no transaction.
            max_bins: by time, and by offset; as `with_fewer_bins` would have it, in one step.
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
            marker: what control batches are: COMMIT or ABORT, NO_MARKER for all other rows.
            segment: base offset of the segment that they lie in.
        """
        if segment != self._segment or self._waiting_count >= WAITING_ROWS:
            self._flush()
        self._segment = segment
        self._waiting.append((table, marker))
        self._waiting_count += table.row_count
        if self._waiting_count >= WAITING_ROWS:
            self._flush()

    def finish(self) -> Timeline:
        """Return what all of it comes to."""
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
            # Bins are at least as wide as they are already: narrower ones would only be joined.
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
    """Sum up the values of the bins, of which there are fewer."""
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
