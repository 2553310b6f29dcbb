"""The scan kernel in native code: what `numpy_kernel.scan_window` gives, by eoctl-native."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from storage.kernels.layouts import COLUMN_DTYPES, empty_table
from storage.kernels.protocol import HeaderTable

if TYPE_CHECKING:
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
