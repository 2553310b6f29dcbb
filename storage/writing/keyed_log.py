"""The log of `__eoctl_producer_ids`: what holds by key, read from a partition and written to it.

The `.log` files alone count. A change is one batch, appended and synced before it is answered; the
partition is not closed after it, so a broker recovers it at its next start like any that was in
use. Other processes change it, too, in turns: `refresh` reads what was added since. The caller
holds the lock of the log dir; without `fs` nothing is changed, and no lock is needed.

What a crash leaves of a batch at the end was never answered, and is cut off
(`storage.log.torn_batch`). Anything else that is wrong is damage and refused: ids would be given
out twice.

When the log has grown, all that holds is written again behind it, with a floor as the last record
(see `storage.formats.producer_id_record`), into a new segment; then older segments go.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_dir import PartitionDir, read_log_dir
from storage.dirs.log_tail import empty_tail, require_room
from storage.dirs.partition import Partition
from storage.errors import FormatError, RefusedError
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    PARTITION_METADATA_NAME,
    DirState,
    FileSuffix,
    PartitionName,
    classify,
)
from storage.files.fsio import open_alone, sync_dir
from storage.formats.checkpoint import LeaderEpochEntry
from storage.formats.producer_id_record import (
    Entry,
    Floor,
    Forgotten,
    encode_key,
    encode_value,
    key_of,
    parse_record,
)
from storage.formats.record_batch import (
    NO_LEADER_EPOCH,
)
from storage.limits import INT32_MAX
from storage.log.segment import open_segment
from storage.log.segment_indexes import SegmentIndexes
from storage.log.torn_batch import is_torn
from storage.os_errors import os_errors
from storage.shell_words import pasted
from storage.writing.partition_store import FileStore, FlushPolicy
from storage.writing.record_builder import DEFAULT_BATCH_BYTES, BatchBuilder
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.dirs.log_config import LogConfig
    from storage.dirs.partition_files import SegmentFiles
    from storage.files.fsio import FileSystem
    from storage.formats.producer_id_record import Key
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

COMPACT_BYTES = 256 << 10  # below that a log is never rewritten
COMPACT_RATIO = 4  # and not before it is so many times as large as what holds
RECORD_BYTES = 80  # of a batch or a record, beside key and value


class KeyedValue(NamedTuple):
    """What holds for a key, and where it is."""

    entry: Entry
    offset: int
    size_bytes: int


class _ReadSoFar(NamedTuple):
    """How far the log has been read: segments by base offset, the last one's file and position."""

    base_offsets: tuple[int, ...] = ()
    file_id: tuple[int, int] = (0, 0)
    end_pos: int = 0


class KeyedLog:
    """What holds in a partition, by key.

    Args:
        directory: of the partition, which may not be there yet.
        fs: what writes; None: it is only read, also while others write.
        config: the topic's settings.
        topic_id: for a new directory.
        now_ms: the clock of the records' timestamps.

    Attributes:
        entries: by key.
        cut_bytes: what crashes left at the end, and was cut off here.
    """

    def __init__(
        self,
        directory: str,
        fs: FileSystem | None,
        config: LogConfig,
        topic_id: bytes | None,
        now_ms: Callable[[], int],
    ) -> None:
        topic, _, number = Path(directory).name.rpartition("-")
        self._found = PartitionDir(directory, PartitionName(topic, int(number), DirState.LIVE))
        self.directory = directory
        self.entries: dict[Key, Entry] = {}
        self.cut_bytes = 0
        self._fs = fs
        self._config = config
        self._topic_id = topic_id
        self._now_ms = now_ms
        self._writer: PartitionWriter | None = None
        self._forget()

    def _forget(self) -> None:
        """Begin anew."""
        self.close()
        self.entries.clear()
        self._held: dict[Key, KeyedValue] = {}
        self._held_bytes = 0
        self._older_bytes = 0  # of the segments before the last one
        self._seen = _ReadSoFar()
        self._is_known = False
        self._is_durable = False  # of what was read: its writer may have been killed before a sync
        self._tail = empty_tail(0, self._config.index_interval_bytes)

    def close(self) -> None:
        """Let go of the files; nothing is written."""
        if self._writer is not None:
            self._writer.store.close_log()
        self._writer = None

    # -- reading

    def refresh(self) -> None:
        """Read what was added since the last time; cut off what a crash has left of a batch.

        Raises:
            RefusedError: it is damaged, or not ours.
            AccessError: it cannot be read, or not be cut.
        """
        try:
            self._refresh()
        except BaseException:
            self._forget()
            raise

    def _refresh(self) -> None:
        segments: Sequence[SegmentFiles] = ()
        epochs: tuple[LeaderEpochEntry, ...] = ()
        if Path(self.directory).exists():
            partition = Partition(self._found)
            epochs = tuple(partition.leader_epochs() or ())
            self._require_sound(partition)
            segments = partition.segments
        if not self._is_known or not self._has_same_files(segments):
            self._load(segments)
        elif segments and segments[-1].log.file_bytes > self._seen.end_pos:
            self.close()
            self._read(segments[-1], is_last=True)
        if epochs != self._tail.epochs or self._has_marker():
            self.close()
            last_epoch = epochs[-1].epoch if epochs else NO_LEADER_EPOCH
            self._tail = self._tail._replace(
                epochs=epochs, last_leader_epoch=max(self._tail.last_leader_epoch, last_epoch)
            )

    def _load(self, segments: Sequence[SegmentFiles]) -> None:
        """Read everything."""
        self._forget()
        for files in segments:
            if files.base_offset < self._tail.end_offset:
                raise RefusedError(
                    f"{files.log.path}: the segment before it ends at {self._tail.end_offset}"
                    " [SEG-1]",
                    next_step=_look(self.directory),
                )
            self._begin(files.base_offset)
            self._read(files, is_last=files is segments[-1])
        self._seen = self._seen._replace(base_offsets=tuple(each.base_offset for each in segments))
        self._require_nothing_lost(segments)
        self._is_known = True

    def _begin(self, base_offset: int) -> None:
        """Go on in another segment."""
        self._older_bytes += self._seen.end_pos
        self._seen = self._seen._replace(end_pos=0)
        self._tail = self._tail._replace(
            base_offset=base_offset,
            log_bytes=0,
            end_offset=base_offset,
            first_timestamp_ms=None,
            indexes=SegmentIndexes(base_offset, self._config.index_interval_bytes),
        )

    def _has_same_files(self, segments: Sequence[SegmentFiles]) -> bool:
        seen = self._seen
        if tuple(each.base_offset for each in segments) != seen.base_offsets:
            return False
        return not segments or (
            _file_id(segments[-1].log.path) == seen.file_id
            and segments[-1].log.file_bytes >= seen.end_pos
        )

    def _has_marker(self) -> bool:
        """A broker has run since: before the next change its marker must go again."""
        return Path(self.directory).parent.joinpath(CLEAN_SHUTDOWN_NAME).exists()

    def _require_sound(self, partition: Partition) -> None:
        for problem in partition.problems:
            raise RefusedError(str(problem), next_step=_look(self.directory)) from problem
        for each in partition.files.others:
            if each.name.suffix in {FileSuffix.CLEANED, FileSuffix.SWAP}:
                raise RefusedError(
                    f"{each.path}: left by a compaction that a broker has to finish or undo",
                    next_step="let a broker start on it and stop it cleanly, then run it again",
                )

    def _require_nothing_lost(self, segments: Sequence[SegmentFiles]) -> None:
        """OFS-1, OFS-2: what was flushed is there, and is not about to be deleted."""
        log_dir = read_log_dir(Path(self.directory).parent)
        recovery_point = log_dir.recovery_point(self._found) or 0
        log_start = log_dir.log_start_offset(self._found) or 0
        first_base = segments[0].base_offset if segments else 0
        if segments:
            require_room(segments[-1], self._tail.end_offset)
        if recovery_point > self._tail.end_offset or log_start > first_base:
            raise RefusedError(
                f"{self.directory}: its records begin at {first_base} and end at"
                f" {self._tail.end_offset}; by the checkpoints its log start offset is {log_start},"
                f" and up to {recovery_point} all was flushed: records are gone, and with them what"
                " was given out [OFS-2]",
                next_step="get the missing segments back",
            )

    def _read(self, files: SegmentFiles, *, is_last: bool) -> None:
        """Take a segment, or what was added to it."""
        path, start_pos, start_offset = files.log.path, self._seen.end_pos, self._tail.end_offset
        with open_segment(path) as segment:
            end_pos = file_bytes = segment.file_bytes
            if end_pos > start_pos:
                scan = segment.scan(start_pos=start_pos, end_pos=end_pos, is_active=is_last)
                batches = [each for each in scan if each.crc_ok]
                for verdict in scan.verdicts:
                    if not (is_last and is_torn(segment, verdict)):
                        reason = f"{verdict.kind}: {verdict.reason} [{verdict.check_id}]"
                        offset = batches[-1].header.last_offset + 1 if batches else start_offset
                        raise self._damage(segment, verdict.start_pos, offset, reason)
                    end_pos = verdict.start_pos
                for batch in batches:
                    self._take_batch(segment, batch)
        if end_pos < file_bytes and self._fs is not None:
            self._cut(self._fs, path, end_pos)
        self._tail = self._tail._replace(log_bytes=end_pos)
        self._seen = self._seen._replace(file_id=_file_id(path), end_pos=end_pos)

    def _take_batch(self, segment: Segment, batch: ScannedBatch) -> None:
        header, tail = batch.header, self._tail
        tail.indexes.add(batch.pos, header.last_offset, header.max_timestamp_ms)
        first_ms = tail.first_timestamp_ms
        self._tail = tail._replace(
            end_offset=header.last_offset + 1,
            first_timestamp_ms=header.max_timestamp_ms if first_ms is None else first_ms,
            last_leader_epoch=max(tail.last_leader_epoch, header.partition_leader_epoch),
        )
        if header.is_control or header.producer_id >= 0:
            raise self._damage(segment, batch.pos, header.base_offset, "written by a producer")
        for record in segment.records(batch):
            try:
                found = parse_record(record.key, record.value)
            except FormatError as error:
                raise self._damage(segment, batch.pos, record.offset, str(error)) from error
            self._take(found, record.offset, _size_bytes(record.key, record.value))

    def _take(self, found: Entry | Forgotten, offset: int, size_bytes: int) -> None:
        if isinstance(found, Floor):
            for key in [key for key, each in self._held.items() if each.offset < found.offset]:
                self._drop(key)
            return
        key = found.key if isinstance(found, Forgotten) else key_of(found)
        self._drop(key)
        if not isinstance(found, Forgotten):
            self._held[key] = KeyedValue(found, offset, size_bytes)
            self._held_bytes += size_bytes
            self.entries[key] = found

    def _drop(self, key: Key) -> None:
        before = self._held.pop(key, None)
        if before is not None:
            self._held_bytes -= before.size_bytes
            del self.entries[key]

    def _damage(self, segment: Segment, pos: int, offset: int, reason: str) -> RefusedError:
        return RefusedError(
            f"{segment.path}: position {pos}, offset {offset}: {reason}; what was given out cannot"
            " be known, and nothing more is",
            next_step=_look(self.directory),
        )

    def _cut(self, fs: FileSystem, path: str, end_pos: int) -> None:
        """Cut off, and make sure of it: the next batch may be shorter than what is cut."""
        with os_errors(path), open_alone(fs, path) as file:
            self.cut_bytes += file.pos - end_pos
            fs.truncate(file, end_pos)
            fs.fsync(file)

    # -- writing

    def sync(self) -> None:
        """Make durable what was read. Raises AccessError."""
        if self._fs is None:
            raise ValueError("opened for reading")
        if self._seen.base_offsets:
            path = str(Path(self.directory, f"{self._seen.base_offsets[-1]:020d}.log"))
            with os_errors(path), self._fs.open_existing(path) as file:
                self._fs.fsync(file)
            sync_dir(self._fs, self.directory)
            sync_dir(self._fs, Path(self.directory).parent)
        self._is_durable = True

    def put(self, changes: Iterable[Entry | Forgotten]) -> None:
        """Change entries in one step, durably; call it after `refresh`, under the same lock.

        Raises:
            AppendError: the change is larger than the topic allows; nothing was touched.
            AccessError: it could not be written, and may be there or not.
        """
        if self._fs is None:
            raise ValueError("opened for reading")
        try:
            if not self._is_durable:
                self.sync()
            log_bytes = self._older_bytes + self._seen.end_pos
            if log_bytes >= max(COMPACT_BYTES, COMPACT_RATIO * self._held_bytes):
                self._compact(self._fs)
            self._append(self._fs, [*changes])
        except BaseException:
            self._forget()
            raise

    def _append(self, fs: FileSystem, changes: Sequence[Entry | Forgotten]) -> None:
        builder = BatchBuilder(batch_bytes=INT32_MAX)
        for each in changes:
            builder.add(*_encode(each), self._now_ms())
        writer = self._writer
        if writer is None:
            writer = self._writer = self._open_writer(fs)
        appended = writer.append(builder.build())
        for number, each in enumerate(changes):
            self._take(each, appended.base_offset + number, _size_bytes(*_encode(each)))
        if writer.base_offset != self._tail.base_offset:
            self._is_known = False  # rolled: read anew next time
            return
        path = str(Path(self.directory, f"{writer.base_offset:020d}.log"))
        base_offsets = self._seen.base_offsets
        if base_offsets[-1:] != (writer.base_offset,):
            base_offsets += (writer.base_offset,)
        self._seen = _ReadSoFar(base_offsets, _file_id(path), Path(path).stat().st_size)
        self._tail = self._tail._replace(
            log_bytes=self._seen.end_pos,
            end_offset=writer.end_offset,
            last_leader_epoch=writer.leader_epoch,
        )

    def _open_writer(self, fs: FileSystem) -> PartitionWriter:
        is_there = Path(self.directory, PARTITION_METADATA_NAME).exists()
        return PartitionWriter(
            FileStore(self.directory, fs, topic_id=None if is_there else self._topic_id),
            self._tail,
            self._config,
            leader_epoch=max(self._tail.last_leader_epoch, 0),
            now_ms=self._now_ms,
            flush=FlushPolicy.BATCH,
        )

    def _compact(self, fs: FileSystem) -> None:
        """Write all that holds into a new segment, then a floor below it; remove what is older."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        floor = self._tail.end_offset
        self._begin(floor)
        for part in _parts(list(self._held.values())):
            self._append(fs, part)
        self._append(fs, [Floor(floor)])
        with os_errors(self.directory):
            for path in sorted(Path(self.directory).iterdir(), key=_removal_order):
                if _offset_of(path, floor) < floor:
                    fs.unlink(path)
        sync_dir(fs, self.directory)
        epochs = (LeaderEpochEntry(self._tail.last_leader_epoch, floor),)
        FileStore(self.directory, fs).write_epochs(epochs)
        self.close()
        self._tail = self._tail._replace(epochs=epochs)
        kept = tuple(each for each in self._seen.base_offsets if each >= floor)
        self._seen = self._seen._replace(base_offsets=kept)
        self._older_bytes = 0


def _encode(change: Entry | Forgotten) -> tuple[bytes, bytes | None]:
    if isinstance(change, Forgotten):
        return encode_key(change.key), None
    return encode_key(key_of(change)), encode_value(change)


def _size_bytes(key: bytes | None, value: bytes | None) -> int:
    return len(key or b"") + len(value or b"") + RECORD_BYTES


def _parts(held: Sequence[KeyedValue]) -> Iterator[list[Entry]]:
    """Divide what holds into batches."""
    part: list[Entry] = []
    part_bytes = 0
    for each in held:
        if part and part_bytes + each.size_bytes > DEFAULT_BATCH_BYTES:
            yield part
            part, part_bytes = [], 0
        part.append(each.entry)
        part_bytes += each.size_bytes
    if part:
        yield part


def _offset_of(path: Path, default: int) -> int:
    """Return the offset that the name of a segment's file or of a snapshot begins with."""
    found = classify(path.name)
    return found.offset if found.offset is not None and found.has_padded_offset else default


def _removal_order(path: Path) -> tuple[int, bool]:
    """Oldest segments first, of each the `.log`: what is left is always a log."""
    return _offset_of(path, 0), path.suffix != ".log"


def _file_id(path: str) -> tuple[int, int]:
    with os_errors(path):
        found = Path(path).stat()
    return found.st_dev, found.st_ino


def _look(directory: str) -> str:
    return f"eoctl check {pasted(directory)} --deep; eoctl dump-segment {pasted(directory)}"
