"""What a reader of records hands to the one who makes rows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from storage.formats.control_record import ABORT, COMMIT, NO_MARKER, UNKNOWN
from storage.log.decoded_records import BatchOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from storage.formats.record_batch import BatchHeader
    from storage.kernels.protocol import HeaderTable
    from storage.kernels.record_table import RecordTable
    from storage.log.segment import LogRecord

OUTCOMES = {
    NO_MARKER: BatchOutcome.OPEN,
    COMMIT: BatchOutcome.COMMITTED,
    ABORT: BatchOutcome.ABORTED,
    UNKNOWN: BatchOutcome.UNKNOWN,
}


class DecodedBatch(NamedTuple):
    """Records of one batch that were decoded one by one; `outcome` as in a table."""

    header: BatchHeader
    outcome: int
    records: Sequence[LogRecord]
    base_offset: int


class Rows(Protocol):
    """What a builder makes of some records."""

    @property
    def num_rows(self) -> int:
        """How many records are in it."""


RowsT_co = TypeVar("RowsT_co", bound=Rows, covariant=True)


class RowBuilder(Protocol[RowsT_co]):
    """Makes rows for the records of one segment."""

    @property
    def has_content(self) -> bool:
        """Whether keys, values or headers are looked at: what is large then comes in pieces."""

    def from_table(
        self,
        table: HeaderTable,
        outcome: NDArray[np.int8],
        records: RecordTable,
        chosen: NDArray[np.int64] | None,
    ) -> RowsT_co:
        """Build from decoded batches.

        Args:
            table: their headers.
            outcome: of each of them: COMMIT, ABORT, UNKNOWN, or NO_MARKER if it is open.
            records: their records.
            chosen: the wanted ones of these, ascending; None: all.
        """

    def from_batches(self, batches: Sequence[DecodedBatch]) -> RowsT_co:
        """Build from single records."""
