"""Comparison of several directories of one partition over the offsets that they share.

The check compares fingerprints of the directories. If these differ, it reads the headers of that
offset range again and finds the first offset at which the directories diverge. Replicas of a
compacted topic may differ because each broker's cleaner runs separately. This is no divergence, but
the check cannot distinguish it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.summaries.summary import hash_batches, widened
from storage.errors import AccessError
from storage.places.list_places import open_place
from storage.places.place_files import offset_entries
from storage.places.splits import StartProver

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from recovery.summaries.summary import Extent, Fingerprint
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace


class Copy(NamedTuple):
    """One directory of a partition: its segments in order, and their contents."""

    places: tuple[SegmentPlace, ...]
    extent: Extent
    fingerprint: Fingerprint


class ReplicaCheck(NamedTuple):
    """The result of the comparison with the first copy. Offsets are inclusive.

    None means unknown or none.

    Attributes:
        first_common_offset, last_common_offset: the range that both copies cover.
        is_equal: both copies have the same batches in the range. None: there is no such range.
        first_different_offset: base offset of the first batch that only one copy has.
            None if the copies are equal, or if some bytes cannot be read.
    """

    first_common_offset: int | None
    last_common_offset: int | None
    is_equal: bool | None
    first_different_offset: int | None


def compare_copies(one: Copy, other: Copy, *, start_offset: int = 0) -> ReplicaCheck:
    """Compare two copies of a partition, without the batches that begin below the start offset."""
    left, right = one.extent, other.extent
    first = max(left.first_offset, right.first_offset, start_offset)
    last = min(left.top_offset, right.top_offset)
    if min(left.first_offset, right.first_offset) < 0 or first > last:
        return ReplicaCheck(
            first_common_offset=None,
            last_common_offset=None,
            is_equal=None,
            first_different_offset=None,
        )
    for start, end in _differing_ranges(one.fingerprint, other.fingerprint):
        # A bucket may reach beyond the range that both copies cover. Compare only this range.
        low, high = max(start, first), min(end - 1, last)
        if low > high:
            continue
        is_whole = (start, end - 1) == (low, high)
        try:
            found = _first_difference(one, other, low, high)
            if found is None and is_whole:  # a batch at a wrong place in the files
                found = _first_difference(one, other, low, high, is_everywhere=True)
        except AccessError:
            return ReplicaCheck(first, last, is_equal=False, first_different_offset=None)
        if found is not None:
            return ReplicaCheck(first, last, is_equal=False, first_different_offset=found)
    return ReplicaCheck(first, last, is_equal=True, first_different_offset=None)


def _differing_ranges(left: Fingerprint, right: Fingerprint) -> Iterator[tuple[int, int]]:
    width_bits = max(left.width_bits, right.width_bits)
    left, right = widened(left, width_bits), widened(right, width_bits)
    buckets = np.union1d(left.bucket, right.bucket)
    sums = np.zeros((2, len(buckets)), np.uint64)
    for row, each in zip(sums, (left, right), strict=True):
        row[np.searchsorted(buckets, each.bucket)] = each.hashes
    for bucket in buckets[sums[0] != sums[1]].tolist():
        yield bucket << width_bits, (bucket + 1) << width_bits


def _first_difference(
    one: Copy, other: Copy, low: int, high: int, *, is_everywhere: bool = False
) -> int | None:
    left, right = (_hashes(each, low, high, is_everywhere=is_everywhere) for each in (one, other))
    only = set(zip(*(column.tolist() for column in left), strict=True)) ^ set(
        zip(*(column.tolist() for column in right), strict=True)
    )
    return min((offset for offset, _ in only), default=None)


def _hashes(
    copy: Copy, low: int, high: int, *, is_everywhere: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Read base offset and hash of the good batches whose base offset lies in [low, high]."""
    offsets, hashes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    places = copy.places if is_everywhere else _touched(copy.places, low, high)
    for place in places:
        with open_place(place) as segment:
            start_pos = 0 if is_everywhere else _start_pos(segment, place, low)
            for table in segment.scan_tables(start_pos=start_pos, is_active=place.is_active):
                rows = table.crc_ok & (table.base_offset >= low) & (table.base_offset <= high)
                offsets.append(table.base_offset[rows])
                hashes.append(hash_batches(table)[rows])
                is_past = table.row_count and table.crc_ok[-1] and table.base_offset[-1] > high
                if is_past and not is_everywhere:
                    break
    return np.concatenate(offsets), np.concatenate(hashes)


def _start_pos(segment: Segment, place: SegmentPlace, low: int) -> int:
    """Return the position of a batch below an offset, from a proven index entry, or 0."""
    prover = StartProver(segment, offset_entries(place))
    limit = low - place.base_offset
    for index in range(len(prover.positions) - 1, -1, -1):
        if prover.relative_offsets[index] < limit:
            batch = prover.prove(index)
            return 0 if batch is None else batch.pos
    return 0


def _touched(places: Sequence[SegmentPlace], low: int, high: int) -> list[SegmentPlace]:
    """Return the segments that may contain the offsets, by their base offsets."""
    ends = [each.base_offset for each in places[1:]]
    return [
        each
        for number, each in enumerate(places)
        if each.base_offset <= high and (number == len(ends) or ends[number] > low)
    ]
