"""What became of transactional batches, and where a read_committed consumer stops.

A transactional data batch has the outcome of the next end marker of its producer behind it (RC-5),
wherever that lies: in the same piece of a segment, behind it, or in a later segment. Markers count
if their batch has a right checksum and its record decodes. What damage has swallowed cannot count:
a batch before a damaged marker has the outcome of the one behind the damage. In compacted logs a
marker may be gone in the same way.

The key alone says what a marker is, as for a consumer (`storage.log.markers`), whose outcomes these
are. A broker that replays the log wants a whole value too (`end_markers`), and loads nothing of a
log without one: summaries tell of that.

Everything here walks headers; of all records only those of control batches are decoded.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.replay.end_markers import batch_at
from recovery.summaries.producer_summary import ABORT, COMMIT, NO_MARKER
from storage.dirs.lookup import DoubtfulOffsets
from storage.errors import AccessError, FormatError
from storage.files.uris import is_uri
from storage.formats.control_record import KEY_BYTES
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.numpy_kernel import BulkScan, rows_of, tables_and_windows
from storage.kernels.protocol import HeaderTable, ScannedBatch
from storage.kernels.record_table import decode_records
from storage.log.markers import marker_is_commit
from storage.places.find import list_places, open_place
from storage.producers.transactions import OpenTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from storage.kernels.numpy_kernel import BulkWindow
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.producers.transactions import OpenTransaction

    Ints = NDArray[np.int64]
    Kinds = NDArray[np.int8]
    Flags = NDArray[np.bool_]
    Open = Callable[[SegmentPlace], Segment]
    OnError = Callable[[ScannedBatch, FormatError | AccessError], None]

LISTING_S = 10.0  # how long a listing behind a URI is used
YOUNG_S = 2.0  # a second change within the same tick of a file system's clock would not show
MAX_LISTINGS = 64
BEHIND_POS = 1 << 62  # of every marker that lies behind the stretch it was looked for


class _Listing(NamedTuple):
    places: tuple[SegmentPlace, ...]
    version: int
    listed_s: float


_listings: dict[str, _Listing] = {}  # by directory


class EventBlock(NamedTuple):
    """Transactional data batches and end markers in log order.

    `marker` is COMMIT or ABORT, NO_MARKER for a data batch.
    """

    table: HeaderTable
    marker: Kinds


def is_data_of_transaction(table: HeaderTable) -> Flags:
    """Tell which rows are transactional data batches with a producer and a right checksum."""
    kind = table.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK)
    is_data: Flags = (kind == TRANSACTIONAL_MASK) & (table.magic >= MAGIC_V2)
    is_data &= (table.producer_id >= 0) & table.crc_ok
    return is_data


def is_control_of_producer(table: HeaderTable) -> Flags:
    """Tell which rows may hold an end marker; an empty control batch has no effect (PROD-9)."""
    is_control: Flags = (table.attributes & CONTROL_MASK) != 0
    is_control &= (table.magic >= MAGIC_V2) & (table.producer_id >= 0)
    is_control &= (table.records_count > 0) & table.crc_ok
    return is_control


def _no_matter(batch: ScannedBatch, error: FormatError | AccessError) -> None:
    """Take no notice: who reads the records of that stretch tells of it."""


def read_marker_kinds(
    segment: Segment,
    table: HeaderTable,
    window: BulkWindow | None = None,
    on_error: OnError = _no_matter,
) -> Kinds:
    """Say what the control batches of a table are: COMMIT, ABORT, or NO_MARKER for anything else.

    Args:
        segment: where they are.
        table: control batches only.
        window: holds them all, if they are healthy.
        on_error: told of those that do not decode.
    """
    kinds = np.zeros(table.row_count, np.int8)
    is_known = np.zeros(table.row_count, np.bool_)
    done = 0
    while window is not None and done < table.row_count:
        part = rows_of(table, done, table.row_count)
        records = decode_records(part, window.buf, window.file_pos)
        count = records.batch_count
        # Ordinary ones: a single record with a key of a known type.
        batch = np.flatnonzero(records.is_whole & (part.records_count[:count] == 1))
        at = np.searchsorted(records.batch_row, batch)
        has_key = records.key_bytes[at] >= KEY_BYTES
        batch, key = batch[has_key], records.key_pos[at[has_key]]
        version_is_right = records.source[key] < 0x80  # not negative
        high, low = records.source[key + 2], records.source[key + 3]
        is_marker = version_is_right & (high == 0) & (low <= 1)
        rows = done + batch[is_marker]
        kinds[rows] = np.where(low[is_marker] == 1, COMMIT, ABORT)
        is_known[rows] = True
        done += count
    for row in np.flatnonzero(~is_known).tolist():
        each = batch_at(table, row)
        try:
            is_commit = marker_is_commit(segment, each)
        except (FormatError, AccessError) as exc:
            on_error(each, exc.without_frames())
            continue
        if is_commit is not None:
            kinds[row] = COMMIT if is_commit else ABORT
    return kinds


class EventWalk:
    """Iterable of EventBlock over a stretch of a segment; never raises for bad bytes.

    Attributes:
        end_offset: one above the last good batch that was passed; -1 if there was none.
    """

    def __init__(self, segment: Segment, *, start_pos: int = 0, end_pos: int | None = None) -> None:
        self.end_offset = -1
        self._segment = segment
        self._scan = BulkScan(segment, start_pos=start_pos, end_pos=end_pos)
        self._doubtful = DoubtfulOffsets(self._scan)

    def __iter__(self) -> Iterator[EventBlock]:
        for table, window in tables_and_windows(self._scan):
            yield self._block(table, window)

    @property
    def valid_bytes(self) -> int:
        """End of the last whole batch before any break of the chain: where to walk on later."""
        return self._scan.valid_bytes

    def _block(self, table: HeaderTable, window: BulkWindow | None) -> EventBlock:
        is_placed = table.crc_ok
        if window is None and self._doubtful.positions:
            is_placed = is_placed & ~np.isin(table.pos, list(self._doubtful.positions))
            table = self._doubtful.put_right(table, self.end_offset)
        if is_placed.any():
            self.end_offset = int(table.last_offset[is_placed][-1]) + 1
        is_control = is_control_of_producer(table)
        rows = np.flatnonzero(is_control | is_data_of_transaction(table))
        found = HeaderTable._make(column[rows] for column in table)
        marker = np.zeros(len(rows), np.int8)
        controls = np.flatnonzero(is_control[rows])
        if len(controls):
            control_table = HeaderTable._make(column[controls] for column in found)
            marker[controls] = read_marker_kinds(self._segment, control_table, window)
            is_event = ~is_control[rows] | (marker != NO_MARKER)
            if not is_event.all():
                found = HeaderTable._make(column[is_event] for column in found)
                marker = marker[is_event]
        return EventBlock(found, marker)


class NextOfProducer:
    """Finds what comes next of a producer, markers or ends of transactions, behind a place."""

    def __init__(self, producer_id: Ints, place: Ints) -> None:
        """`place`, ascending: positions or offsets."""
        self._place = place
        self._producer_ids, slot = np.unique(producer_id, return_inverse=True)
        self._lap = len(place) + 1
        # Producer and row as one number, so that one search finds the next row of a producer.
        keys = slot * self._lap + np.arange(len(place))
        self._order = np.argsort(keys)
        self._keys = keys[self._order]

    def rows(self, producer_id: Ints, place: Ints) -> Ints:
        """Return the first row of each producer whose place is above another one, or -1."""
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
    """End markers of a stretch of log, asked for what they make of the batches before them."""

    def __init__(self, producer_id: Ints, pos: Ints, kind: Kinds) -> None:
        """Take markers in log order."""
        self._next = NextOfProducer(producer_id, pos)
        self._kind = np.append(kind, np.int8(NO_MARKER))  # the last one: of those without

    def of(self, producer_id: Ints, pos: Ints) -> Kinds:
        """Give COMMIT, ABORT or (NO_MARKER) open for batches at these positions."""
        found: Kinds = self._kind[self._next.rows(producer_id, pos)]
        return found


def resolve_outcomes(
    segment: Segment,
    start_pos: int,
    end_pos: int | None,
    later: Callable[[], Iterable[Segment]],
) -> Outcomes:
    """Find the markers that decide about the batches of [start_pos, end_pos) of a segment.

    Behind it the log is followed only until every producer has one that is still without.

    Args:
        segment: the segment.
        start_pos: a batch boundary.
        end_pos: another one; None: to the end of the file.
        later: gives the segments behind this one, one after the other, if they are needed.
    """
    found: list[tuple[Ints, Ints, Kinds]] = []
    pending = np.empty(0, np.int64)
    for table, marker in EventWalk(segment, start_pos=start_pos, end_pos=end_pos):
        rows = np.flatnonzero(marker)
        found.append((table.producer_id[rows], table.pos[rows], marker[rows]))
        pending = _still_pending(pending, table.producer_id, marker)
    if len(pending):
        for table, marker in _behind(segment, end_pos, later):
            rows = np.flatnonzero(marker)
            ids, first = np.unique(table.producer_id[rows], return_index=True)
            is_wanted = np.isin(ids, pending, assume_unique=True)
            ids, rows = ids[is_wanted], rows[first[is_wanted]]
            found.append((ids, np.full(len(ids), BEHIND_POS), marker[rows]))
            pending = np.setdiff1d(pending, ids, assume_unique=True)
            if not len(pending):
                break
    if not found:
        return Outcomes(pending, pending, np.empty(0, np.int8))
    producer_id, pos, kind = map(np.concatenate, zip(*found, strict=True))
    return Outcomes(producer_id, pos, kind)


def _still_pending(pending: Ints, producer_id: Ints, marker: Kinds) -> Ints:
    """Say which producers wait for a marker after these events."""
    if not len(producer_id):
        return pending
    ids, first_from_behind = np.unique(producer_id[::-1], return_index=True)
    last_marker = marker[::-1][first_from_behind]
    return np.union1d(np.setdiff1d(pending, ids, assume_unique=True), ids[last_marker == NO_MARKER])


def _behind(
    segment: Segment, end_pos: int | None, later: Callable[[], Iterable[Segment]]
) -> Iterator[EventBlock]:
    if end_pos is not None:
        yield from EventWalk(segment, start_pos=end_pos)
    for each in later():
        yield from EventWalk(each)


def later_segments(
    place: SegmentPlace,
    opener: Open = open_place,
    listed: Iterable[SegmentPlace] | None = None,
) -> Iterator[Segment]:
    """Open the segments behind one; each is closed by the next.

    They are those that its directory lists now, unless others are given. What cannot be opened is
    passed over.
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
    """List a directory, once for all the segments that ask for it.

    A local directory is listed again when its time tells that files have come or gone, and if that
    was too young to tell when it was listed; one behind a URI after LISTING_S.
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


class Stability(NamedTuple):
    """How far a partition's log goes, and how much of it is decided.

    Attributes:
        stable_offset: where a read_committed consumer stops (TXN-4).
        log_end_offset: one above the last good batch.
        open_transactions: without a marker, by first offset.
        problems: segments that could not be opened: all of the above is then as far as is known.
    """

    stable_offset: int
    log_end_offset: int
    open_transactions: tuple[OpenTransaction, ...]
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
        high_watermark: a consumer sees nothing from there on, and a transaction that ended at or
            above it is not stable yet. None: the end of the log, which is where the high watermark
            of a partition with one replica, or with all of them in sync, gets to.
        log_start_offset: batches below it open no transaction.
        opener: opens a segment.
    """
    transactions = OpenTransactions(
        log_start_offset=log_start_offset, high_watermark=high_watermark
    )
    end_offset = log_start_offset
    problems: list[AccessError] = []
    for place in places:
        end_offset = max(end_offset, place.base_offset)
        try:
            segment = opener(place)
        except AccessError as exc:
            problems.append(exc.without_frames())
            continue
        with segment:
            walk = EventWalk(segment)
            for table, _ in walk:
                transactions.add_table(table)
            end_offset = max(end_offset, walk.end_offset)
    stable_offset = transactions.last_stable_offset(end_offset)
    if stable_offset is None:
        first_unstable = transactions.first_unstable_offset
        stable_offset = end_offset if first_unstable is None else first_unstable
    return Stability(
        stable_offset=stable_offset,
        log_end_offset=end_offset,
        open_transactions=tuple(transactions),
        problems=tuple(problems),
    )


def last_stable_offset(
    places: Iterable[SegmentPlace], *, high_watermark: int | None = None, log_start_offset: int = 0
) -> int:
    """Give `find_stability`'s stable offset."""
    found = find_stability(places, high_watermark=high_watermark, log_start_offset=log_start_offset)
    return found.stable_offset
