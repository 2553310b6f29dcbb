"""The arguments and results of a kernel: the values of a scan, one batch at a time or in blocks.

`pure` is the definition (plain Python, no numpy). `numpy_kernel` does the same in bulk. A
differential test proves that both agree in value, error class and position.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from storage.formats.record_batch import BatchHeader

MAX_SINGLES = 16_384  # batches in a row that are yielded singly, not in columns
MAX_BLOCK_ROWS = 65_536


class VerdictKind(StrEnum):
    """The verdict on a stretch of a file, from harmless to worst."""

    OK = "ok"
    SUSPICIOUS = "suspicious"  # legal, but not written by a healthy broker; nothing is lost
    PREALLOCATED = "preallocated"  # zeros to the end of the file
    TORN_TAIL = "torn_tail"  # the last segment ends inside a batch, as after a crash
    UNREADABLE = "unreadable"  # the operating system could not read it
    MISSING = "missing"  # of a whole log: acknowledged offsets are missing (no scan reports this)
    CORRUPT = "corrupt"

    @property
    def rank(self) -> int:
        """Its place among all kinds. The worst kind has the highest rank."""
        return [*VerdictKind].index(self)

    @property
    def is_end(self) -> bool:
        """Return whether a crash, or a running append, leaves this at the end of a log."""
        return self in {VerdictKind.TORN_TAIL, VerdictKind.PREALLOCATED}

    @property
    def is_damage(self) -> bool:
        """Return whether records may be lost there.

        A kind counts as damage unless it is named here.
        """
        return not self.is_end and self not in {VerdictKind.OK, VerdictKind.SUSPICIOUS}


class Verdict(NamedTuple):
    """The result of a scan for one stretch of a file. Positions are half open, in bytes."""

    kind: VerdictKind
    start_pos: int
    end_pos: int
    check_id: str = ""  # the broken rule, such as BAT-1
    reason: str = ""
    errno: int = 0  # of the failed read, for UNREADABLE
    is_lost: bool = True  # False: the data is proven and returned anyway


class FileStretch(Protocol):
    """A stretch of a file with a result: a Verdict, or a finding made of a Verdict."""

    @property
    def kind(self) -> str:
        """A VerdictKind, or another kind of a finding."""

    @property
    def end_pos(self) -> int:
        """Its end in the file, exclusive."""


def is_read_to_end(said: Iterable[FileStretch], file_bytes: int) -> bool:
    """Return whether the end of a `.log` could be read. If not, the log may continue there.

    Args:
        said: all verdicts of a scan of the file.
        file_bytes: its size.
    """
    return not any(
        each.kind == VerdictKind.UNREADABLE and each.end_pos >= file_bytes for each in said
    )


def in_words(path: str, verdict: Verdict) -> str:
    """Return a description of a stretch of a file, the same for every reader."""
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

    Legacy messages (magic 0, 1) have base_offset = last_offset = the offset in their header, and -1
    in every field that their format lacks. Their records_count is -1 (unknown before
    decompression). `crc_ok` is all True if checksums were not verified.
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
        """The end of the last batch in the file. The table has at least one row."""
        return int(self.pos[-1] + self.batch_bytes[-1])
