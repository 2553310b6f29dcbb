"""Sequence numbers of producers, batch by batch: PRD-1, PRD-2 and PRD-6.

Sequences continue within an epoch and begin at 0 in a new one (PROD-4). A batch that begins above
what is expected follows a loss; one that begins below repeats what is there. A producer that is not
known may begin anywhere: its earlier batches are gone, or its state had expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.checks.grounds.collector import MAX_KEPT_COUNT
from recovery.replay.producer_columns import group_rows, group_starts
from recovery.rules.findings import Severity
from recovery.summaries.sequence_ranges import HALF_LAP
from storage.dirs.offset_ledger import is_thinned
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, MAX_SEQUENCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recovery.checks.grounds.circumstances import Circumstances
    from recovery.checks.grounds.collector import Collector
    from recovery.replay.bulk_state import BulkState
    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]

_SEQUENCES_COUNT = MAX_SEQUENCE + 1


class SequenceCheck:
    """The data batches of a partition, given table by table, each before the state takes it."""

    def __init__(self, circumstances: Circumstances, collector: Collector) -> None:
        self._circumstances = circumstances
        self._collector = collector
        # By producer id and epoch, where it is not 0: first sequence of the unbroken run.
        self._run_start: dict[tuple[int, int], int] = {}
        self._never_came: list[dict[str, Any]] = []
        self._is_thinned = False

    def take(self, table: HeaderTable, state: BulkState, path: str) -> None:
        """Compare with what `state` knows, and within the table."""
        self._is_thinned = self._is_thinned or bool(is_thinned(table).any())
        is_data = (table.magic >= MAGIC_V2) & (table.attributes & CONTROL_MASK == 0)
        rows = np.flatnonzero(is_data & (table.producer_id >= 0) & (table.base_sequence >= 0))
        if not len(rows):
            return
        rows = rows[group_rows(table.producer_id[rows])]
        producer_id = table.producer_id[rows]
        start = group_starts(producer_id)
        epoch = table.producer_epoch[rows].astype(np.int64)
        first = table.base_sequence[rows].astype(np.int64)
        offset = table.base_offset[rows]
        last = (first + table.last_offset[rows] - offset) % _SEQUENCES_COUNT

        known_epoch, known_last, known_offset = _known(state, producer_id[start])
        before_epoch = _behind(epoch, start, known_epoch)
        before_last = _behind(last, start, known_last)
        before_offset = _behind(table.last_offset[rows], start, known_offset)
        expected = np.where(before_epoch == epoch, (before_last + 1) % _SEQUENCES_COUNT, 0)
        is_new = before_epoch == _UNKNOWN
        for place in np.flatnonzero(is_new & (first != 0)).tolist():
            producer = int(producer_id[place]), int(epoch[place])
            self._run_start[producer] = int(first[place])
            if self._is_whole_before(int(offset[place])) and first[place] < HALF_LAP:
                self._note_first(path, producer, int(first[place]), table, int(rows[place]))
        is_wrong = ~is_new & (epoch >= before_epoch) & (first != expected)
        for place in np.flatnonzero(is_wrong).tolist():
            self._wrong(
                path,
                (int(producer_id[place]), int(epoch[place])),
                int(first[place]),
                int(expected[place]),
                offset=int(offset[place]),
                offset_before=int(before_offset[place]),
                place=(table, int(rows[place])),
            )

    def finish(self) -> None:
        """Report producers that begin above sequence 0, unless the log turned out compacted."""
        if not (self._is_thinned or self._circumstances.is_compacted):
            for each in self._never_came:
                self._collector.add("PRD-6", **each)

    def _is_whole_before(self, offset: int) -> bool:
        """Tell whether the log has all that was ever appended to it below an offset."""
        known = self._circumstances
        return known.log_start_offset == 0 and not known.has_hole(-1, offset)

    def _note_first(
        self, path: str, producer: tuple[int, int], first: int, table: HeaderTable, row: int
    ) -> None:
        """Note the first batch of a producer, in a log with all that was ever appended to it."""
        if len(self._never_came) == MAX_KEPT_COUNT:
            return
        pos = int(table.pos[row])
        self._never_came.append(
            {
                "path": path,
                "message": f"producer {producer[0]}, epoch {producer[1]}: the log begins at offset"
                f" 0, and the first {first} records of this producer are not in it",
                "start_pos": pos,
                "end_pos": pos + int(table.batch_bytes[row]),
                "base_offset": int(table.base_offset[row]),
                "last_offset": int(table.last_offset[row]),
                "expected": "sequence 0",
                "found": f"sequence {first}",
            }
        )

    def _wrong(
        self,
        path: str,
        producer: tuple[int, int],
        first: int,
        expected: int,
        *,
        offset: int,
        offset_before: int,
        place: tuple[HeaderTable, int],
    ) -> None:
        table, row = place
        producer_id, epoch = producer
        severity = None
        if self._run_start.get(producer, 0) <= first < expected:
            check_id = "PRD-2"
            message = "sequences that the log has already"
        else:
            check_id, message = "PRD-1", "sequences do not continue"
            self._run_start[producer] = first
            if self._circumstances.has_hole(offset_before, offset):
                severity = Severity.NOTE  # what is missing of the log is told elsewhere (FIX-6)
        pos = int(table.pos[row])
        self._collector.add(
            check_id,
            path,
            f"producer {producer_id}, epoch {epoch}: {message}",
            severity=severity,
            start_pos=pos,
            end_pos=pos + int(table.batch_bytes[row]),
            base_offset=offset,
            last_offset=int(table.last_offset[row]),
            expected=f"sequence {expected}",
            found=f"sequence {first}",
        )


_UNKNOWN = -2  # as epoch: nothing is known of the producer


def _known(state: BulkState, producer_ids: Ints) -> tuple[Ints, Ints, Ints]:
    """Epoch, last sequence and last offset of producers before a table."""
    columns = state.columns
    slot = columns.find(producer_ids)
    is_known = slot >= 0
    epoch = np.where(is_known, columns.producer_epoch[slot].astype(np.int64), _UNKNOWN)
    has_batch = is_known & (columns.batches_count[slot] > 0)
    newest = columns.batches[slot, 0]
    # Without a batch since the epoch began, the next one is the first.
    return (
        epoch,
        np.where(has_batch, newest[:, 0], -1),
        np.where(has_batch, newest[:, 1], -1),
    )


def _behind(values: Ints, start: Ints, known: Ints) -> Ints:
    """Give each place the value before it of the same producer."""
    before = np.empty(len(values), np.int64)
    before[1:] = values[:-1]
    before[start] = known
    return before
