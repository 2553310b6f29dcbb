"""The committed offsets of a group: read from `__consumer_offsets` of a log dir, and added to it.

An offset that was committed in a transaction counts once that has committed. A group's members are
none of our business: no consumer of it can be at work while no broker runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.clients.coordinators.coordinator_topic import look_at_topic
from recovery.cluster.clusters import image_around
from recovery.cluster.group_offsets import find_group_offsets
from storage.dirs.log_dir import read_log_dir
from storage.errors import RefusedError, UsageError, pasted
from storage.file_names import GROUPS_TOPIC
from storage.formats.consumer_offsets import OffsetCommit, OffsetKey, encode_offset_key
from storage.writing.coordinator import DEFAULT_PARTITIONS_COUNT, append_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eoctl.clients.partitions.open_partitions import OpenPartitions
    from storage.dirs.cluster_image import ClusterImage
    from storage.file_names import TopicPartition
    from storage.producers.transaction_metadata import ProducerIdAndEpoch

METADATA_VERSION = "metadata.version"  # feature
OFFSET_VALUE_4_LEVEL = 30  # 4.3-IV0, whose group coordinators write OffsetCommitValue 4


def offset_value_version(image: ClusterImage | None, known: Iterable[int] = ()) -> int:
    """The version of OffsetCommitValue that the brokers of a cluster write.

    Args:
        image: its state.
        known: versions of values that its brokers have written; they decide where no metadata
            tells which release it is. Older ones cannot read a newer version, nor load the rest.
    """
    level = None if image is None else image.features.get(METADATA_VERSION)
    if level is None:
        return max(known, default=3)
    return 4 if level >= OFFSET_VALUE_4_LEVEL else 3


class GroupCommits:
    """The offsets of one group.

    Attributes:
        group: its id.
        partition: of `__consumer_offsets`, that the group belongs to.
    """

    def __init__(self, group: str, log_dir_path: str, metadata_dir: str | None) -> None:
        """Find the group's partition; reads only.

        Raises:
            UsageError: a group has a name, which fits into a record.
            RefusedError: the group's partition is not here, or it is not known which one it is.
            AccessError: the log dir, or a directory in it, cannot be listed.
        """
        if not group:
            raise UsageError("--group: a group has a name")
        encode_offset_key(OffsetKey(group, "", 0))  # before anything is sent
        self.group = group
        self._log_dir_path = log_dir_path
        log_dir = read_log_dir(log_dir_path)
        self._image = image_around(log_dir if log_dir.is_log_dir else None, metadata_dir)
        image = self._image
        self._topic = look_at_topic([log_dir], image, GROUPS_TOPIC)
        self._is_lacking = image is None and not self._topic.numbers
        self.partition = self._topic.home_of(group)
        self._require_home(is_known=image is not None and GROUPS_TOPIC in image.topics)
        self._version = offset_value_version(image)

    def _require_home(self, *, is_known: bool) -> None:
        """Refuse a group whose offsets may be elsewhere than where they would be looked for."""
        numbers = self._topic.numbers
        if not is_known and numbers and len(numbers) <= max(numbers) - min(numbers):
            raise RefusedError(
                f"{self._log_dir_path}: {GROUPS_TOPIC} has gaps here: how many there are is not"
                f" known, nor which one has the offsets of group {self.group}",
                next_step="--metadata-dir DIR with the cluster's metadata",
            )
        what = f"what group {self.group} has committed"
        self._topic.require_home(self.group, what, "get the directory back", is_known=is_known)

    def committed(self, place: TopicPartition) -> int | None:
        """Return where the group goes on; None if it has committed nothing for the partition.

        Raises:
            RefusedError: its offsets cannot be read whole.
        """
        found = find_group_offsets([read_log_dir(self._log_dir_path)], *place, image=self._image)
        if found is None:
            return None
        if found.problems:
            raise RefusedError(
                f"the offsets of group {self.group} cannot be read whole: {found.problems[0]}",
                next_step=f"eoctl check {pasted(self._log_dir_path)}",
            )
        if found.partitions_count is None:
            for number, offsets in found.offsets_in.items():
                for each in offsets:
                    what = f"offsets of group {each.group} are"
                    self._topic.require_placed(number, each.group, what)
        # If the number of partitions was raised, others may have what its coordinator never had.
        at_home = found.offsets_in.get(self.partition, ())
        ours = (each for each in at_home if each.group == self.group)
        return next((each.offset for each in ours if not each.is_pending), None)

    def create_topic(self, partitions: OpenPartitions) -> None:
        """Make the topic of the offsets, where it is missing and no cluster has it."""
        if self._is_lacking:
            partitions.create_topic(GROUPS_TOPIC, DEFAULT_PARTITIONS_COUNT)
            self._is_lacking = False

    def commit(
        self,
        partitions: OpenPartitions,
        offsets: Mapping[TopicPartition, int],
        now_ms: Callable[[], int],
        producer: ProducerIdAndEpoch | None = None,
    ) -> None:
        """Commit next offsets, with a `producer` in its transaction.

        Raises:
            RefusedError, AppendError, AccessError: they cannot be written.
        """
        self.create_topic(partitions)
        time_ms = now_ms()
        records = {
            OffsetKey(self.group, *place): OffsetCommit(
                self._version, offset, commit_timestamp_ms=time_ms
            )
            for place, offset in offsets.items()
        }
        writer = partitions.writer(GROUPS_TOPIC, self.partition)
        append_offsets(writer, records, now_ms=time_ms, producer=producer)
