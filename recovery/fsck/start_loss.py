"""The records that the next start removes from a log: how many, acknowledged or not, and from when.

A check predicts which `.log` files a start truncates or deletes. This module counts the records in
the removed bytes, and reads no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.checks.log_dirs.log_dirs import DELETES, SETS_ASIDE
from recovery.start.files import StartAction
from recovery.start.prediction import DELETES_SOON, REPLACES
from recovery.truncate.cost import CutCounts
from storage.dirs.acknowledged_offsets import next_offset
from storage.dirs.partition_files import SegmentFiles
from storage.errors import EoctlError
from storage.file_names import FileKind, FileSuffix

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.fsck.one_pass import PartitionRow
    from recovery.start.files import StartChange
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry

_TAKING = frozenset({StartAction.TRUNCATES, StartAction.DELETES, StartAction.REWRITES})
WHOLE_DIRECTORY = frozenset({SETS_ASIDE, DELETES, DELETES_SOON})


class StartLoss(NamedTuple):
    """The loss of one partition at a start.

    Attributes:
        is_hidden: nothing is truncated, but the broker assumes a lower log end and writes there
            again.
        records_count: readable data records in the removed bytes.
        acknowledged_count: of them, below the checkpointed high watermark. None if unknown.
        is_least: some of the bytes cannot be read, so both counts are lower bounds.
        log_bytes: removed bytes, without preallocated zeros.
        first_offset, last_offset: of the removed bytes, or all hidden offsets. Damaged batches
            count from the log end after the start on. None if there are none, or if unknown.
        first_ms, last_ms: least and greatest timestamp of their records. None if they have none.
    """

    topic: str
    partition: int
    path: str
    is_hidden: bool
    records_count: int
    acknowledged_count: int | None
    is_least: bool
    log_bytes: int
    first_offset: int | None
    last_offset: int | None
    first_ms: int | None
    last_ms: int | None


def start_loss(
    partition: Partition,
    row: PartitionRow,
    changes: Iterable[StartChange],
    kept_end_offset: int | None = None,
) -> StartLoss | None:
    """Count the records that a start removes from a partition. None if it removes nothing.

    Directories that it deletes or sets aside as a whole, as the cluster has decided, are not
    counted.

    Args:
        partition: as it was checked.
        row: the result of the check.
        changes: of the start in this directory.
        kept_end_offset: for a replaced directory, the log end of the directory that replaces it, if
            that is lower.
    """
    if row.start in WHOLE_DIRECTORY or (row.start == REPLACES and kept_end_offset is None):
        return None
    parts = _cut_parts(partition, list(changes))
    is_hidden = False
    start_offset = kept_end_offset or 0
    ends = (row.start_end_offset, row.end_offset)
    if not parts and ends[0] is not None and ends[1] is not None and ends[0] < ends[1]:
        # The index of the last segment leads the broker to a lower log end (REC-11).
        is_hidden, start_offset = True, ends[0]
        parts = [(each, 0) for each in partition.segments]
    if not parts:
        return None
    counts = CutCounts(start_offset, partition.high_watermark)
    is_read = True
    for files, start_pos in parts:
        try:
            counts.add_segment(files, start_pos, is_active=partition.is_active(files))
        except EoctlError:
            is_read = False
    found = counts.found
    if not counts.log_bytes and is_read:
        return None  # preallocated zeros
    is_least = found.is_least or not is_read
    first_offset, last_offset = found.first_offset, found.last_offset
    if is_hidden and ends[0] is not None and ends[1] is not None:
        # No consumer gets the offsets of damaged batches there either.
        first_offset, last_offset = ends[0], ends[1] - 1
    elif is_least and ends[0] is not None and _is_at_end(partition, parts):
        first_offset = min(ends[0], ends[0] if first_offset is None else first_offset)
    return StartLoss(
        topic=partition.topic,
        partition=partition.partition,
        path=partition.path,
        is_hidden=is_hidden,
        records_count=found.records_count,
        acknowledged_count=found.acknowledged_count,
        is_least=is_least,
        log_bytes=0 if is_hidden else counts.log_bytes,
        first_offset=first_offset,
        last_offset=last_offset,
        first_ms=found.first_ms,
        last_ms=found.last_ms,
    )


def _cut_parts(
    partition: Partition, changes: Sequence[StartChange]
) -> list[tuple[SegmentFiles, int]]:
    """Return the segments that lose bytes, and the first position that each loses."""
    swapped = _swapped_range(partition)
    by_path = {each.log.path: each for each in partition.segments}
    parts = []
    for each in changes:
        if each.action not in _TAKING or (
            each.action is StartAction.REWRITES and each.size_bytes is None
        ):
            continue  # the swap file that overwrites it has its records
        files = by_path.get(each.path) or _swapped_in(partition, each.path)
        if files is None:
            continue  # an index, or a leftover of a deletion or the cleaner
        if each.action is StartAction.TRUNCATES:
            parts.append((files, each.size_bytes or 0))
        elif swapped is None or not swapped[0] <= files.base_offset < swapped[1]:
            parts.append((files, 0))
    return sorted(parts, key=lambda each: each[0].base_offset)


def _is_at_end(partition: Partition, parts: Sequence[tuple[SegmentFiles, int]]) -> bool:
    """Return whether the removed bytes are the end of the log."""
    last = max((each.base_offset for each in partition.segments), default=0)
    return parts[-1][0].base_offset >= last


def _swapped_in(partition: Partition, path: str) -> SegmentFiles | None:
    """Return the segment that is renamed to this path before it is truncated (REC-4)."""
    for entry in _swapped_logs(partition):
        if entry.path == f"{path}{FileSuffix.SWAP}":
            return SegmentFiles(
                base_offset=entry.name.offset or 0,
                log=entry,
                offset_index=None,
                time_index=None,
                txn_index=None,
                snapshot=None,
            )
    return None


def _swapped_range(partition: Partition) -> tuple[int, int] | None:
    """Return the offsets of swapped-in segments. Their records are not lost."""
    logs = _swapped_logs(partition)
    if not logs:
        return None
    return min(each.name.offset or 0 for each in logs), max(map(next_offset, logs))


def _swapped_logs(partition: Partition) -> list[FileEntry]:
    return [
        each
        for each in partition.files.others
        if each.name.suffix is FileSuffix.SWAP and each.name.kind is FileKind.LOG
    ]
