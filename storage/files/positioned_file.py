"""Files that are only read: by position, whole, or spliced. Bad places do not stop the reader."""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    # Fills the buffer from a position. Returns the number of bytes, 0 at the end of the file.
    Pread = Callable[[int, memoryview, int], int]


# -- the watcher of all reads of files in this process, for progress. By default there is none.
#
# Every reader of files reports its reads here, so that no command has to count for itself.


# Readers skip data that they do not need. A longer jump begins another part of the file.
GAP_BYTES = 32 << 20
LOG_SUFFIX = ".log"


class Watcher(Protocol):
    """A receiver of reads."""

    def read(self, path: str, pos: int, count: int) -> None:
        """Receive a read of `count` bytes of a file from a position on."""

    def read_elsewhere(self, path: str, count: int) -> None:
        """Receive a read of `count` bytes of logs, `path` last, by a worker process."""


class _Watch:
    watcher: Watcher | None = None
    on_stall: Callable[[str, float], None] | None = None


def watch(watcher: Watcher | None) -> None:
    """Report all further reads to the watcher, or to none."""
    _Watch.watcher = watcher


def current_watcher() -> Watcher | None:
    """Return the current watcher."""
    return _Watch.watcher


def on_stall(listener: Callable[[str, float], None] | None) -> None:
    """Call the listener when a worker process makes no progress. None removes it."""
    _Watch.on_stall = listener


def report_stall(path: str, seconds: float) -> None:
    """Report that the worker process that reads `path` made no progress for these seconds."""
    if _Watch.on_stall is not None:
        _Watch.on_stall(path, seconds)


class BrokenOffError(Exception):
    """The read was cancelled."""


class _Breaker:
    def read(self, path: str, pos: int, count: int) -> None:
        del pos, count
        raise BrokenOffError(path)

    def read_elsewhere(self, path: str, count: int) -> None:
        del path, count


@contextmanager
def broken_off() -> Iterator[None]:
    """Let all reads inside the block fail, so that other threads that read much end."""
    before = current_watcher()
    watch(_Breaker())
    try:
        yield
    finally:
        watch(before)


class LogCount:
    """The number of bytes of logs that were read. Bytes that are read again soon count once.

    Attributes:
        count_bytes: so far.
    """

    def __init__(self) -> None:
        self.count_bytes = 0
        self._path = ""
        self._end_pos = 0

    def read(self, path: str, pos: int, count: int) -> None:
        """Count a read as a `Watcher`. Counts logs only."""
        if not path.endswith(LOG_SUFFIX):
            return
        if path != self._path or pos > self._end_pos + GAP_BYTES:
            self._path, self._end_pos = path, pos
        if pos + count > self._end_pos:
            self.count_bytes += pos + count - self._end_pos
            self._end_pos = pos + count


# -- reading a small file whole, whatever its kind: without blocking, and up to a size limit


_CHUNK_BYTES = 1 << 20


def read_small_file(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`. Symbolic links are followed.

    Raises:
        OSError: it cannot be read, is no regular file (EINVAL), or is larger (EFBIG).
    """
    # O_NONBLOCK: opening a pipe of that name must not block.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", os.fspath(path))
        data = bytearray()
        size_bytes = found.st_size
        while size_bytes <= max_bytes:
            chunk = os.read(fd, min(_CHUNK_BYTES, max_bytes + 1 - len(data)))
            if not chunk:
                return bytes(data)
            data += chunk
            size_bytes = len(data)
        raise OSError(errno.EFBIG, f"Larger than {max_bytes} bytes", os.fspath(path))
    finally:
        os.close(fd)


# -- a file that is only read, by position, and whose bad places do not stop the reader
#
# No file is mapped. A mapping kills the process when the file shrinks or a disk block under it
# cannot be read. Both happen to the files that eoctl is made for.
#
# The results of `pread`:
#
# - Fewer bytes than requested: the rest is requested again, until the end of the file.
# - Nothing: the end of the file. It may be nearer than the size at the open.
# - EIO and other errors of the medium (MEDIA_ERRNOS): the request is halved down to SECTOR_BYTES.
#   So the bad stretch is exact, and everything around it is read.
# - Any other error: the whole rest of the request is unreadable. For example, a stale NFS handle
#   does not improve in halves.
#
# A file that is removed or replaced after the open is still read through its descriptor.
#
# Holes of a sparse file are zeros that need not be read. A preallocated segment may be larger than
# any disk, and so may a segment whose extents a repair of the file system has lost. If the file
# system reports no holes, all of the file counts as data.


SECTOR_BYTES = 512  # the smallest unit that fails on a device; a larger sector shows as several

ZERO_CHUNK_BYTES = 1 << 20
HOLE_BYTES = 4096  # precision of the search for the end of a hole; smaller holes are read

# Errors of one place of a medium or of a checksumming file system, not of the whole file.
MEDIA_ERRNOS = frozenset(
    {errno.EIO, errno.ENODATA, errno.EREMOTEIO, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ}
)


class Unreadable(NamedTuple):
    """A stretch of a file that the operating system could not read. Half open, in bytes."""

    start_pos: int
    end_pos: int
    errno: int

    @property
    def strerror(self) -> str:
        """The operating system's text for the error."""
        return os.strerror(self.errno)


class Reading(NamedTuple):
    """The result of one request: the number of filled bytes, with zeros in unreadable places.

    It is less than requested only at the end of the file.
    """

    filled_bytes: int
    unreadable: tuple[Unreadable, ...]


class PositionedRead(NamedTuple):
    """Bytes from `read_at`, with zeros in unreadable places."""

    data: bytes
    unreadable: tuple[Unreadable, ...]


def _preadv(fd: int, view: memoryview, pos: int) -> int:
    return os.preadv(fd, [view], pos)


class PositionedFile:
    """A regular file, opened read-only. Raises AccessError when it cannot be opened."""

    _fd = -1  # also for a file whose open was interrupted

    def __init__(self, path: str | os.PathLike[str], *, pread: Pread | None = None) -> None:
        self.path = os.fspath(path)
        self._pread = pread or _preadv
        try:
            # O_NONBLOCK: opening a pipe with the name of a segment must not block.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise AccessError(_as_os_error(error, self.path), self.path) from error
        self._fd = fd
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
                words = "Is a directory" if stat.S_ISDIR(mode) else "Not a regular file"
                raise AccessError(OSError(code, words, self.path), self.path)  # noqa: TRY301
        except OSError as error:
            self.close()
            raise AccessError(error, self.path) from error
        except AccessError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor. A second `close` does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    @property
    def file_bytes(self) -> int:
        """The size now. It may change between two reads of this property."""
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise AccessError(error, self.path) from error

    @property
    def inode(self) -> int:
        """The inode, which differs from a file that has taken its name since."""
        try:
            return os.fstat(self._fd).st_ino
        except OSError as error:
            raise AccessError(error, self.path) from error

    @property
    def name_to_open_again(self) -> str:
        """A path of the open file for a reader in native code, even if `path` was replaced.

        It is "" if there is none, or if reads are replaced, since that reader would bypass the
        replacement.
        """
        name = f"/dev/fd/{self._fd}"
        return name if self._pread is _preadv and os.access(name, os.R_OK) else ""

    def next_data_pos(self, pos: int) -> int:
        """Return the first position from `pos` on that is in no hole, else the size."""
        if self._pread is not _preadv:
            return pos  # reads are replaced: the descriptor's holes do not count
        try:
            return os.lseek(self._fd, pos, os.SEEK_DATA)
        except OSError as error:
            return max(pos, self.file_bytes) if error.errno == errno.ENXIO else pos

    def hole_start_pos(self, end_pos: int) -> int:
        """Return the start of the hole that ends at `end_pos`, else `end_pos`."""
        if self.next_data_pos(max(end_pos - HOLE_BYTES, 0)) < end_pos:
            return end_pos
        data_pos, hole_pos = 0, end_pos
        while hole_pos - data_pos > HOLE_BYTES:
            middle_pos = (data_pos + hole_pos) // 2
            if self.next_data_pos(middle_pos) < end_pos:
                data_pos = middle_pos
            else:
                hole_pos = middle_pos
        return hole_pos

    def read_into(self, view: memoryview, pos: int) -> Reading:
        """Fill `view` from `pos` on. Never raises for a disk error."""
        bad: list[Unreadable] = []
        count = self._fill(view, pos, bad)
        if (watcher := current_watcher()) is not None:
            watcher.read(self.path, pos, count)
        return Reading(count, tuple(bad))

    def read_at(self, pos: int, count: int) -> PositionedRead:
        """Read up to `count` bytes at `pos`. The caller limits `count`, which is allocated."""
        buffer = bytearray(count)
        reading = self.read_into(memoryview(buffer), pos)
        return PositionedRead(bytes(memoryview(buffer)[: reading.filled_bytes]), reading.unreadable)

    def _fill(self, view: memoryview, pos: int, bad: list[Unreadable]) -> int:
        """Fill `view` and collect unreadable stretches.

        The returned count ends at the end of the file.
        """
        pread, fd = self._pread, self._fd
        done, size = 0, len(view)
        while done < size:
            try:
                count = pread(fd, view[done:], pos + done)
            except OSError as error:
                code = error.errno or errno.EIO
                if code in MEDIA_ERRNOS:
                    return done + self._bisect(view[done:], pos + done, code, bad)
                _mark(view[done:], pos + done, code, bad)
                return size
            if count == 0:
                break
            done += count
        return done

    def _bisect(self, view: memoryview, pos: int, code: int, bad: list[Unreadable]) -> int:
        """Read the readable parts of a failed request. Halves meet at sector boundaries."""
        size = len(view)
        first_sector = pos // SECTOR_BYTES
        last_sector = (pos + size - 1) // SECTOR_BYTES
        if first_sector == last_sector:
            _mark(view, pos, code, bad)
            return size
        middle_pos = (first_sector + (last_sector - first_sector + 1) // 2) * SECTOR_BYTES
        left_size = middle_pos - pos
        count = self._fill(view[:left_size], pos, bad)
        if count < left_size:
            return count
        return left_size + self._fill(view[left_size:], middle_pos, bad)


def _mark(view: memoryview, pos: int, code: int, bad: list[Unreadable]) -> None:
    """Zero an unreadable piece and record it, joined to the piece before if they touch."""
    view[:] = bytes(len(view))
    end_pos = pos + len(view)
    if bad and bad[-1].end_pos == pos and bad[-1].errno == code:
        bad[-1] = Unreadable(bad[-1].start_pos, end_pos, code)
    else:
        bad.append(Unreadable(pos, end_pos, code))


def _as_os_error(error: OSError | ValueError, path: str) -> OSError:
    """Turn the ValueError of a path with a NUL into an OSError: for the user, no such file."""
    if isinstance(error, OSError):
        return error
    return OSError(errno.ENOENT, str(error), path)


class FileRange:
    """The part of a file that a scan may read, up to `end_pos`, with its bad places remembered.

    A bad place is requested only once, since a failing disk takes seconds for each error. If a read
    finds the file shorter than `end_pos`, `end_pos` becomes the file's size and `shrank` is set.
    """

    def __init__(self, file: PositionedFile, end_pos: int | None = None) -> None:
        file_bytes = file.file_bytes
        self.file = file
        self.end_pos = file_bytes if end_pos is None else min(max(end_pos, 0), file_bytes)
        self.shrank = False
        self.unreadable: list[Unreadable] = []  # by position; stretches of one errno do not touch
        self._last_nonzero_pos: int | None = None

    def read_into(self, view: memoryview, pos: int) -> int:
        """Fill `view` from `pos`, with zeros in unreadable places. The count ends at `end_pos`."""
        size = min(len(view), self.end_pos - pos)
        done = 0
        while done < size:
            at_pos = pos + done
            hole = self.first_unreadable(at_pos, pos + size)
            if hole is not None and hole.start_pos <= at_pos:
                count = min(hole.end_pos, pos + size) - at_pos
                view[done : done + count] = bytes(count)
                done += count
                continue
            wanted = (pos + size if hole is None else hole.start_pos) - at_pos
            reading = self.file.read_into(view[done : done + wanted], at_pos)
            for bad in reading.unreadable:
                self._remember(bad)
            done += reading.filled_bytes
            if reading.filled_bytes < wanted:
                self.end_pos = min(pos + done, self.file.file_bytes)
                self.shrank = True
                break
        return max(done, 0)

    def read(self, pos: int, count: int) -> bytes:
        """Read a few bytes, fewer at the end of the range."""
        buffer = bytearray(max(0, min(count, self.end_pos - pos)))
        got = self.read_into(memoryview(buffer), pos)
        return bytes(buffer[:got])

    def first_unreadable(self, start_pos: int, end_pos: int) -> Unreadable | None:
        """Return the first known bad place that has a byte in [start_pos, end_pos)."""
        holes = self.unreadable
        if not holes:
            return None
        index = bisect_right(holes, start_pos, key=_end_pos_of)
        if index < len(holes) and holes[index].start_pos < end_pos:
            return holes[index]
        return None

    def next_data_pos(self, pos: int) -> int:
        """Return the first position from `pos` on that is in no hole, else `end_pos`."""
        return min(self.file.next_data_pos(pos), max(pos, self.end_pos))

    def is_zero_from(self, pos: int) -> bool:
        """Return whether every byte from `pos` to the end is zero. Unreadable bytes are not zero.

        The search runs once, backwards from the end, so that further questions are cheap.
        """
        if self._last_nonzero_pos is None:
            self._last_nonzero_pos = self.data_end_pos() - 1
        return pos > self._last_nonzero_pos

    def data_end_pos(self, first_pos: int = 0) -> int:
        """Return the start of the zeros at the end of the range, else `first_pos`.

        Unreadable bytes are not zero.
        """
        end_pos = self.end_pos
        while (end_pos := self.file.hole_start_pos(end_pos)) > first_pos:
            start_pos = max(first_pos, end_pos - ZERO_CHUNK_BYTES)
            chunk = self.read(start_pos, end_pos - start_pos)
            hole_end_pos = -1
            while (hole := self.first_unreadable(start_pos, end_pos)) is not None:
                hole_end_pos = start_pos = min(hole.end_pos, end_pos)
            chunk_pos = end_pos - len(chunk)
            kept = len(chunk.rstrip(b"\0"))
            last_pos = max(chunk_pos + kept - 1 if kept else -1, hole_end_pos - 1)
            if last_pos >= 0:
                return last_pos + 1
            end_pos = chunk_pos
        return first_pos

    def _remember(self, bad: Unreadable) -> None:
        holes = self.unreadable
        index = bisect_right(holes, bad.start_pos, key=_end_pos_of)
        if index and holes[index - 1].end_pos == bad.start_pos and holes[index - 1].errno == bad[2]:
            index -= 1
            bad = Unreadable(holes.pop(index).start_pos, bad.end_pos, bad.errno)
        if (
            index < len(holes)
            and holes[index].start_pos == bad.end_pos
            and (holes[index].errno == bad.errno)
        ):
            bad = Unreadable(bad.start_pos, holes.pop(index).end_pos, bad.errno)
        holes.insert(index, bad)


def _end_pos_of(bad: Unreadable) -> int:
    return bad.end_pos


class ReadWindow:
    """One reused buffer that slides over a range. It is allocated by the first `load`.

    Attributes:
        buf: the buffer. buf[0] is byte `pos` of the file, `count` bytes of it are filled.
        capacity_bytes: most that `load` can read at once.
    """

    def __init__(self, source: FileRange, capacity_bytes: int) -> None:
        self.source = source
        self.capacity_bytes = capacity_bytes
        self.buf = bytearray()
        self.pos = 0
        self.count = 0

    def grow(self, capacity_bytes: int) -> None:
        """Take a larger buffer. Loaded bytes are dropped."""
        self.capacity_bytes = capacity_bytes
        self.buf = bytearray()
        self.count = 0

    def load(self, pos: int, wanted_bytes: int) -> int:
        """Make the bytes from `pos` on available at buf[pos - self.pos].

        Returns the number of bytes that can be read there without a gap: `wanted_bytes` (at most
        the capacity) or more. It is smaller only before the end of the range or a bad place.
        """
        loaded_end_pos = self.pos + self.count
        if not self.pos <= pos <= pos + wanted_bytes <= loaded_end_pos:
            if loaded_end_pos < self.source.end_pos or pos < self.pos:
                self.pos = pos
                needed_bytes = min(self.capacity_bytes, max(self.source.end_pos - pos, 0))
                if len(self.buf) < needed_bytes:
                    self.buf = bytearray(needed_bytes)
                with memoryview(self.buf) as view:
                    self.count = self.source.read_into(view, pos)
            loaded_end_pos = self.pos + self.count
        hole = self.source.first_unreadable(pos, loaded_end_pos)
        return max((loaded_end_pos if hole is None else hole.start_pos) - pos, 0)


# -- ranges of several files, read as one file: a `.log` that a change would write
#
# Reads have the results of a `PositionedFile`. All positions, also of unreadable stretches, are
# positions in the whole.


ZEROS = ""  # the path of a range of zeros, which is in no file


class SplicedFile(PositionedFile):
    """Ranges (path, start, end), in bytes and half open, in a row, opened read-only as one file.

    `path` is the name of the whole. A range of ZEROS belongs to no file. Raises AccessError if a
    file cannot be opened.
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
        self._files: dict[str, PositionedFile] = {}  # each file once, even with several ranges
        try:
            for each in dict.fromkeys(each for each, _, _ in self._ranges):
                if each != ZEROS:
                    self._files[each] = self._opened.enter_context(PositionedFile(each))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the files. A second `close` does nothing."""
        opened = getattr(self, "_opened", None)
        if opened is not None:
            opened.close()

    @property
    def file_bytes(self) -> int:
        """The size of all ranges."""
        return self._starts[-1]

    def _read_range(self, fd: int, view: memoryview, pos: int) -> int:
        """Read a range as `pread` does."""
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
