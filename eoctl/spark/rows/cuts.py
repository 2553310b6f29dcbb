"""Which pieces of segments the tasks of a query read, and where each of them is cut.

Planning goes by the names, sizes and times of files, and opens none of them but
  the last segment of a partition that a running broker appends to, if it is larger than a piece
  time indexes, if a time is asked for and there are not more than MAX_LOOKS_COUNT segments
Each task proves where its piece begins and ends, and leaves it out where it holds nothing that is
wanted (`eoctl.spark.rows.task_rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.spark.rows.source_options import ReadBounds
from recovery.export.plan import split_bytes_for
from storage.dirs.log_dir import StoppedState
from storage.places.splits import plan_apart, prune_splits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eoctl.spark.rows.source_options import SourceOptions
    from storage.places.listing import Listing, SegmentPlace
    from storage.places.splits import Split

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
