"""Walks a log as a consumer does, and gives runs of verified batches: places, not bytes."""

from __future__ import annotations

import errno
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from eoctl.clients.log.log_damage import content_damage
from eoctl.clients.log.log_walk import LogWalk
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import MAGIC_POS, MAGIC_V2
from storage.log.decoded_records import decoded_records

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from eoctl.clients.log.log_walk import WalkOptions
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

RUN_BATCHES = 512  # of those that come one by one


class VerifiedRun(NamedTuple):
    """Verified batches that lie one behind the other in a segment.

    Attributes:
        path, inode: of the `.log`.
        first_offset: what was asked for; nothing is between it and the first batch.
        next_offset: behind the last one.
        last_offsets, starts, ends: of each batch; positions are in the file.
        mended: of batches with a byte that is wrong and proven, what they should be.
    """

    path: str
    inode: int
    base_offset: int
    first_offset: int
    next_offset: int
    last_offsets: array[int]
    starts: array[int]
    ends: array[int]
    mended: dict[int, bytes]


Columns = tuple["array[int]", "array[int]", "array[int]"]


class WireWalk(LogWalk[list[VerifiedRun]]):
    """Gives all batches, control batches too, as runs of verified ones.

    Attributes:
        covered_offset: the runs that were given tell of all below it.
    """

    gives_proven = True

    def __init__(
        self, partition: Partition, next_offset: int, **options: Unpack[WalkOptions]
    ) -> None:
        super().__init__(partition, next_offset, **options)
        self.covered_offset = next_offset
        self._gathered: list[tuple[int, int, int]] = []
        self._mended: dict[int, bytes] = {}
        self._segment: Segment | None = None

    def _read_segment(
        self, files: SegmentFiles, end_offset: int
    ) -> Generator[list[VerifiedRun], None, bool]:
        # What was met here, and not told yet when the last read was left, is met again.
        self._waiting = [each for each in self._waiting if each.path != files.log.path]
        is_over = yield from super()._read_segment(files, end_offset)
        if not is_over and not self._is_whole(files):
            error = OSError(errno.ESTALE, "became shorter while it is served")
            raise AccessError(error, files.log.path)
        return is_over

    @staticmethod
    def _is_whole(files: SegmentFiles) -> bool:
        """Whether a segment has all that it had when it was listed."""
        try:
            return Path(files.log.path).stat().st_size >= files.log.file_bytes
        except OSError:
            return True  # the next one who opens it says why

    def _run(
        self, segment: Segment, columns: Columns, mended: dict[int, bytes], next_offset: int
    ) -> VerifiedRun:
        first_offset, self.covered_offset = self.covered_offset, next_offset
        return VerifiedRun(
            path=segment.path,
            inode=segment.file.inode,
            base_offset=segment.base_offset,
            first_offset=first_offset,
            next_offset=next_offset,
            last_offsets=columns[0],
            starts=columns[1],
            ends=columns[2],
            mended=mended,
        )

    def _read_window(
        self, window: BulkWindow, segment: Segment, end_offset: int
    ) -> Generator[list[VerifiedRun], None, bool]:
        from eoctl.clients.log.bulk_records import visible
        from storage.kernels.numpy_kernel import rows_of

        table = window.table
        first = int(table.last_offset.searchsorted(self.next_offset))
        next_offset = int(table.last_offset[-1]) + 1
        self._pos = table.end_pos
        self._passed(next_offset)
        given = rows_of(table, first, table.row_count)
        if self._is_hidden is not None and first < table.row_count:
            given = visible(given, self._is_hidden)
        ends = given.pos + given.batch_bytes
        # What is left out in between ends a run.
        breaks = ((given.pos[1:] != ends[:-1]).nonzero()[0] + 1).tolist()
        runs = []
        for start, end in zip([0, *breaks], [*breaks, given.row_count], strict=True):
            if start == end:
                continue
            columns = given.last_offset[start:end], given.pos[start:end], ends[start:end]
            last, starts, stops = (array("q", each.tobytes()) for each in columns)
            is_last = end == given.row_count
            until = next_offset if is_last else int(last[-1]) + 1
            runs.append(self._run(segment, (last, starts, stops), {}, until))
        if runs:
            yield runs
        return next_offset >= end_offset

    def _read_single(
        self, batch: ScannedBatch, segment: Segment, end_offset: int
    ) -> Generator[list[VerifiedRun], None, bool]:
        header, pos = batch.header, batch.pos
        if self._gathered and self._gathered[-1][2] != pos:
            yield from self._flush()
        end_pos = pos + header.batch_bytes
        is_wanted = header.last_offset >= self.next_offset and self._is_visible(batch)
        if is_wanted and (yield from self._is_sound(batch, segment)):
            self._segment = segment
            self._gathered.append((header.last_offset, pos, end_pos))
            noted = self.noted[-1] if self.noted else None
            if noted is not None and (noted.path, noted.start_pos) == (segment.path, pos):
                data = bytearray(segment.read_batch(batch))
                data[MAGIC_POS] = MAGIC_V2
                self._mended[pos] = bytes(data)
        self._pos = end_pos
        self._passed(header.last_offset + 1)
        if len(self._gathered) >= RUN_BATCHES:
            yield from self._flush()
        return self.next_offset >= end_offset

    def _is_sound(
        self, batch: ScannedBatch, segment: Segment
    ) -> Generator[list[VerifiedRun], None, bool]:
        """Look into a wrapper of an old format: clients take the offsets in it as they are."""
        if batch.header.magic >= MAGIC_V2 or not batch.header.codec:
            return True
        try:
            decoded_records(batch, segment, self._floor_offset)
        except (FormatError, AccessError) as exc:
            yield from self._flush()
            self._lose(content_damage(batch, segment.path, exc, self._floor_offset))
            return False
        return True

    def _flush(self) -> Iterator[list[VerifiedRun]]:
        gathered, self._gathered = self._gathered, []
        mended, self._mended = self._mended, {}
        if not gathered or self._segment is None:
            return
        last, starts, ends = (array("q", column) for column in zip(*gathered, strict=True))
        yield [self._run(self._segment, (last, starts, ends), mended, last[-1] + 1)]
