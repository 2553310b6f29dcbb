"""Cutting segments without looking into them: who reads a piece finds where it begins.

A plan cuts a segment into equal parts by its size alone, so that planning 100 TB opens no file.
The task of a part proves a beginning near its cut, as `splits` does, and takes for its end what the
task of a later part takes for its beginning: both ask the same function of the same files. A part
whose cut cannot be proven is empty, and the part before goes on through it.

That only holds while `.log` and `.index` stay as they are. Whoever puts the pieces of a segment
together has to see that they meet (`recovery.summaries.partition.join_segment`). Who gives their
rows away cannot: its plan (`plan_apart`) notes how both files looked, and a task that sees them
otherwise (`proven_apart`) gives the job up, for the tasks of one segment may have found other cuts.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING

from storage.errors import EXIT_ACCESS, AccessError, EoctlError
from storage.places.find import map_places, open_place
from storage.places.place_files import (
    index_stamp,
    listed_stamp,
    offset_entries,
    read_offset_entries,
    stamp_of,
)
from storage.places.splits import (
    CANDIDATES_COUNT,
    PlannedPart,
    Split,
    StartProver,
    splits_at,
    start_positions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.places.place_files import FileStamp

MAX_PARTS_COUNT = 64  # of a segment, which has 2 GiB at most: a task for each has to pay


class UnprovenCutError(EoctlError):
    """Tasks that read parts of a segment may not agree where they begin."""

    exit_status = EXIT_ACCESS

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path}: {why}, and parts of it were to be read by several tasks",
            next_step='run the query again, or with .option("split_bytes", 1 << 40): each segment'
            " is then read as a whole",
        )


def plan_places(places: Iterable[SegmentPlace], split_bytes: int) -> list[Split]:
    """Cut segments into equal parts of about `split_bytes`, by their sizes; nothing is opened.

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
    """Cut segments as `plan_places`, for tasks whose rows nobody puts together: `proven_apart`.

    Of a segment that is cut the `.index` is looked at, but not opened. Without one it is not cut.

    Args:
        places: the segments.
        split_bytes: about so large are the parts.
        is_growing: a broker appends to the segment, so that no task would see it as it is now:
            its cuts are proven here.

    Raises:
        AccessError: an `.index` cannot be looked at.
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
    """Give for each split which segment of its directory it is of, from 0 on, as they are given."""
    numbers: dict[str, dict[str, int]] = {}
    for each in splits:
        known = numbers.setdefault(each.place.directory, {})
        yield known.setdefault(each.place.path, len(known))


def _cut(place: SegmentPlace, number: int, parts_count: int) -> int:
    return place.file_bytes * number // parts_count


def proven(split: Split) -> Split | None:
    """Return a planned split with the positions that hold; None: it is empty.

    The first part of a segment never is. Of a file that cannot be opened it is the whole: who
    reads it will meet the error.
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
    """Return a split of `plan_apart` with the positions that hold; None: it is empty.

    Args:
        split: as it was planned.
        opener: of the segment.

    Raises:
        AccessError: the segment cannot be opened.
        UnprovenCutError: other tasks may have found other cuts.
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
        raise UnprovenCutError(place.path, "a place near a cut cannot be read")
    require_same(split)
    return found


def require_same(split: Split) -> None:
    """See that the files of a part are as they were when it was planned.

    A segment that is gone meanwhile is none that has changed.

    Raises:
        UnprovenCutError: they have changed, or cannot be looked at.
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
    """Return the split from its cut on to the next one that can be proven; None: it is empty."""
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
    """Prove an entry at a cut or behind it, else before it; the nearest ones are tried.

    Of two cuts the later one never has the earlier start: the entries that both try are found to
    hold, or not to, whoever asks, and each begins at the nearest.
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
