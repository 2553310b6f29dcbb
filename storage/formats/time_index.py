"""Time index (`.timeindex`): timestamp -> log offset. Derived from the `.log`.

    pos  width  type   field            unit    meaning
      0      8  int64  timestamp_ms     ms      largest timestamp in the segment so far
      8      4  int32  relative_offset  offset  last offset of the earliest batch that has it, minus
                                                the segment's base offset

Any record with a larger timestamp comes after that offset. The file is valid if and only if these
rules hold (further rules need the `.log`):

- IDX-1: its length is a multiple of 12.
- TIM-1: timestamps are >= 0 and strictly increase. Relative offsets are >= 0 and do not decrease.
  Only zeros follow the logical end.

Logical end: the first entry after entry 0 with a relative offset of 0. Entry 0 may have a relative
offset of 0, with its timestamp. (0, 0) as entry 0 means no entries when zeros follow. Alone in a
file of 12 bytes it is an entry (timestamp 0), since no broker preallocates so little.

Tail: zeros, as in `offset_index`. The file has no checksum.
"""

from __future__ import annotations

from itertools import islice
from operator import ge, gt
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError, TruncatedError
from storage.formats.index_entries import EntrySequence, first_data_pos, used_entry_count
from storage.formats.offset_index import DEFAULT_INDEX_BYTES
from storage.limits import require_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from storage.limits import Buf

ENTRY = Struct(">qi")
ENTRY_BYTES = 12
RELATIVE_OFFSET_POS = 8


class TimeIndexEntry(NamedTuple):
    """One entry. `timestamp_ms` is the maximum up to base offset + `relative_offset`."""

    timestamp_ms: int
    relative_offset: int


def preallocated_bytes(segment_index_bytes: int = DEFAULT_INDEX_BYTES) -> int:
    """Return the size that a broker gives the index of an active segment (AbstractIndex)."""
    return segment_index_bytes // ENTRY_BYTES * ENTRY_BYTES


def logical_entry_count(buf: Buf) -> int:
    """Return the number of entries before the logical end. Never raises."""
    if len(buf) == ENTRY_BYTES:
        return 1
    return used_entry_count(buf, entry_bytes=ENTRY_BYTES, relative_offset_pos=RELATIVE_OFFSET_POS)


def parse_entry(buf: Buf, pos: int) -> TimeIndexEntry:
    """Read one entry at `pos`. Checks bounds only.

    Raises:
        TruncatedError: IDX-1, fewer than 12 bytes are left.
    """
    require_bytes(buf, pos, ENTRY_BYTES, "time index entry", check_id="IDX-1")
    return TimeIndexEntry._make(ENTRY.unpack_from(buf, pos))


def encode_entry(entry: TimeIndexEntry) -> bytes:
    """Return the 12 bytes of an entry."""
    return ENTRY.pack(*entry)


def parse_entries(buf: Buf) -> Sequence[TimeIndexEntry]:
    """Read all entries up to the logical end, in file order, valid or not. Never raises."""
    end_pos = logical_entry_count(buf) * ENTRY_BYTES
    return EntrySequence(ENTRY, TimeIndexEntry._make, memoryview(buf)[:end_pos])


def encode_entries(entries: Iterable[TimeIndexEntry], *, file_bytes: int = 0) -> bytes:
    """Return the file: trimmed, or with zeros up to `file_bytes` as on a running broker."""
    return b"".join(ENTRY.pack(*entry) for entry in entries).ljust(file_bytes, b"\0")


def problems(buf: Buf, base_offset: int) -> list[FormatError]:
    """Judge the file alone: the first break of each rule (IDX-1, TIM-1) by position.

    Args:
        buf: the whole file.
        base_offset: base offset of the segment, for absolute offsets in the texts.
    """
    whole_bytes = len(buf) // ENTRY_BYTES * ENTRY_BYTES
    found: list[FormatError] = []
    entries = parse_entries(buf)
    end_pos = len(entries) * ENTRY_BYTES
    timestamps, relative_offsets = zip(*entries, strict=True) if entries else ((), ())
    for values, name, origin, is_bad, field_pos in (
        (timestamps, "timestamp", 0, ge, 0),
        (relative_offsets, "offset", base_offset, gt, RELATIVE_OFFSET_POS),
    ):
        problem = _disorder(values, name, origin, is_bad)
        if problem is not None:
            problem.pos = problem.pos * ENTRY_BYTES + field_pos
            found.append(problem)
    stray_pos = first_data_pos(memoryview(buf)[:whole_bytes], end_pos)
    if stray_pos is not None:
        found.append(
            CorruptError(
                "bytes after the last entry",
                check_id="TIM-1",
                pos=stray_pos,
                expected=f"zeros after entry {len(entries)}",
                found=f"0x{buf[stray_pos]:02x}",
            )
        )
    if whole_bytes != len(buf):
        found.append(
            TruncatedError(
                "time index entry",
                check_id="IDX-1",
                pos=whole_bytes,
                needed_bytes=ENTRY_BYTES,
                available_bytes=len(buf) - whole_bytes,
            )
        )
    return sorted(found, key=lambda problem: problem.pos)


def _disorder(
    values: Sequence[int], name: str, origin: int, is_bad: Callable[[int, int], bool]
) -> CorruptError | None:
    """Return a fault for the first value that is negative or wrong after the value before.

    `pos` is its entry number. `is_bad(previous, value)` is `ge` for values that must increase, `gt`
    if equal values may follow.
    """
    if not values:
        return None
    index = None
    if values[0] < 0:
        index = 0
    elif any(map(is_bad, values, islice(values, 1, None))):
        index = next(i for i in range(1, len(values)) if is_bad(values[i - 1], values[i]))
    if index is None:
        return None
    least = origin if index == 0 else origin + values[index - 1] + (is_bad is ge)
    return CorruptError(
        f"{name} of entry {index} is too small",
        check_id="TIM-1",
        pos=index,
        expected=f"{name} >= {least}",
        found=f"{name} {origin + values[index]}",
    )
