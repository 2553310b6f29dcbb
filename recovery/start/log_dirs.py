"""The files at the top level of a log dir that a start changes, and the new partitions.

The checkpoints have a line for each loaded partition. A clean stop stores its log end as recovery
point, and as high watermark for a partition with no other replica. A log start has a line only
above the first segment, or with remote storage. The order of the lines is no difference. A start
creates partitions that the cluster has assigned to this node and no log dir has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.placement import DirFate
from recovery.start.files import StartAction, StartChange
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    HIGH_WATERMARK_NAME,
    LEADER_EPOCHS_NAME,
    LOG_START_NAME,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    DirState,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.cluster.placement import Placed
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, Offsets, PartitionDir

_CREATED_FILES = (
    f"{0:020d}.index",
    f"{0:020d}.log",
    f"{0:020d}.timeindex",
    LEADER_EPOCHS_NAME,
    PARTITION_METADATA_NAME,
)


class StartedOffsets(NamedTuple):
    """The entries of a partition in the checkpoints after a start.

    Attributes:
        end_offset: log end. None: the log is not loaded.
        log_start_line: in the log start checkpoint. None: no line.
        is_refused: it keeps the whole broker, or the log dir, from starting.
    """

    end_offset: int | None
    log_start_line: int | None
    is_refused: bool


def changed_log_dirs(
    log_dirs: Sequence[LogDir],
    image: ClusterImage | None,
    started: Mapping[str, StartedOffsets],
    placed: Mapping[str, Placed],
    *,
    gives_ids: bool = True,
) -> Iterator[StartChange]:
    """Yield the changes of a start, and the clean stop after it, in log dirs of one node.

    Args:
        log_dirs: all log dirs of the node.
        image: of its cluster. Without it high watermarks and new partitions are not predicted.
        started: of every live partition except the metadata log, by path.
        placed: the fate of directories, if a start does more than load them.
        gives_ids: the release writes a directory.id if there is none.
    """
    if any(each.is_refused for each in started.values()):
        return
    for log_dir in log_dirs:
        created = _created(log_dir, log_dirs, image, started, placed)
        for key in created:
            for name in _CREATED_FILES:
                path = os.fspath(Path(log_dir.path, str(key), name))
                yield StartChange(path, StartAction.CREATES, 0 if name.endswith(".log") else None)
        if gives_ids and log_dir.meta is not None and log_dir.meta.directory_id is None:
            path = os.fspath(Path(log_dir.path, META_PROPERTIES_NAME))
            yield StartChange(path, StartAction.REWRITES)
        if log_dir.clean_shutdown:
            path = os.fspath(Path(log_dir.path, CLEAN_SHUTDOWN_NAME))
            yield StartChange(path, StartAction.DELETES)
        yield from _checkpoints(log_dir, image, started, created)


def _checkpoints(
    log_dir: LogDir,
    image: ClusterImage | None,
    started: Mapping[str, StartedOffsets],
    created: Sequence[TopicPartition],
) -> Iterator[StartChange]:
    ends: Offsets = dict.fromkeys(created, 0)
    starts: Offsets = {}
    for each in log_dir.partitions:
        found = started.get(each.path)
        if found is None or found.end_offset is None:
            continue
        ends[each.topic_partition] = found.end_offset
        if found.log_start_line is not None:
            starts[each.topic_partition] = found.log_start_line
    expected = [
        (RECOVERY_POINT_NAME, log_dir.recovery_points, ends),
        (LOG_START_NAME, log_dir.log_start_offsets, starts),
    ]
    if all(_has_one_replica(key, image) for key in ends):
        expected.append((HIGH_WATERMARK_NAME, log_dir.high_watermarks, ends))
    names = {each.file.name for each in log_dir.others}
    for name, before, after in expected:
        if before != after:
            action = StartAction.REWRITES if name in names else StartAction.CREATES
            yield StartChange(os.fspath(Path(log_dir.path, name)), action)


def _has_one_replica(key: TopicPartition, image: ClusterImage | None) -> bool:
    placed = None if image is None else image.partition(key.topic, key.partition)
    return placed is not None and len(placed.replicas) == 1


def _created(
    log_dir: LogDir,
    log_dirs: Sequence[LogDir],
    image: ClusterImage | None,
    started: Mapping[str, StartedOffsets],
    placed: Mapping[str, Placed],
) -> list[TopicPartition]:
    """Return partitions of this node that no log dir has and that belong into this log dir."""
    if image is None or log_dir.meta is None:
        return []
    broker = image.brokers.get(log_dir.meta.node_id or 0)
    is_only = len(log_dirs) == 1 and (broker is None or len(broker.log_dirs) <= 1)
    here = {
        each.topic_partition
        for known in log_dirs
        for each in known.partitions
        if _stays(each, started, placed)
    }
    missing = []
    for topic in image.topics.values():
        for number, replica in topic.partitions.items():
            key = TopicPartition(topic.name, number)
            if key in here or log_dir.meta.node_id not in replica.replicas:
                continue
            place = replica.replicas.index(log_dir.meta.node_id)
            if is_only or replica.directories[place] == log_dir.meta.directory_id:
                missing.append(key)
    return [each for each in missing if each.topic != METADATA_TOPIC]


def _stays(
    directory: PartitionDir,
    started: Mapping[str, StartedOffsets],
    placed: Mapping[str, Placed],
) -> bool:
    """Return whether a directory, or its replacement, keeps a start from creating its partition."""
    if directory.name.state is DirState.LIVE:
        found = started.get(directory.path)
        return found is not None and found.end_offset is not None
    fate = None if directory.path not in placed else placed[directory.path].fate
    return directory.name.state is DirState.FUTURE and fate in {None, DirFate.PROMOTED}
