"""From PATHs to segments, local or behind URIs: what a distributed reader has to know of them.

A PATH is a local path or a URI, with wildcards or without, of a log dir, a partition directory or a
file in one of them. Listing opens no segment; places are plain values that travel to where the
segments are read.

`broker` tells replicas of one partition from each other. It is, in this order,
  the node id that the log dir's meta.properties states                     "1"
  the name that the first wildcard of the PATH stands for, if that lies     "east" of /data/*/logs
  above the partition's directory
  the directory around the partition's directory                           "/data/kafka-logs"
Log dirs of different clusters may state one node id: `directory` still tells them apart.
"""

from __future__ import annotations

from errno import ENOENT
from typing import TYPE_CHECKING, TypeVar

from storage.errors import AccessError, UsageError
from storage.file_names import classify
from storage.places.listing import Listing, SegmentPlace, sort_listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from storage.log.segment import Segment

T = TypeVar("T")

THREADS_COUNT = 16  # requests to remote file systems that wait at the same time


def list_places(paths: Iterable[str], *, base: str | None = None) -> Listing:
    """List the segments behind the PATHs, each directory once.

    Of what wildcards match, files that belong to no partition are passed over, and directories
    that are neither log dirs nor partitions become notes.

    Args:
        paths: local paths and URIs.
        base: what relative paths start from; by default the working directory.

    Raises:
        AccessError: there is one PATH, and it does not exist, matches nothing, or cannot be read.
            With several PATHs that is a recorded problem.
        UsageError: there is none, or one without wildcards is neither a log dir, nor a partition,
            nor a file in one; nothing here reads such URIs.
    """
    from storage.files.uris import Uri, is_uri, local_path
    from storage.places.local import list_local

    wanted = list(paths)
    if not wanted:
        raise UsageError("no PATH given", next_step="name a log dir or a partition directory")
    local, remote = [], []
    for path in wanted:
        below = local_path(Uri.parse(path)) if is_uri(path) else path
        if below is None:
            remote.append(path)
        else:
            local.append(below)
    is_only = len(wanted) == 1
    found = list_local(local, base=base, is_only=is_only)
    if remote:
        from storage.places.remote import list_remote

        more = list_remote(remote, is_only=is_only)
        found = Listing(
            places=found.places + more.places,
            directories=found.directories + more.directories,
            problems=found.problems + more.problems,
            notes=found.notes + more.notes,
            log_dirs=found.log_dirs + more.log_dirs,
            acknowledged={**found.acknowledged, **more.acknowledged},
        )
    return sort_listing(found)


def open_place(place: SegmentPlace | str, base_offset: int | None = None) -> Segment:
    """Open a segment by its place or its path, read-only.

    Args:
        place: as listed; or the path or URI of a `.log`, which is then read by ranges.
        base_offset: by the place or the name unless given.

    Raises:
        AccessError: it cannot be opened.
        UsageError: nothing here reads such URIs.
    """
    from storage.files.uris import Uri, is_uri
    from storage.log.segment import Segment, parse_base_offset
    from storage.places.place_files import open_file

    path = place if isinstance(place, str) else place.path
    if base_offset is None and isinstance(place, SegmentPlace):
        base_offset = place.base_offset
    if base_offset is None and is_uri(path):
        base_offset = parse_base_offset(Uri.parse(path).name)
    segment = Segment(open_file(path), base_offset)
    if isinstance(place, SegmentPlace):
        segment.within(place.end_offset, place.claimed_end)
    return segment


def map_places(function: Callable[[SegmentPlace], T], places: Sequence[SegmentPlace]) -> list[T]:
    """Call a function for each place; in threads if any is remote, where most time is waiting."""
    from storage.files.uris import is_uri

    if len(places) < 2 or not any(is_uri(each.path) for each in places):
        return [function(each) for each in places]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(THREADS_COUNT, len(places))) as pool:
        return list(pool.map(function, places))


def was_deleted(directory: str, path: str, error: AccessError) -> bool:
    """Return whether a segment that cannot be opened was deleted as retention does it.

    It is not there, and the log begins behind it now: a segment in the middle would be a loss.
    """
    base_offset = classify(path.rpartition("/")[2]).offset
    if error.errno != ENOENT or base_offset is None:
        return False
    try:
        bases = [each.base_offset for each in list_places([directory]).places]
    except (AccessError, UsageError):
        return False
    return bool(bases) and min(bases) > base_offset
