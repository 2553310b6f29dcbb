"""Runs of batches whose offsets contradict each other: which of them stay.

No checksum covers a base offset. Where two batches contradict each other (BAT-3), the fewer go: a
raised offset contradicts all that follow, a lowered one those before. One against one, that batch
stays that fits the `.index`, if the other one does not: entries before it are below, those behind
it above. Else the rule of `storage.kernels.offset_order` decides.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.errors import FormatError
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.offset_order import Around, Span, earlier_goes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.formats.offset_index import OffsetIndexEntry
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.log.segment import Segment


class Run(NamedTuple):
    """Batches back to back, with ascending offsets. Positions are half open, in bytes."""

    start_pos: int
    end_pos: int
    base_offset: int
    last_offset: int
    batches_count: int

    @property
    def span(self) -> Span:
        """Where it lies, and its offsets."""
        return Span(
            start_pos=self.start_pos,
            end_pos=self.end_pos,
            base_offset=self.base_offset,
            last_offset=self.last_offset,
        )


class _Pair(NamedTuple):
    """Batches that contradict each other: `tail_count` of those that stay so far, `head` of `run`.

    `later` is what comes behind `head`, of `run` or not.
    """

    tail_count: int
    run: Run
    head: Run
    later: Run | None


def add_run(runs: list[Run], run: Run) -> None:
    """Append, or extend the last one where nothing lies between."""
    before = runs[-1] if runs else None
    if before is None or before.end_pos != run.start_pos or before.last_offset >= run.base_offset:
        runs.append(run)
        return
    runs[-1] = Run(
        start_pos=before.start_pos,
        end_pos=run.end_pos,
        base_offset=before.base_offset,
        last_offset=run.last_offset,
        batches_count=before.batches_count + run.batches_count,
    )


def first_offset(segment: Segment, batch: ScannedBatch) -> int:
    """Of a batch; the header of a legacy wrapper tells the last one only."""
    offset = batch.header.base_offset
    if batch.header.magic >= MAGIC_V2 or not batch.header.codec:
        return offset
    try:
        first = next(segment.records(batch), None)
    except FormatError:
        return offset
    return offset if first is None else min(first.offset, offset)


def says_other_offsets(segment: Segment, batch: ScannedBatch) -> bool:
    """Whether the messages in a v0 wrapper, which have absolute offsets, end with another one."""
    if batch.header.magic != 0 or not batch.header.codec:
        return False
    offset = batch.header.base_offset
    try:
        for each in segment.records(batch):
            offset = each.offset
    except FormatError:
        return False
    return offset != batch.header.base_offset


class RunOrder:
    """Leaves out as few batches of a segment as it takes for offsets to ascend."""

    def __init__(
        self,
        segment: Segment,
        base_offset: int,
        end_offset: int | None,
        entries: Sequence[OffsetIndexEntry],
    ) -> None:
        """`end_offset` is where the segment ends if that is known; `entries` are of `.index`."""
        self._segment = segment
        self._base_offset = base_offset
        self._end_offset = end_offset
        # What falls is no index, and tells nothing from there on.
        self._entries: list[OffsetIndexEntry] = []
        for each in entries:
            if self._entries and not all(
                a > b for a, b in zip(each, self._entries[-1], strict=True)
            ):
                break
            self._entries.append(each)

    @property
    def entries(self) -> Sequence[OffsetIndexEntry]:
        """Those of `.index` that ascend."""
        return self._entries

    def in_order(self, runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
        """Return the runs that stay, and those that go, given by position."""
        kept: list[Run] = []
        dropped: list[Run] = []
        for each, behind in zip_longest(runs, runs[1:]):
            run: Run | None = each
            while run is not None and kept and run.base_offset <= kept[-1].last_offset:
                tail_count = 0
                for earlier in reversed(kept):
                    if earlier.last_offset < run.base_offset:
                        break
                    tail_count += self._cut_at(earlier, run.base_offset)[1].batches_count
                split_head, rest = self._split_head(run, kept[-1].last_offset)
                if self._tail_goes(
                    kept,
                    _Pair(tail_count=tail_count, run=run, head=split_head, later=rest or behind),
                ):
                    left, tail = self._cut_at(kept.pop(), run.base_offset)
                    dropped.append(tail)
                    if left is not None:
                        kept.append(left)
                else:
                    dropped.append(split_head)
                    run = rest
            if run is not None:
                kept.append(run)
        return kept, dropped

    def _tail_goes(self, kept: Sequence[Run], pair: _Pair) -> bool:
        tail_count, run, head, later = pair
        if tail_count != head.batches_count:
            return tail_count < head.batches_count
        left, tail = self._cut_at(kept[-1], run.base_offset)
        earlier = kept[-2].last_offset if len(kept) > 1 else self._base_offset - 1
        before = earlier if left is None else left.last_offset
        tail_fits, head_fits = self._fits_index(tail), self._fits_index(head)
        if tail_fits is not head_fits:
            return head_fits
        limit = following = self._end_offset
        if later is not None:
            limit = later.base_offset if later.base_offset > head.last_offset else limit
            following = later.base_offset if later.start_pos == head.end_pos else None
        end_before = 0 if len(kept) == 1 else kept[-2].end_pos
        is_adjacent = left is not None or tail.start_pos == end_before
        around = Around(before, is_adjacent=is_adjacent, following=following, limit=limit)
        return earlier_goes(tail.span, head.span, around)

    def last_batch(self, run: Run) -> tuple[Run | None, Run]:
        """Split the last batch off."""
        base_offset = run.base_offset
        if run.batches_count > 1:
            for table in self._tables(run):
                base_offset = int(table.base_offset[-1])
        return self._cut_at(run, base_offset)

    def _fits_index(self, run: Run) -> bool:
        """Whether the entries around a run, and of it, are such as it says."""
        place = bisect_left(self._entries, run.start_pos, key=_pos_of)
        behind = bisect_left(self._entries, run.end_pos, key=_pos_of)
        base_offset = self._base_offset
        if place and base_offset + self._entries[place - 1].relative_offset >= run.base_offset:
            return False
        own = self._entries[place:behind]
        if own and base_offset + own[-1].relative_offset != run.last_offset:
            return run.batches_count > 1
        later = self._entries[behind : behind + 1]
        return not later or base_offset + later[0].relative_offset > run.last_offset

    def _cut_at(self, run: Run, offset: int) -> tuple[Run | None, Run]:
        """Split a run before the first batch that reaches an offset."""
        if run.base_offset >= offset or run.batches_count == 1:
            return None, run
        return self._split(run, offset, by_last=True)

    def _split_head(self, run: Run, offset: int) -> tuple[Run, Run | None]:
        """Split a run before the first batch that begins above an offset."""
        if run.last_offset <= offset or run.batches_count == 1:
            return run, None
        left, right = self._split(run, offset + 1, by_last=False)
        return (run, None) if left is None else (left, right)

    def _split(self, run: Run, offset: int, *, by_last: bool) -> tuple[Run | None, Run]:
        before: Run | None = None
        for table in self._tables(run):
            column = table.last_offset if by_last else table.base_offset
            row = int(np.searchsorted(column, offset))
            if not by_last and row < table.row_count and table.magic[row] < MAGIC_V2:
                # The header of a legacy wrapper tells the last offset only.
                row += self._first_offset_at(int(table.pos[row])) < offset
            if row:
                last = row - 1
                before = Run(
                    start_pos=run.start_pos,
                    end_pos=int(table.pos[last] + table.batch_bytes[last]),
                    base_offset=run.base_offset,
                    last_offset=int(table.last_offset[last]),
                    batches_count=row + (0 if before is None else before.batches_count),
                )
            if row < table.row_count:
                count = 0 if before is None else before.batches_count
                pos, right_base = int(table.pos[row]), int(table.base_offset[row])
                if table.magic[row] < MAGIC_V2:
                    right_base = self._first_offset_at(pos)
                right = Run(
                    start_pos=pos,
                    end_pos=run.end_pos,
                    base_offset=right_base,
                    last_offset=run.last_offset,
                    batches_count=run.batches_count - count,
                )
                return before, right
        return None, run

    def _first_offset_at(self, pos: int) -> int:
        batch = next(self._segment.scan(start_pos=pos, verify_crc=False))
        return first_offset(self._segment, batch)

    def _tables(self, run: Run) -> Iterator[HeaderTable]:
        tables: Iterator[HeaderTable] = self._segment.scan_tables(
            start_pos=run.start_pos, end_pos=run.end_pos, verify_crc=False, is_active=False
        )
        return tables


def _pos_of(entry: OffsetIndexEntry) -> int:
    return entry.segment_pos
