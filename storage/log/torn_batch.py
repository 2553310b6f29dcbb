"""Whether what is wrong at the end of a log can be what a crash left of an unsynced batch.

It can be if, at the end of the last segment,
  - the file ends inside of a batch, whose checksum does not come right at the end of the file: then
    it would be whole and its length damaged
  - there are only zeros, from the beginning of the batch or from one of the blocks that a disk
    writes as a whole
Everything else is damage: a batch that was synced and answered may have been there. A broker cuts a
log at either (REC-7); one who must not lose an answer cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.formats.record_batch import CRC, CRC_POS, HEADER_BYTES, compute_crc
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from storage.kernels.protocol import Verdict
    from storage.log.segment import Segment

BLOCK_BYTES = 512
ZEROS_MIN = 8  # a batch may end with a few zeros of its own


def is_torn(segment: Segment, verdict: Verdict) -> bool:
    """Look at the bytes of a verdict about the end of the last segment. Raises AccessError."""
    start_pos, end_pos = verdict.start_pos, verdict.end_pos
    if end_pos < segment.file_bytes or verdict.kind is VerdictKind.UNREADABLE:
        return False
    if verdict.kind is VerdictKind.PREALLOCATED:
        return True
    data = segment.file.read_at(start_pos, end_pos - start_pos).data
    if verdict.kind is VerdictKind.TORN_TAIL:
        return not _has_wrong_length(data)
    return _is_half_written(data, start_pos)


def _has_wrong_length(data: bytes) -> bool:
    return len(data) >= HEADER_BYTES and compute_crc(data) == CRC.unpack_from(data, CRC_POS)[0]


def _is_half_written(data: bytes, start_pos: int) -> bool:
    zeros_pos = start_pos + len(data.rstrip(b"\0"))
    block_pos = -(-zeros_pos // BLOCK_BYTES) * BLOCK_BYTES
    return start_pos + len(data) - block_pos >= ZEROS_MIN
