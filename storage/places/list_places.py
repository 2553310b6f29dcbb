"""From PATHs to segments, local or behind URIs: the data that a distributed reader needs.

A PATH is a local path or a URI, with or without wildcards, of a log directory, a partition
directory or a file in either. Listing opens no segment. Places are plain values that travel to the
readers of the segments.

`broker` distinguishes replicas of one partition. It is the first of these that exists:

- The node id in the log directory's meta.properties, such as "1".
- The name that the first wildcard of the PATH matched, if that is above the partition's directory.
  For /data/*/logs it may be "east".
- The parent of the partition's directory, such as "/data/kafka-logs".

Log directories of different clusters may have the same node id. `directory` is still different.
"""

from __future__ import annotations

import errno
from errno import ENOENT
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from storage.dirs.acknowledged_offsets import Acknowledged, acknowledged, claimed_end
from storage.dirs.discovery import UNKNOWN_PARTITION, NotKafkaError, is_partition_file
from storage.dirs.log_dir import LOG_DIR_FILES, MAX_FILE_BYTES, LogDir, PartitionDir, parse_offsets
from storage.dirs.partition_files import FileEntry, PartitionFiles, put_together
from storage.errors import AccessError, CorruptError, FormatError, UsageError
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    META_PROPERTIES_NAME,
    RECOVERY_POINT_NAME,
    REMOTE_INDEX_CACHE_NAME,
    DirState,
    FileKind,
    FileSuffix,
    PartitionName,
    classify,
    parse_partition_name,
)
from storage.files.broker_lock import LockKind, LockState
from storage.files.file_systems import RemoteEntry, RemoteFile, as_os_error, locate
from storage.files.uris import expand
from storage.formats.meta_properties import parse_meta_properties
from storage.places.listing import (
    PARTITION_FILE_KINDS,
    DirectoryPlace,
    Listing,
    SegmentPlace,
    duplicates,
    no_match,
    not_utf8,
    sort_listing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable, Sequence

    from storage.dirs.log_dir import Problem
    from storage.files.file_systems import Located
    from storage.log.segment import Segment


T = TypeVar("T")

THREADS_COUNT = 16  # requests to remote file systems that may wait at the same time


def list_places(paths: Iterable[str], *, base: str | None = None) -> Listing:
    """List the segments behind the PATHs, each directory once.

    Files that wildcards match and that belong to no partition are skipped. Matched directories that
    are neither log directories nor partitions become notes.

    Args:
        paths: local paths and URIs.
        base: the start of relative paths, by default the working directory.

    Raises:
        AccessError: there is one PATH, and it does not exist, matches nothing, or cannot be read.
            With several PATHs that is a recorded problem.
        UsageError: there is no PATH, or no file system for a URI. Or a PATH without wildcards is
            neither a log directory, nor a partition, nor a file in either.
    """
    from storage.files.uris import Uri, is_uri, local_path
    from storage.places.listing import list_local

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
        place: as listed, or the path or URI of a `.log`, which is then read by ranges.
        base_offset: by default from the place or the name.

    Raises:
        AccessError: it cannot be opened.
        UsageError: there is no file system for the URI.
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
    """Call a function for each place, in threads if any place is remote and so mostly waits."""
    from storage.files.uris import is_uri

    if len(places) < 2 or not any(is_uri(each.path) for each in places):
        return [function(each) for each in places]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(THREADS_COUNT, len(places))) as pool:
        return list(pool.map(function, places))


def was_deleted(directory: str, path: str, error: AccessError) -> bool:
    """Return whether retention has deleted a segment that cannot be opened.

    If so, the file does not exist and the log now begins behind it. A missing segment in the middle
    would be a loss.
    """
    base_offset = classify(path.rpartition("/")[2]).offset
    if error.errno != ENOENT or base_offset is None:
        return False
    try:
        bases = [each.base_offset for each in list_places([directory]).places]
    except (AccessError, UsageError):
        return False
    return bool(bases) and min(bases) > base_offset


# -- listing segments behind URIs, with wildcards
#
# The rules for names and contents are as in `discovery` and `partition_files`. It is unknown
# whether a broker uses a directory, since only a local directory shows that. The checkpoints of a
# log directory are read even if only one of its partitions is given.


def list_remote(uris: Sequence[str], *, is_only: bool = True) -> Listing:
    """List URIs, unsorted. With `is_only`, errors of a single URI are raised."""
    lister = _RemoteLister()
    for uri in uris:
        try:
            lister.add(uri)
        except AccessError as exc:
            if is_only and len(uris) == 1:
                raise
            lister.problems.append(exc)
    return lister.listing()


class _Found(NamedTuple):
    """A partition directory with its content."""

    place: DirectoryPlace
    name: PartitionName
    files: list[RemoteEntry] | None  # None if they could not be listed
    around: LogDir


class _RemoteLister:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._notes: list[str] = []
        self._found: dict[str, _Found] = {}  # by URI of the directory, in order
        self._around: dict[str, LogDir] = {}  # by URI, log directories and candidates for them
        self._log_dirs: list[tuple[Hashable, LogDir]] = []
        self._named: dict[str, str] = {}  # matches of a first wildcard, by URI -> name

    def add(self, given: str) -> None:
        """Add a URI."""
        located = locate(given)
        if not located.uri.has_wildcard:
            if not self._add_path(located, located.path):
                raise AccessError(FileNotFoundError(errno.ENOENT, "nothing is there"), given)
            return
        if self._entry(located, located.path) is not None:
            self._add_path(located, located.path)
            return
        is_met, problems_count = False, len(self.problems)
        for match in expand(
            located.full(located.uri.pattern), lambda path: self._names(located, path)
        ):
            first = located.uri_of(match.first)
            self._named.setdefault(first, match.first.rpartition("/")[2])
            try:
                is_met |= self._add_path(located, match.path, is_match=True)
            except AccessError as exc:
                self.problems.append(exc)
            except UsageError:
                uri = located.uri_of(match.path)
                self._notes.append(f"{uri}: skipped, neither a log dir nor a partition")
        if not is_met:
            raise no_match(given, self.problems, problems_count)

    def _add_path(self, located: Located, path: str, *, is_match: bool = False) -> bool:
        """Add the entry at a path. False if there is none, or none that a wildcard may match."""
        found = self._entry(located, path)
        if found is None:
            return False
        if not found.is_dir:
            if is_match and classify(path.rpartition("/")[2]).kind not in PARTITION_FILE_KINDS:
                return False
            path = path.rpartition("/")[0]
        entries = self._entries(located, path)
        if _is_partition(path, entries):
            self._add_partition(located, path, entries)
        elif _is_log_dir(entries):
            self._add_log_dir(located, path, entries)
        elif self._is_marked(located, path):
            self._add_partition(located, path, entries)
        else:
            raise NotKafkaError(located.uri_of(path))
        return True

    def _is_marked(self, located: Located, path: str) -> bool:
        """Return whether it has a partition's name in a log directory.

        A broker takes it even if empty.
        """
        parent, _, name = path.rpartition("/")
        if parse_partition_name(name) is None:
            return False
        return any(each.name in LOG_DIR_FILES for each in self._entries(located, parent))

    # -- answers of the file system

    def _entry(self, located: Located, path: str) -> RemoteEntry | None:
        try:
            return located.tree.entry(path)
        except Exception as exc:
            raise AccessError(as_os_error(exc), located.uri_of(path)) from exc

    def _entries(
        self, located: Located, path: str, *, is_recursive: bool = False
    ) -> list[RemoteEntry]:
        try:
            found = located.tree.entries(path, is_recursive=is_recursive)
        except Exception as exc:
            raise AccessError(as_os_error(exc), located.uri_of(path)) from exc
        kept = [each for each in found if _is_text(each.path)]
        if len(kept) < len(found) and not is_recursive:  # else already reported
            self.problems.append(
                not_utf8(f"{located.uri_of(path)}: {len(found) - len(kept)} names")
            )
        return kept

    def _names(self, located: Located, path: str) -> list[str]:
        try:
            return [each.name for each in self._entries(located, path)]
        except AccessError as exc:
            self.problems.append(exc)
            return []

    # -- kinds of directories

    def _add_log_dir(self, located: Located, path: str, entries: list[RemoteEntry]) -> None:
        uri = located.uri_of(path)
        problems: list[Problem] = []
        partitions = []
        self._log_dir(located, path, {each.name for each in entries})
        files = self._files_below(located, path)
        for each in sorted(entries):
            name = parse_partition_name(each.name)
            if not each.is_dir:
                continue
            if name is not None:
                below = None if files is None else files.get(each.path, [])
                self._add_partition(located, each.path, below)
                partitions.append(PartitionDir(located.uri_of(each.path), name))
            elif each.name != REMOTE_INDEX_CACHE_NAME:
                problems.append(_foreign_directory(located.uri_of(each.path), each.name))
        self.problems += problems
        if all(log_dir.path != uri for _, log_dir in self._log_dirs):
            broker = self._broker(located, path)
            found = self._log_dir(located, path)._replace(
                is_log_dir=True, partitions=tuple(partitions)
            )
            self._log_dirs.append(((broker, found.meta and found.meta.cluster_id), found))

    def _files_below(self, located: Located, path: str) -> dict[str, list[RemoteEntry]] | None:
        """Return the files of all directories in a directory, by directory: one request for many.

        None if each directory has to be listed on its own, to find unlistable directories.
        """
        try:
            entries = self._entries(located, path, is_recursive=True)
        except AccessError:
            return None
        found: dict[str, list[RemoteEntry]] = {}
        for each in entries:
            found.setdefault(each.path.rpartition("/")[0], []).append(each)
        return found

    def _add_partition(
        self, located: Located, path: str, entries: list[RemoteEntry] | None
    ) -> None:
        uri = located.uri_of(path)
        if uri in self._found:
            return
        name = parse_partition_name(path.rpartition("/")[2]) or PartitionName(
            path.rpartition("/")[2], UNKNOWN_PARTITION, DirState.LIVE
        )
        around = path.rpartition("/")[0]
        log_dir = self._log_dir(located, around)
        cluster = None if log_dir.meta is None else log_dir.meta.cluster_id
        place = DirectoryPlace(
            broker=self._broker(located, around),
            topic=name.topic,
            partition=name.partition,
            directory=uri,
            cluster=cluster,
        )
        files = entries
        if files is None:
            try:
                files = self._entries(located, path)
            except AccessError as exc:
                self.problems.append(exc)
        self._found[uri] = _Found(place=place, name=name, files=files, around=log_dir)

    def _broker(self, located: Located, path: str) -> str:
        """Return the broker of a log directory."""
        meta = self._log_dir(located, path).meta
        if meta is not None and meta.node_id is not None:
            return str(meta.node_id)
        above = path
        while above.strip("/"):
            name = self._named.get(located.uri_of(above))
            if name is not None:
                return name
            above = above.rpartition("/")[0]
        return located.uri_of(path)

    def _log_dir(self, located: Located, path: str, names: Container[str] | None = None) -> LogDir:
        """Read the files beside partitions, once.

        Args:
            located: the file system.
            path: of the directory around partitions.
            names: its content, so that no other file is requested, or None if unknown.
        """
        uri = located.uri_of(path)
        if uri not in self._around:

            def read(name: str, parse: Callable[[bytes], T]) -> T | None:
                if names is not None and name not in names:
                    return None
                return self._read(located.uri_of(f"{path}/{name}"), parse)

            self._around[uri] = LogDir(
                path=uri,
                is_log_dir=False,
                meta=read(META_PROPERTIES_NAME, parse_meta_properties),
                clean_shutdown=False,
                lock=LockState(LockKind.UNKNOWN),
                partitions=(),
                recovery_points=read(RECOVERY_POINT_NAME, parse_offsets),
                log_start_offsets=read(LOG_START_NAME, parse_offsets),
                high_watermarks=read(HIGH_WATERMARK_NAME, parse_offsets),
                cleaner_offsets=read(CLEANER_NAME, parse_offsets),
                others=(),
                problems=(),
            )
        return self._around[uri]

    def _read(self, uri: str, parse: Callable[[bytes], T]) -> T | None:
        """Read a small file, or return None if it cannot be read."""
        try:
            with RemoteFile(uri) as file:
                reading = file.read_at(0, min(file.file_bytes, MAX_FILE_BYTES))
            if not reading.unreadable:
                return parse(reading.data)
            bad = reading.unreadable[0]
            self.problems.append(AccessError(OSError(bad.errno, bad.strerror), uri))
        except AccessError as exc:
            if exc.errno != errno.ENOENT:
                self.problems.append(exc)
        except FormatError as exc:
            self.problems.append(exc.located(uri))
        return None

    def listing(self) -> Listing:
        """List the added directories."""
        places: list[SegmentPlace] = []
        known: dict[str, Acknowledged] = {}
        for uri, found in self._found.items():
            if found.files is not None:
                files, more = self._segments(found.place, found.files)
                directory = PartitionDir(uri, found.name)
                said = acknowledged(directory, found.around, files)
                more = [each._replace(cleaned_offset=said.cleaned_offset) for each in more]
                if more:
                    end = claimed_end(directory, found.around)
                    more[-1] = more[-1]._replace(claimed_end=end)
                places += more
                known[uri] = said
        self.problems += duplicates(self._log_dirs)
        return Listing(
            places=tuple(places),
            directories=tuple(each.place for each in self._found.values()),
            problems=tuple(self.problems),
            notes=tuple(self._notes),
            log_dirs=tuple(log_dir for _, log_dir in self._log_dirs),
            acknowledged=known,
        )

    def _segments(
        self, directory: DirectoryPlace, entries: Iterable[RemoteEntry]
    ) -> tuple[PartitionFiles, list[SegmentPlace]]:
        listed: list[FileEntry] = []
        problems: list[Problem] = []
        modified_ns: dict[str, int] = {}
        located = locate(directory.directory)
        for each in entries:
            name, path = classify(each.name), located.uri_of(each.path)
            modified_ns[path] = each.modified_ns
            if not each.is_dir:
                listed.append(FileEntry(path, each.file_bytes, name))
            elif name.kind is FileKind.LOG and name.suffix is FileSuffix.NONE:
                error = IsADirectoryError(errno.EISDIR, "Is a directory")
                problems.append(AccessError(error, path))
        files = put_together(listed, problems)
        self.problems += files.problems
        return files, [
            SegmentPlace(
                broker=directory.broker,
                topic=directory.topic,
                partition=directory.partition,
                directory=directory.directory,
                path=each.log.path,
                base_offset=each.base_offset,
                is_active=each is files.segments[-1],
                file_bytes=each.log.file_bytes,
                modified_ns=modified_ns[each.log.path],
            )
            for each in files.segments
        ]


def _is_partition(path: str, entries: Sequence[RemoteEntry]) -> bool:
    if any(each.name in LOG_DIR_FILES for each in entries):
        return False
    if any(is_partition_file(each.name) for each in entries):
        return True
    if any(each.is_dir and parse_partition_name(each.name) is not None for each in entries):
        return False
    # An empty directory may be in its log directory, if the broker has not written to it yet.
    return bool(entries) and parse_partition_name(path.rpartition("/")[2]) is not None


def _is_log_dir(entries: Sequence[RemoteEntry]) -> bool:
    return any(
        each.name in LOG_DIR_FILES or (each.is_dir and parse_partition_name(each.name) is not None)
        for each in entries
    )


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return bool(path)


def _foreign_directory(uri: str, name: str) -> CorruptError:
    return CorruptError(
        "directory that is no partition, so a broker refuses to start",
        check_id="DIR-1",
        pos=0,
        expected="TOPIC-PARTITION",
        found=name,
    ).located(uri)
