"""Transactions in a table of batches: where they begin and end, and what is open meanwhile (TXN).

`follow` finds begins and ends for all producers of a table at once; `OngoingTransactions` then
tells the last stable offset at each end.

These are a broker's, as it replays the log (Kafka's ProducerAppendInfo): they may have begun in a
snapshot, and data outside of a transaction that comes while one is open is illegal. What consumers
see of transactions knows neither: `storage.producers.transactions`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.formats.record_batch import TRANSACTIONAL_MASK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recovery.replay.producer_columns import GroupedRows, ProducerColumns
    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class Begins(NamedTuple):
    """Transactions that begin in a table; rows ascend."""

    row: Ints
    offset: Ints
    producer_id: Ints


class Ends(NamedTuple):
    """Transactions that end in a table; rows ascend."""

    row: Ints
    marker_offset: Ints
    producer_id: Ints
    first_offset: Ints


class OngoingTransactions:
    """Open transactions, by first offset.

    Attributes:
        unstarted: markers that end a transaction which another one has taken the first offset from,
            as marker offset and producer id: a broker cannot load such a log.
    """

    def __init__(self, owners: Mapping[int, int] | None = None) -> None:
        """`owners` gives the producer id of each first offset."""
        self.unstarted: list[tuple[int, int]] = []
        self._take(owners or {})

    def _take(self, owners: Mapping[int, int]) -> None:
        by_offset = sorted(owners.items())
        self.first_offset: Ints = np.array([first for first, _ in by_offset], np.int64)
        self.producer_id: Ints = np.array([owner for _, owner in by_offset], np.int64)
        # False only after a snapshot that names a producer twice.
        self._is_regular = len(set(owners.values())) == len(owners)

    @property
    def owners(self) -> dict[int, int]:
        """Producer ids by first offset, in its order."""
        return dict(zip(self.first_offset.tolist(), self.producer_id.tolist(), strict=True))

    @property
    def oldest_offset(self) -> int | None:
        """First offset of the oldest one."""
        return int(self.first_offset[0]) if len(self.first_offset) else None

    def advance(self, begins: Begins, ends: Ends) -> Ints:
        """Go through a table; returns the last stable offset to store with each end (TXN-6)."""
        firsts = np.concatenate((self.first_offset, begins.offset))
        owners = np.concatenate((self.producer_id, begins.producer_id))
        if not self._is_regular or not (firsts[1:] > firsts[:-1]).all() or not len(firsts):
            return self._advance_slowly(begins, ends)
        ended = np.minimum(np.searchsorted(firsts, ends.first_offset), len(firsts) - 1)
        if (firsts[ended] != ends.first_offset).any() or (owners[ended] != ends.producer_id).any():
            return self._advance_slowly(begins, ends)
        never = np.iinfo(np.int64).max
        end_row = np.full(len(firsts), never)
        end_row[ended] = ends.row
        begin_row = np.concatenate((np.full(len(self.first_offset), -1), begins.row))
        # They stand in the order in which they began: of those that end after a row, the first
        # is where the greatest end so far passes that row, if it has begun by then.
        first_open = np.searchsorted(np.maximum.accumulate(end_row), ends.row, "right")
        is_some = first_open < len(firsts)
        first_open[~is_some] = 0
        is_some &= begin_row[first_open] < ends.row
        still_open = end_row == never
        self.first_offset, self.producer_id = firsts[still_open], owners[still_open]
        return np.where(is_some, firsts[first_open], ends.marker_offset + 1)

    def _advance_slowly(self, begins: Begins, ends: Ends) -> Ints:
        """Do it one by one: for logs whose offsets go back, and for broken snapshots."""
        ongoing = _FirstOffsets(self.owners)
        stable_offsets = []
        for _, *event in sorted(_rows(begins) + _rows(ends)):
            if len(event) == len(Begins._fields) - 1:
                ongoing.begin(*event)
            else:
                stable_offsets.append(ongoing.end(*event))
        self._take(ongoing.owners)
        self.unstarted += ongoing.unstarted
        return np.array(stable_offsets, np.int64)


def _rows(columns: Begins | Ends) -> list[tuple[int, ...]]:
    return list(zip(*(each.tolist() for each in columns), strict=True))


class _FirstOffsets:
    """Open transactions in a heap, so that the oldest is quick to tell."""

    def __init__(self, owners: dict[int, int]) -> None:
        self.owners = owners
        self.unstarted: list[tuple[int, int]] = []
        self._heap = list(owners)  # every first offset, and some that are no more
        heapify(self._heap)

    def begin(self, first_offset: int, producer_id: int) -> None:
        if first_offset not in self.owners:
            heappush(self._heap, first_offset)
        self.owners[first_offset] = producer_id

    def end(self, marker_offset: int, producer_id: int, first_offset: int) -> int:
        stable_offset = self._first_of_others(producer_id)
        if self.owners.pop(first_offset, None) is None:
            self.unstarted.append((marker_offset, producer_id))
        return marker_offset + 1 if stable_offset is None else stable_offset

    def _first(self) -> int | None:
        heap = self._heap
        while heap and heap[0] not in self.owners:
            heappop(heap)
        return heap[0] if heap else None

    def _first_of_others(self, producer_id: int) -> int | None:
        first = self._first()
        if first is None or self.owners[first] != producer_id:
            return first
        heappop(self._heap)
        following = self._first()
        heappush(self._heap, first)
        if following is None or self.owners[following] != producer_id:
            return following
        return min((each for each, id_ in self.owners.items() if id_ != producer_id), default=None)


class TransactionEvents(NamedTuple):
    """What the rows of a table mean for transactions, by place."""

    begins: Flags
    ends: Flags
    is_illegal: Flags
    first_offset: Ints  # of the transaction that is open before the place
    is_open_after: Flags  # of each group
    first_offset_after: Ints


def follow(
    table: HeaderTable, groups: GroupedRows, columns: ProducerColumns
) -> TransactionEvents | None:
    """Find where transactions begin and end; None if the table has nothing to do with any."""
    slot = groups.slot
    was_open = (slot >= 0) & columns.is_open[slot]
    is_data = groups.marker < 0
    opens = is_data & (table.attributes[groups.row] & TRANSACTIONAL_MASK != 0)
    if not (was_open.any() or opens.any()):
        return None
    base_offset = table.base_offset[groups.row]
    group_start = groups.per_place(groups.start)
    last_marker, last_data = _last_before(~is_data), _last_before(opens)
    is_open = np.where(
        last_marker >= group_start,
        last_data > last_marker,
        (last_data >= group_start) | groups.per_place(was_open),
    )
    begins = opens & ~is_open
    last_begin = _last_before(begins)
    first_offset = np.where(
        last_begin >= group_start,
        base_offset[last_begin],
        groups.per_place(columns.txn_first_offset[slot]),
    )
    last = groups.end - 1
    return TransactionEvents(
        begins=begins,
        ends=~is_data & is_open,
        is_illegal=is_data & ~opens & is_open,
        first_offset=first_offset,
        is_open_after=opens[last],
        first_offset_after=np.where(begins[last], base_offset[last], first_offset[last]),
    )


def _last_before(flags: Flags) -> Ints:
    """For each place, the last place before it where a flag is set; -1 none."""
    last = np.empty(len(flags), np.int64)
    last[:1] = -1
    last[1:] = np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))[:-1]
    return last
