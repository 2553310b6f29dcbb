"""One pass over a partition's batches: its producer state and its transactions, in bulk.

`BulkState` is the twin of `storage.producers.producer_state.ProducerStateManager` over tables of
headers: the same entries in the same order, the same transactions with the same last stable
offsets, the same violations, the same refusals, however the log is cut into tables. There is no
Python step per batch; beginnings and ends of transactions are followed one by one. `replay_segment`
feeds it from a `.log` as recovery reads that (REC-7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from recovery.replay.producer_columns import (
    GroupedRows,
    MarkerColumns,
    ProducerColumns,
    group_rows,
    group_starts,
)
from recovery.replay.segment_walk import SegmentWalk
from recovery.replay.transaction_events import (
    Begins,
    Ends,
    OngoingTransactions,
    TransactionEvents,
    follow,
)
from storage.formats.producer_snapshot import ProducerEntry
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2
from storage.kernels.numpy_kernel import BulkScan, BulkWindow, rows_of
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
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable, Verdict
    from storage.log.segment import Segment

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

    # An ended transaction, and what `.txnindex` would store beside it (TXN-6).
    Completed = tuple[CompletedTransaction, int]


class EndedTransactions(NamedTuple):
    """Transactions that markers of one table ended, as columns in log order."""

    producer_id: Ints
    first_offset: Ints
    last_offset: Ints  # of the marker
    is_aborted: Flags
    last_stable_offset: Ints  # for `.txnindex` (TXN-6)

    @property
    def aborted(self) -> EndedTransactions:
        """Return those that were aborted."""
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
        """How many producers are known."""
        return self.columns.count

    # -- snapshots, and the definition's form

    def load(
        self,
        entries: Iterable[ProducerEntry],
        snapshot_offset: int,
        *,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """Take over a snapshot into an empty state, leaving out what has expired (SNAP-9)."""
        entries = list(entries)
        rows = np.array(entries, np.int64).reshape(-1, len(ProducerEntry._fields))
        is_open = rows[:, 7] >= 0
        # Exact: the clock is no offset, both are far from 2**63.
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
        """Return what a snapshot at `map_end_offset` stores, in its order (SNAP-8)."""
        return self.columns.entries()

    def data_time_ms(self, producer_id: int) -> int | None:
        """Largest time of a producer's newest cached batch, markers left out; None: it has none."""
        columns = self.columns
        slot = int(columns.find(np.array([producer_id], np.int64))[0])
        if slot < 0 or not columns.batches_count[slot]:
            return None
        return int(columns.batches[slot, 0, CachedBatch._fields.index("timestamp_ms")])

    @classmethod
    def from_manager(cls, manager: ProducerStateManager) -> Self:
        """Take over a state of the definition; the two share nothing afterwards."""
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
        """Return the same state in the form of the definition."""
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
        """First offset of the oldest open transaction."""
        return self.ongoing.oldest_offset

    # -- batches

    def apply_table(
        self, table: HeaderTable, markers: Sequence[tuple[int, Marker]] | MarkerColumns = ()
    ) -> list[Completed]:
        """Reflect the next batches; returns the transactions that they ended, in log order."""
        if not isinstance(markers, MarkerColumns):
            markers = MarkerColumns.of(markers)
        return self.apply(table, markers).values()

    def apply(self, table: HeaderTable, markers: MarkerColumns) -> EndedTransactions:
        """Do what `apply_table` does, without a value for each transaction.

        Args:
            table: rows of healthy batches in log order; some may be left out.
            markers: of its control batches that are not empty, with their rows, ascending.

        Raises:
            AppendError: INVALID_TXN_STATE; all rows before that batch have been reflected.
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
        """Reflect what precedes a batch that a broker cannot load, and say so (PROD-6)."""
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
        """Bring the open transactions up to date."""
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
    """Group rows that are in order already, without the empty control batches."""
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
    """What one pass over a segment found.

    Attributes:
        completed: aborted transactions that ended here, each with the last stable offset that
            `.txnindex` stores.
        committed_count: transactions that were committed here.
        batches_count: batches that were walked, those below the start offset included.
        last_offset, max_timestamp_ms: of these batches; -1 if there are none.
        valid_bytes: end of the last of them: what recovery cuts the `.log` to.
        stop: why the pass ended before the file does; None: it did not, or `end_offset` was met.
            SEG-2 and SEG-3 make a broker split the segment, UNREADABLE makes it empty it;
            for all others it cuts. CTL-1, CTL-2 and BAT-7 are of the last batch that is kept, a
            control batch that producer state ignores: `map_end_offset` stays before it.
        verdicts: of the scan, as far as it was used; most of them are nothing to recovery.
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
    """Take the batches of a segment into `state`, up to the first that recovery would not keep.

    Args:
        segment: its base offset, if known, limits offsets as recovery does.
        state: what is known up to here; brought up to date.
        start_offset: batches before the first one that reaches it are only walked.
        end_offset: the first batch that reaches it ends the pass and is not taken.
        verify_crc: as recovery does; a broker that only loads does not.
        is_active: the last segment, which a crash may leave torn.
        on_table: gets all batches that are walked, in tables of at most MAX_BLOCK_ROWS rows.
        on_completed: gets what each of these tables ended, committed transactions too.

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
    for part in scan.parts():
        if isinstance(part, BulkWindow):
            walk.take_window(part)
        else:
            walk.take_batch(part)
        if walk.is_over:
            break
    walk.flush()
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
