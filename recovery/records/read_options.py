"""What is wanted of records, and what a reader counts of them."""

from __future__ import annotations

from typing import NamedTuple

from recovery.transactions.isolation import Isolation
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES

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
