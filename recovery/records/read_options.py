"""What is wanted of records, and what a reader counts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from recovery.transactions.isolation import Isolation
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES
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


RECORD_COLUMNS = (
    "broker",
    "topic",
    "partition",
    "directory",
    "path",
    "offset",
    "timestamp_ms",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "batch_base_offset",
    "partition_leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "is_transactional",
    "outcome",
    "codec",
)
DEFAULT_BATCH_BYTES = 16 << 20
SCHEMAS_TOPIC = "_schemas"  # kafkastore.topic of Schema Registry


class ReadOptions(NamedTuple):
    """What is wanted of the records.

    Attributes:
        columns: of `record_columns`; keys, values and headers are not touched unless asked for.
        isolation: see above.
        stable_offset: read_committed ends there; None: nowhere, all committed records are given.
        from_offset, to_offset: bounds of the offsets, the second excluded.
        from_time_ms, to_time_ms: the same of the timestamps.
        batch_bytes: most content of an Arrow batch, unless a single record is larger.
        max_batch_bytes: most that a batch of the log may decompress to.
    """

    columns: tuple[str, ...] = RECORD_COLUMNS
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    stable_offset: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES


def has_schema_values(topic: str) -> bool:
    """Whether values may be in the wire format: not in topics of brokers or of the registry."""
    return not topic.startswith("__") and topic != SCHEMAS_TOPIC


class UndecodableError(Exception):
    """Why a value stays bytes: no schema decodes it."""


class ReadCounts(NamedTuple):
    """What was read; offsets are None while there are no records.

    Attributes:
        records: that were given, and of these
        committed, aborted, open, unknown: by outcome.
        aborted_skipped, open_skipped, unknown_skipped, unstable_skipped: what read_committed left
            out, as the headers of batches say; the last are committed, at or above the last stable
            offset.
        first_offset, last_offset: of the records that were given.
        lost_records: in batches with a right checksum that gave none: the offsets cannot be right,
            or the content does not decode. As headers say.
    """

    records: int = 0
    committed: int = 0
    aborted: int = 0
    open: int = 0
    unknown: int = 0
    aborted_skipped: int = 0
    open_skipped: int = 0
    unknown_skipped: int = 0
    unstable_skipped: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    lost_records: int = 0


# -- what a reader of records hands to the one who makes rows of them


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
