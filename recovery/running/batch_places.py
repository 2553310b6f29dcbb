"""Where each batch of a log that is written to lies, in columns.

A broker that runs for long has a million of them. As values they would take a hundred megabytes,
through which the garbage collector walks again and again.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from storage.os_errors import os_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_INT64 = "q"


class BatchPlaces:
    """The batches of a log, in the order of their offsets.

    Attributes:
        base_offsets, last_offsets: of each batch.
    """

    def __init__(self) -> None:
        self.base_offsets = array(_INT64)
        self.last_offsets = array(_INT64)
        self._begins = array(_INT64)  # positions in the `.log`
        self._ends = array(_INT64)
        self._files: list[tuple[int, str]] = []  # the first row of each `.log`, and its path

    def __len__(self) -> int:
        return len(self.base_offsets)

    def add(self, base_offset: int, last_offset: int, path: str, batch_bytes: int) -> None:
        """Take the next batch: behind the one before, or the first one of another file."""
        begin = 0
        if self._files and self._files[-1][1] == path:
            begin = self._ends[-1]
        else:
            self._files.append((len(self.base_offsets), path))
        self.base_offsets.append(base_offset)
        self.last_offsets.append(last_offset)
        self._begins.append(begin)
        self._ends.append(begin + batch_bytes)

    def rows(self, offset: int, end_offset: int, max_bytes: int) -> range:
        """Give the batches from the one with `offset` on, all below `end_offset`; at least one."""
        row = first = bisect_left(self.last_offsets, offset)
        taken_bytes = 0
        while row < len(self.last_offsets) and self.last_offsets[row] < end_offset:
            taken_bytes += self._ends[row] - self._begins[row]
            if row > first and taken_bytes > max_bytes:
                break
            row += 1
        return range(first, row)

    def read(self, rows: range) -> Iterator[bytes]:
        """Read batches. Raises AccessError."""
        stops = [row for row, _ in self._files[1:]] + [len(self)]
        for (first, path), stop in zip(self._files, stops, strict=True):
            here = range(max(first, rows.start), min(stop, rows.stop))
            if here:
                yield from self._read_file(path, here)

    def _read_file(self, path: str, rows: range) -> Iterator[bytes]:
        """Read batches that lie behind each other in one file."""
        begin, end = self._begins[rows[0]], self._ends[rows[-1]]
        with os_errors(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(fd, end - begin, begin)
            finally:
                os.close(fd)
        for row in rows:
            yield data[self._begins[row] - begin : self._ends[row] - begin]
