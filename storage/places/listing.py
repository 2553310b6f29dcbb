"""What a listing of log dirs holds: segments, directories and problems, as values."""

from __future__ import annotations

import os
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.acknowledged import Acknowledged
from storage.file_names import COORDINATOR_TOPICS, METADATA_TOPIC, DirState, parse_partition_name
from storage.kernels.offset_order import ClaimedEnd  # noqa: TC001 - `read_as` resolves it

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.dirs.log_dir import LogDir, Problem


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
        cleaned_offset: as of `Acknowledged`.
        claimed_end: of the log, if this is its last segment.
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
    cleaned_offset: int | None = None
    claimed_end: ClaimedEnd | None = None

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

    def may_hold(self, low: int | None, high: int | None) -> bool:
        """By the names of the segments, offsets from `low` on and below `high` may be in it."""
        is_below = low is not None and self.end_offset is not None and self.end_offset <= low
        is_above = high is not None and self.base_offset >= high
        return not is_below and not is_above


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
        from storage.files.uris import Uri, is_uri

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
