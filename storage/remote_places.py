"""Listing segments behind URIs, with wildcards: see `places`.

The rules for names and contents are those of `discovery` and `partition_files`. What only a local
directory can tell is not known: whether a broker has it in use.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from storage.broker_lock import LockKind, LockState
from storage.discovery import UNKNOWN_PARTITION, NotKafkaError, is_partition_file
from storage.errors import AccessError, CorruptError, FormatError, UsageError
from storage.file_systems import RemoteEntry, locate
from storage.formats.meta_properties import parse_meta_properties
from storage.local_places import PARTITION_FILE_KINDS, duplicates, no_match, not_utf8
from storage.log_dir import (
    LOG_DIR_FILES,
    META_PROPERTIES_NAME,
    REMOTE_INDEX_CACHE_NAME,
    DirState,
    FileKind,
    FileSuffix,
    LogDir,
    PartitionDir,
    PartitionName,
    classify,
    parse_partition_name,
)
from storage.path_globs import expand
from storage.places import DirectoryPlace, Listing, SegmentPlace
from storage.remote_file import RemoteFile, as_os_error

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from storage.file_systems import Located
    from storage.formats.meta_properties import MetaProperties
    from storage.log_dir import Problem

MAX_META_BYTES = 1 << 20


def list_remote(uris: Sequence[str], *, is_only: bool = True) -> Listing:
    """List URIs; unsorted. With `is_only`, errors of a single one are raised."""
    lister = _Lister()
    for uri in uris:
        try:
            lister.add(uri)
        except AccessError as exc:
            if is_only and len(uris) == 1:
                raise
            lister.problems.append(exc)
    return lister.listing()


class _Found(NamedTuple):
    """A partition directory with what is in it."""

    place: DirectoryPlace
    files: list[RemoteEntry]


class _Lister:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._notes: list[str] = []
        self._found: dict[str, _Found] = {}  # by URI of the directory, in order
        self._metas: dict[str, MetaProperties | None] = {}  # by URI of the log dir
        self._log_dirs: list[tuple[Hashable, LogDir]] = []
        self._named: dict[str, str] = {}  # what a first wildcard matched, by URI -> its name

    def add(self, given: str) -> None:
        """Take a URI."""
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
                self._notes.append(f"{uri}: passed over, neither a log dir nor a partition")
        if not is_met:
            raise no_match(given, self.problems, problems_count)

    def _add_path(self, located: Located, path: str, *, is_match: bool = False) -> bool:
        """Take what is at a path; False if nothing is, or nothing that a wildcard may match."""
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
        """Whether it has a partition's name in a log dir: a broker takes it for one, if empty."""
        parent, _, name = path.rpartition("/")
        if parse_partition_name(name) is None:
            return False
        return any(each.name in LOG_DIR_FILES for each in self._entries(located, parent))

    # -- what the file system says

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
        if len(kept) < len(found) and not is_recursive:  # else told already
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

    # -- what the directories are

    def _add_log_dir(self, located: Located, path: str, entries: list[RemoteEntry]) -> None:
        uri = located.uri_of(path)
        problems: list[Problem] = []
        partitions = []
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
            meta = self._meta(located, path)
            self._log_dirs.append(
                ((broker, meta and meta.cluster_id), _log_dir_of(uri, meta, tuple(partitions)))
            )

    def _files_below(self, located: Located, path: str) -> dict[str, list[RemoteEntry]] | None:
        """Return the files of all directories in one, by directory: one request for many.

        None if they have to be asked for one by one, to tell which of them cannot be listed.
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
        meta = self._meta(located, around)
        cluster = None if meta is None else meta.cluster_id
        place = DirectoryPlace(
            self._broker(located, around), name.topic, name.partition, uri, cluster
        )
        try:
            files = self._entries(located, path) if entries is None else entries
        except AccessError as exc:
            self.problems.append(exc)
            files = []
        self._found[uri] = _Found(place, files)

    def _broker(self, located: Located, path: str) -> str:
        """Return the broker that a log dir belongs to."""
        meta = self._meta(located, path)
        if meta is not None and meta.node_id is not None:
            return str(meta.node_id)
        above = path
        while above.strip("/"):
            name = self._named.get(located.uri_of(above))
            if name is not None:
                return name
            above = above.rpartition("/")[0]
        return located.uri_of(path)

    def _meta(self, located: Located, path: str) -> MetaProperties | None:
        """Read meta.properties of a directory, once; None without one that can be read."""
        uri = located.uri_of(f"{path}/{META_PROPERTIES_NAME}")
        if uri not in self._metas:
            self._metas[uri] = None
            try:
                with RemoteFile(uri) as file:
                    reading = file.read_at(0, min(file.file_bytes, MAX_META_BYTES))
                if reading.unreadable:
                    bad = reading.unreadable[0]
                    self.problems.append(AccessError(OSError(bad.errno, bad.strerror), uri))
                else:
                    self._metas[uri] = parse_meta_properties(reading.data)
            except AccessError as exc:
                if exc.errno != errno.ENOENT:
                    self.problems.append(exc)
            except FormatError as exc:
                self.problems.append(exc.located(uri))
        return self._metas[uri]

    def listing(self) -> Listing:
        """List all that was added."""
        places: list[SegmentPlace] = []
        for directory, files in self._found.values():
            places += self._segments(directory, files)
        self.problems += duplicates(self._log_dirs)
        directories = tuple(each.place for each in self._found.values())
        return Listing(tuple(places), directories, tuple(self.problems), tuple(self._notes))

    def _segments(
        self, directory: DirectoryPlace, files: Iterable[RemoteEntry]
    ) -> list[SegmentPlace]:
        logs = []
        for each in files:
            name = classify(each.name)
            if name.kind is not FileKind.LOG or name.suffix is not FileSuffix.NONE:
                continue
            path = str(locate(directory.directory).uri_of(each.path))
            if each.is_dir:
                self.problems.append(
                    AccessError(IsADirectoryError(errno.EISDIR, "Is a directory"), path)
                )
            elif name.offset is None or not name.has_padded_offset:
                self.problems.append(_foreign_log(path, each.name))
            else:
                logs.append((name.offset, path, each))
        logs.sort(key=lambda each: each[0])
        return [
            SegmentPlace(
                *directory[:4],
                path=path,
                base_offset=base_offset,
                is_active=base_offset == logs[-1][0],
                file_bytes=entry.file_bytes,
                modified_ns=entry.modified_ns,
            )
            for base_offset, path, entry in logs
        ]


def _is_partition(path: str, entries: Sequence[RemoteEntry]) -> bool:
    if any(each.name in LOG_DIR_FILES for each in entries):
        return False
    if any(is_partition_file(each.name) for each in entries):
        return True
    if any(each.is_dir and parse_partition_name(each.name) is not None for each in entries):
        return False
    # Its log dir may have it, as the files of a broker that has not written yet.
    return bool(entries) and parse_partition_name(path.rpartition("/")[2]) is not None


def _is_log_dir(entries: Sequence[RemoteEntry]) -> bool:
    return any(
        each.name in LOG_DIR_FILES or (each.is_dir and parse_partition_name(each.name) is not None)
        for each in entries
    )


def _log_dir_of(
    uri: str, meta: MetaProperties | None, partitions: tuple[PartitionDir, ...]
) -> LogDir:
    return LogDir(
        path=uri,
        is_log_dir=True,
        meta=meta,
        clean_shutdown=False,
        lock=LockState(LockKind.UNKNOWN),
        partitions=partitions,
        recovery_points=None,
        log_start_offsets=None,
        high_watermarks=None,
        cleaner_offsets=None,
        others=(),
        problems=(),
    )


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return bool(path)


def _foreign_directory(uri: str, name: str) -> CorruptError:
    return CorruptError(
        "directory that is no partition: a broker refuses to start",
        check_id="DIR-1",
        pos=0,
        expected="TOPIC-PARTITION",
        found=name,
    ).located(uri)


def _foreign_log(uri: str, name: str) -> CorruptError:
    return CorruptError(
        "the name of a .log must be a base offset: a broker cannot load the partition",
        check_id="DIR-9",
        pos=0,
        expected="20 digits",
        found=name.removesuffix(".log"),
    ).located(uri)
