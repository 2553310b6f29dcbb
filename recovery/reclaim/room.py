"""The room that a start needs on the disk of a log dir, as an upper bound.

A start writes a new copy of each of the four checkpoints beside the old file. It writes the leader
epochs of each partition, after a crash also the indexes of each segment that it recovers, and a
producer snapshot. Every new file takes a block at least. Index pages are mapped: without room for
them the JVM dies. The cleaner's copies are not included.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.backups import free_bytes
from recovery.replay.recover_state import first_recovered
from storage.dirs.discovery import discover
from storage.dirs.log_dir import StoppedState
from storage.dirs.partition import Partition
from storage.errors import AccessError
from storage.file_names import METADATA_TOPIC, DirState, FileSuffix
from storage.formats import offset_index, time_index
from storage.formats.checkpoint import OFFSET_CHECKPOINT_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.dirs.log_dir import LogDir

_INDEX_INTERVAL_BYTES = 4096  # Kafka's default


class StartRoom(NamedTuple):
    """The room of the next start on one file system.

    Attributes:
        needed_bytes: at most, without the log cleaner.
        free_bytes: for the user that runs this, as for a broker of the same user.
    """

    path: str
    needed_bytes: int
    free_bytes: int


def room_of(log_dir: LogDir, *, is_clean: bool | None = None) -> StartRoom:
    """Compute the room that a start needs in a log dir.

    Args:
        log_dir: as read.
        is_clean: the marker of a clean stop will be there. None: as it is now.

    Raises:
        AccessError: the state of the file system is not available.
    """
    block = os.statvfs(log_dir.path).f_frsize
    if is_clean is None:
        is_clean = log_dir.stopped is StoppedState.CLEAN

    def blocks(size_bytes: int) -> int:
        return max(-(-size_bytes // block), 1) * block

    sizes = {each.file.name: each.path for each in log_dir.others if not each.is_dir}
    needed = sum(
        blocks(os.lstat(sizes[name]).st_size if name in sizes else 0)
        for name in OFFSET_CHECKPOINT_NAMES
    )
    for selected in discover([log_dir.path]).selected:
        if selected.partition.name.state is not DirState.LIVE:
            continue
        try:
            partition = Partition.of(selected)
        except AccessError:
            continue
        if partition.topic == METADATA_TOPIC:
            newest = max((each.file_bytes for each in partition.files.checkpoints), default=0)
            needed += blocks(newest)
        else:
            needed += block  # leader epochs
        if not is_clean:
            needed += sum(map(blocks, _recovery_sizes(partition)))
    return StartRoom(log_dir.path, needed, free_bytes(log_dir.path))


def _recovery_sizes(partition: Partition) -> Iterable[int]:
    """Yield the sizes of the files that a recovery writes anew."""
    log_dir = partition.log_dir
    point = 0 if log_dir is None else log_dir.recovery_point(partition.directory) or 0
    if partition.segments:
        for files in partition.segments[first_recovered(partition.segments, point) :]:
            entries = files.log.file_bytes // _INDEX_INTERVAL_BYTES + 1
            yield entries * offset_index.ENTRY_BYTES
            yield entries * time_index.ENTRY_BYTES
            if files.txn_index is not None:
                yield files.txn_index.file_bytes
    yield max(
        (
            each.file_bytes
            for each in partition.files.snapshots
            if each.name.suffix is FileSuffix.NONE
        ),
        default=0,
    )
