"""What a broker has to recover at its next start, as things are now (REC-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.partition import floor_of
from storage.dirs.partition_files import list_partition
from storage.errors import AccessError
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.dirs.log_dir import LogDir, PartitionDir
    from storage.dirs.partition_files import SegmentFiles
    from storage.file_names import PartitionName


class RecoveryPrice(NamedTuple):
    """Partitions with segments to recover, and the bytes of `.log` in these."""

    partitions_count: int
    log_bytes: int


def recovery_price(
    log_dir: LogDir,
    *,
    without: PartitionDir | None = None,
    lowered: Mapping[PartitionName, int] | None = None,
) -> RecoveryPrice:
    """Add up what a start without the clean-shutdown marker recovers in a log dir.

    That is, in every partition, all from the segment with the recovery point on. Directories that
    cannot be listed, and `without`, are left out. `lowered` has the greatest recovery points that
    some partitions may have then.
    """
    partitions_count = log_bytes = 0
    for each in log_dir.partitions:
        if each.name.state is DirState.DELETE or each.name.topic == METADATA_TOPIC:
            continue
        if each.name == (None if without is None else without.name):
            continue
        try:
            segments = list_partition(each.path).segments
        except AccessError:
            continue
        if segments:
            partitions_count += 1
            point = log_dir.recovery_point(each) or 0
            point = min(point, (lowered or {}).get(each.name, point))
            log_bytes += recovered_bytes(segments, point)
    return RecoveryPrice(partitions_count, log_bytes)


def recovered_bytes(segments: tuple[SegmentFiles, ...], recovery_point: int | None) -> int:
    """Bytes of `.log` from the segment with the recovery point on; without a point that is all."""
    start = floor_of(segments, recovery_point or 0)
    return sum(files.log.file_bytes for files in segments[start:])
