"""Partitions of one log dir that are opened for writing when they are first asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.clients.partitions.open_partition import open_partition
from eoctl.clients.partitions.target import resolve_target
from storage.errors import AccessError, EoctlError, FormatError, RefusedError
from storage.file_names import COORDINATOR_TOPICS, PARTITION_METADATA_NAME
from storage.formats.partition_metadata import format_uuid, new_topic_id, parse_partition_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.clients.partitions.open_partition import OpenPartition, WriteOptions
    from eoctl.clients.partitions.target import TargetOptions, WriteTarget
    from eoctl.clock import Now
    from recovery.changes.append_journal import AppendJournal
    from recovery.changes.plans.plan import Plan
    from storage.writing.partition_store import FileChange
    from storage.writing.writer import PartitionWriter


class OpenPartitions:
    """What is open for writing; the caller holds the lock of the log dir if anything is applied.

    Args:
        log_dir_path: all of them are in it.
        write: how they are written to. A leader epoch that was asked for is not that of the
            coordinators' topics.
        target: what the user says of the cluster.
        now: the clock.
        journal: of the run that changes them; None: nothing is changed.
    """

    def __init__(
        self,
        log_dir_path: str,
        write: WriteOptions,
        target: TargetOptions,
        now: Now,
        journal: AppendJournal | None,
    ) -> None:
        self._log_dir_path = log_dir_path
        self._write = write
        self._target = target
        self._now = now
        self._journal = journal
        self._opened: dict[tuple[str, int], OpenPartition] = {}

    def __iter__(self) -> Iterator[OpenPartition]:
        """All that are open, in the order in which they were opened."""
        return iter(self._opened.values())

    def open_target(self, target: WriteTarget) -> OpenPartition:
        """Open a partition that was looked at already. Raises as `open_at`."""
        opened = open_partition(target, self._write, self._now, self._journal)
        self._opened[target.name.topic, target.name.partition] = opened
        return opened

    def is_here(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition already, or will be when this is applied."""
        is_open = (topic, partition) in self._opened
        return is_open or Path(self._log_dir_path, f"{topic}-{partition}").is_dir()

    def writer(self, topic: str, partition: int) -> PartitionWriter:
        """Return the writer of a partition; see `storage.writing.coordinator.Partitions`."""
        found = self._opened.get((topic, partition))
        if found is None:
            found = self.open_at(topic, partition)
        return found.writer

    def open_at(self, topic: str, partition: int) -> OpenPartition:
        """Open a partition, after a crash with its recovery; it may be one that is not there yet.

        Raises:
            RefusedError, UsageError, AccessError: it must not be written to, or cannot be.
        """
        path = str(Path(self._log_dir_path, f"{topic}-{partition}"))
        is_internal = topic in COORDINATOR_TOPICS
        options = self._target._replace(may_be_internal=is_internal)
        write = self._write
        if is_internal:
            write = write._replace(leader_epoch=None, compression=None)
            options = options._replace(topic_id=self._sibling_id(topic))
        opened = open_partition(resolve_target(path, options), write, self._now, self._journal)
        self._opened[topic, partition] = opened
        return opened

    def create_topic(self, topic: str, partitions_count: int) -> None:
        """Make the partitions of a coordinators' topic, in a log dir without a cluster's metadata.

        The last one comes first: their number is known from it, whatever interrupts this.
        """
        new_id = new_topic_id()
        note = (
            f"{self._log_dir_path}: {topic} is made here; a KRaft broker whose cluster does not"
            " know the topic by this id sets it aside at its start"
        )
        for number in reversed(range(partitions_count)):
            path = str(Path(self._log_dir_path, f"{topic}-{number}"))
            topic_id = self._sibling_id(topic) or new_id
            options = self._target._replace(may_be_internal=True, topic_id=topic_id)
            target = resolve_target(path, options)
            target = target._replace(notes=(*target.notes, note))
            opened = open_partition(target, self._write, self._now, self._journal)
            opened.store.begin()
            self._opened[topic, number] = opened

    def _sibling_id(self, topic: str) -> str | None:
        """The topic id that another partition of the topic has here."""
        for path in sorted(Path(self._log_dir_path).glob(f"{topic}-*/{PARTITION_METADATA_NAME}")):
            try:
                return format_uuid(parse_partition_metadata(path.read_bytes()).topic_id)
            except OSError as exc:
                raise AccessError(exc, str(path)) from exc
            except FormatError as exc:
                raise RefusedError(f"{path}: {exc.message}") from exc
        return None

    @property
    def recoveries(self) -> tuple[Plan, ...]:
        """What was done, or is to be done, before anything is appended."""
        return tuple(each.recovery for each in self if each.recovery is not None)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """The files that change."""
        return tuple(change for each in self for change in each.store.changes.values())

    def close(self) -> EoctlError | None:
        """Close all of them, whatever happens; returns the first error."""
        first = None
        for each in self:
            try:
                each.writer.close()
            except EoctlError as exc:
                first = first or exc
        return first
