"""Read one segment, or a piece of one: from a `.log` to a `Summary`.

Nothing in a file makes this fail: damage is counted and told. Only a file that cannot be opened at
all is an error.
"""

from __future__ import annotations

from errno import ENOENT
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.replay.end_markers import (
    has_marker,
    marker_rows,
    read_good_markers,
    read_marker,
)
from recovery.summaries.read_findings import FindingsList, ReadFinding, gone
from recovery.summaries.summary import Before, Summarizer, Summary, SummaryRows
from recovery.timeline.piece import (
    ReadTimeline,
    TimelineReading,
    kind_by_key,
    marker_kinds,
    no_timeline,
)
from storage.dirs.lookup import ENDED_CHECK_IDS, DoubtfulOffsets, LostRecords
from storage.dirs.offset_ledger import OffsetSpan
from storage.errors import AccessError, FormatError
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER
from storage.formats.record_batch import CODEC_MASK, MAGIC_V2
from storage.kernels.numpy_kernel import BulkScan, BulkWindow, batch_at, table_of
from storage.kernels.protocol import HeaderTable
from storage.log.decoded_records import decoded_records
from storage.places.find import open_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from recovery.replay.producer_columns import MarkerColumns
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split, TimelineStart

OffsetRange = tuple[int, int]
MAX_SINGLES_COUNT = 16_384
MAX_FINDINGS_COUNT = 1000  # of one piece that are kept; all are counted
_NOTHING = ReadTimeline(no_timeline(), floor_offset=-1, needs_floor=False)


class PieceSummary(NamedTuple):
    """What was found in a piece of a segment.

    Attributes:
        summary: of its batches.
        findings: bad stretches, and batches whose content does not decode, by position; of very
            many the first.
        findings_count: all of them.
        walked_end_pos: end of the last batch: where the next piece must begin.
        lowest_leader_epoch, highest_leader_epoch: of its batches; -1 if none has one.
        timeline: of its batches; None where none was wanted.
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
        before: what `merge` gives to read it again.
        offsets: only batches with a base offset from the first one on and below the second count.
        opener: of the segment.

    Raises:
        AccessError: it cannot be opened.
    """
    place = split.place
    with opener(place) as segment:
        scan = BulkScan(
            segment,
            with_bodies=False,
            start_pos=split.start_pos,
            end_pos=None if split.is_last else split.end_pos,
            is_active=place.is_active and split.is_last,
            end_offset=place.end_offset,
            claimed_end=place.claimed_end if split.is_last else None,
        )
        reading = _Reading(segment, scan, split, before, offsets)
        for part in scan.parts():
            if isinstance(part, BulkWindow):
                reading.take_window(part)
            else:
                reading.take_batch(part)
        return reading.finish()


class _Reading:
    """Hands the batches of one scan to a Summarizer, with markers and all that is wrong."""

    def __init__(
        self,
        segment: Segment,
        scan: BulkScan,
        split: Split,
        before: Before | None,
        offsets: OffsetRange | None,
    ) -> None:
        self._segment = segment
        self._offsets = offsets
        self._scan = scan
        self._summarizer = Summarizer(has_sequences=split.place.has_sequences, before=before)
        self._notes = FindingsList.of(split)
        self._doubtful = DoubtfulOffsets(scan)
        self._lost = LostRecords(scan)
        self._top_offset = -1 if before is None else before.top_offset
        self._singles: list[ScannedBatch] = []
        # Behind the batch before the first of them.
        self._floor_offset = None if split.start_pos else split.place.base_offset
        self._walked_end_pos = split.start_pos
        self._epochs = (-1, -1)
        self._timeline: _PieceTimeline | None = None
        if split.timeline is not None:
            self._timeline = _PieceTimeline(segment, scan, split.timeline)

    def take_window(self, window: BulkWindow) -> None:
        """Take healthy batches."""
        self._notes.look_at(self._scan)
        self._take_singles()
        table = window.table
        self._notes.passed(table)
        marker = np.zeros(table.row_count, np.int8)
        markers, failures = read_good_markers(self._segment, window, table, marker_rows(table))
        _note_markers(marker, markers)
        for row, error in failures:
            self._notes.add_error(batch_at(table, row), error)
        if self._timeline is not None:
            bad = [row for row, _ in failures]
            self._timeline.take_window(table, markers, bad)
        self._take(table, marker, np.maximum(table.records_count, 0).astype(np.int64))

    def take_batch(self, batch: ScannedBatch) -> None:
        """Take a batch that is not healthy, or of an old format."""
        self._notes.look_at(self._scan)
        if not self._singles and self._notes.end_offset is not None:
            self._floor_offset = self._notes.end_offset
        self._notes.passed_batch(batch, self._segment)
        self._singles.append(batch)
        if len(self._singles) >= MAX_SINGLES_COUNT:
            self._take_singles()

    def finish(self) -> PieceSummary:
        """Return what was found."""
        self._take_singles()
        self._notes.look_at(self._scan)
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

    def _take_singles(self) -> None:
        if not self._singles:
            return
        singles, self._singles = self._singles, []
        table = table_of(singles)
        if self._timeline is not None:
            self._timeline.take_singles(table, singles)
        marker = np.zeros(len(singles), np.int8)
        records_count = np.where(table.magic >= MAGIC_V2, np.maximum(table.records_count, 0), 1)
        floor = self._floor_offset
        for row in np.flatnonzero(table.crc_ok).tolist():
            header = singles[row].header
            try:
                # An empty control batch is what compaction leaves of a marker (PROD-9).
                if header.magic >= MAGIC_V2:
                    if header.is_control and header.producer_id >= 0 and header.records_count > 0:
                        found = read_marker(self._segment, singles[row])
                        marker[row] = COMMIT if found.is_commit else ABORT
                elif header.attributes & CODEC_MASK:
                    records_count[row] = 0
                    records = decoded_records(singles[row], self._segment, floor or 0)
                    records_count[row] = sum(1 for _ in records)
            except (FormatError, AccessError) as exc:
                self._notes.add_error(singles[row], exc.without_frames(), floor_offset=floor)
                continue
            if not self._notes.is_lost(singles[row].pos):
                floor = header.last_offset + 1
        self._take(table, marker, records_count.astype(np.int64))

    def _take(
        self, table: HeaderTable, marker: NDArray[np.int8], records_count: NDArray[np.int64]
    ) -> None:
        is_misplaced = self._misplaced(table)
        is_lost = table.crc_ok & np.isin(table.pos, list(self._lost.positions))
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

    def _misplaced(self, table: HeaderTable) -> NDArray[np.bool_]:
        """Tell which batches are not behind all before them, or have an offset that is wrong.

        Such a batch may be a second copy of one at the same offset.
        """
        is_doubtful = ~table.crc_ok
        doubtful = self._doubtful.positions
        if doubtful:
            is_doubtful |= np.isin(table.pos, list(doubtful))
        offsets = np.where(is_doubtful, -1, table.last_offset)
        tops = np.maximum.accumulate(np.concatenate(([self._top_offset], offsets)))
        self._top_offset = int(tops[-1])
        return np.asarray(is_doubtful | (table.base_offset <= tops[:-1]))


class _PieceTimeline:
    """Hands the good batches of one scan to a timeline, as the check of a directory does."""

    def __init__(self, segment: Segment, scan: BulkScan, wanted: TimelineStart) -> None:
        assert segment.base_offset is not None
        self._base_offset = segment.base_offset
        self._segment = segment
        self._doubtful = DoubtfulOffsets(scan, ENDED_CHECK_IDS)
        self._reading = TimelineReading(wanted.log_start_offset, wanted.floor_offset)

    def take_window(self, table: HeaderTable, markers: MarkerColumns, bad_rows: list[int]) -> None:
        kinds = marker_kinds(table.row_count, markers)
        for row in bad_rows:
            kinds[row] = kind_by_key(self._segment, batch_at(table, row))
        self._take(table, kinds)

    def take_singles(self, table: HeaderTable, singles: list[ScannedBatch]) -> None:
        kinds = np.full(table.row_count, NO_MARKER, np.int8)
        for row, batch in enumerate(singles):
            if batch.crc_ok is False or not has_marker(batch.header):
                continue
            try:
                is_commit = read_marker(self._segment, batch).is_commit
                kinds[row] = COMMIT if is_commit else ABORT
            except (FormatError, AccessError):
                kinds[row] = kind_by_key(self._segment, batch)
        self._take(table, kinds)

    def _take(self, table: HeaderTable, kinds: NDArray[np.int8]) -> None:
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


def _note_markers(marker: NDArray[np.int8], found: MarkerColumns) -> None:
    marker[found.row] = np.where(found.is_commit, COMMIT, ABORT)


def read_split(
    split: Split, before: Before | None = None, offsets: OffsetRange | None = None
) -> PieceSummary:
    """Do what `summarize_split` does; a file that does not open is damage, one that is gone not."""
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
