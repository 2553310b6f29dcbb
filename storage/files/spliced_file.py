"""Ranges of several files, read as one file: a `.log` that a change would make, before it is made.

Reading has the outcomes of a `PositionedFile`; positions, also those of unreadable stretches, are
those in the whole.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import ExitStack
from itertools import accumulate
from typing import TYPE_CHECKING

from storage.files.positioned_file import PositionedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

ZEROS = ""  # as the path of a range: bytes that are in no file


class SplicedFile(PositionedFile):
    """Ranges (path, start, end; in bytes, half open) one behind the other, opened read-only.

    `path` is what the whole is called; a range of ZEROS is of no file. Raises AccessError when one
    of them cannot be opened.
    """

    def __init__(
        self, path: str | os.PathLike[str], ranges: Sequence[tuple[str, int, int]]
    ) -> None:
        self.path = os.fspath(path)
        self._pread = self._read_range
        self._ranges = tuple(ranges)
        sizes = (end_pos - start_pos for _, start_pos, end_pos in self._ranges)
        self._starts = [0, *accumulate(sizes)]
        self._opened = ExitStack()
        self._files: dict[str, PositionedFile] = {}  # each once, however many ranges it gives
        try:
            for each in dict.fromkeys(each for each, _, _ in self._ranges):
                if each != ZEROS:
                    self._files[each] = self._opened.enter_context(PositionedFile(each))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        opened = getattr(self, "_opened", None)
        if opened is not None:
            opened.close()

    @property
    def file_bytes(self) -> int:
        """The size of all ranges."""
        return self._starts[-1]

    def _read_range(self, fd: int, view: memoryview, pos: int) -> int:
        """Do what `pread` does."""
        del fd
        if not 0 <= pos < self._starts[-1]:
            return 0
        place = bisect_right(self._starts, pos) - 1
        path, start_pos, end_pos = self._ranges[place]
        inner_pos = start_pos + pos - self._starts[place]
        if path == ZEROS:
            count = min(len(view), end_pos - inner_pos)
            view[:count] = bytes(count)
            return count
        reading = self._files[path].read_at(inner_pos, min(len(view), end_pos - inner_pos))
        for bad in reading.unreadable:
            if bad.start_pos == inner_pos:
                raise OSError(bad.errno, bad.strerror)
            reading = reading._replace(data=reading.data[: bad.start_pos - inner_pos])
            break
        view[: len(reading.data)] = reading.data
        return len(reading.data)
