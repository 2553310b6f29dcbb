"""Leaving out the pieces that cannot hold what is looked for, by offset or by time.

What is left out, and by what
  by offset   segments, by the base offsets in their names, each ending below that of the next;
              pieces of a segment, by the batches that they begin with. Those count if their offset
              is told twice, by the batch and by a proven entry of the `.index`
  by time     pieces that end before a batch that a `.timeindex` entry below the minimum names, if
              that batch has the entry's timestamp as maximum; and the rest of a closed segment if
              that was its last entry and all batches behind it, few enough to read, are older
Offsets are taken to grow along a log, and a time index that breaks no rule to tell the maximum up
to an entry that is borne out: a broker reads by the same rules. Nothing leaves a piece out because
of a maximum time, for timestamps need not grow. In doubt a piece stays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import AccessError
from storage.formats.record_batch import MAGIC_V2
from storage.places.find import map_places, open_place
from storage.places.place_files import offset_entries, time_entries
from storage.places.splits import MAX_PROOF_BYTES, StartProver

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.formats.time_index import TimeIndexEntry
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split

CANDIDATES_COUNT = 3  # time index entries to try
REST_BYTES = 8 << 20  # what may be read behind the last entry of a time index


class SearchBounds(NamedTuple):
    """What is looked for: both ends included, None for no bound. Times are in ms since 1970.

    A batch is in range if one of its offsets is, and its maximum timestamp is not below the minimum
    one; its first timestamp does not tell the least.
    """

    min_offset: int | None = None
    max_offset: int | None = None
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None


def prune_splits(splits: Iterable[Split], bounds: SearchBounds) -> list[Split]:
    """Return, in their order, the splits that can hold a batch in range.

    `splits` may be any pieces, but all of them with all segments of a directory know more. What
    cannot be read stays.
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
    """Return the segments that can hold an offset in range, with the end of each if known."""
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
    """Looks into one open segment."""

    def __init__(self, segment: Segment, place: SegmentPlace) -> None:
        self._segment = segment
        self._place = place
        self._prover = StartProver(segment, offset_entries(place))

    def within_offsets(self, splits: Sequence[Split], bounds: SearchBounds) -> list[Split]:
        """Leave out what lies below or above the bounds; `splits` are in their order."""
        below_pos, above_pos = 0, None
        # Where a piece ends the next one begins, given or not.
        cuts = {each.start_pos for each in splits}
        cuts |= {each.end_pos for each in splits if not each.is_last}
        for cut_pos in sorted(cuts - {0}):
            batch = self._batch_at(cut_pos)
            if batch is None:
                continue
            header = batch.header
            if bounds.min_offset is not None and header.base_offset <= bounds.min_offset:
                below_pos = cut_pos
            # The header of a legacy message with others in it has the last of their offsets.
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
        """Leave out what lies before a batch that proves all up to it to be older."""
        times = time_entries(self._place)
        end = bisect_left(times, min_timestamp_ms, key=_timestamp_of)
        for index in range(end - 1, max(-1, end - 1 - CANDIDATES_COUNT), -1):
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
        """Is all of a closed segment from `pos` on older, by a look at every batch?"""
        if self._place.is_active or self._segment.file_bytes - pos > REST_BYTES:
            return False
        scan = self._segment.scan(start_pos=pos, is_active=False, resume=False)
        return (
            all(each.header.max_timestamp_ms < min_timestamp_ms for each in scan)
            and not scan.verdicts
        )


def _timestamp_of(entry: TimeIndexEntry) -> int:
    return entry.timestamp_ms
