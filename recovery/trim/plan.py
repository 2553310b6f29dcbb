"""Plan a trim: the files of a partition as after DeleteRecords, its retention run and a restart.

As `Partition.deleteRecordsOnLeader`, `UnifiedLog.maybeIncrementLogStartOffset` and the task that
deletes segments below the log start. A broker can start after any of the steps, and loads a log.
  1  Segments, oldest first, whose next segment begins at or below the new log start. The `.log`
     goes before its indexes: a broker deletes indexes without a `.log`.
  2  Producer snapshots at or below the new log start. The next load would delete them too.
  3  Leader epochs: the last epoch that begins at or below the new log start begins there.
  4  The line of the log start, which exists only above the first base offset, or with remote
     storage.
  5  The recovery point and the high watermark, if they are below the new log start.
The last segment always stays. A batch with the new log start inside stays whole.

`--local` removes only local segments that are in remote storage. The log start stays, and its line
comes first: without the line, a broker would take offset 0 for the log start.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.backups import SpentTargetError
from recovery.changes.plans.plan import absolute_path, remove_step, replace_step
from recovery.changes.plans.preconditions import (
    put_offset,
    read_whole,
    require_checkpoints,
    require_compacted,
    require_live,
    require_no_problem,
)
from storage.dirs.acknowledged_offsets import ReplicaStanding, in_cluster, is_tiered
from storage.dirs.discovery import UNKNOWN_PARTITION
from storage.dirs.topic_settings import topic_setting
from storage.errors import FormatError, RefusedError, UsageError, pasted
from storage.file_names import (
    COORDINATOR_TOPICS,
    HIGH_WATERMARK_NAME,
    LEADER_EPOCHS_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
)
from storage.formats.checkpoint import LeaderEpochEntry, encode_leader_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.cluster.remote_segments import RemoteSegment
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry, SegmentFiles

_REBUILD_HINT = "; eoctl rebuild derives files that are bad"
_IN_SYNC = frozenset({ReplicaStanding.LEADER, ReplicaStanding.IN_SYNC, ReplicaStanding.ELIGIBLE})


class TrimKind(StrEnum):
    """The kind of a target."""

    OFFSET = "offset"
    TIME = "time"
    BYTES = "bytes"


class TrimRequest(NamedTuple):
    """A requested trim.

    Attributes:
        kind: of `value`.
        value: the offset, milliseconds since 1970, or the bytes of `.log` files that stay.
        is_local: only local segments that are in remote storage, and the log start stays.
        assume_hw: replaces the known high watermark.
    """

    kind: TrimKind
    value: int
    is_local: bool = False
    assume_hw: int | None = None


class Trim(NamedTuple):
    """A planned trim.

    Attributes:
        partition: as listed.
        offset: the requested or computed new log start.
        log_start_offset: before the trim.
        new_log_start_offset: after the trim.
        first_local_offset: base offset of the first segment afterwards.
        log_end_offset: unchanged.
        removed: the segments to remove, oldest first.
        steps: empty if there is nothing to trim.
        notes: facts for the user.
    """

    partition: Partition
    offset: int
    log_start_offset: int
    new_log_start_offset: int
    first_local_offset: int
    log_end_offset: int
    removed: tuple[SegmentFiles, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...]


def known_high_watermark(
    partitions: Sequence[Partition], image: ClusterImage | None, assume_hw: int | None
) -> int | None:
    """Return the highest known lower bound of the high watermark of replicas. None if unknown.

    A replica leads alone if the metadata have no other in the ISR, or in the ELR after a stop. Its
    high watermark is its log end.
    """
    if assume_hw is not None:
        return assume_hw
    known = [each.high_watermark for each in partitions]
    for each in partitions:
        found = image and image.partition(each.topic, each.partition)
        is_in_sync = in_cluster(each.directory, each.log_dir, image).standing in _IN_SYNC
        end = (
            each.log_end() if found and is_in_sync and len({*found.isr, *found.elr}) == 1 else None
        )
        if end is not None:
            known.append(end.offset)
    return max((each for each in known if each is not None), default=None)


def plan_trim(
    partition: Partition,
    request: TrimRequest,
    *,
    high_watermark: int | None,
    image: ClusterImage | None,
    remote: Sequence[RemoteSegment] = (),
) -> Trim:
    """Plan the trim in `request`. Reads only.

    Args:
        partition: as listed now, nothing of it read before.
        request: the target.
        high_watermark: of the partition, the highest bound of all given replicas.
        image: the state of the cluster, for the cleanup policy and tiered storage.
        remote: the finished segments in remote storage, with `is_local`.

    Raises:
        UsageError: a target outside of the log.
        RefusedError: a broker would refuse it too, or the directory must not be changed.
        AccessError: it cannot be read.
    """
    require_trimmable(partition, image)
    end = partition.log_end()
    start_offset = partition.log_start_offset
    if end is None or start_offset is None:
        raise SpentTargetError(f"{partition.path}: has no segment: there is nothing to trim")
    if start_offset > end.offset:
        raise RefusedError(
            f"{partition.path}: its log start offset is {start_offset}, above its end"
            f" {end.offset}: a broker would delete all of it at its start [OFS-1]",
            next_step=f"eoctl repair {pasted(partition.path)} --strategy salvage",
        )
    if high_watermark is None:
        raise RefusedError(
            f"{partition.path}: its high watermark is unknown, and a broker trims nothing above it",
            next_step="--assume-hw N, or --metadata-dir DIR",
        )
    bound = min(high_watermark, end.offset)
    offset, notes = _find_offset(partition, request, bound)
    if offset > bound:
        limit = "log end" if bound == end.offset else "known high watermark"
        raise RefusedError(
            f"{partition.path}: {offset} is above its {limit} {bound}: a broker refuses that too"
            " (OffsetOutOfRange)",
            next_step=f"--to-offset {bound}, or below",
        )
    require_no_problem(partition, _REBUILD_HINT)
    if request.is_local:
        return _plan_local(partition, offset, end.offset, image, remote, notes)
    if offset < start_offset:
        notes.append(f"the log begins at {start_offset} already")
    new_start = max(offset, start_offset)
    removed = tuple(
        files for files, later in pairwise(partition.segments) if later.base_offset <= new_start
    )
    steps: tuple[Step, ...] = ()
    if offset >= start_offset and (new_start > start_offset or removed):
        planner = _TrimSteps(partition, new_start, removed, is_tiered=_is_tiered(partition, image))
        steps = tuple(planner.steps())
        if not removed:
            where = "inside the first segment, which stays"
            if new_start < partition.segments[0].base_offset:
                where = "below the first local segment"
            notes.append(f"{new_start} is {where}: no room is freed here")
    return Trim(
        partition=partition,
        offset=offset,
        log_start_offset=start_offset,
        new_log_start_offset=new_start,
        first_local_offset=partition.segments[len(removed) if steps else 0].base_offset,
        log_end_offset=end.offset,
        removed=removed if steps else (),
        steps=steps,
        notes=tuple(notes),
    )


def require_trimmable(partition: Partition, image: ClusterImage | None) -> None:
    """Refuse a partition whose records a broker does not delete, or that must not be changed.

    Raises:
        RefusedError: with the next step.
    """
    name = partition.directory.name
    require_live(partition.path, name)
    if name.partition == UNKNOWN_PARTITION:
        raise RefusedError(
            f"{partition.path}: not the name of a partition",
            next_step="name the directory TOPIC-N, as a broker has it",
        )
    if partition.topic in COORDINATOR_TOPICS:
        raise RefusedError(
            f"{partition.path}: belongs to a coordinator: a broker refuses DeleteRecords for it",
            next_step=f"eoctl check {pasted(partition.path)}   # why it grows",
        )
    if partition.log_dir is None or not partition.log_dir.is_log_dir:
        raise RefusedError(
            f"{partition.path}: the directory around it is no log dir, which keeps the log start",
            next_step="name the partition in its log dir",
        )
    policy = None
    if image is not None and partition.topic in image.topics:
        policy = topic_setting(image, partition.topic, "cleanup.policy").value
    is_compacted = partition.cleanup().is_compacted if policy is None else "compact" in policy
    if is_compacted and "delete" not in (policy or ""):
        raise RefusedError(
            f"{partition.path}: cleanup.policy is compact alone: a broker deletes no records of it"
            " (PolicyViolation)",
            next_step="--metadata-dir DIR, if the policy was changed",
        )
    require_no_problem(partition, _REBUILD_HINT)
    require_compacted(partition)
    require_checkpoints(partition.log_dir, "cannot be changed")


def _is_tiered(partition: Partition, image: ClusterImage | None) -> bool:
    return partition.remote_range is not None or (
        image is not None and is_tiered(image, partition.topic)
    )


# --- the new log start ----------------------------------------------------------------------------


def _find_offset(
    partition: Partition, request: TrimRequest, high_watermark: int
) -> tuple[int, list[str]]:
    """Return the new log start, and how it was found."""
    value = request.value
    if value < 0:
        raise UsageError(f"{request.kind} {value}: not below 0")
    if request.kind is TrimKind.OFFSET:
        return value, []
    if request.kind is TrimKind.BYTES:
        return _offset_by_bytes(partition, value, high_watermark)
    found = partition.find_timestamp(value)
    if found is None:
        offset, text = high_watermark, "no record has that timestamp or a later timestamp"
    else:
        offset = found.offset
        text = (
            f"the first record at or after that time has offset {offset} and timestamp"
            f" {found.timestamp_ms}; records before it with later timestamps go, too"
        )
    if offset > high_watermark:
        text += f"; only offsets below the high watermark {high_watermark} go"
    return min(offset, high_watermark), [text]


def _offset_by_bytes(
    partition: Partition, wanted_bytes: int, high_watermark: int
) -> tuple[int, list[str]]:
    """Return the base of the first segment that stays, as retention.bytes chooses it."""
    segments = partition.segments
    excess = partition.files.log_bytes - wanted_bytes
    offset = partition.log_start_offset or 0
    for files, later in pairwise(segments):
        if excess - files.log.file_bytes < 0 or later.base_offset > high_watermark:
            break
        excess -= files.log.file_bytes
        offset = max(offset, later.base_offset)
    notes = []
    if excess > 0:
        left = wanted_bytes + excess
        notes.append(f"whole segments only, as retention.bytes: {left} bytes of .log files stay")
    return offset, notes


# --- steps ----------------------------------------------------------------------------------------


class _TrimSteps:
    """The steps of a trim that changes something."""

    def __init__(
        self,
        partition: Partition,
        offset: int,
        removed: Sequence[SegmentFiles],
        *,
        is_tiered: bool,
    ) -> None:
        self._partition = partition
        self._offset = offset
        self._removed = removed
        self._is_tiered = is_tiered
        self._directory = Path(absolute_path(partition.path))

    def steps(self) -> Iterator[Step]:
        """Yield the steps in a safe order."""
        for files in self._removed:
            yield from remove_segment(self._directory, files)
        for each in self._partition.files.snapshots:
            if each.name.offset is not None and each.name.offset <= self._offset:
                reason = "producer state at or below the log start"
                yield _remove(self._directory, each, reason)
        yield from self._leader_epochs()
        first_base = self._partition.segments[len(self._removed)].base_offset
        has_line = self._is_tiered or self._offset > first_base
        yield from put_line(
            self._partition, LOG_START_NAME, self._offset if has_line else None, "log start"
        )
        log_dir, directory = self._partition.log_dir, self._partition.directory
        assert log_dir is not None
        for name, value, what in (
            (RECOVERY_POINT_NAME, log_dir.recovery_point(directory), "recovery point"),
            (HIGH_WATERMARK_NAME, log_dir.high_watermark(directory), "high watermark"),
        ):
            if value is not None and value < self._offset:
                yield from put_line(self._partition, name, self._offset, what)

    def _leader_epochs(self) -> Iterator[Step]:
        entries = self._partition.leader_epochs()
        older = [each for each in entries or () if each.start_offset <= self._offset]
        if not older or older == [LeaderEpochEntry(older[0].epoch, self._offset)]:
            return
        kept = [
            LeaderEpochEntry(older[-1].epoch, self._offset),
            *(each for each in entries or () if each.start_offset > self._offset),
        ]
        yield replace_step(
            str(self._directory / LEADER_EPOCHS_NAME),
            encode_leader_epochs(kept),
            f"leader epoch {older[-1].epoch} begins at the log start",
        )


def remove_segment(directory: Path, files: SegmentFiles) -> Iterator[Step]:
    """Yield the removal of a segment without its snapshot, the `.log` first."""
    for each in (files.log, files.offset_index, files.time_index, files.txn_index):
        if each is not None:
            yield _remove(directory, each, f"segment {files.base_offset} goes")


def put_line(partition: Partition, name: str, offset: int | None, what: str) -> Iterator[Step]:
    """Plan to set the line of a partition in a checkpoint, or to remove it (None).

    Raises:
        FormatError: DIR-7, the checkpoint is damaged.
        AccessError: it cannot be read.
    """
    path = Path(absolute_path(partition.path)).parent / name
    before = read_whole(path)
    try:
        after = put_offset(before or b"", partition.directory.topic_partition, offset)
    except FormatError as error:
        raise error.located(str(path)) from error
    if after != (before or b""):
        change = "line goes" if offset is None else f"at {offset}"
        yield replace_step(str(path), after, f"{what}: {change}")


def _remove(directory: Path, entry: FileEntry, reason: str) -> Step:
    return remove_step(str(directory / entry.name.name), reason)


# --- local segments that are in remote storage ----------------------------------------------------


def _plan_local(
    partition: Partition,
    offset: int,
    log_end_offset: int,
    image: ClusterImage | None,
    remote: Sequence[RemoteSegment],
    notes: list[str],
) -> Trim:
    """Plan to remove whole local segments below an offset that remote storage has completely."""
    if not _is_tiered(partition, image):
        raise RefusedError(
            f"{partition.path}: its topic has no remote storage: --local would lose records",
            next_step="leave out --local; or --metadata-dir DIR",
        )
    start_offset = partition.log_start_offset or 0
    copied_end = _copied_end(partition, start_offset, remote)
    removed = tuple(
        files
        for files, later in pairwise(partition.segments)
        if later.base_offset <= min(offset, copied_end)
    )
    if offset > copied_end:
        notes.append(
            f"remote storage has the offsets up to {copied_end - 1} completely: later segments stay"
            if copied_end > partition.segments[0].base_offset
            else "no local segment is known to be in remote storage completely"
        )
    steps: list[Step] = []
    if removed:
        directory = Path(absolute_path(partition.path))
        if start_offset:
            steps += put_line(partition, LOG_START_NAME, start_offset, "log start")
        for files in removed:
            steps += remove_segment(directory, files)
            if files.snapshot is not None:
                steps.append(
                    _remove(directory, files.snapshot, f"segment {files.base_offset} goes")
                )
    return Trim(
        partition=partition,
        offset=offset,
        log_start_offset=start_offset,
        new_log_start_offset=start_offset,
        first_local_offset=partition.segments[len(removed)].base_offset,
        log_end_offset=log_end_offset,
        removed=removed,
        steps=tuple(steps),
        notes=tuple(notes),
    )


def _copied_end(
    partition: Partition, log_start_offset: int, remote: Sequence[RemoteSegment]
) -> int:
    """Return the end of the offsets from the log start on that finished segments cover."""
    end = max(log_start_offset, partition.segments[0].base_offset)
    for each in sorted(remote, key=lambda found: found.start_offset):
        if each.is_readable and each.start_offset <= end:
            end = max(end, each.end_offset + 1)
    return end
