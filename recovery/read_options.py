"""What is wanted of records, and what a reader counts of them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable
    from storage.kernels.record_table import RecordTable
    from storage.segment import LogRecord

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


class Isolation(StrEnum):
    """What a consumer may be given."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class ReadOptions(NamedTuple):
    """What is wanted of the records.

    Attributes:
        columns: of `record_columns`; keys, values and headers are not touched unless asked for.
        isolation: see above.
        stable_offset: read_committed ends there; None: nowhere, all committed records are given.
        from_offset, to_offset: bounds of the offsets, the second excluded.
        from_time_ms, to_time_ms: the same of the timestamps.
        batch_bytes: most content of an Arrow batch, unless a single record is larger.
    """

    columns: tuple[str, ...] = RECORD_COLUMNS
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    stable_offset: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES


class ReadCounts(NamedTuple):
    """What was read; offsets are None while there are no records.

    Attributes:
        records: that were given, and of these
        committed, aborted, open: by outcome.
        aborted_skipped, open_skipped, unstable_skipped: what read_committed left out, as the
            headers of batches say; the last are committed, at or above the last stable offset.
        first_offset, last_offset: of the records that were given.
    """

    records: int = 0
    committed: int = 0
    aborted: int = 0
    open: int = 0
    aborted_skipped: int = 0
    open_skipped: int = 0
    unstable_skipped: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


class Bounds:
    """Which offsets and times are wanted."""

    def __init__(self, options: ReadOptions) -> None:
        self._from_offset, self._to_offset = options.from_offset, options.to_offset
        self._end_offset = options.to_offset  # whatever the isolation level leaves out
        self._from_time_ms, self._to_time_ms = options.from_time_ms, options.to_time_ms
        stable_offset = options.stable_offset
        if options.isolation is Isolation.READ_COMMITTED and stable_offset is not None:
            to_offset = stable_offset if self._to_offset is None else self._to_offset
            self._to_offset = min(to_offset, stable_offset)
        limits = (self._from_offset, self._to_offset, self._from_time_ms, self._to_time_ms)
        self._is_open = limits == (None,) * len(limits)

    def may_hold(self, table: HeaderTable) -> NDArray[np.bool_]:
        """Tell which batches (v2) may have offsets within the bounds that were asked for."""
        is_wanted = np.ones(table.row_count, np.bool_)
        if self._from_offset is not None:
            is_wanted &= table.last_offset >= self._from_offset
        if self._end_offset is not None:
            is_wanted &= table.base_offset < self._end_offset
        return is_wanted

    def chosen(self, records: RecordTable) -> NDArray[np.int64] | None:
        """Return the wanted records, None for all."""
        if self._is_open:
            return None
        is_wanted = np.ones(records.row_count, np.bool_)
        for values, low, high in (
            (records.offset, self._from_offset, self._to_offset),
            (records.timestamp_ms, self._from_time_ms, self._to_time_ms),
        ):
            if low is not None:
                is_wanted &= values >= low
            if high is not None:
                is_wanted &= values < high
        return None if is_wanted.all() else np.flatnonzero(is_wanted)

    def holds(self, record: LogRecord) -> bool:
        """Is the record wanted?"""
        low, high = self._from_offset, self._to_offset
        from_ms, to_ms = self._from_time_ms, self._to_time_ms
        return (
            (low is None or record.offset >= low)
            and (high is None or record.offset < high)
            and (from_ms is None or record.timestamp_ms >= from_ms)
            and (to_ms is None or record.timestamp_ms < to_ms)
        )
