"""Offset index (`.index`): log offset -> position in the segment. Derived from the `.log`.

    pos  width  type   field            unit    meaning
      0      4  int32  relative_offset  offset  log offset minus the segment's base offset
      4      4  int32  segment_pos      bytes   first byte of a batch in the `.log`

The offset is the last offset of the batch at that position. In older releases it is the last offset
of the append, and up to 1.1 the first offset. The file is valid if and only if these rules hold
(further rules need the `.log`):

- IDX-1: its length is a multiple of 8.
- IDX-2: both fields are >= 0 and greater than in the entry before. Only zeros follow the logical
  end.

Logical end: the first entry after entry 0 with a relative offset of 0. If entry 0 is (0, 0) and
such an entry or nothing follows, the file has no entries. Tail: zeros, preallocated for the active
segment. A broker trims it on roll, on a clean stop and in recovery. IDX-5 depends on the
directory's state and is not judged here. The file has no checksum.
"""

from __future__ import annotations

from itertools import islice
from operator import ge
from struct import Struct, unpack
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError, TruncatedError
from storage.formats.index_entries import EntrySequence, first_data_pos, used_entry_count
from storage.limits import require_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.limits import Buf

ENTRY = Struct(">ii")
ENTRY_BYTES = 8
RELATIVE_OFFSET_POS = 0

DEFAULT_INDEX_BYTES = 10_485_760  # segment.index.bytes


class OffsetIndexEntry(NamedTuple):
    """One entry. The batch at `segment_pos` ends at base offset + `relative_offset`."""

    relative_offset: int
    segment_pos: int


def preallocated_bytes(segment_index_bytes: int = DEFAULT_INDEX_BYTES) -> int:
    """Return the size that a broker gives the index of an active segment (AbstractIndex)."""
    return segment_index_bytes // ENTRY_BYTES * ENTRY_BYTES


def logical_entry_count(buf: Buf) -> int:
    """Return the number of entries before the logical end. Never raises."""
    return used_entry_count(buf, entry_bytes=ENTRY_BYTES, relative_offset_pos=RELATIVE_OFFSET_POS)


def parse_entry(buf: Buf, pos: int) -> OffsetIndexEntry:
    """Read one entry at `pos`. Checks bounds only.

    Raises:
        TruncatedError: IDX-1, fewer than 8 bytes are left.
    """
    require_bytes(buf, pos, ENTRY_BYTES, "offset index entry", check_id="IDX-1")
    return OffsetIndexEntry._make(ENTRY.unpack_from(buf, pos))


def encode_entry(entry: OffsetIndexEntry) -> bytes:
    """Return the 8 bytes of an entry."""
    return ENTRY.pack(*entry)


def parse_entries(buf: Buf) -> Sequence[OffsetIndexEntry]:
    """Read all entries up to the logical end, in file order, valid or not. Never raises."""
    end_pos = logical_entry_count(buf) * ENTRY_BYTES
    return EntrySequence(ENTRY, OffsetIndexEntry._make, memoryview(buf)[:end_pos])


def encode_entries(entries: Iterable[OffsetIndexEntry], *, file_bytes: int = 0) -> bytes:
    """Return the file: trimmed, or with zeros up to `file_bytes` as on a running broker."""
    return b"".join(ENTRY.pack(*entry) for entry in entries).ljust(file_bytes, b"\0")


def problems(buf: Buf, base_offset: int) -> list[FormatError]:
    """Judge the file alone: the first break of each rule (IDX-1, IDX-2) by position.

    Args:
        buf: the whole file.
        base_offset: base offset of the segment, for absolute offsets in the texts.
    """
    whole_bytes = len(buf) // ENTRY_BYTES * ENTRY_BYTES
    found: list[FormatError] = []
    entry_count = logical_entry_count(buf)
    end_pos = entry_count * ENTRY_BYTES
    fields = unpack(f">{2 * entry_count}i", memoryview(buf)[:end_pos])
    for column, (name, origin) in enumerate((("offset", base_offset), ("position", 0))):
        problem = _not_increasing(fields[column::2], name, origin)
        if problem is not None:
            problem.pos = problem.pos * ENTRY_BYTES + column * 4
            found.append(problem)
    stray_pos = first_data_pos(memoryview(buf)[:whole_bytes], end_pos)
    if stray_pos is not None:
        found.append(
            CorruptError(
                "bytes after the last entry",
                check_id="IDX-2",
                pos=stray_pos,
                expected=f"zeros after entry {entry_count}",
                found=f"0x{buf[stray_pos]:02x}",
            )
        )
    if whole_bytes != len(buf):
        found.append(
            TruncatedError(
                "offset index entry",
                check_id="IDX-1",
                pos=whole_bytes,
                needed_bytes=ENTRY_BYTES,
                available_bytes=len(buf) - whole_bytes,
            )
        )
    return sorted(found, key=lambda problem: problem.pos)


def _not_increasing(values: Sequence[int], name: str, origin: int) -> CorruptError | None:
    """Return a fault for the first value that is negative or not above the value before.

    `pos` is its entry number.
    """
    if not values:
        return None
    index = None
    if values[0] < 0:
        index = 0
    elif any(map(ge, values, islice(values, 1, None))):
        index = next(i for i in range(1, len(values)) if values[i] <= values[i - 1])
    if index is None:
        return None
    least = origin if index == 0 else origin + values[index - 1] + 1
    return CorruptError(
        f"{name} of entry {index} is too small",
        check_id="IDX-2",
        pos=index,
        expected=f"{name} >= {least}",
        found=f"{name} {origin + values[index]}",
    )
