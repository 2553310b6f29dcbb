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

import os
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from storage.acknowledged import Acknowledged
from storage.errors import UsageError
from storage.log_dir import COORDINATOR_TOPICS, METADATA_TOPIC, DirState, parse_partition_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from storage.log_dir import LogDir, Problem
    from storage.segment import Segment

T = TypeVar("T")

THREADS_COUNT = 16  # requests to remote file systems that wait at the same time

# PROD-12: their coordinators write what sequence rules do not hold for.
UNSEQUENCED_TOPICS = COORDINATOR_TOPICS | {METADATA_TOPIC}


class SegmentPlace(NamedTuple):
    """One segment of a partition directory, as listed.

    Attributes:
        broker: see above.
        topic, partition: by the directory's name; -1 if it is no partition's.
        directory: an absolute path, or a URI.
        path: of the `.log`; below `directory`.
        base_offset: by its name.
        is_active: the last of its directory, which may have a torn tail.
        file_bytes: size when it was listed.
        modified_ns: when it was last written to, since 1970; 0 where that is not known.
        end_offset: base offset of the next segment of its directory; None if it is the last.
    """

    broker: str
    topic: str
    partition: int
    directory: str
    path: str
    base_offset: int
    is_active: bool
    file_bytes: int
    modified_ns: int
    end_offset: int | None = None

    def data_bytes(self) -> int:
        """How much of it is there to be read, without holes; all, where that is not known."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - it may be a URI
        except OSError:
            return self.file_bytes
        return min(self.file_bytes, found.st_blocks * 512)

    @property
    def has_sequences(self) -> bool:
        """Sequence rules hold in its topic (PROD-12)."""
        return self.topic not in UNSEQUENCED_TOPICS


class DirectoryPlace(NamedTuple):
    """A partition directory; the first fields are those of its segments' places.

    Attributes:
        cluster: the cluster id that the log dir's meta.properties states; None: not known.
    """

    broker: str
    topic: str
    partition: int
    directory: str
    cluster: str | None = None

    @property
    def is_live(self) -> bool:
        """A broker serves it: it is not set aside to be deleted or moved, nor stray."""
        from storage.uris import Uri, is_uri

        path = Uri.parse(self.directory).path if is_uri(self.directory) else self.directory
        name = parse_partition_name(path.rstrip("/").rpartition("/")[2])
        return name is None or name.state is DirState.LIVE


class Listing(NamedTuple):
    """What the PATHs of a call lead to.

    Attributes:
        places: by directory, then base offset.
        directories: those without segments too, sorted by path.
        problems: what could not be listed or breaks a rule; names that are not UTF-8, which
            neither URIs nor Spark can hold, are left out and are problems too.
        notes: what a person should know, such as a log dir in use.
        log_dirs: those that were asked for as a whole.
        acknowledged: how far logs are known to have reached, by directory.
    """

    places: tuple[SegmentPlace, ...]
    directories: tuple[DirectoryPlace, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    log_dirs: tuple[LogDir, ...] = ()
    acknowledged: Mapping[str, Acknowledged] = MappingProxyType({})

    def acknowledged_of(self, directory: str) -> Acknowledged:
        """How far the log of a directory is known to have reached."""
        return self.acknowledged.get(directory, Acknowledged())


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
    from storage.local_places import list_local
    from storage.uris import Uri, is_uri, local_path

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
        from storage.remote_places import list_remote

        more = list_remote(remote, is_only=is_only)
        found = Listing(
            found.places + more.places,
            found.directories + more.directories,
            found.problems + more.problems,
            found.notes + more.notes,
            found.log_dirs + more.log_dirs,
            {**found.acknowledged, **more.acknowledged},
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
    from storage.place_files import open_file
    from storage.segment import Segment, parse_base_offset
    from storage.uris import Uri, is_uri

    path = place if isinstance(place, str) else place.path
    if base_offset is None and isinstance(place, SegmentPlace):
        base_offset = place.base_offset
    if base_offset is None and is_uri(path):
        base_offset = parse_base_offset(Uri.parse(path).name)
    return Segment(open_file(path), base_offset)


def map_places(function: Callable[[SegmentPlace], T], places: Sequence[SegmentPlace]) -> list[T]:
    """Call a function for each place; in threads if any is remote, where most time is waiting."""
    from storage.uris import is_uri

    if len(places) < 2 or not any(is_uri(each.path) for each in places):
        return [function(each) for each in places]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(THREADS_COUNT, len(places))) as pool:
        return list(pool.map(function, places))


def sort_listing(listing: Listing) -> Listing:
    """Bring places and directories into their order."""
    places = sorted(listing.places, key=lambda each: (each.directory, each.base_offset))
    for number, (each, later) in enumerate(pairwise(places)):
        if each.directory == later.directory and each.base_offset < later.base_offset:
            places[number] = each._replace(end_offset=later.base_offset)
    return listing._replace(
        places=tuple(places),
        directories=tuple(sorted(listing.directories, key=lambda each: each.directory)),
    )
