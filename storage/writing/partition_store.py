"""The changes of a writer to the files of one partition directory, made or only planned.

`PlannedStore` changes nothing and records every file. `FileStore` makes the changes. A writer works
with either, so a plan equals the later changes. The steps of a `FileStore`, with the results of a
crash between them (a broker recovers from the recovery point on):

    begin      the clean-shutdown marker is removed; a new directory appears with its topic id
    append     the `.log` grows; nothing counts before it is synced
    roll       the `.log` is synced, then its indexes appear whole, then the snapshot at the new
               base, then the new empty `.log`: a segment without index is recovered on load (REC-5)
    close      as a roll, without the new segment; the last step makes the partition closed again
    epochs     `leader-epoch-checkpoint` is replaced before the first batch of a new epoch (APP-6)
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.errors import RefusedError, access_error, os_errors
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    LEADER_EPOCHS_NAME,
    MAX_NAME_CHARS,
    PARTITION_METADATA_NAME,
)
from storage.files import fsio
from storage.files.fsio import kept_attributes
from storage.formats.checkpoint import encode_leader_epochs
from storage.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from storage.formats.producer_snapshot import encode_snapshot
from storage.formats.txn_index import encode_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.dirs.log_tail import SegmentIndexes
    from storage.files.fsio import FileSystem, OpenFile
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.formats.txn_index import AbortedTxn


class FlushPolicy(StrEnum):
    """The times at which a `.log` is synced.

    Indexes, snapshots and checkpoints are always synced.
    """

    BATCH = "batch"  # after every append
    SEGMENT = "segment"  # at roll and close
    NEVER = "never"  # when the operating system writes: a crash may lose all of it


class FileAction(StrEnum):
    """The action on a file."""

    CREATE = "create"
    APPEND = "append"
    REPLACE = "replace"
    REMOVE = "remove"


class FileChange(NamedTuple):
    """A file with its action. `bytes` are written bytes."""

    path: str
    action: FileAction
    bytes: int


class Keeper(Protocol):
    """A receiver of changes in advance, which makes sure that they can be undone."""

    def will_begin(self, directory: str, begun_as: str | None) -> None:
        """Prepare for a change of a partition.

        A new partition gets its files under the name `begun_as`.

        The end of its log (the last segment, the leader epochs) may change from now on.
        """

    def will_append(self, path: str) -> None:
        """Prepare for bytes at the end of a `.log`, or for a new `.log`."""

    def will_replace(self, path: str) -> None:
        """Prepare for new content of a file of the partition, or for a new file."""

    def has_ended(self, directory: str) -> None:
        """Note that the partition is closed and will not change any more."""


class PlannedStore:
    """A record of planned writes.

    Args:
        directory: of the partition. Its parent is the log directory.
        topic_id: written to `partition.metadata` before anything else. Creates the directory if it
            does not exist. None if the file exists.

    Attributes:
        changes: by path, in the order of their first change. Bytes appended to a `.log` are counted
            when it is closed.
    """

    def __init__(self, directory: str, *, topic_id: bytes | None = None) -> None:
        self.directory = directory
        self._directory = str(Path(directory))
        self.topic_id = topic_id
        self.changes: dict[str, FileChange] = {}
        self._has_begun = False
        self._log_path = ""
        self._appended_bytes = 0  # since the log was opened

    def _note(self, path: str, written_bytes: int, *, appends: bool = False) -> None:
        before = self.changes.get(path)
        if before is not None:
            # If a file is replaced a second time, only the newer content counts.
            total = written_bytes + before.bytes if appends else written_bytes
            self.changes[path] = before._replace(bytes=total)
            return
        action = FileAction.APPEND if appends else FileAction.REPLACE
        if not os.path.exists(path):  # noqa: PTH110 - for each file that is written
            action = FileAction.CREATE
        self.changes[path] = FileChange(path, action, written_bytes)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def begin(self) -> None:
        """Make the changes that come before the first change. Further runs do nothing."""
        if self._has_begun:
            return
        self._has_begun = True
        marker = str(Path(self.directory).parent / CLEAN_SHUTDOWN_NAME)
        had_marker = Path(marker).exists()
        self._remove_marker()
        if had_marker:
            self.changes[marker] = FileChange(marker, FileAction.REMOVE, 0)
        if self.topic_id is not None:
            data = encode_partition_metadata(PartitionMetadata(0, self.topic_id))
            self._note(self._path(PARTITION_METADATA_NAME), len(data))
            self._write_topic_id(data)

    def end(self) -> None:
        """Note that the partition is closed, and no more changes follow."""

    def _remove_marker(self) -> None:
        """Remove the clean-shutdown marker of the log directory."""

    def _write_topic_id(self, data: bytes) -> None:
        """Write `partition.metadata`, in a new directory if necessary."""

    def open_log(self, base_offset: int, log_bytes: int) -> None:
        """Continue in the `.log` of a segment, which must have this size.

        With size 0 it may be new.
        """
        del log_bytes
        self._log_path = self._path(f"{base_offset:020d}.log")
        self._note(self._log_path, 0, appends=True)

    def append(self, batch: bytes | bytearray | memoryview) -> None:
        """Write a batch at the end of the `.log`."""
        self._appended_bytes += len(batch)

    def start_writeback(self, pos: int) -> None:
        """Start writing the `.log` from `pos` on to the disk, as `FileSystem.start_writeback`."""

    def sync_log(self) -> None:
        """Make the appended bytes durable."""

    def close_log(self) -> None:
        """Close the `.log`."""
        if self._log_path:
            self._note(self._log_path, self._appended_bytes, appends=True)
        self._log_path, self._appended_bytes = "", 0

    def write_indexes(self, indexes: SegmentIndexes) -> None:
        """Write both indexes of a segment, trimmed."""
        self._replace(f"{indexes.base_offset:020d}.index", indexes.offset_index())
        self._replace(f"{indexes.base_offset:020d}.timeindex", indexes.time_index())

    def write_txn_index(self, base_offset: int, aborted: Sequence[AbortedTxn]) -> None:
        """Write the aborted transactions whose markers lie in a segment.

        Without aborted transactions there is no file. An old file of that name would hide committed
        records. A broker deletes it (ROLL-6), and here it is emptied.
        """
        name = f"{base_offset:020d}.txnindex"
        if aborted or _has_bytes(self._path(name)):
            self._replace(name, encode_entries(aborted))

    def write_snapshot(self, offset: int, entries: Sequence[ProducerEntry]) -> None:
        """Write the producer state below an offset."""
        self._replace(f"{offset:020d}.snapshot", encode_snapshot(entries))

    def write_epochs(self, epochs: Sequence[LeaderEpochEntry]) -> None:
        """Write `leader-epoch-checkpoint`."""
        self._replace(LEADER_EPOCHS_NAME, encode_leader_epochs(epochs))

    def _replace(self, name: str, data: bytes) -> None:
        self._note(self._path(name), len(data))


class FileStore(PlannedStore):
    """A writer of files. All errors of the operating system are raised as AccessError.

    With a `keeper` its changes can be undone.
    """

    def __init__(
        self,
        directory: str,
        fs: FileSystem,
        *,
        topic_id: bytes | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        super().__init__(directory, topic_id=topic_id)
        self._fs = fs
        self._keeper = keeper
        self._log: OpenFile | None = None

    def _remove_marker(self) -> None:
        """Remove the marker, with which a broker would trust the files."""
        if self._keeper is not None:
            begun_as = None if Path(self.directory).exists() else self._begun_as
            self._keeper.will_begin(self.directory, begun_as)
        fsio.remove_clean_marker(self._fs, Path(self.directory).parent)

    def _write_topic_id(self, data: bytes) -> None:
        """Write `partition.metadata`. A new directory never exists without it.

        A new directory is created under the name of a directory to be deleted, which a broker may
        find at any time. When it is complete, it gets its own name.
        """
        directory = Path(self.directory)
        if directory.exists():
            self._will_replace(str(directory / PARTITION_METADATA_NAME))
            fsio.replace_file(self._fs, directory / PARTITION_METADATA_NAME, data)
            return
        temp = self._begun_as
        fsio.make_dir_like(self._fs, temp, directory.parent)
        fsio.replace_file(self._fs, Path(temp, PARTITION_METADATA_NAME), data)
        with os_errors(directory):
            self._fs.rename(temp, directory)
        state = f"{directory} is there, but may not survive a crash"
        fsio.sync_dir(self._fs, directory.parent, state=state)

    def open_log(self, base_offset: int, log_bytes: int) -> None:
        """Open the `.log`, created if missing.

        Raises:
            RefusedError: it has another size than `log_bytes`, because it was written to meanwhile.
        """
        super().open_log(base_offset, log_bytes)
        path = self._log_path
        if self._keeper is not None:
            self._keeper.will_append(path)
        if not log_bytes and not Path(path).exists():
            fsio.create_file(self._fs, path, b"", kept_attributes(self.directory))
            fsio.sync_dir(self._fs, self.directory, state=f"{path} is there and empty")
        with os_errors(path, state=_RECOVERS):
            self._log = fsio.open_alone(self._fs, path)
        if self._log.pos != log_bytes:
            raise RefusedError(
                f"{path}: has {self._log.pos} bytes, and had {log_bytes} when it was read",
                next_step="run it again",
            )

    def append(self, batch: bytes | bytearray | memoryview) -> None:
        """Write a batch. The bytes of a failed write are truncated."""
        if self._log is None:
            raise ValueError("no log is open")
        start_pos = self._log.pos
        try:
            self._fs.write(self._log, batch)
        except OSError as error:
            with suppress(OSError):
                self._fs.truncate(self._log, start_pos)
            raise access_error(error, self._log.path, state=_RECOVERS) from error
        self._appended_bytes += len(batch)

    def start_writeback(self, pos: int) -> None:
        """Start writing to the disk. The next sync reports any error."""
        if self._log is not None:
            with suppress(OSError):
                self._fs.start_writeback(self._log, pos)

    def sync_log(self) -> None:
        """Sync the `.log`."""
        if self._log is None:
            return
        # After a failed fsync it is unknown what is durable, and a second fsync would not report
        # it.
        with os_errors(self._log.path, state=_RECOVERS):
            self._fs.fsync(self._log)

    def close_log(self) -> None:
        """Close the `.log`."""
        super().close_log()
        log, self._log = self._log, None
        if log is not None:
            with suppress(OSError):
                self._fs.close(log)

    def end(self) -> None:
        """Notify the keeper."""
        if self._keeper is not None:
            self._keeper.has_ended(self.directory)

    @property
    def _begun_as(self) -> str:
        assert self.topic_id is not None
        directory = Path(self.directory)
        return str(directory.parent / _deleted_name(directory.name, self.topic_id.hex()))

    def _will_replace(self, path: str) -> None:
        if self._keeper is not None:
            self._keeper.will_replace(path)

    def _replace(self, name: str, data: bytes) -> None:
        super()._replace(name, data)
        self._will_replace(self._path(name))
        fsio.replace_file(self._fs, self._path(name), data)


_RECOVERS = "the partition is not closed, and a broker recovers it at its next start"


def _has_bytes(path: str) -> bool:
    try:
        return Path(path).stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise access_error(error, path, state=_RECOVERS) from error


def _deleted_name(name: str, unique_id: str) -> str:
    """Return the name of a partition directory to be deleted (LocalLog.logDeleteDirName)."""
    topic, _, number = name.rpartition("-")
    suffix = f"-{number}.{unique_id}-delete"
    return topic[: MAX_NAME_CHARS - len(suffix)] + suffix
