"""Sequences that are missing in a piece of log, by producer id and epoch (PRD-1).

A gap lies between sequences of one producer and epoch; or before the first one, which should be 0,
if an earlier epoch of that producer is in the log. Compaction of whole batches leaves gaps too, and
a producer that was forgotten (expired, or its batches removed) may go on with any sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.summaries.sequence_ranges import LAP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recovery.summaries.sequence_ranges import SequenceRanges

    Ints = NDArray[np.int64]


class Gaps(NamedTuple):
    """Gaps as columns, by producer id, epoch and place.

    Attributes:
        first_sequence, missing_count: of what is missing.
        next_offset: base offset of the batch behind the gap; -1 if it has sequence 0.
        before_offset: of a batch of the producer before the gap; -1: there is none.
    """

    producer_id: Ints
    producer_epoch: Ints
    first_sequence: Ints
    missing_count: Ints
    next_offset: Ints
    before_offset: Ints


def find_gaps(
    ranges: SequenceRanges, producers: NDArray[Any], *, is_from_start: bool = False
) -> Gaps:
    """Return the gaps of a piece, by its sequence ranges and its rows of producers.

    Settled epochs have none. If the piece `is_from_start` of a log, to which nothing was appended
    before, the first sequence of each producer should be 0.
    """
    if not len(ranges.group):
        return Gaps._make(np.empty(0, np.int64) for _ in Gaps._fields)
    is_first = np.ones(len(ranges.group), np.bool_)
    is_first[1:] = np.diff(ranges.group) != 0
    place = np.searchsorted(producers["producer_id"], ranges.producer_id)
    is_later = producers["first_data_epoch"][place] != ranges.producer_epoch
    gap_start = np.roll(ranges.end, 1)
    # Nothing is missing before the first batch of the first epoch: what was before it is unknown.
    gap_start[is_first] = np.where(
        is_later[ranges.group[is_first]] | is_from_start,
        np.minimum(ranges.start[is_first], 0),
        ranges.start[is_first],
    )
    missing_count = ranges.start - gap_start
    rows = np.flatnonzero(missing_count > 0)
    group = ranges.group[rows]
    return Gaps(
        producer_id=ranges.producer_id[group],
        producer_epoch=ranges.producer_epoch[group].astype(np.int64),
        first_sequence=gap_start[rows] % LAP,
        missing_count=missing_count[rows],
        next_offset=ranges.base_offset[rows],
        before_offset=np.where(is_first, -1, np.roll(ranges.base_offset, 1))[rows],
    )
