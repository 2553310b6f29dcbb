"""What was found in many directories, so that few of them are in memory at a time.

A summary grows with the producer ids of its directory: unpacked it takes five times what it takes
packed and more. So what may be large is held packed, and unpacked when its directory's turn has
come. Up to `HELD_BYTES` are kept in memory, the rest in a file that has no name (or loses it at
once), so that nothing stays behind, not even of a killed process.
"""

from __future__ import annotations

import os
import tempfile
from errno import EIO
from typing import IO, TYPE_CHECKING, Protocol
from weakref import finalize

from recovery.summaries.codec import pack_partition, unpack_partition
from storage.errors import AccessError

if TYPE_CHECKING:
    from recovery.summaries.partition import PartitionSummary

HELD_BYTES = 64 << 20  # packed, in memory
NEXT_STEP = "TMPDIR=DIR on a file system with more space"


class HeldSummary(Protocol):
    """What was found in a directory."""

    def unpacked(self) -> PartitionSummary:
        """Return it; it is made anew each time where it is held packed."""

    def packed(self) -> bytes:
        """Return what `pack_partition` makes of it."""


class LoadedSummary:
    """One that is in memory as it is."""

    def __init__(self, found: PartitionSummary) -> None:
        self._found = found

    def unpacked(self) -> PartitionSummary:
        """Return it."""
        return self._found

    def packed(self) -> bytes:
        """Pack it."""
        return pack_partition(self._found)


class Shelf:
    """Packed summaries: the first ones in memory, others in a file.

    Attributes:
        in_memory_bytes, in_file_bytes: so far.
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        """`memory_bytes`: that may be in memory; None: HELD_BYTES."""
        self._memory_bytes = HELD_BYTES if memory_bytes is None else memory_bytes
        self.in_memory_bytes = self.in_file_bytes = 0
        self._file: IO[bytes] | None = None

    def put(self, packed: bytes | bytearray) -> HeldSummary:
        """Take one. Raises AccessError: it cannot be written."""
        if self.in_memory_bytes + len(packed) <= self._memory_bytes:
            self.in_memory_bytes += len(packed)
            return _InMemory(bytes(packed))
        start_pos = self.in_file_bytes
        left = memoryview(packed)
        try:
            if self._file is None:
                self._file = _new_file()
                finalize(self, self._file.close)
            while left:
                left = left[self._file.write(left) :]
        except OSError as exc:
            raise AccessError(exc, tempfile.gettempdir(), next_step=NEXT_STEP) from exc
        self.in_file_bytes += len(packed)
        return _InFile(self, start_pos, len(packed))

    def read(self, start_pos: int, size_bytes: int) -> bytes:
        """Read from the file. Raises AccessError."""
        assert self._file is not None
        parts = []
        try:
            while size_bytes:
                part = os.pread(self._file.fileno(), size_bytes, start_pos)
                if not part:
                    raise OSError(EIO, "the temporary file has become shorter")  # noqa: TRY301
                parts.append(part)
                start_pos += len(part)
                size_bytes -= len(part)
        except OSError as exc:
            raise AccessError(exc, tempfile.gettempdir(), next_step=NEXT_STEP) from exc
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _new_file() -> IO[bytes]:
    # Not buffered: what is left in a buffer after an error would be tried again at the end.
    return tempfile.TemporaryFile(prefix="eoctl-", buffering=0)


class _InMemory:
    """A packed one."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed

    def unpacked(self) -> PartitionSummary:
        return unpack_partition(self._packed)

    def packed(self) -> bytes:
        return self._packed


class _InFile:
    """One in the file of a shelf."""

    def __init__(self, shelf: Shelf, start_pos: int, size_bytes: int) -> None:
        self._shelf = shelf
        self._start_pos = start_pos
        self._size_bytes = size_bytes

    def unpacked(self) -> PartitionSummary:
        return unpack_partition(self.packed())

    def packed(self) -> bytes:
        return self._shelf.read(self._start_pos, self._size_bytes)
