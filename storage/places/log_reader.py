"""The batches of a segment for readers of records, with the ledger of lost offsets.

`SegmentReader` yields all batches in the order of the log, healthy batches in windows, and
continues behind damage. Data that it cannot return becomes findings: stretches with their offsets.

The neighbours of a bad stretch give its offsets. They begin behind the last good batch before it
and end before the first good batch behind it. That is an upper limit, which includes control
records and compacted records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from storage.dirs.lookup import END_KINDS, OFFSET_CHECK_IDS, DoubtfulOffsets, LostRecords
from storage.dirs.offset_ledger import OffsetLedger, begin_of, lost_range
from storage.errors import AccessError
from storage.formats.control_record import REFUSED_CHECK_ID
from storage.kernels.protocol import MAX_SINGLES, ScannedBatch, Verdict, VerdictKind, in_words
from storage.limits import MAX_OFFSET
from storage.log.decoded_records import lost_base_offset, offsets_inside, wrong_wrapper_offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    import numpy as np
    from numpy.typing import NDArray

    from storage.dirs.acknowledged_offsets import Missing
    from storage.errors import FormatError
    from storage.kernels.numpy_kernel import BulkScan, BulkWindow, ScanBlock
    from storage.kernels.protocol import HeaderTable
    from storage.log.segment import Segment
    from storage.places.splits import Split

GONE = "gone"


class ReadFinding(NamedTuple):
    """One bad stretch of a segment. Positions are half open, in bytes.

    Attributes:
        path: of the segment.
        start_pos, end_pos: the stretch.
        kind: the VerdictKind of the verdict, or GONE. Content that does not decode is corrupt.
        check_id: the broken rule, "" for an unreadable stretch.
        reason: in words.
        errno: of the failed read, else 0.
        base_offset, last_offset: the offsets that may be missing, inclusive. None if unknown on
            that side. `last_offset` is below `base_offset` if no offset is missing.
        is_lost: there are no records from it. False if only its frame is wrong, or for an end of a
            log as after a crash.
    """

    path: str
    start_pos: int
    end_pos: int
    kind: str
    check_id: str
    reason: str
    errno: int = 0
    base_offset: int | None = None
    last_offset: int | None = None
    is_lost: bool = True

    @classmethod
    def of_verdict(cls, path: str, verdict: Verdict) -> Self:
        """Return the finding for a verdict, without the offsets around it."""
        return cls(
            path=path,
            start_pos=verdict.start_pos,
            end_pos=verdict.end_pos,
            kind=verdict.kind,
            check_id=verdict.check_id,
            reason=verdict.reason,
            errno=verdict.errno,
            is_lost=verdict.is_lost,
        )

    @property
    def reported(self) -> str:
        """Return place, kind and reason in words."""
        where = f"{self.path}: positions {self.start_pos} to {self.end_pos}"
        return f"{where}: {self.kind}: {self.reason} [{self.check_id}]"

    @property
    def with_offsets(self) -> str:
        """Return kind, place and the maximum of missing offsets in words."""
        first = "unknown" if self.base_offset is None else self.base_offset
        last = "unknown" if self.last_offset is None else self.last_offset
        offsets = "no offset is missing" if self.is_empty else f"offsets {first} to {last}"
        return f"{self}; {offsets}"

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields for programs besides the words."""
        return {name: value for name, value in self._asdict().items() if name in _REPORTED_FIELDS}

    @property
    def is_empty(self) -> bool:
        """Return whether there is no room for a record, so that no offset is missing."""
        first, last = self.base_offset, self.last_offset
        return first is not None and last is not None and last < first

    @property
    def is_corrupt(self) -> bool:
        """Return whether readable data is damaged. A torn tail of the last segment is not."""
        is_other = self.is_gone or self.is_unreadable or self.is_missing
        return not is_other and VerdictKind(self.kind).is_damage

    @property
    def is_unreadable(self) -> bool:
        """Return whether the operating system could not read it."""
        return self.kind == VerdictKind.UNREADABLE

    @property
    def is_gone(self) -> bool:
        """Return whether retention has removed the segment, which is no loss."""
        return self.kind == GONE

    @property
    def is_missing(self) -> bool:
        """Return whether acknowledged offsets are missing on disk."""
        return self.kind == VerdictKind.MISSING

    def __str__(self) -> str:
        if self.kind in {GONE, VerdictKind.MISSING}:
            return f"{self.path}: {self.reason}"
        verdict = Verdict(
            kind=VerdictKind(self.kind),
            start_pos=self.start_pos,
            end_pos=self.end_pos,
            check_id=self.check_id,
            reason=self.reason,
            errno=self.errno,
        )
        return in_words(self.path, verdict)


def gone(path: str) -> ReadFinding:
    """Return the finding for a segment that retention has removed meanwhile: no damage."""
    return ReadFinding(
        path=path,
        start_pos=0,
        end_pos=0,
        kind=GONE,
        check_id="",
        reason="removed since the directory was listed",
        is_lost=False,
    )


def not_there(path: str, missing: Missing) -> ReadFinding:
    """Return the finding for offsets that no file has, or that a wrong log start hides."""
    return ReadFinding(
        path=path,
        start_pos=0,
        end_pos=0,
        kind=VerdictKind.MISSING,
        check_id=missing.check_id,
        reason=str(missing),
        base_offset=missing.base_offset,
        last_offset=missing.last_offset,
    )


def content_finding(
    path: str, batch: ScannedBatch, error: FormatError | AccessError, floor_offset: int | None
) -> ReadFinding:
    """Return the finding for a batch without readable content.

    `floor_offset` is the end offset of the batch before.
    """
    header = batch.header
    if isinstance(error, AccessError):
        kind, check_id, errno, reason = VerdictKind.UNREADABLE, "", error.errno, error.reason
    else:
        kind, check_id, errno, reason = VerdictKind.CORRUPT, error.check_id, 0, error.message
    return ReadFinding(
        path=path,
        start_pos=batch.pos,
        end_pos=batch.pos + header.batch_bytes,
        kind=kind,
        check_id=check_id,
        reason=reason,
        errno=errno,
        base_offset=lost_base_offset(header, floor_offset),
        last_offset=header.last_offset,
    )


_REPORTED_FIELDS = frozenset(ReadFinding._fields) - {"errno", "is_lost"}


class FindingsList:
    """A converter of the verdicts of a scan to findings, with the offsets around them.

    Attributes:
        found: the findings so far, complete after `finish`.
        ledger: the offsets of the good batches.
        wrong_wrappers: good compressed messages of format 0 whose own offset is not the offset of
            their last inner message.
    """

    def __init__(
        self,
        path: str,
        base_offset: int | None,
        *,
        is_last: bool = True,
        cleaned_offset: int | None = None,
    ) -> None:
        """Begin the findings of one scan.

        Args:
            path: of the segment.
            base_offset: of the segment, or None if the scan does not begin with it.
            is_last: the scan goes to the end of the segment.
            cleaned_offset: as in `OffsetLedger`.
        """
        self.found: list[ReadFinding] = []
        self.wrong_wrappers: list[ReadFinding] = []
        self.ledger = OffsetLedger(base_offset, cleaned_offset=cleaned_offset)
        self._is_last = is_last
        self._path = path
        self._seen_count = 0
        self._waiting: list[ReadFinding] = []  # findings before the next good batch
        # Offsets of bad batches, by position, and whether their checksums are right.
        self._stated: dict[int, tuple[tuple[int, int], bool]] = {}
        self._reported: dict[int, bool] = {}  # by start of a verdict, whether it is a loss
        self._next_offset = base_offset

    @classmethod
    def of(cls, split: Split) -> Self:
        """Begin the findings of a scan of a split."""
        place = split.place
        base_offset = None if split.start_pos else place.base_offset
        cleaned = place.cleaned_offset
        return cls(place.path, base_offset, is_last=split.is_last, cleaned_offset=cleaned)

    @property
    def end_offset(self) -> int | None:
        """One above the last good batch, or None before the first."""
        return self.ledger.span.end_offset

    def inspect(self, scan: BulkScan) -> None:
        """Take the new verdicts. Call it before the rows that come after them."""
        for verdict in scan.verdicts[self._seen_count :]:
            self._reported[verdict.start_pos] = verdict.is_lost
            self._waiting.append(self._of_verdict(verdict))
        self._seen_count = len(scan.verdicts)

    def is_lost(self, pos: int) -> bool:
        """Return whether a verdict at this position costs the records of the batch."""
        return self._reported.get(pos, False)

    def passed(self, table: HeaderTable) -> None:
        """Take healthy batches that follow each other."""
        if self._waiting:
            still = []
            for each in self._waiting:
                at, behind = map(int, table.pos.searchsorted((each.start_pos, each.end_pos)))
                base_offset = int(table.last_offset[at - 1]) + 1 if at else each.base_offset
                finding = each._replace(base_offset=base_offset)
                if behind < table.row_count:
                    last_offset = int(table.base_offset[behind]) - 1
                    self.found.append(finding._replace(last_offset=last_offset))
                else:
                    still.append(finding)
            self._waiting = still
        self.ledger.take(table)
        self._next_offset = int(table.last_offset[-1]) + 1

    def passed_batch(self, batch: ScannedBatch, segment: Segment) -> None:
        """Take a single batch. Its offsets count if its records do."""
        if batch.crc_ok is False or self.is_lost(batch.pos):
            if 0 <= batch.header.base_offset <= MAX_OFFSET:
                stated = batch.header.base_offset, batch.header.last_offset
                self._stated[batch.pos] = stated, batch.crc_ok is not False
            return
        inner = offsets_inside(batch, segment)
        if inner and (error := wrong_wrapper_offset(batch, inner.last_offset)) is not None:
            floor_offset = self.ledger.next_offset
            self.wrong_wrappers.append(content_finding(self._path, batch, error, floor_offset))
        base_offset = begin_of(batch.header, inner)
        still = []
        for each in self._waiting:
            if each.end_pos <= batch.pos:
                self.found.append(each._replace(last_offset=base_offset - 1))
            elif each.start_pos > batch.pos:
                still.append(each._replace(base_offset=batch.header.last_offset + 1))
            else:
                still.append(each)
        self._waiting = still
        self.ledger.take_batch(batch.header, inner)
        self._next_offset = batch.header.last_offset + 1

    def add_error(
        self,
        batch: ScannedBatch,
        error: FormatError | AccessError,
        *,
        floor_offset: int | None = None,
        is_lost: bool = True,
    ) -> None:
        """Add the finding for a batch without readable content.

        `floor_offset` is the end offset of the batch before. A batch has one finding. A loss
        replaces a finding without a loss.
        """
        if batch.pos in self._reported:
            if self.is_lost(batch.pos) or not is_lost:
                return
            self._waiting = [each for each in self._waiting if each.start_pos != batch.pos]
            self.found = [each for each in self.found if each.start_pos != batch.pos]
        found = content_finding(self._path, batch, error, floor_offset)
        if batch.header.is_control and found.is_corrupt:
            # Whatever is wrong with the record, it is no end marker.
            found = found._replace(check_id=REFUSED_CHECK_ID)
        self.found.append(found._replace(is_lost=is_lost))

    def add_unreadable(self, error: AccessError, start_pos: int, end_pos: int) -> None:
        """Add the finding for an unreadable stretch of the file."""
        self._waiting.append(
            ReadFinding(
                path=self._path,
                start_pos=start_pos,
                end_pos=end_pos,
                kind=VerdictKind.UNREADABLE,
                check_id="",
                reason=error.reason,
                errno=error.errno,
                base_offset=self._next_offset,
            )
        )

    def finish(self) -> None:
        """Add the findings that no good batch follows, and sort all."""
        found = sorted(
            [*self.found, *self._waiting], key=lambda each: (each.start_pos, each.end_pos)
        )
        self.found, self._waiting = [], []
        next_offset = -1  # behind a bad batch that only its own offsets bound
        for each in found:
            is_open = each.last_offset is None
            base_offset = each.base_offset
            if is_open and base_offset is not None:
                base_offset = max(base_offset, next_offset)
            placed = self._with_range(each._replace(base_offset=base_offset))
            if is_open and placed.last_offset is not None:
                next_offset = max(next_offset, placed.last_offset + 1)
            self.found.append(placed)

    def _with_range(self, found: ReadFinding) -> ReadFinding:
        """Return the finding with the offsets in a batch's header, if there is no room for it."""
        if not found.is_lost or found.base_offset is None:
            return found
        stated, is_proven = self._stated.get(found.start_pos, (None, False))
        first, last = lost_range(found.base_offset, found.last_offset, stated, is_proven=is_proven)
        return found._replace(base_offset=first, last_offset=last)

    def _of_verdict(self, verdict: Verdict) -> ReadFinding:
        kind, check_id = verdict.kind, verdict.check_id
        if not self._is_last and check_id == "SEG-5":
            # The end of a split is not the end of the segment: the length of the batch is wrong.
            kind, check_id = VerdictKind.CORRUPT, "BAT-2"
        return ReadFinding.of_verdict(self._path, verdict)._replace(
            kind=kind,
            check_id=check_id,
            base_offset=self._next_offset,
            is_lost=verdict.is_lost and kind not in END_KINDS,
        )


# -- the reader


class Block(NamedTuple):
    """Successive batches of a segment.

    Attributes:
        table: their headers.
        window: the window of all of them, if they are healthy. None if they needed single checks or
            are of an old format.
        singles: these batches. Empty for a window.
        before: verdicts on the stretches between the block before and the first batch.
        floor_offset: one above the last good batch before, or None.
        doubtful: positions of batches with an impossible offset, so far.
        lost: positions of batches whose records nobody can read, so far.
    """

    table: HeaderTable
    window: BulkWindow | None
    singles: Sequence[ScannedBatch]
    before: Sequence[Verdict]
    floor_offset: int | None
    doubtful: set[int]
    lost: set[int]

    def rows_at(self, positions: set[int]) -> NDArray[np.bool_]:
        """Return which batches begin at one of these positions."""
        import numpy as np

        if not positions:
            return np.zeros(self.table.row_count, np.bool_)
        return np.isin(self.table.pos, list(positions))


class SegmentReader:
    """The batches of one segment, or of a piece of it, for readers that continue behind damage.

    Attributes:
        scan: reads them. Its verdicts cover all data read so far.
        findings: the data that cannot be returned, and the ledger of the offsets of good batches.
        rest: verdicts on the stretches behind the last batch, known at the end.
    """

    def __init__(
        self,
        segment: Segment,
        findings: FindingsList,
        *,
        with_bodies: bool = True,
        in_order: bool = False,
        most: int = MAX_SINGLES,
        doubtful_ids: AbstractSet[str] = OFFSET_CHECK_IDS,
        **options: Any,
    ) -> None:
        """Begin.

        Args:
            segment: is open.
            findings: of this segment, still empty.
            with_bodies: as in `BulkScan`.
            in_order: no block contains a stretch with a verdict.
            most: most single batches of a block.
            doubtful_ids: the rules that an impossible offset breaks.
            options: of `Segment.scan`.
        """
        from storage.kernels.numpy_kernel import BulkScan

        self.scan = BulkScan(segment, with_bodies=with_bodies, **options)
        self.findings = findings
        self.rest: Sequence[Verdict] = ()
        self._segment = segment
        self._in_order, self._most = in_order, most
        self._doubtful = DoubtfulOffsets(self.scan, doubtful_ids)
        self._lost = LostRecords(self.scan)
        self._floors: list[int | None] = []  # before each part since the last block
        self._passed_count = 0  # verdicts before the last part
        self._reported_count = 0  # verdicts in blocks

    @classmethod
    def of_split(
        cls, split: Split, segment: Segment, findings: FindingsList | None = None, **options: Any
    ) -> Self:
        """Read a split of an open segment, with the options of a reader."""
        place = split.place
        return cls(
            segment,
            FindingsList.of(split) if findings is None else findings,
            **options,
            start_pos=split.start_pos,
            end_pos=None if split.is_last else split.end_pos,
            is_active=place.is_active and split.is_last,
            end_offset=place.end_offset,
            claimed_end=place.claimed_end if split.is_last else None,
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the batches in the order of the log, once."""
        from storage.kernels.numpy_kernel import blocks

        for each in blocks(self.scan, most=self._most, meet=self._meet):
            yield self._block(each)
        self.findings.inspect(self.scan)
        self.rest = self.scan.verdicts[self._reported_count :]

    def _meet(self, part: BulkWindow | ScannedBatch) -> bool:
        """Add a part to the ledger. True if it begins a block, because a verdict lies before it."""
        findings = self.findings
        findings.inspect(self.scan)
        self._floors.append(findings.end_offset)
        if isinstance(part, ScannedBatch):
            pos = part.pos
            findings.passed_batch(part, self._segment)
        else:
            pos = int(part.table.pos[0])
            findings.passed(part.table)
        known_count = self._passed_count
        self._passed_count = self._count_to(pos, known_count)
        return self._in_order and self._passed_count > known_count

    def _count_to(self, pos: int, count: int) -> int:
        """Return the number of verdicts up to a position, at least `count`."""
        verdicts = self.scan.verdicts
        while count < len(verdicts) and verdicts[count].start_pos <= pos:
            count += 1
        return count

    def _block(self, given: ScanBlock) -> Block:
        floor_offset = self._floors[0]
        del self._floors[: len(given.singles) or 1]
        reported_count = self._reported_count
        self._reported_count = self._count_to(int(given.table.pos[0]), reported_count)
        return Block(
            table=given.table,
            window=given.window,
            singles=given.singles,
            before=self.scan.verdicts[reported_count : self._reported_count],
            floor_offset=floor_offset,
            doubtful=self._doubtful.positions,
            lost=self._lost.positions,
        )
