"""The sequence numbers in a piece of log, per producer id and epoch, and their repetitions.

A batch has the sequences [base_sequence, base_sequence + last_offset_delta], which wrap from 2^31-1
to 0. Places distinguish a producer's next lap from a repetition: 64-bit numbers that continue where
sequences wrap. The place of a batch follows from the previous batch of the same producer and epoch.
Of all places with its sequence, it is the nearest to the end of that batch (up to 2^30 before or
after it). So the places of two pieces differ only by whole laps, and the first and the last batch
of each side resolve a seam.

All operations are in columns. To compare two values (producer and epoch, place), both are replaced
by their common rank in order of producer, epoch and place. Ranges are then plain integer intervals,
ranges of different producers never touch, and set operations are sums over cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from storage.formats.record_batch import MAX_SEQUENCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAP = MAX_SEQUENCE + 1
HALF_LAP = LAP // 2


class SequencedBatches(NamedTuple):
    """Batches with a producer id and a sequence, in log order, one row each.

    `sequences_count` is last_offset_delta + 1, in 1..2^31.
    """

    producer_id: NDArray[np.int64]
    producer_epoch: NDArray[np.int16]
    base_sequence: NDArray[np.int32]
    sequences_count: NDArray[np.int64]
    base_offset: NDArray[np.int64]


class SequenceRanges(NamedTuple):
    """The sequence ranges of a piece of log. Places are half open, and relative to the piece.

    The first columns have a row per producer id and epoch: the place of its first batch, and the
    place after its last batch. The others have a row per range, as long as possible, by group and
    start. `group` is the row of its producer and epoch. `base_offset` is the lowest of the batches
    at the start of the range (-1 at sequence 0, where no gap can precede it).
    """

    producer_id: NDArray[np.int64]
    producer_epoch: NDArray[np.int16]
    first_start: NDArray[np.int64]
    last_end: NDArray[np.int64]
    group: NDArray[np.int32]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    base_offset: NDArray[np.int64]


RANGES_DTYPES = (np.int64, np.int16, np.int64, np.int64, np.int32, np.int64, np.int64, np.int64)


def no_ranges() -> SequenceRanges:
    """Return the ranges of an empty piece."""
    return SequenceRanges._make(np.empty(0, dtype) for dtype in RANGES_DTYPES)


class Covered(NamedTuple):
    """The ranges after `cover`, and for each batch whether it repeats an earlier batch."""

    ranges: SequenceRanges
    is_repeated: NDArray[np.bool_]


def cover(batches: SequencedBatches, before: SequenceRanges | None = None) -> Covered:
    """Add batches to the ranges `before` them. Join adjacent ranges.

    A batch is repeated if an earlier batch of its producer and epoch has one of its sequences.
    """
    own, order, placed = _place(batches)
    is_repeated = np.zeros(len(order), np.bool_)
    if placed.goes_back:
        is_repeated[order] = _repeats(placed)
        own = _with_ranges(own, placed)
    if before is None or not len(before.producer_id):
        return Covered(own, is_repeated)
    aligned = _align(before, own)
    merged, is_overlapping = _union(aligned)
    if is_overlapping:
        shift = aligned.right_shift[placed.group]
        group = aligned.right_group[placed.group]
        cells = _covered_cells(aligned, group, placed.start + shift, placed.end + shift)
        inside = np.concatenate(([0], np.cumsum(cells.coverage)))
        is_repeated[order] |= inside[cells.end] > inside[cells.first]
    return Covered(merged, is_repeated)


def join(left: SequenceRanges, right: SequenceRanges) -> tuple[SequenceRanges, bool]:
    """Join the ranges of two neighbouring pieces. Return also whether they overlap.

    If so, some batches of the right piece repeat some of the left. `cover` finds them.
    """
    if not len(left.producer_id):
        return right, False
    if not len(right.producer_id):
        return left, False
    return _union(_align(left, right))


class _Placed(NamedTuple):
    """Batches in order of producer, epoch and log, with their places."""

    group: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    base_offset: NDArray[np.int64]
    goes_back: bool  # a batch begins before the end of the previous batch


def _place(batches: SequencedBatches) -> tuple[SequenceRanges, NDArray[np.int64], _Placed]:
    order = np.lexsort((batches.producer_epoch, batches.producer_id))
    producer_id, epoch = batches.producer_id[order], batches.producer_epoch[order]
    base = batches.base_sequence[order].astype(np.int64)
    count = batches.sequences_count[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (producer_id[1:] != producer_id[:-1]) | (epoch[1:] != epoch[:-1])
    jump = np.zeros(len(order), np.int64)  # from the end of the previous batch
    jump[1:] = _nearest(base[1:] - base[:-1] - count[:-1])
    jump[is_first] = 0
    step = jump.copy()
    step[1:] += count[:-1]
    step[is_first] = 0
    firsts = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    total = np.cumsum(step)
    start = total + (base[firsts] - total[firsts])[group]
    end = start + count
    base_offset = np.where(base == 0, -1, batches.base_offset[order])
    lasts = np.append(firsts[1:], len(order))[: len(firsts)] - 1
    # Without decreasing batches, a range begins at each batch that does not continue the previous.
    opens = np.flatnonzero(is_first | (jump != 0))
    closes = np.append(opens[1:], len(order))[: len(opens)] - 1
    ranges = SequenceRanges(
        producer_id=producer_id[firsts],
        producer_epoch=epoch[firsts],
        first_start=start[firsts],
        last_end=end[lasts],
        group=group[opens].astype(np.int32),
        start=start[opens],
        end=end[closes],
        base_offset=base_offset[opens],
    )
    return (
        ranges,
        order,
        _Placed(
            group=group,
            start=start,
            end=end,
            base_offset=base_offset,
            goes_back=bool((jump < 0).any()),
        ),
    )


def _nearest(distance: Any) -> Any:
    """Reduce a distance between sequences to [-2^30, 2^30) by whole laps."""
    return (distance + HALF_LAP) % LAP - HALF_LAP


class _Aligned(NamedTuple):
    """Two neighbouring pieces with common groups (of `merged`) and places (of the left piece)."""

    merged: SequenceRanges  # without ranges
    left: SequenceRanges
    left_group: NDArray[np.int64]  # group of `merged` by group of `left`
    right: SequenceRanges
    right_group: NDArray[np.int64]
    right_shift: NDArray[np.int64]  # by group of `right`: whole laps to add to its places


def _align(left: SequenceRanges, right: SequenceRanges) -> _Aligned:
    ids = np.concatenate((left.producer_id, right.producer_id))
    epochs = np.concatenate((left.producer_epoch, right.producer_epoch))
    order = np.lexsort((epochs, ids))
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(ids[order]) != 0) | (np.diff(epochs[order]) != 0)
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(is_new) - 1
    left_group, right_group = np.split(groups, [len(left.producer_id)])
    count = int(is_new.sum())
    in_left = np.zeros(count, np.bool_)
    in_left[left_group] = True
    first_start, last_end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    first_start[left_group], last_end[left_group] = left.first_start, left.last_end
    is_common = in_left[right_group]
    expected = last_end[right_group]
    nearest = expected + _nearest(right.first_start - expected)
    shift = np.where(is_common, nearest - right.first_start, 0)
    first_start[right_group] = np.where(
        is_common, first_start[right_group], right.first_start + shift
    )
    last_end[right_group] = right.last_end + shift
    merged = no_ranges()._replace(
        producer_id=ids[order[is_new]],
        producer_epoch=epochs[order[is_new]],
        first_start=first_start,
        last_end=last_end,
    )
    return _Aligned(
        merged=merged,
        left=left,
        left_group=left_group,
        right=right,
        right_group=right_group,
        right_shift=shift,
    )


def _union(aligned: _Aligned) -> tuple[SequenceRanges, bool]:
    left, right = aligned.left, aligned.right
    shift = aligned.right_shift[right.group]
    cells = _covered_cells(
        aligned, aligned.right_group[right.group], right.start + shift, right.end + shift
    )
    both = cells.coverage + _coverage(cells.first, cells.end, len(cells.place))
    merged = _ranges_of_cells(
        aligned.merged,
        both > 0,
        cells.group,
        cells.place,
        np.concatenate((cells.left_first, cells.first)),
        np.concatenate((left.base_offset, right.base_offset)),
    )
    return merged, bool((both > 1).any())


class _Cells(NamedTuple):
    """The cells that the left piece and some given ranges touch, split at every start and end.

    Attributes:
        group, place: of each cell's start.
        first, end: first cell of each given range, and the cell after its last.
        left_first: first cell of each range of the left piece.
        coverage: of each cell, whether (1) or not (0) the left piece covers it.
    """

    group: NDArray[Any]
    place: NDArray[Any]
    first: NDArray[Any]
    end: NDArray[Any]
    left_first: NDArray[Any]
    coverage: NDArray[Any]


def _covered_cells(
    aligned: _Aligned, group: NDArray[Any], start: NDArray[Any], end: NDArray[Any]
) -> _Cells:
    left = aligned.left
    left_group = aligned.left_group[left.group]
    groups = np.concatenate((left_group, left_group, group, group))
    places = np.concatenate((left.start, left.end, start, end))
    ranks, cell_group, cell_place = _rank(groups, places)
    n, m = len(left_group), len(group)
    left_first, left_end, first, after = np.split(ranks, [n, 2 * n, 2 * n + m])
    coverage = _coverage(left_first, left_end, len(cell_place))
    return _Cells(
        group=cell_group,
        place=cell_place,
        first=first,
        end=after,
        left_first=left_first,
        coverage=coverage,
    )


def _rank(
    group: NDArray[Any], place: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Replace (group, place) by its rank. Return the ranks, and group and place by rank."""
    order = np.lexsort((place, group))
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(group[order]) != 0) | (np.diff(place[order]) != 0)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(is_new) - 1
    kept = order[is_new]
    return ranks, group[kept], place[kept]


def _coverage(first: NDArray[Any], end: NDArray[Any], cells_count: int) -> NDArray[Any]:
    """Return how many of the ranges [first, end) cover each cell."""
    steps = np.bincount(first, minlength=cells_count) - np.bincount(end, minlength=cells_count)
    return np.cumsum(steps)


def _ranges_of_cells(
    groups: SequenceRanges,
    is_covered: NDArray[np.bool_],
    cell_group: NDArray[Any],
    cell_place: NDArray[Any],
    first: NDArray[Any],
    base_offset: NDArray[np.int64],
) -> SequenceRanges:
    """Turn covered cells into ranges. The last cell of a group is never covered.

    `first` and `base_offset` are of the covering ranges: one of them begins where a new range
    begins.
    """
    before = np.concatenate(([False], is_covered[:-1]))
    opens = np.flatnonzero(is_covered & ~before)
    closes = np.flatnonzero(before & ~is_covered)
    least = np.full(len(cell_place), np.iinfo(np.int64).max)
    np.minimum.at(least, first, base_offset)
    return groups._replace(
        group=cell_group[opens].astype(np.int32),
        start=cell_place[opens],
        end=cell_place[closes],
        base_offset=least[opens],
    )


def _with_ranges(groups: SequenceRanges, placed: _Placed) -> SequenceRanges:
    ranks, cell_group, cell_place = _rank(
        np.concatenate((placed.group, placed.group)), np.concatenate((placed.start, placed.end))
    )
    first, after = np.split(ranks, 2)
    is_covered = _coverage(first, after, len(cell_place)) > 0
    return _ranges_of_cells(groups, is_covered, cell_group, cell_place, first, placed.base_offset)


def _repeats(placed: _Placed) -> NDArray[np.bool_]:
    """Return for each batch whether an earlier batch in the same group has one of its places.

    First find the earliest batch that covers each cell (minimum over ranges, painted in powers of
    two). Then find the earliest of all cells of a batch, in the reverse way.
    """
    ranks, _, cells = _rank(
        np.concatenate((placed.group, placed.group)), np.concatenate((placed.start, placed.end))
    )
    first, after = np.split(ranks, 2)
    numbers = np.arange(len(first))
    level = np.frexp((after - first).astype(np.float64))[1] - 1  # 2^level cells fit in
    second = after - (1 << level)
    earliest = np.full((int(level.max()) + 1, len(cells)), len(first))
    np.minimum.at(earliest, (level, first), numbers)
    np.minimum.at(earliest, (level, second), numbers)
    for k in range(len(earliest) - 1, 0, -1):
        half = 1 << (k - 1)
        wide, narrow = earliest[k], earliest[k - 1]
        np.minimum(narrow, wide, out=narrow)
        np.minimum(narrow[half:], wide[:-half], out=narrow[half:])
    lowest = earliest[0].copy()
    found = np.empty(len(first), np.int64)
    for k in range(len(earliest)):
        rows = level == k
        found[rows] = np.minimum(lowest[first[rows]], lowest[second[rows]])
        lowest[: -(1 << k)] = np.minimum(lowest[: -(1 << k)], lowest[1 << k :])
    return np.asarray(found < numbers, np.bool_)
