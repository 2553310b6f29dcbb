"""Producer epochs whose sequences are exactly 0 to n-1, in few bytes each.

With transaction version 2 every transaction is a new epoch (TXN-7), whose first batch has sequence
0. A partition may have millions of them, and all but the last have ended: an epoch returns only
after an error. So they are kept as runs of consecutive epochs with the same number of sequences. A
run takes 8 bytes instead of the 46 of `SequenceRanges`. If an epoch does return, it is converted to
that form again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.summaries.sequence_ranges import (
    LAP,
    SequencedBatches,
    SequenceRanges,
    cover,
    join,
    no_ranges,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class SettledEpochs(NamedTuple):
    """Runs of epochs by producer id and epoch.

    Attributes:
        producer_id: ascending.
        run_end: for each producer, the row after its last run.
        first_epoch, epochs_count, sequences_count: of each run. Every epoch of it has the sequences
            0 to sequences_count-1.
    """

    producer_id: Ints
    run_end: Ints
    first_epoch: NDArray[np.int16]
    epochs_count: NDArray[np.uint16]
    sequences_count: NDArray[np.uint32]


SETTLED_DTYPES = (np.int64, np.int64, np.int16, np.uint16, np.uint32)


class EpochRows(NamedTuple):
    """Single epochs, one row each, by producer id and epoch, each pair once."""

    producer_id: Ints
    epoch: Ints
    sequences_count: Ints


def no_settled() -> SettledEpochs:
    """Return an empty SettledEpochs."""
    return SettledEpochs._make(np.empty(0, dtype) for dtype in SETTLED_DTYPES)


def _no_rows() -> EpochRows:
    return EpochRows._make(np.empty(0, np.int64) for _ in EpochRows._fields)


def compress(rows: EpochRows) -> SettledEpochs:
    """Turn single epochs into runs as long as possible."""
    if not len(rows.producer_id):
        return no_settled()
    is_first = np.ones(len(rows.producer_id), np.bool_)
    is_first[1:] = np.diff(rows.producer_id) != 0
    opens = is_first.copy()
    opens[1:] |= (np.diff(rows.epoch) != 1) | (np.diff(rows.sequences_count) != 0)
    places = np.flatnonzero(opens)
    ids = np.flatnonzero(is_first[places])
    return SettledEpochs(
        producer_id=rows.producer_id[places[ids]],
        run_end=np.append(ids[1:], len(places)).astype(np.int64),
        first_epoch=rows.epoch[places].astype(np.int16),
        epochs_count=np.diff(places, append=len(rows.epoch)).astype(np.uint16),
        sequences_count=rows.sequences_count[places].astype(np.uint32),
    )


def expand(settled: SettledEpochs) -> EpochRows:
    """Turn runs into single epochs."""
    counts = settled.epochs_count.astype(np.int64)
    run_count = np.diff(settled.run_end, prepend=0)
    ids = np.repeat(np.repeat(settled.producer_id, run_count), counts)
    behind = np.cumsum(counts)
    step = np.arange(len(ids)) - np.repeat(behind - counts, counts)
    return EpochRows(
        ids,
        np.repeat(settled.first_epoch.astype(np.int64), counts) + step,
        np.repeat(settled.sequences_count.astype(np.int64), counts),
    )


class Sequences(NamedTuple):
    """The sequences of a piece of log. All epochs that can be settled are."""

    ranges: SequenceRanges = no_ranges()
    settled: SettledEpochs = no_settled()


def _is_simple(ranges: SequenceRanges) -> Flags:
    """Return for each group whether it is one range from sequence 0 on, in the order of the log."""
    count = len(ranges.producer_id)
    ranges_count = np.bincount(ranges.group, minlength=count)
    end = np.zeros(count, np.int64)
    end[ranges.group] = ranges.end
    start = np.full(count, -1)
    start[ranges.group] = ranges.start
    return np.asarray(
        (ranges_count == 1)
        & (start == 0)
        & (ranges.first_start == 0)
        & (ranges.last_end == end)
        & (end <= LAP)
        & (ranges.producer_epoch >= 0)
    )


def _take(ranges: SequenceRanges, wanted: Flags) -> SequenceRanges:
    """Return some of the groups with their ranges."""
    numbers = np.cumsum(wanted) - 1
    of_range = wanted[ranges.group]
    return SequenceRanges(
        producer_id=ranges.producer_id[wanted],
        producer_epoch=ranges.producer_epoch[wanted],
        first_start=ranges.first_start[wanted],
        last_end=ranges.last_end[wanted],
        group=numbers[ranges.group[of_range]].astype(np.int32),
        start=ranges.start[of_range],
        end=ranges.end[of_range],
        base_offset=ranges.base_offset[of_range],
    )


def settle(ranges: SequenceRanges, only: Flags | None = None) -> tuple[SequenceRanges, EpochRows]:
    """Separate the simple groups, within `only`. Return the rest, and the simple groups."""
    is_simple = _is_simple(ranges)
    if only is not None:
        is_simple &= only
    if not is_simple.any():
        return ranges, _no_rows()
    taken = EpochRows(
        ranges.producer_id[is_simple],
        ranges.producer_epoch[is_simple].astype(np.int64),
        ranges.last_end[is_simple],
    )
    return _take(ranges, ~is_simple), taken


def unsettled(rows: EpochRows) -> SequenceRanges:
    """Return settled epochs as ranges."""
    count = len(rows.producer_id)
    zeros = np.zeros(count, np.int64)
    return SequenceRanges(
        producer_id=rows.producer_id,
        producer_epoch=rows.epoch.astype(np.int16),
        first_start=zeros,
        last_end=rows.sequences_count,
        group=np.arange(count, dtype=np.int32),
        start=zeros,
        end=rows.sequences_count,
        base_offset=np.full(count, -1),
    )


def pick(rows: EpochRows, producer_id: Ints, epoch: Ints) -> Flags:
    """Return which of the rows have one of the pairs."""
    both_ids = np.concatenate((rows.producer_id, producer_id))
    both_epochs = np.concatenate((rows.epoch, epoch))
    order = np.lexsort((both_epochs, both_ids))
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (np.diff(both_ids[order]) != 0) | (np.diff(both_epochs[order]) != 0)
    keys = np.empty(len(order), np.int64)
    keys[order] = np.cumsum(is_new) - 1
    return np.isin(keys[: len(rows.epoch)], keys[len(rows.epoch) :])


def merge_rows(*parts: EpochRows) -> EpochRows:
    """Merge rows of different pairs, in order."""
    ids, epochs, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((epochs, ids))
    return EpochRows(ids[order], epochs[order], counts[order])


def rows_where(rows: EpochRows, wanted: Flags) -> EpochRows:
    """Return some of the rows."""
    return EpochRows._make(column[wanted] for column in rows)


def join_sequences(left: Sequences, right: Sequences) -> tuple[Sequences, bool]:
    """Join the sequences of two neighbouring pieces. Return also whether they overlap."""
    left_rows, right_rows = expand(left.settled), expand(right.settled)
    left_ranges, right_ranges = left.ranges, right.ranges
    # Only epochs in both pieces have to be joined range by range.
    in_left = pick(left_rows, *_pairs(right_ranges, right_rows))
    in_right = pick(right_rows, *_pairs(left_ranges, left_rows))
    if in_left.any():
        left_ranges, _ = join(left_ranges, unsettled(rows_where(left_rows, in_left)))
    if in_right.any():
        right_ranges, _ = join(right_ranges, unsettled(rows_where(right_rows, in_right)))
    joined, is_overlapping = join(left_ranges, right_ranges)
    joined, fresh = settle(joined)
    rows = merge_rows(rows_where(left_rows, ~in_left), rows_where(right_rows, ~in_right), fresh)
    return Sequences(joined, compress(rows)), is_overlapping


def _pairs(ranges: SequenceRanges, rows: EpochRows) -> tuple[Ints, Ints]:
    return (
        np.concatenate((ranges.producer_id, rows.producer_id)),
        np.concatenate((ranges.producer_epoch.astype(np.int64), rows.epoch)),
    )


class SequenceTracker:
    """A tracker that adds batches to the known sequences, block by block.

    The highest epoch of each producer, and all epochs that are not simple, stay as ranges. A
    healthy log touches no others again.
    """

    def __init__(self, before: Sequences | None = None) -> None:
        before = before or Sequences()
        rows = expand(before.settled)
        self._settled = [rows]
        self._live = before.ranges
        self._bring_back(_is_highest(rows.producer_id))

    def add(self, batches: SequencedBatches) -> Flags:
        """Return which of the batches repeat a sequence of an earlier batch."""
        if not len(batches.producer_id):
            return np.empty(0, np.bool_)
        highest = np.flatnonzero(_is_highest(self._live.producer_id))
        ids = self._live.producer_id[highest]
        if len(ids):
            place = np.minimum(np.searchsorted(ids, batches.producer_id), len(ids) - 1)
            is_back = ids[place] == batches.producer_id
            is_back &= batches.producer_epoch < self._live.producer_epoch[highest][place]
            if is_back.any():
                rows = self._rows()
                epochs = batches.producer_epoch[is_back].astype(np.int64)
                self._bring_back(pick(rows, batches.producer_id[is_back], epochs))
        ranges, is_repeated = cover(batches, self._live)
        self._live, fresh = settle(ranges, ~_is_highest(ranges.producer_id))
        if len(fresh.epoch):
            self._settled.append(fresh)
        return is_repeated

    def finish(self) -> Sequences:
        """Return all sequences."""
        ranges, fresh = settle(self._live)
        return Sequences(ranges, compress(merge_rows(self._rows(), fresh)))

    def _rows(self) -> EpochRows:
        if len(self._settled) > 1:
            self._settled = [merge_rows(*self._settled)]
        return self._settled[0]

    def _bring_back(self, wanted: Flags) -> None:
        if not wanted.any():
            return
        rows = self._rows()
        self._live, _ = join(self._live, unsettled(rows_where(rows, wanted)))
        self._settled = [rows_where(rows, ~wanted)]


def _is_highest(producer_id: Ints) -> Flags:
    """Return which rows, ordered by producer and epoch, are the last of their producer."""
    is_last = np.ones(len(producer_id), np.bool_)
    is_last[:-1] = producer_id[1:] != producer_id[:-1]
    return is_last
