"""A group's committed offset as the position of `eoctl consume`, in place of a checkpoint file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from eoctl.change_options import ChangeOptions
from eoctl.clients.coordinators.log_dir_coordinator import GroupCommits
from eoctl.clients.log.consumer import require_in_log
from eoctl.clients.partitions.open_partition import (
    OpenPartitions,
    WriteOptions,
    appending,
    clock_of,
    notes_of,
)
from eoctl.clients.partitions.target import TargetOptions
from eoctl.clients.programs.position_file import Position
from eoctl.clock import NowSource, resolve_now
from eoctl.output import message
from storage.errors import RefusedError
from storage.file_names import TopicPartition
from storage.writing.partition_store import FlushPolicy

if TYPE_CHECKING:
    from eoctl.clients.log.consumer import Consumer
    from storage.dirs.partition import Partition


class GroupOptions(NamedTuple):
    """What the command line says of the group."""

    group: str
    metadata_dir: str | None = None
    single_copy: bool = False
    change: ChangeOptions = ChangeOptions()


class GroupPosition:
    """A context manager that holds the lock of the log dir, if offsets are to be committed.

    Attributes:
        path: what is called so in sentences for people.
    """

    def __init__(self, partition: Partition, options: GroupOptions) -> None:
        """Look only. Raises RefusedError: the partition is in no log dir."""
        if partition.log_dir is None:
            raise RefusedError(
                f"{partition.path}: lies in no log dir, which would have the group's offsets"
            )
        self.path = f"group {options.group}"
        self._place = TopicPartition(partition.topic, partition.partition)
        self._log_dir_path = partition.log_dir.path
        self._options = options
        self._stack = ExitStack()
        self._partitions: OpenPartitions | None = None
        self._offsets = GroupCommits(options.group, self._log_dir_path, options.metadata_dir)

    def __enter__(self) -> Self:
        """Take the lock, and finish what an earlier run has begun."""
        change = self._options.change
        if not change.apply:
            return self
        log_dir = self._log_dir_path
        with ExitStack() as stack:
            journal = stack.enter_context(appending([log_dir], change, "consume"))
            self._now = resolve_now(NowSource.WALL, [log_dir])
            target = TargetOptions(self._options.metadata_dir, None, self._options.single_copy)
            # An offset that was given as saved is on the disk.
            write = WriteOptions(flush=FlushPolicy.BATCH, change=change)
            self._partitions = OpenPartitions(log_dir, write, target, self._now, journal)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            error = None if self._partitions is None else self._partitions.close()
        self._tell()
        if error is not None:
            raise error

    def _tell(self) -> None:
        """Say what the commits changed, and what they cost."""
        opened = [] if self._partitions is None else [*self._partitions]
        if opened:
            for note in notes_of(opened, self._now, is_applied=True):
                message(note)

    def load(self) -> Position | None:
        """Return the committed offset; None if the group has none.

        Raises:
            RefusedError: the group's offsets cannot be read whole.
        """
        offset = self._offsets.committed(self._place)
        return None if offset is None else Position(offset)

    def save(self, position: Position) -> None:
        """Commit an offset, durably; without `apply` nothing is changed.

        Raises:
            RefusedError, AppendError, AccessError: it cannot be written.
        """
        if self._partitions is not None:
            offsets = {self._place: position.next_offset}
            self._offsets.commit(self._partitions, offsets, clock_of(self._now))

    def refuse_following(self) -> None:
        """Refuse to follow a log that nobody can append to. Raises RefusedError."""
        if self._partitions is not None:
            raise RefusedError(
                f"{Path(self._log_dir_path)}: offsets are committed to it, so no broker appends"
                " meanwhile: there is nothing to follow",
                next_step="without --follow",
            )


def start_group(consumer: Consumer, position: GroupPosition) -> None:
    """Begin where the group goes on; without a committed offset where the options say.

    Raises:
        RefusedError: the committed offset is outside of the log.
    """
    saved = position.load()
    if saved is None:
        consumer.start()
        return
    offset = require_in_log(consumer, saved.next_offset, position.path)
    message(f"going on at offset {offset}, as {position.path} says")
    consumer.start(offset)
