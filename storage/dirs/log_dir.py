"""A log directory: the names of its files and directories, its checkpoints, and how it was stopped.

Names

    <topic>-<partition>                          live replica
    <topic>-<partition>.<unique id>-future       being copied from another log dir of the broker
    <topic>-<partition>.<unique id>-delete       deletion pending; the topic may be truncated
    <topic>-<partition>.<unique id>-stray        set aside by a broker; the topic may be truncated
    <20 digits>.log .index .timeindex .txnindex  a segment, by its base offset
    <20 digits>.snapshot                         producer state below that offset
    <20 digits>-<10 digits>.checkpoint           KRaft snapshot: end offset and epoch
    ....deleted .cleaned .swap .tmp .part        unfinished work, after the full name

A broker takes every subdirectory for a partition and aborts on a name it cannot parse (DIR-1). It
ignores plain files of unknown name. `classify` knows every file and so chooses the decoder.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from enum import StrEnum
from errno import EISDIR, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from storage.errors import AccessError, CorruptError, FormatError
from storage.file_names import (
    BEGINNING_NAME,
    BOOTSTRAP_NAME,
    CLEAN_SHUTDOWN_NAME,
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOCK_FILE_NAME,
    LOG_START_NAME,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    RECOVERY_POINT_NAME,
    REMOTE_INDEX_CACHE_NAME,
    SET_ASIDE,
    DirState,
    FileKind,
    FileName,
    PartitionName,
    TopicPartition,
    classify,
    parse_partition_name,
)
from storage.files.broker_lock import LockKind, LockState, probe
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.formats.meta_properties import MetaProperties


T = TypeVar("T")


class PartitionDir(NamedTuple):
    """A partition directory as found: its path and its parsed name."""

    path: str
    name: PartitionName

    @property
    def topic_partition(self) -> TopicPartition:
        """The key of the checkpoints."""
        return TopicPartition(self.name.topic, self.name.partition)


class StoppedState(StrEnum):
    """The state in which the broker left a log directory."""

    CLEAN = "clean"  # the marker exists
    UNCLEAN = "unclean"  # no marker: the next start recovers from the recovery points on
    LIVE = "live"  # the lock is held
    UNKNOWN = "unknown"  # not a log directory, or the lock could not be probed


def stopped_of(log_dir: LogDir | None, directory: PartitionDir) -> StoppedState:
    """Return how the broker left a partition directory: as its log directory, unless set aside.

    A `-delete` or `-stray` directory is not closed with the others. A clean stop neither trims its
    indexes nor writes a snapshot of its end (LogManager.asyncDelete, shutdown).
    """
    if log_dir is None:
        return StoppedState.UNKNOWN
    if log_dir.stopped is StoppedState.CLEAN and directory.name.state in SET_ASIDE:
        return StoppedState.UNCLEAN
    return log_dir.stopped


class OtherEntry(NamedTuple):
    """An entry of a log directory that is no partition."""

    path: str
    is_dir: bool
    file: FileName


def only_begins(path: str) -> bool:
    """Return whether `__cluster_metadata-0` has only a controller's first snapshot, and no log."""
    try:
        names = {each.name for each in Path(path).iterdir()}
    except OSError:
        return False
    return BEGINNING_NAME in names and not any(each.endswith(".log") for each in names)


Problem = FormatError | AccessError
Offsets = dict[TopicPartition, int]


class LogDir(NamedTuple):
    """The top level of a log directory.

    A missing or unreadable checkpoint is None, and a checkpoint without entries is {}. `problems`
    has reading errors and broken rules, in no specific order.
    """

    path: str
    is_log_dir: bool  # False: it has no file that only a log directory has
    meta: MetaProperties | None
    clean_shutdown: bool
    lock: LockState
    partitions: tuple[PartitionDir, ...]
    recovery_points: Offsets | None
    log_start_offsets: Offsets | None
    high_watermarks: Offsets | None
    cleaner_offsets: Offsets | None
    others: tuple[OtherEntry, ...]
    problems: tuple[Problem, ...]

    @property
    def stopped(self) -> StoppedState:
        """The state in which the broker left it, by the files of the directory."""
        if self.lock.is_held:
            return StoppedState.LIVE
        if not self.is_log_dir or self.lock.kind is LockKind.UNKNOWN:
            return StoppedState.UNKNOWN
        return StoppedState.CLEAN if self.clean_shutdown else StoppedState.UNCLEAN

    @property
    def has_bootstrap(self) -> bool:
        """Return whether a controller's first snapshot exists, beside its log or in place of it."""
        return any(
            each.file.name == BOOTSTRAP_NAME and not each.is_dir for each in self.others
        ) or any(only_begins(each.path) for each in self.partitions_of(METADATA_TOPIC))

    def high_watermark(self, partition: PartitionDir) -> int | None:
        """Return the checkpointed high watermark, or None without a line for this directory."""
        return self._checkpointed(self.high_watermarks, partition)

    def partitions_of(self, topic: str) -> tuple[PartitionDir, ...]:
        """Return the directories of a topic. They are listed in the order of their names."""
        start = bisect_left(self.partitions, topic, key=lambda each: each.name.topic)
        end = bisect_right(self.partitions, topic, start, key=lambda each: each.name.topic)
        return self.partitions[start:end]

    def cleaned_offset(self, partition: PartitionDir) -> int | None:
        """Return the checkpointed progress of the cleaner. None if it was never there."""
        return self._checkpointed(self.cleaner_offsets, partition)

    def log_start_offset(self, partition: PartitionDir) -> int | None:
        """Return the checkpointed log start. None is normal.

        A line exists only for a log start above the first segment's base offset. A topic with
        remote storage always has a line, which may be below that.
        """
        return self._checkpointed(self.log_start_offsets, partition)

    def recovery_point(self, partition: PartitionDir) -> int | None:
        """Return the checkpointed recovery point."""
        return self._checkpointed(self.recovery_points, partition)

    def loaded_from(self, partition: PartitionDir) -> tuple[int, int]:
        """Return the recovery point and the log start with which a broker loads a directory.

        It looks up the topic and the partition, and ignores the suffix.
        """
        key = partition.topic_partition
        points, starts = self.recovery_points or {}, self.log_start_offsets or {}
        return points.get(key, 0), starts.get(key, 0)

    def _checkpointed(self, offsets: Offsets | None, partition: PartitionDir) -> int | None:
        # The line of that name belongs to the live replica, or to the replica of a recreated topic.
        # It is the line of a -future directory only if there is no live directory next to it.
        name = partition.name
        if offsets is None or name.state in SET_ASIDE:
            return None
        if name.state is DirState.FUTURE and any(
            each.name.state is DirState.LIVE and each.name.partition == name.partition
            for each in self.partitions_of(name.topic)
        ):
            return None
        return offsets.get(partition.topic_partition)


LOG_DIR_FILES = frozenset(
    {
        META_PROPERTIES_NAME,
        BOOTSTRAP_NAME,
        CLEAN_SHUTDOWN_NAME,
        LOCK_FILE_NAME,
        RECOVERY_POINT_NAME,
        LOG_START_NAME,
        HIGH_WATERMARK_NAME,
        CLEANER_NAME,
    }
)
# Files whose content is lost if a directory or a dangling link has their name.
_READ_FILES = frozenset(
    {META_PROPERTIES_NAME, RECOVERY_POINT_NAME, LOG_START_NAME, HIGH_WATERMARK_NAME, CLEANER_NAME}
)


def read_log_dir(path: str | Path) -> LogDir:
    """Read the top level of a log directory in one pass, without opening a partition.

    Raises:
        AccessError: the directory itself cannot be listed. Other errors are in the result.
    """
    path = os.fspath(path)
    problems: list[Problem] = []
    partitions: list[PartitionDir] = []
    others: list[OtherEntry] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                _sort_entry(entry, partitions, others, problems)
    except OSError as exc:
        raise AccessError(exc, path) from exc
    partitions.sort(key=lambda each: (each.name, each.path))
    others.sort()
    names = {each.file.name for each in others if not each.is_dir}
    for each in others:
        if each.is_dir and each.file.name in _READ_FILES:
            error = IsADirectoryError(EISDIR, os.strerror(EISDIR))
            problems.append(AccessError(error, each.path))
    from storage.formats.meta_properties import parse_meta_properties

    def offsets(name: str) -> Offsets | None:
        return _read(path, name, names, parse_offsets, problems)

    return LogDir(
        path=path,
        is_log_dir=not names.isdisjoint(LOG_DIR_FILES),
        meta=_read(path, META_PROPERTIES_NAME, names, parse_meta_properties, problems),
        # For a broker a dangling link is no marker.
        clean_shutdown=CLEAN_SHUTDOWN_NAME in names and Path(path, CLEAN_SHUTDOWN_NAME).exists(),
        lock=probe(f"{path}/{LOCK_FILE_NAME}"),
        partitions=tuple(partitions),
        recovery_points=offsets(RECOVERY_POINT_NAME),
        log_start_offsets=offsets(LOG_START_NAME),
        high_watermarks=offsets(HIGH_WATERMARK_NAME),
        cleaner_offsets=offsets(CLEANER_NAME),
        others=tuple(others),
        problems=tuple(problems),
    )


def _sort_entry(
    entry: os.DirEntry[str],
    partitions: list[PartitionDir],
    others: list[OtherEntry],
    problems: list[Problem],
) -> None:
    try:
        is_dir = entry.is_dir()  # a symbolic link counts as its target
    except OSError as exc:
        problems.append(AccessError(exc, entry.path))
        return
    if not is_dir:
        if parse_partition_name(entry.name) is not None and not Path(entry.path).exists():
            problems += dangling_link(entry.path)
        others.append(OtherEntry(entry.path, is_dir=False, file=classify(entry.name)))
        return
    name = parse_partition_name(entry.name)
    if name is not None:
        partitions.append(PartitionDir(entry.path, name))
        return
    others.append(OtherEntry(entry.path, is_dir=True, file=FileName(entry.name, FileKind.UNKNOWN)))
    if entry.name != REMOTE_INDEX_CACHE_NAME:
        problems.append(
            CorruptError(
                "directory that is no partition, so a broker refuses to start",
                check_id="DIR-1",
                pos=0,
                expected="TOPIC-PARTITION",
                found=entry.name,
            ).located(entry.path)
        )


# Of a checkpoint or a properties file: a hundred bytes for each of a million partitions.
MAX_FILE_BYTES = 128 << 20


def dangling_link(path: str) -> list[AccessError]:
    """Return the problem of a listed name that leads to nothing. [] if it was removed since."""
    if not Path(path).is_symlink():
        return []
    return [AccessError(FileNotFoundError(ENOENT, "Symbolic link leads nowhere"), path)]


def _read(
    directory: str,
    name: str,
    names: set[str],
    parse: Callable[[bytes], T],
    problems: list[Problem],
) -> T | None:
    """Read and parse one file. None if it does not exist or cannot be used."""
    if name not in names:
        return None
    path = Path(directory, name)
    try:
        return parse(read_small_file(path, MAX_FILE_BYTES))
    except FileNotFoundError:
        problems += dangling_link(str(path))
    except OSError as exc:
        problems.append(AccessError(exc, str(path)))
    except FormatError as exc:
        problems.append(exc.located(str(path)))
    return None


def parse_offsets(data: bytes) -> Offsets:
    """Parse an offset checkpoint of a log directory. Raises FormatError."""
    from storage.formats.checkpoint import parse_offset_checkpoint

    return {
        TopicPartition(each.topic, each.partition): each.offset
        for each in parse_offset_checkpoint(data)
    }
