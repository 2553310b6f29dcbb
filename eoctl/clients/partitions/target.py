"""The partition to write to: its identity, and whether it may be written to.

The cluster's metadata decides the number of replicas (FIX-9) and the topic id of the directory. It
also decides whether this node and this log dir have a replica. If a fact is unknown, the write is
refused unless an option gives it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.command_line import Lacking, require_given
from recovery.changes.plans.path_limits import require_in_reach
from recovery.changes.plans.preconditions import require_live
from recovery.cluster.clusters import image_around
from storage.dirs.log_dir import MAX_FILE_BYTES, PartitionDir, read_log_dir
from storage.dirs.partition import Partition
from storage.dirs.partition_files import list_partition
from storage.dirs.topic_settings import read_log_config
from storage.errors import AccessError, FormatError, RefusedError, UsageError, os_errors
from storage.file_names import (
    COORDINATOR_TOPICS,
    LOCK_FILE_NAME,
    PARTITION_METADATA_NAME,
    PRODUCER_IDS_TOPIC,
    DirState,
    is_topic_name,
    parse_partition_name,
)
from storage.files.broker_lock import LockHeldError
from storage.files.positioned_file import read_small_file
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.partition_metadata import (
    ZERO_UUID,
    format_uuid,
    new_topic_id,
    parse_partition_metadata,
    parse_uuid,
)

if TYPE_CHECKING:
    from storage.dirs.cluster_image import ClusterImage, PartitionImage
    from storage.dirs.log_dir import LogDir
    from storage.dirs.topic_settings import LogConfig
    from storage.file_names import PartitionName


# -- the partitions of a topic that a producer writes to, all in one log dir


def require_legal(topic: str) -> None:
    """Require a legal topic name (Topic.validate). Raises UsageError."""
    if not is_topic_name(topic):
        raise UsageError(
            f"{topic!r}: no name of a topic",
            next_step="1 to 249 letters, digits, dots, underscores, hyphens",
        )


def target_paths(
    path: str, topic: str | None, metadata_dir: str | None, partitions_count: int | None
) -> list[str]:
    """Return the directories to write to: PATH itself, or the partitions of a topic in it.

    Raises:
        AccessError: the log dir cannot be listed.
        RefusedError: the given number is not the cluster's number, or a partition is missing.
        UsageError: the number of partitions is unknown, or no topic is given for it.
    """
    if topic is not None:
        return _topic_paths(path, topic, metadata_dir, partitions_count)
    if partitions_count is not None:
        raise UsageError("--partitions goes with --to-topic")
    return [path]


def _topic_paths(
    log_dir_path: str, topic: str, metadata_dir: str | None, partitions_count: int | None
) -> list[str]:
    """Return the directory of each partition, by number. They need not exist.

    The number of partitions comes from the cluster's metadata, or else from the option, or else
    from the partitions on disk.
    """
    require_legal(topic)
    log_dir = read_log_dir(log_dir_path)
    image = image_around(log_dir if log_dir.is_log_dir else None, metadata_dir)
    known = None if image is None else image.topics.get(topic)
    here = {
        each.name.partition
        for each in log_dir.partitions
        if each.name.topic == topic and each.name.state is DirState.LIVE
    }
    if known is not None:
        count = len(known.partitions)
        if partitions_count not in (None, count):
            raise RefusedError(
                f"{topic}: has {count} partitions by the cluster's metadata, not {partitions_count}"
            )
    else:
        count = partitions_count if partitions_count is not None else len(here)
        if not count and parse_partition_name(Path(log_dir_path).name) is not None:
            raise UsageError(
                f"{log_dir_path}: is a partition", next_step="with --to-topic, name its log dir"
            )
        if not count:
            raise UsageError(
                f"{log_dir_path}: has no partition of {topic}; the number of partitions is unknown",
                next_step="--partitions N, or --metadata-dir DIR with the cluster's metadata",
            )
        if here - set(range(count)):
            raise RefusedError(
                f"{log_dir_path}: partitions {sorted(here)} of {topic} are here, which are not the"
                f" first {count}. A key would go to another partition than elsewhere",
                next_step="--partitions N with the number of partitions that the topic has",
            )
    return [str(Path(log_dir_path, f"{topic}-{number}")) for number in range(count)]


# -- target


METADATA_FIRST = "add --metadata-dir DIR with the cluster's metadata"


class TargetOptions(NamedTuple):
    """The user's options about the partition.

    `may_be_internal`: a coordinator or eoctl itself writes, so the topic may be internal.
    `keeps_directory`: only segments are written. A directory without a topic id stays without one,
    as in clusters with ZooKeeper.
    """

    metadata_dir: str | None = None
    topic_id: str | None = None
    single_copy: bool = False
    may_be_internal: bool = False
    keeps_directory: bool = False


class WriteTarget(NamedTuple):
    """A partition that may be written to.

    Attributes:
        path: its directory.
        name: topic and number.
        log_dir: its parent, None if that is not a log dir.
        partition: as listed now, None if the directory has to be created.
        topic_id: for `partition.metadata`, None if that file exists.
        config: the topic's settings.
        replication_factor: None if unknown.
        leader_epoch: from the cluster's metadata, None if unknown.
        next_broker_id: the next producer id that a controller hands out, None if unknown.
        notes: messages for people.
    """

    path: str
    name: PartitionName
    log_dir: LogDir | None
    partition: Partition | None
    topic_id: bytes | None
    config: LogConfig
    replication_factor: int | None
    leader_epoch: int | None
    next_broker_id: int | None
    notes: tuple[str, ...]

    @property
    def log_dir_path(self) -> str:
        """The directory whose lock counts."""
        return str(Path(self.path).parent)


def resolve_target(path: str, options: TargetOptions) -> WriteTarget:
    """Return the partition that `path` names, with all its properties. Reads only.

    Raises:
        UsageError: it cannot be a partition, or a required option is missing.
        RefusedError: it must not be written to.
        AccessError: it cannot be read.
    """
    directory, name, around = _find(path)
    if not around.is_log_dir and list_partition(around.path).segments:
        raise UsageError(
            f"{path}: lies in a partition, not in a log dir",
            next_step="a partition is a directory TOPIC-N in a log dir",
        )
    _require_writable(path, name, options)
    if not directory.is_dir():
        require_legal(name.topic)
        if directory.name != f"{name.topic}-{name.partition}":
            raise UsageError(f"{path}: a broker would call it {name.topic}-{name.partition}")
    require_in_reach([str(directory)], [around.path])
    if around.lock.is_held:
        raise LockHeldError(str(directory.parent / LOCK_FILE_NAME), around.lock.pid)
    log_dir = around if around.is_log_dir else None
    image = image_around(log_dir, options.metadata_dir)
    notes = []
    if image is not None and image.problems:
        notes.append(f"the cluster's metadata could not be read whole: {image.problems[0]}")
    replica = None if image is None else image.partition(name.topic, name.partition)
    if replica is None and image is not None and name.topic in image.topics:
        numbers = ", ".join(map(str, image.topics[name.topic].partitions))
        raise RefusedError(f"{path}: by the cluster's metadata the topic has partitions {numbers}")
    factor = None
    if replica is not None and image is not None:
        _require_replica_here(path, replica, log_dir)
        factor = None if image.problems else len(replica.replicas)
    topic_id, lacks_id = _topic_id_to_write(directory, name, image, options.topic_id)
    if options.keeps_directory and directory.is_dir():
        topic_id = lacks_id = None
    require_given(path, [lacking_single_copy(factor, options), lacks_id])
    found = PartitionDir(str(directory), name)
    meta = None if log_dir is None else log_dir.meta
    config = read_log_config(image, name.topic, broker_id=None if meta is None else meta.node_id)
    return WriteTarget(
        path=str(directory),
        name=name,
        log_dir=log_dir,
        partition=Partition(found, log_dir) if directory.is_dir() else None,
        topic_id=topic_id,
        config=config,
        replication_factor=factor,
        leader_epoch=None if replica is None else replica.leader_epoch,
        next_broker_id=None if image is None else image.next_producer_id,
        notes=tuple(notes),
    )


def _find(path: str) -> tuple[Path, PartitionName, LogDir]:
    """Return the real directory, its name and its parent, as `storage.dirs.discovery` does."""
    directory = Path(path)
    name = parse_partition_name(directory.name)
    if name is None:  # for example `.` in the directory itself
        directory = directory.absolute()
        name = parse_partition_name(directory.name)
    real = Path(os.path.realpath(directory))
    is_link = directory.is_dir() and real != directory.absolute()
    try:
        if name is not None:
            around = read_log_dir(directory.parent)
            if around.is_log_dir or not is_link:
                return directory, name, around
        if is_link:
            # For a link from elsewhere, the broker's log dir counts.
            real_around = read_log_dir(real.parent)
            real_name = parse_partition_name(real.name)
            if real_around.is_log_dir and real_name is not None:
                return real, real_name, real_around
    except AccessError as exc:
        exc.next_step = "a partition is a directory TOPIC-N in a log dir, which must exist"
        raise
    if name is None:
        raise UsageError(f"{path}: not the name of a partition", next_step="TOPIC-N, such as t-0")
    return directory, name, around


def _require_writable(path: str, name: PartitionName, options: TargetOptions) -> None:
    # Only coordinators write their records. Clients may not.
    if name.topic in COORDINATOR_TOPICS and not options.may_be_internal:
        raise RefusedError(
            f"{path}: only its coordinator writes to the internal topic {name.topic}",
            next_step="--transactional-id, or eoctl consume --group. They write as coordinators do",
        )
    if name.topic == PRODUCER_IDS_TOPIC and not options.may_be_internal:
        raise RefusedError(f"{path}: only eoctl lease-pid writes to {name.topic}")
    require_live(path, name)


def _require_replica_here(path: str, replica: PartitionImage, log_dir: LogDir | None) -> None:
    """Refuse a directory that the metadata assigns to another node or log dir.

    A broker would set it aside.
    """
    meta = None if log_dir is None else log_dir.meta
    if meta is None or meta.node_id is None:
        return
    if meta.node_id not in replica.replicas:
        raise RefusedError(
            f"{path}: node {meta.node_id} has no replica of it by the cluster's metadata, only"
            f" {', '.join(map(str, replica.replicas))}. Its broker would set the directory aside"
        )
    assigned = replica.directories[replica.replicas.index(meta.node_id)]
    is_assigned = int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS
    if is_assigned and meta.directory_id is not None and assigned != meta.directory_id:
        raise RefusedError(
            f"{path}: by the cluster's metadata its log dir has the directory.id "
            f"{format_uuid(assigned)}, this log dir has {format_uuid(meta.directory_id)}"
        )


def lacking_single_copy(factor: int | None, options: TargetOptions) -> Lacking | None:
    """Return the option that a partition with several replicas lacks.

    Kafka never finds replicas that diverge below the high watermark (FIX-9).
    """
    if factor == 1 or options.single_copy:
        return None
    if factor is None:
        return Lacking(
            why="its replication factor is unknown. Other replicas would lack what is appended"
            " here",
            options=("--single-copy",),
            meaning="this directory is the only replica that counts",
            first=METADATA_FIRST,
        )
    return Lacking(
        why=f"it has {factor} replicas, and the others would lack what is appended here",
        options=("--single-copy",),
        meaning="this directory will be the only replica that survives",
    )


def _topic_id_to_write(
    directory: Path, name: PartitionName, image: ClusterImage | None, option: str | None
) -> tuple[bytes | None, Lacking | None]:
    """Return the id to write to `partition.metadata`, or the option that is missing for it.

    Neither is returned if the file has the right id.
    """
    given = None
    if option is not None:
        try:
            given = parse_uuid(option)
        except FormatError as exc:
            raise UsageError(f"--topic-id: {exc.message}: {option}") from exc
        if given == ZERO_UUID:
            raise UsageError("--topic-id: all zero is no topic id")
    topic = None if image is None else image.topics.get(name.topic)
    known = given if topic is None else topic.topic_id
    if given is not None and known != given:
        raise RefusedError(
            f"{directory}: the cluster knows {name.topic} by the topic id"
            f" {format_uuid(known or ZERO_UUID)}, not {option}"
        )
    on_disk = read_topic_id(directory)
    if on_disk is not None:
        if known is not None and known != on_disk:
            raise RefusedError(
                f"{directory}: its topic id is {format_uuid(on_disk)}, and the topic id of "
                f"{name.topic} is {format_uuid(known)}. It is of an earlier topic of"
                " that name [DIR-4]"
            )
        return None, None
    if known is not None:
        return known, None
    what = "does not exist" if not directory.exists() else "has no topic id"
    fresh = ("--topic-id", new_topic_id())
    if image is None:
        return None, Lacking(
            why=f"it {what}, and without the cluster's metadata the id of its topic is unknown. A "
            "broker would set the directory aside if it had another id",
            options=fresh,
            meaning="no cluster has the topic, so that a new id will do",
            first=METADATA_FIRST,
        )
    return None, Lacking(
        why=f"it {what}, and the cluster's metadata does not know the topic. A broker would set the"
        " directory aside",
        options=fresh,
        meaning="no broker of that cluster will have it",
        first="create the topic first",
    )


def read_topic_id(directory: Path) -> bytes | None:
    """Read the id in `partition.metadata`, None without one. Raises AccessError, FormatError."""
    path = directory / PARTITION_METADATA_NAME
    try:
        return parse_partition_metadata(read_small_file(path, MAX_FILE_BYTES)).topic_id
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise AccessError(exc, str(path)) from exc
    except FormatError as exc:
        raise exc.located(str(path)) from exc


def require_apart(source: Partition, path: str) -> None:
    """Refuse to copy a partition into itself. Raises UsageError, AccessError."""
    if Path(source.path).resolve() == Path(path).resolve():
        raise UsageError(f"{path}: is the source, too")
    if not Path(path).is_dir():
        return
    with os_errors(path):
        ours = {_file_id(each.log.path): each.log.path for each in source.segments}
        for each in list_partition(path).segments:
            same = ours.get(_file_id(each.log.path))
            if same is not None:
                raise UsageError(
                    f"{each.log.path}: is one file with {same} of the source, by a link. A record"
                    " that is appended to one is in both",
                    next_step=f"put a copy of its own in the place of {each.log.path}",
                )


def _file_id(path: str) -> tuple[int, int]:
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def require_log_dir(path: str) -> LogDir:
    """Read a log dir. Raises UsageError: the directory is not a log dir."""
    log_dir = read_log_dir(path)
    if not log_dir.is_log_dir:
        raise UsageError(
            f"{path}: not a log dir: none of the files that a broker has there",
            next_step="name a directory of log.dirs",
        )
    return log_dir
