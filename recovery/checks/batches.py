"""Batches by their headers: SEG-1 to SEG-7, SEG-10, BAT-1 to BAT-6, BAT-10, BAT-11, BAT-14, BAT-16.

The scan applies most of these rules, and its verdicts become findings here. The other rules use the
columns of its tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.checks.context.broker_version import READERS_FAIL, REFUSES
from recovery.rules.findings import Severity
from storage.counts import agreeing, counted
from storage.dirs.lookup import END_KINDS
from storage.file_names import COORDINATOR_TOPICS
from storage.formats.record_batch import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
)
from storage.kernels.protocol import VerdictKind
from storage.limits import MAX_RELATIVE_OFFSET
from storage.log.segment import size_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from recovery.checks.context.collector import Circumstances, Collector
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.protocol import HeaderTable, Verdict
    from storage.places.log_reader import ReadFinding

DAY_MS = 86_400_000
_MISPLACED = frozenset({"SEG-2", "SEG-3"})  # offsets that contradict the name of the segment
FIRST_SANE_MS = 946_684_800_000  # 2000-01-01: lower values are seconds taken for milliseconds


class FarBatches(NamedTuple):
    """Batches above the offset limit of their segment, which the scan accepts (SEG-3).

    They are good if the log is known to reach them: a broker splits the segment.

    Attributes:
        before_offset: the end offset of the batches before them.
    """

    start_pos: int
    end_pos: int
    batches_count: int
    before_offset: int


class BatchCheck:
    """The batches of one segment, as tables in log order."""

    def __init__(
        self,
        files: SegmentFiles,
        topic: str,
        circumstances: Circumstances,
        collector: Collector,
        *,
        is_active: bool,
    ) -> None:
        self.last_offset = -1  # of the last batch; -1: no batch so far
        self.max_batch_bytes = 0
        self.unreadable: list[ReadFinding] = []
        self._files = files
        self._path = files.log.path
        self._is_of_coordinator = topic in COORDINATOR_TOPICS
        self._circumstances = circumstances
        self._collector = collector
        self._is_active = is_active
        self._end_offset_before = circumstances.reach_offset
        self._ranges: dict[str, tuple[int, int]] = {}  # offsets of misplaced batches, by rule
        self._count = 0  # batches with correct checksums
        self.far: FarBatches | None = None

    def take(self, table: HeaderTable, doubtful: set[int]) -> None:
        """Check the next batches. Batches with a wrong checksum have only a verdict.

        Batches at `doubtful` positions have a wrong offset, so no log ends at them.
        """
        if not table.crc_ok.all():
            table = type(table)._make(column[table.crc_ok] for column in table)
        if not table.row_count:
            return
        self._count += table.row_count
        is_doubtful = np.isin(table.pos, list(doubtful))
        self._find_gaps(table)
        self._find_misplaced(table, is_doubtful)
        self.max_batch_bytes = max(self.max_batch_bytes, int(table.batch_bytes.max()))
        is_v2 = table.magic >= MAGIC_V2
        if is_v2.any():
            self._inspect_counts(table, is_v2)
            self._inspect_producers(table, is_v2)
        self._inspect_times(table)
        self.last_offset = max(self.last_offset, int(table.last_offset[-1]))
        circumstances = self._circumstances
        circumstances.reach_offset = max(circumstances.reach_offset, self.last_offset + 1)
        ends = table.last_offset[~is_doubtful]
        if len(ends):
            circumstances.end_offset = max(circumstances.end_offset, int(ends[-1]) + 1)

    def take_verdict(self, verdict: Verdict) -> None:
        """Take the scan's verdict on a range, before the batches that follow it."""
        if verdict.kind is VerdictKind.UNREADABLE or verdict.check_id in {"BAT-1", "BAT-2"}:
            self._circumstances.has_damage = True
            self._circumstances.add_hole(self._circumstances.end_offset)

    def report_wrappers(self, found: Iterable[ReadFinding]) -> None:
        """Add findings for wrappers with an offset that their messages do not have."""
        for each in found:
            self._add(each, each.base_offset, each.last_offset, broker_action=READERS_FAIL)

    def report(self, found: Iterable[ReadFinding]) -> None:
        """Add findings for all verdicts of the scan. The offsets around each are known now."""
        misplaced: dict[str, list[ReadFinding]] = {}
        for each in found:
            severity = None
            if each.check_id in _MISPLACED:
                misplaced.setdefault(each.check_id, []).append(each)
                continue
            if each.kind in END_KINDS and self._is_active:
                severity = Severity.ERROR if self._circumstances.is_clean else Severity.NOTE
                if each.kind == VerdictKind.PREALLOCATED and severity is Severity.NOTE:
                    continue  # from preallocation or the file system; a start truncates them
            if each.is_unreadable:
                self.unreadable.append(each)
            else:
                self._add(each, each.base_offset, each.last_offset, severity=severity)

        for check_id, those in misplaced.items():
            pos = those[0].start_pos, those[-1].end_pos
            self._report_misplaced(check_id, len(those), pos, self._range(check_id, those))
        if self.far is not None and "SEG-3" not in misplaced:
            pos = self.far.start_pos, self.far.end_pos
            fix = "None: a broker splits the segment when it recovers it."
            stated = self._ranges["SEG-3"]
            self._report_misplaced("SEG-3", self.far.batches_count, pos, stated, Severity.NOTE, fix)

    def _range(self, check_id: str, found: list[ReadFinding]) -> tuple[int | None, int | None]:
        """Return the offsets of misplaced batches: stated offsets if no batch is in its place.

        If other batches are in their place, return the offsets that are lost between them.
        """
        if self._count == len(found):
            return self._ranges.get(check_id, (None, None))
        ends = [each.last_offset for each in found if each.last_offset is not None]
        return found[0].base_offset, max(ends) if len(ends) == len(found) else None

    def _report_misplaced(
        self,
        check_id: str,
        count: int,
        pos: tuple[int, int],
        offsets: tuple[int | None, int | None],
        severity: Severity | None = None,
        fix: str = "",
    ) -> None:
        """Add one finding for one cause: the name of the segment, or a later split."""
        base_offset = self._files.base_offset
        limit = base_offset + MAX_RELATIVE_OFFSET
        first, last = offsets
        what = counted(count, "batch", "batches")
        if check_id == "SEG-3":
            does = agreeing(count, "has an offset", "have offsets")
            message = f"{what} {does} above the limit {limit} of the segment"
        else:
            message = f"{what} below base offset {base_offset} of the segment's name"
            if self._count == count and first is not None:
                name = f"{first:020d}.log"
                message = f"{message}: its batches begin at {first}, its right name is {name}"
        self._collector.add(
            check_id,
            self._path,
            message,
            severity=severity,
            start_pos=pos[0],
            end_pos=pos[1],
            base_offset=first,
            last_offset=last,
            fix=fix,
        )

    def take_suspicion(self, verdict: Verdict) -> None:
        """Add a finding for data that is legal, but that no healthy broker writes."""
        self._add(verdict, None, None)

    def finish(self) -> None:
        """Check the segment as a whole."""
        before = self._end_offset_before
        if before > self._files.base_offset:
            self._collector.add(
                "SEG-1",
                self._path,
                "the segment begins below the end of the segment before it: a consumer that seeks "
                "by offset misses the offsets that both have",
                base_offset=self._files.base_offset,
                last_offset=before - 1,
                expected=f"base offset >= {before}",
                found=str(self._files.base_offset),
            )
        if too_large := size_problem(self._path, self._files.log.file_bytes):
            self._collector.add_error(too_large, broker_action=REFUSES)
        if not self._files.log.file_bytes and not self._is_active:
            self._collector.add("SEG-7", self._path, "a segment without any byte")

    def _add(
        self,
        found: Verdict | ReadFinding,
        base_offset: int | None,
        last_offset: int | None,
        *,
        severity: Severity | None = None,
        broker_action: str = "",
    ) -> None:
        self._collector.add(
            found.check_id,
            self._path,
            found.reason,
            severity=severity,
            start_pos=found.start_pos,
            end_pos=found.end_pos,
            base_offset=base_offset,
            last_offset=last_offset,
            broker_action=broker_action,
        )

    def _find_gaps(self, table: HeaderTable) -> None:
        """Note missing offsets. Sequences cannot continue there."""
        circumstances = self._circumstances
        ends = np.concatenate(([circumstances.reach_offset], table.last_offset[:-1] + 1))
        is_gap = table.base_offset > ends
        if table.magic[0] < MAGIC_V2 or (table.magic < MAGIC_V2).any():
            # A compressed message has the offset of its last record. It begins at a lower offset.
            is_gap &= (table.magic >= MAGIC_V2) | (table.attributes & CODEC_MASK == 0)
        for row in np.flatnonzero(is_gap).tolist():
            circumstances.add_hole(int(ends[row]))

    def _find_misplaced(self, table: HeaderTable, is_doubtful: NDArray[np.bool_]) -> None:
        """Note the offsets that contradict the name of the segment."""
        base_offset = self._files.base_offset
        for check_id, is_wrong in (
            ("SEG-2", table.base_offset < base_offset),
            ("SEG-3", (table.last_offset > base_offset + MAX_RELATIVE_OFFSET) & ~is_doubtful),
        ):
            if is_wrong.any():
                first, last = (
                    int(table.base_offset[is_wrong].min()),
                    int(table.last_offset[is_wrong].max()),
                )
                known = self._ranges.get(check_id, (first, last))
                self._ranges[check_id] = min(first, known[0]), max(last, known[1])
                if check_id == "SEG-3":
                    self._note_far(table, np.flatnonzero(is_wrong))

    def _note_far(self, table: HeaderTable, rows: NDArray[np.intp]) -> None:
        end_pos = int(table.pos[rows[-1]]) + int(table.batch_bytes[rows[-1]])
        if self.far is not None:
            count = self.far.batches_count + len(rows)
            self.far = self.far._replace(end_pos=end_pos, batches_count=count)
            return
        before = self._circumstances.end_offset
        if rows[0]:
            before = int(table.last_offset[rows[0] - 1]) + 1
        self.far = FarBatches(
            start_pos=int(table.pos[rows[0]]),
            end_pos=end_pos,
            batches_count=len(rows),
            before_offset=before,
        )

    def _inspect_counts(self, table: HeaderTable, is_v2: NDArray[np.bool_]) -> None:
        delta = table.last_offset - table.base_offset
        count = table.records_count
        is_empty = is_v2 & (count == 0)
        has_horizon = table.attributes & DELETE_HORIZON_MASK != 0
        if is_empty.any() or bool((is_v2 & has_horizon).any()):
            self._circumstances.is_compacted = True
        is_odd = is_empty & (
            (table.batch_bytes != HEADER_BYTES)
            | (table.attributes & CODEC_MASK != 0)
            | (table.base_timestamp_ms != -1)
        )
        for row in np.flatnonzero(is_odd).tolist():
            self._at("BAT-6", table, row, "an empty batch that is more than its header")
        is_short = is_v2 & ~is_empty & (count >= 0) & (count != delta + 1)
        self._rows("BAT-5", table, is_short, "fewer records than offsets")

    def _inspect_producers(self, table: HeaderTable, is_v2: NDArray[np.bool_]) -> None:
        has_id = table.producer_id >= 0
        is_control = table.attributes & CONTROL_MASK != 0
        is_transactional = table.attributes & TRANSACTIONAL_MASK != 0
        is_wrong = has_id & (table.producer_epoch < 0)
        is_wrong |= has_id & ~is_control & (table.base_sequence < 0)
        is_wrong |= ~has_id & is_transactional
        for row in np.flatnonzero(is_v2 & is_wrong).tolist():
            self._at(
                "BAT-11",
                table,
                row,
                "producer id, epoch, sequence and attributes contradict each other",
                found=f"producer id {table.producer_id[row]}, epoch {table.producer_epoch[row]},"
                f" sequence {table.base_sequence[row]}, attributes"
                f" {int(table.attributes[row]):#x}",
            )
        is_odd = ~has_id & ((table.producer_epoch != -1) | (table.base_sequence != -1))
        if self._is_of_coordinator:  # coordinators write sequence 0 (PROD-12)
            is_odd &= table.producer_epoch != -1
        self._rows(
            "BAT-11b",
            table,
            is_v2 & is_odd,
            "no producer id, but an epoch or a sequence",
        )

    def _inspect_times(self, table: HeaderTable) -> None:
        latest_ms = self._circumstances.now_ms + DAY_MS
        times = table.max_timestamp_ms
        is_odd = ((times >= 0) & (times < FIRST_SANE_MS)) | (times > latest_ms)
        self._rows("BAT-16", table, is_odd, "a time before 2000 or in the future")

    def _rows(
        self, check_id: str, table: HeaderTable, wanted: NDArray[np.bool_], message: str
    ) -> None:
        """Add one finding for all these rows of a table, at the first row."""
        rows = np.flatnonzero(wanted)
        if len(rows):
            have = agreeing(len(rows), "has", "have")
            text = f"{counted(len(rows), 'batch', 'batches')} {have} {message}"
            self._at(check_id, table, int(rows[0]), text, count=len(rows))

    def _at(
        self,
        check_id: str,
        table: HeaderTable,
        row: int,
        message: str,
        *,
        found: str = "",
        count: int = 1,
    ) -> None:
        pos = int(table.pos[row])
        self._collector.add(
            check_id,
            self._path,
            message,
            count=count,
            start_pos=pos,
            end_pos=pos + int(table.batch_bytes[row]),
            base_offset=int(table.base_offset[row]),
            last_offset=int(table.last_offset[row]),
            found=found,
        )
