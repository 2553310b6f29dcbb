"""A partition directory as the cluster's metadata know it: rule DIR-4.

`partition.metadata` must be there and parse; its topic id, the number of the partition and this
broker as one of the replicas must be what the metadata say. Else a KRaft broker sets the directory
aside when it starts, as `-stray`. It fetches the newest metadata before that: what is found against
the metadata on disk may be settled by newer ones.
Sources: PartitionMetadataFile, UnifiedLog.initializeTopicId, LogManager.isStrayKraftReplica,
ReplicaManager.maybeUpdateTopicAssignment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.checks.grounds import broker_version as releases
from recovery.checks.grounds.log_dir_release import REFUSES
from recovery.checks.log_dirs.log_dirs import LOSES_LOG_DIR
from recovery.rules.findings import Severity
from storage.dirs.discovery import UNKNOWN_PARTITION
from storage.dirs.log_dir import StoppedState
from storage.errors import FormatError
from storage.file_names import METADATA_TOPIC, PARTITION_METADATA_NAME, DirState
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.partition_metadata import (
    NotCaughtError,
    format_uuid,
    parse_partition_metadata,
)
from storage.formats.partition_metadata import problems as partition_metadata_problems

if TYPE_CHECKING:
    from recovery.checks.grounds.broker_version import BrokerVersion
    from recovery.checks.grounds.collector import Collector
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.partition import Partition

SETS_ASIDE = "renames the directory to -stray and does not serve it, unless newer metadata differ"
# Releases before 3.7.1: once the logs are loaded.
DELETES = "deletes the directory after file.delete.delay.ms, unless newer metadata differ"
WRITES_AGAIN = "writes it again, if the replica is one of its own; else deletes no replica at all"


def sets_aside(version: BrokerVersion | None) -> str:
    """Tell what a KRaft broker does with a replica that is not its own."""
    if releases.is_before(version, releases.KNOWS_STRAYS):
        return "nothing"
    if releases.is_before(version, releases.STRAYS_WHEN_LOADED):
        return DELETES
    return SETS_ASIDE


def check_against_cluster(
    partition: Partition,
    image: ClusterImage | None,
    collector: Collector,
    version: BrokerVersion | None = None,
) -> None:
    """Check the `partition.metadata` of a partition directory, also against the cluster (DIR-4).

    Nothing is held against an image that is empty or not complete, and nothing against a
    directory of a broker that runs: it may be about to be created or deleted.
    """
    name = partition.directory.name
    if name.topic == METADATA_TOPIC or name.partition == UNKNOWN_PARTITION:
        return
    topic_id = read_topic_id(partition, collector)
    if name.state in {DirState.DELETE, DirState.STRAY}:
        return
    if partition.files.other(PARTITION_METADATA_NAME) is None:
        _check_missing(partition, image, collector, version)
    elif (
        topic_id is not None
        and image is not None
        and image.is_complete
        and image.end_offset
        and partition.stopped is not StoppedState.LIVE
    ):
        _check_assignment(partition, topic_id, image, collector, version)


def read_topic_id(partition: Partition, collector: Collector) -> bytes | None:
    """Check the file alone; returns its topic id, None if there is none."""
    entry = partition.files.other(PARTITION_METADATA_NAME)
    data = partition.read_file(entry)
    if entry is None or data is None:
        return None
    for error in partition_metadata_problems(data):
        action = REFUSES if isinstance(error, NotCaughtError) else LOSES_LOG_DIR
        is_damage = error.check_id == "DIR-4"
        collector.add_error(error, path=entry.path, broker_action=action if is_damage else "")
    try:
        return parse_partition_metadata(data).topic_id
    except FormatError:
        return None


def _path(partition: Partition) -> str:
    return os.fspath(Path(partition.path, PARTITION_METADATA_NAME))


def _check_missing(
    partition: Partition,
    image: ClusterImage | None,
    collector: Collector,
    version: BrokerVersion | None,
) -> None:
    """DIR-4: a KRaft broker writes the file before any record."""
    meta = None if partition.log_dir is None else partition.log_dir.meta
    if image is None and (meta is None or meta.version == 0):
        return  # brokers before topic ids had none
    has_data = any(each.log.file_bytes for each in partition.segments)
    if partition.stopped is StoppedState.LIVE and not has_data:
        return
    action = SETS_ASIDE
    if releases.is_before(version, releases.STRAYS_WHEN_LOADED):
        # 3.7.0 looks for strays before anything else, and is ended by a log without an id.
        is_3_7_0 = not releases.is_before(version, releases.DIRECTORY_IDS)
        action = REFUSES if is_3_7_0 else WRITES_AGAIN
    collector.add(
        "DIR-4",
        _path(partition),
        f"{PARTITION_METADATA_NAME} is missing",
        severity=Severity.WARNING if has_data else Severity.NOTE,
        broker_action=action,
    )


def _check_assignment(
    partition: Partition,
    topic_id: bytes,
    image: ClusterImage,
    collector: Collector,
    version: BrokerVersion | None,
) -> None:
    name = partition.directory.name
    aside = sets_aside(version)
    topic = image.topic_by_id(topic_id)

    def add(message: str, severity: Severity, expected: str, found: str, action: str) -> None:
        collector.add(
            "DIR-4",
            _path(partition),
            message,
            severity=severity,
            expected=expected,
            found=found,
            broker_action=action,
        )

    if topic is None:
        _add_unknown_topic(partition, topic_id, image, collector, aside)
        return
    if topic.name != name.topic:
        add("the topic id is that of another topic", Severity.ERROR, name.topic, topic.name, "")
        return
    placed = topic.partitions.get(name.partition)
    if placed is None:
        count = f"{len(topic.partitions)} partitions"
        message = "the topic has no such partition"
        add(message, Severity.WARNING, count, str(name.partition), aside)
        return
    meta = None if partition.log_dir is None else partition.log_dir.meta
    if meta is None or meta.node_id is None:
        return
    if meta.node_id not in placed.replicas:
        replicas = f"one of {list(placed.replicas)}"
        message = "this broker has no replica of the partition"
        add(message, Severity.WARNING, replicas, str(meta.node_id), aside)
        return
    assigned = placed.directories[placed.replicas.index(meta.node_id)]
    is_known = int.from_bytes(assigned, "big") >= RESERVED_DIRECTORY_IDS
    own = meta.directory_id
    if is_known and own not in {None, assigned} and name.state is DirState.LIVE:
        add(
            "the replica is assigned to another log dir",
            Severity.NOTE,
            format_uuid(assigned),
            format_uuid(own or b""),
            "serves it where it is"
            if releases.is_before(version, releases.DIRECTORY_IDS)
            else "has the controller assign it to this log dir",
        )


def _add_unknown_topic(
    partition: Partition,
    topic_id: bytes,
    image: ClusterImage,
    collector: Collector,
    aside: str,
) -> None:
    """DIR-4: of no topic, or of an earlier one of the same name."""
    namesake = image.topics.get(partition.topic)
    if namesake is not None:
        message, severity = "the topic has another id: it was created again", Severity.ERROR
        expected = format_uuid(namesake.topic_id)
    else:
        is_deleted = topic_id in image.deleted_topics
        message = "the topic was deleted" if is_deleted else "no topic of the cluster has this id"
        severity, expected = Severity.WARNING, ""
    collector.add(
        "DIR-4",
        _path(partition),
        message,
        severity=severity,
        expected=expected,
        found=format_uuid(topic_id),
        broker_action=aside,
    )
