"""Bytes on their way to a client: they are seen once more to be the batches that were verified.

A file may be changed in place, or be given otherwise by a failing disk, after its batches were
verified. So the checksum of each batch is computed again from the very bytes that are sent, and
its offset and length are compared. Where they differ the response ends in the middle, so that no
client comes to use any of it, and the file is walked anew for who asks next.

Of a batch that is larger than what is read at a time the last part decides. What no checksum
covers and no neighbour tells, the leader epoch, is taken as it is.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from typing import TYPE_CHECKING

from storage.errors import AccessError
from storage.formats.record_batch import MAGIC_V2
from storage.kernels.protocol import HeaderTable
from storage.kernels.pure import compute_checksum, crc_start_pos, extend_checksum, parse_frame
from storage.kernels.select import load_native
from storage.limits import MAX_OFFSET

if TYPE_CHECKING:
    from eoctl.serve.logs.gathered import SentBatches
    from eoctl.serve.logs.open_files import Opened
    from storage.formats.record_batch import BatchHeader

READ_BYTES = 1 << 19  # at a time
MANY = 16  # batches, at which the native kernel looks in less time
_ANY = 0, MAX_OFFSET, -1, -1  # offsets, last offset and epoch of the batches before
_LAST_OFFSET = HeaderTable._fields.index("last_offset")


class SentBytes:
    """Reads batches that lie one behind the other in a file, part by part, and verifies them."""

    def __init__(self, file: Opened, batches: SentBatches) -> None:
        self._file = file
        self._starts, self._ends, self._last_offsets = batches
        self._next = 0  # the batch that is read next, or of which a part was
        self._pos = self._starts[0]
        self._large: BatchHeader | None = None  # of which a part was read
        self._checksum = 0  # of that part
        self._native = load_native()

    def read(self) -> bytes:
        """Return the next part; b"" at the end.

        Raises:
            AccessError: it cannot be read any more, or is not what was verified.
        """
        if self._next == len(self._starts):
            return b""
        reach_pos = self._pos + READ_BYTES
        until = bisect_right(self._ends, reach_pos)
        is_part = until == self._next or self._large is not None
        end_pos = min(self._ends[self._next], reach_pos) if is_part else self._ends[until - 1]
        data = self._bytes(end_pos)
        if is_part:
            is_right = self._is_part_right(data)
            until = self._next + (end_pos == self._ends[self._next])
        else:
            is_right = self._are_many_right(data, until) or self._are_right(data, until)
        if not is_right:
            raise self._error(errno.ESTALE, "was changed in place")
        self._next, self._pos = until, end_pos
        return data

    def _bytes(self, end_pos: int) -> bytes:
        count = end_pos - self._pos
        reading = self._file.read_at(self._pos, count)
        if reading.unreadable:
            raise self._error(reading.unreadable[0].errno, "became unreadable")
        if len(reading.data) < count:
            raise self._error(errno.ESTALE, "became shorter")
        return reading.data

    def _error(self, code: int, words: str) -> AccessError:
        self._file.doubt()
        return AccessError(OSError(code, f"{words} since it was verified"), self._file.path)

    def _header(self, data: bytes, pos: int, place: int) -> BatchHeader | None:
        """Read what a batch begins with; None: it is not the one that was verified."""
        header = parse_frame(data, pos)
        size_bytes = self._ends[place] - self._starts[place]
        is_same = (
            header.magic <= MAGIC_V2
            and header.batch_bytes == size_bytes
            and header.last_offset == self._last_offsets[place]
        )
        return header if is_same else None

    def _are_right(self, data: bytes, until: int) -> bool:
        """Whether whole batches are what they were: the definition."""
        with memoryview(data) as view:
            for place in range(self._next, until):
                start, end = self._starts[place] - self._pos, self._ends[place] - self._pos
                header = self._header(data, start, place)
                if header is None:
                    return False
                with view[start + crc_start_pos(header.magic) : end] as body:
                    if compute_checksum(body, header.magic) != header.crc:
                        return False
        return True

    def _are_many_right(self, data: bytes, until: int) -> bool:
        """Say the same of many healthy v2 batches; False: it is not known."""
        count = until - self._next
        if self._native is None or count < MANY:
            return False
        with memoryview(data) as view:
            rows, stop, _, _, columns = self._native.scan_window(
                view, self._pos, _ANY, verify_crc=True
            )
        wanted = self._last_offsets[self._next : until].tobytes()
        return (rows, stop) == (count, len(data)) and columns[_LAST_OFFSET][: len(wanted)] == wanted

    def _is_part_right(self, data: bytes) -> bool:
        """Whether a part of a large batch, the last one at the latest, is what it was."""
        start = 0
        header = self._large
        if header is None:
            header = self._large = self._header(data, 0, self._next)
            if header is None:
                return False
            start, self._checksum = crc_start_pos(header.magic), 0
        with memoryview(data) as view, view[start:] as body:
            self._checksum = extend_checksum(body, header.magic, self._checksum)
        if self._pos + len(data) < self._ends[self._next]:
            return True
        self._large = None
        return self._checksum == header.crc
