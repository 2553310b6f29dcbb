"""Cutting segments without looking into them: who reads a piece finds where it begins.

A plan cuts a segment into equal parts by its size alone, so that planning 100 TB opens no file.
The task of a part proves a beginning near its cut, as `splits` does, and takes for its end what the
task of a later part takes for its beginning: both ask the same function of the same files. A part
whose cut cannot be proven is empty, and the part before goes on through it.

That only holds while `.log` and `.index` stay as they are. Whoever puts the pieces of a segment
together has to see that they meet (`recovery.summaries.partition.join_segment`); who cannot, as one
that gives rows away, cuts by `split_places` before.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from storage.errors import AccessError
from storage.places.find import open_place
from storage.places.place_files import offset_entries
from storage.places.splits import CANDIDATES_COUNT, PlannedPart, Split, StartProver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.places.listing import SegmentPlace

MAX_PARTS_COUNT = 64  # of a segment, which has 2 GiB at most: a task for each has to pay


def plan_places(places: Iterable[SegmentPlace], split_bytes: int) -> list[Split]:
    """Cut segments into equal parts of about `split_bytes`, by their sizes; nothing is opened.

    Raises:
        ValueError: `split_bytes` is below 1.
    """
    if split_bytes < 1:
        raise ValueError(f"split_bytes must be at least 1, not {split_bytes}")
    return [split for place in places for split in _parts(place, split_bytes)]


def _parts(place: SegmentPlace, split_bytes: int) -> Iterator[Split]:
    count = min(max(-(-place.file_bytes // split_bytes), 1), MAX_PARTS_COUNT)
    for number in range(count):
        yield Split(
            place=place,
            start_pos=_cut(place, PlannedPart(number, count)),
            end_pos=_cut(place, PlannedPart(number + 1, count)),
            is_last=number + 1 == count,
            part=None if count == 1 else PlannedPart(number, count),
        )


def segment_numbers(splits: Iterable[Split]) -> Iterator[int]:
    """Give for each split which segment of its directory it is of, from 0 on, as they are given."""
    numbers: dict[str, dict[str, int]] = {}
    for each in splits:
        known = numbers.setdefault(each.place.directory, {})
        yield known.setdefault(each.place.path, len(known))


def _cut(place: SegmentPlace, part: PlannedPart) -> int:
    return place.file_bytes * part.number // part.parts_count


def proven(split: Split) -> Split | None:
    """Return a planned split with the positions that hold; None: it is empty.

    The first part of a segment never is. Of a file that cannot be opened it is the whole: who
    reads it will meet the error.
    """
    if split.part is None:
        return split
    number, count = split.part
    place, start_pos, end_pos = split.place, 0, None
    entries = offset_entries(place)
    try:
        with open_place(place) as segment:
            prover = StartProver(segment, entries)
            cuts = [_cut(place, PlannedPart(each, count)) for each in range(number, count)]
            if number:
                found = _start_near(prover, cuts[0], place.file_bytes)
                if found is None:
                    return None
                start_pos = found
            for cut in cuts[1:]:
                end_pos = _start_near(prover, cut, place.file_bytes)
                if end_pos is not None:
                    break
    except AccessError:
        if number:
            return None
    if end_pos is None:
        return split._replace(
            start_pos=start_pos, end_pos=place.file_bytes, is_last=True, part=None
        )
    if end_pos <= start_pos and number:
        return None
    return split._replace(start_pos=start_pos, end_pos=end_pos, is_last=False, part=None)


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
