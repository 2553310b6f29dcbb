"""The options of reading records, and the counts of a reader."""

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
    """The wanted records.

    Attributes:
        columns: of `record_columns`. Keys, values and headers are read only on request.
        isolation: see above.
        stable_offset: the end for read_committed. None: all committed records.
        from_offset, to_offset: bounds of the offsets, the second excluded.
        from_time_ms, to_time_ms: the same for the timestamps.
        batch_bytes: most content of an Arrow batch, unless a single record is larger.
        max_batch_bytes: the limit for the decompressed size of a batch of the log.
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
    """Return whether values may be in the wire format: not in topics of brokers or the registry."""
    return not topic.startswith("__") and topic != SCHEMAS_TOPIC


class UndecodableError(Exception):
    """The reason why a value stays bytes: no schema decodes it."""


class ReadCounts(NamedTuple):
    """The counts of a read. Offsets are None without records.

    Attributes:
        records: yielded records.
        committed, aborted, open, unknown: of these, by outcome.
        aborted_skipped, open_skipped, unknown_skipped, unstable_skipped: skipped by read_committed,
            from the headers of batches. The last are committed, at or above the last stable offset.
        first_offset, last_offset: of the yielded records.
        lost_records: in batches with a right checksum but wrong offsets or undecodable content. The
            number comes from the headers.
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


# -- the interface between a reader of records and a builder of rows


OUTCOMES = {
    NO_MARKER: BatchOutcome.OPEN,
    COMMIT: BatchOutcome.COMMITTED,
    ABORT: BatchOutcome.ABORTED,
    UNKNOWN: BatchOutcome.UNKNOWN,
}


class DecodedBatch(NamedTuple):
    """Records of one batch, decoded one by one. `outcome` as in a table."""

    header: BatchHeader
    outcome: int
    records: Sequence[LogRecord]
    base_offset: int


class Rows(Protocol):
    """The rows that a builder makes of some records."""

    @property
    def num_rows(self) -> int:
        """The number of records."""


RowsT_co = TypeVar("RowsT_co", bound=Rows, covariant=True)


class RowBuilder(Protocol[RowsT_co]):
    """A builder of rows for the records of one segment."""

    @property
    def has_content(self) -> bool:
        """Return whether rows need keys, values or headers. Large batches then come in pieces."""

    def from_table(
        self,
        table: HeaderTable,
        outcome: NDArray[np.int8],
        records: RecordTable,
        chosen: NDArray[np.int64] | None,
    ) -> RowsT_co:
        """Build from decoded batches.

        Args:
            table: the headers of the batches.
            outcome: of each batch: COMMIT, ABORT, UNKNOWN, or NO_MARKER if it is open.
            records: the records of the batches.
            chosen: the rows of the wanted records, ascending. None: all.
        """

    def from_batches(self, batches: Sequence[DecodedBatch]) -> RowsT_co:
        """Build from single records."""
