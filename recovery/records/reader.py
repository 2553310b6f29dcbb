"""Read the records of a piece of a segment as Arrow record batches; see `piece_reader`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from recovery.records.columns import ColumnBuilder
from recovery.records.piece_reader import PieceReader
from recovery.records.read_options import ReadOptions
from storage.places.find import open_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split


class RecordReader(PieceReader[pa.RecordBatch]):
    """Iterable, once, of Arrow record batches.

    Attributes:
        schema: theirs.
    """

    def __init__(
        self,
        split: Split,
        options: ReadOptions | None = None,
        *,
        opener: Callable[[SegmentPlace], Segment] = open_place,
    ) -> None:
        """`opener` is there for tests and odd devices. Raises UsageError for unknown columns."""
        options = ReadOptions() if options is None else options
        builder = ColumnBuilder(split.place, options.columns)
        super().__init__(split, options, builder, opener=opener)
        self.schema = builder.schema
