"""Positions in one segment: by offset, by time, and its end.

An index entry is a hint. It counts if the batch at its position has a right checksum and a base
offset that is not above the wanted offset. Offsets grow along a log, so everything before that
batch can be skipped. No checksum covers a base offset, so the batches around must confirm it. The
walk begins at the entry before (which must hold too) or at the first byte. It must meet the batch
of the entry, and no fault. Otherwise, or if no entry holds, the whole segment is walked from its
first byte, and continues behind damage.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_dir import StoppedState
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from storage.formats.offset_index import OffsetIndexEntry
    from storage.formats.time_index import TimeIndexEntry
    from storage.kernels.numpy_kernel import BulkScan, TableScan
    from storage.kernels.offset_order import ClaimedEnd
    from storage.kernels.protocol import HeaderTable, ScannedBatch, Verdict
    from storage.kernels.scan import Scan
    from storage.log.segment import Segment

BULK_BYTES = 4 << 20  # a larger segment is read in tables: that outweighs the import of numpy
CANDIDATES_COUNT = 3  # index entries to try before the whole segment is walked
# Kinds of data that the last segment may have behind its last batch: see `is_wrong_end`.
END_KINDS = frozenset(each for each in VerdictKind if each.is_end)


# Rules that a batch with a right checksum breaks if its offset, length or magic is wrong, which the
# checksum does not cover.
OFFSET_CHECK_IDS = frozenset({"BAT-2", "BAT-3", "SEG-1", "SEG-2", "SEG-3"})
# A batch whose offset is only too high for its segment is the end of the log: checkpoints follow
# it.
ENDED_CHECK_IDS = OFFSET_CHECK_IDS - {"SEG-3"}
# If a batch breaks one of these rules, nobody can read its records, whatever its checksum is. Its
# magic or codec does not exist, or it counts more records than offsets, or a negative number.
RECORDS_CHECK_IDS = frozenset({"BAT-1", "BAT-2", "BAT-4", "BAT-7"})


def is_wrong_end(kind: str, stopped: StoppedState) -> bool:
    """Return whether a closed log has a torn or preallocated end (SEG-6).

    All readers use this rule.

    A crash, or a running append, leaves such an end. A clean stop does not. Such an end contains no
    acknowledged record, or its records are reported as missing too.
    """
    return kind in END_KINDS and stopped is StoppedState.CLEAN


class _ReportedBatches:
    """The batches of a running scan for which a verdict names one of some rules."""

    def __init__(self, scan: Scan | TableScan | BulkScan, check_ids: AbstractSet[str]) -> None:
        self._verdicts = scan.verdicts
        self._check_ids = check_ids
        self._seen_count = 0
        self._positions: set[int] = set()

    @property
    def positions(self) -> set[int]:
        """The positions of such batches in the scan so far."""
        for verdict in self._verdicts[self._seen_count :]:
            if verdict.is_lost and verdict.check_id in self._check_ids:
                self._positions.add(verdict.start_pos)
        self._seen_count = len(self._verdicts)
        return self._positions


class DoubtfulOffsets(_ReportedBatches):
    """The batches of a scan with an impossible offset."""

    def __init__(
        self,
        scan: Scan | TableScan | BulkScan,
        check_ids: AbstractSet[str] = OFFSET_CHECK_IDS,
    ) -> None:
        super().__init__(scan, check_ids)

    def put_right(self, table: HeaderTable, floor_offset: int) -> HeaderTable:
        """Give such batches of a table the offset behind the good batch before them.

        For example, a marker at 65629 in a log that ends at 329 is not above its high watermark.
        `floor_offset` is one above the last good batch before the table, or -1 without such a
        batch.
        """
        return put_right(table, self.positions, floor_offset)


def put_right(table: HeaderTable, positions: AbstractSet[int], floor_offset: int) -> HeaderTable:
    """Do what `DoubtfulOffsets.put_right` does, for batches at these positions."""
    import numpy as np

    is_doubtful = np.isin(table.pos, list(positions))
    is_placed = table.crc_ok & ~is_doubtful
    before = np.maximum.accumulate(np.where(is_placed, np.arange(len(is_placed)), -1))
    behind = np.where(before < 0, floor_offset, table.last_offset[before] + 1)
    is_known = is_doubtful & (behind >= 0)
    return table._replace(
        base_offset=np.where(is_known, behind, table.base_offset),
        last_offset=np.where(is_known, behind, table.last_offset),
    )


class LostRecords(_ReportedBatches):
    """The batches of a scan whose records no reader can read. Only this class decides that."""

    def __init__(self, scan: Scan | TableScan | BulkScan) -> None:
        super().__init__(scan, RECORDS_CHECK_IDS)

    def has(self, batch: ScannedBatch) -> bool:
        """Return whether the records are lost, for the latest batch of the scan."""
        return batch.crc_ok is False or batch.pos in self.positions


def all_verdicts(
    segment: Segment,
    *,
    is_active: bool,
    end_offset: int | None = None,
    claimed_end: ClaimedEnd | None = None,
) -> list[Verdict]:
    """Return all verdicts of a scan that continues behind damage. Reads the segment."""
    scan = segment.scan(is_active=is_active, end_offset=end_offset, claimed_end=claimed_end)
    for _ in scan:
        pass
    return scan.verdicts


def verdict_of(segment: Segment, stop: Verdict, *, is_active: bool) -> Verdict:
    """Return the verdict of a full scan for the place where another scan stopped.

    A scan that stops, as a broker's scan does, relies on the length in the header. A scan that
    continues behind damage searches the next good batch, and so knows more. All commands report the
    verdict of the latter. Reads the segment.
    """
    verdicts = all_verdicts(segment, is_active=is_active)
    found = (each for each in verdicts if each.start_pos <= stop.start_pos < each.end_pos)
    return next(found, stop)


class FoundBatch(NamedTuple):
    """A batch, with the flag whether an index entry led to it."""

    batch: ScannedBatch
    via_index: bool


class SegmentEnd(NamedTuple):
    """The end of a segment.

    `last` is the last batch with a right checksum from `start_pos` on, or None.
    """

    last: ScannedBatch | None
    start_pos: int
    verdict: Verdict


class FoundRecord(NamedTuple):
    """The first record at or after a time."""

    found: FoundBatch
    offset: int
    timestamp_ms: int


def find_batch(
    segment: Segment,
    entries: Sequence[OffsetIndexEntry],
    offset: int,
    *,
    is_active: bool,
    end_offset: int | None = None,
    claimed_end: ClaimedEnd | None = None,
) -> FoundBatch | None:
    """Find the first batch whose last offset is >= `offset`. None if the segment ends below.

    In a gap that is the batch behind the gap. A batch with a wrong checksum is returned only if it
    claims the offset and no good batch does. `end_offset` is the base offset of the next segment.
    """
    via_index = _by_index(
        segment,
        entries,
        offset,
        is_active=is_active,
        end_offset=end_offset,
        claimed_end=claimed_end,
    )
    if via_index is not None:
        _, batch = via_index
        return None if batch is None else FoundBatch(batch, via_index=True)
    claimant = None
    scan = segment.scan(is_active=is_active, end_offset=end_offset, claimed_end=claimed_end)
    doubtful = DoubtfulOffsets(scan)
    for batch in scan:
        header = batch.header
        if batch.pos in doubtful.positions:
            continue
        if batch.crc_ok is False:
            if claimant is None and header.base_offset <= offset <= header.last_offset:
                claimant = batch
        elif header.last_offset >= offset:
            if claimant is not None and header.base_offset > offset:
                break
            return FoundBatch(batch, via_index=False)
    return None if claimant is None else FoundBatch(claimant, via_index=False)


def find_start(
    segment: Segment,
    entries: Sequence[OffsetIndexEntry],
    offset: int,
    *,
    is_active: bool,
    end_offset: int | None,
    claimed_end: ClaimedEnd | None = None,
) -> int:
    """Return the position of the batch where a walk for `offset` and later offsets begins.

    If no entry holds, that is the first byte, even if no good batch is left from the offset on. The
    walk then meets the damage.
    """
    found = _by_index(
        segment,
        entries,
        offset,
        is_active=is_active,
        end_offset=end_offset,
        claimed_end=claimed_end,
    )
    if found is None:
        return 0
    pos, batch = found
    return pos if batch is None else batch.pos


def find_end(
    segment: Segment,
    entries: Sequence[OffsetIndexEntry],
    *,
    is_active: bool,
    check_ids: AbstractSet[str] = OFFSET_CHECK_IDS,
    claimed_end: ClaimedEnd | None = None,
) -> SegmentEnd:
    """Find the last good batch. Batches behind damage count, unless they break `check_ids`.

    The walk begins at the last index entry but one and must meet the last entry as a batch start.
    """
    if len(entries) > 1:
        start_pos, last_pos = entries[-2].segment_pos, entries[-1].segment_pos
        limit = segment.base_offset + entries[-2].relative_offset
        scan = segment.scan(
            start_pos=start_pos, is_active=is_active, resume=False, claimed_end=claimed_end
        )
        rows = _from_verified_start(scan, start_pos, limit)
        last, is_met = None, False
        for last in rows or ():
            is_met = is_met or last.pos == last_pos
        if is_met and _is_sound(scan, None):
            return SegmentEnd(last, start_pos, scan.verdict)
    if segment.file_bytes >= BULK_BYTES:
        return _end_in_bulk(segment, check_ids, is_active=is_active, claimed_end=claimed_end)
    scan = segment.scan(is_active=is_active, claimed_end=claimed_end)
    doubtful = DoubtfulOffsets(scan, check_ids)
    last = None
    for batch in scan:
        if batch.crc_ok is not False and batch.pos not in doubtful.positions:
            last = batch
    return SegmentEnd(last, 0, scan.verdict)


def _end_in_bulk(
    segment: Segment,
    check_ids: AbstractSet[str],
    *,
    is_active: bool,
    claimed_end: ClaimedEnd | None,
) -> SegmentEnd:
    import numpy as np

    from storage.kernels.numpy_kernel import batch_at

    tables = segment.scan_tables(is_active=is_active, claimed_end=claimed_end)
    doubtful = DoubtfulOffsets(tables, check_ids)
    last = None
    for table in tables:
        is_good = table.crc_ok
        if doubtful.positions:
            is_good = is_good & ~np.isin(table.pos, list(doubtful.positions))
        rows = np.flatnonzero(is_good)
        if len(rows):
            last = batch_at(table, int(rows[-1]))
    return SegmentEnd(last, 0, tables.scan.verdict)


def find_time(
    segment: Segment,
    time_entries: Sequence[TimeIndexEntry],
    entries: Sequence[OffsetIndexEntry],
    timestamp_ms: int,
    *,
    min_offset: int,
    is_active: bool,
    on_error: Callable[[FormatError | AccessError], None],
) -> FoundRecord | None:
    """Find the first record from `min_offset` on with a timestamp >= `timestamp_ms`.

    A time entry counts if the batch that holds its offset has its timestamp as maximum. `on_error`
    receives the errors of unreadable batches, which are skipped.
    """
    start = _time_start(segment, time_entries, entries, timestamp_ms, is_active=is_active)
    start_pos = 0 if start is None else start.pos
    scan = segment.scan(start_pos=start_pos, is_active=is_active)
    for batch in scan:
        if batch.crc_ok is False or batch.header.max_timestamp_ms < timestamp_ms:
            continue
        if batch.header.last_offset < min_offset:
            continue
        try:
            for record in segment.records(batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= min_offset:
                    found = FoundBatch(batch, via_index=start is not None)
                    return FoundRecord(found, record.offset, record.timestamp_ms)
        except (FormatError, AccessError) as exc:
            on_error(exc.without_frames())
    return None


def is_older(
    segment: Segment,
    time_entries: Sequence[TimeIndexEntry],
    entries: Sequence[OffsetIndexEntry],
    timestamp_ms: int,
) -> bool:
    """Return whether a closed segment has no record at or after the time, by its time index.

    The last entry must be below the time, and its batch must confirm it. All batches after it must
    be below the time too, since a time index may have lost its last entries. The batches before it
    are not checked.
    """
    if not time_entries or time_entries[-1].timestamp_ms >= timestamp_ms:
        return False
    start = _holds(segment, time_entries[-1], entries, is_active=False)
    if start is None:
        return False
    scan = segment.scan(start_pos=start.pos, is_active=False, resume=False)
    return all(each.header.max_timestamp_ms < timestamp_ms for each in scan) and _is_sound(
        scan, None
    )


def entry_holds(segment: Segment, entry: OffsetIndexEntry, *, is_active: bool) -> bool:
    """Return whether a good batch at the entry's position begins at or below its offset."""
    pos = entry.segment_pos
    if not 0 <= pos < segment.file_bytes:
        return False
    scan = segment.scan(start_pos=pos, is_active=is_active, resume=False)
    offset = segment.base_offset + entry.relative_offset
    return _from_verified_start(scan, pos, offset, or_wrapper=True) is not None


def time_entry_holds(
    segment: Segment,
    entry: TimeIndexEntry,
    entries: Sequence[OffsetIndexEntry],
    *,
    is_active: bool,
) -> bool:
    """Return whether the batch that holds the entry's offset has its timestamp as maximum."""
    return _holds(segment, entry, entries, is_active=is_active) is not None


def _time_start(
    segment: Segment,
    time_entries: Sequence[TimeIndexEntry],
    entries: Sequence[OffsetIndexEntry],
    timestamp_ms: int,
    *,
    is_active: bool,
) -> ScannedBatch | None:
    """Return the batch before which no record can be at or after the time."""
    end = bisect_right(time_entries, timestamp_ms, key=attrgetter("timestamp_ms"))
    for entry in reversed(time_entries[max(0, end - CANDIDATES_COUNT) : end]):
        batch = _holds(segment, entry, entries, is_active=is_active)
        if batch is not None:
            return batch
    return None


def _holds(
    segment: Segment,
    entry: TimeIndexEntry,
    entries: Sequence[OffsetIndexEntry],
    *,
    is_active: bool,
) -> ScannedBatch | None:
    offset = segment.base_offset + entry.relative_offset
    found = find_batch(segment, entries, offset, is_active=is_active)
    if found is None or found.batch.crc_ok is False:
        return None
    is_borne_out = found.batch.header.max_timestamp_ms == entry.timestamp_ms
    return found.batch if is_borne_out else None


def _by_index(
    segment: Segment,
    entries: Sequence[OffsetIndexEntry],
    offset: int,
    *,
    is_active: bool,
    end_offset: int | None,
    claimed_end: ClaimedEnd | None,
) -> tuple[int, ScannedBatch | None] | None:
    """Return the position of an entry that holds, and the first batch at or above `offset`.

    That batch is None if the segment ends below. The result is None if no entry holds.
    """
    for start_pos, entry in _candidates(entries, offset - segment.base_offset):
        scan = segment.scan(
            start_pos=start_pos,
            is_active=is_active,
            end_offset=end_offset,
            claimed_end=claimed_end,
            resume=False,
        )
        rows = _from_verified_start(scan, start_pos, offset)
        if rows is None:
            continue
        is_met, batch = False, None
        for each in rows:
            is_met = is_met or each.pos == entry.segment_pos
            if each.header.last_offset >= offset:
                batch = each
                break
        if is_met and _is_sound(scan, None if batch is None else batch.pos):
            return entry.segment_pos, batch
    return None


def _candidates(
    entries: Sequence[OffsetIndexEntry], relative_offset: int
) -> Iterator[tuple[int, OffsetIndexEntry]]:
    """Yield the entries at or below the offset, best first, each with the start of its walk."""
    end = bisect_right(entries, relative_offset, key=attrgetter("relative_offset"))
    for place in range(end - 1, max(0, end - CANDIDATES_COUNT) - 1, -1):
        yield entries[place - 1].segment_pos if place else 0, entries[place]


def _from_verified_start(
    scan: Scan, start_pos: int, offset: int, *, or_wrapper: bool = False
) -> Iterator[ScannedBatch] | None:
    """Return the rows if the first row is a good batch exactly there, not above the offset.

    The header of a legacy wrapper has its last offset, so its first offset is unknown here. With
    `or_wrapper` it counts as low enough.
    """
    first = next(scan, None)
    if first is None or first.pos != start_pos or first.crc_ok is not True:
        return None
    is_wrapper = or_wrapper and first.header.magic < MAGIC_V2
    if first.header.base_offset > offset and not is_wrapper:
        return None
    return chain((first,), scan)


def _is_sound(scan: Scan, until_pos: int | None) -> bool:
    """Return whether there is no fault up to a position.

    None means the end, where a torn tail is no fault.
    """
    return not any(
        (until_pos is None or verdict.start_pos <= until_pos) and verdict.kind not in END_KINDS
        for verdict in scan.verdicts
    )
