"""The ledger of offsets: each offset has a record, was compacted, or is lost.

A walk over the good batches of a log fills an `OffsetLedger`, which records the gaps between them.
`absent` judges the gaps of a whole log. Offsets are assigned in sequence, so a log that is never
compacted has no gap between two batches. Compaction explains a gap in these cases:

- Below the line of the log in cleaner-offset-checkpoint, whatever the topic's policy is today.
- If the cleanup.policy of the topic is compact, below the last segment after a crash, which may
  have come between the cleaner and its line. Without a line, anywhere. If the topic may have other
  replicas, also anywhere, since this replica may have fetched a compacted log.
- If the policy is unknown, below the last segment, if a batch proves that a cleaner was there. It
  has fewer records than offsets, or a delete horizon.

Any other gap is a loss, even without further evidence (SEG-4). Sources: LogCleanerManager, Cleaner,
UnifiedLog.append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.dirs.acknowledged_offsets import Acknowledged, Missing
from storage.dirs.log_dir import StoppedState
from storage.formats.record_batch import CODEC_MASK, DELETE_HORIZON_MASK, MAGIC_V2
from storage.log.decoded_records import offsets_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from storage.formats.legacy_message import InnerOffsets
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import HeaderTable
    from storage.log.segment import Segment

MAX_GAPS = 1000  # of a walk; further gaps are joined to one gap
CHECK_ID = "SEG-4"

Gap = tuple[int, int]  # first and last missing offset


class OffsetSpan(NamedTuple):
    """The result of a walk over batches.

    Attributes:
        first_offset: of the first good batch, or None.
        end_offset: one above the last offset of a good batch, or None.
        gaps: offsets between good batches, both bounds inclusive, ascending.
        cleaned_end: one above the last batch that only a cleaner can have written, or 0.
        is_wrapped: the first batch is a compressed message of an old format. The offset in its
            header is its last offset.
        begin_offset: the required offset of the first batch, or None if unknown.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    gaps: tuple[Gap, ...] = ()
    cleaned_end: int = 0
    is_wrapped: bool = False
    begin_offset: int | None = None


def is_thinned(table: HeaderTable) -> NDArray[np.bool_]:
    """Return which batches have fewer records than offsets, which only a cleaner causes."""
    count = table.records_count
    is_less = (count >= 0) & (count <= table.last_offset - table.base_offset)
    return is_less & (table.magic >= MAGIC_V2)


def begin_of(header: BatchHeader, inner: InnerOffsets | None) -> int:
    """Return the first offset of a batch. `inner` are the offsets in a wrapper of an old format."""
    base_offset = header.base_offset
    return base_offset if inner is None else min(inner.first_offset, base_offset)


class OffsetLedger:
    """Follows good batches in the order of their offsets."""

    def __init__(
        self, next_offset: int | None = None, *, cleaned_offset: int | None = None
    ) -> None:
        """Begin.

        Args:
            next_offset: the required offset of the first batch, or None if unknown.
            cleaned_offset: gaps below it are not kept, since the cleaner was there. None if
                unknown.
        """
        self._first: int | None = None
        self._begin = self._end = next_offset
        self._is_wrapped = False
        self._gaps: list[Gap] = []
        self._cleaned_offset = cleaned_offset or 0
        self._cleaned_end = 0

    @property
    def next_offset(self) -> int | None:
        """The required offset of the next batch, or None if unknown."""
        return self._end

    def seek(self, offset: int) -> None:
        """Continue at another offset, without a gap up to it."""
        self._end = offset
        below = ((first, min(last, offset - 1)) for first, last in self._gaps)
        self._gaps = [each for each in below if each[0] <= each[1]]

    def take(self, table: HeaderTable, segment: Segment | None = None) -> None:
        """Take good batches. `segment` is used to read the inner offsets of old wrappers.

        Without it, offsets that are missing before such a wrapper remain unknown.
        """
        import numpy as np

        if segment is not None:
            is_wrapper = (table.magic < MAGIC_V2) & (table.attributes & CODEC_MASK != 0)
            if is_wrapper.any():
                self._take_old(table, np.flatnonzero(is_wrapper).tolist(), segment)
                return
        base, last = table.base_offset, table.last_offset
        before = int(base[0]) if self._end is None else self._end
        ends = np.maximum.accumulate(np.concatenate(([before], last + 1)))
        is_v2 = table.magic >= MAGIC_V2
        is_gap = base > ends[:-1]
        is_cleaned = is_thinned(table)
        is_cleaned |= is_v2 & (table.attributes & DELETE_HORIZON_MASK != 0)
        if is_gap.any():
            # A compressed message of an old format has the last offset in its header.
            is_gap &= is_v2 | (table.attributes & CODEC_MASK == 0)
            is_gap &= base > self._cleaned_offset
            firsts, lasts = ends[:-1][is_gap], base[is_gap] - 1
            room = max(MAX_GAPS - len(self._gaps), 0)
            self._gaps += zip(firsts[:room].tolist(), lasts[:room].tolist(), strict=True)
            if len(lasts) > room:
                self._gaps[-1] = (self._gaps[-1][0], int(lasts[-1]))
        if is_cleaned.any():
            self._cleaned_end = int(ends[1:][is_cleaned][-1])
        is_wrapped = not is_v2[0] and bool(table.attributes[0] & CODEC_MASK)
        self._went_on(int(base[0]), int(ends[-1]), is_wrapped=is_wrapped)

    def _take_old(self, table: HeaderTable, wrappers: Sequence[int], segment: Segment) -> None:
        from storage.kernels.numpy_kernel import batch_at, rows_of

        start = 0
        for row in (*wrappers, table.row_count):
            if row > start:
                self.take(rows_of(table, start, row))
            if row < table.row_count:
                batch = batch_at(table, row)
                self.take_batch(batch.header, offsets_inside(batch, segment))
            start = row + 1

    def take_batch(self, header: BatchHeader, inner: InnerOffsets | None = None) -> None:
        """Take one good batch. `inner` are the offsets in a wrapper of an old format, if known."""
        base, end = begin_of(header, inner), header.last_offset + 1
        is_v2 = header.magic >= MAGIC_V2
        is_wrapped = not is_v2 and bool(header.codec) and inner is None
        if self._end is not None and base > self._end and not is_wrapped:
            self._add(self._end, base - 1)
        is_short = 0 <= header.records_count < end - base
        if is_v2 and (is_short or header.attributes & DELETE_HORIZON_MASK):
            self._cleaned_end = end
        if inner is not None and inner.is_thinned:
            self._cleaned_end = end
        self._went_on(
            base, end if self._end is None else max(end, self._end), is_wrapped=is_wrapped
        )

    def _went_on(self, base: int, end: int, *, is_wrapped: bool) -> None:
        if self._first is None:
            self._first, self._is_wrapped = base, is_wrapped
        self._end = end

    def _add(self, first: int, last: int) -> None:
        if last < self._cleaned_offset:
            return
        if len(self._gaps) == MAX_GAPS:
            first = self._gaps.pop()[0]  # join the two gaps
        self._gaps.append((first, last))

    @property
    def span(self) -> OffsetSpan:
        """Return the result so far."""
        return OffsetSpan(
            first_offset=self._first,
            end_offset=None if self._first is None else self._end,
            gaps=tuple(self._gaps),
            cleaned_end=self._cleaned_end,
            is_wrapped=self._is_wrapped,
            begin_offset=self._begin,
        )


def lost_range(
    first: int, last: int | None, stated: Gap | None, *, is_proven: bool = True
) -> tuple[int, int | None]:
    """Return the offsets that a bad batch has cost.

    These are the offsets between the good batches around it, `first` to `last` (None: no good batch
    follows). If there are none, the batch is in a wrong place, and the `stated` offsets in its own
    header count. If no good batch follows, they count if its checksum `is_proven` and it begins at
    `first` or below.
    """
    is_elsewhere = last is not None and last < first
    if stated is not None and last is None:
        is_elsewhere = is_proven and stated[0] <= first
    if stated is not None and is_elsewhere:
        return stated
    return first, last


def joined(spans: Iterable[OffsetSpan], cleaned_offset: int | None = None) -> OffsetSpan:
    """Join neighbouring spans, in log order. `cleaned_offset` is as in `Acknowledged`."""
    cleaned = cleaned_offset or 0
    first = begin = end = None
    gaps: list[Gap] = []
    cleaned_end = 0
    is_wrapped = False
    for number, each in enumerate(spans):
        if not number:
            begin = end = each.begin_offset
        cleaned_end = max(cleaned_end, each.cleaned_end)
        if each.first_offset is None or each.end_offset is None:
            continue
        own = [gap for gap in each.gaps if end is None or gap[1] >= end]
        # The first gap of a segment begins at its name, below which there may be others.
        low = min([each.first_offset, *(gap[0] for gap in own[:1])])
        if end is not None and low > max(end, cleaned) and not each.is_wrapped:
            if own and own[0][0] == low:
                own[0] = (end, own[0][1])
            else:
                own.insert(0, (end, low - 1))
        gaps += own
        if first is None:
            first, is_wrapped = each.first_offset, each.is_wrapped
        end = each.end_offset if end is None else max(end, each.end_offset)
    return OffsetSpan(
        first_offset=first,
        end_offset=None if first is None else end,
        gaps=tuple(_bounded_count(gaps)),
        cleaned_end=cleaned_end,
        is_wrapped=is_wrapped,
        begin_offset=begin,
    )


def _bounded_count(gaps: list[Gap]) -> list[Gap]:
    """Join the last gaps to one, if there are too many."""
    if len(gaps) <= MAX_GAPS:
        return gaps
    return [*gaps[: MAX_GAPS - 1], (gaps[MAX_GAPS - 1][0], gaps[-1][1])]


def united(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Join gaps that overlap or touch, in any order.

    Above MAX_GAPS the last gaps are joined too.
    """
    found: list[Gap] = []
    for first, last in sorted(gaps):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(_bounded_count(found))


# --- gaps that are losses -------------------------------------------------------------------------


class Cleanup(NamedTuple):
    """The settings of a topic in the metadata, each None if unknown."""

    is_compacted: bool | None = None
    has_other_replicas: bool | None = None
    is_tiered: bool | None = None


class KnownRange(Protocol):
    """A finding that already reports offsets as lost. None: unbounded on that side."""

    @property
    def base_offset(self) -> int | None:
        """The first offset."""

    @property
    def last_offset(self) -> int | None:
        """The last offset, inclusive."""


def absent(
    known: Acknowledged,
    span: OffsetSpan,
    find_cleanup: Callable[[], Cleanup],
    reported: Sequence[KnownRange] = (),
    *,
    is_whole: bool = True,
) -> tuple[Missing, ...]:
    """Return the lost offsets between the batches of a log, in order.

    Args:
        known: of the directory of the log.
        span: of its good batches.
        find_cleanup: looks the topic up, if there is a gap (`cleanup_of`, `Partition.cleanup`).
        reported: offsets already reported as lost, such as damaged stretches.
        is_whole: the span goes to the end of the log. So the last batches before the last segment
            may be missing too.
    """
    gaps = list(_bounded(known, span, is_whole=is_whole))
    front = _front(known, span) if is_whole else None
    if not gaps and front is None:
        return ()
    cleanup = find_cleanup()
    reach = _reach(known, span, cleanup)
    is_tiered = known.is_likely_tiered if cleanup.is_tiered is None else cleanup.is_tiered
    found: list[Missing] = []
    if front is not None and not is_tiered:
        found += without([front], reported)
    for gap in gaps:
        for first, last in _uncovered(gap, reported):
            if last >= reach:
                found.append(_missing(max(first, reach), last, cleanup))
    return tuple(found)


def _front(known: Acknowledged, span: OffsetSpan) -> Missing | None:
    """Return the offsets before the first segment that the leader epochs prove."""
    begin, bases = known.begin_offset, known.bases
    if begin is None or not bases or (span.begin_offset or 0) > bases[0]:
        return None
    first = max(begin, known.log_start_offset or 0)
    if first >= bases[0]:
        return None
    why = f"the first segment begins at {bases[0]}, and the leader epochs at {begin}"
    return Missing(base_offset=first, last_offset=bases[0] - 1, why=why, check_id=CHECK_ID)


def without(gaps: Iterable[Missing], reported: Sequence[KnownRange]) -> Iterator[Missing]:
    """Yield the parts of gaps that are not already reported as lost."""
    for each in gaps:
        assert each.last_offset is not None
        for first, last in _uncovered((each.base_offset, each.last_offset), reported):
            yield each._replace(base_offset=first, last_offset=last)


def unread(base_offset: int, end_offset: int | None) -> Missing:
    """Return the range of an unread segment, for use as `reported`."""
    last = None if end_offset is None else end_offset - 1
    return Missing(base_offset, last, why="not read", check_id="", is_read=False)


def not_given(
    known: Acknowledged,
    span: OffsetSpan,
    find_cleanup: Callable[[], Cleanup],
    reported: Sequence[KnownRange] = (),
    *,
    end_offset: int | None = None,
    is_end_read: bool = True,
) -> tuple[Missing, ...]:
    """Return all offsets that a reader of a whole log does not return.

    They are hidden, absent, or behind its end. The arguments are as in `absent`, with the end
    offset of the log (None: the end of the span), and whether the last `.log` could be read to its
    end.
    """
    if not known.bases:
        return known.not_given(None)
    if end_offset is None:
        end_offset = max(known.bases[-1], span.end_offset or 0)
    bounded = [each for each in reported if None not in (each.base_offset, each.last_offset)]
    others: list[Missing] = []
    for each in known.not_given(end_offset, is_end_read=is_end_read):
        is_apart = each.is_on_disk or each.last_offset is None
        others += [each] if is_apart else without([each], bounded)
    found = absent(known, span, find_cleanup, [*reported, *others])
    return tuple(sorted((*others, *found), key=lambda each: each.base_offset))


def _missing(first: int, last: int, cleanup: Cleanup) -> Missing:
    why = {
        None: "no batch has them, the cleanup.policy of the topic is unknown (--cleanup-policy "
        "states it), and nothing shows that they were compacted",
        False: "no batch has them, and the topic is not compacted",
        True: "no batch has them, and no cleaner has been there",
    }[cleanup.is_compacted]
    return Missing(base_offset=first, last_offset=last, why=why, check_id=CHECK_ID)


def _bounded(known: Acknowledged, span: OffsetSpan, *, is_whole: bool) -> Iterator[Gap]:
    """Yield the gaps above the log start, for a whole log also the gaps at its ends."""
    gaps = list(span.gaps)
    bases = known.bases
    start = known.log_start_offset or 0
    if known.hidden(max(span.end_offset or 0, max(bases, default=0))) is not None:
        start = 0
    if is_whole and bases:
        begin = bases[0] if span.begin_offset is None else span.begin_offset
        gaps.append((begin if span.end_offset is None else span.end_offset, bases[-1] - 1))
    for first, last in gaps:
        if max(first, start, known.cleaned_offset or 0) <= last:
            yield max(first, start), last


def _reach(known: Acknowledged, span: OffsetSpan, cleanup: Cleanup) -> int:
    """Return the offset below which compaction explains a gap."""
    reach = known.cleaned_offset or 0
    if cleanup.is_compacted is False:
        return reach
    last_base = max(known.bases, default=0)
    if cleanup.is_compacted is None:
        return max(reach, span.cleaned_end, last_base) if span.cleaned_end else reach
    reach = max(reach, span.cleaned_end)
    is_crashed = known.stopped is not StoppedState.CLEAN
    is_line_missing = known.cleaned_offset is None or (is_crashed and not known.cleaned_offset)
    if cleanup.has_other_replicas is not False or is_line_missing:
        return max(reach, span.end_offset or 0)
    return max(reach, last_base) if is_crashed else reach


def _uncovered(gap: Gap, reported: Sequence[KnownRange]) -> Iterator[Gap]:
    """Yield the parts of a gap that are not already reported."""
    first, last = gap
    ranges = sorted(
        (
            first if each.base_offset is None else each.base_offset,
            last if each.last_offset is None else each.last_offset,
        )
        for each in reported
    )
    for low, high in ranges:
        if high < first or low > last:
            continue
        if low > first:
            yield first, low - 1
        first = high + 1
    if first <= last:
        yield first, last
