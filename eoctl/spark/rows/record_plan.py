"""Which records of each directory a query is given, and which pieces its tasks read."""

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
from eoctl.spark.rows.opening import needed_by_query, open_seen
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


# -- which pieces of segments the tasks of a query read, and where each of them is cut
#
# Planning goes by the names, sizes and times of files, and opens none of them but
#   the last segment of a partition that a running broker appends to, if it is larger than a piece
#   time indexes, if a time is asked for and there are not more than MAX_LOOKS_COUNT segments
# Each task proves where its piece begins and ends, and leaves it out where it holds nothing that is
# wanted (`eoctl.spark.rows.task_rows`).


MAX_PIECES_COUNT = 20_000  # tasks, which Spark schedules in half a minute
MAX_LOOKS_COUNT = 1000  # a second of planning; more are left to the tasks


def prune_whole(splits: Sequence[Split], bounds: ReadBounds, looks_count: int) -> list[Split]:
    """Leave out segments that certainly hold nothing that is asked for.

    Args:
        splits: whole segments.
        bounds: what is asked for.
        looks_count: how many segments the query may look into in all.
    """
    if bounds == ReadBounds():
        return list(splits)
    if looks_count > MAX_LOOKS_COUNT:
        bounds = bounds._replace(from_time_ms=None)
    return prune_splits(splits, bounds.inclusive())


def piece_bytes(options: SourceOptions, places: Iterable[SegmentPlace]) -> int:
    """Return how large pieces of these segments are to be."""
    total_bytes = sum(each.file_bytes for each in places)
    return options.split_bytes or split_bytes_for(total_bytes, MAX_PIECES_COUNT)


def cut_in_tasks(
    options: SourceOptions, splits: Sequence[Split], listing: Listing | None
) -> list[Split]:
    """Cut whole segments into the pieces of tasks; splits that were given stay as they are.

    Args:
        options: of the source.
        splits: what is to be read.
        listing: where it was found; None: it was given.

    Raises:
        AccessError: an `.index` cannot be looked at.
    """
    if listing is None:
        return list(splits)
    known = listing.acknowledged

    def is_growing(place: SegmentPlace) -> bool:
        around = known.get(place.directory)
        return place.is_active and around is not None and around.stopped is StoppedState.LIVE

    places = [each.place for each in splits]
    return plan_apart(places, piece_bytes(options, places), is_growing)


# -- which records of each directory a query is given, from what its options say


# By which a time is looked for: what begins before it is left out by the time index.
SEARCH_BYTES = 16 << 20


class DirectoryRead(NamedTuple):
    """How the records of one directory are read.

    Attributes:
        bounds: of offsets and times.
        stable_offset: where read_committed ends; None: read_uncommitted.
    """

    bounds: ReadBounds
    stable_offset: int | None = None


def plan_records(
    options: SourceOptions, bounds: ReadBounds, splits: Sequence[Split], listing: Listing | None
) -> dict[str, DirectoryRead]:
    """Work out how each directory is read.

    Args:
        options: of the source.
        bounds: theirs, and what the filters of the query add.
        splits: what was chosen.
        listing: where they come from; None: they were given.

    Raises:
        UsageError: an option cannot be carried out.
        DataLossError: offsets that are asked for are not there.
        UnopenedError: what has to be looked at for that cannot be opened.
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
            raise UsageError("isolation=read_committed looks at whole partitions: give a path")
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
    """Give each directory with its segments; `places` are as listed."""
    for directory, group in groupby(places, lambda each: each.directory):
        yield directory, tuple(group)


def _planned(
    options: SourceOptions,
    bounds: ReadBounds,
    places: tuple[SegmentPlace, ...],
    limits: ExportLimits,
) -> DirectoryRead:
    kafka, is_committed_only = options.kafka, options.isolation is Isolation.READ_COMMITTED
    # A filter of the query is no `from_offset`: it does not reach below the log start.
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
    """Find the offset at which a partition begins; None: where its log does.

    Raises:
        UsageError: the option does not tell, or no record is as young as it asks for.
        DataLossError: the offset is not there.
        UnopenedError: a segment that has to be looked into cannot be opened.
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
    """Find the first record that is not older, as a broker's ListOffsets; None: there is none.

    Raises:
        UnopenedError, DataLossError: a segment that may have it cannot be opened, or is gone.
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
    """Leave out what certainly holds nothing that is asked for; directories one by one."""
    kept = []
    for directory, group in groupby(splits, lambda each: each.place.directory):
        kept += prune_whole(list(group), reads[directory].bounds, len(splits))
    return kept


def _name(places: Sequence[SegmentPlace]) -> str:
    return f"{places[0].topic}-{places[0].partition}"
