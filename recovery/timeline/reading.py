"""The timeline of a part of a log that is read by itself, and what it must know of what is before.

A batch whose offset cannot be right is taken for one behind the batch before it. Where a part
begins with such a batch, the part before knows that offset: then it is read once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.timeline.piece import VOLUME, Timeline, TimelineBuilder, join_timelines
from storage.dirs.lookup import put_right
from storage.errors import AccessError, FormatError
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER
from storage.log.decoded_records import marker_is_commit

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from recovery.replay.producer_columns import MarkerColumns
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.log.segment import Segment


class ReadTimeline(NamedTuple):
    """What a part of a log says.

    Attributes:
        floor_offset: one above its last batch with a right offset; -1: it has none.
        needs_floor: it begins with batches whose offsets only what is before can tell.
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
    """Puts offsets that cannot be right in their place, table by table.

    Attributes:
        floor_offset: one above the last batch with a right offset so far; -1: there was none.
        was_needed: it was asked for when there was none.
    """

    def __init__(self, floor_offset: int = -1) -> None:
        self.floor_offset = floor_offset
        self.was_needed = False

    def put_right(self, table: HeaderTable, doubtful: AbstractSet[int]) -> HeaderTable:
        """Return a table of good batches with offsets to go by; `doubtful`: positions."""
        is_placed = np.ones(table.row_count, np.bool_)
        if doubtful and table.row_count:
            is_placed = ~np.isin(table.pos, list(doubtful))
            self.was_needed |= self.floor_offset < 0 and not is_placed[0]
            table = put_right(table, doubtful, self.floor_offset)
        if is_placed.any():
            self.floor_offset = int(table.last_offset[is_placed][-1]) + 1
        return table


class TimelineReading:
    """Takes the batches of a part of a log in their order."""

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
            floor_offset: as `ReadTimeline` has it of all before, where that is known.
            is_built: False: only offsets are put right, and the timeline stays empty.
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
        """Take batches with right checksums; returns them with offsets to go by.

        Args:
            table: their headers.
            kinds: see `marker_kinds`.
            segment: base offset of the segment that they lie in.
            doubtful: positions of batches whose offset cannot be right.
        """
        table = self._placed.put_right(table, doubtful)
        if self._is_built:
            self._builder.take(table, kinds, segment)
        return table

    def finish(self) -> ReadTimeline:
        """Return what all of it comes to."""
        placed = self._placed
        return ReadTimeline(self._builder.finish(), placed.floor_offset, placed.was_needed)


def marker_kinds(count: int, markers: MarkerColumns) -> NDArray[np.int8]:
    """Return of each of `count` batches COMMIT or ABORT, NO_MARKER where it is no end marker."""
    kinds = np.full(count, NO_MARKER, np.int8)
    kinds[markers.row] = np.where(markers.is_commit, COMMIT, ABORT)
    return kinds


def kind_by_key(segment: Segment, batch: ScannedBatch) -> int:
    """Tell by its key alone what a control batch is that a broker cannot read as a marker.

    A consumer goes by it.
    """
    try:
        is_commit = marker_is_commit(segment, batch)
    except (AccessError, FormatError):
        return NO_MARKER
    if is_commit is None:
        return NO_MARKER
    return COMMIT if is_commit else ABORT
