"""Rows of columns by what they hold: the first of a key, what differs, what was passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eoctl.cluster.checker.columns import ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eoctl.cluster.checker.columns import PartitionColumns

    Ints = NDArray[np.int64]


class FirstOf:
    """The row of each key with the least rank.

    Attributes:
        order: these rows, by key.
    """

    def __init__(self, keys: Ints, rank: Ints) -> None:
        order = np.lexsort((rank, keys))
        ordered = keys[order]
        is_first = np.ones(len(ordered), bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        self.order = order[is_first]
        self._keys = ordered[is_first]

    def places(self, wanted: Ints) -> Ints:
        """The row of each wanted key; -1: there is none."""
        if not len(self._keys):
            return np.full(len(wanted), -1)
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[at] == wanted, self.order[at], -1)


class PassedOver:
    """What was passed over, by where it begins. `isolation` None: of all readers."""

    def __init__(self, columns: PartitionColumns, isolation: bool | None) -> None:
        mark = ints(columns.gap_line)
        wanted = np.arange(len(mark))
        if isolation is not None:
            wanted = wanted[(mark & 2 == 2) == isolation]
        start = ints(columns.gap_start)[wanted]
        order = wanted[np.argsort(start, kind="stable")]
        self.start = ints(columns.gap_start)[order]
        self.end = ints(columns.gap_end)[order]
        self.line = mark[order] // 4
        self.is_within = mark[order] & 1 == 1
        before = mark // 4
        before[mark & 1 == 0] = ints(columns.gap_before)
        self.before = before[order]
        # Of all gaps up to one: which ends last, so that one that holds an offset is found.
        self._longest = np.zeros(len(order), np.int64)
        if len(order):
            reach = np.maximum.accumulate(self.end)
            is_new = np.ones(len(order), bool)
            is_new[1:] = reach[1:] > reach[:-1]
            self._longest = np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))

    def places(self, offset: Ints) -> Ints:
        """A gap that holds each offset; -1: none does."""
        if not len(self.start):
            return np.full(len(offset), -1)
        at = np.searchsorted(self.start, offset, side="right") - 1
        place = self._longest[np.maximum(at, 0)]
        return np.where((at >= 0) & (self.end[place] > offset), place, -1)


def differing(key: Ints, value: Ints, line: Ints) -> list[tuple[int, int]]:
    """Of each key with two values: the row of the first one, and of the first other one."""
    order = np.lexsort((line, key))
    keys, values = key[order], value[order]
    begins = np.ones(len(keys), bool)
    begins[1:] = keys[1:] != keys[:-1]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))
    other = np.flatnonzero(values != values[first])
    _, once = np.unique(first[other], return_index=True)
    return [(int(order[first[each]]), int(order[each])) for each in other[np.sort(once)]]
