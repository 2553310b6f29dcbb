"""The scan kernel in plain Python: the definition that the bulk kernel must agree with.

`scan_window` is the hot loop. It walks whole and healthy v2 batches inside one buffer and stops at
any other place. `parse_frame`, `compute_checksum` and `judge` decide about that place. They also
are the rules that the loop has inlined. Rules (docs/rules/log.md):

      BAT-2  length >= 14; v2: length >= 49; v1: length >= 22; magic in 0..2
      BAT-1  v2: CRC-32C of bytes 21 to the end; v0, v1: CRC-32 of bytes 16 to the end
      BAT-4  v2: last_offset_delta >= 0 and 0 <= records_count <= last_offset_delta + 1
      BAT-7  v2: codec in 0..4; v0, v1: codec in 0..3
      SEG-2  base offset >= base offset of the segment
      SEG-1  last offset < base offset of the next segment, where that is known
      SEG-3  last offset - base offset of the segment <= 2^31 - 1
      BAT-3  v2: base offset > last offset before; v0, v1: offset > last offset before; and no
             contradiction to the batches behind (`storage.kernels.offset_order`)
      BAT-10 (suspicion) v2: attribute bits 7 to 15 are zero
      BAT-14 (suspicion) v2: leader epoch >= the last known one before, or -1 (unknown)

A batch gets the first rule it breaks, in this order. Base offset, length, leader epoch and magic
are outside the checksum, so neighbours judge them. A batch that breaks any rule but BAT-7 does not
count as a neighbour, since its offsets are not trusted. A raised offset is detected before it is
trusted. So a single wrong offset is reported once, and not for every batch behind it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from storage.checksum import load_crc32c
from storage.formats.compression import MAX_CODEC, is_known
from storage.formats.record_batch import (
    CODEC_MASK,
    CRC_START_POS,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    MIN_BATCH_LENGTH,
    BatchHeader,
)
from storage.kernels.protocol import ScannedBatch
from storage.limits import MAX_OFFSET, MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.kernels.protocol import HeaderTable

LEGACY_HEADER = Struct(">qiIbbq")  # offset, length, crc, magic, attributes, v1: timestamp
LEGACY_CRC_START_POS = 16
PREFIX = Struct(">qiib")  # the fields that the broker's file reader uses
PREFIX_BYTES = 17
LENGTH_POS = 8
MIN_LENGTH = 14  # the smallest v0 message; the broker's file reader requires it of any batch
MIN_V1_LENGTH = 22
UNUSED_ATTRIBUTES = ~0x7F

_new_tuple: Callable[..., BatchHeader] = tuple.__new__
_new_row: Callable[..., ScannedBatch] = tuple.__new__


class Problem(NamedTuple):
    """A broken rule of one batch."""

    check_id: str
    reason: str


class Neighbours:
    """The state of the batches before, with which the next batch is judged.

    Attributes:
        last_offset: of the last trusted batch, or -1 before the first.
        leader_epoch: of the last trusted v2 batch, or -1 if unknown.
        min_offset, max_offset: the range by the segment's base offset (SEG-2, SEG-3), and by the
            next segment's (SEG-1).
        end_offset: the base offset of the next segment, or None if there is none or it is
            unavailable.
    """

    __slots__ = ("end_offset", "last_offset", "leader_epoch", "max_offset", "min_offset")

    def __init__(
        self, base_offset: int | None, end_offset: int | None = None, reached_offset: int = 0
    ) -> None:
        """Begin a segment. If `base_offset` is None (unknown), any offset >= 0 is in range.

        If the log is known to have `reached_offset`, offsets above the limit of the segment are
        right. A broker splits it and loses nothing (LocalLog.splitOverflowedSegment).
        """
        self.end_offset = end_offset
        self.min_offset = base_offset or 0
        self.max_offset = MAX_OFFSET
        if base_offset is not None and reached_offset <= base_offset + MAX_RELATIVE_OFFSET + 1:
            self.max_offset = min(MAX_OFFSET, base_offset + MAX_RELATIVE_OFFSET)
        if end_offset is not None:
            self.max_offset = min(self.max_offset, end_offset - 1)
        self.last_offset = -1
        self.leader_epoch = -1

    @property
    def before(self) -> int:
        """The highest offset that is taken, or below the segment."""
        return max(self.last_offset, self.min_offset - 1)

    def pass_over(self, table: HeaderTable) -> None:
        """Count healthy v2 batches, at least one, as the batches before."""
        self.last_offset = int(table.last_offset[-1])
        self.leader_epoch = max(self.leader_epoch, int(table.partition_leader_epoch.max()))

    def is_in_range(self, header: BatchHeader) -> bool:
        """Return whether the segment may contain a batch, by its offsets."""
        return self.min_offset <= header.base_offset and header.last_offset <= self.max_offset


def scan_window(
    buf: bytearray | bytes,
    start_pos: int,
    end_pos: int,
    *,
    file_pos: int,
    neighbours: Neighbours,
    verify_crc: bool,
) -> tuple[list[ScannedBatch], int]:
    """Walk healthy v2 batches that lie wholly in buf[start_pos:end_pos].

    Returns the rows and the position in `buf` where it stopped. That is `end_pos`, a batch that is
    not whole before `end_pos`, or a batch that `parse_frame` and `judge` must check. `file_pos` is
    the place of buf[0] in the file. `neighbours` is updated.
    """
    rows: list[ScannedBatch] = []
    append, unpack, new_header, new_row = rows.append, HEADER.unpack_from, _new_tuple, _new_row
    checksum = load_crc32c()
    last_offset, leader_epoch = neighbours.last_offset, neighbours.leader_epoch
    min_offset, max_offset = neighbours.min_offset, neighbours.max_offset
    crc_ok = True if verify_crc else None
    last_header_pos = end_pos - HEADER_BYTES
    pos = start_pos
    with memoryview(buf) as view:
        while pos <= last_header_pos:
            fields = unpack(buf, pos)
            base_offset, length, epoch, magic, crc, attributes, delta = fields[:7]
            next_pos = pos + LOG_OVERHEAD_BYTES + length
            if magic != MAGIC_V2 or length < MIN_BATCH_LENGTH or next_pos > end_pos:
                break
            if verify_crc and checksum(view[pos + CRC_START_POS : next_pos]) != crc:
                break
            if (
                base_offset <= last_offset
                or base_offset < min_offset
                or base_offset + delta > max_offset
                or delta < 0
                or not 0 <= fields[12] <= delta + 1
                or attributes & CODEC_MASK > MAX_CODEC
                or attributes & UNUSED_ATTRIBUTES
                or (epoch < leader_epoch and epoch != -1)
            ):
                break
            if epoch > -1:
                leader_epoch = epoch
            last_offset = base_offset + delta
            append(new_row(ScannedBatch, (file_pos + pos, new_header(BatchHeader, fields), crc_ok)))
            pos = next_pos
    neighbours.last_offset, neighbours.leader_epoch = last_offset, leader_epoch
    return rows, pos


def parse_frame(buf: bytearray | bytes, pos: int) -> BatchHeader:
    """Read a header as the broker's file reader does: magic below 2 is legacy, the rest is v2.

    The caller has checked that length >= 14 and that 61 bytes (legacy: 26) are in the buffer.
    """
    if _magic_at(buf, pos) >= MAGIC_V2:
        return _new_tuple(BatchHeader, HEADER.unpack_from(buf, pos))
    offset, length, crc, magic, attributes, timestamp_ms = LEGACY_HEADER.unpack_from(buf, pos)
    if magic == 0:
        timestamp_ms = -1
    return BatchHeader(
        base_offset=offset,
        batch_length=length,
        partition_leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp_ms=-1,
        max_timestamp_ms=timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=-1,
    )


def _magic_at(buf: bytearray | bytes, pos: int) -> int:
    magic = buf[pos + PREFIX_BYTES - 1]
    return magic - 256 if magic > 127 else magic


def crc_start_pos(magic: int) -> int:
    """Return the start of the checksummed bytes in a batch."""
    return CRC_START_POS if magic >= MAGIC_V2 else LEGACY_CRC_START_POS


def compute_checksum(view: memoryview, magic: int) -> int:
    """Return the checksum of the bytes from `crc_start_pos` to the end of the batch."""
    return load_crc32c()(view) if magic >= MAGIC_V2 else crc32(view)


def extend_checksum(view: memoryview, magic: int, value: int) -> int:
    """Extend the checksum `value` of earlier bytes by `view`. Start with 0."""
    if magic < MAGIC_V2:
        return crc32(view, value)
    checksum: Callable[..., int] = load_crc32c()
    return checksum(view, value)


def judge(
    header: BatchHeader, crc_ok: bool | None, neighbours: Neighbours, doubt: str = ""
) -> Problem | None:
    """Return the first broken rule of a whole batch. A trusted batch becomes the last neighbour.

    `crc_ok` None means that the checksum was not computed. `doubt` is why the batches behind it
    contradict its offset, if they do.
    """
    offset, last_offset = header.base_offset, header.last_offset
    own = _own_problem(header, crc_ok)
    if own is not None and own.check_id != "BAT-7":
        return own
    if offset < neighbours.min_offset:
        least = neighbours.min_offset
        return own or Problem("SEG-2", f"base offset {offset} is below the segment's {least}")
    if last_offset > neighbours.max_offset:
        return own or _beyond(last_offset, neighbours)
    before = neighbours.last_offset
    if offset <= before:
        doubt = f"offset {offset} is not above {before} of the batch before"
    if doubt:
        return own or Problem("BAT-3", doubt)
    neighbours.last_offset = last_offset
    if header.magic == MAGIC_V2 and header.partition_leader_epoch > -1:
        neighbours.leader_epoch = header.partition_leader_epoch
    return own


def _beyond(last_offset: int, neighbours: Neighbours) -> Problem:
    end_offset, most = neighbours.end_offset, neighbours.max_offset
    if end_offset is not None and most == end_offset - 1:
        reason = f"last offset {last_offset} is not below {end_offset}, where the segment ends"
        return Problem("SEG-1", reason)
    return Problem("SEG-3", f"last offset {last_offset} is above the limit {most}")


def _own_problem(header: BatchHeader, crc_ok: bool | None) -> Problem | None:
    """Return the broken rule of a batch, without its neighbours."""
    magic, length, delta = header.magic, header.batch_length, header.last_offset_delta
    if not 0 <= magic <= MAGIC_V2:
        return Problem("BAT-2", f"magic {magic} is not in 0..2")
    least = (MIN_LENGTH, MIN_V1_LENGTH, MIN_BATCH_LENGTH)[magic]
    if length < least:
        return Problem("BAT-2", f"length {length} is below {least}, the least of magic {magic}")
    if crc_ok is False:
        return Problem("BAT-1", f"checksum {header.crc} does not match")
    if magic == MAGIC_V2 and (delta < 0 or not 0 <= header.records_count <= delta + 1):
        count = header.records_count
        return Problem("BAT-4", f"{count} records with last offset delta {delta}")
    if not is_known(header.codec, magic):
        return Problem("BAT-7", f"codec {header.codec} is unknown in magic {magic}")
    return None


def suspect(header: BatchHeader, leader_epoch_before: int) -> list[Problem]:
    """Return the parts of a batch with a right checksum that no healthy broker writes."""
    problems: list[Problem] = []
    if header.magic != MAGIC_V2:
        return problems
    if header.attributes & UNUSED_ATTRIBUTES:
        problems.append(Problem("BAT-10", f"unused bits set in attributes {header.attributes:#x}"))
    epoch = header.partition_leader_epoch
    if epoch < leader_epoch_before and epoch != -1:
        reason = f"leader epoch {epoch} after {leader_epoch_before}"
        problems.append(Problem("BAT-14", reason))
    return problems
