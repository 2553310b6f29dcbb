"""A log dir: the names of its files and directories, its checkpoints, and how it was stopped.

Names

    <topic>-<partition>                          live replica
    <topic>-<partition>.<unique id>-future       being copied from another log dir of the broker
    <topic>-<partition>.<unique id>-delete       deletion pending; the topic may be cut
    <topic>-<partition>.<unique id>-stray        set aside by a KRaft broker; the topic may be cut
    <20 digits>.log .index .timeindex .txnindex  a segment, by its base offset
    <20 digits>.snapshot                         producer state below that offset
    <20 digits>-<10 digits>.checkpoint           KRaft snapshot: end offset and epoch
    ....deleted .cleaned .swap .tmp .part        unfinished business, attached to the full name

A broker takes every sub-directory for a partition and aborts on a name it cannot parse (DIR-1);
plain files of unknown name are ignored. `classify` knows every file; a decoder is chosen by it.
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
    """A partition directory as found: its path and what its name says."""

    path: str
    name: PartitionName

    @property
    def topic_partition(self) -> TopicPartition:
        """The key of the checkpoints."""
        return TopicPartition(self.name.topic, self.name.partition)


class StoppedState(StrEnum):
    """How the broker left a log dir."""

    CLEAN = "clean"  # the marker is there
    UNCLEAN = "unclean"  # no marker: the next start recovers from the recovery points on
    LIVE = "live"  # the lock is held
    UNKNOWN = "unknown"  # not a log dir, or the lock could not be asked


def stopped_of(log_dir: LogDir | None, directory: PartitionDir) -> StoppedState:
    """How the broker left a partition directory: as its log dir, but for one it had set aside.

    A `-delete` or `-stray` directory is not closed with the others: a clean stop neither
    trims its indexes nor writes a snapshot of its end (LogManager.asyncDelete, shutdown).
    """
    if log_dir is None:
        return StoppedState.UNKNOWN
    if log_dir.stopped is StoppedState.CLEAN and directory.name.state in SET_ASIDE:
        return StoppedState.UNCLEAN
    return log_dir.stopped


class OtherEntry(NamedTuple):
    """An entry of a log dir that is no partition."""

    path: str
    is_dir: bool
    file: FileName


def only_begins(path: str) -> bool:
    """Whether a `__cluster_metadata-0` has no log yet, only what a controller begins with."""
    try:
        names = {each.name for each in Path(path).iterdir()}
    except OSError:
        return False
    return BEGINNING_NAME in names and not any(each.endswith(".log") for each in names)


Problem = FormatError | AccessError
Offsets = dict[TopicPartition, int]


class LogDir(NamedTuple):
    """Everything at the top level of a log dir.

    A checkpoint that is missing or cannot be read is None; one without entries is {}. What could
    not be read or breaks a rule is in `problems`, in no order that matters.
    """

    path: str
    is_log_dir: bool  # False: none of the files that only a log dir has
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
        """How the broker left it, as far as the directory tells."""
        if self.lock.is_held:
            return StoppedState.LIVE
        if not self.is_log_dir or self.lock.kind is LockKind.UNKNOWN:
            return StoppedState.UNKNOWN
        return StoppedState.CLEAN if self.clean_shutdown else StoppedState.UNCLEAN

    @property
    def has_bootstrap(self) -> bool:
        """What a controller begins with is there: it lies beside its log, or in place of it."""
        return any(
            each.file.name == BOOTSTRAP_NAME and not each.is_dir for each in self.others
        ) or any(only_begins(each.path) for each in self.partitions_of(METADATA_TOPIC))

    def high_watermark(self, partition: PartitionDir) -> int | None:
        """Checkpointed high watermark; None when there is none for this directory."""
        return self._checkpointed(self.high_watermarks, partition)

    def partitions_of(self, topic: str) -> tuple[PartitionDir, ...]:
        """Return the directories of a topic; they are listed in the order of their names."""
        start = bisect_left(self.partitions, topic, key=lambda each: each.name.topic)
        end = bisect_right(self.partitions, topic, start, key=lambda each: each.name.topic)
        return self.partitions[start:end]

    def cleaned_offset(self, partition: PartitionDir) -> int | None:
        """Return how far the cleaner has come, as checkpointed; None: it was never there."""
        return self._checkpointed(self.cleaner_offsets, partition)

    def log_start_offset(self, partition: PartitionDir) -> int | None:
        """Checkpointed log start; None is normal: listed only above the first segment's base.

        Of a topic with remote storage it is listed always, and may lie below that.
        """
        return self._checkpointed(self.log_start_offsets, partition)

    def recovery_point(self, partition: PartitionDir) -> int | None:
        """Checkpointed recovery point."""
        return self._checkpointed(self.recovery_points, partition)

    def loaded_from(self, partition: PartitionDir) -> tuple[int, int]:
        """Return the recovery point and the log start with which a broker loads a directory.

        It looks for the topic and the partition, and does not look at the suffix.
        """
        key = partition.topic_partition
        points, starts = self.recovery_points or {}, self.log_start_offsets or {}
        return points.get(key, 0), starts.get(key, 0)

    def _checkpointed(self, offsets: Offsets | None, partition: PartitionDir) -> int | None:
        # The line of that name belongs to the live replica, or to that of a recreated topic. It is
        # the line of a -future directory only if no live one lies beside it.
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
# What a directory or a dangling link of that name keeps from being known.
_READ_FILES = frozenset(
    {META_PROPERTIES_NAME, RECOVERY_POINT_NAME, LOG_START_NAME, HIGH_WATERMARK_NAME, CLEANER_NAME}
)


def read_log_dir(path: str | Path) -> LogDir:
    """Read the top level of a log dir in one pass; no partition is opened.

    Raises:
        AccessError: the directory itself cannot be listed. All else is recorded in the result.
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
        # A link that leads nowhere is no marker to a broker.
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
        is_dir = entry.is_dir()  # a symbolic link counts as what it leads to
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
                "directory that is no partition: a broker refuses to start",
                check_id="DIR-1",
                pos=0,
                expected="TOPIC-PARTITION",
                found=entry.name,
            ).located(entry.path)
        )


# Of a checkpoint or a properties file: a hundred bytes for each of a million partitions.
MAX_FILE_BYTES = 128 << 20


def dangling_link(path: str) -> list[AccessError]:
    """Return the problem of a name that was listed and leads to nothing; [] if it is gone since."""
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
    """Read and parse one file; None when it is not there or cannot be used."""
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
    """Parse an offset checkpoint of a log dir. Raises FormatError."""
    from storage.formats.checkpoint import parse_offset_checkpoint

    return {
        TopicPartition(each.topic, each.partition): each.offset
        for each in parse_offset_checkpoint(data)
    }
