"""Tiered storage (KIP-405): partitions whose log begins in remote storage, not in a local segment.

Such a partition keeps its log start below its first `.log`: the checkpoint's, or 0 without a line
there (REC-13). In any other partition that is a line left over from before retention, or none, and
the log starts at the first segment. What tells them apart is remote.storage.enable of the topic
in `__cluster_metadata`. Where that is not there, it is
  -  a line in log-start-offset-checkpoint at all, which other partitions have only for a log start
     above their first segment, or a partition of `__remote_log_metadata` beside it
  -  and a `leader-epoch-checkpoint` that begins below the first segment: it is cut at the log start
     (EPOCH-4)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.dirs.log_dir import MAX_FILE_BYTES, PartitionDir
from storage.errors import FormatError
from storage.file_names import (
    LEADER_EPOCHS_NAME,
    METADATA_TOPIC,
    REMOTE_METADATA_TOPIC,
)
from storage.files.small_file import read_small_file
from storage.formats.checkpoint import parse_leader_epochs

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir, PartitionDir
    from storage.dirs.partition_files import PartitionFiles, SegmentFiles

REMOTE_STORAGE_ENABLE = "remote.storage.enable"


class RemoteRange(NamedTuple):
    """Offsets of a log that are in remote storage only: from the log start to the first `.log`."""

    start_offset: int
    end_offset: int  # exclusive

    def __str__(self) -> str:
        return f"offsets {self.start_offset} to {self.end_offset - 1} are in remote storage only"


class LocalLog(Protocol):
    """What is asked of a `storage.dirs.partition.Partition`."""

    @property
    def log_dir(self) -> LogDir | None:
        """The log dir that it is in, if that is known."""

    @property
    def directory(self) -> PartitionDir:
        """Its directory."""

    @property
    def topic(self) -> str:
        """Topic by the directory's name."""

    @property
    def files(self) -> PartitionFiles:
        """The files of the directory."""

    @property
    def segments(self) -> tuple[SegmentFiles, ...]:
        """Segments by base offset."""


def find_remote_range(
    partition: LocalLog,
    image: ClusterImage | None,
    own_image: Callable[[LogDir], ClusterImage | None],
) -> RemoteRange | None:
    """Tell which offsets are remote only; None: none.

    Args:
        partition: with at least one segment.
        image: of its cluster; None: the one in its own log dir, if it matters.
        own_image: loads that.
    """
    log_dir = partition.log_dir
    first_base = partition.segments[0].base_offset
    if log_dir is None or not first_base or partition.directory.name.topic == METADATA_TOPIC:
        return None
    checkpoint = log_dir.log_start_offset(partition.directory)
    start_offset = checkpoint or 0
    if start_offset >= first_base:
        return None
    is_likely = is_likely_tiered(log_dir, checkpoint)
    if image is None and not is_likely and _is_cut_at(partition, first_base):
        return None  # as of every topic whose oldest segments are gone: no look at the metadata
    if image is None:
        image = own_image(log_dir)
    if image is not None and partition.topic in image.topics:
        is_remote = is_tiered(image, partition.topic)
    else:
        is_remote = is_likely and not _is_cut_at(partition, first_base)
    return RemoteRange(start_offset, first_base) if is_remote else None


def is_tiered(image: ClusterImage, topic: str) -> bool:
    """Whether a topic has remote storage by its own setting; there is none of the broker."""
    return image.topic_config(topic, REMOTE_STORAGE_ENABLE) == "true"


def is_likely_tiered(log_dir: LogDir, log_start: int | None) -> bool:
    """Tell whether a line of the log start, or what is beside a log, hints at remote storage."""
    return log_start is not None or bool(log_dir.partitions_of(REMOTE_METADATA_TOPIC))


def first_epoch_offset(path: str) -> int | None:
    """Return where the first entry of a leader-epoch-checkpoint begins; None: there is none."""
    try:
        entries = parse_leader_epochs(read_small_file(path, MAX_FILE_BYTES))
    except (FormatError, OSError):  # who needs the file tells of it
        return None
    return entries[0].start_offset if entries else None


def _is_cut_at(partition: LocalLog, first_base: int) -> bool:
    """Whether the leader epochs say that nothing is below the first segment."""
    entry = partition.files.other(LEADER_EPOCHS_NAME)
    if entry is None:
        return False
    begin = first_epoch_offset(entry.path)
    return begin is not None and begin >= first_base
