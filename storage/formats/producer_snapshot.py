"""Producer snapshot (`.snapshot`): the producer state up to the offset in the file's name.

    pos  width  type    field                     unit    meaning
      0      2  int16   version                           1
      2      4  uint32  crc                               CRC-32C of bytes 6 to the end of the file
      6      4  int32   entry count
     10   46 n          entries

An entry:

    pos  width  type   field                     unit   meaning
      0      8  int64  producer_id
      8      2  int16  producer_epoch                   last seen; a marker may be ahead of the data
     10      4  int32  last_sequence                    of the last cached batch; -1 none
     14      8  int64  last_offset               offset of that batch; -1 none
     22      4  int32  offset_delta              offset last offset minus base offset of that batch
     26      8  int64  timestamp_ms              ms     of the last batch or marker
     34      4  int32  coordinator_epoch                of the last marker; -1 none seen
     38      8  int64  current_txn_first_offset  offset of the open transaction; -1 none

The file is valid if and only if these rules hold:

- SNP-1: the version is 1, the CRC matches and the size is 10 + 46 n.
- SNP-5: producer ids are >= 0 and unique. Epochs are >= 0, except in `blank_entry`, which an empty
  control batch leaves. last_offset and current_txn_first_offset are below the snapshot's offset.
  last_sequence is -1 exactly if last_offset is -1. 0 <= offset_delta <= last_offset (0 if there is
  no batch).

Entries have the iteration order of the broker's hash map. Readers accept any order, and parsing
keeps it. The CRC covers neither version nor CRC. A tail is an error: the broker opens the file
without truncating it, so a longer file of the same name would leave a tail. A broker deletes a file
that breaks SNP-1, and uses the next older file.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from storage.checksum import crc32c
from storage.errors import CorruptError, FormatError, TruncatedError, UnsupportedError
from storage.formats.record_batch import NO_SEQUENCE, decrement_sequence
from storage.limits import require_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.limits import Buf

HEADER = Struct(">hIi")
HEADER_BYTES = 10
CRC_POS = 2
CRC_START_POS = 6
ENTRY = Struct(">qhiqiqiq")
ENTRY_BYTES = 46
VERSION = 1

NO_OFFSET = -1

FIELD_POS = {
    "producer_id": 0,
    "producer_epoch": 8,
    "last_sequence": 10,
    "last_offset": 14,
    "offset_delta": 22,
    "current_txn_first_offset": 38,
}


class ProducerEntry(NamedTuple):
    """State of one producer, fields in the order they are on disk."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def has_batch(self) -> bool:
        """Return whether a batch is cached.

        If not, only markers were seen since the epoch changed.
        """
        return self.last_offset >= 0

    @property
    def first_sequence(self) -> int:
        """Sequence number of the first record of the cached batch, or -1 without a batch."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Base offset of the cached batch, or -1 without a batch."""
        return self.last_offset - self.offset_delta if self.has_batch else NO_OFFSET


def parse_snapshot(buf: Buf) -> list[ProducerEntry]:
    """Read the whole file. The entries keep their order.

    Raises:
        TruncatedError: SNP-1, shorter than its header or its entry count requires.
        UnsupportedError: SNP-1, another version than 1.
        CorruptError: SNP-1, the CRC differs, the count is negative, or bytes follow the entries.
    """
    crc = _parse_header(buf)[0]
    computed = crc32c(memoryview(buf)[CRC_START_POS:])
    if computed != crc:
        raise CorruptError(
            "checksum of the producer snapshot differs",
            check_id="SNP-1",
            pos=CRC_POS,
            expected=f"crc {computed}",
            found=f"crc {crc}",
        )
    size_problem = _size_problem(buf)
    if size_problem is not None:
        raise size_problem
    return list(_entries(buf, len(buf)))


def entries_despite_crc(buf: Buf) -> list[ProducerEntry]:
    """Read the entries without checking the CRC or the exact size.

    Use this only to inspect a damaged file. It returns all whole entries within the file and within
    the entry count (unless it is negative). No entry is trustworthy.

    Raises:
        TruncatedError: SNP-1, shorter than its header.
        UnsupportedError: SNP-1, another version than 1.
    """
    count = _parse_header(buf)[1]
    end_pos = len(buf)
    if count >= 0:
        end_pos = min(end_pos, HEADER_BYTES + count * ENTRY_BYTES)
    return list(_entries(buf, end_pos))


def encode_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """Return the file with the entries in the given order, version 1, and its CRC."""
    file = bytearray(HEADER.pack(VERSION, 0, len(entries)))
    for entry in entries:
        file += ENTRY.pack(*entry)
    file[CRC_POS:CRC_START_POS] = crc32c(memoryview(file)[CRC_START_POS:]).to_bytes(4, "big")
    return bytes(file)


def problems(buf: Buf, snapshot_offset: int | None = None) -> list[FormatError]:
    """Judge the file alone: SNP-1 if it does not parse, else the first break of each part of SNP-5.

    Args:
        buf: the whole file.
        snapshot_offset: the offset in the file's name. None skips the checks that need it.
    """
    try:
        entries = parse_snapshot(buf)
    except FormatError as error:
        return [error]
    found: dict[str, FormatError] = {}
    seen: set[int] = set()
    for i, entry in enumerate(entries):
        for field, expected in _entry_faults(entry, snapshot_offset):
            found.setdefault(field, _entry_problem(i, entry, field, expected))
        if entry.producer_id in seen:
            found.setdefault(
                "unique", _entry_problem(i, entry, "producer_id", "a producer id not yet listed")
            )
        seen.add(entry.producer_id)
    return sorted(found.values(), key=lambda problem: problem.pos)


def _parse_header(buf: Buf) -> tuple[int, int]:
    """Return CRC and entry count, both unverified."""
    require_bytes(buf, 0, HEADER_BYTES, "producer snapshot", check_id="SNP-1")
    version, crc, count = HEADER.unpack_from(buf, 0)
    if version != VERSION:
        raise UnsupportedError(
            "version of the producer snapshot is unknown",
            check_id="SNP-1",
            pos=0,
            expected=f"version {VERSION}",
            found=f"version {version}",
        )
    return crc, count


def _size_problem(buf: Buf) -> FormatError | None:
    """Compare the entry count with the size of the file, before any allocation."""
    count = HEADER.unpack_from(buf, 0)[2]
    if count < 0:
        return CorruptError(
            "entry count of the producer snapshot is negative",
            check_id="SNP-1",
            pos=CRC_START_POS,
            expected="count >= 0",
            found=f"count {count}",
        )
    needed_bytes = HEADER_BYTES + count * ENTRY_BYTES
    if len(buf) < needed_bytes:
        return TruncatedError(
            "producer snapshot",
            check_id="SNP-1",
            pos=len(buf),
            needed_bytes=needed_bytes,
            available_bytes=len(buf),
        )
    if len(buf) > needed_bytes:
        return CorruptError(
            "bytes after the last entry of the producer snapshot",
            check_id="SNP-1",
            pos=needed_bytes,
            expected=f"{needed_bytes} bytes",
            found=f"{len(buf)} bytes",
        )
    return None


def _entries(buf: Buf, end_pos: int) -> Iterator[ProducerEntry]:
    whole_bytes = max(end_pos - HEADER_BYTES, 0) // ENTRY_BYTES * ENTRY_BYTES
    block = memoryview(buf)[HEADER_BYTES : HEADER_BYTES + whole_bytes]
    return map(ProducerEntry._make, ENTRY.iter_unpack(block))


def blank_entry(producer_id: int) -> ProducerEntry:
    """Return the entry of a producer whose only batch was an empty control batch."""
    return ProducerEntry(
        producer_id=producer_id,
        producer_epoch=-1,
        last_sequence=NO_SEQUENCE,
        last_offset=NO_OFFSET,
        offset_delta=0,
        timestamp_ms=-1,
        coordinator_epoch=-1,
        current_txn_first_offset=NO_OFFSET,
    )


def _entry_faults(entry: ProducerEntry, snapshot_offset: int | None) -> Iterator[tuple[str, str]]:
    """Yield the fields of an entry that break SNP-5, with the expected values."""
    if entry.producer_id < 0:
        yield "producer_id", ">= 0"
    # An empty control batch (compacted) of an unknown producer leaves a `blank_entry`.
    if entry.producer_epoch < 0 and entry != blank_entry(entry.producer_id):
        yield "producer_epoch", ">= 0"
    if (entry.last_sequence == NO_SEQUENCE) != (entry.last_offset == NO_OFFSET):
        yield "last_sequence", "-1 exactly if there is no last offset"
    elif entry.last_sequence < NO_SEQUENCE:
        yield "last_sequence", ">= -1"
    if entry.last_offset < NO_OFFSET:
        yield "last_offset", ">= -1"
    elif not 0 <= entry.offset_delta <= max(entry.last_offset, 0):
        yield "offset_delta", f"0 <= delta <= {max(entry.last_offset, 0)}"
    if entry.current_txn_first_offset < NO_OFFSET:
        yield "current_txn_first_offset", ">= -1"
    if snapshot_offset is not None:
        for field in ("last_offset", "current_txn_first_offset"):
            if getattr(entry, field) >= snapshot_offset:
                yield field, f"< {snapshot_offset}, the snapshot's offset"


def _entry_problem(index: int, entry: ProducerEntry, field: str, expected: str) -> CorruptError:
    return CorruptError(
        f"{field} of entry {index} (producer id {entry.producer_id}) is wrong",
        check_id="SNP-5",
        pos=HEADER_BYTES + index * ENTRY_BYTES + FIELD_POS[field],
        expected=expected,
        found=str(getattr(entry, field)),
    )
