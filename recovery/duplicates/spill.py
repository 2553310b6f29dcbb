"""The rows of a search, and a sorter for more rows than fit in memory, with temporary files."""

from __future__ import annotations

import os
import tempfile
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from storage.dirs.discovery import is_in_log_dir
from storage.errors import AccessError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    Rows = NDArray[np.void]


COMMITTED, ABORTED, OPEN, UNKNOWN = 0, 1, 2, 3
OUTCOMES = ("committed", "aborted", "open", "unknown")


class DuplicateKind(StrEnum):
    """The certainty of a duplicate."""

    PROVED = "proved"
    SUSPECTED = "suspected"


class DuplicateCause(StrEnum):
    """The writer of the copy, as far as sequences and sessions show it."""

    RETRY = "retry"  # the producer sent the batch again, and the broker accepted it
    SESSION = "session"  # another producer id or epoch: another process, or a restarted process
    UNKNOWN = "unknown"  # one of the two has no idempotence


# A data batch with a sequence. `sequences_count` is last_offset_delta + 1.
BATCH_DTYPE = np.dtype(
    [
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("base_sequence", np.int32),
        ("sequences_count", np.int64),
        ("base_offset", np.int64),
        ("pos", np.int64),
        ("max_timestamp_ms", np.int64),
        ("outcome", np.int8),
    ]
)

# The same with the place of its first sequence, see `sequence_ranges`.
PLACED_DTYPE = np.dtype([*BATCH_DTYPE.descr, ("start", np.int64)])

# A compared record. `directory` is the number of its partition directory in the search.
RECORD_DTYPE = np.dtype(
    [
        ("hash_high", np.uint64),
        ("hash_low", np.uint64),
        ("timestamp_ms", np.int64),
        ("directory", np.int32),
        ("offset", np.int64),
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("outcome", np.int8),
    ]
)
RECORD_KEYS = ("hash_high", "hash_low", "timestamp_ms", "directory", "offset")

# The same if ids are compared. The hash is then the id's.
ID_RECORD_DTYPE = np.dtype(
    [*RECORD_DTYPE.descr, ("payload_high", np.uint64), ("payload_low", np.uint64)]
)


def pair_dtype(side: np.dtype[np.void]) -> np.dtype[np.void]:
    """Return the type of a found pair: where it is reported, the first copy, the repeat."""
    place = [("directory", np.int32), ("offset", np.int64)]
    return np.dtype([*place, ("first", side), ("repeat", side)])


PAIR_KEYS = ("directory", "offset")


class Duplicate(NamedTuple):
    """The report of a batch or a record that repeats another.

    Offsets, sequences and times are inclusive. The time of a batch is its largest timestamp.

    Attributes:
        kind: proved or suspected.
        cause: the writer of the repeat.
        topic, partition: of the repeat.
        first_partition: of the first copy. It differs only in a search across partitions.
        first_base_offset, first_last_offset: of the first copy, a batch or one record.
        repeat_base_offset, repeat_last_offset: of the repeat.
        records_count: records of the repeat that are also in the first copy. None: unreadable.
        first_timestamp_ms, repeat_timestamp_ms: the times of the records.
        first_producer_id ... repeat_producer_epoch: -1 is none.
        base_sequence, last_sequence: the common sequences of both batches. None for records.
        is_same_payload: key, value and headers are equal in all of these. None: unreadable.
        payload_hash: of these in the repeat, BLAKE2b with 128 bits, see `record_digests`.
        first_outcome, repeat_outcome: committed (or not in a transaction), aborted, open,
            unknown.
        first_path, path: the `.log` of each.
    """

    kind: DuplicateKind
    cause: DuplicateCause
    topic: str
    partition: int | None
    first_partition: int | None
    first_base_offset: int
    first_last_offset: int
    repeat_base_offset: int
    repeat_last_offset: int
    records_count: int | None
    first_timestamp_ms: int
    repeat_timestamp_ms: int
    first_producer_id: int
    first_producer_epoch: int
    repeat_producer_id: int
    repeat_producer_epoch: int
    base_sequence: int | None
    last_sequence: int | None
    is_same_payload: bool | None
    payload_hash: str | None
    first_outcome: str
    repeat_outcome: str
    first_path: str
    path: str


# -- a sorter for more rows than fit in memory: sorted runs in a temporary file, merged on reading.
#
# A `Sorter` takes rows of one numpy structured dtype in any order, and returns them by key, in
# chunks. It never has more than `max_rows` rows in memory, also with many equal keys, because it
# has no look-up. Runs are written one after another to one file without a name (or unlinked at
# once), so that even a killed process leaves no file. If there are too many runs to merge at once,
# some of them are first merged into longer runs.


MIN_ROWS = 16
MAX_CHUNK_ROWS = 65_536
MAX_FAN_IN = 128
MIN_READ_BYTES = 64 << 10  # of a run; with less, a merge is dominated by seeks
SORT_BYTES = 32  # per row, in addition to the row: key, place, and working memory of the sort
NEXT_STEP = "--spill-dir DIR on a file system with more space, or more --memory"


class SpillSpace(NamedTuple):
    """The memory limit of all sorters together, and the directory for the other rows.

    Attributes:
        memory_bytes: for rows. A scan needs further memory.
        directory: for temporary files.
    """

    memory_bytes: int
    directory: str

    def sorter(self, dtype: np.dtype[Any], keys: Sequence[str], share: float) -> Sorter:
        """Return a sorter that may use a share (0 to 1) of the memory."""
        row_bytes = dtype.itemsize + SORT_BYTES
        max_rows = int(self.memory_bytes * share) // row_bytes
        return Sorter(dtype, keys, max_rows=max_rows, directory=self.directory)


class _SortedRun(NamedTuple):
    """Sorted rows in the file, by row number, half open."""

    start: int
    end: int


class Sorter:
    """A context manager: `add` rows, then read `chunks`, also more than once.

    Attributes:
        rows_count: number of added rows.
        spilled_bytes: bytes written to disk, including rewritten runs.
        peak_rows_count: the most rows in memory at a time, at most the larger of `max_rows` and
            MIN_ROWS.
    """

    def __init__(
        self, dtype: np.dtype[Any], keys: Sequence[str], *, max_rows: int, directory: str
    ) -> None:
        self._dtype = dtype
        self._keys = tuple(keys)
        self._max_rows = max(max_rows, MIN_ROWS)
        self._directory = directory
        self._slice_rows = min(self._max_rows // 4, MAX_CHUNK_ROWS)
        self._capacity = self._max_rows - self._slice_rows
        self._buffer: Rows = np.empty(0, dtype)
        self._held = 0
        self._runs: list[_SortedRun] = []
        self._file: IO[bytes] | None = None
        self.rows_count = 0
        self.spilled_bytes = 0
        self.peak_rows_count = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the rows."""
        return self._dtype

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
        """Release memory and file. A second call does nothing."""
        self._buffer = np.empty(0, self._dtype)
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, rows: Rows) -> None:
        """Add rows.

        Raises:
            AccessError: the temporary file cannot be made or written, as on a full disk.
        """
        self.rows_count += len(rows)
        while len(rows):
            if self._held == len(self._buffer):
                self._make_room(len(rows))
            count = min(len(rows), len(self._buffer) - self._held)
            self._buffer[self._held : self._held + count] = rows[:count]
            self._held += count
            rows = rows[count:]
            self._note_held(self._held)

    def chunks(self) -> Iterator[Rows]:
        """Yield all rows by key. Rows of equal keys stay in the order of their addition.

        Raises:
            AccessError: the temporary file cannot be written or read.
        """
        if not self._runs:
            yield from self._sorted_buffer()
            return
        if self._held:
            self._write_buffer()
        self._buffer = np.empty(0, self._dtype)
        while len(self._runs) > self._fan_in:
            self._merge_runs()
        yield from self._merged(self._runs)

    @property
    def _fan_in(self) -> int:
        by_bytes = self._max_rows * self._dtype.itemsize // (2 * MIN_READ_BYTES)
        return max(2, min(MAX_FAN_IN, by_bytes, self._max_rows // 4))

    def _note_held(self, count: int) -> None:
        self.peak_rows_count = max(self.peak_rows_count, count)

    def _make_room(self, wanted: int) -> None:
        """Grow the buffer if it may, else empty it."""
        if self._held >= self._capacity:
            self._write_buffer()
            return
        # Old and new buffer coexist for a moment, so the last growth goes to disk instead.
        size = min(self._capacity, max(2 * self._held, wanted, MIN_ROWS // 2))
        if self._held + size > self._max_rows:
            self._write_buffer()
            self._buffer = np.empty(self._capacity, self._dtype)
            return
        self._note_held(self._held + size)
        grown = np.empty(size, self._dtype)
        grown[: self._held] = self._buffer[: self._held]
        self._buffer = grown

    def _sorted_buffer(self) -> Iterator[Rows]:
        rows = self._buffer[: self._held]
        order = sorted_order(rows, self._keys)
        for start in range(0, len(rows), self._slice_rows):
            part = rows[order[start : start + self._slice_rows]]
            self._note_held(self._held + len(part))
            yield part

    def _write_buffer(self) -> None:
        self._write_run(self._sorted_buffer())
        self._held = 0

    def _write_run(self, parts: Iterator[Rows]) -> None:
        start = end = self._runs[-1].end if self._runs else 0
        for part in parts:
            self._write(part)
            end += len(part)
        self._runs.append(_SortedRun(start, end))

    def _write(self, rows: Rows) -> None:
        try:
            if self._file is None:
                self._file = self._new_file()
            left = rows.view(np.uint8).data
            self.spilled_bytes += len(left)
            while left:
                left = left[self._file.write(left) :]
        except OSError as exc:
            raise AccessError(exc, self._directory, next_step=NEXT_STEP) from exc

    def _new_file(self) -> IO[bytes]:
        # Unbuffered: after an error, buffered data would be written again at the end.
        return tempfile.TemporaryFile(prefix="eoctl-", dir=self._directory, buffering=0)

    def _merge_runs(self) -> None:
        """Merge neighbouring runs in a new file, until all can be merged at once."""
        before, old = self._runs, self._file
        groups_count = max(self._fan_in, -(-len(before) // self._fan_in))
        groups_count = min(groups_count, -(-len(before) // 2))
        bounds = [len(before) * each // groups_count for each in range(groups_count + 1)]
        self._runs = []
        target = self._new_file_or_error()
        try:
            for first, last in pairwise(bounds):
                merged = self._merged(before[first:last], old)
                self._file = target
                self._write_run(merged)
        finally:
            self._file = target
            if old is not None:
                old.close()

    def _new_file_or_error(self) -> IO[bytes]:
        try:
            return self._new_file()
        except OSError as exc:
            raise AccessError(exc, self._directory, next_step=NEXT_STEP) from exc

    def _merged(self, runs: list[_SortedRun], file: IO[bytes] | None = None) -> Iterator[Rows]:
        """Merge runs. Each step yields all rows up to the smallest last key of the blocks."""
        source = self._file if file is None else file
        assert source is not None
        block_rows = max(self._max_rows // (2 * len(runs)), 1)
        fronts = [_Front(source, self._dtype, run, block_rows, self._directory) for run in runs]
        while fronts := [each for each in fronts if each.load()]:
            bound = min(each.last_key(self._keys) for each in fronts)
            parts = [each.take(bound, self._keys) for each in fronts]
            taken = np.concatenate([each for each in parts if len(each)])
            self._note_held(sum(each.held for each in fronts) + len(taken))
            order = sorted_order(taken, self._keys)
            for start in range(0, len(taken), MAX_CHUNK_ROWS):
                yield taken[order[start : start + MAX_CHUNK_ROWS]]


class _Front:
    """The current block of a run in a merge."""

    def __init__(
        self,
        file: IO[bytes],
        dtype: np.dtype[Any],
        run: _SortedRun,
        block_rows: int,
        directory: str,
    ) -> None:
        self._file = file
        self._dtype = dtype
        self._next, self._end = run
        self._block_rows = block_rows
        self._directory = directory
        self._rows: Rows = np.empty(0, dtype)

    @property
    def held(self) -> int:
        """Rows in memory, including used rows, which share the block."""
        return 0 if self._rows.base is None else len(self._rows.base)

    def load(self) -> bool:
        """Ensure that there are rows, or return False at the end of the run."""
        if len(self._rows) or self._next == self._end:
            return bool(len(self._rows))
        block = np.empty(min(self._block_rows, self._end - self._next), self._dtype)
        left = block.view(np.uint8).data
        pos = self._next * self._dtype.itemsize
        try:
            while left:
                count = os.preadv(self._file.fileno(), [left], pos)
                left, pos = left[count:], pos + count
                assert count, "nobody else has this file open"
        except OSError as exc:
            raise AccessError(exc, self._directory) from exc
        self._next += len(block)
        self._rows = block[:]
        return True

    def last_key(self, keys: tuple[str, ...]) -> tuple[int, ...]:
        return _key_of(self._rows[-1], keys)

    def take(self, bound: tuple[int, ...], keys: tuple[str, ...]) -> Rows:
        """Take the rows with keys up to `bound`."""
        column = self._rows[keys[0]]
        first = column.dtype.type(bound[0])
        low = int(np.searchsorted(column, first, "left"))
        high = int(np.searchsorted(column, first, "right"))
        while low < high:
            middle = (low + high) // 2
            if _key_of(self._rows[middle], keys) <= bound:
                low = middle + 1
            else:
                high = middle
        taken, self._rows = self._rows[:low], self._rows[low:]
        return taken


def _key_of(row: Any, keys: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(int(row[name]) for name in keys)


def sorted_order(rows: Rows, keys: Sequence[str]) -> NDArray[np.int64]:
    """Return the order of rows by some columns.

    Rows are sorted by the first column. The other columns matter only where it is equal. With a
    hash as the first column this is several times as fast as comparing all columns of all rows.
    """
    first = np.ascontiguousarray(rows[keys[0]])
    order: NDArray[np.int64] = np.argsort(first, kind="stable")
    if len(keys) == 1 or not len(rows):
        return order
    first = first[order]
    is_same = first[1:] == first[:-1]
    is_tied = np.zeros(len(rows), np.bool_)
    is_tied[1:] = is_same
    is_tied[:-1] |= is_same
    tied = np.flatnonzero(is_tied)
    among = order[tied]
    columns = [rows[name][among] for name in keys]
    # Rows in log order need no further sort, because the first sort is stable.
    if not _is_sorted(columns):
        order[tied] = among[np.lexsort(columns[::-1])]
    return order


def _is_sorted(columns: list[NDArray[Any]]) -> bool:
    is_open = np.ones(max(len(columns[0]) - 1, 0), np.bool_)  # equal in the columns so far
    for column in columns:
        if (is_open & (column[1:] < column[:-1])).any():
            return False
        is_open &= column[1:] == column[:-1]
    return True


def spill_space(directory: str | None, memory_bytes: int) -> SpillSpace:
    """Check a directory for temporary files. None is the system's own.

    Raises:
        AccessError: it is not a directory, or not writable.
        RefusedError: it is in a log dir, where a broker does not expect other files.
    """
    path = tempfile.gettempdir() if directory is None else directory
    if not Path(path).is_dir():
        raise AccessError(NotADirectoryError(20, "Not a directory"), path, next_step=NEXT_STEP)
    if not os.access(path, os.W_OK | os.X_OK):
        raise AccessError(PermissionError(13, "Permission denied"), path, next_step=NEXT_STEP)
    if is_in_log_dir(path):
        raise RefusedError(
            f"{path}: in a log dir, where a broker expects no other files",
            next_step="--spill-dir DIR elsewhere",
        )
    return SpillSpace(memory_bytes, path)
