"""How an export is to be made."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from recovery.records.read_options import RECORD_COLUMNS
from recovery.transactions.isolation import Isolation
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES

DEFAULT_SPLIT_BYTES = 128 << 20
MAX_SPLIT_BYTES = 1 << 30  # of most brokers' segments
# The directories of an export tell these already.
PATH_COLUMNS = ("topic", "partition")


class ExportFormat(StrEnum):
    """What files of records are."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class ExportCodec(StrEnum):
    """How Parquet files are compressed."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    NONE = "none"


class Until(StrEnum):
    """Where the log of a partition ends for an export."""

    LOG_END = "log-end"
    HW = "hw"


class ExportOptions(NamedTuple):
    """How to export. All but the first are the same when an export is resumed.

    Attributes:
        to: the target directory, absolute.
        format: of the files.
        codec: of Parquet.
        text: JSON Lines hold text where it is valid UTF-8.
        columns: of `read_options`; topic and partition are in no Parquet file, since directories
            tell them.
        isolation: what a consumer would be given.
        until: the end, or what is replicated as far as the checkpoint knows.
        from_offset, to_offset: bounds of the offsets, the second excluded; without the first an
            export begins at the log start offset.
        from_time_ms, to_time_ms: the same of the timestamps.
        split_bytes: about the size of a piece.
        max_batch_bytes: most that a batch of the log may decompress to.
    """

    to: str
    format: ExportFormat = ExportFormat.PARQUET
    codec: ExportCodec = ExportCodec.ZSTD
    text: bool = False
    columns: tuple[str, ...] = RECORD_COLUMNS
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    until: Until = Until.LOG_END
    from_offset: int | None = None
    to_offset: int | None = None
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES

    def to_json(self) -> dict[str, Any]:
        """Return what a resumed export must have in common with the first run."""
        return {name: value for name, value in self._asdict().items() if name != "to"}


def split_bytes_for(total_bytes: int, pieces_count: int) -> int:
    """Return a size of splits for about so many of them, from 128 MiB to 1 GiB.

    At 100 TB a piece of 128 MiB would be one of 800,000, each of them to be planned and scheduled;
    a segment of the usual GiB is then read in one piece, and need not be cut.
    """
    wanted = total_bytes // max(pieces_count, 1)
    return min(max(wanted, DEFAULT_SPLIT_BYTES), MAX_SPLIT_BYTES)
