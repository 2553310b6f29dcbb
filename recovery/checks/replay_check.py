"""Checks that need the whole log up to an offset: producers, transactions, snapshots, `.txnindex`.

    PRD-3 to PRD-5   the actions of producers
    SNP-6            a `.snapshot` compared with the state of a replay up to its offset
    TXI-2 to TXI-6   `.txnindex` compared with the transactions that the markers ended (RC-5)
    TXO-1 to TXO-3   open transactions, markers that end nothing, epochs of markers

After damage the replay is incomplete, so facts derived from the whole log are not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.checks.context.collector import MAX_KEPT_COUNT, Refusal
from recovery.replay.bulk_state import BulkState
from recovery.replay.producer_columns import group_rows, group_starts
from recovery.replay.recover_state import EntryState, compare_entries
from recovery.rules.findings import Severity
from recovery.summaries.sequence_ranges import HALF_LAP
from storage.counts import agreeing, counted
from storage.dirs.offset_ledger import is_thinned
from storage.formats.record_batch import CONTROL_MASK, MAGIC_V2, MAX_SEQUENCE
from storage.formats.txn_index import ENTRY_BYTES, FIELD_POS
from storage.kernels.numpy_kernel import rows_of
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS, AppendError
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from recovery.checks.context.collector import Circumstances, Collector
    from recovery.replay.bulk_state import EndedTransactions
    from recovery.replay.producer_columns import MarkerColumns
    from recovery.replay.recover_state import EntryDifference
    from storage.dirs.partition_files import SegmentFiles
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.formats.txn_index import AbortedTxn
    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]


# -- sequence numbers of producers, batch by batch: PRD-1, PRD-2 and PRD-6.
#
# Sequences continue within an epoch and begin at 0 in a new epoch (PROD-4). A batch above the
# expected sequence follows a loss. A batch below repeats earlier sequences. An unknown producer may
# begin anywhere: its earlier batches are removed, or its state has expired.


_SEQUENCES_COUNT = MAX_SEQUENCE + 1


class SequenceCheck:
    """The check of a partition's data batches, as tables, each before the state takes it."""

    def __init__(self, circumstances: Circumstances, collector: Collector) -> None:
        self._circumstances = circumstances
        self._collector = collector
        # By producer id and epoch: first sequence of the unbroken run, if it is not 0.
        self._run_start: dict[tuple[int, int], int] = {}
        self._never_came: list[dict[str, Any]] = []
        self._is_thinned = False

    def take(self, table: HeaderTable, state: BulkState, path: str) -> None:
        """Compare a table with `state`, and its batches with each other."""
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
        """Report producers that begin above sequence 0, unless the log is compacted."""
        if not (self._is_thinned or self._circumstances.is_compacted):
            for each in self._never_came:
                self._collector.add("PRD-6", **each)

    def _is_whole_before(self, offset: int) -> bool:
        """Return whether the log has everything ever appended to it below an offset."""
        known = self._circumstances
        return known.log_start_offset == 0 and not known.has_hole(-1, offset)

    def _note_first(
        self, path: str, producer: tuple[int, int], first: int, table: HeaderTable, row: int
    ) -> None:
        """Note the first batch of a producer, in a log with everything ever appended to it."""
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
                severity = Severity.NOTE  # another finding reports the loss (FIX-6)
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


_UNKNOWN = -2  # as epoch: the producer is unknown


def _known(state: BulkState, producer_ids: Ints) -> tuple[Ints, Ints, Ints]:
    """Return epoch, last sequence and last offset of producers before a table."""
    columns = state.columns
    slot = columns.find(producer_ids)
    is_known = slot >= 0
    epoch = np.where(is_known, columns.producer_epoch[slot].astype(np.int64), _UNKNOWN)
    has_batch = is_known & (columns.batches_count[slot] > 0)
    newest = columns.batches[slot, 0]
    # Without a batch since the epoch began, the next batch is the first.
    return (
        epoch,
        np.where(has_batch, newest[:, 0], -1),
        np.where(has_batch, newest[:, 1], -1),
    )


def _behind(values: Ints, start: Ints, known: Ints) -> Ints:
    """Return for each row the previous value of the same producer."""
    before = np.empty(len(values), np.int64)
    before[1:] = values[:-1]
    before[start] = known
    return before


# -- replay check


DEFAULT_LATE_MS = DEFAULT_MAX_TIMEOUT_MS + LATE_BUFFER_MS


class ReplayLimits(NamedTuple):
    """The ages from which something counts as old.

    Attributes:
        expiration_ms: producer.id.expiration.ms.
        late_ms: age from which an open transaction is a warning.
    """

    expiration_ms: int = DEFAULT_EXPIRATION_MS
    late_ms: int = DEFAULT_LATE_MS


class ReplayCheck:
    """The replay of one partition, segment by segment, table by table.

    Args:
        circumstances: of the partition.
        collector: takes the findings.
        snapshots: the snapshots on disk that parse, as entries and path by offset.
        limits: ages that count as old.
    """

    def __init__(
        self,
        circumstances: Circumstances,
        collector: Collector,
        snapshots: dict[int, tuple[list[ProducerEntry], str]],
        limits: ReplayLimits,
    ) -> None:
        self.state = BulkState(circumstances.log_start_offset)
        self._circumstances = circumstances
        self._collector = collector
        self._snapshots = snapshots
        self._limits = limits
        self._sequences = SequenceCheck(circumstances, collector)
        self._reported_violations = 0
        self._stable_offsets: list[tuple[int, str, int]] = []  # offset, path, entry number
        self._files: SegmentFiles | None = None
        self._remote_end = circumstances.remote_end_offset
        self._disk: dict[tuple[int, int], tuple[int, AbortedTxn]] = {}
        self._markers_found: dict[int, tuple[int, bool]] = {}
        self._ended: dict[tuple[int, int], tuple[int, bool]] = {}
        self._idle_markers_count = 0
        self._marker_offsets: set[int] = set()
        self._unstarted_count = 0
        self._last_abort_offset = -1
        self._fatal_reason = ""

    def begin_segment(self, files: SegmentFiles, disk: list[AbortedTxn]) -> None:
        """Continue with a segment and the entries of its `.txnindex`."""
        if files.base_offset == self._remote_end and self._remote_end in self._snapshots:
            # Only the snapshot has the producers whose batches are in remote storage.
            entries, _ = self._snapshots[self._remote_end]
            self.state.load(entries, files.base_offset, now_ms=0)
        self.compare_snapshot(files.base_offset)
        self._files = files
        self._disk = {
            (each.producer_id, each.last_offset): (place, each) for place, each in enumerate(disk)
        }
        if files.txn_index is not None:
            path = files.txn_index.path
            self._stable_offsets += [
                (each.last_stable_offset, path, place) for place, each in enumerate(disk)
            ]
        self._markers_found, self._ended = {}, {}
        self._idle_markers_count = 0
        self._last_abort_offset, self._fatal_reason = -1, ""

    def fatal_reason(self) -> str:
        """Return the transaction on which a recovery of the segment fails, or ""."""
        return self._fatal_reason

    def take(self, table: HeaderTable, markers: MarkerColumns) -> None:
        """Take the next good batches. `markers` are by row of the table."""
        assert self._files is not None
        skipped = int(np.searchsorted(table.last_offset, self._circumstances.log_start_offset))
        if skipped:  # no consumer reads below the log start offset
            table = rows_of(table, skipped, table.row_count)
            markers = markers.between(skipped, skipped + table.row_count)
        if not table.row_count:
            return
        if not self._circumstances.is_internal:
            self._sequences.take(table, self.state, self._files.log.path)
        self._note_markers(table, markers)
        start = 0
        while start < table.row_count:
            rest = rows_of(table, start, table.row_count)
            try:
                self._note_ended(self.state.apply(rest, markers.between(start, table.row_count)))
                break
            except AppendError as error:
                row = int(np.flatnonzero(rest.base_offset == error.offset)[0])
                self._collector.add(
                    "PRD-4",
                    self._files.log.path,
                    str(error.message),
                    start_pos=int(rest.pos[row]),
                    base_offset=error.offset,
                )
                self._circumstances.refusals.append(
                    Refusal(error.offset, f"{self._files.log.path}: {error.message}")
                )
                # No broker loads this log, so there is no state to compare with.
                self._circumstances.has_damage = True
                start += row + 1
        self._note_unstarted()
        self._report_violations(table)

    def _note_unstarted(self) -> None:
        """Note markers whose transaction a broker does not know, which fails its start."""
        assert self._files is not None
        for offset, producer_id in self.state.ongoing.unstarted[self._unstarted_count :]:
            what = (
                f"the transaction that ends at offset {offset} began where another transaction "
                "began"
            )
            reason = f"{self._files.log.path}: {what} (producer {producer_id}): refuses to start"
            self._circumstances.refusals.append(Refusal(offset, reason))
        self._unstarted_count = len(self.state.ongoing.unstarted)

    def _note_markers(self, table: HeaderTable, markers: MarkerColumns) -> None:
        offsets = table.base_offset[markers.row]
        producer_ids = table.producer_id[markers.row]
        self._marker_offsets = set(offsets.tolist())
        self._idle_markers_count += len(offsets)
        wanted = {offset for _, offset in self._disk}
        if wanted:
            for at in np.flatnonzero(np.isin(offsets, list(wanted))).tolist():
                is_commit = bool(markers.is_commit[at])
                self._markers_found[int(offsets[at])] = int(producer_ids[at]), is_commit

    def _note_ended(self, ended: EndedTransactions) -> None:
        self._idle_markers_count -= len(ended.producer_id)
        for producer_id, first, last, is_aborted, _ in zip(
            *(column.tolist() for column in ended.aborted), strict=True
        ):
            self._ended[producer_id, last] = first, is_aborted
            if last <= self._last_abort_offset and not self._fatal_reason:
                assert self._files is not None
                self._fatal_reason = (
                    f"{self._files.log.path}: the aborted transaction that ends at offset {last}"
                    f" lies behind one that ends at {self._last_abort_offset}: refuses to start"
                )
            self._last_abort_offset = last

    def _report_violations(self, table: HeaderTable) -> None:
        assert self._files is not None
        for each in self.state.violations[self._reported_violations :]:
            row = int(np.searchsorted(table.base_offset, each.offset))
            is_marker = each.offset in self._marker_offsets
            check_id = "TXO-3" if is_marker and each.check_id == "PRD-3" else each.check_id
            what = "coordinator epoch" if check_id == "PRD-5" else "epoch"
            self._collector.add(
                check_id,
                self._files.log.path,
                f"the {what} of producer {each.producer_id} goes back",
                start_pos=int(table.pos[row]) if row < table.row_count else None,
                base_offset=each.offset,
                expected=f"{what} >= {each.expected}",
                found=str(each.found),
            )
        self._reported_violations = len(self.state.violations)

    # -- at the end of a segment

    def end_segment(self) -> None:
        """Check the `.txnindex` of the segment."""
        assert self._files is not None
        if self._idle_markers_count and not self._circumstances.has_damage:
            markers = counted(self._idle_markers_count, "marker")
            self._collector.add(
                "TXO-2",
                self._files.log.path,
                f"{markers} {agreeing(self._idle_markers_count, 'ends', 'end')} no transaction with"
                " data here",
            )
        if self._circumstances.has_damage:
            return
        file = self._files.txn_index
        path = self._files.log.path.removesuffix(".log") + ".txnindex"
        for key, (first_offset, _) in self._ended.items():
            if key not in self._disk:
                self._missing(path if file is None else file.path, key, first_offset)
        for key, (place, entry) in self._disk.items():
            self._judge_entry(path, place, entry, self._ended.get(key))

    def _severity(self) -> Severity | None:
        assert self._files is not None
        return Severity.NOTE if self._circumstances.is_recovered(self._files) else None

    def _missing(self, path: str, key: tuple[int, int], first_offset: int) -> None:
        producer_id, last_offset = key
        self._collector.add(
            "TXI-4",
            path,
            f"an aborted transaction of producer {producer_id} has no entry: read_committed"
            " consumers are given its records",
            severity=self._severity(),
            base_offset=first_offset,
            last_offset=last_offset,
            expected="an entry",
            found="none",
        )

    def _judge_entry(
        self, path: str, place: int, entry: AbortedTxn, ended: tuple[int, bool] | None
    ) -> None:
        severity = self._severity()
        if ended is not None:
            first_offset, _ = ended
            is_below = entry.first_offset < self._circumstances.log_start_offset
            if entry.first_offset != first_offset and not is_below:
                if entry.first_offset == entry.last_offset:
                    self._entry("TXI-2", path, place, entry, severity, first_offset)
                self._entry("TXI-6", path, place, entry, severity, first_offset)
            return
        producer_id, is_commit = self._markers_found.get(entry.last_offset, (None, False))
        if producer_id == entry.producer_id and is_commit:
            self._entry("TXI-5", path, place, entry, severity, None)
        elif producer_id != entry.producer_id:
            if self._circumstances.is_compacted:
                severity = Severity.NOTE
            self._entry("TXI-3", path, place, entry, severity, None)
        # An ABORT whose data retention or compaction removed.

    def _entry(
        self,
        check_id: str,
        path: str,
        place: int,
        entry: AbortedTxn,
        severity: Severity | None,
        first_offset: int | None,
    ) -> None:
        message, expected, found = {
            # Brokers before 2.8 wrote the marker's offset only for a marker without data.
            "TXI-2": (
                "the first offset is the marker's: read_committed consumers are given its data",
                f"first offset {first_offset}",
                f"first offset {entry.first_offset}",
            ),
            "TXI-3": ("no ABORT marker of the producer at the entry's last offset", "", ""),
            "TXI-5": ("the transaction was committed: read_committed consumers miss it", "", ""),
            "TXI-6": (
                "the transaction begins elsewhere",
                f"first offset {first_offset}",
                f"first offset {entry.first_offset}",
            ),
        }[check_id]
        self._collector.add(
            check_id,
            path,
            f"{message} (producer {entry.producer_id})",
            severity=severity,
            start_pos=place * ENTRY_BYTES
            + (FIELD_POS["first_offset"] if check_id == "TXI-2" else 0),
            end_pos=(place + 1) * ENTRY_BYTES,
            base_offset=entry.first_offset,
            last_offset=entry.last_offset,
            expected=expected,
            found=found,
        )

    # -- snapshots

    def compare_snapshot(self, offset: int) -> None:
        """Check SNP-6: compare the snapshot of an offset with the current state."""
        if offset not in self._snapshots or self._circumstances.has_damage:
            return
        disk, path = self._snapshots[offset]
        for each in compare_entries(self.state.entries(), disk):
            what = self._difference(each)
            if not what:
                continue
            # The coordinator epoch is lost when the producer's state expires.
            is_slight = set(each.fields) == {"coordinator_epoch"}
            is_richer = self._knows_lost_batches(each, offset)
            self._collector.add(
                "SNP-6",
                path,
                f"producer {each.producer_id} {what}",
                severity=Severity.NOTE if is_slight or is_richer else None,
                base_offset=offset,
                fix="None: it describes batches that the log has lost." if is_richer else "",
            )

    def _knows_lost_batches(self, each: EntryDifference, offset: int) -> bool:
        """Return whether a snapshot names a batch in a gap. Another finding reports it (FIX-6)."""
        # All batches below the snapshot's offset were read. None is in the gap.
        disk = each.disk
        return disk is not None and self._circumstances.reach_offset <= disk.last_offset < offset

    def _difference(self, each: EntryDifference) -> str:
        """Return the fault of one producer of a snapshot, or ""."""
        recovered, disk = each.recovered, each.disk
        if recovered is None:
            # Retention or compaction removed its batches (SNAP-7), but never of open transactions.
            first_offset = -1 if disk is None else disk.current_txn_first_offset
            if first_offset < max(self._circumstances.log_start_offset, 0):
                return ""
            return f"has a transaction open since {first_offset}, where the log has none"
        if each.state is EntryState.ONLY_RECOVERED and recovered.current_txn_first_offset >= 0:
            first_offset = recovered.current_txn_first_offset  # it never expires
            return (
                f"is missing, and with it its transaction open from offset {first_offset}: a broker"
                " that loads this gives its records to read_committed consumers"
            )
        if each.state is EntryState.ONLY_RECOVERED:
            expired_ms = self._circumstances.now_ms - self._limits.expiration_ms
            return "is missing" if recovered.timestamp_ms > expired_ms else ""
        if not each.fields or self._has_data_time(each):
            return ""
        return "differs: " + ", ".join(
            f"{name} {getattr(disk, name)}, in the log {getattr(recovered, name)}"
            for name in each.fields
        )

    def _has_data_time(self, each: EntryDifference) -> bool:
        """Return whether a snapshot has the time of a producer's last data, as of older brokers."""
        assert each.disk is not None
        if each.fields != ("timestamp_ms",):
            return False
        return self.state.data_time_ms(each.producer_id) == each.disk.timestamp_ms

    # -- at the end of the log

    def finish(self, forgotten: Collection[int] = ()) -> None:
        """Report open transactions, and impossible last stable offsets (TXI-7).

        `forgotten`: producers with an open transaction that a broker does not know, so that it
        blocks nobody. The snapshot without it has a finding.
        """
        if self._files is None:
            return  # no segment could be opened
        self._sequences.finish()
        end_offset = self._circumstances.end_offset
        for stable_offset, path, place in self._stable_offsets:
            if stable_offset > end_offset and not self._circumstances.has_damage:
                pos = place * ENTRY_BYTES + FIELD_POS["last_stable_offset"]
                self._collector.add(
                    "TXI-7",
                    path,
                    f"last_stable_offset of entry {place} is wrong",
                    start_pos=pos,
                    end_pos=(place + 1) * ENTRY_BYTES,
                    expected=f"<= {end_offset}",
                    found=str(stable_offset),
                )
        entries = {each.producer_id: each for each in self.state.entries()}
        for first_offset, producer_id in sorted(self.state.ongoing.owners.items()):
            if producer_id in forgotten:
                continue
            age_ms = self._circumstances.now_ms - entries[producer_id].timestamp_ms
            is_late = age_ms > self._limits.late_ms
            age = f"{age_ms / 1000:.0f} s old"
            if age_ms < 0:
                age = f"dated {-age_ms / 1000:.0f} s after now"
            self._collector.add(
                "TXO-1",
                self._files.log.path,
                f"producer {producer_id} has an open transaction; its last batch is {age}",
                severity=Severity.WARNING if is_late else Severity.NOTE,
                base_offset=first_offset,
                last_offset=entries[producer_id].last_offset,
                found=f"epoch {entries[producer_id].producer_epoch}",
            )
