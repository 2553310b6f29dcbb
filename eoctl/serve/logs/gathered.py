"""Gathers whole batches of runs for a response, up to a limit, as pieces of open files."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from array import array

    from eoctl.serve.logs.open_files import Opened, OpenFiles
    from eoctl.serve.logs.wire_walk import VerifiedRun


class SentBatches(NamedTuple):
    """Batches that lie one behind the other in a file: what they were when they were verified."""

    starts: array[int]
    ends: array[int]
    last_offsets: array[int]


class FilePiece(NamedTuple):
    """Bytes of a response: those in `data`, or (`file` not None) batches of a file that is open."""

    file: Opened | None = None
    batches: SentBatches | None = None
    data: bytes = b""


class Given(NamedTuple):
    """What a read gives. `next_offset` is behind it.

    A broker's piece of a segment ends where the limit is, in the middle of a batch: what it counts,
    and lists aborted transactions for, are `cut_bytes`, up to `cut_pos` in the segment with that
    base offset.
    """

    pieces: tuple[FilePiece, ...]
    size_bytes: int
    batches_count: int
    next_offset: int
    base_offset: int
    cut_pos: int
    cut_bytes: int

    def close(self) -> None:
        """Close the files."""
        for each in self.pieces:
            if each.file is not None:
                each.file.close()


class Gathering:
    """Gathers batches up to a limit."""

    def __init__(
        self, files: OpenFiles, offset: int, end_offset: int, max_bytes: int, *, is_needed: bool
    ) -> None:
        self._files = files
        self.next_offset = offset
        self.is_full = False
        self.size_bytes = 0
        self._end_offset = end_offset
        self._max_bytes = max_bytes
        self._is_needed = is_needed
        self._pieces: list[FilePiece] = []
        self._count = 0
        self._base_offset = -1
        self._end_pos = 0
        self._is_cut = False

    def take(self, run: VerifiedRun) -> bool:
        """Take what may be had of a run; False: nothing more is to be taken.

        As a broker's, a read ends with its segment.
        """
        if self._base_offset not in (-1, run.base_offset):
            return False
        first = bisect_left(run.last_offsets, self.next_offset)
        # Whole batches only: the last one ends below the end, and within the limit.
        below = bisect_left(run.last_offsets, self._end_offset)
        left = self._max_bytes - self.size_bytes
        within = bisect_right(run.ends, run.starts[first] + left)
        if within <= first and self._is_needed and not self.size_bytes:
            within = first + 1
        end = min(below, within)
        self._is_cut = within < min(below, len(run.ends))
        if end <= first:
            if not self.size_bytes:
                self._base_offset, self._end_pos = run.base_offset, run.starts[first]
            self.is_full = True
            return False
        self._add(run, first, end)
        is_whole = end == len(run.ends)
        self.is_full = self.is_full or not is_whole
        self.next_offset = run.next_offset if is_whole else run.last_offsets[end - 1] + 1
        return True

    def _add(self, run: VerifiedRun, first: int, end: int) -> None:
        file = self._files.hold(run.path, run.inode)
        start_pos, end_pos = run.starts[first], run.ends[end - 1]
        place = first
        for pos in sorted(each for each in run.mended if start_pos <= each < end_pos):
            mended = bisect_left(run.starts, pos)
            self._add_of_file(file, run, place, mended)
            self._pieces.append(FilePiece(data=run.mended[pos]))
            place = mended + 1
        self._add_of_file(file, run, place, end)
        self.size_bytes += end_pos - start_pos
        self._count += end - first
        self._base_offset, self._end_pos = run.base_offset, end_pos

    def _add_of_file(self, file: Opened, run: VerifiedRun, first: int, end: int) -> None:
        if first < end:
            columns = run.starts, run.ends, run.last_offsets
            batches = SentBatches(*(each[first:end] for each in columns))
            self._pieces.append(FilePiece(file=file, batches=batches))

    def given(self) -> Given:
        """Return what was gathered."""
        cut_bytes = max(self._max_bytes, self.size_bytes) if self._is_cut else self.size_bytes
        return Given(
            pieces=tuple(self._pieces),
            size_bytes=self.size_bytes,
            batches_count=self._count,
            next_offset=self.next_offset,
            base_offset=self._base_offset,
            cut_pos=self._end_pos + cut_bytes - self.size_bytes,
            cut_bytes=cut_bytes,
        )
