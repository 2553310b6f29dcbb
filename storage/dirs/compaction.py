"""The part of a compacted log that its cleaner has not reached.

A cleaner processes closed segments, from the offset in `cleaner-offset-checkpoint` on. If a cleaner
is dead or blocked, a compacted topic grows without bound.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from storage.counts import counted
from storage.dirs.topic_settings import read_log_config, stated_is_compacted
from storage.errors import AccessError
from storage.file_names import COMPACTED_TOPICS
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles

REPORTED_RATIO = 0.5  # default of min.cleanable.dirty.ratio: a working cleaner stays below it


class Uncompacted(NamedTuple):
    """Closed segments of a compacted partition that no cleaner has processed.

    Attributes:
        first_offset: their start: the cleaner's checkpoint, or the first segment without a
            checkpoint.
        end_offset: the start of the last segment, which is never compacted.
        has_checkpoint: the cleaner has a line for the partition.
        segments_count, log_bytes: number and size of these segments.
        dirty_ratio: their share of all closed segments, in bytes.
        since_ms: timestamp of their first batch, or None if there is none or it cannot be read.
    """

    first_offset: int
    end_offset: int
    has_checkpoint: bool
    segments_count: int
    log_bytes: int
    dirty_ratio: float
    since_ms: int | None

    def reported(self, records_count: int | None = None) -> str:
        """Return a description in words, with the number of records if it is known."""
        what = counted(self.end_offset - self.first_offset, "offset")
        if records_count is not None:
            what = counted(records_count, "record")
        since = ""
        if self.since_ms is not None:
            moment = datetime.fromtimestamp(self.since_ms // 1000, UTC)
            since = f", the oldest of {moment:%Y-%m-%d %H:%M} UTC"
        why = "the cleaner has never recorded progress for this partition"
        if self.has_checkpoint:
            why = f"the cleaner recorded progress up to offset {self.first_offset}"
        return (
            f"{what} in {counted(self.segments_count, 'closed segment')}, {self.log_bytes:,}"
            " bytes, are not"
            f" compacted yet (dirty ratio {self.dirty_ratio:.2f}){since}: {why}"
        )


def is_compacted(partition: Partition, image: ClusterImage | None) -> bool:
    """Return whether the topic is compacted, by its metadata, cleaner, name or the user."""
    log_dir = partition.log_dir
    checkpoints = None if log_dir is None else log_dir.cleaner_offsets
    key = partition.directory.topic_partition
    if partition.topic in COMPACTED_TOPICS or (checkpoints and key in checkpoints):
        return True
    if image is None or partition.topic not in image.topics:
        return bool(stated_is_compacted())
    return read_log_config(image, partition.topic).is_compacted


def uncompacted(partition: Partition, image: ClusterImage | None) -> Uncompacted | None:
    """Return the part that is not compacted yet, or None for a topic that is not compacted.

    Raises:
        RefusedError: a setting of the topic that must be a number is none.
    """
    closed = partition.segments[:-1]
    if not closed or partition.is_set_aside or not is_compacted(partition, image):
        return None
    log_dir = partition.log_dir
    checkpoints = None if log_dir is None else log_dir.cleaner_offsets
    checkpoint = (checkpoints or {}).get(partition.directory.topic_partition)
    first = closed[0].base_offset if checkpoint is None else checkpoint
    bases = [each.base_offset for each in partition.segments[1:]]
    dirty = [each for each, end in zip(closed, bases, strict=True) if end > first]
    dirty_bytes = sum(each.log.file_bytes for each in dirty)
    total_bytes = sum(each.log.file_bytes for each in closed)
    return Uncompacted(
        first_offset=max(first, closed[0].base_offset),
        end_offset=bases[-1],
        has_checkpoint=checkpoint is not None,
        segments_count=len(dirty),
        log_bytes=dirty_bytes,
        dirty_ratio=dirty_bytes / total_bytes if total_bytes else 0.0,
        since_ms=_first_time(dirty),
    )


def _first_time(segments: Sequence[SegmentFiles]) -> int | None:
    for files in segments:
        try:
            with open_segment(files.log.path) as segment:
                batch = next(segment.scan(verify_crc=False), None)
        except AccessError:
            return None
        if batch is not None:
            time_ms = max(batch.header.base_timestamp_ms, batch.header.max_timestamp_ms)
            return time_ms if time_ms >= 0 else None
    return None
