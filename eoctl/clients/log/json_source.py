"""Strings inside of a buffer as JSON has them: which may be copied, and where the escaped ones are.

The whole buffer is escaped at once, what lies between the strings too: each quote and backslash
grows by one byte, so a string begins as many bytes later as there are of these before it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Ints = NDArray[np.int64]

# Of bytes, and of strings that have one of them: the more there is to do, the higher.
QUOTES, ODD, HIGH = 1, 2, 4
_CLASSES = bytes(
    HIGH if each >= 0x80 else ODD if each < 0x20 else QUOTES if each in b'"\\' else 0
    for each in range(256)
)


class JsonSource:
    """A buffer, looked through and escaped once for all its strings."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def kinds(self, pos: Ints, size_bytes: Ints) -> Bytes:
        """Tell what strings are: 0 as they stand in JSON, QUOTES to be escaped, ODD anything else.

        The strings are in their order in the buffer; a negative size is none.
        """
        kinds = np.zeros(len(pos), np.uint8)
        filled = np.flatnonzero(size_bytes > 0)
        if not len(filled):
            return kinds
        first, last = int(pos[filled[0]]), int(pos[filled[-1]] + size_bytes[filled[-1]])
        edges = np.empty(2 * len(filled), np.int64)
        edges[::2] = pos[filled] - first
        edges[1::2] = edges[::2] + size_bytes[filled]
        found = np.bitwise_or.reduceat(self._classes[first : last + 1], edges)[::2]
        rows = filled[found & HIGH != 0]
        # What stands between keeps a cut character from being completed by the next string.
        is_text = not len(rows) or _is_utf8(b" ".join(self.strings(pos[rows], size_bytes[rows])))
        kinds[filled] = found & (QUOTES | ODD if is_text else QUOTES | ODD | HIGH)
        return kinds

    def strings(self, pos: Ints, size_bytes: Ints) -> list[bytes]:
        """Return some strings."""
        data = self._data
        bounds = zip(pos.tolist(), (pos + size_bytes).tolist(), strict=True)
        return [data[start:end] for start, end in bounds]

    def escaped(self, pos: Ints, size_bytes: Ints) -> tuple[Bytes, Ints, Ints]:
        """Return a buffer, and where in it the strings are and how long, with quotes escaped."""
        start = pos + np.searchsorted(self._quotes_pos, pos)
        end_pos = pos + size_bytes
        end = end_pos + np.searchsorted(self._quotes_pos, end_pos)
        return self._escaped, start, end - start

    @cached_property
    def _classes(self) -> Bytes:
        # One byte more, so that the end of the last string is a place in it, too.
        return np.frombuffer(self._data.translate(_CLASSES) + b"\0", np.uint8)

    @cached_property
    def _quotes_pos(self) -> Ints:
        return np.flatnonzero(self._classes == QUOTES)

    @cached_property
    def _escaped(self) -> Bytes:
        escaped = self._data.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        return np.frombuffer(escaped, np.uint8)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
