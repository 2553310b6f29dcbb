"""Plan of the records that a query reads from each directory, and of the pieces for its tasks."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from eoctl.spark.rows.kafka_options import (
    EARLIEST,
    LATEST,
    READ_THE_REST,
    STRATEGY_OPTION,
    DataLossError,
    PointKind,
)
from eoctl.spark.rows.missing_segments import needed_by_query, open_seen
from eoctl.spark.rows.source_options import ReadBounds
from recovery.export.plan import Until, split_bytes_for
from recovery.records.read_options import ReadOptions
from recovery.transactions.isolation import Isolation
from storage.dirs.log_dir import StoppedState
from storage.errors import UsageError
from storage.places.splits import log_end_offset, plan_apart, prune_splits, split_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eoctl.spark.rows.kafka_options import KafkaOptions, LogPoint
    from eoctl.spark.rows.source_options import SourceOptions
    from recovery.export.plan import ExportLimits
    from storage.places.listing import Listing, SegmentPlace
    from storage.places.splits import Split


# -- pieces of segments that the tasks of a query read, and their boundaries.
#
# Planning uses names, sizes and times of files. It opens only these files.
#   `.log`: the last segment of a partition that a running broker appends to, if it is larger than a
#     piece.
#   `.timeindex`: if a time is requested, and there are at most MAX_LOOKS_COUNT segments.
# Each task proves the boundaries of its piece, and leaves the piece out if it has no requested
# record (`eoctl.spark.rows.task_rows`).


MAX_PIECES_COUNT = 20_000  # tasks, which Spark schedules in half a minute
MAX_INSPECTIONS_COUNT = 1000  # a second of planning, with the rest left to the tasks


def prune_whole(splits: Sequence[Split], bounds: ReadBounds, inspections_count: int) -> list[Split]:
    """Leave out segments that certainly have no requested record.

    Args:
        splits: whole segments.
        bounds: requested offsets and times.
        inspections_count: number of segments that the query may look into in all.
    """
    if bounds == ReadBounds():
        return list(splits)
    if inspections_count > MAX_INSPECTIONS_COUNT:
        bounds = bounds._replace(from_time_ms=None)
    return prune_splits(splits, bounds.inclusive())


def piece_bytes(options: SourceOptions, places: Iterable[SegmentPlace]) -> int:
    """Return the size of the pieces of these segments."""
    total_bytes = sum(each.file_bytes for each in places)
    return options.split_bytes or split_bytes_for(total_bytes, MAX_PIECES_COUNT)


def cut_in_tasks(
    options: SourceOptions, splits: Sequence[Split], listing: Listing | None
) -> list[Split]:
    """Split whole segments into the pieces of tasks. Given splits stay as they are.

    Args:
        options: of the source.
        splits: segments to read.
        listing: their listing, None for given splits.

    Raises:
        AccessError: an `.index` cannot be read.
    """
    if listing is None:
        return list(splits)
    known = listing.acknowledged

    def is_growing(place: SegmentPlace) -> bool:
        around = known.get(place.directory)
        return place.is_active and around is not None and around.stopped is StoppedState.LIVE

    places = [each.place for each in splits]
    return plan_apart(places, piece_bytes(options, places), is_growing)


# -- records of each directory that a query reads, by its options


# Step of a search for a time. The time index leaves out earlier data.
SEARCH_BYTES = 16 << 20


class DirectoryRead(NamedTuple):
    """Options for reading the records of one directory.

    Attributes:
        bounds: of offsets and times.
        stable_offset: end of read_committed, None for read_uncommitted.
    """

    bounds: ReadBounds
    stable_offset: int | None = None


def plan_records(
    options: SourceOptions, bounds: ReadBounds, splits: Sequence[Split], listing: Listing | None
) -> dict[str, DirectoryRead]:
    """Return the read options of each directory.

    Args:
        options: of the source.
        bounds: of the options, narrowed by the query's filters.
        splits: the chosen segments.
        listing: their listing, None for given splits.

    Raises:
        UsageError: an option cannot be applied.
        DataLossError: requested offsets do not exist.
        UnopenedError: a segment that must be read for the plan cannot be opened.
    """
    is_committed_only = options.isolation is Isolation.READ_COMMITTED
    kafka = options.kafka
    directories = dict.fromkeys(each.place.directory for each in splits)
    is_bounded = is_committed_only or options.until is Until.HW or kafka.starting or kafka.ending
    if not is_bounded:
        return {directory: DirectoryRead(bounds) for directory in directories}
    from recovery.export.plan import ExportLimits, limits_of

    limits = limits_of(directories, {} if listing is None else listing.acknowledged)
    if options.until is not Until.HW:
        limits = {name: each._replace(high_watermark=None) for name, each in limits.items()}
    if listing is None:
        if is_committed_only or kafka.starting or kafka.ending:
            raise UsageError("isolation=read_committed looks at whole partitions. Give a path")
        return {
            name: DirectoryRead(bounds.narrowed(ReadBounds(to_offset=each.high_watermark)))
            for name, each in limits.items()
        }
    found = {}
    for directory, places in by_directory(listing.places):
        if directory in directories:
            known = limits.get(directory, ExportLimits(None, None))
            found[directory] = _planned(options, bounds, places, known)
    return found


def by_directory(
    places: Iterable[SegmentPlace],
) -> Iterable[tuple[str, tuple[SegmentPlace, ...]]]:
    """Yield each directory with its segments. `places` are in listed order."""
    for directory, group in groupby(places, lambda each: each.directory):
        yield directory, tuple(group)


def _planned(
    options: SourceOptions,
    bounds: ReadBounds,
    places: tuple[SegmentPlace, ...],
    limits: ExportLimits,
) -> DirectoryRead:
    kafka, is_committed_only = options.kafka, options.isolation is Isolation.READ_COMMITTED
    # A filter of the query is no `from_offset`, so it does not reach below the log start.
    begins_at_start = (
        is_committed_only and options.bounds.from_offset is None
    ) or kafka.starting is not None
    low = limits.log_start_offset if begins_at_start else None
    own = ReadBounds(low, limits.high_watermark)
    own = own.narrowed(_points(kafka, places, limits))
    stable_offset = None
    if is_committed_only:
        from recovery.transactions.outcomes import find_stability

        stable_offset = find_stability(
            places,
            high_watermark=limits.high_watermark,
            log_start_offset=limits.log_start_offset or 0,
            opener=partial(open_seen, needed=needed_by_query(kafka)),
        ).stable_offset
    return DirectoryRead(bounds.narrowed(own), stable_offset)


def _points(
    kafka: KafkaOptions, places: tuple[SegmentPlace, ...], limits: ExportLimits
) -> ReadBounds:
    partition = places[0].topic, places[0].partition
    low = high = None
    if kafka.starting is not None:
        low = starting_offset(kafka, kafka.starting, places, limits.log_start_offset)
    if kafka.ending is not None and kafka.ending.is_own:
        number = kafka.ending.number_of(partition)
        if kafka.ending.is_time:
            high = offset_at_time(kafka, places, number)
        elif number == EARLIEST:
            raise UsageError(f"option {kafka.ending.option}: {_name(places)}: the end is not -2")
        elif number != LATEST:
            high = number
            _require_there(kafka, kafka.ending, number, places, limits.log_start_offset)
    return ReadBounds(from_offset=low, to_offset=high)


def starting_offset(
    kafka: KafkaOptions,
    point: LogPoint,
    places: tuple[SegmentPlace, ...],
    log_start_offset: int | None,
    *,
    may_be_latest: bool = False,
) -> int | None:
    """Find the start offset of a partition, None for the start of its log.

    Raises:
        UsageError: the option has no offset, or all records are older than its time.
        DataLossError: the offset does not exist.
        UnopenedError: a segment that must be read cannot be opened.
    """
    if point.kind is PointKind.EARLIEST:
        return log_start_offset
    if point.kind is PointKind.LATEST:
        return _latest(point, places, may_be_latest=may_be_latest)
    number = point.number_of((places[0].topic, places[0].partition))
    if point.is_time:
        found = offset_at_time(kafka, places, number)
        if found is None and not kafka.is_latest_without_match:
            raise UsageError(
                f"option {point.option}: {_name(places)}: no record is as young as {number}",
                next_step=f'.option("{STRATEGY_OPTION}", "latest") reads none of it',
            )
        return log_end_offset(places) if found is None else found
    if number == EARLIEST:
        return log_start_offset
    if number == LATEST:
        return _latest(point, places, may_be_latest=may_be_latest)
    _require_there(kafka, point, number, places, log_start_offset)
    return number


def _latest(point: LogPoint, places: tuple[SegmentPlace, ...], *, may_be_latest: bool) -> int:
    if not may_be_latest:
        raise UsageError(
            f"option {point.option}: {_name(places)}: a query that ends does not begin at the"
            " latest offset",
            next_step=f"earliest, or {EARLIEST} for a partition",
        )
    return log_end_offset(places)


def _require_there(
    kafka: KafkaOptions,
    point: LogPoint,
    offset: int,
    places: tuple[SegmentPlace, ...],
    log_start_offset: int | None,
) -> None:
    if not kafka.fails_on_loss:
        return
    first, end = max(places[0].base_offset, log_start_offset or 0), log_end_offset(places)
    if not first <= offset <= end:
        raise DataLossError(
            f"{places[0].directory}: option {point.option} names offset {offset}, and the log goes"
            f" from {first} to {end}",
            next_step=READ_THE_REST,
        )


def offset_at_time(
    kafka: KafkaOptions, places: Sequence[SegmentPlace], timestamp_ms: int
) -> int | None:
    """Find the first record that is not older, as a broker's ListOffsets, None without a record.

    Raises:
        UnopenedError, DataLossError: a segment that may have it is unreadable or missing.
    """
    from recovery.records.columns import RecordReader

    wanted = ReadOptions(columns=("offset",), from_time_ms=timestamp_ms)
    splits = split_places(places, SEARCH_BYTES)
    bounds = ReadBounds(from_time_ms=timestamp_ms).inclusive()
    opener = partial(open_seen, needed=needed_by_query(kafka))
    for split in prune_splits(splits, bounds):
        for rows in RecordReader(split, wanted, opener=opener):
            if rows.num_rows:
                offset: int = rows.column("offset")[0].as_py()
                return offset
    return None


def pruned(splits: Sequence[Split], reads: Mapping[str, DirectoryRead]) -> list[Split]:
    """Leave out segments that certainly have no requested record, by directory."""
    kept = []
    for directory, group in groupby(splits, lambda each: each.place.directory):
        kept += prune_whole(list(group), reads[directory].bounds, len(splits))
    return kept


def _name(places: Sequence[SegmentPlace]) -> str:
    return f"{places[0].topic}-{places[0].partition}"
