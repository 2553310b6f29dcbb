"""Which batches of a damaged segment stay: each that has a good checksum and fits its neighbours.

A batch stays if and only if
  1  it is whole and readable, its checksum is right, and no rule of `kernels.pure` is broken by it
     (BAT-3 apart, see 3)
  2  it was reached by lengths from a batch that stays or from the start, or proved itself behind
     damage (`storage.kernels.resync`), and does not lie in a batch whose header alone is damaged:
     where the checksum that is stored there holds for all up to a later boundary, what was found
     between is content of that batch
  3  its offsets are above those of all before it, and below the next segment's base: `run_order`
     tells which batch goes where two contradict each other

Batches behind a raised offset that goes are looked for again, since the search had taken that for
its lower bound; and where a search found nothing, those that lengths or `.index` lead to.

A leader epoch that falls (BAT-14) is no reason to lose records: it is a suspicion. So is a magic
that the checksum disproves: the batch stays, and its magic byte is taken from a 2 that the log has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.repair.batch_content import BatchContent
from recovery.repair.run_order import Run, RunOrder, add_run, first_offset, says_other_offsets
from storage.file_names import classify
from storage.formats.record_batch import MAGIC_POS, MAGIC_V2
from storage.kernels.numpy_kernel import BulkScan, BulkWindow
from storage.kernels.protocol import Verdict, VerdictKind
from storage.log.intact_batches import intact_batches
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.formats.offset_index import OffsetIndexEntry
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.log.segment import Segment

ORDER_CHECK_ID = "BAT-3"
BUDGET_BYTES = 64 << 20  # of searches, with so many times the size of the segment
BUDGET_PER_BYTE = 16
MAX_SOURCE_BYTES = 1 << 20  # of a batch, searched for a byte that is 2
MAX_DEPTH = 50  # batches with a wrong offset, each found behind the one before


class Loss(NamedTuple):
    """Bytes that go. `base_offset` to `last_offset` are those that nothing has that stays.

    `last_offset` is None if it is not known, and below `base_offset` if none is missing.
    """

    kind: VerdictKind
    start_pos: int
    end_pos: int
    base_offset: int
    last_offset: int | None
    check_id: str
    reason: str


class MendedMagic(NamedTuple):
    """The magic byte of a batch that stays, and a byte of the same `.log` that is 2."""

    pos: int
    source_pos: int


class SalvagedSegment(NamedTuple):
    """What stays of a segment, and what goes; `mended` ascend."""

    path: str
    base_offset: int
    log_bytes: int
    runs: tuple[Run, ...]
    losses: tuple[Loss, ...]
    suspicions: tuple[Verdict, ...]
    mended: tuple[MendedMagic, ...] = ()

    @property
    def kept_ranges(self) -> tuple[tuple[int, int], ...]:
        """Positions of what stays, one behind the other as they are to be."""
        return tuple(self._pieces())

    def _pieces(self) -> Iterator[tuple[int, int]]:
        for run in self.runs:
            pos = run.start_pos
            for each in self.mended:
                if pos <= each.pos < run.end_pos:
                    yield pos, each.pos
                    yield each.source_pos, each.source_pos + 1
                    pos = each.pos + 1
            yield pos, run.end_pos

    @property
    def is_renamed(self) -> bool:
        """The name of the file says another base offset than its batches."""
        named = classify(Path(self.path).name).offset
        return named is not None and named != self.base_offset

    @property
    def is_changed(self) -> bool:
        """Something goes, be it zeros at the end, or is put right."""
        return bool(self.losses or self.mended or self.is_renamed)

    @property
    def end_offset(self) -> int:
        """Behind the last batch that stays; the base offset without one."""
        return self.runs[-1].last_offset + 1 if self.runs else self.base_offset


def salvage_segment(
    path: str,
    base_offset: int,
    *,
    is_last: bool = True,
    end_offset: int | None = None,
    entries: Sequence[OffsetIndexEntry] = (),
) -> SalvagedSegment:
    """Find what stays of a segment.

    Args:
        path: the `.log`.
        base_offset: by its name.
        is_last: no segment is behind it.
        end_offset: base offset of the one behind it, else the log end as far as it is known, from a
            clean stop: batches above go, unless the first of them begins where the others end.
        entries: of its `.index`, good or not: asked where nothing else can decide.

    Raises:
        AccessError: it cannot be opened.
    """
    with open_segment(path, base_offset=base_offset) as segment:
        found = _Salvage(segment, base_offset, is_last, end_offset, entries).result()
        if is_last and end_offset is not None and _goes_on(segment, found):
            found = _Salvage(segment, base_offset, is_last, None, entries).result()
        return found


def _goes_on(segment: Segment, found: SalvagedSegment) -> bool:
    """Whether a good batch that was left out at the end begins where what stays ends."""
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
    """Find what stays of a segment whose name is wrong; None: its name is not what is wrong.

    Nothing of it stays under its name, all its intact batches ascend, and they fit between the
    other segments. One batch alone must follow the end of another segment: its offset may be wrong.

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
        self._own: list[Verdict] = []  # where the scans say nothing: theirs is what all readers say
        self._suspicions: list[Verdict] = []
        self._mended: dict[int, MendedMagic] = {}

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
            mended=tuple(
                each for _, each in sorted(self._mended.items()) if _holds(joined, each.pos)
            ),
        )

    def _suspicions_of(self, runs: Sequence[Run]) -> Iterator[Verdict]:
        """Give those of batches that stay, each once, though it was met by several searches."""
        for each in sorted(set(self._suspicions)):
            place = bisect_right(runs, each.start_pos, key=_end_pos_of)
            if place < len(runs) and runs[place].start_pos <= each.start_pos:
                yield each

    # -- finding

    def _find(
        self, start_pos: int, end_pos: int, last_offset: int, depth: int = 0
    ) -> Sequence[Run]:
        """Give the runs of a stretch whose offsets are above `last_offset`.

        Each batch that may have a wrong offset is a reason to search the stretch behind it again.
        """
        beyond_count = len(self._beyond)
        found = self._content.left_out(self._scan(start_pos, end_pos, last_offset), start_pos)
        runs, dropped = self._order.in_order(found)
        for each in dropped:
            self._note(each, ORDER_CHECK_ID, "offset {} contradicts those of its neighbours")
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
        """Search behind batches that go: their offset was the lower bound of what was searched."""
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
        """Search behind batches that do not begin where the one before ends, as if they did.

        Such an offset may be a raised one: then nothing behind it was above it.
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
        """Give what was not found between runs, but lengths or entries of `.index` lead to.

        The search wants to see a header behind a batch, which may be damaged, too.
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
        """Give the batches at the positions of entries that say their last offset."""
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
                if verdict.check_id != ORDER_CHECK_ID and not self._is_mended(verdict):
                    bad.add(verdict.start_pos)
            seen_count = len(scan.verdicts)
            if part.crc_ok and part.pos not in bad:
                self._add_batch(runs, part)
        self._verdicts += [each for each in scan.verdicts if each.start_pos not in self._mended]
        self._suspicions += scan.suspicions
        return runs

    def _is_mended(self, verdict: Verdict) -> bool:
        """Whether only the magic of a batch is wrong, and the log has a byte to put it right."""
        if verdict.is_lost:
            return False
        start_pos = verdict.start_pos
        if start_pos not in self._mended:
            count = min(verdict.end_pos - start_pos, MAX_SOURCE_BYTES)
            place = self._segment.file.read_at(start_pos, count).data.find(bytes([MAGIC_V2]))
            if place < 0:
                return False
            self._mended[start_pos] = MendedMagic(start_pos + MAGIC_POS, start_pos + place)
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
        if base_offset < self._base_offset:  # only what is in a wrapper tells that
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

    # -- what goes

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
                # One that only reaches into the next segment says itself what it has.
                is_next = (each.start_pos, each.base_offset) == (pos, next_offset)
                if last_offset is not None and is_next and each.base_offset <= last_offset:
                    last_offset = max(last_offset, each.last_offset)
            yield self._loss(pos, self._log_bytes, next_offset, last_offset)

    def _loss(
        self, start_pos: int, end_pos: int, base_offset: int, last_offset: int | None
    ) -> Loss:
        first = self._why(start_pos, end_pos)
        if first.kind is VerdictKind.PREALLOCATED:
            last_offset = base_offset - 1  # nothing was ever there
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
        """The verdict that tells most of a stretch; those of the scans, sorted."""
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
