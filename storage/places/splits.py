"""Splitting segments into pieces for separate reads, where batches are proven to begin.

An entry of the `.index` is only a hint. The bytes at its position may look like a batch without
being a batch, since a record's value can contain a whole batch with its checksum. A piece begins
there if

- the batch at the position has a right checksum,
- its last offset is the offset of the entry (Kafka writes that since 2.0), and
- a walk from an earlier place leads to it. That place is the start of the piece before, if near.
  Otherwise it is another entry with a batch of its offset, at most CHAIN_BYTES away. A walk around
  a value does not lead into it, and a walk inside does not lead out.

An entry that does not hold is skipped. After a few of them the split is given up, and the piece
becomes larger. A segment without a usable index is one piece.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.dirs.lookup import find_end
from storage.errors import EXIT_ACCESS, AccessError, EoctlError
from storage.formats.offset_index import OffsetIndexEntry
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.protocol import VerdictKind
from storage.places.list_places import map_places, open_place
from storage.places.listing import SegmentPlace  # noqa: TC001 - `state_file.read_as` resolves it
from storage.places.place_files import (
    FileStamp,
    index_stamp,
    listed_stamp,
    offset_entries,
    read_offset_entries,
    stamp_of,
    time_entries,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from storage.formats.time_index import TimeIndexEntry
    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.scan import Scan
    from storage.log.segment import Segment


CANDIDATES_COUNT = 4  # entries to try from the wanted start of a piece on, and as many before it
ANCHORS_COUNT = 3  # entries to try as the start of a chain
CHAIN_BYTES = 1 << 20  # about the largest value that brokers accept by default
MAX_PROOF_BYTES = 64 << 20  # longest chain to follow


class TimelineStart(NamedTuple):
    """The request for a timeline of a piece, with its input besides the file.

    Attributes:
        log_start_offset: of its directory. Batches that end below it belong to no transaction.
        floor_offset: one above the last good batch before the piece, or -1 if still unknown.
        max_bins: of each axis of the directory's timeline.
    """

    log_start_offset: int = 0
    floor_offset: int = -1
    max_bins: int = 1 << 30


class PlannedPart(NamedTuple):
    """The equal part of a segment that a split is meant to be; see `plan_places`.

    Attributes:
        number, parts_count: the number of the part, from 0 on, and the number of parts.
        index_seen: the `.index` when the query was planned. None if the reader of all pieces checks
            that they meet.
    """

    number: int
    parts_count: int
    index_seen: FileStamp | None = None


class Split(NamedTuple):
    """A contiguous piece of one segment: the batches that begin in [start_pos, end_pos).

    `end_pos` is the start of the next split. For the last split it is the size when it was listed,
    and the file is then read to its current end. Positions are in bytes. `timeline` is None if no
    timeline is wanted. `part` is None if the positions are proven. If not, they are approximate.
    """

    place: SegmentPlace
    start_pos: int
    end_pos: int
    is_last: bool
    timeline: TimelineStart | None = None
    part: PlannedPart | None = None


def split_places(places: Iterable[SegmentPlace], split_bytes: int) -> list[Split]:
    """Split segments into about equal pieces of about `split_bytes`, in the order of the places.

    Pieces are larger if index entries are far from each other or do not hold. With a `split_bytes`
    of 1 a piece begins at every entry that holds. A segment that cannot be opened is one piece, and
    its reader gets the error.

    Raises:
        ValueError: `split_bytes` is below 1.
    """
    if split_bytes < 1:
        raise ValueError(f"split_bytes must be at least 1, not {split_bytes}")
    listed = list(places)
    starts = map_places(lambda place: start_positions(place, split_bytes), listed)
    return [
        split
        for place, positions in zip(listed, starts, strict=True)
        for split in splits_at(place, positions)
    ]


def splits_at(place: SegmentPlace, positions: Sequence[int]) -> list[Split]:
    """Return the pieces of a segment that begin at the positions, the first of which is 0."""
    ends = [*positions[1:], place.file_bytes]
    last = len(positions) - 1
    return [
        Split(place=place, start_pos=start_pos, end_pos=end_pos, is_last=index == last)
        for index, (start_pos, end_pos) in enumerate(zip(positions, ends, strict=True))
    ]


def start_positions(place: SegmentPlace, split_bytes: int) -> list[int]:
    """Return the starts of the pieces of a segment, ascending, the first at 0."""
    if place.file_bytes <= split_bytes:
        return [0]
    entries = offset_entries(place)
    if not len(entries):
        return [0]
    try:
        with open_place(place) as segment:
            return _starts(StartProver(segment, entries), place.file_bytes, split_bytes)
    except AccessError:
        return [0]


def _starts(prover: StartProver, file_bytes: int, split_bytes: int) -> list[int]:
    step = -(-file_bytes // -(-file_bytes // split_bytes))  # equal pieces, each rounded up
    positions = prover.positions
    starts, first_untried = [0], 0
    wanted_pos = step
    while wanted_pos < file_bytes - step // 2:
        index = max(bisect_left(positions, wanted_pos), first_untried)
        tried_end = min(index + CANDIDATES_COUNT, len(positions))
        before = range(index - 1, max(first_untried, index - CANDIDATES_COUNT) - 1, -1)
        for each in (*range(index, tried_end), *before):
            pos = positions[each]
            if pos < file_bytes and prover.prove(each, starts[-1]) is not None:
                starts.append(pos)
                first_untried, wanted_pos = each + 1, pos + step
                break
        else:
            if tried_end == len(positions):
                break
            first_untried, wanted_pos = tried_end, max(wanted_pos + step, positions[tried_end])
    return starts


class StartProver:
    """A prover of index entries of one open segment.

    Attributes:
        positions: of the entries that may hold, ascending, each once.
        relative_offsets: of the same entries.
        met_unreadable: a part of the file could not be read during a proof. Later, or on another
            host, the result may be different.
    """

    def __init__(self, segment: Segment, entries: NDArray[np.int32]) -> None:
        """Begin with `entries` from `offset_entries`."""
        self._segment = segment
        self.met_unreadable = False
        relative_offset, pos = entries.T
        is_possible = (pos > 0) & (pos < segment.file_bytes) & (relative_offset >= 0)
        order = np.flatnonzero(is_possible)
        order = order[np.argsort(pos[order], kind="stable")]
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = np.diff(pos[order]) != 0
        order = order[is_last]
        self.positions: list[int] = pos[order].tolist()
        self.relative_offsets: list[int] = relative_offset[order].tolist()

    def prove(self, index: int, known_pos: int = 0) -> ScannedBatch | None:
        """Return the batch at an entry if the entry holds, else None.

        Args:
            index: of the entry.
            known_pos: a place before it where a batch is known to begin.
        """
        positions = self.positions
        pos = positions[index]
        if pos - known_pos <= CHAIN_BYTES:
            return self._met(index, self._walk(known_pos))
        first = min(bisect_left(positions, pos - CHAIN_BYTES), index - 1)
        if first < 0 or positions[first] <= known_pos:
            return self._met(index, self._walk(known_pos))
        for anchor in range(first, min(first + ANCHORS_COUNT, index)):
            scan = self._walk(positions[anchor])
            if self._met(anchor, scan) is not None:
                return self._met(index, scan)
        return None

    def _walk(self, start_pos: int) -> Scan:
        # The walk continues behind damage, so it meets the same batches as a walk over the whole
        # segment.
        end_pos = start_pos + MAX_PROOF_BYTES
        return self._segment.scan(start_pos=start_pos, end_pos=end_pos, is_active=False)

    def _met(self, index: int, scan: Scan) -> ScannedBatch | None:
        """Continue a scan up to an entry's position. Returns the batch if the entry holds."""
        pos = self.positions[index]
        last_offset = self._segment.base_offset + self.relative_offsets[index]
        batch = next((each for each in scan if each.pos >= pos), None)
        self.met_unreadable |= any(each.kind is VerdictKind.UNREADABLE for each in scan.verdicts)
        if batch is None or batch.pos != pos or batch.header.last_offset != last_offset:
            return None
        is_faulty = any(each.start_pos == pos for each in scan.verdicts)
        return None if is_faulty or not batch.crc_ok else batch


# -- splitting segments without opening them: the reader of a piece finds its start.
#
# A plan splits a segment into equal parts by its size alone, so that planning 100 TB opens no file.
# The task of a part proves a start near its split position, as `start_positions` does. Its end is
# the start that the task of a later part proves: both call the same function for the same files. A
# part whose split position cannot be proven is empty, and the part before goes on through it.
#
# That only holds while `.log` and `.index` do not change. A reader that joins the pieces of a
# segment has to check that they meet (`recovery.summaries.partition.join_segment`). A reader that
# passes on their rows cannot check that. So its plan (`plan_apart`) records the stamps of both
# files. A task that sees other stamps (`proven_apart`) fails the job, since the tasks of one
# segment may have proven different starts.


MAX_PARTS_COUNT = 64  # of a segment, which has at most 2 GiB: each task has a cost


class UnprovenCutError(EoctlError):
    """Tasks that read parts of a segment may disagree on their starts."""

    exit_status = EXIT_ACCESS

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path}: {why}, and parts of it were to be read by several tasks",
            next_step='run the query again, or with .option("split_bytes", 1 << 40). Each segment'
            " is then read as a whole",
        )


def plan_places(places: Iterable[SegmentPlace], split_bytes: int) -> list[Split]:
    """Split segments into equal parts of about `split_bytes`, by their sizes. Opens no file.

    Raises:
        ValueError: `split_bytes` is below 1.
    """
    if split_bytes < 1:
        raise ValueError(f"split_bytes must be at least 1, not {split_bytes}")
    return [split for place in places for split in _parts(place, split_bytes)]


def plan_apart(
    places: Iterable[SegmentPlace],
    split_bytes: int,
    is_growing: Callable[[SegmentPlace], bool],
) -> list[Split]:
    """Split segments as `plan_places`, for tasks whose rows nobody joins (`proven_apart`).

    The `.index` of a split segment is checked, but not opened. A segment without an index is not
    split.

    Args:
        places: the segments.
        split_bytes: the approximate size of the parts.
        is_growing: a broker appends to the segment, so no task would see it as it is now. Its
            starts are proven here.

    Raises:
        AccessError: an `.index` cannot be read.
    """
    listed = list(places)
    found = map_places(partial(_apart, split_bytes, is_growing), listed)
    return [split for splits in found for split in splits]


def _apart(
    split_bytes: int, is_growing: Callable[[SegmentPlace], bool], place: SegmentPlace
) -> list[Split]:
    if place.file_bytes <= split_bytes:
        return list(_parts(place, place.file_bytes or 1))
    if is_growing(place):
        return splits_at(place, start_positions(place, split_bytes))
    index = index_stamp(place)
    if index is None or not index.file_bytes:
        return list(_parts(place, place.file_bytes))
    return list(_parts(place, split_bytes, index))


def _parts(
    place: SegmentPlace, split_bytes: int, index: FileStamp | None = None
) -> Iterator[Split]:
    count = min(max(-(-place.file_bytes // split_bytes), 1), MAX_PARTS_COUNT)
    for number in range(count):
        yield Split(
            place=place,
            start_pos=_cut(place, number, count),
            end_pos=_cut(place, number + 1, count),
            is_last=number + 1 == count,
            part=None if count == 1 else PlannedPart(number, count, index),
        )


def segment_numbers(splits: Iterable[Split]) -> Iterator[int]:
    """Yield for each split the number of its segment in its directory, from 0 on, in order."""
    numbers: dict[str, dict[str, int]] = {}
    for each in splits:
        known = numbers.setdefault(each.place.directory, {})
        yield known.setdefault(each.place.path, len(known))


def _cut(place: SegmentPlace, number: int, parts_count: int) -> int:
    return place.file_bytes * number // parts_count


def proven(split: Split) -> Split | None:
    """Return a planned split with proven positions, or None if it is empty.

    The first part of a segment is never empty. If the file cannot be opened, the first part is the
    whole file, and its reader gets the error.
    """
    if split.part is None:
        return split
    entries = offset_entries(split.place)
    try:
        with open_place(split.place) as segment:
            return _between_cuts(split, split.part, StartProver(segment, entries))
    except AccessError:
        if split.part.number:
            return None
        return split._replace(end_pos=split.place.file_bytes, is_last=True, part=None)


def proven_apart(
    split: Split, opener: Callable[[SegmentPlace], Segment] = open_place
) -> Split | None:
    """Return a split of `plan_apart` with proven positions, or None if it is empty.

    Args:
        split: as it was planned.
        opener: of the segment.

    Raises:
        AccessError: the segment cannot be opened.
        UnprovenCutError: other tasks may have proven other starts.
    """
    if split.part is None:
        return split
    place = split.place
    with opener(place) as segment:
        try:
            prover = StartProver(segment, read_offset_entries(place))
        except AccessError as exc:
            raise UnprovenCutError(place.path, f"its index cannot be read ({exc.reason})") from exc
        found = _between_cuts(split, split.part, prover)
    if prover.met_unreadable:
        raise UnprovenCutError(place.path, "a place near a split cannot be read")
    require_same(split)
    return found


def require_same(split: Split) -> None:
    """Require that the files of a part have not changed since it was planned.

    A segment that was removed meanwhile does not count as changed.

    Raises:
        UnprovenCutError: they have changed, or cannot be read.
    """
    if split.part is None:
        return
    place = split.place
    try:
        log, index = stamp_of(place.path), index_stamp(place)
    except AccessError as exc:
        raise UnprovenCutError(place.path, f"it cannot be looked at ({exc.reason})") from exc
    if log is None:
        return
    is_index_same = split.part.index_seen is not None and split.part.index_seen.is_same(index)
    if not is_index_same or not listed_stamp(place).is_same(log):
        raise UnprovenCutError(place.path, "it has changed since the query was planned")


def _between_cuts(split: Split, part: PlannedPart, prover: StartProver) -> Split | None:
    """Return the split from its start to the next proven start, or None if it is empty."""
    place, number = split.place, part.number
    start_pos = 0
    if number:
        cut_pos = _cut(place, number, part.parts_count)
        found = _start_near(prover, cut_pos, place.file_bytes)
        if found is None:
            return None
        start_pos = found
    for later in range(number + 1, part.parts_count):
        end_pos = _start_near(prover, _cut(place, later, part.parts_count), place.file_bytes)
        if end_pos is not None:
            if end_pos <= start_pos and number:
                return None
            return split._replace(start_pos=start_pos, end_pos=end_pos, is_last=False, part=None)
    return split._replace(start_pos=start_pos, end_pos=place.file_bytes, is_last=True, part=None)


def _start_near(prover: StartProver, cut_pos: int, file_bytes: int) -> int | None:
    """Prove an entry at a split position or behind it, else before it, nearest first.

    A later split position never has an earlier start. Entries tried for both give the same result
    in every task, and each split position takes the nearest.
    """
    positions = prover.positions
    index = bisect_left(positions, cut_pos)
    behind = range(index, min(index + CANDIDATES_COUNT, len(positions)))
    before = range(index - 1, max(index - CANDIDATES_COUNT, 0) - 1, -1)
    for each in (*behind, *before):
        if positions[each] < file_bytes and prover.prove(each) is not None:
            pos: int = positions[each]
            return pos
    return None


# -- dropping the pieces that cannot contain the wanted offsets or times.
#
# By offset, segments are dropped by the base offsets in their names, since each ends below the next
# base offset. Pieces of a segment are dropped by their first batches. These count if both the batch
# and a proven entry of the `.index` give the offset.
#
# By time, pieces are dropped that end before the batch of a `.timeindex` entry below the minimum,
# if that batch has the entry's timestamp as maximum. If that was the last entry of a closed
# segment, the rest of it is dropped if all batches behind it are older, and few enough to read.
#
# This assumes that offsets grow along a log. It also assumes that a time index without a broken
# rule gives the maximum up to a confirmed entry. A broker reads by the same rules. No piece is
# dropped because of a maximum time, since timestamps need not grow. In doubt a piece stays.


PRUNING_CANDIDATES = 3  # time index entries to try
REST_BYTES = 8 << 20  # most bytes to read behind the last entry of a time index


class SearchBounds(NamedTuple):
    """The wanted offsets and times, both ends inclusive, None for no bound.

    Times are in ms since 1970.

    A batch is in range if one of its offsets is, and its maximum timestamp is not below the
    minimum. Its first timestamp is not always the lowest.
    """

    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None


def prune_splits(splits: Iterable[Split], bounds: SearchBounds) -> list[Split]:
    """Return, in their order, the splits that can contain a batch in range.

    `splits` may be any pieces. The result is best with all pieces of all segments of a directory.
    Unreadable pieces stay.
    """
    given = list(splits)
    places = _in_offset_range({each.place for each in given}, bounds)
    by_place: dict[SegmentPlace, list[Split]] = {place: [] for place in places}
    for each in given:
        if each.place in by_place:
            by_place[each.place].append(each)
    work = partial(_prune_segment, by_place, places, bounds)
    kept = {split for found in map_places(work, list(by_place)) for split in found}
    return [each for each in given if each in kept]


def _in_offset_range(
    places: Iterable[SegmentPlace], bounds: SearchBounds
) -> dict[SegmentPlace, int | None]:
    """Return the segments that can contain an offset in range, with the end of each if known."""
    bases: dict[str, list[int]] = {}
    listed = sorted(places)
    for each in listed:
        bases.setdefault(each.directory, []).append(each.base_offset)
    ascending = {directory: sorted(set(found)) for directory, found in bases.items()}
    found = {}
    for each in listed:
        above = ascending[each.directory]
        index = bisect_right(above, each.base_offset)
        end_offset = above[index] if index < len(above) else None
        is_above = bounds.max_offset is not None and each.base_offset > bounds.max_offset
        is_below = bounds.min_offset is not None and (
            end_offset is not None and end_offset <= bounds.min_offset
        )
        if not (is_above or is_below):
            found[each] = end_offset
    return found


def _prune_segment(
    by_place: dict[SegmentPlace, list[Split]],
    end_offsets: dict[SegmentPlace, int | None],
    bounds: SearchBounds,
    place: SegmentPlace,
) -> list[Split]:
    """Return the pieces of one segment that stay."""
    splits = sorted(by_place[place])
    end_offset = end_offsets[place]
    is_cut_low = bounds.min_offset is not None and bounds.min_offset > place.base_offset
    is_cut_high = bounds.max_offset is not None and (
        end_offset is None or bounds.max_offset < end_offset - 1
    )
    is_cut = any(each.start_pos or not each.is_last for each in splits)
    by_offset = (is_cut_low or is_cut_high) and is_cut
    if not by_offset and bounds.min_timestamp_ms is None:
        return splits
    try:
        with open_place(place) as segment:
            finder = _SegmentFinder(segment, place)
            if by_offset:
                splits = finder.within_offsets(splits, bounds)
            if bounds.min_timestamp_ms is not None and splits:
                splits = finder.not_older(splits, bounds.min_timestamp_ms)
    except AccessError:
        return splits
    return splits


class _SegmentFinder:
    """A search in one open segment."""

    def __init__(self, segment: Segment, place: SegmentPlace) -> None:
        self._segment = segment
        self._place = place
        self._prover = StartProver(segment, offset_entries(place))

    def within_offsets(self, splits: Sequence[Split], bounds: SearchBounds) -> list[Split]:
        """Drop the pieces below or above the bounds. `splits` are in order."""
        below_pos, above_pos = 0, None
        # The next piece begins at the end of each piece, even if it is not given.
        cuts = {each.start_pos for each in splits}
        cuts |= {each.end_pos for each in splits if not each.is_last}
        for cut_pos in sorted(cuts - {0}):
            batch = self._batch_at(cut_pos)
            if batch is None:
                continue
            header = batch.header
            if bounds.min_offset is not None and header.base_offset <= bounds.min_offset:
                below_pos = cut_pos
            # The header of a legacy wrapper has its last offset.
            if bounds.max_offset is not None and (
                header.magic >= MAGIC_V2 and header.base_offset > bounds.max_offset
            ):
                above_pos = cut_pos
                break
        return [
            each
            for each in splits
            if (each.is_last or each.end_pos > below_pos)
            and (above_pos is None or each.start_pos < above_pos)
        ]

    def not_older(self, splits: Sequence[Split], min_timestamp_ms: int) -> list[Split]:
        """Drop the pieces before a batch that proves that all data up to it is older."""
        times = time_entries(self._place)
        end = bisect_left(times, min_timestamp_ms, key=_timestamp_of)
        for index in range(end - 1, max(-1, end - 1 - PRUNING_CANDIDATES), -1):
            batch = self._borne_out(times[index])
            if batch is None:
                continue
            older_pos = batch.pos + batch.header.batch_bytes
            if index == len(times) - 1 and self._is_rest_older(older_pos, min_timestamp_ms):
                return []
            return [each for each in splits if each.is_last or each.end_pos > older_pos]
        return list(splits)

    def _batch_at(self, pos: int) -> ScannedBatch | None:
        positions = self._prover.positions
        index = bisect_left(positions, pos)
        if index == len(positions) or positions[index] != pos:
            return None
        return self._prover.prove(index)

    def _borne_out(self, entry: TimeIndexEntry) -> ScannedBatch | None:
        """Return the batch with the entry's offset if its maximum timestamp is the entry's."""
        index = bisect_right(self._prover.relative_offsets, entry.relative_offset) - 1
        start_pos = 0
        if index >= 0:
            start = self._prover.prove(index)
            if start is None:
                return None
            start_pos = start.pos
        end_pos = start_pos + MAX_PROOF_BYTES
        scan = self._segment.scan(
            start_pos=start_pos, end_pos=end_pos, is_active=False, resume=False
        )
        offset = self._segment.base_offset + entry.relative_offset
        batch = next((each for each in scan if each.header.last_offset >= offset), None)
        if batch is None or any(each.start_pos <= batch.pos for each in scan.verdicts):
            return None
        header = batch.header
        is_named = header.base_offset <= offset and batch.crc_ok
        return batch if is_named and header.max_timestamp_ms == entry.timestamp_ms else None

    def _is_rest_older(self, pos: int, min_timestamp_ms: int) -> bool:
        """Return whether a closed segment from `pos` on is older, by reading every batch."""
        if self._place.is_active or self._segment.file_bytes - pos > REST_BYTES:
            return False
        scan = self._segment.scan(start_pos=pos, is_active=False, resume=False)
        return (
            all(each.header.max_timestamp_ms < min_timestamp_ms for each in scan)
            and not scan.verdicts
        )


def _timestamp_of(entry: TimeIndexEntry) -> int:
    return entry.timestamp_ms


# -- the end of the log of a listed directory, local or behind a URI


_ENTRIES_COUNT = 2  # with which `find_end` begins


def log_end_offset(places: Sequence[SegmentPlace]) -> int:
    """Return the log end offset: one above the last good batch.

    Args:
        places: all segments of one directory, by base offset, at least one.

    Raises:
        AccessError: the last segment cannot be opened.
    """
    place = places[-1]
    entries = [
        OffsetIndexEntry(int(relative), int(pos))
        for relative, pos in offset_entries(place)[-_ENTRIES_COUNT:]
    ]
    with open_place(place) as segment:
        last = find_end(segment, entries, is_active=place.is_active).last
    return place.base_offset if last is None else last.header.last_offset + 1
