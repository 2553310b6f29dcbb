"""Sums by time or by offset, in as many bins as a picture has room for.

A bin holds all rows whose key has the same upper bits: `key >> width_bits`. The bins of a whole are
as narrow as they can be with at most so many of them, whatever pieces it is put together from: a
piece has no more bins than the whole at the same width, so none is wider than the whole's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.replay.producer_columns import group_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAX_KEY_BITS = 63
MARKED_BINS = 8  # times as many as may be there: looked at before anything is sorted


class Layout(NamedTuple):
    """What of the rows is kept: sums, smallest and greatest values, each a number of columns."""

    sums: int
    lows: int
    highs: int
    max_bins: int

    @property
    def columns(self) -> int:
        """How many columns a row has beside its key."""
        return self.sums + self.lows + self.highs


class Bins(NamedTuple):
    """Bins that hold anything, by key; `values` has a row for each and the columns of a Layout."""

    width_bits: int
    key: Ints
    values: Ints


def no_bins(layout: Layout) -> Bins:
    """Return those of nothing."""
    return Bins(0, np.empty(0, np.int64), np.empty((0, layout.columns), np.int64))


def bin_rows(layout: Layout, key: Ints, columns: Sequence[Ints], width_bits: int = 0) -> Bins:
    """Put rows into bins; `key` and `columns` have a value for each row.

    Args:
        layout: of `columns`, in its order.
        key: in any order, may be negative.
        columns: 64-bit numbers.
        width_bits: no bin is narrower.
    """
    if not len(key):
        return no_bins(layout)._replace(width_bits=width_bits)
    width_bits = _certain_width(key, layout.max_bins, width_bits)
    return _summed(layout, width_bits, key >> width_bits, columns)


def _certain_width(key: Ints, max_bins: int, width_bits: int) -> int:
    """Return a width that the bins have at least; most often it is theirs.

    It takes one mark for each row in a short table, where sorting keys that are out of order, and
    summing up bins of no use, takes much longer.
    """
    if len(key) <= max_bins:
        return width_bits
    low, high = int(key.min()), int(key.max())
    at_least = ((high - low) // (MARKED_BINS * max_bins)).bit_length()
    wide = max(width_bits, min(at_least, MAX_KEY_BITS))
    bins = key >> wide
    bins -= low >> wide
    is_used = np.zeros((high >> wide) - (low >> wide) + 1, np.bool_)
    is_used[bins] = True
    if np.count_nonzero(is_used) <= max_bins:
        return width_bits  # what is far from all else makes it wide: narrower ones may do
    used = np.flatnonzero(is_used) + (low >> wide)
    while len(used) > max_bins and wide < MAX_KEY_BITS:
        used >>= 1
        used = used[np.flatnonzero(np.diff(used, prepend=used[0] - 1))]
        wide += 1
    return wide


def join_bins(layout: Layout, left: Bins, right: Bins) -> Bins:
    """Join those of two pieces."""
    if not len(left.key) or not len(right.key):
        return left if len(left.key) else right
    width_bits = max(left.width_bits, right.width_bits)
    keys = [each.key >> (width_bits - each.width_bits) for each in (left, right)]
    values = np.concatenate((left.values, right.values))
    return _summed(layout, width_bits, np.concatenate(keys), [*values.T])


def widened(layout: Layout, bins: Bins, max_bins: int) -> Bins:
    """Return the same in fewer bins."""
    if len(bins.key) <= max_bins:
        return bins
    fewer = layout._replace(max_bins=max_bins)
    return _summed(fewer, bins.width_bits, bins.key, [*bins.values.T])


def _summed(layout: Layout, width_bits: int, key: Ints, columns: Sequence[Ints]) -> Bins:
    if (key[1:] < key[:-1]).any():
        order = group_rows(key)
        # Some columns are given twice: a time is the least and the greatest of its row.
        sorted_columns = {id(each): each[order] for each in {id(c): c for c in columns}.values()}
        key, columns = key[order], [sorted_columns[id(each)] for each in columns]
    key, columns = _runs(layout, key, columns)
    while len(key) > layout.max_bins and width_bits < MAX_KEY_BITS:  # below 0 and above stay two
        # What is certainly needed at once: a step halves the number of bins at most.
        step = min(((len(key) - 1) // layout.max_bins).bit_length(), MAX_KEY_BITS - width_bits)
        width_bits += step
        key, columns = _runs(layout, key >> step, columns)
    return Bins(width_bits, key, np.column_stack(columns))


def _runs(layout: Layout, key: Ints, columns: Sequence[Ints]) -> tuple[Ints, Sequence[Ints]]:
    """Put neighbours with one key together."""
    is_first = np.ones(len(key), np.bool_)
    np.not_equal(key[1:], key[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    if len(starts) == len(key):
        return key, columns
    summed = []
    for place, column in enumerate(columns):
        whole: np.ufunc = np.add
        if place >= layout.sums:
            whole = np.minimum if place < layout.sums + layout.lows else np.maximum
        summed.append(whole.reduceat(column, starts))
    return key[starts], summed
