"""What a task is given, and how it makes rows of it; streams and queries that end do it alike."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from enum import Enum, auto
from errno import ENOENT
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from eoctl.spark.rows.columns import batch_rows, segment_row
from eoctl.spark.rows.kafka_options import READ_THE_REST, DataLossError
from eoctl.spark.rows.kafka_table import kafka_rows
from eoctl.spark.rows.source_options import TableKind
from recovery.records.read_options import ReadOptions
from storage.errors import EXIT_ACCESS, AccessError, EoctlError
from storage.files.uris import is_uri
from storage.places.find import open_place
from storage.places.planned_splits import proven_apart, require_same
from storage.places.split_pruning import prune_splits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from eoctl.spark.rows.record_plan import DirectoryRead
    from eoctl.spark.rows.source_options import ReadBounds, SourceOptions
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace
    from storage.places.splits import Split


class NotMountedError(EoctlError):
    """A host has not the directory that planning has seen on another one."""

    exit_status = EXIT_ACCESS


class Needed(Enum):
    """Which segments that planning has seen must still be there when a task opens them.

    Attributes:
        NOTHING: one that is gone, or cannot be opened, has no rows.
        THERE: one that is gone fails the query; one that cannot be opened has no rows, as damage.
        OPENED: either fails it.
    """

    NOTHING = auto()
    THERE = auto()
    OPENED = auto()


@dataclass
class SplitsInput(InputPartition):
    """The splits of one task; `problems` are rows of findings that planning has made."""

    splits: tuple[Split, ...]
    reads: tuple[DirectoryRead, ...] = ()  # how each split's records are read
    problems: tuple[tuple[Any, ...], ...] = ()
    segments: tuple[int, ...] = ()  # of an audit: the number of each split's segment


def no_rows(_: Split) -> Iterator[pa.RecordBatch]:
    """Give nothing."""
    return iter(())


def read_piece(
    split: Split,
    bounds: ReadBounds,
    read: Callable[[Split], Iterator[pa.RecordBatch]],
    *,
    needed: Needed,
    unopened: Callable[[Split], Iterator[pa.RecordBatch]] = no_rows,
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a piece, which finds its cuts here.

    Args:
        split: as it was planned.
        bounds: what is asked for.
        read: gives the rows of a split with positions that hold.
        needed: what fails the query.
        unopened: gives the rows of one that cannot.

    Raises:
        AccessError: it cannot be opened, and must be.
        NotMountedError: this host has not the directory that planning has seen.
        DataLossError: the segment is gone.
        UnprovenCutError: the files have changed, and other tasks may have found other cuts.
    """
    try:
        found = proven_apart(split, partial(open_seen, needed=needed))
    except AccessError:
        if needed is Needed.OPENED:
            raise
        yield from unopened(split)
        return
    if found is None:
        return
    # Of whole segments, and of those that planning has cut, it has looked at offsets.
    is_to_prune = split.part is not None or bounds.from_time_ms is not None
    if is_to_prune and not prune_splits([found], bounds.inclusive()):
        return
    yield from read(found)
    require_same(split)


def record_rows(
    options: SourceOptions, split: Split, read: DirectoryRead, *, needed: Needed
) -> Iterator[pa.RecordBatch]:
    """Give the records of a split as the table that was asked for.

    Args:
        options: of the source.
        split: what to read.
        read: how.
        needed: what fails the query.

    Raises:
        NotMountedError: this host has not the directory that planning has seen.
        DataLossError: the segment is gone.
    """
    from recovery.records.reader import RecordReader

    wanted = read_options(options, read)
    rows = RecordReader(split, wanted, opener=partial(open_seen, needed=needed))
    yield from map(kafka_rows, rows) if options.table is TableKind.KAFKA else rows


def read_options(options: SourceOptions, read: DirectoryRead) -> ReadOptions:
    """Return what is wanted of the records of a directory."""
    return ReadOptions(
        columns=options.columns,
        isolation=options.isolation,
        stable_offset=read.stable_offset,
        **read.bounds._asdict(),
    )


def count_rows(
    options: SourceOptions, split: Split, read: DirectoryRead, *, needed: Needed
) -> Iterator[pa.RecordBatch]:
    """Give the row of kafka-log-segments of a piece.

    Raises:
        NotMountedError, DataLossError: as above.
    """
    from recovery.records.counting import count_piece

    opener = partial(open_seen, needed=needed)
    yield segment_row(split, count_piece(split, read_options(options, read), opener))


def uncounted_row(split: Split) -> Iterator[pa.RecordBatch]:
    """Give the row of a piece of a segment that cannot be opened: nothing, and that it is bad."""
    from recovery.records.counting import PieceCounts

    yield segment_row(split, PieceCounts(findings=1))


def batch_header_rows(
    split: Split, within: ReadBounds | None = None, *, needed: Needed
) -> Iterator[pa.RecordBatch]:
    """Give a row per batch; nothing if the file cannot be opened.

    Args:
        split: what to read.
        within: of the base offsets; None: all batches of the split.
        needed: as above.

    Raises:
        NotMountedError, DataLossError: as above.
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


def open_seen(place: SegmentPlace, *, needed: Needed) -> Segment:
    """Open a segment that planning has seen.

    Raises:
        NotMountedError: its whole directory is not there: it is another one on this host.
        DataLossError: it is gone, and has to be there.
        AccessError: it cannot be opened.
    """
    try:
        return open_place(place)
    except AccessError as exc:
        if exc.errno != ENOENT:
            raise
        is_local = not is_uri(place.path)
        if is_local and not os.path.isdir(place.directory):  # noqa: PTH112 - a place is plain text
            raise NotMountedError(
                f"{socket.gethostname()}: there is no directory {place.directory}, which is there"
                " where Spark has planned the query",
                next_step="mount it on every host under the same path, or give a URI",
            ) from exc
        if needed is Needed.NOTHING:
            raise
        planned, then = _GONE_SINCE[needed]
        raise DataLossError(
            f"{place.path}: is gone since the {planned} was planned", next_step=then
        ) from exc


_GONE_SINCE = {
    Needed.THERE: ("query", f"run it again, or {READ_THE_REST}"),
    Needed.OPENED: ("micro-batch", "start the query again: it plans that micro-batch anew"),
}
