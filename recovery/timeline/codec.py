"""Timelines as bytes, to be sent between processes or kept for the next run."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.timeline.bins import Bins, Layout
from recovery.timeline.ended_epochs import ENDED_DTYPE
from recovery.timeline.piece import (
    EPOCH_DTYPE,
    SEGMENT_DTYPE,
    VOLUME,
    VOLUME_HIGHS,
    VOLUME_LOWS,
    VOLUME_SUMS,
    Timeline,
)
from recovery.timeline.producers import PRODUCER_DTYPE
from recovery.timeline.reading import ReadTimeline
from recovery.timeline.spans import (
    COMMITTED,
    COMMITTED_HIGHS,
    COMMITTED_LOWS,
    COMMITTED_SUMS,
    EDGE_DTYPE,
    SPAN_DTYPE,
    Spans,
)
from storage.errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator

# What is in the bytes, in their order: rows, then bins with the layout of their values.
ROW_DTYPES = (SEGMENT_DTYPE, EPOCH_DTYPE, PRODUCER_DTYPE, EDGE_DTYPE, SPAN_DTYPE, ENDED_DTYPE)
LAYOUTS = (VOLUME, VOLUME, COMMITTED)
COLUMN_NAMES = {
    VOLUME: (VOLUME_SUMS, VOLUME_LOWS, VOLUME_HIGHS),
    COMMITTED: (COMMITTED_SUMS, COMMITTED_LOWS, COMMITTED_HIGHS),
}
COMPRESSION_LEVEL = 1


def pack_timeline(read: ReadTimeline) -> bytes:
    """Encode a timeline. Equal ones give equal bytes."""
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
    """Decode what `pack_timeline` made. Raises CorruptError: it is nothing of that kind."""
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
