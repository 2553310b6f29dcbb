"""The kernels in native code: what `numpy_kernel` and `record_table` give, by eoctl_native."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.files import positioned_file
from storage.formats.record_batch import CODEC_MASK
from storage.kernels.layouts import COLUMN_DTYPES, empty_table
from storage.kernels.offset_order import LOOK_COUNT
from storage.kernels.protocol import HeaderTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from numpy.typing import NDArray

    from storage.files.positioned_file import PositionedFile
    from storage.kernels.pure import Neighbours
    from storage.kernels.select import Native, ReadHeaders

STRETCH_BYTES = 8 << 20  # more rows at once leave the processor's cache
PIECE_BYTES = 1 << 20  # that a thread reads at once; of smaller ones, the handing over is felt


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
    """Do what `pure.scan_window` does, with a table of any number of rows as the result."""
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
    """Return the first rows of columns that the kernel gave."""
    return HeaderTable._make(
        np.frombuffer(column, dtype)[:row_count]
        for column, dtype in zip(columns, COLUMN_DTYPES.values(), strict=True)
    )


class _Stretch(NamedTuple):
    """What `read_headers` is asked for."""

    start: tuple[int, int, int]  # position, last offset, leader epoch
    walk_to_pos: int
    end_pos: int
    limits: tuple[int, int]
    verify_crc: bool


class HeaderReader:
    """Healthy batches of a plain file without their bodies; with threads, those ahead meanwhile.

    After a stretch that brought little (batches of megabytes, or damage) it pauses for as much,
    then for twice as much and so on: what is read in vain stays a share of the file.
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
        """Return one, unless only the file's own reads give what it holds."""
        name = file.name_to_open_again
        return cls(native, name, file.path, threads) if name else None

    def read(
        self, pos: int, limit_pos: int, *, end_pos: int, neighbours: Neighbours, verify_crc: bool
    ) -> tuple[HeaderTable, bytes]:
        """Read batches from `pos` on that begin before `limit_pos`; none where it pauses.

        Returns those that no later one can contradict, and the bytes of the control batches among
        them (and perhaps of more behind). `neighbours` is behind the last one.
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
        sure_count = max(row_count - LOOK_COUNT, 0)
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
    from concurrent.futures import ThreadPoolExecutor  # 10 ms, for large files only

    return ThreadPoolExecutor(1)


class DecodedColumns(NamedTuple):
    """What was decoded of batches: columns as those of a `RecordTable`, in its order.

    Attributes:
        source: bodies that were decompressed; None: positions are places in the window.
        is_whole: of each batch that was looked at.
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
    """Decode the records of the first rows of `table`, at least one; see `decode_records`."""
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
