"""The values in a listing of log directories, and the listing of local directories."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.acknowledged_offsets import Acknowledged, acknowledged, claimed_end
from storage.dirs.discovery import Selected, discover, duplicate_partitions, has_partition_file
from storage.dirs.partition_files import list_partition
from storage.errors import AccessError, UsageError
from storage.file_names import (
    COORDINATOR_TOPICS,
    LOG_FILE_KINDS,
    METADATA_TOPIC,
    DirState,
    FileKind,
    classify,
    parse_partition_name,
)
from storage.files.uris import Match, expand, has_wildcard
from storage.kernels.offset_order import ClaimedEnd  # noqa: TC001 - `read_as` resolves it

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from storage.dirs.discovery import Discovery
    from storage.dirs.log_dir import LogDir, Problem
    from storage.dirs.partition_files import PartitionFiles, SegmentFiles
    from storage.errors import CorruptError


# PROD-12: sequence rules do not apply to batches that their coordinators write.
UNSEQUENCED_TOPICS = COORDINATOR_TOPICS | {METADATA_TOPIC}


class SegmentPlace(NamedTuple):
    """One segment of a partition directory, as listed.

    Attributes:
        broker: see `find`.
        topic, partition: by the directory's name, or -1 if it is no partition's.
        directory: an absolute path, or a URI.
        path: of the `.log`, below `directory`.
        base_offset: by its name.
        is_active: the last of its directory, which may have a torn tail.
        file_bytes: size when it was listed.
        modified_ns: time of the last write, since 1970, or 0 if unknown.
        end_offset: base offset of the next segment of its directory, or None.
        cleaned_offset: as in `Acknowledged`.
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
        """The number of bytes to read, without holes. If the holes are unknown, the whole size."""
        try:
            found = os.stat(self.path)  # noqa: PTH116 - it may be a URI
        except OSError:
            return self.file_bytes
        return min(self.file_bytes, found.st_blocks * 512)

    @property
    def has_sequences(self) -> bool:
        """Return whether sequence rules apply to its topic (PROD-12)."""
        return self.topic not in UNSEQUENCED_TOPICS

    def may_hold(self, low: int | None, high: int | None) -> bool:
        """Return whether it may contain offsets in [low, high), by the names of the segments."""
        is_below = low is not None and self.end_offset is not None and self.end_offset <= low
        is_above = high is not None and self.base_offset >= high
        return not is_below and not is_above


class DirectoryPlace(NamedTuple):
    """A partition directory. The first fields are the same as in its segments' places.

    Attributes:
        cluster: the cluster id in the log directory's meta.properties, or None if unknown.
    """

    broker: str
    topic: str
    partition: int
    directory: str
    cluster: str | None = None

    @property
    def is_live(self) -> bool:
        """Return whether a broker serves it: it waits for no deletion or move, and is not stray."""
        from storage.files.uris import Uri, is_uri

        path = Uri.parse(self.directory).path if is_uri(self.directory) else self.directory
        name = parse_partition_name(path.rstrip("/").rpartition("/")[2])
        return name is None or name.state is DirState.LIVE


class Listing(NamedTuple):
    """The content of the PATHs of a command.

    Attributes:
        places: by directory, then base offset.
        directories: including those without segments, sorted by path.
        problems: reading errors and broken rules. Names that are not UTF-8 are left out and are
            problems too, since neither URIs nor Spark can hold them.
        notes: remarks for the user, such as a log directory in use.
        log_dirs: the log directories that were given as PATHs.
        acknowledged: the evidence for the ends of logs, by directory.
    """

    places: tuple[SegmentPlace, ...]
    directories: tuple[DirectoryPlace, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    log_dirs: tuple[LogDir, ...] = ()
    acknowledged: Mapping[str, Acknowledged] = MappingProxyType({})

    def acknowledged_of(self, directory: str) -> Acknowledged:
        """Return the evidence for the end of a directory's log."""
        return self.acknowledged.get(directory, Acknowledged())


def sort_listing(listing: Listing) -> Listing:
    """Sort places and directories."""
    places = sorted(listing.places, key=lambda each: (each.directory, each.base_offset))
    for number, (each, later) in enumerate(pairwise(places)):
        if each.directory == later.directory and each.base_offset < later.base_offset:
            places[number] = each._replace(end_offset=later.base_offset)
    return listing._replace(
        places=tuple(places),
        directories=tuple(sorted(listing.directories, key=lambda each: each.directory)),
    )


# -- listing segments in local directories, with wildcards


# Files that select their partition when a wildcard matches them. Other files, such as the
# checkpoints of a log directory, would select far more than the user meant.
PARTITION_FILE_KINDS = LOG_FILE_KINDS | {FileKind.PARTITION_METADATA}


def no_match(pattern: str, problems: list[Problem], problems_count: int) -> AccessError:
    """Return the error for a pattern that leads nowhere.

    If there are more problems than `problems_count`, it is the last of them, which is removed.
    """
    if len(problems) > problems_count and isinstance(last := problems[-1], AccessError):
        problems.pop()
        return last
    words = "no log dir, partition or file of one matches"
    return AccessError(FileNotFoundError(errno.ENOENT, words, pattern), pattern)


def not_utf8(path: str) -> AccessError:
    """Return the problem of a name that no URI and no Spark string can hold."""
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return AccessError(OSError(errno.EILSEQ, "left out: the name is not valid UTF-8"), shown)


def list_local(paths: Sequence[str], *, base: str | None = None, is_only: bool = True) -> Listing:
    """List local PATHs, unsorted. With `is_only`, errors of a single PATH are raised."""
    lister = _LocalLister()
    for path in paths:
        try:
            lister.add(path, Path(base or Path.cwd(), path))
        except AccessError as exc:
            if is_only and len(paths) == 1:
                raise
            lister.problems.append(exc)
    try:
        lister.find()
    except AccessError as exc:
        if is_only and len(paths) == 1:
            raise
        lister.problems.append(exc)
    return lister.listing()


class _LocalLister:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self._wanted: dict[str, None] = {}  # absolute paths without wildcards, in order
        self._found: list[DirectoryPlace] = []
        self._around: dict[str, Selected] = {}  # by directory, for its log directory
        self._whole: tuple[LogDir, ...] = ()
        self._named: dict[str, str] = {}  # matches of a first wildcard -> name

    def add(self, given: str, path: Path) -> None:
        """Add a PATH, as given and as resolved."""
        if not has_wildcard(str(path)) or os.path.lexists(path):
            self._wanted.setdefault(_absolute(path))
            return
        is_met, problems_count = False, len(self.problems)
        for match in expand(str(path.absolute()), self._names):
            target = self._target(match)
            if target is not None:
                is_met = True
                self._wanted.setdefault(_absolute(Path(target)))
                self._named.setdefault(match.first, Path(match.first).name)
        if not is_met:
            raise no_match(given, self.problems, problems_count)

    def _names(self, directory: str) -> list[str]:
        try:
            return os.listdir(directory)  # noqa: PTH208 - names, not paths
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as exc:
            self.problems.append(AccessError(exc, directory))
            return []

    def _target(self, match: Match) -> str | None:
        """Return the directory that a match selects, or None."""
        path = match.path
        if not Path(path).is_dir():
            is_wanted = classify(Path(path).name).kind in PARTITION_FILE_KINDS
            return str(Path(path).parent) if is_wanted and os.path.lexists(path) else None
        if parse_partition_name(Path(path).name) is not None and has_partition_file(path):
            return path
        try:
            discover([path])
        except UsageError:
            self.notes.append(f"{path}: skipped, neither a log dir nor a partition")
            return None
        except AccessError as exc:
            self.problems.append(exc)
            return None
        return path

    def find(self) -> None:
        """Find the partitions behind the added PATHs. Raises AccessError if there is one PATH."""
        if not self._wanted:
            return
        found = discover(self._wanted)
        self.problems += self._problems(found)
        self.notes += filter(None, map(_use_note, found.log_dirs))
        self._whole = found.whole
        for selected in found.selected:
            path, name = selected.partition
            if is_text(path):
                broker = self._broker(selected)
                cluster = _cluster_id(selected.log_dir)
                self._around[path] = selected
                self._found.append(
                    DirectoryPlace(
                        broker=broker,
                        topic=name.topic,
                        partition=name.partition,
                        directory=path,
                        cluster=cluster,
                    )
                )
            else:
                self.problems.append(not_utf8(path))

    def listing(self) -> Listing:
        """List the found partitions."""
        places: list[SegmentPlace] = []
        known: dict[str, Acknowledged] = {}
        for each in self._found:
            files = self._list(each)
            if files is not None:
                found = acknowledged(*self._around[each.directory], files)
                more = self._segments(each, files, found.cleaned_offset)
                if more:
                    end = claimed_end(*self._around[each.directory])
                    more[-1] = more[-1]._replace(claimed_end=end)
                places += more
                known[each.directory] = found
        return Listing(
            places=tuple(places),
            directories=tuple(self._found),
            problems=tuple(self.problems),
            notes=tuple(self.notes),
            log_dirs=self._whole,
            acknowledged=known,
        )

    def _list(self, directory: DirectoryPlace) -> PartitionFiles | None:
        try:
            files = list_partition(directory.directory)
        except AccessError as exc:
            self.problems.append(exc)
            return None
        self.problems += files.problems
        return files

    def _segments(
        self, directory: DirectoryPlace, files: PartitionFiles, cleaned_offset: int | None
    ) -> list[SegmentPlace]:
        return [
            SegmentPlace(
                broker=directory.broker,
                topic=directory.topic,
                partition=directory.partition,
                directory=directory.directory,
                path=each.log.path,
                base_offset=each.base_offset,
                is_active=each is files.segments[-1],
                file_bytes=each.log.file_bytes,
                modified_ns=_modified_ns(each),
                cleaned_offset=cleaned_offset,
            )
            for each in files.segments
        ]

    def _broker(self, selected: Selected) -> str:
        node_id = _node_id(selected.log_dir)
        if node_id is not None:
            return node_id
        around = Path(selected.partition.path).parent
        for each in (around, *around.parents):
            if str(each) in self._named:
                return self._named[str(each)]
        return str(around)

    def _problems(self, found: Discovery) -> Iterable[Problem]:
        """Return the problems, without partitions in two log directories of different brokers."""
        yield from (each for each in found.problems if getattr(each, "check_id", "") != "DIR-2")
        yield from duplicates(
            ((_node_id(each) or self._name_of(each.path) or each.path, _cluster_id(each)), each)
            for each in found.log_dirs
        )

    def _name_of(self, path: str) -> str | None:
        around = (Path(path), *Path(path).parents)
        return next((self._named[str(each)] for each in around if str(each) in self._named), None)


def duplicates(log_dirs: Iterable[tuple[Hashable, LogDir]]) -> Iterator[CorruptError]:
    """Find the partitions that are live in two log directories of one broker.

    The log directories come with their brokers. Unlike in `discover`, log directories without a
    node id do not count as one broker.
    """
    by_broker: dict[Hashable, list[LogDir]] = {}
    for broker, log_dir in log_dirs:
        by_broker.setdefault(broker, []).append(log_dir)
    for each in by_broker.values():
        yield from duplicate_partitions(each)


def is_text(path: str) -> bool:
    """Return whether the path is valid UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _absolute(path: Path) -> str:
    """Make a path absolute and keep links, whose names may be names of partitions."""
    return os.path.realpath(path) if ".." in path.parts else str(path.absolute())


def _cluster_id(log_dir: LogDir | None) -> str | None:
    return None if log_dir is None or log_dir.meta is None else log_dir.meta.cluster_id


def _node_id(log_dir: LogDir | None) -> str | None:
    if log_dir is None or log_dir.meta is None or log_dir.meta.node_id is None:
        return None
    return str(log_dir.meta.node_id)


def _use_note(log_dir: LogDir) -> str | None:
    if not log_dir.lock.is_held:
        return None
    holder = "a process" if log_dir.lock.pid is None else f"process {log_dir.lock.pid}"
    return f"{log_dir.path}: in use by {holder}; what is listed may have changed since"


def _modified_ns(files: SegmentFiles) -> int:
    try:
        return os.stat(files.log.path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0  # removed meanwhile: its reader reports that
