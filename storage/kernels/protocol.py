"""What a kernel takes and gives: the values of a scan, one batch at a time or in blocks.

`pure` is the definition (plain Python, no numpy); `numpy_kernel` is its bulk twin. Both agree in
value, error class and position; a differential test says so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from storage.formats.record_batch import BatchHeader

MAX_SINGLES = 16_384  # batches in a row that are given one by one, not in columns
MAX_BLOCK_ROWS = 65_536


class VerdictKind(StrEnum):
    """How a stretch of a file came out, from harmless to worst."""

    OK = "ok"
    SUSPICIOUS = "suspicious"  # legal, and not what a healthy broker writes; nothing is lost
    PREALLOCATED = "preallocated"  # zeros to the end of the file
    TORN_TAIL = "torn_tail"  # the last segment ends inside a batch: what a crash leaves
    UNREADABLE = "unreadable"  # the operating system could not read it
    MISSING = "missing"  # of a whole log: what was acknowledged is not there (no scan says so)
    CORRUPT = "corrupt"

    @property
    def rank(self) -> int:
        """Its place among all kinds: the worst one has the highest."""
        return [*VerdictKind].index(self)

    @property
    def is_end(self) -> bool:
        """Whether a crash, or an append under way, leaves this at the end of a log."""
        return self in {VerdictKind.TORN_TAIL, VerdictKind.PREALLOCATED}

    @property
    def is_damage(self) -> bool:
        """Whether records may be lost there. A kind counts as damage until it is named here."""
        return not self.is_end and self not in {VerdictKind.OK, VerdictKind.SUSPICIOUS}


class Verdict(NamedTuple):
    """The outcome of a scan for one stretch of a file. Positions are half open, in bytes."""

    kind: VerdictKind
    start_pos: int
    end_pos: int
    check_id: str = ""  # the broken rule, such as BAT-1
    reason: str = ""
    errno: int = 0  # of the failed read, for UNREADABLE
    is_lost: bool = True  # False: what is there is proven and given all the same


class FileStretch(Protocol):
    """A stretch of a file of which something is said: a Verdict, or a finding made of one."""

    @property
    def kind(self) -> str:
        """A VerdictKind, or what a finding knows beside these."""

    @property
    def end_pos(self) -> int:
        """Where it ends in the file, excluded."""


def is_read_to_end(said: Iterable[FileStretch], file_bytes: int) -> bool:
    """Whether the operating system gave the end of a `.log`; else the log may go on there.

    Args:
        said: all that a scan said of the file.
        file_bytes: its size.
    """
    return not any(
        each.kind == VerdictKind.UNREADABLE and each.end_pos >= file_bytes for each in said
    )


def in_words(path: str, verdict: Verdict) -> str:
    """Tell of a stretch of a file; every reader has the same words for it."""
    rule = f" [{verdict.check_id}]" if verdict.check_id else ""
    place = f"{path}: positions {verdict.start_pos} to {verdict.end_pos}"
    return f"{place}: {verdict.kind}: {verdict.reason}{rule}"


class ScannedBatch(NamedTuple):
    """One batch (v2) or one outer message (v0, v1) as found in a segment."""

    pos: int  # first byte, from the start of the file
    header: BatchHeader
    crc_ok: bool | None  # None: not verified


class HeaderTable(NamedTuple):
    """A block of scanned batches as columns: one row per batch, at most MAX_BLOCK_ROWS rows.

    Legacy messages (magic 0, 1) have base_offset = last_offset = the offset in their header,
    -1 in every field that their format lacks and records_count -1 (unknown before decompression).
    `crc_ok` is all True where checksums were not verified.
    """

    pos: NDArray[np.int64]
    batch_bytes: NDArray[np.int64]
    base_offset: NDArray[np.int64]
    last_offset: NDArray[np.int64]
    partition_leader_epoch: NDArray[np.int32]
    magic: NDArray[np.int8]
    attributes: NDArray[np.int16]
    base_timestamp_ms: NDArray[np.int64]
    max_timestamp_ms: NDArray[np.int64]
    producer_id: NDArray[np.int64]
    producer_epoch: NDArray[np.int16]
    base_sequence: NDArray[np.int32]
    records_count: NDArray[np.int32]
    crc: NDArray[np.uint32]
    crc_ok: NDArray[np.bool_]

    @property
    def row_count(self) -> int:
        """Number of batches (len() of a NamedTuple is its number of columns)."""
        return len(self.pos)

    @property
    def end_pos(self) -> int:
        """Where the last batch ends in the file; there is one."""
        return int(self.pos[-1] + self.batch_bytes[-1])
