"""Count the records of a piece of a segment: as many as a reader of records is given.

They are decoded all the same, for a batch whose content does not decode gives none; but no row is
made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.records.piece_reader import PieceReader
from recovery.records.read_options import ReadCounts
from storage.formats.record_batch import CONTROL_MASK
from storage.kernels.numpy_kernel import table_of
from storage.places.find import open_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from recovery.records.decoded import DecodedBatch
    from recovery.records.read_options import ReadOptions
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split


class PieceCounts(NamedTuple):
    """What is in a piece.

    Attributes:
        batches: good ones with offsets within the bounds, control batches among them.
        control_batches: of these.
        batch_bytes: theirs.
        records: what a reader of records is given.
        findings: stretches that are bad, or batches whose content is; nothing of them is counted.
    """

    batches: int = 0
    control_batches: int = 0
    batch_bytes: int = 0
    records: ReadCounts = ReadCounts()
    findings: int = 0


class _Number(NamedTuple):
    num_rows: int


class _Numbers:
    """Makes numbers of records."""

    has_content = False

    def from_table(
        self,
        table: HeaderTable,
        outcome: NDArray[np.int8],
        records: RecordTable,
        chosen: NDArray[np.int64] | None,
    ) -> _Number:
        del table, outcome
        return _Number(records.row_count if chosen is None else len(chosen))

    def from_batches(self, batches: Sequence[DecodedBatch]) -> _Number:
        return _Number(sum(len(each.records) for each in batches))


class _Counter(PieceReader[_Number]):
    """Counts batches beside the records."""

    def __init__(
        self, split: Split, options: ReadOptions, opener: Callable[[SegmentPlace], Segment]
    ) -> None:
        super().__init__(split, options, _Numbers(), opener=opener)
        self.batches = self.control_batches = self.batch_bytes = 0

    def _read_window(self, window: BulkWindow) -> Iterator[_Number]:
        self._count(window.table)
        yield from super()._read_window(window)

    def _read_single(self, batch: ScannedBatch) -> Iterator[_Number]:
        if batch.crc_ok is not False:
            self._count(table_of([batch]))
        yield from super()._read_single(batch)

    def _count(self, table: HeaderTable) -> None:
        is_within = self._bounds.may_hold(table)
        self.batches += int(is_within.sum())
        self.control_batches += int((is_within & ((table.attributes & CONTROL_MASK) != 0)).sum())
        self.batch_bytes += int(table.batch_bytes[is_within].sum())


def count_piece(
    split: Split,
    options: ReadOptions,
    opener: Callable[[SegmentPlace], Segment] = open_place,
) -> PieceCounts:
    """Count what is in a piece; a file that cannot be opened is a finding."""
    counter = _Counter(split, options, opener)
    for _ in counter:
        pass
    return PieceCounts(
        batches=counter.batches,
        control_batches=counter.control_batches,
        batch_bytes=counter.batch_bytes,
        records=counter.counts,
        findings=len(counter.findings),
    )
