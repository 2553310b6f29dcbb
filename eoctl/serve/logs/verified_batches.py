"""Runs of verified batches for a response: walked, gathered, verified again while they are sent."""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Unpack

from eoctl.clients.log.log_walk import LogWalk
from storage.errors import AccessError, FormatError
from storage.files.positioned_file import PositionedFile
from storage.formats.record_batch import MAGIC_POS, MAGIC_V2
from storage.kernels.kernel_choice import load_native
from storage.kernels.protocol import HeaderTable
from storage.kernels.pure import compute_checksum, crc_start_pos, extend_checksum, parse_frame
from storage.limits import MAX_OFFSET
from storage.log.decoded_records import decoded_records
from storage.places.log_reader import content_finding

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from eoctl.clients.log.log_walk import WalkOptions
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.files.positioned_file import PositionedRead
    from storage.formats.record_batch import BatchHeader
    from storage.kernels.numpy_kernel import BulkWindow
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

Key = tuple[str, int]  # path, inode


class Opened:
    """A handle of an open file. The file stays open until all its handles are closed."""

    def __init__(self, files: OpenFiles, key: Key, file: PositionedFile) -> None:
        self.path = file.path
        self._files: OpenFiles | None = files
        self._key = key
        self._file = file

    def read_at(self, pos: int, count: int) -> PositionedRead:
        """Read like `PositionedFile`."""
        return self._file.read_at(pos, count)

    def close(self) -> None:
        """Close the handle. Closing it again does nothing."""
        files, self._files = self._files, None
        if files is not None:
            files.let_go(self._key)

    def __del__(self) -> None:
        """Queue the handle to be closed.

        This may interrupt code that has the lock, so it cannot close it.
        """
        if self._files is not None:
            self._files.dropped.append(self._key)

    def doubt(self) -> None:
        """Report that the file has changed since it was verified."""
        if self._files is not None:
            self._files.is_doubted = True


class OpenFiles:
    """The open files. Their methods may run in any thread.

    Attributes:
        is_doubted: a file did not have the expected bytes.
        dropped: handles that were deleted without being closed.
    """

    def __init__(self) -> None:
        self.is_doubted = False
        self.dropped: deque[Key] = deque()
        self._lock = Lock()
        self._held: dict[Key, tuple[PositionedFile, int]] = {}

    def hold(self, path: str, inode: int) -> Opened:
        """Open a file with this inode.

        Raises:
            AccessError: it cannot be opened, or another file has replaced it (ENOENT).
        """
        key = path, inode
        with self._lock:
            while self.dropped:
                self._drop(self.dropped.popleft())
            file, holders = self._held.get(key) or (PositionedFile(path), 0)
            if not holders and file.inode != inode:
                file.close()
                error = FileNotFoundError(errno.ENOENT, "replaced while it is served")
                raise AccessError(error, path)
            self._held[key] = file, holders + 1
            return Opened(self, key, file)

    def let_go(self, key: Key) -> None:
        """Close a handle, and the file with its last handle."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        file, holders = self._held.pop(key)
        if holders > 1:
            self._held[key] = file, holders - 1
        else:
            file.close()


# -- gathering of whole batches of runs for a response, up to a limit, as pieces of open files


class SentBatches(NamedTuple):
    """Consecutive batches of a file, as they were when they were verified."""

    starts: array[int]
    ends: array[int]
    last_offsets: array[int]


class FilePiece(NamedTuple):
    """Bytes of a response: `data`, or batches of an open file if `file` is not None."""

    file: Opened | None = None
    batches: SentBatches | None = None
    data: bytes = b""


class Given(NamedTuple):
    """The result of a read. `next_offset` follows its last batch.

    A broker's read of a segment ends at the limit, in the middle of a batch. `cut_bytes` is the
    size that a broker counts. It lists aborted transactions up to `cut_pos` in the segment with
    that base offset.
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
    """A collection of batches, up to a limit."""

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
        """Take the fitting batches of a run. Return False if nothing more can be taken.

        As in a broker, a read ends with its segment.
        """
        if self._base_offset not in (-1, run.base_offset):
            return False
        first = bisect_left(run.last_offsets, self.next_offset)
        # Only whole batches: the last batch ends below the end offset and within the limit.
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
        for pos in sorted(each for each in run.repaired if start_pos <= each < end_pos):
            repaired = bisect_left(run.starts, pos)
            self._add_of_file(file, run, place, repaired)
            self._pieces.append(FilePiece(data=run.repaired[pos]))
            place = repaired + 1
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
        """Return the gathered batches."""
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


# -- walk of a log as a consumer reads it, with runs of verified batches: places, not bytes


RUN_BATCHES = 512  # limit for batches that are read one by one


class VerifiedRun(NamedTuple):
    """Consecutive verified batches of a segment.

    Attributes:
        path, inode: of the `.log`.
        first_offset: the requested offset. Nothing is between it and the first batch.
        next_offset: the offset after the last batch.
        last_offsets, starts, ends: of each batch. Positions are in the file.
        `repaired`: the correct bytes of batches with a proven wrong byte.
    """

    path: str
    inode: int
    base_offset: int
    first_offset: int
    next_offset: int
    last_offsets: array[int]
    starts: array[int]
    ends: array[int]
    repaired: dict[int, bytes]


Columns = tuple["array[int]", "array[int]", "array[int]"]


class WireWalk(LogWalk[list[VerifiedRun]]):
    """All batches, control batches too, as runs of verified batches.

    Attributes:
        covered_offset: the returned runs cover all offsets below it.
    """

    gives_proven = True

    def __init__(
        self, partition: Partition, next_offset: int, **options: Unpack[WalkOptions]
    ) -> None:
        super().__init__(partition, next_offset, **options)
        self.covered_offset = next_offset
        self._gathered: list[tuple[int, int, int]] = []
        self._repaired: dict[int, bytes] = {}
        self._segment: Segment | None = None

    def _read_segment(
        self, files: SegmentFiles, end_offset: int
    ) -> Generator[list[VerifiedRun], None, bool]:
        # Findings that were pending when the last read stopped are found again.
        self._waiting = [each for each in self._waiting if each.path != files.log.path]
        is_over = yield from super()._read_segment(files, end_offset)
        if not is_over and not self._is_whole(files):
            error = OSError(errno.ESTALE, "became shorter while it is served")
            raise AccessError(error, files.log.path)
        return is_over

    @staticmethod
    def _is_whole(files: SegmentFiles) -> bool:
        """Return whether a segment still has all bytes that it had when it was listed."""
        try:
            return Path(files.log.path).stat().st_size >= files.log.file_bytes
        except OSError:
            return True  # the next open reports the reason

    def _run(
        self, segment: Segment, columns: Columns, repaired: dict[int, bytes], next_offset: int
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
            repaired=repaired,
        )

    def _read_window(
        self, window: BulkWindow, segment: Segment, end_offset: int
    ) -> Generator[list[VerifiedRun], None, bool]:
        from eoctl.clients.log.table_records import visible
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
        # A batch that is left out ends a run.
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
                self._repaired[pos] = bytes(data)
        self._pos = end_pos
        self._passed(header.last_offset + 1)
        if len(self._gathered) >= RUN_BATCHES:
            yield from self._flush()
        return self.next_offset >= end_offset

    def _is_sound(
        self, batch: ScannedBatch, segment: Segment
    ) -> Generator[list[VerifiedRun], None, bool]:
        """Return whether the wrapper of an old format is sound.

        Clients rely on the offsets in it.
        """
        if batch.header.magic >= MAGIC_V2 or not batch.header.codec:
            return True
        try:
            decoded_records(batch, segment, self._floor_offset)
        except (FormatError, AccessError) as exc:
            yield from self._flush()
            self._lose(content_finding(segment.path, batch, exc, self._floor_offset))
            return False
        return True

    def _flush(self) -> Iterator[list[VerifiedRun]]:
        gathered, self._gathered = self._gathered, []
        repaired, self._repaired = self._repaired, {}
        if not gathered or self._segment is None:
            return
        last, starts, ends = (array("q", column) for column in zip(*gathered, strict=True))
        yield [self._run(self._segment, (last, starts, ends), repaired, last[-1] + 1)]


# -- bytes sent to a client, verified to be the batches that were walked.
#
# A file may change in place, or a failing disk may return other bytes, after its batches were
# verified. The checksum of each batch is therefore computed again from the bytes that are sent. Its
# offset and length are compared, too. If they differ, the response ends in the middle, so that no
# client can use it. The file is walked again for the next request.
#
# For a batch larger than one read, the last part decides. The leader epoch is not verified, because
# no checksum covers it.


READ_BYTES = 1 << 19  # per read
MANY = 16  # number of batches from which the native kernel is faster
_ANY = 0, MAX_OFFSET, -1, -1  # offsets, last offset and epoch of the batches before
_LAST_OFFSET = HeaderTable._fields.index("last_offset")


class SentBytes:
    """A reader of consecutive batches of a file that verifies them part by part."""

    def __init__(self, file: Opened, batches: SentBatches) -> None:
        self._file = file
        self._starts, self._ends, self._last_offsets = batches
        self._next = 0  # the batch to read next, or of which a part was read
        self._pos = self._starts[0]
        self._large: BatchHeader | None = None  # the batch of which a part was read
        self._checksum = 0  # of the part that was read
        self._native = load_native()

    def read(self) -> bytes:
        """Return the next part, b"" at the end.

        Raises:
            AccessError: it cannot be read, or differs from the verified batches.
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
        """Read the header of a batch. None: it is not the batch that was verified."""
        header = parse_frame(data, pos)
        size_bytes = self._ends[place] - self._starts[place]
        is_same = (
            header.magic <= MAGIC_V2
            and header.batch_bytes == size_bytes
            and header.last_offset == self._last_offsets[place]
        )
        return header if is_same else None

    def _are_right(self, data: bytes, until: int) -> bool:
        """Return whether whole batches are the verified batches. This is the definition."""
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
        """Return whether many v2 batches are healthy and the same as verified. False: unknown."""
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
        """Return whether a part of a large batch is right.

        An error shows in the last part, or before.
        """
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
