"""One pass over a partition's batches: its producer state and its transactions, in bulk.

`BulkState` is the twin of `storage.producers.producer_state.ProducerStateManager` over tables of
headers. It has the same entries in the same order, the same transactions with the same last stable
offsets, the same violations and refusals. The split of the log into tables does not matter. There
is no Python step per batch. Begins and ends of transactions are followed one by one.
`replay_segment` feeds it from a `.log`, reading like recovery (REC-7).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from recovery.replay.end_markers import (
    has_marker,
    marker_rows,
    read_marker,
    read_markers,
)
from recovery.replay.producer_columns import (
    MIN_TABLE_ROWS,
    GroupedRows,
    MarkerColumns,
    ProducerColumns,
    ShortTables,
    group_rows,
    group_starts,
)
from storage.errors import FormatError
from storage.formats.control_record import REFUSED_CHECK_ID
from storage.formats.producer_snapshot import ProducerEntry
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from storage.kernels.numpy_kernel import BulkScan, BulkWindow, rows_of, table_of
from storage.kernels.protocol import MAX_BLOCK_ROWS, HeaderTable, Verdict, VerdictKind
from storage.limits import MAX_RELATIVE_OFFSET
from storage.producers.producer_state import (
    DEFAULT_EXPIRATION_MS,
    CachedBatch,
    CompletedTransaction,
    Marker,
    ProducerState,
    ProducerStateManager,
    Violation,
    invalid_txn_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    # An ended transaction, and the last stable offset that `.txnindex` would store (TXN-6).
    Completed = tuple[CompletedTransaction, int]


# -- transactions in a table of batches: where they begin and end, and which are open (TXN).
#
# `follow` finds begins and ends for all producers of a table at once. `OngoingTransactions` then
# returns the last stable offset at each end.
#
# These are a broker's transactions as it replays the log (Kafka's ProducerAppendInfo). They may
# have begun in a snapshot, and non-transactional data during an open transaction is illegal.
# Consumers' transactions have neither property: `storage.producers.pairs`.


class Begins(NamedTuple):
    """Transactions that begin in a table. Rows ascend."""

    row: Ints
    offset: Ints
    producer_id: Ints


class Ends(NamedTuple):
    """Transactions that end in a table. Rows ascend."""

    row: Ints
    marker_offset: Ints
    producer_id: Ints
    first_offset: Ints


class OngoingTransactions:
    """Open transactions, by first offset.

    Attributes:
        unstarted: markers of transactions whose first offset another transaction has taken, as
            marker offset and producer id. A broker cannot load such a log.
    """

    def __init__(self, owners: Mapping[int, int] | None = None) -> None:
        """Begin with `owners`, the producer id of each first offset."""
        self.unstarted: list[tuple[int, int]] = []
        self._take(owners or {})

    def _take(self, owners: Mapping[int, int]) -> None:
        by_offset = sorted(owners.items())
        self.first_offset: Ints = np.array([first for first, _ in by_offset], np.int64)
        self.producer_id: Ints = np.array([owner for _, owner in by_offset], np.int64)
        # False only after a snapshot with a repeated producer.
        self._is_regular = len(set(owners.values())) == len(owners)

    @property
    def owners(self) -> dict[int, int]:
        """Return producer ids by first offset, in its order."""
        return dict(zip(self.first_offset.tolist(), self.producer_id.tolist(), strict=True))

    @property
    def oldest_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return int(self.first_offset[0]) if len(self.first_offset) else None

    def advance(self, begins: Begins, ends: Ends) -> Ints:
        """Take a table's begins and ends. Return the last stable offset at each end (TXN-6)."""
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
        # Transactions are in the order of their begins. Of the transactions that end after a row,
        # the first is where the greatest end passes the row, if it has begun by then.
        first_open = np.searchsorted(np.maximum.accumulate(end_row), ends.row, "right")
        is_some = first_open < len(firsts)
        first_open[~is_some] = 0
        is_some &= begin_row[first_open] < ends.row
        still_open = end_row == never
        self.first_offset, self.producer_id = firsts[still_open], owners[still_open]
        return np.where(is_some, firsts[first_open], ends.marker_offset + 1)

    def _advance_slowly(self, begins: Begins, ends: Ends) -> Ints:
        """Advance one by one, for logs with decreasing offsets and for broken snapshots."""
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
    """Open transactions in a heap, for a fast access to the oldest."""

    def __init__(self, owners: dict[int, int]) -> None:
        self.owners = owners
        self.unstarted: list[tuple[int, int]] = []
        self._heap = list(owners)  # every first offset, including some of ended transactions
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
    """The begins and ends of transactions in the rows of a table, by place."""

    begins: Flags
    ends: Flags
    is_illegal: Flags
    first_offset: Ints  # of the transaction that is open before the place
    is_open_after: Flags  # of each group
    first_offset_after: Ints


def follow(
    table: HeaderTable, groups: GroupedRows, columns: ProducerColumns
) -> TransactionEvents | None:
    """Find where transactions begin and end. None if the table has no part of any."""
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
    """Return the last place before each place where a flag is set. -1 for none."""
    last = np.empty(len(flags), np.int64)
    last[:1] = -1
    last[1:] = np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))[:-1]
    return last


# -- the walk of `replay_segment`: the batches of a scan up to the end of recovery, in tables.
#
# It ends before the first batch with a wrong checksum (BAT-1), with offsets that do not fit the
# base offset (SEG-2, SEG-3), or at the end offset.
#
# It ends after the first control batch whose record is no marker (see `end_markers`). Recovery
# counts a batch as valid before it reads that record, so the batch stays, and producer state
# ignores it. Recovery ignores all other errors of a batch (REC-8). The scan itself ends at a broken
# frame.


class SegmentWalk:
    """A collector of batches that passes them on in tables, with their markers.

    Attributes:
        is_over: takes no more batches.
        stop: the reason, unless the end offset was reached.
        refusal: why a broker cannot load this log.
        batches_count, last_offset, max_timestamp_ms, valid_bytes: of the batches taken.
    """

    def __init__(
        self,
        segment: Segment,
        hand_on: Callable[[HeaderTable, MarkerColumns, slice], None],
        *,
        start_offset: int | None,
        end_offset: int | None,
    ) -> None:
        """Pass a table, its markers, and its rows with an effect on producer state to `hand_on`."""
        self.is_over = False
        self.stop: Verdict | None = None
        self.refusal: FormatError | None = None
        self.batches_count = 0
        self.last_offset = -1
        self.max_timestamp_ms = -1
        self.valid_bytes = 0
        self._segment = segment
        self._hand_on = hand_on
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._short = ShortTables()
        self._skip_count = 0  # first collected rows, below the start offset
        self._ignored_count = 0  # the last collected row, if it is no marker
        self._singles: list[ScannedBatch] = []
        self._single_markers: list[tuple[int, Marker]] = []

    def over(self, scan: BulkScan) -> Iterator[None]:
        """Take the parts of a scan that does not resume. Yield after each, until the end."""
        for part in scan.parts():
            if isinstance(part, BulkWindow):
                self._take_window(part)
            else:
                self._take_batch(part)
            yield
            if self.is_over:
                break
        self._flush()
        yield

    def _take_window(self, window: BulkWindow) -> None:
        self._join_singles()
        table = window.table
        if self._end_offset is not None:
            reached = np.flatnonzero(table.last_offset >= self._end_offset)
            if len(reached):
                self.is_over = True
                table = rows_of(table, 0, int(reached[0]))
        first = self._first_wanted(table)
        rows = marker_rows(table)
        markers, failed = read_markers(self._segment, window, table, rows[rows >= first])
        if failed is not None:
            row, error = failed
            pos = int(table.pos[row])
            self._fail(error, pos, pos + int(table.batch_bytes[row]))
            table = rows_of(table, 0, row + 1)
        self._keep(table, markers)

    def _take_batch(self, batch: ScannedBatch) -> None:
        """Take a damaged batch, or a batch of an old format, unless it ends the walk."""
        header, pos = batch.header, batch.pos
        self.stop = self._why_stop(batch)
        if self.stop is not None or (
            self._end_offset is not None and header.last_offset >= self._end_offset
        ):
            self.is_over = True
            return
        if self._start_offset is not None and header.last_offset < self._start_offset:
            self._skip_count += 1
        else:
            self._start_offset = None
            if has_marker(header):
                try:
                    marker = read_marker(self._segment, batch)
                    self._single_markers.append((len(self._singles), marker))
                except FormatError as error:
                    self._fail(error, pos, pos + header.batch_bytes)
        self._singles.append(batch)
        if len(self._singles) >= MIN_TABLE_ROWS:
            self._join_singles()

    def _flush(self) -> None:
        """Pass on the collected batches."""
        self._join_singles()
        found = self._short.take()
        if found is None:
            return
        whole, markers = found
        skip_count, end_row = self._skip_count, whole.row_count - self._ignored_count
        self._skip_count = 0
        for start in range(0, whole.row_count, MAX_BLOCK_ROWS):
            table = rows_of(whole, start, start + MAX_BLOCK_ROWS)
            part = markers.between(start, start + MAX_BLOCK_ROWS)
            self._hand_on(table, part, slice(max(skip_count - start, 0), max(end_row - start, 0)))

    def _first_wanted(self, table: HeaderTable) -> int:
        """Return the first row that reaches the start offset."""
        if self._start_offset is None:
            return 0
        reached = np.flatnonzero(table.last_offset >= self._start_offset)
        if not len(reached):
            self._skip_count += table.row_count
            return table.row_count
        self._start_offset = None
        self._skip_count += int(reached[0])
        return int(reached[0])

    def _why_stop(self, batch: ScannedBatch) -> Verdict | None:
        header, base_offset = batch.header, self._segment.known_base_offset
        end_pos = batch.pos + header.batch_bytes
        if batch.crc_ok is False:
            reason = f"checksum {header.crc} does not match"
            return Verdict(
                kind=VerdictKind.CORRUPT,
                start_pos=batch.pos,
                end_pos=end_pos,
                check_id="BAT-1",
                reason=reason,
            )
        if base_offset is None:
            return None
        relative_offset = header.last_offset - base_offset
        if 0 <= relative_offset <= MAX_RELATIVE_OFFSET:
            return None
        check_id = "SEG-2" if relative_offset < 0 else "SEG-3"
        reason = f"last offset {header.last_offset} does not fit base offset {base_offset}"
        return Verdict(
            kind=VerdictKind.CORRUPT,
            start_pos=batch.pos,
            end_pos=end_pos,
            check_id=check_id,
            reason=reason,
        )

    def _fail(self, error: FormatError, pos: int, end_pos: int) -> None:
        self.is_over = True
        self._ignored_count = 1
        if error.check_id == REFUSED_CHECK_ID:
            self.refusal = error
        self.stop = Verdict(
            kind=VerdictKind.CORRUPT,
            start_pos=pos,
            end_pos=end_pos,
            check_id=error.check_id,
            reason=error.message,
        )

    def _join_singles(self) -> None:
        if self._singles:
            table, markers = table_of(self._singles), MarkerColumns.of(self._single_markers)
            self._singles, self._single_markers = [], []
            self._keep(table, markers)

    def _keep(self, table: HeaderTable, markers: MarkerColumns) -> None:
        if not table.row_count:
            return
        is_enough = self._short.add(table, markers)
        self.batches_count += table.row_count
        self.last_offset = int(table.last_offset[-1])
        self.max_timestamp_ms = max(self.max_timestamp_ms, int(table.max_timestamp_ms.max()))
        self.valid_bytes = table.end_pos
        if is_enough:
            self._flush()


# -- bulk state


class EndedTransactions(NamedTuple):
    """Transactions that markers of one table ended, as columns in log order."""

    producer_id: Ints
    first_offset: Ints
    last_offset: Ints  # of the marker
    is_aborted: Flags
    last_stable_offset: Ints  # for `.txnindex` (TXN-6)

    @property
    def aborted(self) -> EndedTransactions:
        """Return the aborted transactions."""
        return EndedTransactions._make(column[self.is_aborted] for column in self)

    def values(self) -> list[Completed]:
        """Return each as a value, with its last stable offset."""
        *columns, stable_offsets = (column.tolist() for column in self)
        ended = map(CompletedTransaction._make, zip(*columns, strict=True))
        return list(zip(ended, stable_offsets, strict=True))


_NO_OFFSETS = np.empty(0, np.int64)
_NOTHING_ENDED = EndedTransactions(
    producer_id=_NO_OFFSETS,
    first_offset=_NO_OFFSETS,
    last_offset=_NO_OFFSETS,
    is_aborted=np.empty(0, np.bool_),
    last_stable_offset=_NO_OFFSETS,
)


class BulkState:
    """The producers of one partition up to `map_end_offset`, and its open transactions."""

    def __init__(self, map_end_offset: int = 0) -> None:
        self.map_end_offset = map_end_offset
        self.violations: list[Violation] = []
        self.columns = ProducerColumns()
        self.ongoing = OngoingTransactions()

    @property
    def producers_count(self) -> int:
        """The number of known producers."""
        return self.columns.count

    # -- snapshots, and conversion from and to ProducerStateManager

    def load(
        self,
        entries: Iterable[ProducerEntry],
        snapshot_offset: int,
        *,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """Load a snapshot into an empty state, without expired producers (SNAP-9)."""
        entries = list(entries)
        rows = np.array(entries, np.int64).reshape(-1, len(ProducerEntry._fields))
        is_open = rows[:, 7] >= 0
        # Exact: the clock is no offset, and both are far from 2**63.
        rows = rows[is_open | (rows[:, 5] > now_ms - expiration_ms)]
        if self.columns.count or len(np.unique(rows[:, 0])) < len(rows):
            manager = self.to_manager()
            manager.load(entries, snapshot_offset, now_ms=now_ms, expiration_ms=expiration_ms)
            self._take_manager(manager)
            return
        self.columns.fill(rows)
        opened = rows[rows[:, 7] >= 0]
        self.ongoing = OngoingTransactions(
            dict(zip(opened[:, 7].tolist(), opened[:, 0].tolist(), strict=True))
        )
        self.map_end_offset = snapshot_offset

    def entries(self) -> list[ProducerEntry]:
        """Return the entries of a snapshot at `map_end_offset`, in its order (SNAP-8)."""
        return self.columns.entries()

    def data_time_ms(self, producer_id: int) -> int | None:
        """Return the largest time of a producer's newest cached data batch, or None."""
        columns = self.columns
        slot = int(columns.find(np.array([producer_id], np.int64))[0])
        if slot < 0 or not columns.batches_count[slot]:
            return None
        return int(columns.batches[slot, 0, CachedBatch._fields.index("timestamp_ms")])

    @classmethod
    def from_manager(cls, manager: ProducerStateManager) -> Self:
        """Copy the state of a ProducerStateManager."""
        state = cls()
        state._take_manager(manager)
        return state

    def _take_manager(self, manager: ProducerStateManager) -> None:
        columns = ProducerColumns()
        columns.fill(
            np.array([each.to_entry() for each in manager.producers.values()], np.int64).reshape(
                -1, len(ProducerEntry._fields)
            )
        )
        for slot, producer in enumerate(manager.producers.values()):
            columns.batches_count[slot] = len(producer.batches)
            for age, batch in enumerate(reversed(producer.batches)):
                columns.batches[slot, age] = batch
        columns.take_table(manager.table)
        self.columns = columns
        self.ongoing = OngoingTransactions(manager.ongoing)
        self.violations = list(manager.violations)
        self.map_end_offset = manager.map_end_offset

    def to_manager(self) -> ProducerStateManager:
        """Return the same state as a ProducerStateManager."""
        manager = ProducerStateManager(self.map_end_offset)
        columns = self.columns
        for slot in range(columns.count):
            producer = ProducerState(int(columns.producer_id[slot]))
            producer.producer_epoch = int(columns.producer_epoch[slot])
            producer.coordinator_epoch = int(columns.coordinator_epoch[slot])
            producer.timestamp_ms = int(columns.timestamp_ms[slot])
            if columns.is_open[slot]:
                producer.current_txn_first_offset = int(columns.txn_first_offset[slot])
            kept = columns.batches[slot, : columns.batches_count[slot]].tolist()
            producer.batches.extend(CachedBatch._make(each) for each in reversed(kept))
            manager.producers[producer.producer_id] = producer
        manager.table = columns.table().copy()
        manager.ongoing.update(self.ongoing.owners)
        manager.violations.extend(self.violations)
        return manager

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return self.ongoing.oldest_offset

    # -- batches

    def apply_table(
        self, table: HeaderTable, markers: Sequence[tuple[int, Marker]] | MarkerColumns = ()
    ) -> list[Completed]:
        """Apply the next batches. Return the transactions that they ended, in log order."""
        if not isinstance(markers, MarkerColumns):
            markers = MarkerColumns.of(markers)
        return self.apply(table, markers).values()

    def apply(self, table: HeaderTable, markers: MarkerColumns) -> EndedTransactions:
        """Apply the next batches, without creating a value per transaction.

        Args:
            table: rows of healthy batches in log order. Some may be left out.
            markers: of its non-empty control batches, with their rows, ascending.

        Raises:
            AppendError: INVALID_TXN_STATE. All rows before that batch have been applied.
        """
        is_v2 = table.magic >= MAGIC_V2
        rows = np.flatnonzero(is_v2 & (table.producer_id >= 0))
        ended = _NOTHING_ENDED
        if len(rows):
            ended = self._apply_rows(table, rows, markers)
        if is_v2.any():
            last_row = table.row_count - 1 - int(is_v2[::-1].argmax())
            self.map_end_offset = int(table.last_offset[last_row]) + 1
        return ended

    def _apply_rows(
        self, table: HeaderTable, rows: Ints, markers: MarkerColumns
    ) -> EndedTransactions:
        rows = rows[group_rows(table.producer_id[rows])]
        producer_id = table.producer_id[rows]
        start = group_starts(producer_id)
        ids, first_row = producer_id[start], rows[start]
        found = self.columns.find(ids)
        groups = _group(table, rows, start, found, markers)
        transactions = follow(table, groups, self.columns)
        if transactions is not None and transactions.is_illegal.any():
            self._refuse(table, markers, int(groups.row[transactions.is_illegal].min()))
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            order = unknown[np.argsort(first_row[unknown])]
            found[order] = self.columns.add(ids[order])
            slot = found[np.searchsorted(ids, table.producer_id[groups.row[groups.start]])]
            groups = groups._replace(slot=slot)
        violations = self.columns.take_batches(table, markers, groups)
        if violations:
            self.violations.extend(each for _, _, each in sorted(violations))
        if transactions is None:
            return _NOTHING_ENDED
        self.columns.is_open[groups.slot] = transactions.is_open_after
        self.columns.txn_first_offset[groups.slot] = transactions.first_offset_after
        return self._complete(table, markers, groups, transactions)

    def _refuse(self, table: HeaderTable, markers: MarkerColumns, row: int) -> None:
        """Apply the rows before a batch that a broker cannot load, and raise its error (PROD-6)."""
        self.apply(rows_of(table, 0, row), markers.between(0, row))
        producer_id, offset = int(table.producer_id[row]), int(table.base_offset[row])
        slot = int(self.columns.find(np.array([producer_id]))[0])
        known, epoch = int(self.columns.producer_epoch[slot]), int(table.producer_epoch[row])
        if epoch < known:
            self.violations.append(
                Violation(
                    check_id="PRD-3",
                    offset=offset,
                    producer_id=producer_id,
                    expected=known,
                    found=epoch,
                )
            )
        first_offset = int(self.columns.txn_first_offset[slot])
        raise invalid_txn_state(producer_id, offset, first_offset)

    def _complete(
        self,
        table: HeaderTable,
        markers: MarkerColumns,
        groups: GroupedRows,
        transactions: TransactionEvents,
    ) -> EndedTransactions:
        """Update the open transactions."""
        place = np.flatnonzero(transactions.begins)
        row = groups.row[place]
        row = row[np.argsort(row)]
        begins = Begins(row, table.base_offset[row], table.producer_id[row])
        place = np.flatnonzero(transactions.ends)
        row = groups.row[place]
        order = np.argsort(row)
        row, place = row[order], place[order]
        ends = Ends(
            row=row,
            marker_offset=table.base_offset[row],
            producer_id=table.producer_id[row],
            first_offset=transactions.first_offset[place],
        )
        stable_offsets = self.ongoing.advance(begins, ends)
        return EndedTransactions(
            producer_id=ends.producer_id,
            first_offset=ends.first_offset,
            last_offset=ends.marker_offset,
            is_aborted=~markers.is_commit[groups.marker[place]],
            last_stable_offset=stable_offsets,
        )


def _group(
    table: HeaderTable, rows: Ints, start: Ints, slot: Ints, markers: MarkerColumns
) -> GroupedRows:
    """Group rows that are already in order, without the empty control batches."""
    end = np.append(start, len(rows))[1:]
    is_control = table.attributes[rows] & CONTROL_MASK != 0
    marker = np.full(len(rows), -1)
    if not is_control.any():
        return GroupedRows(
            row=rows, start=start, end=end, slot=slot, marker=marker, has_markers=False
        )
    marker_at = np.full(table.row_count, -1)
    marker_at[markers.row] = np.arange(len(markers.row))
    marker[is_control] = marker_at[rows[is_control]]
    keep = ~is_control | (marker >= 0)
    if not keep.all():
        group = np.repeat(np.arange(len(start)), end - start)[keep]
        rows, marker = rows[keep], marker[keep]
        start = group_starts(group)
        end = np.append(start, len(rows))[1:]
        slot = slot[group[start]]
    return GroupedRows(
        row=rows,
        start=start,
        end=end,
        slot=slot,
        marker=marker,
        has_markers=bool((marker >= 0).any()),
    )


class SegmentReplay(NamedTuple):
    """The result of a pass over a segment.

    Attributes:
        completed: aborted transactions that ended here, each with the last stable offset that
            `.txnindex` stores.
        committed_count: transactions that were committed here.
        batches_count: walked batches, including batches below the start offset.
        last_offset, max_timestamp_ms: of these batches. -1 if there are none.
        valid_bytes: end of the last batch: recovery truncates the `.log` to this size.
        stop: why the pass ended before the file. None if it did not, or reached `end_offset`. At
            SEG-2 and SEG-3 a broker splits the segment, at UNREADABLE it empties it, at all others
            it truncates. CTL-1, CTL-2 and BAT-7 belong to the last kept batch, a control batch that
            producer state ignores: `map_end_offset` stays before it.
        verdicts: of the used part of the scan. Recovery ignores most of them.
    """

    completed: list[Completed]
    committed_count: int
    batches_count: int
    last_offset: int
    max_timestamp_ms: int
    valid_bytes: int
    stop: Verdict | None
    verdicts: list[Verdict]


def replay_segment(
    segment: Segment,
    state: BulkState,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    verify_crc: bool = True,
    is_active: bool = True,
    on_table: Callable[[HeaderTable], None] | None = None,
    on_completed: Callable[[EndedTransactions], None] | None = None,
) -> SegmentReplay:
    """Apply the batches of a segment to `state`, up to the first that recovery would not keep.

    Args:
        segment: its base offset, if known, limits offsets as in recovery.
        state: the state before the segment. It is updated.
        start_offset: batches before the first that reaches it are only walked.
        end_offset: the first batch that reaches it ends the pass and is not taken.
        verify_crc: True like recovery. A broker that only loads does not verify.
        is_active: the last segment, which a crash may leave torn.
        on_table: called with all walked batches, in tables of at most MAX_BLOCK_ROWS rows.
        on_completed: called with the ended transactions of each table, including committed
            transactions.

    Raises:
        AppendError: INVALID_TXN_STATE: a broker cannot load this log.
        CorruptError: BAT-12, a control batch without an end marker: likewise.
        AccessError: a part of a marker cannot be read.
    """
    completed: list[Completed] = []
    committed_count = 0

    def hand_on(table: HeaderTable, markers: MarkerColumns, rows: slice) -> None:
        nonlocal committed_count
        if on_table is not None:
            on_table(table)
        markers = markers.between(rows.start, rows.stop)
        ended = state.apply(rows_of(table, rows.start, rows.stop), markers)
        aborted = ended.aborted.values()
        completed.extend(aborted)
        committed_count += len(ended.is_aborted) - len(aborted)
        if on_completed is not None and len(ended.is_aborted):
            on_completed(ended)

    walk = SegmentWalk(segment, hand_on, start_offset=start_offset, end_offset=end_offset)
    scan = BulkScan(
        segment, with_bodies=False, verify_crc=verify_crc, is_active=is_active, resume=False
    )
    for _ in walk.over(scan):
        pass
    if walk.refusal is not None:
        raise walk.refusal
    stop = walk.stop
    if not walk.is_over and walk.valid_bytes < scan.end_pos:
        stop = next((each for each in scan.verdicts if each.end_pos > walk.valid_bytes), None)
    return SegmentReplay(
        completed=completed,
        committed_count=committed_count,
        batches_count=walk.batches_count,
        last_offset=walk.last_offset,
        max_timestamp_ms=walk.max_timestamp_ms,
        valid_bytes=walk.valid_bytes,
        stop=stop,
        verdicts=[each for each in scan.verdicts if each.start_pos <= walk.valid_bytes],
    )
