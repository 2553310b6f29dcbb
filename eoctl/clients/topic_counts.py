"""How many partitions the coordinators' topics have, for a log dir."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.internal_topics import find_copies, partitions_count
from storage.coordinator import DEFAULT_PARTITIONS_COUNT

if TYPE_CHECKING:
    from collections.abc import Collection

    from storage.cluster_image import ClusterImage
    from storage.log_dir import LogDir


def count_partitions(log_dir: LogDir, image: ClusterImage | None, topic: str) -> int:
    """Return the number by the metadata, else by what is here, else Kafka's default.

    Raises:
        AccessError: a directory of the topic cannot be listed.
    """
    highest = max(numbers_here(log_dir, topic), default=-1)
    count = partitions_count(image, topic, highest)
    if count is not None:
        return count
    return DEFAULT_PARTITIONS_COUNT if highest < 0 else highest + 1


def numbers_here(log_dir: LogDir, topic: str) -> Collection[int]:
    """The partitions of the topic that the log dir has. Raises as `count_partitions`."""
    copies, problems = find_copies([log_dir], topic)
    if problems:
        raise problems[0]
    return copies
