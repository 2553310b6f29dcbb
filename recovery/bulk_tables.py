"""A bulk scan as tables alone, for those who do not look at single batches apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.kernels.numpy_kernel import BulkWindow, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.kernels.numpy_kernel import BulkScan
    from storage.kernels.protocol import HeaderTable, ScannedBatch

MAX_SINGLES = 16_384


def scan_tables(scan: BulkScan) -> Iterator[tuple[HeaderTable, BulkWindow | None]]:
    """Give the batches of a scan in order; those outside of windows are gathered into tables."""
    singles: list[ScannedBatch] = []
    for part in scan.parts():
        if not isinstance(part, BulkWindow):
            singles.append(part)
            if len(singles) < MAX_SINGLES:
                continue
        if singles:
            yield table_of(singles), None
            singles = []
        if isinstance(part, BulkWindow):
            yield part.table, part
    if singles:
        yield table_of(singles), None
