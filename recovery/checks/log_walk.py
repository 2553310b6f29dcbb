"""The pass over the `.log` of one segment that all checks share. It continues after damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from recovery.replay.end_markers import block_markers
from recovery.replay.producer_columns import ShortTables
from storage.dirs.lookup import ENDED_CHECK_IDS
from storage.errors import AccessError
from storage.formats.record_batch import CODEC_MASK, MAGIC_V2
from storage.kernels.numpy_kernel import batch_at
from storage.places.log_reader import Block, FindingsList, SegmentReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.checks.batches import BatchCheck
    from recovery.checks.contents.records import RecordCheck
    from recovery.checks.context.collector import Circumstances
    from recovery.checks.indexes import OffsetIndexCheck, TimeIndexCheck
    from recovery.replay.producer_columns import MarkerColumns
    from storage.dirs.partition import SegmentBounds
    from storage.errors import FormatError
    from storage.kernels.protocol import HeaderTable, ScannedBatch, Verdict
    from storage.log.segment import Segment

# Offsets contradict each other, or the name of the segment.
_CONTRADICTIONS = frozenset({"BAT-3", "BAT-4", "SEG-1", "SEG-2", "SEG-3"})
# A recovery checks only these rules of a batch (REC-7, REC-8).
RECOVERY_STOPS = frozenset({"BAT-1", "BAT-2", "SEG-2", "SEG-3", "SEG-5", "SEG-6"})


class RecoveryStop(NamedTuple):
    """The place where a recovery of a segment would end before the end of the file.

    Attributes:
        pos: the size to which it truncates the `.log`.
        end_offset: of the batches before that.
        check_id: the reason.
    """

    pos: int
    end_offset: int
    check_id: str


class BatchFacts(NamedTuple):
    """The batches of a segment by their headers, for the tasks that run after a start.

    Attributes:
        first_timestamp_ms: the largest timestamp of the first batch. None without a batch.
        largest_timestamp_ms: of the good batches. -1 if none has a time.
        recovered_timestamp_ms: the same, of the batches that a recovery keeps.
        records_count: of the good batches. None with compressed legacy messages.
        recovered_records_count: the same, of the batches that a recovery keeps.
        damaged_count: batches with a wrong checksum.
    """

    first_timestamp_ms: int | None = None
    largest_timestamp_ms: int = -1
    recovered_timestamp_ms: int = -1
    records_count: int | None = 0
    recovered_records_count: int | None = 0
    damaged_count: int = 0

    def with_table(self, table: HeaderTable, *, is_recovered: bool) -> BatchFacts:
        """Add the next batches. `is_recovered`: a recovery keeps them."""
        first_ms = self.first_timestamp_ms
        if first_ms is None:
            first_ms = int(table.max_timestamp_ms[0])
        good = table.crc_ok
        is_legacy = table.magic < MAGIC_V2
        counts = np.where(
            is_legacy & ((table.attributes & CODEC_MASK) == 0), 1, table.records_count
        )[good].astype(np.int64)
        count = None if (counts < 0).any() else int(counts.sum())
        largest_ms = int(table.max_timestamp_ms[good].max()) if good.any() else -1
        found = self._replace(
            first_timestamp_ms=first_ms,
            largest_timestamp_ms=max(self.largest_timestamp_ms, largest_ms),
            records_count=_added(self.records_count, count),
            damaged_count=self.damaged_count + int((~good).sum()),
        )
        if not is_recovered:
            return found
        return found._replace(
            recovered_timestamp_ms=max(self.recovered_timestamp_ms, largest_ms),
            recovered_records_count=_added(self.recovered_records_count, count),
        )


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


class Taker(Protocol):
    """A consumer of the batches of all segments."""

    circumstances: Circumstances

    def take(
        self, table: HeaderTable, markers: MarkerColumns, log_path: str, doubtful: set[int]
    ) -> None:
        """Take batches with correct checksums. At `doubtful` positions the offset is impossible."""

    def bad_marker(self, error: FormatError, batch: ScannedBatch) -> None:
        """Take a control batch whose record is no end marker."""


class CheckWalk:
    """One scan, with healthy batches in tables, and single other batches collected into tables.

    Attributes:
        batches_count: of the segment.
        stop: the place where a recovery would end. None: at the end of the file.
        is_doubtful: before that, offsets contradict each other or the name of the segment.
        found: the scan's findings, and the offsets of the good batches. None before `run`.
        facts: times and numbers of the batches.
    """

    def __init__(
        self,
        check: Taker,
        segment: Segment,
        batches: BatchCheck,
        indexes: list[OffsetIndexCheck | TimeIndexCheck],
        records: RecordCheck | None,
        bounds: SegmentBounds,
    ) -> None:
        """Prepare the scan. `bounds` give the range of the segment in its log."""
        self.batches_count = 0
        self.stop: RecoveryStop | None = None
        self.is_doubtful = False
        self.found: FindingsList | None = None
        self._check = check
        self.facts = BatchFacts()
        self._segment = segment
        self._batches = batches
        self._indexes = indexes
        self._records = records
        self._bounds = bounds
        self._short = ShortTables()
        self._doubtful: set[int] = set()

    def run(self, *, verify_crc: bool, on_bytes: Callable[[int], None] | None) -> None:
        """Read the segment from its beginning to its end."""
        segment, records = self._segment, self._records
        reader = SegmentReader(
            segment,
            FindingsList(segment.path, segment.base_offset),
            with_bodies=records is not None,
            in_order=True,
            doubtful_ids=ENDED_CHECK_IDS,
            verify_crc=verify_crc,
            **self._bounds,
        )
        scan, self.found = reader.scan, reader.findings
        read_pos = 0
        for block in reader.blocks():
            self._doubtful = block.doubtful
            pos = int(block.table.pos[0])
            if block.before:
                # In log order: a batch after damage needs the hole before it.
                self._hand_on()
                # An unknown magic ends no recovery: the checksum is still correct.
                passes = block.window is None and bool(block.table.crc_ok[0])
                for verdict in block.before:
                    self._take_verdict(verdict, ends=not passes or verdict.start_pos < pos)
            self._take_block(block)
            if on_bytes is not None:
                on_bytes(pos - read_pos)
                read_pos = pos
        if on_bytes is not None:
            on_bytes(max(scan.end_pos - read_pos, 0))
        self._hand_on()
        for verdict in reader.rest:
            self._take_verdict(verdict, ends=True)
        self.found.finish()
        self._batches.report(self.found.found)
        if records is None:
            self._batches.report_wrappers(self.found.wrong_wrappers)
        far = self._batches.far
        if far is not None and (self.stop is None or far.start_pos < self.stop.pos):
            self.stop = RecoveryStop(far.start_pos, far.before_offset, "SEG-3")
            self.is_doubtful = True
        for verdict in scan.suspicions:
            self._batches.take_suspicion(verdict)

    def _take_verdict(self, verdict: Verdict, *, ends: bool) -> None:
        is_stop = verdict.check_id in RECOVERY_STOPS and (ends or verdict.check_id != "BAT-2")
        if self.stop is None:
            self.is_doubtful |= verdict.check_id in _CONTRADICTIONS
        if self.stop is None and is_stop:
            end_offset = self._check.circumstances.end_offset
            self.stop = RecoveryStop(verdict.start_pos, end_offset, verdict.check_id)
        self._batches.take_verdict(verdict)

    def _take_block(self, block: Block) -> None:
        table, records = block.table, self._records
        markers, failures = block_markers(self._segment, block)
        for row, error in failures:
            if isinstance(error, AccessError):
                raise error
            self._check.bad_marker(error, batch_at(table, row))
        if self._short.add(table, markers):
            self._hand_on()
        if records is None:
            return
        if block.window is not None:
            records.take_window(block.window)
        for batch in block.singles:
            # A batch with a verdict gets no second finding.
            if batch.crc_ok is not False and batch.pos not in block.lost:
                records.take_batch(batch)

    def _hand_on(self) -> None:
        found = self._short.take()
        if found is None:
            return
        table, markers = found
        self.batches_count += table.row_count
        self.facts = self.facts.with_table(table, is_recovered=self.stop is None)
        doubtful = self._doubtful
        self._batches.take(table, doubtful)
        for index in self._indexes:
            index.take(table)
        if not table.crc_ok.all():
            good = np.flatnonzero(table.crc_ok)
            markers = markers._replace(row=np.searchsorted(good, markers.row))
            table = type(table)._make(column[good] for column in table)
        if table.row_count:
            self._check.take(table, markers, self._segment.path, doubtful)
