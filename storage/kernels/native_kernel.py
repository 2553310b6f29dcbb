"""The kernels in native code: what `numpy_kernel` and `record_table` give, by eoctl-native."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.formats.record_batch import CODEC_MASK
from storage.kernels.layouts import COLUMN_DTYPES, empty_table
from storage.kernels.protocol import HeaderTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.pure import Neighbours
    from storage.kernels.select import Native


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
    table = HeaderTable._make(
        np.frombuffer(column, dtype)
        for column, dtype in zip(columns, COLUMN_DTYPES.values(), strict=True)
    )
    return table, start_pos + stop


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
    buf: bytearray,
    file_pos: int,
    *,
    max_batch_bytes: int,
    max_source_bytes: int,
) -> DecodedColumns:
    """Decode the records of the first rows of `table`, at least one; see `decode_records`."""
    start = int(table.pos[0]) - file_pos
    end = int(table.pos[-1] + table.batch_bytes[-1]) - file_pos
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
