"""Read a segment, or a piece of a segment, into a `Summary`.

No content of a file makes this fail: damage is counted and reported. Only a file that cannot be
opened is an error.
"""

from __future__ import annotations

from errno import ENOENT
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.replay.end_markers import block_markers
from recovery.summaries.summary import Before, Summarizer, Summary, SummaryRows
from recovery.timeline.piece import (
    ReadTimeline,
    TimelineReading,
    kind_by_key,
    marker_kinds,
    no_timeline,
)
from storage.dirs.lookup import ENDED_CHECK_IDS, DoubtfulOffsets
from storage.dirs.offset_ledger import OffsetSpan
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import CODEC_MASK, MAGIC_V2
from storage.kernels.numpy_kernel import BulkScan, batch_at
from storage.kernels.protocol import HeaderTable
from storage.log.decoded_records import decoded_records
from storage.places.list_places import open_place
from storage.places.log_reader import Block, FindingsList, ReadFinding, SegmentReader, gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from recovery.replay.producer_columns import MarkerColumns
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split, TimelineStart

OffsetRange = tuple[int, int]
MAX_FINDINGS_COUNT = 1000  # kept findings of one piece (all are counted)
_NOTHING = ReadTimeline(no_timeline(), floor_offset=-1, needs_floor=False)


class PieceSummary(NamedTuple):
    """The summary of a piece of a segment.

    Attributes:
        summary: of its batches.
        findings: bad stretches, and batches whose content does not decode, by position. Only the
            first of very many.
        findings_count: all of them.
        walked_end_pos: end of the last batch: where the next piece must begin.
        lowest_leader_epoch, highest_leader_epoch: of its batches. -1 if none has one.
        timeline: of its batches. None if not requested.
        span: the offsets of its good batches.
    """

    summary: Summary
    findings: tuple[ReadFinding, ...]
    findings_count: int
    walked_end_pos: int
    lowest_leader_epoch: int
    highest_leader_epoch: int
    timeline: ReadTimeline | None = None
    span: OffsetSpan = OffsetSpan()


def summarize_split(
    split: Split,
    before: Before | None = None,
    offsets: OffsetRange | None = None,
    *,
    opener: Callable[[SegmentPlace], Segment] = open_place,
) -> PieceSummary:
    """Summarize the batches of a split.

    Args:
        split: what to read.
        before: from `merge`, to read the split again.
        offsets: only batches count whose base offset is at or above the first and below the second.
        opener: of the segment.

    Raises:
        AccessError: it cannot be opened.
    """
    with opener(split.place) as segment:
        return _Reading(segment, split, before, offsets).run()


class _Reading:
    """A pass that gives the batches of one scan to a Summarizer, with markers and errors."""

    def __init__(
        self,
        segment: Segment,
        split: Split,
        before: Before | None,
        offsets: OffsetRange | None,
    ) -> None:
        self._segment = segment
        self._offsets = offsets
        self._reader = SegmentReader.of_split(split, segment, with_bodies=False)
        self._notes = self._reader.findings
        self._summarizer = Summarizer(has_sequences=split.place.has_sequences, before=before)
        self._top_offset = -1 if before is None else before.top_offset
        # The offset where the first batch begins, if known.
        self._floor_offset = None if split.start_pos else split.place.base_offset
        self._walked_end_pos = split.start_pos
        self._epochs = (-1, -1)
        self._timeline: _PieceTimeline | None = None
        if split.timeline is not None:
            self._timeline = _PieceTimeline(segment, self._reader.scan, split.timeline)

    def run(self) -> PieceSummary:
        """Read all batches, and return the summary."""
        for block in self._reader.blocks():
            self._take_block(block)
        self._notes.finish()
        lowest, highest = self._epochs
        return PieceSummary(
            summary=self._summarizer.finish(),
            findings=tuple(self._notes.found[:MAX_FINDINGS_COUNT]),
            findings_count=len(self._notes.found),
            walked_end_pos=self._walked_end_pos,
            lowest_leader_epoch=lowest,
            highest_leader_epoch=highest,
            timeline=None if self._timeline is None else self._timeline.finish(),
            span=self._notes.ledger.span,
        )

    def _take_block(self, block: Block) -> None:
        table = block.table
        if block.floor_offset is not None:
            self._floor_offset = block.floor_offset
        markers, failures = block_markers(self._segment, block)
        if self._timeline is not None:
            self._timeline.take(block, markers, failures)
        marker = marker_kinds(table.row_count, markers)
        records_count = np.maximum(table.records_count, 0).astype(np.int64)
        if block.window is not None:
            for row, error in failures:
                self._notes.add_error(batch_at(table, row), error)
        else:
            self._take_singles(block, dict(failures), records_count)
        self._take(block, marker, records_count)

    def _take_singles(
        self,
        block: Block,
        failures: dict[int, FormatError | AccessError],
        records_count: NDArray[np.int64],
    ) -> None:
        """Count the records of old formats, and note unreadable batches."""
        records_count[block.table.magic < MAGIC_V2] = 1
        floor = self._floor_offset
        for row in np.flatnonzero(block.table.crc_ok).tolist():
            single = block.singles[row]
            header = single.header
            error = failures.get(row)
            if header.magic < MAGIC_V2 and header.attributes & CODEC_MASK:
                records_count[row] = 0
                try:
                    records = decoded_records(single, self._segment, floor or 0)
                    records_count[row] = sum(1 for _ in records)
                except (FormatError, AccessError) as exc:
                    error = exc
            if error is not None:
                self._notes.add_error(single, error.without_frames(), floor_offset=floor)
            elif not self._notes.is_lost(single.pos):
                floor = header.last_offset + 1

    def _take(
        self, block: Block, marker: NDArray[np.int8], records_count: NDArray[np.int64]
    ) -> None:
        table = block.table
        is_misplaced = self._misplaced(block)
        is_lost = table.crc_ok & block.rows_at(block.lost)
        self._walked_end_pos = table.end_pos
        epochs = table.partition_leader_epoch[table.crc_ok & (table.partition_leader_epoch >= 0)]
        if len(epochs):
            lowest, highest = self._epochs
            self._epochs = (
                int(epochs.min()) if lowest < 0 else min(lowest, int(epochs.min())),
                max(highest, int(epochs.max())),
            )
        rows = SummaryRows(
            table=table,
            marker=marker,
            records_count=records_count,
            is_misplaced=is_misplaced,
            is_lost=is_lost,
        )
        self._summarizer.add(rows if self._offsets is None else _within(rows, self._offsets))

    def _misplaced(self, block: Block) -> NDArray[np.bool_]:
        """Return which batches are not above all earlier batches, or have a wrong offset.

        Such a batch may be a duplicate at the same offset.
        """
        table = block.table
        is_doubtful = ~table.crc_ok | block.rows_at(block.doubtful)
        offsets = np.where(is_doubtful, -1, table.last_offset)
        tops = np.maximum.accumulate(np.concatenate(([self._top_offset], offsets)))
        self._top_offset = int(tops[-1])
        return np.asarray(is_doubtful | (table.base_offset <= tops[:-1]))


class _PieceTimeline:
    """A pass that gives the good batches of one scan to a timeline, like a check of a directory."""

    def __init__(self, segment: Segment, scan: BulkScan, wanted: TimelineStart) -> None:
        assert segment.base_offset is not None
        self._base_offset = segment.base_offset
        self._segment = segment
        self._doubtful = DoubtfulOffsets(scan, ENDED_CHECK_IDS)
        self._reading = TimelineReading(wanted.log_start_offset, wanted.floor_offset)

    def take(
        self,
        block: Block,
        markers: MarkerColumns,
        failures: Iterable[tuple[int, FormatError | AccessError]],
    ) -> None:
        table = block.table
        kinds = marker_kinds(table.row_count, markers)
        for row, _ in failures:
            kinds[row] = kind_by_key(self._segment, batch_at(table, row))
        if not table.crc_ok.all():
            kinds = kinds[table.crc_ok]
            table = type(table)._make(column[table.crc_ok] for column in table)
        self._reading.take(table, kinds, self._base_offset, self._doubtful.positions)

    def finish(self) -> ReadTimeline:
        return self._reading.finish()


def _within(rows: SummaryRows, offsets: OffsetRange) -> SummaryRows:
    first, end = offsets
    base = rows.table.base_offset
    kept = np.flatnonzero((base >= first) & (base < end))
    return SummaryRows(
        table=HeaderTable._make(column[kept] for column in rows.table),
        marker=rows.marker[kept],
        records_count=rows.records_count[kept],
        is_misplaced=rows.is_misplaced[kept],
        is_lost=rows.is_lost[kept],
    )


def read_split(
    split: Split, before: Before | None = None, offsets: OffsetRange | None = None
) -> PieceSummary:
    """Summarize a split. An unreadable file is damage, a removed file is not."""
    try:
        return summarize_split(split, before, offsets)
    except AccessError as exc:
        found = gone(split.place.path)
        if exc.errno != ENOENT:
            notes = FindingsList.of(split)
            notes.add_unreadable(exc, split.start_pos, split.end_pos)
            notes.finish()
            (found,) = notes.found
        count = int(found.is_unreadable)
        return PieceSummary(
            summary=Summary(),
            findings=(found,),
            findings_count=count,
            walked_end_pos=split.end_pos,
            lowest_leader_epoch=-1,
            highest_leader_epoch=-1,
            timeline=None if split.timeline is None else _NOTHING,
        )
