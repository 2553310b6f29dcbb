"""Producer state as columns: the data of `storage.producers.producer_state` for many producers.

A producer id has a slot, in the order in which ids become known. That is the order of the broker's
map (SNAP-8). One table of batches is applied by producer (`group_rows`), each column by a few numpy
calls over all producers of the table. The rules are PROD. Their definition is
`storage.producers.producer_state`, and a differential test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from storage.formats.control_record import NO_MARKER
from storage.formats.producer_snapshot import ProducerEntry
from storage.formats.record_batch import MAX_SEQUENCE, NO_SEQUENCE
from storage.kernels.protocol import HeaderTable
from storage.producers.java_hash_map import (
    MIN_TREE_BUCKETS,
    TREE_BUCKET_ENTRIES,
    HashMapCapacity,
    JavaHashMap,
    long_hash,
)
from storage.producers.producer_state import (
    CACHED_BATCHES_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    CachedBatch,
    Marker,
    Violation,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

# Column -> dtype, further dimensions, value of an unknown producer.
_COLUMNS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "producer_id": (np.int64, (), -1),
    "producer_epoch": (np.int16, (), NO_EPOCH),
    "coordinator_epoch": (np.int32, (), -1),
    "timestamp_ms": (np.int64, (), -1),
    "is_open": (np.bool_, (), 0),
    "txn_first_offset": (np.int64, (), NO_OFFSET),
    "batches": (np.int64, (CACHED_BATCHES_COUNT, len(CachedBatch._fields)), 0),
    "batches_count": (np.int64, (), 0),
}
_FIRST_CAPACITY = 64


class MarkerColumns(NamedTuple):
    """End markers of a table's control batches. Rows ascend."""

    row: Ints
    is_commit: Flags
    coordinator_epoch: NDArray[np.int32]
    timestamp_ms: Ints

    @classmethod
    def of(cls, markers: Iterable[tuple[int, Marker]]) -> MarkerColumns:
        """Build columns from pairs of row and marker."""
        rows = [(row, *marker) for row, marker in markers]
        row, is_commit, epoch, timestamp_ms = zip(*rows, strict=True) if rows else ((),) * 4
        return cls(
            row=np.array(row, np.int64),
            is_commit=np.array(is_commit, np.bool_),
            coordinator_epoch=np.array(epoch, np.int32),
            timestamp_ms=np.array(timestamp_ms, np.int64),
        )

    @classmethod
    def joined(cls, parts: Sequence[MarkerColumns]) -> MarkerColumns:
        """Join the parts in order."""
        return cls._make(map(np.concatenate, zip(*parts, strict=True))) if parts else cls.of(())

    def between(self, start: int, end: int) -> MarkerColumns:
        """Return the markers of rows [start, end), with rows counted from `start`."""
        first, last = np.searchsorted(self.row, (start, end)).tolist()
        part = MarkerColumns._make(column[first:last] for column in self)
        return part._replace(row=part.row - start)


# A table costs some hundred numpy calls, even if it is short.
MIN_TABLE_ROWS = 16_384


class ShortTables:
    """A join of consecutive tables, with their markers, until there are enough rows."""

    def __init__(self) -> None:
        self.row_count = 0
        self._tables: list[HeaderTable] = []
        self._markers: list[MarkerColumns] = []

    def add(self, table: HeaderTable, markers: MarkerColumns) -> bool:
        """Add a table. Return True if there are enough rows."""
        self._tables.append(table)
        self._markers.append(markers._replace(row=markers.row + self.row_count))
        self.row_count += table.row_count
        return self.row_count >= MIN_TABLE_ROWS

    def take(self) -> tuple[HeaderTable, MarkerColumns] | None:
        """Return the added tables as one table. None without rows."""
        if not self.row_count:
            return None
        tables, markers = self._tables, MarkerColumns.joined(self._markers)
        self._tables, self._markers, self.row_count = [], [], 0
        if len(tables) == 1:
            return tables[0], markers
        return HeaderTable._make(map(np.concatenate, zip(*tables, strict=True))), markers


class GroupedRows(NamedTuple):
    """Rows of a table by producer id, for each producer in the order of the log.

    A place is an index of `row`. Group k has places [start[k], end[k]).
    """

    row: Ints
    start: Ints
    end: Ints
    slot: Ints  # of each group
    marker: Ints  # of each place: its index in the MarkerColumns, -1 for data
    has_markers: bool

    def per_place(self, of_groups: NDArray[Any]) -> NDArray[Any]:
        """Repeat a value of each group for its places."""
        return np.repeat(of_groups, self.end - self.start)


def group_rows(producer_id: Ints) -> Ints:
    """Return a stable argsort by producer id."""
    count = len(producer_id)
    lowest = int(producer_id.min())
    if int(producer_id.max()) - lowest < 1 << 16:  # numpy counts 16-bit keys instead of comparing
        return np.argsort((producer_id - lowest).astype(np.uint16), kind="stable")
    shift = count.bit_length()
    if int(producer_id.max()) - lowest >= 1 << (63 - shift):
        return np.argsort(producer_id, kind="stable")
    # Id and row in one integer: sorting plain integers is 10 times as fast as a stable argsort.
    keys = ((producer_id - lowest) << shift) | np.arange(count)
    keys.sort()
    keys &= (1 << shift) - 1
    return keys


def group_starts(values: NDArray[Any]) -> Ints:
    """Return places where a run of equal values begins."""
    is_first = np.ones(len(values), np.bool_)
    is_first[1:] = values[1:] != values[:-1]
    return np.flatnonzero(is_first)


def spans_of(producer_id: Ints, marker: NDArray[np.int8]) -> tuple[Ints, Ints, NDArray[np.int8]]:
    """Split events into spans: the events of a producer up to and with its next marker.

    Args:
        producer_id: of transactional data and end markers, grouped, each group in log order.
        marker: NO_MARKER for data.

    Returns:
        First and last place of each span, and the kind of its marker. NO_MARKER: it is open.
    """
    is_span = np.ones(len(producer_id), np.bool_)
    is_span[1:] = (np.diff(producer_id) != 0) | (marker[:-1] != NO_MARKER)
    starts = np.flatnonzero(is_span)
    ends = np.append(starts[1:], len(producer_id)) - 1
    return starts, ends, marker[ends]


def spread_hashes(producer_ids: Ints) -> NDArray[np.uint32]:
    """Return the hashes that a HashMap chooses the buckets of the ids by."""
    bits = producer_ids.view(np.uint64)
    hashes = (bits ^ (bits >> np.uint64(32))).astype(np.uint32)
    return hashes ^ (hashes >> np.uint32(16))


def may_have_trees(spread: NDArray[np.uint32], buckets_count: int) -> bool:
    """Return whether a bucket may have become a tree, at any size of the growing table."""
    size = MIN_TREE_BUCKETS
    while size <= buckets_count:
        # The table holds this many at most: with the last of them it doubles.
        present = spread[: size * 3 // 4 + 1]
        if np.bincount(present & np.uint32(size - 1)).max(initial=0) > TREE_BUCKET_ENTRIES:
            return True
        size *= 2
    return False


class ProducerColumns:
    """All producers of a partition. Columns are longer than `count`, and slots are below it."""

    producer_id: Ints
    producer_epoch: NDArray[np.int16]
    coordinator_epoch: NDArray[np.int32]
    timestamp_ms: Ints
    is_open: Flags  # a transaction is open, since txn_first_offset
    txn_first_offset: Ints
    batches: Ints  # [slot, age, field of CachedBatch]; age 0 is the newest
    batches_count: Ints

    def __init__(self) -> None:
        self.count = 0
        self._capacity = HashMapCapacity()
        self._table: JavaHashMap[int] | None = None  # kept if a bucket may have become a tree
        self._sorted_ids: Ints = np.empty(0, np.int64)
        self._sorted_slots: Ints = np.empty(0, np.int64)
        for name, (dtype, shape, empty) in _COLUMNS.items():
            setattr(self, name, np.full((_FIRST_CAPACITY, *shape), empty, dtype))

    def find(self, producer_ids: Ints) -> Ints:
        """Return the slot of each id, -1 for unknown ids."""
        if not self.count:
            return np.full(len(producer_ids), -1)
        place = np.searchsorted(self._sorted_ids, producer_ids)
        place[place == self.count] = 0
        return np.where(
            self._sorted_ids[place] == producer_ids, self._sorted_slots[place], np.int64(-1)
        )

    def add(self, producer_ids: Ints) -> Ints:
        """Assign slots to new ids, in this order."""
        first, self.count = self.count, self.count + len(producer_ids)
        self._count_buckets(producer_ids, first)
        if self.count > len(self.producer_id):
            for name, (dtype, shape, empty) in _COLUMNS.items():
                grown = np.full((self.count * 2, *shape), empty, dtype)
                grown[:first] = getattr(self, name)[:first]
                setattr(self, name, grown)
        self.producer_id[first : self.count] = producer_ids
        order = np.argsort(producer_ids)
        place = np.searchsorted(self._sorted_ids, producer_ids[order])
        self._sorted_ids = np.insert(self._sorted_ids, place, producer_ids[order])
        self._sorted_slots = np.insert(self._sorted_slots, place, first + order)
        return np.arange(first, self.count)

    def _count_buckets(self, producer_ids: Ints, known_count: int) -> None:
        """Grow the size of the broker's table by these ids."""
        capacity = self._capacity
        present = self.producer_id[:known_count].tolist() if known_count < MIN_TREE_BUCKETS else []
        for producer_id in producer_ids.tolist():
            if capacity.buckets_count >= MIN_TREE_BUCKETS:
                break  # from here on only the number of ids counts
            capacity.insert(producer_id, present, long_hash)
            present.append(producer_id)
        while self.count > capacity.buckets_count * 3 // 4:
            capacity.buckets_count *= 2

    def take_table(self, table: JavaHashMap[int]) -> None:
        """Take the order of a map with these same ids, some of which may have been removed."""
        if table.has_lost:
            self._table = table.copy()

    def table(self) -> JavaHashMap[int]:
        """Return the broker's map of these ids."""
        if self._table is None:
            self._table = JavaHashMap(long_hash)
        for producer_id in self.producer_id[len(self._table) : self.count].tolist():
            self._table.put(producer_id)
        return self._table

    def slots_in_table_order(self) -> Ints:
        """Return all slots in the order of the broker's map (SNAP-8)."""
        spread = spread_hashes(self.producer_id[: self.count])
        buckets_count = self._capacity.buckets_count
        if self._table is not None or may_have_trees(spread, buckets_count):
            return self.find(np.array(list(self.table()), np.int64))
        # Without trees, the order within a bucket is the order of insertion at any table size.
        return np.argsort(spread & np.uint32(buckets_count - 1), kind="stable")

    def entries(self) -> list[ProducerEntry]:
        """Return the entries of a snapshot, in its order."""
        slots = self.slots_in_table_order()
        last = self.batches[slots, 0]
        last[self.batches_count[slots] == 0] = CachedBatch(
            last_sequence=NO_SEQUENCE, last_offset=NO_OFFSET, offset_delta=0, timestamp_ms=-1
        )
        first_offset = np.where(self.is_open[slots], self.txn_first_offset[slots], NO_OFFSET)
        columns = (
            self.producer_id[slots],
            self.producer_epoch[slots],
            last[:, 0],
            last[:, 1],
            last[:, 2],
            self.timestamp_ms[slots],
            self.coordinator_epoch[slots],
            first_offset,
        )
        return list(
            map(ProducerEntry._make, zip(*(each.tolist() for each in columns), strict=True))
        )

    def fill(self, entries: NDArray[np.int64]) -> None:
        """Load rows with the fields of ProducerEntry. Ids are new and unique."""
        slots = self.add(entries[:, 0])
        self.producer_epoch[slots] = entries[:, 1]
        self.timestamp_ms[slots] = entries[:, 5]
        self.coordinator_epoch[slots] = entries[:, 6]
        self.is_open[slots] = entries[:, 7] >= 0
        self.txn_first_offset[slots] = entries[:, 7]
        self.batches[slots, 0] = entries[:, 2:6]
        self.batches_count[slots] = entries[:, 3] >= 0

    # -- batches of one table

    def take_batches(
        self, table: HeaderTable, markers: MarkerColumns, groups: GroupedRows
    ) -> list[tuple[int, int, Violation]]:
        """Apply the rows except for transactions. Return violations with row and rank."""
        if not len(groups.row):
            return []
        slot, last_row = groups.slot, groups.row[groups.end - 1]
        fresh_from, violations = self._take_epochs(table, groups)
        timestamp_ms = table.max_timestamp_ms[last_row]
        if groups.has_markers:
            last_marker = groups.marker[groups.end - 1]
            timestamp_ms = np.where(
                last_marker >= 0, markers.timestamp_ms[last_marker], timestamp_ms
            )
            violations += self._take_coordinator_epochs(table, markers, groups)
        self.timestamp_ms[slot] = timestamp_ms
        self._push_batches(table, groups, fresh_from)
        return violations

    def _take_epochs(
        self, table: HeaderTable, groups: GroupedRows
    ) -> tuple[Ints, list[tuple[int, int, Violation]]]:
        """Apply PROD-3 and PROD-5. Return the first cached place of each group."""
        epoch = table.producer_epoch[groups.row]
        before = np.empty_like(epoch)
        before[1:] = epoch[:-1]
        before[groups.start] = self.producer_epoch[groups.slot]
        self.producer_epoch[groups.slot] = epoch[groups.end - 1]
        is_other = epoch != before
        if not is_other.any():
            return groups.start, []
        places = np.where(is_other, np.arange(len(epoch)), -1)
        last_change = np.maximum.reduceat(places, groups.start)
        self.batches_count[groups.slot[last_change >= 0]] = 0
        lower = np.flatnonzero(epoch < before)
        found = _violations("PRD-3", table, groups.row[lower], before[lower], epoch[lower])
        return np.maximum(last_change, groups.start), found

    def _take_coordinator_epochs(
        self, table: HeaderTable, markers: MarkerColumns, groups: GroupedRows
    ) -> list[tuple[int, int, Violation]]:
        """Apply PROD-7: the coordinator's epoch comes from the last marker."""
        places = np.flatnonzero(groups.marker >= 0)
        slot = groups.per_place(groups.slot)[places]
        epoch = markers.coordinator_epoch[groups.marker[places]]
        starts = group_starts(slot)
        before = np.empty_like(epoch)
        before[1:] = epoch[:-1]
        before[starts] = self.coordinator_epoch[slot[starts]]
        ends = np.append(starts[1:], len(slot)) - 1
        self.coordinator_epoch[slot[ends]] = epoch[ends]
        lower = np.flatnonzero(epoch < before)
        rows = groups.row[places[lower]]
        return _violations("PRD-5", table, rows, before[lower], epoch[lower])

    def _push_batches(self, table: HeaderTable, groups: GroupedRows, fresh_from: Ints) -> None:
        """Keep the last five data batches. Older batches of the same epoch move back."""
        slot = groups.slot
        row, low, high = groups.row, fresh_from, groups.end
        if groups.has_markers:
            data = np.flatnonzero(groups.marker < 0)
            row = row[data]
            low, high = np.searchsorted(data, low), np.searchsorted(data, high)
        pushed = np.minimum(high - low, CACHED_BATCHES_COUNT)
        for count in range(1, CACHED_BATCHES_COUNT):
            moved = slot[(pushed == count) & (self.batches_count[slot] > 0)]
            if len(moved):
                self.batches[moved, count:] = self.batches[moved, :-count]
        group, age = np.nonzero(np.arange(CACHED_BATCHES_COUNT) < pushed[:, None])
        rows = row[high[group] - 1 - age]
        last_offset = table.last_offset[rows]
        delta = last_offset - table.base_offset[rows]
        last_sequence = _last_sequence(table.base_sequence[rows].astype(np.int64), delta)
        fields = (last_sequence, last_offset, delta, table.max_timestamp_ms[rows])
        self.batches[slot[group], age] = np.stack(fields, axis=1)
        self.batches_count[slot] = np.minimum(
            self.batches_count[slot] + pushed, CACHED_BATCHES_COUNT
        )


def _last_sequence(base: Ints, delta: Ints) -> Ints:
    """Return `BatchHeader.last_sequence` of each row."""
    last = base + delta
    last[last > MAX_SEQUENCE] -= MAX_SEQUENCE + 1
    last[base == NO_SEQUENCE] = NO_SEQUENCE
    return last


def _violations(
    check_id: str, table: HeaderTable, rows: Ints, expected: NDArray[Any], found: NDArray[Any]
) -> list[tuple[int, int, Violation]]:
    """Return each violation with its row, and its rank among the violations of the row."""
    offsets, ids = table.base_offset[rows].tolist(), table.producer_id[rows].tolist()
    rank = int(check_id == "PRD-5")
    return [
        (
            row,
            rank,
            Violation(
                check_id=check_id,
                offset=offset,
                producer_id=producer_id,
                expected=before,
                found=now,
            ),
        )
        for row, offset, producer_id, before, now in zip(
            rows.tolist(), offsets, ids, expected.tolist(), found.tolist(), strict=True
        )
    ]
