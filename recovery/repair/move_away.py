"""Plan to set a replica aside, so that the broker fetches all of it again (FIX-9).

Every file of the log goes to the backups, which are outside of the log dir; `undo` puts them back.
The directory stays, with `partition.metadata` alone in it, as a broker makes it for a new replica:
its next start finds a log without segments (REC-15), and fetches from the leader.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.plans.lowered_checkpoints import CheckpointLimits
from recovery.changes.plans.plan import absolute_path, remove_step
from recovery.repair.repaired import Repaired
from recovery.repair.strategies import Strategy
from recovery.truncate.plan import require_changeable
from storage.errors import EoctlError
from storage.file_names import LEADER_EPOCHS_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry

_REASON = "set aside; the broker fetches it again"


def plan_move_away(partition: Partition) -> Repaired:
    """Plan it; without a segment the derived files go that are left. Reads only.

    Raises:
        RefusedError: it must not be changed.
        AccessError: a file cannot be looked at.
    """
    require_changeable(partition)
    directory = Path(absolute_path(partition.path))
    log_dir = partition.log_dir
    log_start_offset = None if log_dir is None else log_dir.log_start_offset(partition.directory)
    start = log_start_offset or 0
    return Repaired(
        path=partition.path,
        strategy=Strategy.MOVE_AWAY,
        log_bytes=partition.files.log_bytes,
        log_start_offset=start,
        end_offset=start,
        limits=CheckpointLimits(
            partition=partition.directory.topic_partition,
            recovery_point=start,
            end=start,
            first_dirty=start,
            has_log_start=True,
        ),
        steps=tuple(
            remove_step(str(directory / each.name.name), _REASON) for each in _files(partition)
        ),
        segments=tuple(each.log.name.name for each in partition.segments),
        high_watermark=partition.acknowledged.high_watermark,
        moved_end_offset=_end_offset(partition),
        notes=(f"{partition.path}: {partition.files.log_bytes} bytes of .log are fetched again",),
    )


def _end_offset(partition: Partition) -> int:
    """Return where the log ends, as far as anything tells."""
    try:
        end = partition.log_end()
    except EoctlError:
        end = None
    return max(0 if end is None else end.offset, partition.acknowledged.end_offset or 0)


def _files(partition: Partition) -> Iterator[FileEntry]:
    """From the last segment backwards, the `.log` first: what is left is always a log."""
    epochs = partition.files.other(LEADER_EPOCHS_NAME)
    if epochs is not None:
        yield epochs
    for files in reversed(partition.segments):
        for each in (files.log, files.offset_index, files.time_index, files.txn_index):
            if each is not None:
                yield each
    yield from partition.files.snapshots
    yield from partition.files.orphans
