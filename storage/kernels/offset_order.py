"""The decision which of two batches with contradictory base offsets has the wrong offset.

No checksum covers a base offset, so only the batches around can confirm it. Offsets ascend, and a
gap is legal (compaction leaves gaps). A batch that begins at the end of the batch before it is
trusted. A batch behind a gap is trusted unless the next LOOK_COUNT proven batches contradict it,
including batches behind damage. It loses if more batches ascend without it than with it. If the
counts are equal, the first rule that applies decides between the two batches. That batch loses

- which is a copy of the batch before,
- which has room elsewhere between its neighbours, if the other batch has no room,
- which does not begin at the end of the batch before both, while the other batch does,
- whose successor does not follow it,
- which closes every gap if it is moved to the end of the batch before it,
- which has the larger jump.

Reading (`scan`), the search behind damage (`resync`) and salvage share this rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.formats.record_batch import MAGIC_V2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.formats.record_batch import BatchHeader

INSPECTED_COUNT = 4  # the most batches in a row with wrong offsets, plus one


class ClaimedEnd(NamedTuple):
    """The end of a log by the checkpoints of its log directory.

    Attributes:
        offset: one above the last offset. It is a lower bound unless `is_exact`.
        is_exact: the broker was stopped cleanly, so its recovery point is the log end.
    """

    offset: int
    is_exact: bool


class Span(NamedTuple):
    """A batch, or several back to back. Positions are half open, in bytes, offsets inclusive.

    `is_old`: it is of an old format.
    """

    start_pos: int
    end_pos: int
    base_offset: int
    last_offset: int
    is_old: bool = False

    @classmethod
    def of(cls, pos: int, header: BatchHeader) -> Span:
        """Return the span of a batch. The header of a legacy wrapper has only its last offset."""
        is_old = header.magic < MAGIC_V2
        return cls(pos, pos + header.batch_bytes, header.base_offset, header.last_offset, is_old)

    @property
    def offsets_count(self) -> int:
        """The number of its offsets."""
        return self.last_offset - self.base_offset + 1


class Around(NamedTuple):
    """The surroundings of two batches that contradict each other.

    Attributes:
        before: last offset before both.
        is_adjacent: the earlier batch lies at the end of the batch before both.
        following: base offset of the batch directly behind both, or None.
        limit: base offset of the data behind both, or None if unknown.
    """

    before: int
    is_adjacent: bool
    following: int | None
    limit: int | None


def earlier_goes(earlier: Span, later: Span, around: Around) -> bool:
    """Return whether the earlier of two contradictory batches has the wrong offset."""
    before, is_adjacent, following, limit = around
    earlier_has_room = later.base_offset - before > earlier.offsets_count
    later_has_room = limit is None or limit - earlier.last_offset > later.offsets_count
    if earlier_has_room is not later_has_room:
        return earlier_has_room
    if earlier.base_offset == before + 1:
        return False
    if later.base_offset == before + 1:
        return True
    if following == later.last_offset + 1 != earlier.last_offset + 1:
        return True
    if is_adjacent and before + 1 + earlier.offsets_count == later.base_offset:
        return True
    if following == earlier.last_offset + 1 + later.offsets_count:
        return False
    return later.base_offset < earlier.base_offset


class Followers(Protocol):
    """A search for the batches behind a place: `storage.kernels.resync.Resync`."""

    def goes_on(self, pos: int, count: int, last_offset: int) -> bool:
        """Return whether the next headers, as far as lengths lead, have ascending offsets."""

    def is_end(self, pos: int) -> bool:
        """Return whether only the end of the file, or zeros up to it, is at `pos`."""

    def followers(self, pos: int, count: int, after: int) -> list[Span]:
        """Return the next proven batches from `pos` on, behind damage only those above `after`."""

    def offset_at(self, pos: int) -> int | None:
        """Return the offset in the header at `pos`, damaged or not, or None without a header."""

    def is_copy(self, one: Span, other: Span) -> bool:
        """Return whether two good batches are duplicates."""

    def whole_span(self, span: Span) -> Span:
        """Return the span with all offsets of a legacy wrapper."""


class OffsetOrder:
    """Doubts base offsets during the walk of a segment."""

    def __init__(
        self, search: Followers, end_offset: int | None, claimed_end: ClaimedEnd | None = None
    ) -> None:
        """Begin.

        Args:
            search: for the batches behind a place.
            end_offset: the end of the segment, if known.
            claimed_end: of the log, for its last segment, or None if unknown.
        """
        self._search = search
        self._end_offset = end_offset
        self._claimed_end = claimed_end

    def doubt(self, batch: Span, before: int, behind: Sequence[Span] = ()) -> str:
        """Return the reason to distrust a batch's offset, "" if it is trusted.

        Args:
            batch: good except for its offset.
            before: last offset of the trusted batch before it.
            behind: batches with right checksums that directly follow it.
        """
        if batch.base_offset <= before + 1 or len(behind) >= INSPECTED_COUNT:
            return ""
        pos = behind[-1].end_pos if behind else batch.end_pos
        wanted = INSPECTED_COUNT - len(behind)
        last = behind[-1].last_offset if behind else batch.last_offset
        if self._search.goes_on(pos, wanted, last):
            if not behind and self._search.is_end(pos):
                return self._doubt_last(batch, before)
            return self._doubt_old(batch, before, behind) if batch.is_old else ""
        found = [*behind, *self._search.followers(pos, wanted, before)]
        if not found:
            # This is the last good batch. A damaged batch may still have its offset in its header.
            rightful_end = before + 1 + batch.offsets_count
            if self._search.offset_at(batch.end_pos) == rightful_end:
                words = f"contradicts what is left of a batch behind it, from {rightful_end} on"
                return f"offset {batch.base_offset} {words}"
            return self._doubt_last(batch, before)
        with_it = 1 + _ascending_count(found, batch.last_offset)
        without_it = _ascending_count(found, before)
        if without_it < with_it:
            return ""
        place, other = next(
            (place, each)
            for place, each in enumerate(found)
            if before < each.base_offset <= batch.last_offset
        )
        if without_it == with_it:
            if self._search.is_copy(batch, other):
                return ""
            around = self._around(before, batch, found[place : place + 2])
            whole = self._search.whole_span
            if not earlier_goes(whole(batch), whole(other), around):
                return ""
        first, last = before + 1, other.base_offset - 1
        room = f"{first} to {last}" if first <= last else "none"
        words = f"contradicts the batches behind it, which leave {room} for it"
        return f"offset {batch.base_offset} {words}"

    def _doubt_old(self, batch: Span, before: int, behind: Sequence[Span]) -> str:
        """Compare a batch of an old format with the messages inside the next batch.

        The header of a wrapper does not show that the two overlap.
        """
        found = [*behind[:2]] or self._search.followers(batch.end_pos, 2, before)
        if not found:
            return ""
        whole, other = self._search.whole_span(batch), self._search.whole_span(found[0])
        if not before < other.base_offset <= whole.last_offset:
            return ""
        if not earlier_goes(whole, other, self._around(before, batch, found)):
            return ""
        first = other.base_offset
        return f"offset {batch.base_offset} contradicts the messages from {first} on behind it"

    def _doubt_last(self, batch: Span, before: int) -> str:
        """Compare the last batch of a log with the end in its checkpoints.

        After a crash the checkpoints give only a lower bound. Then the offset must be wrong by one
        bit, and the corrected batch must reach an acknowledged offset.
        """
        claimed = self._claimed_end
        if claimed is None:
            return ""
        batch = self._search.whole_span(batch)
        rightful_end = before + 1 + batch.offsets_count
        if rightful_end == batch.last_offset + 1:
            return ""
        if claimed.is_exact:
            is_wrong = batch.last_offset >= claimed.offset
        else:
            is_one_bit = (batch.base_offset ^ (before + 1)).bit_count() == 1
            is_wrong = is_one_bit and before + 1 < claimed.offset <= rightful_end
        if not is_wrong:
            return ""
        what = "at its clean stop" if claimed.is_exact else "at least, by its checkpoints"
        return f"offset {batch.base_offset} contradicts the log's end, {claimed.offset} {what}"

    def _around(self, before: int, batch: Span, found: Sequence[Span]) -> Around:
        """Return the surroundings of a batch and of `found[0]`, which contradicts it."""
        other, following, limit = found[0], None, self._end_offset
        for later in map(self._search.whole_span, found[1:]):
            if later.start_pos == other.end_pos:
                following = later.base_offset
            if later.base_offset > other.last_offset:
                limit = later.base_offset
        is_adjacent = batch.end_pos == other.start_pos
        return Around(before, is_adjacent=is_adjacent, following=following, limit=limit)


def _ascending_count(spans: Sequence[Span], above: int) -> int:
    """Return how many of a few batches can be kept so that all ascend from `above` on."""
    best: list[int] = []
    for number, span in enumerate(spans):
        if span.base_offset <= above:
            best.append(0)
            continue
        before = (
            best[place]
            for place, each in enumerate(spans[:number])
            if each.last_offset < span.base_offset
        )
        best.append(1 + max(before, default=0))
    return max(best, default=0)
