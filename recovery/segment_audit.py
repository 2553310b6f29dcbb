"""Read one segment and count: from a `.log` to a `PieceAudit`.

Nothing in a file makes this fail: damage is counted and told. Only a file that cannot be opened at
all is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.audit import Auditor, AuditRows, PieceAudit
from recovery.end_markers import batch_at
from recovery.transaction_counts import ABORT, COMMIT, NO_MARKER
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import CODEC_MASK, CONTROL_MASK, MAGIC_V2
from storage.kernels.protocol import VerdictKind
from storage.lookup import DoubtfulOffsets
from storage.markers import marker_is_commit
from storage.segment import open_segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recovery.sequence_ranges import SequenceRanges
    from storage.kernels.numpy_kernel import TableScan
    from storage.kernels.protocol import HeaderTable, Verdict
    from storage.segment import Segment

MAX_TOLD_COUNT = 10


class SegmentAudit(NamedTuple):
    """What was found in one segment.

    Attributes:
        audit: the counts.
        problems_count: bad stretches, and batches whose content does not decode.
        notes: sentences about the first of them.
        is_corrupt: there is damage; a torn tail of the last segment is none.
        is_unreadable: the operating system refused a part.
    """

    audit: PieceAudit
    problems_count: int
    notes: tuple[str, ...]
    is_corrupt: bool
    is_unreadable: bool


def audit_segment(
    path: str,
    *,
    base_offset: int | None = None,
    is_active: bool = True,
    has_sequences: bool = True,
    before: SequenceRanges | None = None,
) -> SegmentAudit:
    """Count over a segment.

    Args:
        path: the `.log`.
        base_offset: by the name unless given.
        is_active: the last segment, which may have a torn tail.
        has_sequences: sequence rules hold in this topic.
        before: what is covered by earlier pieces; for `merge`, which then asks for the duplicates.

    Raises:
        AccessError: it cannot be opened.
    """
    with open_segment(path, base_offset=base_offset) as segment:
        problems = _Problems(path)
        auditor = Auditor(has_sequences=has_sequences, before=before)
        tables: TableScan = segment.scan_tables(is_active=is_active)
        doubtful = DoubtfulOffsets(tables, with_order=True)
        top_offset = -1
        for table in tables:
            is_misplaced, top_offset = _misplaced(table, doubtful.positions, top_offset)
            auditor.add(_rows_of(segment, table, is_misplaced, problems))
        for verdict in tables.verdicts:
            problems.add_verdict(verdict)
        return problems.result(auditor.finish())


class _Problems:
    def __init__(self, path: str) -> None:
        self._path = path
        self._texts: list[str] = []
        self._is_corrupt = False
        self._is_unreadable = False

    def add_verdict(self, verdict: Verdict) -> None:
        self._is_corrupt |= verdict.kind is VerdictKind.CORRUPT
        self._is_unreadable |= verdict.kind is VerdictKind.UNREADABLE
        check_id = f" [{verdict.check_id}]" if verdict.check_id else ""
        self._texts.append(
            f"{self._path}: positions {verdict.start_pos} to {verdict.end_pos}: "
            f"{verdict.kind}: {verdict.reason}{check_id}"
        )

    def add_error(self, error: FormatError | AccessError) -> None:
        self._is_corrupt |= isinstance(error, FormatError)
        self._is_unreadable |= isinstance(error, AccessError)
        self._texts.append(str(error))

    def result(self, audit: PieceAudit) -> SegmentAudit:
        return SegmentAudit(
            audit,
            len(self._texts),
            tuple(self._texts[:MAX_TOLD_COUNT]),
            self._is_corrupt,
            self._is_unreadable,
        )


def _misplaced(
    table: HeaderTable, doubtful: set[int], top_offset: int
) -> tuple[NDArray[np.bool_], int]:
    """Tell which batches are not behind all before them, or have an offset that cannot be right.

    Such a batch may be a second copy of one at the same offset. `top_offset` is the largest offset
    so far, given and returned.
    """
    is_doubtful = ~table.crc_ok
    if doubtful:
        is_doubtful |= np.isin(table.pos, list(doubtful))
    offsets = np.where(is_doubtful, -1, table.last_offset)
    tops = np.maximum.accumulate(np.concatenate(([top_offset], offsets)))
    return is_doubtful | (table.base_offset <= tops[:-1]), int(tops[-1])


def _rows_of(
    segment: Segment, table: HeaderTable, is_misplaced: NDArray[np.bool_], problems: _Problems
) -> AuditRows:
    is_v2 = table.magic >= MAGIC_V2
    is_control = is_v2 & ((table.attributes & CONTROL_MASK) != 0)
    # An empty control batch is what compaction leaves of a marker: without effect (PROD-9).
    is_marker = is_control & (table.producer_id >= 0) & (table.records_count > 0) & table.crc_ok
    marker = np.zeros(table.row_count, np.int8)
    for row in np.flatnonzero(is_marker).tolist():
        marker[row] = _read_marker(segment, table, row, problems)
    records_count = np.where(is_v2, np.maximum(table.records_count, 0), 1).astype(np.int64)
    is_wrapper = ~is_v2 & ((table.attributes & CODEC_MASK) != 0) & table.crc_ok
    for row in np.flatnonzero(is_wrapper).tolist():
        records_count[row] = _count_inside(segment, table, row, problems)
    return AuditRows(table, marker, records_count, is_misplaced)


def _read_marker(segment: Segment, table: HeaderTable, row: int, problems: _Problems) -> int:
    try:
        is_commit = marker_is_commit(segment, batch_at(table, row))
    except (FormatError, AccessError) as exc:
        problems.add_error(exc)
        return NO_MARKER
    if is_commit is None:
        return NO_MARKER
    return COMMIT if is_commit else ABORT


def _count_inside(segment: Segment, table: HeaderTable, row: int, problems: _Problems) -> int:
    """Count the messages in a compressed v0 or v1 message; 0 if they cannot be read."""
    try:
        return sum(1 for _ in segment.records(batch_at(table, row)))
    except (FormatError, AccessError) as exc:
        problems.add_error(exc)
        return 0
