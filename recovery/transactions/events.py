"""The events of transactions in a log: their data batches and end markers, in log order.

All code about outcomes of transactions iterates over these events. Markers count if their batch has
a right checksum and its record decodes. The key alone decides the kind of a marker, as in a
consumer (`storage.log.decoded_records`). The code reads headers, and decodes only the records of
control batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from storage.dirs.lookup import END_KINDS, DoubtfulOffsets
from storage.dirs.offset_ledger import OffsetLedger
from storage.errors import AccessError, FormatError
from storage.formats.control_record import ABORT, COMMIT, KEY_BYTES, NO_MARKER
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.numpy_kernel import BulkScan, batch_at, blocks, rows_of
from storage.kernels.protocol import HeaderTable, ScannedBatch
from storage.kernels.record_table import decode_records
from storage.limits import INT64_MAX
from storage.log.decoded_records import marker_is_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from storage.dirs.offset_ledger import OffsetSpan
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.log.segment import Segment

    Kinds = NDArray[np.int8]
    Flags = NDArray[np.bool_]
    OnError = Callable[[ScannedBatch, FormatError | AccessError], None]

Named = TypeVar("Named")

MARKER_BYTES = 100  # an end marker is smaller: 78 bytes


class Stretch(NamedTuple):
    """Offsets between two good batches that no good batch has.

    Attributes:
        start_offset: the first such offset.
        end_offset: of the next good batch. INT64_MAX if none follows.
        is_damaged: it has damaged bytes or an unreadable file. False: nothing is there.
    """

    start_offset: int
    end_offset: int
    is_damaged: bool


class Ends(NamedTuple):
    """Ends of transactions without a readable marker, as columns, by offset.

    `offset` is the start of a stretch. `kind` is COMMIT or ABORT if known, else UNKNOWN.
    """

    producer_id: NDArray[np.int64]
    epoch: NDArray[np.int16]
    offset: NDArray[np.int64]
    kind: Kinds

    @classmethod
    def none(cls) -> Ends:
        """Return the ends of a log with all its markers."""
        dtypes = (np.int64, np.int16, np.int64, np.int8)
        return cls._make(np.empty(0, dtype) for dtype in dtypes)


class Continuation(NamedTuple):
    """The state that a walk over events takes from the walk before.

    Attributes:
        end_offset: one above the last good batch. -1: the events before are unknown.
        is_damaged: damage follows that batch.
        is_torn: the segment ends as after a crash: damage if another segment follows.
    """

    end_offset: int = -1
    is_damaged: bool = False
    is_torn: bool = False


def _rows_of(table: HeaderTable, rows: Flags | NDArray[np.int64]) -> HeaderTable:
    return HeaderTable._make(column[rows] for column in table)


class EventBlock(NamedTuple):
    """Transactional data batches and end markers in log order.

    `marker` is COMMIT or ABORT, NO_MARKER for a data batch.
    """

    table: HeaderTable
    marker: Kinds

    def from_offset(self, offset: int) -> EventBlock:
        """Return the rows that do not end below an offset."""
        is_kept = self.table.last_offset >= offset
        if is_kept.all():
            return self
        return EventBlock(_rows_of(self.table, is_kept), self.marker[is_kept])


def is_data_of_transaction(table: HeaderTable) -> Flags:
    """Return which rows are transactional data batches with a producer and a right checksum."""
    kind = table.attributes & (CONTROL_MASK | TRANSACTIONAL_MASK)
    is_data: Flags = (kind == TRANSACTIONAL_MASK) & (table.magic >= MAGIC_V2)
    is_data &= (table.producer_id >= 0) & table.crc_ok
    return is_data


def is_control_of_producer(table: HeaderTable) -> Flags:
    """Return which rows may have an end marker. An empty control batch has no effect (PROD-9)."""
    is_control: Flags = (table.attributes & CONTROL_MASK) != 0
    is_control &= (table.magic >= MAGIC_V2) & (table.producer_id >= 0)
    is_control &= (table.records_count > 0) & table.crc_ok
    return is_control


def _no_matter(batch: ScannedBatch, error: FormatError | AccessError) -> None:
    """Ignore the error: the reader of the records reports it."""


def read_marker_kinds(
    segment: Segment,
    table: HeaderTable,
    window: BulkWindow | None = None,
    on_error: OnError = _no_matter,
) -> Kinds:
    """Return the kinds of the control batches of a table: COMMIT, ABORT, or NO_MARKER otherwise.

    Args:
        segment: of the batches.
        table: control batches only.
        window: has all of them, if they are healthy.
        on_error: called for batches that do not decode.
    """
    kinds = np.zeros(table.row_count, np.int8)
    is_known = np.zeros(table.row_count, np.bool_)
    done = 0
    while window is not None and done < table.row_count:
        part = rows_of(table, done, table.row_count)
        records = decode_records(*window.controls(part))
        count = records.batch_count
        # Ordinary batches: a single record with a key of a known type.
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


class _Stretches:
    """A collector of the stretches of a log, table by table."""

    def __init__(self, scan: BulkScan, before: Continuation, base_offset: int) -> None:
        self._base_offset = base_offset  # of the segment. -1: the scan does not begin with it
        self.found: list[Stretch] = []
        self.damaged: list[Stretch] = []  # including stretches without a marker
        self.end_offset = before.end_offset
        self.is_damaged, self.is_torn = before.is_damaged, before.is_torn
        self._scan = scan
        self._seen_count = 0
        self._end_pos = scan.start_pos  # of the last good batch
        self._bad: list[tuple[int, int, int, int, bool]] = []  # bad batches after it

    def take_window(self, table: HeaderTable) -> None:
        """Take adjacent healthy batches."""
        base, last = table.base_offset, table.last_offset
        self._went_on(int(base[0]), int(table.pos[0]), int(table.magic[0]))
        for row in np.flatnonzero(base[1:] > last[:-1] + 1).tolist():
            if table.magic[row + 1] >= MAGIC_V2:
                self.found.append(Stretch(int(last[row]) + 1, int(base[row + 1]), False))
        self.end_offset = max(self.end_offset, int(last[-1]) + 1)
        self._end_pos = table.end_pos

    def take_singles(self, table: HeaderTable, is_placed: Flags) -> None:
        """Take batches read one by one. `is_placed`: with an offset that can be right."""
        columns = (table.pos, table.batch_bytes, table.base_offset, table.last_offset)
        rows = zip(*(each.tolist() for each in columns), strict=True)
        for row, (pos, size, base, last) in enumerate(rows):
            if is_placed[row]:
                self._went_on(base, pos, int(table.magic[row]))
                self.end_offset = max(self.end_offset, last + 1)
                self._end_pos = pos + size
            else:
                self._bad.append((pos, pos + size, base, last, bool(table.crc_ok[row])))

    def finish(self) -> None:
        """Note damage after the last good batch."""
        self._inspect_verdicts(INT64_MAX)
        self.is_damaged |= bool(self._bad)

    def _inspect_verdicts(self, before_pos: int) -> None:
        verdicts = self._scan.verdicts
        while self._seen_count < len(verdicts):
            each = verdicts[self._seen_count]
            if each.start_pos >= before_pos:
                break
            self.is_torn |= each.kind in END_KINDS
            self.is_damaged |= each.is_lost and each.kind not in END_KINDS
            self._seen_count += 1

    def _went_on(self, base_offset: int, pos: int, magic: int) -> None:
        """Take the next good batch."""
        self._inspect_verdicts(pos)
        start, is_damaged = self.end_offset, self.is_damaged or self.is_torn or bool(self._bad)
        if is_damaged and base_offset > (first := self._base_offset if start < 0 else start) >= 0:
            self.damaged.append(Stretch(first, base_offset, is_damaged=True))
        if 0 <= start < base_offset and magic >= MAGIC_V2 and not self._is_data(base_offset, pos):
            self.found.append(Stretch(start, base_offset, is_damaged))
        self._bad, self.is_damaged, self.is_torn = [], False, False

    def _is_data(self, end_offset: int, end_pos: int) -> bool:
        """Return whether a stretch consists of damaged batches that cannot be end markers.

        Their frames are adjacent in bytes and in offsets, up to the good batch.
        """
        offset, pos = self.end_offset, self._end_pos
        for start_pos, stop_pos, base, last, is_read in self._bad:
            is_marker = base == last and stop_pos - start_pos < MARKER_BYTES
            if start_pos != pos or not (is_read or (base == offset and not is_marker)):
                return False
            offset, pos = offset + last - base + 1, stop_pos
        return bool(self._bad) and (offset, pos) == (end_offset, end_pos)


class EventWalk:
    """Iterable of EventBlock over a stretch of a segment. Never raises for bad bytes.

    Attributes:
        end_offset: one above the last good batch passed. -1 if there was none.
    """

    def __init__(
        self,
        segment: Segment,
        *,
        start_pos: int = 0,
        end_pos: int | None = None,
        before: Continuation | None = None,
        ends: Ends | None = None,
        ledger: OffsetLedger | None = None,
    ) -> None:
        """Prepare.

        Args:
            segment: the segment.
            start_pos: where to begin.
            end_pos: where to end. None: at the end of the file.
            before: the state before. None if unknown.
            ends: yielded among the events, each at its stretch.
            ledger: takes the good batches. None: their offsets are not needed.
        """
        self.end_offset = -1
        self._ledger = ledger
        self._segment = segment
        self._scan = BulkScan(
            segment,
            with_bodies=False,
            start_pos=start_pos,
            end_pos=end_pos,
            end_offset=segment.end_offset,
            claimed_end=segment.claimed_end if end_pos is None else None,
        )
        self._doubtful = DoubtfulOffsets(self._scan)
        before = before or Continuation()
        base_offset = -1 if start_pos or segment.base_offset is None else segment.base_offset
        self._stretches = _Stretches(self._scan, before, base_offset)
        self._ends = Ends.none() if ends is None else ends
        first = before.end_offset
        if first < 0:
            first = segment.base_offset if not start_pos else -1
        self._begin_offset = first
        self._ends_from = first  # lower offsets were yielded; -1: until the first batch

    def __iter__(self) -> Iterator[EventBlock]:
        for each in blocks(self._scan):
            yield self._block(each.table, each.window)
        self._stretches.finish()

    @property
    def valid_bytes(self) -> int:
        """The end of the last whole batch before any break: where a later walk continues."""
        return self._scan.valid_bytes

    @property
    def stretches(self) -> list[Stretch]:
        """The offsets before the last good batch so far that no good batch has."""
        return self._stretches.found

    @property
    def damaged(self) -> list[Stretch]:
        """The damaged stretches before the last good batch so far, with or without a marker."""
        return self._stretches.damaged

    @property
    def behind(self) -> Continuation:
        """The state for the walk over the following events."""
        found = self._stretches
        return Continuation(found.end_offset, found.is_damaged, found.is_torn)

    def _block(self, table: HeaderTable, window: BulkWindow | None) -> EventBlock:
        is_placed = table.crc_ok
        stale: list[int] = []
        if window is None:
            if self._doubtful.positions:
                is_placed = is_placed & ~np.isin(table.pos, list(self._doubtful.positions))
            self._stretches.take_singles(table, is_placed)
            if self._doubtful.positions:
                stale = self._stale_markers(table)
                floor = self._begin_offset if self.end_offset < 0 else self.end_offset
                table = self._doubtful.put_right(table, floor)
        else:
            self._stretches.take_window(table)
        if is_placed.any():
            self.end_offset = int(table.last_offset[is_placed][-1]) + 1
            if self._ledger is not None:
                good = table if is_placed.all() else _rows_of(table, is_placed)
                self._ledger.take(good, self._segment)
        is_control = is_control_of_producer(table)
        rows = np.flatnonzero(is_control | is_data_of_transaction(table))
        if stale:
            rows = rows[~np.isin(table.pos[rows], stale)]
        found = _rows_of(table, rows)
        marker = np.zeros(len(rows), np.int8)
        controls = np.flatnonzero(is_control[rows])
        if len(controls):
            control_table = _rows_of(found, controls)
            marker[controls] = read_marker_kinds(self._segment, control_table, window)
            is_event = ~is_control[rows] | (marker != NO_MARKER)
            if not is_event.all():
                found = _rows_of(found, is_event)
                marker = marker[is_event]
        if len(self._ends.offset) and is_placed.any():
            return self._with_ends(table, is_placed, EventBlock(found, marker))
        return EventBlock(found, marker)

    def _stale_markers(self, table: HeaderTable) -> list[int]:
        """Return the positions of copies of earlier markers: they end nothing here.

        A marker at its own place with a wrong offset is no copy. A copy has another batch at its
        own place, or belongs to another segment.
        """
        doubtful = np.isin(table.pos, list(self._doubtful.positions))
        rows = np.flatnonzero(doubtful & is_control_of_producer(table))
        base = self._segment.base_offset or 0
        return [
            int(table.pos[row])
            for row in rows.tolist()
            if table.base_offset[row] < base or self._has_before(table, row)
        ]

    def _has_before(self, table: HeaderTable, row: int) -> bool:
        """Return whether an equal batch is in the segment before this position."""
        offset, crc = table.base_offset[row], table.crc[row]
        end_pos = int(table.pos[row])
        for part in self._segment.scan_tables(verify_crc=False, end_pos=end_pos):
            if ((part.base_offset == offset) & (part.crc == crc)).any():
                return True
        return False

    def _with_ends(self, table: HeaderTable, is_placed: Flags, events: EventBlock) -> EventBlock:
        """Merge the ends before the last batch of a table into its events."""
        if self._ends_from < 0:
            self._ends_from = int(table.base_offset[is_placed.argmax()])
        offset = self._ends.offset
        rows = np.arange(*np.searchsorted(offset, (self._ends_from, self.end_offset)))
        self._ends_from = self.end_offset
        if not len(rows):
            return events
        wanted = offset[rows]
        behind = np.maximum.accumulate(np.where(is_placed, table.base_offset, -1))
        pos = table.pos[np.searchsorted(behind, wanted)] - 1
        added = _rows_of_ends(self._ends, rows, pos)
        order = np.argsort(np.concatenate((events.table.pos, pos)), kind="stable")
        columns: Iterator[Any] = zip(events.table, added, strict=True)
        return EventBlock(
            HeaderTable._make(np.concatenate(each)[order] for each in columns),
            np.concatenate((events.marker, self._ends.kind[rows]))[order],
        )


def _rows_of_ends(ends: Ends, rows: NDArray[np.int64], pos: NDArray[np.int64]) -> HeaderTable:
    """Return ends as rows of a table, at these positions."""
    count = len(rows)
    zeros = np.zeros(count, np.int64)
    return HeaderTable(
        pos=pos,
        batch_bytes=zeros,
        base_offset=ends.offset[rows],
        last_offset=ends.offset[rows],
        partition_leader_epoch=zeros.astype(np.int32),
        magic=np.full(count, MAGIC_V2, np.int8),
        attributes=np.full(count, CONTROL_MASK | TRANSACTIONAL_MASK, np.int16),
        base_timestamp_ms=zeros - 1,
        max_timestamp_ms=zeros - 1,
        producer_id=ends.producer_id[rows],
        producer_epoch=ends.epoch[rows],
        base_sequence=np.full(count, -1, np.int32),
        records_count=np.ones(count, np.int32),
        crc=zeros.astype(np.uint32),
        crc_ok=np.ones(count, np.bool_),
    )


def ends_behind(ends: Ends, end_offset: int) -> EventBlock:
    """Return the ends after the last good batch of a log, as events."""
    rows = np.flatnonzero(ends.offset >= end_offset)
    pos = np.full(len(rows), INT64_MAX)
    return EventBlock(_rows_of_ends(ends, rows, pos), ends.kind[rows])


class LogEvents(Generic[Named]):
    """Iterable of EventBlock over the segments of a log, from the log start on.

    Attributes:
        end_offset: one above the last good batch passed. -1 if there was none.
        problems: of segments that could not be opened.
        stretches: offsets that no good batch has. Complete after the iteration.
        damaged: damaged stretches up to the last good batch, with or without a marker.
        spans: the offsets of each segment by its base offset, if requested.
    """

    def __init__(
        self,
        segments: Iterable[Named],
        opener: Callable[[Named], Segment],
        *,
        log_start_offset: int = 0,
        ends: Ends | None = None,
        has_spans: bool = False,
    ) -> None:
        """Open each name in `segments` with `opener`, in order. For `ends` see `EventWalk`."""
        self.end_offset = -1
        self.damaged: list[Stretch] = []
        self.spans: dict[int, OffsetSpan] = {}
        self._has_spans = has_spans
        self.problems: list[AccessError] = []
        self.stretches: list[Stretch] = []
        self._ends = ends
        self._blocks = self._read(segments, opener, log_start_offset)

    def __iter__(self) -> Iterator[EventBlock]:
        return self._blocks

    def _read(
        self, segments: Iterable[Named], opener: Callable[[Named], Segment], log_start_offset: int
    ) -> Iterator[EventBlock]:
        behind = Continuation()
        for each in segments:
            try:
                segment = opener(each)
            except AccessError as exc:
                self.problems.append(exc.without_frames())
                behind = behind._replace(is_damaged=True)
                continue
            with segment:
                ledger = OffsetLedger(segment.base_offset) if self._has_spans else None
                walk = EventWalk(segment, before=behind, ends=self._ends, ledger=ledger)
                for block in walk:
                    kept = block.from_offset(log_start_offset)
                    self.stretches += walk.stretches
                    walk.stretches.clear()
                    if kept.table.row_count:
                        yield kept
                behind = walk.behind
                self.damaged += walk.damaged
                if ledger is not None and segment.base_offset is not None:
                    self.spans[segment.base_offset] = ledger.span
                self.end_offset = max(self.end_offset, walk.end_offset)
        if behind.is_damaged:
            self.stretches.append(Stretch(behind.end_offset, INT64_MAX, is_damaged=True))
        if self._ends is not None:
            last = ends_behind(self._ends, behind.end_offset)
            if last.table.row_count:
                yield last
