"""The partitions of a topic that a producer writes to, all in one log dir."""

from __future__ import annotations

from pathlib import Path

from recovery.cluster.clusters import image_around
from storage.dirs.log_dir import read_log_dir
from storage.errors import RefusedError, UsageError
from storage.file_names import DirState, is_topic_name, parse_partition_name


def require_legal(topic: str) -> None:
    """See that Kafka would take a name for a topic (Topic.validate). Raises UsageError."""
    if not is_topic_name(topic):
        raise UsageError(
            f"{topic!r}: no name of a topic",
            next_step="1 to 249 letters, digits, dots, underscores, hyphens",
        )


def target_paths(
    path: str, topic: str | None, metadata_dir: str | None, partitions_count: int | None
) -> list[str]:
    """Return the directories that are written to: PATH itself, or those of a topic in it.

    Raises:
        AccessError: the log dir cannot be listed.
        RefusedError: the number given is not that of the cluster, or a partition is missing.
        UsageError: nothing tells how many partitions there are, or no topic is named for them.
    """
    if topic is not None:
        return _topic_paths(path, topic, metadata_dir, partitions_count)
    if partitions_count is not None:
        raise UsageError("--partitions goes with --to-topic")
    return [path]


def _topic_paths(
    log_dir_path: str, topic: str, metadata_dir: str | None, partitions_count: int | None
) -> list[str]:
    """Return the directory of each partition, by number; they need not exist.

    How many there are is known from the cluster's metadata, else given, else as many as lie here.
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
                f"{log_dir_path}: has no partition of {topic}; how many there are is not known",
                next_step="--partitions N, or --metadata-dir DIR with the cluster's metadata",
            )
        if here - set(range(count)):
            raise RefusedError(
                f"{log_dir_path}: partitions {sorted(here)} of {topic} are here, which are not the"
                f" first {count}: a key would go to another partition than elsewhere",
                next_step="--partitions N with the number of partitions that the topic has",
            )
    return [str(Path(log_dir_path, f"{topic}-{number}")) for number in range(count)]
