"""The offsets of share groups, from `__share_group_state`.

Each partition of the topic is replayed like a share coordinator loads it. A snapshot replaces the
state of a share partition, and an update changes it. A share partition belongs to one partition of
the topic, by the hash of `GROUP:TOPIC_ID:PARTITION`. Records in another partition do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.coordinator_log import (
    add_problem,
    find_copies,
    furthest,
    partitions_count,
    read_batches,
)
from storage.errors import FormatError
from storage.file_names import SHARE_GROUP_TOPIC
from storage.formats.partition_metadata import format_uuid
from storage.formats.share_group_state import SNAPSHOT_TYPE, parse_record
from storage.producers.java_hash_map import coordinator_partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, Problem
    from storage.dirs.partition import Partition
    from storage.formats.coordinator_record import CoordinatorRecord
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

UNKNOWN_TYPE = "COO-2"
UNCHANGED = -1  # start offset or leader epoch of an update


class SharePartition(NamedTuple):
    """A partition of a topic, as a share group consumes it."""

    group: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key whose hash selects the partition of the topic (SharePartitionKey)."""
        return f"{self.group}:{format_uuid(self.topic_id)}:{self.partition}"


class ShareState(NamedTuple):
    """The state of a share partition, without its batches.

    `complete_count`: delivered records from the start offset on, -1 if unknown.
    """

    start_offset: int = -1
    leader_epoch: int = 0
    complete_count: int = -1


class ShareLog:
    """The state of the share coordinators of one cluster.

    Attributes:
        states: by share partition. A share partition without state is missing.
        partitions: the partitions of the topic that were read, and whether each was whole.
        partitions_count: of the topic. None if unknown.
        problems: what could not be read or parsed.
    """

    def __init__(self, log_dirs: Iterable[LogDir], image: ClusterImage | None = None) -> None:
        """Read the log dirs. Without `image` the number of partitions is unknown."""
        self.states: dict[SharePartition, ShareState] = {}
        self.partitions: dict[int, bool] = {}
        self.problems: list[Problem] = []
        copies, problems = find_copies(log_dirs, SHARE_GROUP_TOPIC)
        self.problems += problems
        highest = max(copies, default=-1)
        self.partitions_count = partitions_count(image, SHARE_GROUP_TOPIC, highest)
        for number in sorted(copies):
            for source in furthest(copies[number]):
                self.partitions[number] = self._read(number, source)
                if self.partitions[number]:
                    break

    def has_all_of(self, key: SharePartition) -> bool:
        """Return whether all records of a share partition were read.

        If the number of partitions is unknown, all partitions up to the highest must be whole. If
        nothing shows that the topic exists, nothing is missing.
        """
        count = self.partitions_count
        if count is None:
            return all(
                self.partitions.get(each) for each in range(max(self.partitions, default=-1) + 1)
            )
        return self.partitions.get(coordinator_partition(key.coordinator_key, count), False)

    def _read(self, number: int, source: Partition) -> bool:
        """Read a replica, and return whether it was whole."""
        before = len(self.problems)

        def take(segment: Segment, batch: ScannedBatch) -> None:
            if not batch.header.is_control:
                self._take_batch(number, segment, batch)

        read_batches(source, take, self.problems)
        is_there = bool(source.segments) or source.was_never_written
        return is_there and len(self.problems) == before

    def _take_batch(self, number: int, segment: Segment, batch: ScannedBatch) -> None:
        for record in segment.records(batch):
            try:
                found = parse_record(record.key, record.value)
            except FormatError as exc:
                if exc.check_id == UNKNOWN_TYPE:  # a broker ignores it
                    continue
                exc.pos = 0  # a position in the key or the value is no position in the file
                add_problem(self.problems, exc.located(segment.path, batch.pos))
                continue
            self._take(number, found)

    def _take(self, number: int, found: CoordinatorRecord) -> None:
        fields = found.key
        key = SharePartition(fields["groupId"], fields["topicId"], fields["partition"])
        count = self.partitions_count
        if count is not None and coordinator_partition(key.coordinator_key, count) != number:
            return
        value = found.value
        if value is None:
            if found.type == SNAPSHOT_TYPE:
                self.states.pop(key, None)
            return
        before = self.states.get(key)
        start_offset, leader_epoch = value["startOffset"], value["leaderEpoch"]
        if found.type != SNAPSHOT_TYPE and before is not None:
            start_offset = before.start_offset if start_offset == UNCHANGED else start_offset
            leader_epoch = before.leader_epoch if leader_epoch == UNCHANGED else leader_epoch
        self.states[key] = ShareState(
            start_offset=start_offset,
            leader_epoch=leader_epoch,
            complete_count=value.get("deliveryCompleteCount", -1),
        )
