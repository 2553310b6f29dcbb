"""Where a history of the cluster begins, and where it is to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.cluster_image import ClusterImage, load_snapshot
from storage.errors import CorruptError, UsageError

if TYPE_CHECKING:
    from storage.dirs.cluster_image import MetadataLog
    from storage.dirs.log_dir import Problem


class Moment(NamedTuple):
    """Where to stop: behind an offset, or before the first record of a later time."""

    offset: int | None = None
    timestamp_ms: int | None = None

    def is_before(self, offset: int, timestamp_ms: int) -> bool:
        """Whether a record is beyond it."""
        if self.offset is not None:
            return offset > self.offset
        return self.timestamp_ms is not None and timestamp_ms > self.timestamp_ms


class HistoryStart(NamedTuple):
    """Where the changes begin: a snapshot, or offset 0 with nothing."""

    image: ClusterImage
    problems: tuple[Problem, ...] = ()


def find_start(partition: MetadataLog, until: Moment | None) -> HistoryStart:
    """The oldest snapshot that the log goes on from; the newest one before a moment, if given.

    Without any log the newest snapshot is all that there is.
    """
    log_start = partition.segments[0].base_offset if partition.segments else None
    entries = list(partition.files.checkpoints)
    is_newest_first = log_start is None or until is not None
    if is_newest_first:
        entries.reverse()
    rejected: list[Problem] = []
    below: ClusterImage | None = None
    for entry in entries:
        offset = entry.name.offset or 0
        if until is None and log_start == 0:
            break
        if until is not None and until.offset is not None and offset > until.offset + 1:
            continue
        image = load_snapshot(entry.path, offset)
        if image is None:
            problem = CorruptError("not a whole snapshot", check_id="KRF-2", pos=0)
            rejected.append(problem.located(entry.path))
        elif log_start is not None and offset < log_start:
            below = image
        elif until is None or not _is_beyond(image, until):
            return HistoryStart(image, tuple(rejected))
    if until is not None and log_start != 0:
        return find_start(partition, None)  # if anything is as old, it is that
    if log_start == 0 or below is None:
        return HistoryStart(ClusterImage(), tuple(rejected))
    return HistoryStart(below, tuple(rejected))


def _is_beyond(image: ClusterImage, until: Moment) -> bool:
    if until.timestamp_ms is None:
        return False
    return image.snapshot_timestamp_ms is None or image.snapshot_timestamp_ms > until.timestamp_ms


def require_within(partition: MetadataLog, start: HistoryStart, until: Moment) -> None:
    """Raise UsageError if a moment lies before all that a directory has."""
    first = start.image.snapshot_offset
    time_ms = start.image.snapshot_timestamp_ms
    is_early = until.offset is not None and until.offset < first - 1
    if until.timestamp_ms is not None and time_ms is not None:
        is_early = until.timestamp_ms < time_ms
    if is_early:
        raise UsageError(
            f"{partition.path}: what was before offset {first} is in no file any more",
            next_step="a later moment, or the directory of another controller",
        )
