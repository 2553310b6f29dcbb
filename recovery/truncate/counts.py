"""Count what a truncation cuts: batches, data records, bytes, from headers.

The records of a batch are only looked at where a bound lies inside of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from storage.dirs.lookup import END_KINDS
from storage.errors import FormatError
from storage.formats.record_batch import CODEC_MASK, CONTROL_MASK, MAGIC_V2
from storage.kernels.numpy_kernel import batch_at
from storage.kernels.protocol import VerdictKind
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.protocol import HeaderTable
    from storage.log.segment import Segment


# Batches with another offset than they should have: their records are counted all the same.
_COUNTED = frozenset({"BAT-3", "SEG-1", "SEG-2", "SEG-3"})


class FoundRecords(NamedTuple):
    """The data records of the good batches in what goes, whatever else is in there.

    Attributes:
        acknowledged_count: those below the high watermark, those of a repeated offset once; None:
            it is not known.
        is_least: some are not counted: what is damaged, and compressed batches of magic 0 and 1.
        first_offset, last_offset: inclusive; None: there is no such batch.
        first_ms, last_ms: by the headers of their batches; None: they have no timestamp.
    """

    records_count: int
    acknowledged_count: int | None
    is_least: bool
    first_offset: int | None
    last_offset: int | None
    first_ms: int | None
    last_ms: int | None


class CutCounts:
    """Counts over what goes.

    Attributes:
        batches_count: healthy ones, control batches too.
        log_bytes: preallocated zeros left out.
        is_whole: nothing in there is damaged.
        notes: what is.
    """

    def __init__(self, start_offset: int, high_watermark: int | None) -> None:
        self.batches_count = 0
        self.log_bytes = 0
        self.is_whole = True
        self.notes: list[str] = []
        self._records_count: int | None = 0
        self._acknowledged_count: int | None = 0
        self._reach = -1  # greatest offset so far
        self._start_offset = start_offset
        self._high_watermark = high_watermark
        self._found = FoundRecords(
            records_count=0,
            acknowledged_count=None if high_watermark is None else 0,
            is_least=False,
            first_offset=None,
            last_offset=None,
            first_ms=None,
            last_ms=None,
        )

    @property
    def found(self) -> FoundRecords:
        """What was counted, also where something is damaged."""
        return self._found._replace(is_least=self._found.is_least or not self.is_whole)

    @property
    def records_count(self) -> int | None:
        """Data records from the start offset on."""
        return self._records_count if self.is_whole else None

    @property
    def acknowledged_count(self) -> int | None:
        """Those of them that are below the high watermark."""
        if self._high_watermark is None:
            return None
        if self._high_watermark <= self._start_offset:
            return 0
        return self._acknowledged_count if self.is_whole else None

    def add_segment(self, files: SegmentFiles, start_pos: int, *, is_active: bool) -> None:
        """Count one segment from a position on."""
        with open_segment(files.log.path, base_offset=files.base_offset) as segment:
            scan = segment.scan_tables(start_pos=start_pos, is_active=is_active)
            for table in scan:
                self._add_table(segment, table)
            self.log_bytes += segment.file_bytes - start_pos
            for verdict in scan.verdicts:
                if verdict.kind is VerdictKind.PREALLOCATED:
                    self.log_bytes -= verdict.end_pos - verdict.start_pos
                elif verdict.check_id in _COUNTED:
                    continue
                elif verdict.kind not in END_KINDS and self.is_whole:
                    self.is_whole = False
                    self.notes.append(
                        f"{files.log.path}: position {verdict.start_pos}:"
                        f" {verdict.reason or verdict.kind}: how much goes is not known"
                    )

    def _add_table(self, segment: Segment, table: HeaderTable) -> None:
        self.batches_count += int(table.crc_ok.sum())
        is_v2 = table.magic >= MAGIC_V2
        is_control = is_v2 & (table.attributes & CONTROL_MASK != 0)
        rows = np.flatnonzero(table.crc_ok & ~is_control)
        if not len(rows):
            return
        is_plain = ~is_v2[rows] & (table.attributes[rows] & CODEC_MASK == 0)
        counts = np.where(is_plain, 1, table.records_count[rows].astype(np.int64))
        count = _count(segment, table, rows, counts, self._start_offset, None)
        self._records_count = _plus(self._records_count, count)
        limit, acknowledged = self._high_watermark, None
        reach = np.maximum.accumulate(np.concatenate(([self._reach], table.last_offset[rows])))
        self._reach = int(reach[-1])
        if limit is not None:
            is_new = table.last_offset[rows] > reach[:-1]
            acknowledged = _count(
                segment, table, rows[is_new], counts[is_new], self._start_offset, limit
            )
            self._acknowledged_count = _plus(self._acknowledged_count, acknowledged)
        self._add_found(table, rows, count, acknowledged)

    def _add_found(
        self, table: HeaderTable, rows: Any, count: int | None, acknowledged: int | None
    ) -> None:
        found = self._found
        inside = rows[table.last_offset[rows] >= self._start_offset]
        if not len(inside):
            return
        first = max(int(table.base_offset[inside].min()), self._start_offset)
        is_v2 = table.magic[inside] >= MAGIC_V2
        begins_ms = np.where(is_v2, table.base_timestamp_ms[inside], table.max_timestamp_ms[inside])
        ends_ms = table.max_timestamp_ms[inside]
        first_ms = [*begins_ms[begins_ms >= 0].tolist(), *_known(found.first_ms)]
        last_ms = [*ends_ms[ends_ms >= 0].tolist(), *_known(found.last_ms)]
        total = found.acknowledged_count
        self._found = FoundRecords(
            records_count=found.records_count + (count or 0),
            acknowledged_count=None if total is None else total + (acknowledged or 0),
            is_least=found.is_least or count is None,
            first_offset=min([first, *_known(found.first_offset)]),
            last_offset=max([int(table.last_offset[inside].max()), *_known(found.last_offset)]),
            first_ms=min(first_ms, default=None),
            last_ms=max(last_ms, default=None),
        )


def _known(value: int | None) -> tuple[int, ...]:
    return () if value is None else (value,)


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _count(
    segment: Segment,
    table: HeaderTable,
    rows: Any,
    counts: Any,
    start_offset: int,
    end_offset: int | None,
) -> int | None:
    """Count the records with offsets of a range; None with compressed legacy messages in it.

    The header of such a message has its last offset only: one that ends at or above the end of the
    range may still begin in it.
    """
    base, last = table.base_offset[rows], table.last_offset[rows]
    is_inside = last >= start_offset
    is_cut = is_inside & (base < start_offset)
    if end_offset is not None:
        is_inside &= (base < end_offset) | ((counts < 0) & (start_offset < end_offset))
        is_cut |= is_inside & (last >= end_offset)
    if (counts[is_inside] < 0).any():
        return None
    is_cut &= is_inside
    total = int(counts[is_inside & ~is_cut].sum())
    for row in rows[is_cut].tolist():
        try:
            for record in segment.records(batch_at(table, row)):
                is_below_end = end_offset is None or record.offset < end_offset
                total += start_offset <= record.offset and is_below_end
        except FormatError:
            return None
    return total
