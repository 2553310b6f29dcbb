"""A coordinators' topic as a log dir has it, and what of it may be missing or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.coordinator_log import find_copies, partitions_count
from storage.errors import RefusedError
from storage.producers.java_hash_map import coordinator_partition
from storage.writing.coordinator import DEFAULT_PARTITIONS_COUNT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir


class CoordinatorTopic(NamedTuple):
    """One of the two topics.

    Attributes:
        log_dir_path, topic: which one; the path is that of the first log dir.
        numbers: of the partitions that are here.
        partitions_count: how many there are, by the metadata, else by what is here, else Kafka's
            default.
    """

    log_dir_path: str
    topic: str
    numbers: Collection[int]
    partitions_count: int

    def home_of(self, name: str) -> int:
        """The partition that a group or a transactional id belongs to."""
        return coordinator_partition(name, self.partitions_count)

    def require_placed(self, number: int, name: str, what: str) -> None:
        """Refuse records that are elsewhere than where they belong.

        Args:
            number: the partition that they are in.
            name: of the group or the transactional id.
            what: they are, with the verb.

        Raises:
            RefusedError: there are not as many partitions as it seems.
        """
        home = self.home_of(name)
        if home != number:
            raise RefusedError(
                f"{self.log_dir_path}: {what} in {self.topic}-{number}, and with"
                f" {self.partitions_count} partitions it belongs to {home}: how many there are is"
                " not known",
                next_step="--metadata-dir DIR with the cluster's metadata",
            )

    def require_home(self, name: str, what: str, next_step: str, *, is_known: bool) -> None:
        """Refuse a name whose newest record may have been in a directory that is not here.

        A broker makes all partitions at once (`is_known`, by the metadata); where `create_topic`
        was interrupted the first ones are missing.

        Args:
            name: of the group or the transactional id.
            what: of it was in the directory.
            next_step: what to do.
            is_known: the cluster has the topic.

        Raises:
            RefusedError: it is not here.
        """
        home = self.home_of(name)
        is_lost = is_known or min(self.numbers, default=home) < home
        if home not in self.numbers and is_lost:
            raise RefusedError(
                f"{self.log_dir_path}: {self.topic}-{home} is not here: {what} was in it",
                next_step=next_step,
            )


def look_at_topic(
    log_dirs: Sequence[LogDir], image: ClusterImage | None, topic: str
) -> CoordinatorTopic:
    """Find out what there is in log dirs of one cluster.

    Raises:
        AccessError: a directory of the topic cannot be listed.
    """
    numbers, problems = find_copies(log_dirs, topic)
    if problems:
        raise problems[0]
    highest = max(numbers, default=-1)
    count = partitions_count(image, topic, highest)
    if count is None:
        count = DEFAULT_PARTITIONS_COUNT if highest < 0 else highest + 1
    return CoordinatorTopic(
        log_dir_path=log_dirs[0].path, topic=topic, numbers=numbers, partitions_count=count
    )
