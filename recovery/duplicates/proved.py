"""Batches of one producer id and epoch that share sequences, at different offsets (PRD-2).

Places are what `sequence_ranges` says: 64-bit numbers that count on where sequences wrap; a batch
has the place with its sequence that is nearest to the end of the batch before it of its session
(producer id and epoch). A batch is a duplicate if an earlier one in the log holds one of its
places. Its first copy is, of all earlier batches with its first such place, the first in the log.

Batches are sorted by session and offset, to give them places. If none of them goes back, which is
so in nearly every log, all is said. Else they are sorted by session and place, and a sweep finds
the pairs; it remembers batches that reach beyond the place it is at, and of those only such that no
earlier one reaches as far as.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.duplicates.rows import BATCH_DTYPE, PAIR_KEYS, PLACED_DTYPE, pair_dtype
from recovery.summaries.sequence_ranges import HALF_LAP, LAP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from recovery.duplicates.spill import Rows, Sorter, SpillSpace
    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]

SHARE = 1 / 8  # of the memory, for each of three sorters
PAIR_DTYPE = pair_dtype(PLACED_DTYPE)
_MAX_FOUND = 4096


def batch_sorter(space: SpillSpace) -> Sorter:
    """Return what takes the batches of a partition, as `sequenced_rows` gives them."""
    return space.sorter(BATCH_DTYPE, ("producer_id", "producer_epoch", "base_offset"), SHARE)


def sequenced_rows(table: HeaderTable, outcome: NDArray[np.int8]) -> Rows:
    """Turn data batches into rows; those without producer id or sequence are left out."""
    sequences_count = table.last_offset - table.base_offset + 1
    is_wanted = (table.producer_id >= 0) & (table.base_sequence >= 0)
    is_wanted &= (sequences_count > 0) & (sequences_count <= LAP)
    rows = np.empty(int(is_wanted.sum()), BATCH_DTYPE)
    rows["sequences_count"] = sequences_count[is_wanted]
    rows["outcome"] = outcome[is_wanted]
    for name in ("producer_id", "producer_epoch", "base_sequence", "base_offset", "pos"):
        rows[name] = getattr(table, name)[is_wanted]
    rows["max_timestamp_ms"] = table.max_timestamp_ms[is_wanted]
    return rows


def proved_pairs(batches: Sorter, space: SpillSpace, directory: int) -> Sorter | None:
    """Find the duplicates among the batches of one partition; None if there are none.

    The result has a row of PAIR_DTYPE per duplicate, in log order. The caller closes it.
    """
    if not any((jump < 0).any() for _, jump in _placed(batches)):
        return None
    pairs = space.sorter(PAIR_DTYPE, PAIR_KEYS, SHARE)
    keys = ("producer_id", "producer_epoch", "start", "base_offset")
    try:
        with space.sorter(PLACED_DTYPE, keys, SHARE) as placed:
            for rows, _ in _placed(batches):
                placed.add(rows)
            sweep = _Sweep(pairs, directory)
            for rows in placed.chunks():
                sweep.add(rows)
            sweep.finish()
    except BaseException:
        pairs.close()
        raise
    return pairs


def _placed(batches: Sorter) -> Iterator[tuple[Rows, Ints]]:
    """Give each batch its place, and how far it jumps from the end of the one before it."""
    before: Rows = np.empty(0, PLACED_DTYPE)  # the last batch, with its place
    for chunk in batches.chunks():
        rows = np.empty(len(before) + len(chunk), PLACED_DTYPE)
        rows[: len(before)] = before
        for name in BATCH_DTYPE.names or ():
            rows[name][len(before) :] = chunk[name]
        jump = _give_places(rows, known_count=len(before))
        yield rows[len(before) :], jump[len(before) :]
        before = rows[-1:].copy()


def _give_places(rows: Rows, *, known_count: int) -> Ints:
    base, count = rows["base_sequence"].astype(np.int64), rows["sequences_count"]
    is_first = _is_new_session(rows)
    jump = np.zeros(len(rows), np.int64)
    jump[1:] = (base[1:] - base[:-1] - count[:-1] + HALF_LAP) % LAP - HALF_LAP
    jump[is_first] = 0
    step = jump.copy()
    step[1:] += count[:-1]
    step[is_first] = 0
    total = np.cumsum(step)
    firsts = np.flatnonzero(is_first)
    origin = base[firsts]
    if known_count:
        origin[0] = rows["start"][0]
    rows["start"] = total + (origin - total[firsts])[np.cumsum(is_first) - 1]
    return jump


def _is_new_session(rows: Rows) -> NDArray[np.bool_]:
    is_new = np.ones(len(rows), np.bool_)
    for name in ("producer_id", "producer_epoch"):
        column = rows[name]
        is_new[1:] &= column[1:] == column[:-1]
    is_new[1:] = ~is_new[1:]
    return is_new


class _Batch(NamedTuple):
    """A batch in the sweep; places are half open."""

    start: int
    end: int
    base_offset: int
    row: Rows  # its only row


class _Sweep:
    """Finds pairs among batches given by session and place."""

    def __init__(self, pairs: Sorter, directory: int) -> None:
        self._pairs = pairs
        self._directory = directory
        self._found: list[tuple[Rows, Rows]] = []
        self._session = (-1, -1)
        self._open: list[_Batch] = []  # they may reach beyond the place that the sweep is at
        self._waiting: list[_Batch] = []  # those of them that repeat nothing so far

    def add(self, rows: Rows) -> None:
        """Take the next batches."""
        for place in np.flatnonzero(self._may_overlap(rows)).tolist():
            row = rows[place : place + 1].copy()  # a view would keep the whole chunk
            session = (int(row["producer_id"][0]), int(row["producer_epoch"][0]))
            if session != self._session:
                self._session, self._open, self._waiting = session, [], []
            start = int(row["start"][0])
            end = start + int(row["sequences_count"][0])
            self._step(
                _Batch(start=start, end=end, base_offset=int(row["base_offset"][0]), row=row)
            )

    def finish(self) -> None:
        """Hand over what was found."""
        if not self._found:
            return
        first, repeat = (np.concatenate(side) for side in zip(*self._found, strict=True))
        rows = np.empty(len(first), PAIR_DTYPE)
        rows["directory"] = self._directory
        rows["offset"] = repeat["base_offset"]
        rows["first"], rows["repeat"] = first, repeat
        self._pairs.add(rows)
        self._found = []

    def _may_overlap(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell which batches the sweep must look at; the first and the last are always among them.

        In a session, ends are compared with starts through their common ranks, so that a running
        maximum does not leave it.
        """
        is_new = _is_new_session(rows)
        session = np.cumsum(is_new)
        end = rows["start"] + rows["sequences_count"]
        reach = [each.end for each in self._open]
        if reach and self._session == (int(rows["producer_id"][0]), int(rows["producer_epoch"][0])):
            end[0] = max(int(end[0]), *reach)
        places = np.concatenate((rows["start"], end))
        order = np.lexsort((places, np.concatenate((session, session))))
        sorted_places, sorted_session = places[order], np.concatenate((session, session))[order]
        is_next = np.ones(len(order), np.bool_)
        is_next[1:] = (np.diff(sorted_places) != 0) | (np.diff(sorted_session) != 0)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(is_next)
        start_rank, end_rank = np.split(ranks, 2)
        overlaps = np.zeros(len(rows), np.bool_)
        overlaps[1:] = start_rank[1:] < np.maximum.accumulate(end_rank)[:-1]
        overlaps[:-1] |= overlaps[1:]
        overlaps[[0, -1]] = True
        return overlaps

    def _step(self, batch: _Batch) -> None:
        self._open = [each for each in self._open if each.end > batch.start]
        waiting = [each for each in self._waiting if each.end > batch.start]
        for each in waiting:
            if batch.base_offset < each.base_offset:
                self._note(batch, each)
        self._waiting = [each for each in waiting if batch.base_offset > each.base_offset]
        first = min(self._open, key=_by_offset, default=batch)
        if first.base_offset < batch.base_offset:
            self._note(first, batch)
        else:
            self._waiting.append(batch)
        earlier = [each for each in self._open if each.base_offset < batch.base_offset]
        if all(each.end < batch.end for each in earlier):
            later = [each for each in self._open if each.base_offset > batch.base_offset]
            self._open = [*earlier, batch, *(each for each in later if each.end > batch.end)]

    def _note(self, first: _Batch, repeat: _Batch) -> None:
        self._found.append((first.row, repeat.row))
        if len(self._found) >= _MAX_FOUND:
            self.finish()


def _by_offset(batch: _Batch) -> int:
    return batch.base_offset
