"""The batches of a damaged segment to keep: good checksums, and offsets that fit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.checksum import load_crc32c
from storage.errors import FormatError
from storage.file_names import classify
from storage.files.positioned_file import FileRange
from storage.formats.record_batch import CRC_POS, CRC_START_POS, HEADER_BYTES, MAGIC_POS, MAGIC_V2
from storage.kernels.numpy_kernel import BulkScan, BulkWindow
from storage.kernels.offset_order import Around, Span, earlier_goes
from storage.kernels.protocol import HeaderTable, Verdict, VerdictKind
from storage.log.intact_batches import intact_batches
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.formats.offset_index import OffsetIndexEntry
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment


# -- runs of batches whose offsets contradict each other: which to keep.
#
# No checksum covers a base offset. If two batches contradict each other (BAT-3), the smaller number
# is dropped. A raised offset contradicts all batches after it, and a lowered offset contradicts
# batches before it. If each side has one batch, the batch that fits the `.index` stays. It fits if
# earlier entries are below it, and later entries above it. Otherwise the rule of
# `storage.kernels.offset_order` decides.


class Run(NamedTuple):
    """Adjacent batches with ascending offsets. Positions are half open, in bytes."""

    start_pos: int
    end_pos: int
    base_offset: int
    last_offset: int
    batches_count: int

    @property
    def span(self) -> Span:
        """The positions and offsets of the run."""
        return Span(
            start_pos=self.start_pos,
            end_pos=self.end_pos,
            base_offset=self.base_offset,
            last_offset=self.last_offset,
        )


class _Pair(NamedTuple):
    """Contradicting batches: the last `tail_count` kept batches, and `head` of `run`.

    `later` is the run after `head`, either the rest of `run` or the next run.
    """

    tail_count: int
    run: Run
    head: Run
    later: Run | None


def add_run(runs: list[Run], run: Run) -> None:
    """Append a run, or extend the last run if they are adjacent."""
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
    """Return the first offset of a batch. The header of a legacy wrapper has only the last."""
    offset = batch.header.base_offset
    if batch.header.magic >= MAGIC_V2 or not batch.header.codec:
        return offset
    try:
        first = next(segment.records(batch), None)
    except FormatError:
        return offset
    return offset if first is None else min(first.offset, offset)


def says_other_offsets(segment: Segment, batch: ScannedBatch) -> bool:
    """Return whether the absolute offsets in a v0 wrapper end with another offset than its own."""
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
    """A selection of batches with ascending offsets that drops as few batches as possible."""

    def __init__(
        self,
        segment: Segment,
        base_offset: int,
        end_offset: int | None,
        entries: Sequence[OffsetIndexEntry],
    ) -> None:
        """`end_offset` is the end of the segment if known. `entries` are of `.index`."""
        self._segment = segment
        self._base_offset = base_offset
        self._end_offset = end_offset
        # Entries that decrease are unusable, and so are all entries after them.
        self._entries: list[OffsetIndexEntry] = []
        for each in entries:
            if self._entries and not all(
                a > b for a, b in zip(each, self._entries[-1], strict=True)
            ):
                break
            self._entries.append(each)

    @property
    def entries(self) -> Sequence[OffsetIndexEntry]:
        """The ascending entries of `.index`."""
        return self._entries

    def in_order(self, runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
        """Return the kept and the dropped runs. `runs` are by position."""
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
        """Return whether the index entries around and inside a run agree with its offsets."""
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
                # The header of a legacy wrapper has only the last offset.
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


# -- runs that are no batches of the log, but content of a batch with a damaged header.
#
# A value may contain whole batches (mirrors, dumps). After a break in the lengths of a log, a
# search finds these as well. The stored checksum at the break is the proof. If it is right up to a
# later boundary, the batches in between are content of that batch.
#
# The cost of bytes and boundaries comes from one budget per segment. When it is spent, nothing more
# is proven, and the batches found stay.


PROOF_BYTES = 16 << 20  # the most bytes of a batch with a possibly damaged header
CONTENT_BUDGET_BYTES = 4 * PROOF_BYTES
BUDGET_PER_BYTE = 16
_BOUNDARY_BYTES = 1 << 10  # the cost of examining a boundary, in bytes of budget
_CHUNK_BYTES = 1 << 20


def without_content(
    segment: Segment, tables: Sequence[HeaderTable], start_pos: int
) -> Iterator[HeaderTable]:
    """Leave out batches that are content of a damaged batch. The stretch begins at `start_pos`."""
    runs = [
        Run(
            start_pos=pos,
            end_pos=pos + size,
            base_offset=base_offset,
            last_offset=last_offset,
            batches_count=1,
        )
        for table in tables
        for pos, size, base_offset, last_offset in zip(
            table.pos.tolist(),
            table.batch_bytes.tolist(),
            table.base_offset.tolist(),
            table.last_offset.tolist(),
            strict=True,
        )
    ]
    kept = [each.start_pos for each in BatchContent(segment).left_out(runs, start_pos)]
    for table in tables:
        rows = np.isin(table.pos, kept)
        if rows.any():
            yield HeaderTable._make(column[rows] for column in table)


class BatchContent:
    """The proof that runs are content of damaged batches, per segment."""

    def __init__(self, segment: Segment) -> None:
        self._file = segment.file
        self._log_bytes = segment.file_bytes
        self._budget_bytes = CONTENT_BUDGET_BYTES + BUDGET_PER_BYTE * self._log_bytes

    def left_out(self, runs: Sequence[Run], start_pos: int) -> list[Run]:
        """Leave out runs inside a batch that is whole except for bytes outside its checksum.

        `runs` are by position, in a stretch that begins at `start_pos`.
        """
        kept: list[Run] = []
        place, pos = 0, start_pos
        while place < len(runs):
            run = runs[place]
            if run.start_pos > pos:
                inside_count = self._inside_count(pos, runs, place)
                if inside_count:
                    place += inside_count
                    pos = runs[place].start_pos if place < len(runs) else self._log_bytes
                    continue
            kept.append(run)
            pos = run.end_pos
            place += 1
        return kept

    def _inside_count(self, pos: int, runs: Sequence[Run], place: int) -> int:
        """Return how many runs from `place` on are inside the batch that begins at `pos`."""
        source = FileRange(self._file, min(self._log_bytes, pos + PROOF_BYTES))
        head = source.read(pos, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return 0
        wanted = int.from_bytes(head[CRC_POS : CRC_POS + 4], "big")
        checksum, value, at_pos = load_crc32c(), 0, pos + CRC_START_POS
        chunk, chunk_pos = memoryview(b""), at_pos
        for count, boundary in enumerate(self._boundaries(runs, place, source.end_pos), 1):
            self._budget_bytes -= _BOUNDARY_BYTES
            while at_pos < boundary:
                if at_pos == chunk_pos + len(chunk):
                    if self._budget_bytes <= 0:
                        return 0
                    chunk, chunk_pos = memoryview(source.read(at_pos, _CHUNK_BYTES)), at_pos
                    self._budget_bytes -= len(chunk)
                    hole = source.first_unreadable(at_pos, at_pos + len(chunk))
                    if hole is not None:
                        chunk = chunk[: max(hole.start_pos - at_pos, 0)]
                    if not chunk:
                        return 0
                part = chunk[at_pos - chunk_pos : boundary - chunk_pos]
                value = checksum(part, value)
                at_pos += len(part)
            if value == wanted:
                return count
        return 0

    def _boundaries(self, runs: Sequence[Run], place: int, end_pos: int) -> Iterator[int]:
        for number in range(place + 1, len(runs)):
            if runs[number].start_pos > end_pos:
                return
            yield runs[number].start_pos
        if self._log_bytes <= end_pos:
            yield self._log_bytes


# -- the batches of a damaged segment to keep: a good checksum, and offsets that fit.
#
# A batch stays if and only if it meets three conditions.
#   1  It is whole and readable, its checksum is right, and it breaks no rule of `kernels.pure`
#      (BAT-3 apart, see 3).
#   2  Lengths lead to it from a kept batch or from the start, or it proved itself after damage
#      (`storage.kernels.resync`). It is not inside a batch with only a damaged header: the stored
#      checksum of such a batch is right up to a later boundary.
#   3  Its offsets are above all earlier offsets, and below the next segment's base. `run_order`
#      decides between two contradicting batches.
#
# The search repeats for batches after a dropped raised offset, since that offset was its lower
# bound. If a search finds nothing, it tries the batches at lengths or `.index` entries.
#
# A decreasing leader epoch (BAT-14) is no reason to lose records: it is a suspicion. So is a magic
# that the checksum disproves: the batch stays, and its magic byte is copied from a 2 in the log.


ORDER_CHECK_ID = "BAT-3"
BUDGET_BYTES = 64 << 20  # of searches, plus this many times the size of the segment
MAX_SOURCE_BYTES = 1 << 20  # of a batch, searched for a byte that is 2
MAX_DEPTH = 50  # batches with a wrong offset, each found after the previous batch


class Loss(NamedTuple):
    """Removed bytes, and the offsets `base_offset` to `last_offset` that no remaining batch covers.

    `last_offset` is None if it is unknown, and below `base_offset` if no offset is missing.
    """

    kind: VerdictKind
    start_pos: int
    end_pos: int
    base_offset: int
    last_offset: int | None
    check_id: str
    reason: str


class RepairedMagic(NamedTuple):
    """The magic byte of a kept batch, and a byte of the same `.log` that is 2."""

    pos: int
    source_pos: int


class SalvagedSegment(NamedTuple):
    """The kept and the removed parts of a segment. `repaired` ascend."""

    path: str
    base_offset: int
    log_bytes: int
    runs: tuple[Run, ...]
    losses: tuple[Loss, ...]
    suspicions: tuple[Verdict, ...]
    repaired: tuple[RepairedMagic, ...] = ()

    @property
    def kept_ranges(self) -> tuple[tuple[int, int], ...]:
        """The kept positions, in their order in the new file."""
        return tuple(self._pieces())

    def _pieces(self) -> Iterator[tuple[int, int]]:
        for run in self.runs:
            pos = run.start_pos
            for each in self.repaired:
                if pos <= each.pos < run.end_pos:
                    yield pos, each.pos
                    yield each.source_pos, each.source_pos + 1
                    pos = each.pos + 1
            yield pos, run.end_pos

    @property
    def is_renamed(self) -> bool:
        """Return whether the file name differs from the base offset of the batches."""
        named = classify(Path(self.path).name).offset
        return named is not None and named != self.base_offset

    @property
    def is_changed(self) -> bool:
        """Return whether something is removed, even zeros at the end, or corrected."""
        return bool(self.losses or self.repaired or self.is_renamed)

    @property
    def end_offset(self) -> int:
        """The offset after the last kept batch, else the base offset."""
        return self.runs[-1].last_offset + 1 if self.runs else self.base_offset


def salvage_segment(
    path: str,
    base_offset: int,
    *,
    is_last: bool = True,
    end_offset: int | None = None,
    entries: Sequence[OffsetIndexEntry] = (),
) -> SalvagedSegment:
    """Find the kept parts of a segment.

    Args:
        path: the `.log`.
        base_offset: by its name.
        is_last: no segment follows.
        end_offset: base offset of the next segment, else the log end from a clean stop, if known.
            Higher batches are removed, unless the first of them begins at the end of the others.
        entries: of its `.index`, good or bad: they decide only if nothing else can.

    Raises:
        AccessError: it cannot be opened.
    """
    with open_segment(path, base_offset=base_offset) as segment:
        found = _Salvage(segment, base_offset, is_last, end_offset, entries).result()
        if is_last and end_offset is not None and _goes_on(segment, found):
            found = _Salvage(segment, base_offset, is_last, None, entries).result()
        return found


def _goes_on(segment: Segment, found: SalvagedSegment) -> bool:
    """Return whether a good batch left out at the end begins where the kept batches end."""
    if not found.losses or found.losses[-1].end_pos < found.log_bytes:
        return False
    pos = found.losses[-1].start_pos
    scan = segment.scan(start_pos=pos, resume=False)
    batch = next(scan, None)
    if batch is None or batch.pos != pos or any(e.start_pos == pos for e in scan.verdicts):
        return False
    if says_other_offsets(segment, batch):
        return False
    return first_offset(segment, batch) == found.end_offset


def salvage_misnamed(
    found: SalvagedSegment, others: Sequence[SalvagedSegment], *, is_last: bool
) -> SalvagedSegment | None:
    """Find the kept parts of a segment with a wrong name. None if its name is not the problem.

    Nothing of it stays under its name, all its intact batches ascend, and they fit between the
    other segments. A single batch must follow the end of another segment: its offset may be wrong.

    Raises:
        AccessError: it cannot be opened.
    """
    if found.runs or not found.log_bytes:
        return None
    with open_segment(found.path, base_offset=found.base_offset) as segment:
        tables = [*intact_batches(segment, 0, found.log_bytes)]
        if not tables:
            return None
        batch = next(segment.scan(start_pos=int(tables[0].pos[0]), verify_crc=False))
        base_offset = first_offset(segment, batch)
    renamed = salvage_segment(found.path, base_offset, is_last=is_last)
    count = sum(each.row_count for each in tables)
    if sum(each.batches_count for each in renamed.runs) != count:
        return None
    if count == 1 and all(each.end_offset != base_offset for each in others if each.runs):
        return None
    is_free = all(
        each.base_offset >= renamed.end_offset
        or (each.end_offset <= base_offset and each.base_offset < base_offset)
        for each in others
    )
    return renamed if is_free else None


class _Salvage:
    def __init__(
        self,
        segment: Segment,
        base_offset: int,
        is_last: bool,
        end_offset: int | None,
        entries: Sequence[OffsetIndexEntry],
    ) -> None:
        self._segment = segment
        self._base_offset = base_offset
        self._is_last = is_last
        self._end_offset = end_offset
        self._order = RunOrder(segment, base_offset, end_offset, entries)
        self._content = BatchContent(segment)
        self._log_bytes = segment.file_bytes
        self._budget_bytes = BUDGET_BYTES + BUDGET_PER_BYTE * self._log_bytes
        self._has_legacy = False
        self._beyond: list[Run] = []
        self._verdicts: list[Verdict] = []
        self._own: list[Verdict] = []  # used only where the scans have no verdict
        self._suspicions: list[Verdict] = []
        self._repaired: dict[int, RepairedMagic] = {}

    def result(self) -> SalvagedSegment:
        joined: list[Run] = []
        for run in self._find(0, self._log_bytes, self._base_offset - 1):
            add_run(joined, run)
        return SalvagedSegment(
            path=self._segment.path,
            base_offset=self._base_offset,
            log_bytes=self._log_bytes,
            runs=tuple(joined),
            losses=tuple(self._losses(joined)),
            suspicions=tuple(self._suspicions_of(joined)),
            repaired=tuple(
                each for _, each in sorted(self._repaired.items()) if _holds(joined, each.pos)
            ),
        )

    def _suspicions_of(self, runs: Sequence[Run]) -> Iterator[Verdict]:
        """Yield the suspicions of kept batches, each once, even after several searches."""
        for each in sorted(set(self._suspicions)):
            place = bisect_right(runs, each.start_pos, key=_end_pos_of)
            if place < len(runs) and runs[place].start_pos <= each.start_pos:
                yield each

    # -- finding

    def _find(
        self, start_pos: int, end_pos: int, last_offset: int, depth: int = 0
    ) -> Sequence[Run]:
        """Return the runs of a stretch whose offsets are above `last_offset`.

        After each batch with a possibly wrong offset, the search repeats.
        """
        beyond_count = len(self._beyond)
        found = self._content.left_out(self._scan(start_pos, end_pos, last_offset), start_pos)
        runs, dropped = self._order.in_order(found)
        for each in dropped:
            self._note(
                each, ORDER_CHECK_ID, ("offset {} contradicts the offsets of its neighbours")
            )
        if depth == MAX_DEPTH or self._budget_bytes <= 0:
            return runs
        dropped += self._beyond[beyond_count:]
        for search in (
            partial(self._behind_dropped, dropped),
            self._behind_jumps,
            partial(self._led_to, start_pos),
        ):
            more = [*search(runs, end_pos, last_offset, depth + 1)]
            if more:
                runs, _ = self._order.in_order(sorted([*runs, *more]))
        return runs

    def _behind_dropped(
        self,
        dropped: Sequence[Run],
        runs: Sequence[Run],
        end_pos: int,
        last_offset: int,
        depth: int,
    ) -> Iterator[Run]:
        """Search after dropped batches: their offset was the lower bound of the search."""
        pos, before, bound = 0, last_offset, last_offset
        stays = set(runs)
        for each in sorted([*runs, *dropped]):
            if bound > before and pos < each.start_pos:
                yield from self._find(pos, each.start_pos, before, depth)
            pos, bound = each.end_pos, max(bound, each.last_offset)
            if each in stays:
                before = each.last_offset
        if bound > before and pos < end_pos:
            yield from self._find(pos, end_pos, before, depth)

    def _behind_jumps(
        self, runs: Sequence[Run], end_pos: int, last_offset: int, depth: int
    ) -> Iterator[Run]:
        """Search after batches that leave an offset gap, as if they did not.

        Such an offset may be raised. Then no offset after it was above it.
        """
        for number, run in enumerate(runs):
            gap_end = runs[number + 1].start_pos if number + 1 < len(runs) else end_pos
            if run.end_pos >= gap_end:
                continue
            left, last = self._order.last_batch(run)
            before = last_offset if not number else runs[number - 1].last_offset
            if left is not None:
                before = left.last_offset
            if last.base_offset > before + 1:
                yield from self._find(run.end_pos, gap_end, before, depth)

    def _led_to(
        self, start_pos: int, runs: Sequence[Run], end_pos: int, last_offset: int, depth: int
    ) -> Iterator[Run]:
        """Yield the batches between runs that only lengths or entries of `.index` lead to.

        The search expects a header after a batch, and that header may also be damaged.
        """
        ends = [(start_pos, last_offset), *((each.end_pos, each.last_offset) for each in runs)]
        starts = [
            *((each.start_pos, each.base_offset) for each in runs),
            (end_pos, self._end_offset),
        ]
        for (pos, before), (gap_end, following) in zip(ends, starts, strict=True):
            if pos >= gap_end:
                continue
            for batch in chain(
                self._segment.scan(start_pos=pos, end_pos=gap_end, resume=False),
                self._indexed(pos, gap_end),
            ):
                header = batch.header
                is_above = before < header.base_offset <= header.last_offset
                is_below = following is None or header.last_offset < following
                if batch.pos > pos and batch.crc_ok and is_above and is_below:
                    yield from self._find(batch.pos, gap_end, before, depth)
                    break

    def _indexed(self, start_pos: int, end_pos: int) -> Iterator[ScannedBatch]:
        """Yield the batches at the positions of entries with their last offset."""
        entries = self._order.entries
        for entry in entries[bisect_left(entries, start_pos, key=_segment_pos_of) :]:
            if entry.segment_pos >= end_pos:
                return
            scan = self._segment.scan(start_pos=entry.segment_pos, end_pos=end_pos, resume=False)
            batch = next(scan, None)
            if batch is None or batch.pos != entry.segment_pos:
                continue
            if batch.header.last_offset == self._base_offset + entry.relative_offset:
                yield batch

    def _scan(self, start_pos: int, end_pos: int, last_offset: int) -> list[Run]:
        self._budget_bytes -= end_pos - start_pos
        scan = BulkScan(
            self._segment,
            start_pos=start_pos,
            end_pos=end_pos,
            is_active=self._is_last,
        )
        if start_pos and not self._has_legacy:
            scan.continue_after(last_offset, -1)
        runs: list[Run] = []
        seen_count, bad = 0, set[int]()
        for part in scan.parts():
            if isinstance(part, BulkWindow):
                self._add_table(runs, part.table)
                continue
            for verdict in scan.verdicts[seen_count:]:
                if verdict.check_id != ORDER_CHECK_ID and not self._is_repaired(verdict):
                    bad.add(verdict.start_pos)
            seen_count = len(scan.verdicts)
            if part.crc_ok and part.pos not in bad:
                self._add_batch(runs, part)
        self._verdicts += [each for each in scan.verdicts if each.start_pos not in self._repaired]
        self._suspicions += scan.suspicions
        return runs

    def _is_repaired(self, verdict: Verdict) -> bool:
        """Return whether only the magic of a batch is wrong, and the log has a byte to fix it."""
        if verdict.is_lost:
            return False
        start_pos = verdict.start_pos
        if start_pos not in self._repaired:
            count = min(verdict.end_pos - start_pos, MAX_SOURCE_BYTES)
            place = self._segment.file.read_at(start_pos, count).data.find(bytes([MAGIC_V2]))
            if place < 0:
                return False
            self._repaired[start_pos] = RepairedMagic(start_pos + MAGIC_POS, start_pos + place)
            self._suspicions.append(
                verdict._replace(reason=f"{verdict.reason}: that byte is put right")
            )
        return True

    def _add_table(self, runs: list[Run], table: HeaderTable) -> None:
        count = table.row_count
        if self._end_offset is not None:
            count = int(np.searchsorted(table.last_offset, self._end_offset))
        for into, first, end in ((runs, 0, count), (self._beyond, count, table.row_count)):
            if first < end:
                run = Run(
                    start_pos=int(table.pos[first]),
                    end_pos=int(table.pos[end - 1] + table.batch_bytes[end - 1]),
                    base_offset=int(table.base_offset[first]),
                    last_offset=int(table.last_offset[end - 1]),
                    batches_count=end - first,
                )
                self._add(into, run)

    def _add_batch(self, runs: list[Run], batch: ScannedBatch) -> None:
        header, end_pos = batch.header, batch.pos + batch.header.batch_bytes
        self._has_legacy = self._has_legacy or header.magic < MAGIC_V2
        is_beyond = self._end_offset is not None and header.last_offset >= self._end_offset
        base_offset = first_offset(self._segment, batch)
        run = Run(
            start_pos=batch.pos,
            end_pos=end_pos,
            base_offset=base_offset,
            last_offset=header.last_offset,
            batches_count=1,
        )
        if says_other_offsets(self._segment, batch):
            self._note(run, ORDER_CHECK_ID, "its last message does not have its offset")
            return
        if base_offset < self._base_offset:  # only the content of a wrapper shows that
            self._note(run, "SEG-2", f"offset {{}} is below the segment's {self._base_offset}")
            return
        self._add(self._beyond if is_beyond else runs, run)

    def _add(self, into: list[Run], run: Run) -> None:
        add_run(into, run)
        if into is self._beyond:
            self._note(run, "SEG-1", f"offset {{}} is not below {self._end_offset}, the end")

    def _note(self, run: Run, check_id: str, reason: str) -> None:
        self._own.append(
            Verdict(
                kind=VerdictKind.CORRUPT,
                start_pos=run.start_pos,
                end_pos=run.end_pos,
                check_id=check_id,
                reason=reason.format(run.base_offset),
            )
        )

    # -- losses

    def _losses(self, runs: Sequence[Run]) -> Iterator[Loss]:
        self._verdicts = sorted([*self._verdicts, *self._own], key=_start_pos_of)
        pos, next_offset = 0, self._base_offset
        for run in runs:
            if run.start_pos > pos:
                yield self._loss(pos, run.start_pos, next_offset, run.base_offset - 1)
            pos, next_offset = run.end_pos, run.last_offset + 1
        if pos < self._log_bytes:
            last_offset = None if self._end_offset is None else self._end_offset - 1
            for each in self._beyond:
                # A batch that reaches into the next segment states its own offsets.
                is_next = (each.start_pos, each.base_offset) == (pos, next_offset)
                if last_offset is not None and is_next and each.base_offset <= last_offset:
                    last_offset = max(last_offset, each.last_offset)
            yield self._loss(pos, self._log_bytes, next_offset, last_offset)

    def _loss(
        self, start_pos: int, end_pos: int, base_offset: int, last_offset: int | None
    ) -> Loss:
        first = self._why(start_pos, end_pos)
        if first.kind is VerdictKind.PREALLOCATED:
            last_offset = base_offset - 1  # no record was ever there
        return Loss(
            kind=first.kind,
            start_pos=start_pos,
            end_pos=end_pos,
            base_offset=base_offset,
            last_offset=last_offset,
            check_id=first.check_id,
            reason=first.reason,
        )

    def _why(self, start_pos: int, end_pos: int) -> Verdict:
        """Return the most informative verdict of a stretch. Prefer UNREADABLE, else the first."""
        place = bisect_left(self._verdicts, start_pos, key=_start_pos_of)
        first: Verdict | None = None
        for number in range(max(place - 1, 0), len(self._verdicts)):
            each = self._verdicts[number]
            if each.start_pos >= end_pos:
                break
            if each.end_pos <= start_pos:
                continue
            if first is None or each.kind is VerdictKind.UNREADABLE:
                first = each
            if first.kind is VerdictKind.UNREADABLE:
                break
        if first is None:
            return Verdict(
                kind=VerdictKind.CORRUPT,
                start_pos=start_pos,
                end_pos=end_pos,
                check_id="BAT-2",
                reason="no batch",
            )
        return first


def _holds(runs: Sequence[Run], pos: int) -> bool:
    place = bisect_right(runs, pos, key=_end_pos_of)
    return place < len(runs) and runs[place].start_pos <= pos


def _segment_pos_of(entry: OffsetIndexEntry) -> int:
    return entry.segment_pos


def _end_pos_of(run: Run) -> int:
    return run.end_pos


def _start_pos_of(verdict: Verdict) -> int:
    return verdict.start_pos
