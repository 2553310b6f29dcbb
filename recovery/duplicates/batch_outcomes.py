"""What became of the transactional batches of a partition, looked up in log order.

A batch has the outcome of the next end marker of its producer (RC-5), which may lie anywhere behind
it. So all transactional batches and markers are sorted by producer, last ones first: then each
marker comes right before what it ends. What is not committed is sorted back into log order. Memory
is bounded by the sorters, however many transactions there are. Where a marker may be damaged or
absent, `recovery.transactions.unknown_ends` decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.duplicates.rows import ABORTED, COMMITTED, OPEN, UNKNOWN
from recovery.duplicates.scan import Trouble, read_parts
from recovery.transactions.events import read_marker_kinds
from recovery.transactions.unknown_ends import find_ends, log_files_of
from storage.formats.control_record import NO_MARKER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from recovery.duplicates.scan import Part
    from recovery.duplicates.spill import Rows, Sorter, SpillSpace
    from recovery.transactions.unknown_ends import LogFiles
    from storage.dirs.partition import Partition

    Codes = NDArray[np.int8]

SHARE = 1 / 16  # of the memory, for each of two sorters
UNDECIDED = -1
# What a marker makes of the batches before it, by its kind.
_OUTCOMES = np.array([UNDECIDED, COMMITTED, ABORTED, UNKNOWN], np.int8)

_EVENT_DTYPE = np.dtype(
    [("producer_id", np.int64), ("from_end", np.int64), ("outcome", np.int8)]
)  # outcome: what a marker makes of the batches before it, UNDECIDED of a batch
_BATCH_DTYPE = np.dtype([("base_offset", np.int64), ("outcome", np.int8)])


def outcome_sorter(
    partition: Partition, space: SpillSpace, on_bytes: Callable[[int], object] = int
) -> Sorter:
    """Read a partition's transactions; returns its batches that are not committed, by offset.

    The caller closes the result. Damage is not told: whoever reads the batches meets it again.
    """
    uncommitted = space.sorter(_BATCH_DTYPE, ("base_offset",), SHARE)
    try:
        with space.sorter(_EVENT_DTYPE, ("producer_id", "from_end"), SHARE) as events:
            trouble, has_gap, end_offset = Trouble(), False, -1
            for part in read_parts(partition, trouble, on_bytes):
                if part.table.row_count:
                    base, last = part.table.base_offset, part.table.last_offset
                    has_gap |= 0 <= end_offset < base[0] or bool((base[1:] > last[:-1] + 1).any())
                    end_offset = int(last[-1]) + 1
                if part.is_transactional.any() or not part.is_data.all():
                    events.add(_events_of(part))
            log = log_files_of(partition)
            if trouble.count or (has_gap and log.gaps_are_losses()):
                events.add(_events_of_ends(log))
            last_producer_id, outcome = -1, OPEN
            for rows in events.chunks():
                found, last_producer_id, outcome = _outcomes(rows, last_producer_id, outcome)
                uncommitted.add(found)
    except BaseException:
        uncommitted.close()
        raise
    return uncommitted


def _events_of(part: Part) -> Rows:
    table = part.table
    outcome = np.full(table.row_count, UNDECIDED, np.int8)
    is_event = part.is_transactional & part.is_data
    # An empty control batch is what compaction leaves of a marker: without effect (PROD-9).
    is_control = ~part.is_data & (table.producer_id >= 0) & (table.records_count > 0)
    controls = np.flatnonzero(is_control)
    if len(controls):
        of_control = type(table)._make(column[controls] for column in table)
        kinds = read_marker_kinds(part.segment, of_control, part.window)
        outcome[controls] = _OUTCOMES[kinds]
        is_event[controls] = kinds != NO_MARKER
    rows = np.empty(int(is_event.sum()), _EVENT_DTYPE)
    rows["producer_id"] = table.producer_id[is_event]
    rows["from_end"] = -table.base_offset[is_event]
    rows["outcome"] = outcome[is_event]
    return rows


def _events_of_ends(log: LogFiles) -> Rows:
    """Return the ends that no marker tells of."""
    ends = find_ends(log).ends
    rows = np.empty(len(ends.offset), _EVENT_DTYPE)
    rows["producer_id"] = ends.producer_id
    rows["from_end"] = -ends.offset
    rows["outcome"] = _OUTCOMES[ends.kind]
    return rows


def _outcomes(rows: Rows, last_producer_id: int, last_outcome: int) -> tuple[Rows, int, int]:
    """Give the batches that are not committed, and what goes on into the next chunk."""
    ids, codes = rows["producer_id"], rows["outcome"]
    starts = np.ones(len(rows), np.bool_)
    starts[1:] = ids[1:] != ids[:-1]
    starts[0] = int(ids[0]) != last_producer_id
    # Of each row the last one at or before it that decides: a marker, or a producer's first row.
    is_marker = codes != UNDECIDED
    decides = np.where(is_marker, codes, OPEN)
    source = np.maximum.accumulate(np.where(is_marker | starts, np.arange(len(rows)), -1))
    outcome = np.where(source >= 0, decides[source], last_outcome)
    is_found = ~is_marker & (outcome != COMMITTED)
    found = np.empty(int(is_found.sum()), _BATCH_DTYPE)
    found["base_offset"] = -rows["from_end"][is_found]
    found["outcome"] = outcome[is_found]
    return found, int(ids[-1]), int(outcome[-1])


class OutcomeReader:
    """Tells the outcomes of transactional batches; they must be asked for in log order."""

    def __init__(self, uncommitted: Sorter) -> None:
        self._chunks: Iterator[Rows] = uncommitted.chunks()
        self._rows: Rows = next(self._chunks, np.empty(0, _BATCH_DTYPE))

    def outcomes(self, base_offsets: NDArray[np.int64]) -> Codes:
        """Return a code per batch, for ascending offsets."""
        result = np.full(len(base_offsets), COMMITTED, np.int8)
        done = 0
        while done < len(base_offsets) and len(self._rows):
            known = self._rows["base_offset"]
            end = done + int(np.searchsorted(base_offsets[done:], known[-1], "right"))
            places = np.searchsorted(known, base_offsets[done:end])
            hit = np.flatnonzero(known[places] == base_offsets[done:end])
            result[done + hit] = self._rows["outcome"][places[hit]]
            done = end
            if done < len(base_offsets):
                self._rows = next(self._chunks, self._rows[:0])
        return result
