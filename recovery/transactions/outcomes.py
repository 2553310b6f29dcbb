"""The outcomes of transactional batches, and the end of a read_committed consumer.

A transactional data batch has the outcome of the next end marker of its producer (RC-5). The marker
may be in the same piece of a segment, after the piece, or in a later segment. If a marker may be
damaged or absent, `unknown_ends` decides.

These are a consumer's outcomes. A broker that replays the log also requires a whole value of a
marker (`end_markers`). It does not load a log without it, and summaries report that.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.transactions.events import (
    Continuation,
    EventWalk,
    LogEvents,
    Stretch,
    ends_behind,
)
from recovery.transactions.unknown_ends import find_ends_of_places, log_files_of_places
from storage.errors import AccessError
from storage.files.uris import is_uri
from storage.formats.control_record import NO_MARKER
from storage.limits import INT64_MAX
from storage.places.list_places import list_places, open_place
from storage.producers.transactions import OpenTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from recovery.transactions.events import Ends, EventBlock
    from recovery.transactions.unknown_ends import UnknownTransaction
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.producers.transactions import OpenTransaction

    Ints = NDArray[np.int64]
    Kinds = NDArray[np.int8]
    Open = Callable[[SegmentPlace], Segment]

LISTING_S = 10.0  # validity of a listing behind a URI
YOUNG_S = 2.0  # a second change within one tick of a file system's clock would not show
MAX_LISTINGS = 64
BEHIND_POS = 1 << 62  # of every marker after the searched stretch


class _Listing(NamedTuple):
    places: tuple[SegmentPlace, ...]
    version: int
    listed_s: float


_listings: dict[str, _Listing] = {}  # by directory


class NextOfProducer:
    """A search for the next marker or end of a producer after a place."""

    def __init__(self, producer_id: Ints, place: Ints) -> None:
        """Take places in ascending order: positions or offsets."""
        self._place = place
        self._producer_ids, slot = np.unique(producer_id, return_inverse=True)
        self._lap = len(place) + 1
        # Producer and row as one number, so one search finds the next row of a producer.
        keys = slot * self._lap + np.arange(len(place))
        self._order = np.argsort(keys)
        self._keys = keys[self._order]

    def rows(self, producer_id: Ints, place: Ints) -> Ints:
        """Return the first row of each producer whose place is above the given place, or -1."""
        if not len(self._keys):
            return np.full(len(place), -1)
        slot = np.searchsorted(self._producer_ids, producer_id)
        slot = np.minimum(slot, len(self._producer_ids) - 1)
        wanted = slot * self._lap + np.searchsorted(self._place, place, "right")
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        is_found = (self._producer_ids[slot] == producer_id) & (self._keys[at] >= wanted)
        is_found &= self._keys[at] // self._lap == slot
        return np.where(is_found, self._order[at], -1)


class Outcomes:
    """The end markers of a stretch of log, for the outcomes of the batches before them."""

    def __init__(self, producer_id: Ints, pos: Ints, kind: Kinds) -> None:
        """Take markers in log order."""
        self._next = NextOfProducer(producer_id, pos)
        self._kind = np.append(kind, np.int8(NO_MARKER))  # the last: for batches without a marker

    def of(self, producer_id: Ints, pos: Ints) -> Kinds:
        """Return COMMIT, ABORT or (NO_MARKER) open for batches at these positions."""
        found: Kinds = self._kind[self._next.rows(producer_id, pos)]
        return found


def ends_by_damage(
    place: SegmentPlace, opener: Open = open_place, listed: Sequence[SegmentPlace] | None = None
) -> Callable[[list[Stretch]], Ends | None]:
    """Return a function that finds ends without a readable marker, in the log of a segment.

    It returns None if compaction explains all of the stretches. For the arguments see
    `later_segments`.
    """
    places = tuple(_listed(place.directory) if listed is None else listed) or (place,)

    def find(stretches: list[Stretch]) -> Ends | None:
        if not log_files_of_places(places, opener).matter(stretches):
            return None
        return find_ends_of_places(places, opener).ends

    return find


def resolve_outcomes(
    segment: Segment,
    start_pos: int,
    end_pos: int | None,
    later: Callable[[], Iterable[Segment]],
    find_ends: Callable[[list[Stretch]], Ends | None] | None = None,
) -> Outcomes:
    """Find the markers that decide the batches of [start_pos, end_pos) of a segment.

    After that range it reads on only until every producer has a marker.

    Args:
        segment: the segment.
        start_pos: a batch boundary.
        end_pos: a batch boundary. None: to the end of the file.
        later: returns the segments after this segment, in order, if they are needed.
        find_ends: called if a marker may be damaged or absent. None: the next marker counts.
    """
    found = _Resolving(segment, start_pos, end_pos, later)
    if find_ends is not None and found.stretches:
        ends = find_ends(found.stretches)
        if ends is not None and len(ends.offset):
            found = _Resolving(segment, start_pos, end_pos, later, ends)
    return found.outcomes()


class _Resolving:
    """A reader that continues until all producers of a stretch of log have a marker."""

    def __init__(
        self,
        segment: Segment,
        start_pos: int,
        end_pos: int | None,
        later: Callable[[], Iterable[Segment]],
        ends: Ends | None = None,
    ) -> None:
        self.stretches: list[Stretch] = []
        self._ends = ends
        self._behind = Continuation()
        self._found: list[tuple[Ints, Ints, Kinds]] = []
        self._pending = np.empty(0, np.int64)
        for table, marker in self._walk(segment, start_pos, end_pos):
            rows = np.flatnonzero(marker)
            self._found.append((table.producer_id[rows], table.pos[rows], marker[rows]))
            self._pending = _still_pending(self._pending, table.producer_id, marker)
        if len(self._pending):
            self._read_behind(segment, end_pos, later)

    def _walk(
        self, segment: Segment, start_pos: int = 0, end_pos: int | None = None
    ) -> Iterator[EventBlock]:
        walk = EventWalk(
            segment, start_pos=start_pos, end_pos=end_pos, before=self._behind, ends=self._ends
        )
        for block in walk:
            self.stretches += walk.stretches
            walk.stretches.clear()
            yield block
        self._behind = walk.behind

    def _read_behind(
        self, segment: Segment, end_pos: int | None, later: Callable[[], Iterable[Segment]]
    ) -> None:
        for table, marker in self._blocks_behind(segment, end_pos, later):
            rows = np.flatnonzero(marker)
            ids, first = np.unique(table.producer_id[rows], return_index=True)
            is_wanted = np.isin(ids, self._pending, assume_unique=True)
            ids, rows = ids[is_wanted], rows[first[is_wanted]]
            self._found.append((ids, np.full(len(ids), BEHIND_POS), marker[rows]))
            self._pending = np.setdiff1d(self._pending, ids, assume_unique=True)
            if not len(self._pending):
                return

    def _blocks_behind(
        self, segment: Segment, end_pos: int | None, later: Callable[[], Iterable[Segment]]
    ) -> Iterator[EventBlock]:
        if end_pos is not None:
            yield from self._walk(segment, end_pos)
        for each in later():
            yield from self._walk(each)
        if self._behind.is_damaged:
            self.stretches.append(Stretch(self._behind.end_offset, INT64_MAX, is_damaged=True))
        if self._ends is not None:
            yield ends_behind(self._ends, self._behind.end_offset)

    def outcomes(self) -> Outcomes:
        """Return the outcomes."""
        if not self._found:
            return Outcomes(self._pending, self._pending, np.empty(0, np.int8))
        return Outcomes(*map(np.concatenate, zip(*self._found, strict=True)))


def _still_pending(pending: Ints, producer_id: Ints, marker: Kinds) -> Ints:
    """Return which producers wait for a marker after these events."""
    if not len(producer_id):
        return pending
    ids, first_from_behind = np.unique(producer_id[::-1], return_index=True)
    last_marker = marker[::-1][first_from_behind]
    return np.union1d(np.setdiff1d(pending, ids, assume_unique=True), ids[last_marker == NO_MARKER])


def later_segments(
    place: SegmentPlace,
    opener: Open = open_place,
    listed: Iterable[SegmentPlace] | None = None,
) -> Iterator[Segment]:
    """Open the segments after a segment. Each is closed by the next.

    Without `listed`, they are the segments of its directory now. Unopenable segments are skipped.
    """
    for each in _listed(place.directory) if listed is None else listed:
        if each.base_offset > place.base_offset:
            try:
                segment = opener(each)
            except AccessError:
                continue
            with segment:
                yield segment


def _listed(directory: str) -> tuple[SegmentPlace, ...]:
    """List a directory, once for all its segments.

    A local directory is listed again if its time shows that files were added or removed. It is also
    listed again if that time was too recent at the listing. A directory behind a URI is listed
    again after LISTING_S.
    """
    now_s = time.time()
    try:
        version = 0 if is_uri(directory) else os.stat(directory).st_mtime_ns  # noqa: PTH116 - fast
        known = _listings.get(directory)
        if known is not None:
            is_same = known.version == version and known.listed_s - version / 1e9 > YOUNG_S
            if is_same and (version or now_s - known.listed_s < LISTING_S):
                return known.places
        places = tuple(
            each for each in list_places([directory]).places if each.directory == directory
        )
    except (AccessError, OSError):
        return ()
    if len(_listings) >= MAX_LISTINGS:
        _listings.clear()
    _listings[directory] = _Listing(places, version, now_s)
    return places


def unknown_in(directory: str) -> tuple[UnknownTransaction, ...]:
    """Return the transactions of a directory whose outcome is unknown."""
    places = _listed(directory)
    return find_ends_of_places(places, open_place).unknown if places else ()


class Stability(NamedTuple):
    """The end of a partition's log, and the end of its decided part.

    Attributes:
        stable_offset: where a read_committed consumer stops (TXN-4).
        log_end_offset: one above the last good batch.
        open_transactions: without a marker, by first offset.
        unknown: transactions whose outcome is unknown.
        problems: segments that could not be opened. The other values are then incomplete.
    """

    stable_offset: int
    log_end_offset: int
    open_transactions: tuple[OpenTransaction, ...]
    unknown: tuple[UnknownTransaction, ...]
    problems: tuple[AccessError, ...]


def find_stability(
    places: Iterable[SegmentPlace],
    *,
    high_watermark: int | None = None,
    log_start_offset: int = 0,
    opener: Open = open_place,
) -> Stability:
    """Find the last stable offset of a partition from its log alone.

    Args:
        places: all segments of one directory, by base offset.
        high_watermark: consumers read only below it, and a transaction that ended at or above it is
            not stable yet. None: the end of the log, which the high watermark reaches with one
            replica, or with all replicas in sync.
        log_start_offset: batches below it open no transaction.
        opener: opens a segment.
    """
    places = tuple(places)
    end_offset = log_start_offset

    def open_next(place: SegmentPlace) -> Segment:
        nonlocal end_offset
        end_offset = max(end_offset, place.base_offset)
        return opener(place)

    def read(ends: Ends | None) -> tuple[LogEvents[SegmentPlace], OpenTransactions]:
        transactions = OpenTransactions(
            log_start_offset=log_start_offset, high_watermark=high_watermark
        )
        events = LogEvents(places, open_next, log_start_offset=log_start_offset, ends=ends)
        for table, _ in events:
            transactions.add_table(table)
        return events, transactions

    events, transactions = read(None)
    unknown: tuple[UnknownTransaction, ...] = ()
    first_open = None
    if events.stretches and log_files_of_places(places, opener).matter(events.stretches):
        found = find_ends_of_places(places, opener)
        unknown, first_open = found.unknown, found.first_open_offset
        if len(found.ends.offset):
            events, transactions = read(found.ends)
    end_offset = max(end_offset, events.end_offset)
    stable_offset = transactions.last_stable_offset(end_offset)
    if stable_offset is None:
        first_unstable = transactions.first_unstable_offset
        stable_offset = end_offset if first_unstable is None else first_unstable
    if first_open is not None:
        stable_offset = min(stable_offset, max(first_open, log_start_offset))
    return Stability(
        stable_offset=stable_offset,
        log_end_offset=end_offset,
        open_transactions=tuple(transactions),
        unknown=unknown,
        problems=tuple(events.problems),
    )
