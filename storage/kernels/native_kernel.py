"""The native kernel: the results of `numpy_kernel` and `record_table`, computed by eoctl_native."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.files import positioned_file
from storage.formats.record_batch import CODEC_MASK
from storage.kernels.layouts import COLUMN_DTYPES, empty_table
from storage.kernels.offset_order import INSPECTED_COUNT
from storage.kernels.protocol import HeaderTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from numpy.typing import NDArray

    from storage.files.positioned_file import PositionedFile
    from storage.kernels.kernel_choice import Native, ReadHeaders
    from storage.kernels.pure import Neighbours

STRETCH_BYTES = 8 << 20  # more rows at once do not fit into the processor's cache
PIECE_BYTES = 1 << 20  # read by a thread at once; in smaller pieces the handover costs time


def scan_window(
    native: Native,
    buf: bytearray,
    start_pos: int,
    end_pos: int,
    *,
    file_pos: int,
    neighbours: Neighbours,
    verify_crc: bool,
) -> tuple[HeaderTable, int]:
    """Scan as `pure.scan_window` does, with a table of any number of rows as the result."""
    before = (
        neighbours.min_offset,
        neighbours.max_offset,
        neighbours.last_offset,
        neighbours.leader_epoch,
    )
    with memoryview(buf) as view, view[start_pos:end_pos] as window:
        row_count, stop, last_offset, leader_epoch, columns = native.scan_window(
            window, file_pos + start_pos, before, verify_crc=verify_crc
        )
    neighbours.last_offset, neighbours.leader_epoch = last_offset, leader_epoch
    if not row_count:
        return empty_table(), start_pos
    return _table_of(columns, row_count), start_pos + stop


def _table_of(columns: Sequence[bytes], row_count: int) -> HeaderTable:
    """Return the first rows of columns from the kernel."""
    return HeaderTable._make(
        np.frombuffer(column, dtype)[:row_count]
        for column, dtype in zip(columns, COLUMN_DTYPES.values(), strict=True)
    )


class _Stretch(NamedTuple):
    """The arguments of `read_headers`."""

    start: tuple[int, int, int]  # position, last offset, leader epoch
    walk_to_pos: int
    end_pos: int
    limits: tuple[int, int]
    verify_crc: bool


class HeaderReader:
    """A reader of healthy batches of a plain file, without their bodies. Threads read ahead.

    After a stretch with few results (batches of megabytes, or damage) the reader pauses for the
    same length, then for twice that length and so on. So useless reads stay a fixed share of the
    file.
    """

    def __init__(self, native: Native, name: str, path: str, threads: int) -> None:
        self._native = native
        self._name = name
        self._path = path
        self._next_pos = 0
        self._pause_bytes = STRETCH_BYTES
        self._pool = _pool() if threads > 1 else None
        self._threads = max(threads - 1, 1)
        self._ahead: tuple[_Stretch, Future[ReadHeaders]] | None = None

    @classmethod
    def of(cls, native: Native, file: PositionedFile, threads: int) -> HeaderReader | None:
        """Return a reader, or None if only the file's own reads give its content."""
        name = file.name_to_open_again
        return cls(native, name, file.path, threads) if name else None

    def read(
        self, pos: int, limit_pos: int, *, end_pos: int, neighbours: Neighbours, verify_crc: bool
    ) -> tuple[HeaderTable, bytes]:
        """Read batches from `pos` on that begin before `limit_pos`. Returns none during a pause.

        Returns the batches that no later batch can contradict, and the bytes of their control
        batches. The bytes may include later control batches. `neighbours` is then behind the last
        batch.
        """
        if pos < self._next_pos:
            return empty_table(), b""
        stretch = _Stretch(
            start=(pos, neighbours.last_offset, neighbours.leader_epoch),
            walk_to_pos=min(limit_pos, pos + STRETCH_BYTES),
            end_pos=end_pos,
            limits=(neighbours.min_offset, neighbours.max_offset),
            verify_crc=verify_crc,
        )
        (row_count, _, _, _, columns), controls = self._take(stretch)
        sure_count = max(row_count - INSPECTED_COUNT, 0)
        table = _table_of(columns, sure_count)
        end = table.end_pos if sure_count else pos
        if 2 * (end - pos) < stretch.walk_to_pos - pos:
            self._next_pos = end + self._pause_bytes
            self._pause_bytes *= 2
        else:
            self._pause_bytes = STRETCH_BYTES
        if sure_count:
            neighbours.pass_over(table)
            if (watcher := positioned_file.current_watcher()) is not None:
                watcher.read(self._path, pos, end - pos)
            if end >= self._next_pos and stretch.walk_to_pos - pos == STRETCH_BYTES:
                self._read_ahead(
                    stretch._replace(
                        start=(end, neighbours.last_offset, neighbours.leader_epoch),
                        walk_to_pos=min(end + STRETCH_BYTES, end_pos),
                    )
                )
        return table, controls

    def _take(self, stretch: _Stretch) -> ReadHeaders:
        ahead, self._ahead = self._ahead, None
        return ahead[1].result() if ahead and ahead[0] == stretch else self._read(stretch)

    def _read_ahead(self, stretch: _Stretch) -> None:
        if self._pool is not None:
            self._ahead = stretch, self._pool.submit(self._read, stretch)

    def _read(self, stretch: _Stretch) -> ReadHeaders:
        return self._native.read_headers(
            self._name, **stretch._asdict(), threads=self._threads, piece_bytes=PIECE_BYTES
        )


def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # 10 ms, so only for large files

    return ThreadPoolExecutor(1)


class DecodedColumns(NamedTuple):
    """The decoded part of batches: columns as in a `RecordTable`, in its order.

    Attributes:
        source: decompressed bodies. None: positions are places in the window.
        is_whole: of each batch that was read.
        columns: of the records, from `batch_row` on, and of their headers.
    """

    source: NDArray[np.uint8] | None
    is_whole: NDArray[np.bool_]
    columns: list[NDArray[np.int64]]


def decode_columns(
    native: Native,
    table: HeaderTable,
    buf: bytes | bytearray,
    file_pos: int,
    *,
    max_batch_bytes: int,
    max_source_bytes: int,
) -> DecodedColumns:
    """Decode the records of the first rows of `table`, at least one row. See `decode_records`."""
    start = int(table.pos[0]) - file_pos
    end = table.end_pos - file_pos
    with memoryview(buf) as view, view[start:end] as window:
        is_whole, columns, source = native.decode_records(
            window,
            start,
            np.ascontiguousarray(table.pos - (file_pos + start)),
            is_compressed=bool((table.attributes & CODEC_MASK).any()),
            max_batch_bytes=max_batch_bytes,
            max_source_bytes=max_source_bytes,
        )
    return DecodedColumns(
        source=None if source is None else np.frombuffer(source, np.uint8),
        is_whole=np.frombuffer(is_whole, np.bool_),
        columns=[np.frombuffer(column, np.int64) for column in columns],
    )
