"""Input of a task, and its rows, for streams and for other queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from eoctl.spark.rows.columns import batch_rows, segment_row
from eoctl.spark.rows.kafka_options import kafka_rows
from eoctl.spark.rows.missing_segments import open_seen
from eoctl.spark.rows.source_options import TableKind
from recovery.records.read_options import ReadOptions
from storage.errors import AccessError
from storage.places.splits import proven_apart, prune_splits, require_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from eoctl.spark.rows.missing_segments import Needed
    from eoctl.spark.rows.record_plan import DirectoryRead
    from eoctl.spark.rows.source_options import ReadBounds, SourceOptions
    from storage.dirs.acknowledged_offsets import Acknowledged
    from storage.places.splits import Split


@dataclass
class SplitsInput(InputPartition):
    """The splits of one task, with rows of findings (`problems`) from planning.

    Attributes:
        reads: options for the records of each split.
        segments: for an audit: the number of each split's segment.
        known: for findings: the acknowledged offsets of each directory.
        is_by_directory: all segments of its directories are in this task.
    """

    splits: tuple[Split, ...]
    reads: tuple[DirectoryRead, ...] = ()
    problems: tuple[tuple[Any, ...], ...] = ()
    segments: tuple[int, ...] = ()
    known: Mapping[str, Acknowledged] | None = None
    is_by_directory: bool = False


def no_rows(_: Split) -> Iterator[pa.RecordBatch]:
    """Return no rows."""
    return iter(())


def read_piece(
    split: Split,
    bounds: ReadBounds,
    read: Callable[[Split], Iterator[pa.RecordBatch]],
    *,
    needed: Needed,
    unopened: Callable[[Split], Iterator[pa.RecordBatch]] = no_rows,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece, whose boundaries are found here.

    Args:
        split: as planned.
        bounds: requested offsets and times.
        read: returns the rows of a split with proven positions.
        needed: effect of a missing or unreadable segment.
        unopened: returns the rows of an unreadable segment that is not needed.

    Raises:
        NotMountedError, UnopenedError, DataLossError: as `open_seen`.
        UnprovenCutError: the files have changed, and other tasks may have other boundaries.
    """
    try:
        found = proven_apart(split, partial(open_seen, needed=needed))
    except AccessError:
        yield from unopened(split)
        return
    if found is None:
        return
    # Planning has checked the offsets of whole segments, and of pieces that it has made itself.
    is_to_prune = split.part is not None or bounds.from_time_ms is not None
    if is_to_prune and not prune_splits([found], bounds.inclusive()):
        return
    yield from read(found)
    require_same(split)


def record_rows(
    options: SourceOptions, split: Split, read: DirectoryRead, *, needed: Needed
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a split in the requested table.

    Args:
        options: of the source.
        split: the records to read.
        read: how to read them.
        needed: effect of a missing or unreadable segment.

    Raises:
        NotMountedError, UnopenedError, DataLossError: as `open_seen`, also for a later segment with
            the end of a transaction.
    """
    from recovery.records.columns import RecordReader

    wanted = read_options(options, read)
    rows = RecordReader(split, wanted, opener=partial(open_seen, needed=needed))
    yield from map(kafka_rows, rows) if options.table is TableKind.KAFKA else rows


def read_options(options: SourceOptions, read: DirectoryRead) -> ReadOptions:
    """Return the read options for the records of a directory."""
    return ReadOptions(
        columns=options.columns,
        isolation=options.isolation,
        stable_offset=read.stable_offset,
        **read.bounds._asdict(),
    )


def count_rows(
    options: SourceOptions, split: Split, read: DirectoryRead, *, needed: Needed
) -> Iterator[pa.RecordBatch]:
    """Yield the row of kafka-log-segments for a piece.

    Raises:
        NotMountedError, UnopenedError, DataLossError: as above.
    """
    from recovery.records.piece_reader import count_piece

    opener = partial(open_seen, needed=needed)
    yield segment_row(split, count_piece(split, read_options(options, read), opener))


def uncounted_row(split: Split) -> Iterator[pa.RecordBatch]:
    """Yield the row of a piece of an unreadable segment: no counts, and one finding."""
    from recovery.records.piece_reader import PieceCounts

    yield segment_row(split, PieceCounts(findings=1))


def batch_header_rows(
    split: Split, within: ReadBounds | None = None, *, needed: Needed
) -> Iterator[pa.RecordBatch]:
    """Yield a row per batch, nothing if the file is unreadable and not needed.

    Args:
        split: the batches to read.
        within: bounds of the base offsets, None for all batches of the split.
        needed: as above.

    Raises:
        NotMountedError, UnopenedError, DataLossError: as above.
    """
    place = split.place
    try:
        segment = open_seen(place, needed=needed)
    except AccessError:
        return
    with segment:
        for table in segment.scan_tables(
            start_pos=split.start_pos,
            end_pos=None if split.is_last else split.end_pos,
            is_active=place.is_active and split.is_last,
        ):
            rows = batch_rows(place, table)
            yield rows if within is None else _within(rows, within)


def _within(rows: pa.RecordBatch, bounds: ReadBounds) -> pa.RecordBatch:
    import pyarrow.compute as pc

    if bounds.from_offset is not None:
        rows = rows.filter(pc.greater_equal(rows.column("base_offset"), bounds.from_offset))
    if bounds.to_offset is not None:
        rows = rows.filter(pc.less(rows.column("base_offset"), bounds.to_offset))
    return rows
