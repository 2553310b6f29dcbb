"""Index of aborted transactions (`.txnindex`): the offset ranges that read_committed must hide.

    pos  width  type   field              unit   meaning
      0      2  int16  version                   0
      2      8  int64  producer_id
     10      8  int64  first_offset       offset of the transaction's first record in this partition
     18      8  int64  last_offset        offset of the ABORT marker, which is in this segment
     26      8  int64  last_stable_offset offset when the marker was appended

There is one entry per aborted transaction whose marker is in the segment. Offsets are absolute. The
file does not exist before its first entry. Zero bytes are normal too. Valid if and only if these
rules hold (further rules need the `.log`):

- TXI-1: the length is a multiple of 34 and every version is 0.
- TXI-2: last_offset strictly increases, is >= the segment's base offset and < the next segment's. 0
  <= first_offset <= last_offset (equal: a marker without data, before 2.8).
- TXI-7: last_stable_offset >= 0.

Tail: brokers ignore a fragment, but the next append follows it, and all later entries are
misaligned. The file is never preallocated and has no checksum.

A broker reads only the high byte of the version, so it takes 1 to 255 as 0. Here the version has 16
bits and never stops the parser, since the width of an entry does not depend on it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError, TruncatedError
from storage.limits import require_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.limits import Buf

ENTRY = Struct(">hqqqq")
ENTRY_BYTES = 34
VERSION = 0

FIELD_POS = {"version": 0, "first_offset": 10, "last_offset": 18, "last_stable_offset": 26}


class AbortedTxn(NamedTuple):
    """One aborted transaction. `last_offset` is the offset of its marker."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_entry(buf: Buf, pos: int) -> AbortedTxn:
    """Read one entry at `pos`. Checks bounds only. Any version is returned as it is.

    Raises:
        TruncatedError: TXI-1, fewer than 34 bytes are left.
    """
    require_bytes(buf, pos, ENTRY_BYTES, "aborted transaction", check_id="TXI-1")
    return AbortedTxn._make(ENTRY.unpack_from(buf, pos))


def encode_entry(entry: AbortedTxn) -> bytes:
    """Return the 34 bytes of an entry."""
    return ENTRY.pack(*entry)


def parse_entries(buf: Buf) -> list[AbortedTxn]:
    """Read all whole entries in file order, valid or not, without a trailing fragment."""
    end_pos = len(buf) // ENTRY_BYTES * ENTRY_BYTES
    return list(map(AbortedTxn._make, ENTRY.iter_unpack(memoryview(buf)[:end_pos])))


def encode_entries(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the file."""
    return b"".join(ENTRY.pack(*entry) for entry in entries)


def problems(buf: Buf, base_offset: int, next_base_offset: int | None = None) -> list[FormatError]:
    """Judge the file alone: the first break of each part of TXI-1, TXI-2 and TXI-7, by position.

    Args:
        buf: the whole file.
        base_offset: base offset of the segment.
        next_base_offset: base offset of the next segment, None for the last segment.
    """
    found: dict[tuple[str, str], FormatError] = {}

    def report(check_id: str, entry_index: int, field: str, expected: str, value: int) -> None:
        found.setdefault(
            (check_id, field),
            CorruptError(
                f"{field} of entry {entry_index} is wrong",
                check_id=check_id,
                pos=entry_index * ENTRY_BYTES + FIELD_POS[field],
                expected=expected,
                found=str(value),
            ),
        )

    least_offset = base_offset
    for i, txn in enumerate(parse_entries(buf)):
        if txn.version != VERSION:
            report("TXI-1", i, "version", str(VERSION), txn.version)
        if txn.last_offset < least_offset:
            report("TXI-2", i, "last_offset", f">= {least_offset}", txn.last_offset)
        elif next_base_offset is not None and txn.last_offset >= next_base_offset:
            report("TXI-2", i, "last_offset", f"< {next_base_offset}", txn.last_offset)
        # Equal: if the data were cleaned, 1.1 recorded the marker itself as the first offset.
        if not 0 <= txn.first_offset <= txn.last_offset:
            report(
                "TXI-2", i, "first_offset", f"0 <= offset <= {txn.last_offset}", txn.first_offset
            )
        if txn.last_stable_offset < 0:
            report("TXI-7", i, "last_stable_offset", ">= 0", txn.last_stable_offset)
        least_offset = txn.last_offset + 1
    fragment_bytes = len(buf) % ENTRY_BYTES
    if fragment_bytes:
        found["TXI-1", "length"] = TruncatedError(
            "aborted transaction",
            check_id="TXI-1",
            pos=len(buf) - fragment_bytes,
            needed_bytes=ENTRY_BYTES,
            available_bytes=fragment_bytes,
        )
    return sorted(found.values(), key=lambda problem: problem.pos)
