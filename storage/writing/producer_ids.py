"""Producer ids of our own: handed out in blocks, and leased to applications, by any process.

The sequence begins at 2^48, which a controller's ids never reach, and ends at 2^52. Its state, the
leases, and ids that may be leased again are in the log of `__eoctl_producer_ids-0`. An answer is
given only after its record is durable there.

A block is taken from the sequence before its first id is handed out. Unused ids of a block are
never handed out. Ids of leases come from a block that all processes share. A block begins above
every id of our range that is in use. So no id is handed out twice after the loss of the log.

    lease state        cause                             the id
    held               acquire, renew                    its holder's, with the generation as epoch
    lapsed             its time is over                  still belongs to the app id
    released           release                           still belongs to the app id
    free               free, when the id is in no state  anybody's, from the next generation on

Each acquire has a generation of its own. It is one above the generation before, or above a higher
epoch in a log. An earlier holder is fenced here at once, and by the log after the first write of
the new holder (INVALID_PRODUCER_EPOCH). After generation 32766 comes another id, as in a
transaction coordinator.

    PRODUCER_FENCED              renew, release: another holder has acquired it since
    INVALID_PRODUCER_ID_MAPPING  renew, release: there is no such lease, or it has lapsed (renew)
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_dir import PartitionDir, read_log_dir
from storage.dirs.log_tail import SegmentIndexes, empty_tail, require_room
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import LogConfig
from storage.errors import EXIT_REFUSED, EoctlError, FormatError, RefusedError, os_errors, pasted
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    PARTITION_METADATA_NAME,
    PRODUCER_IDS_TOPIC,
    DirState,
    FileSuffix,
    PartitionName,
    classify,
)
from storage.files.broker_lock import take_in_turn
from storage.files.fsio import open_alone, sync_dir
from storage.formats.checkpoint import LeaderEpochEntry
from storage.formats.producer_id_record import (
    END_ID,
    END_OF_TIME_MS,
    FIRST_ID,
    IDS_KEY,
    MAX_GENERATION,
    Entry,
    Floor,
    Forgotten,
    FreeId,
    Ids,
    Lease,
    encode_key,
    encode_value,
    key_of,
    parse_record,
)
from storage.formats.record_batch import CRC, CRC_POS, HEADER_BYTES, NO_LEADER_EPOCH, compute_crc
from storage.kernels.protocol import VerdictKind
from storage.limits import INT32_MAX
from storage.log.segment import open_segment
from storage.producers.producer_state import NO_EPOCH
from storage.writing.partition_store import FileStore, FlushPolicy
from storage.writing.record_builder import DEFAULT_BATCH_BYTES, BatchBuilder
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from storage.dirs.partition_files import SegmentFiles
    from storage.files.fsio import FileSystem
    from storage.formats.producer_id_record import Key
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.log.segment import Segment


# -- whether a fault at the end of a log may be an unsynced batch after a crash
#
# It may be in two cases, at the end of the last segment.
#
# * The file ends inside of a batch, and the checksum does not hold for the bytes up to the end of
#   the file. If it did, the batch would be whole and its length damaged.
# * There are only zeros from the start of the batch on, or from the start of a disk block on.
#
# Everything else is damage: a batch that was synced and answered may have been there. A broker
# truncates a log in both cases (REC-7). A log whose answers must not be lost cannot do that.


BLOCK_BYTES = 512
ZEROS_MIN = 8  # a batch may end with a few zeros of its own


def is_torn(segment: Segment, verdict: Verdict) -> bool:
    """Return whether the bytes at the end of the last segment may be torn. Raises AccessError."""
    start_pos, end_pos = verdict.start_pos, verdict.end_pos
    if end_pos < segment.file_bytes or verdict.kind is VerdictKind.UNREADABLE:
        return False
    if verdict.kind is VerdictKind.PREALLOCATED:
        return True
    data = segment.file.read_at(start_pos, end_pos - start_pos).data
    if verdict.kind is VerdictKind.TORN_TAIL:
        return not _has_wrong_length(data)
    return _is_half_written(data, start_pos)


def _has_wrong_length(data: bytes) -> bool:
    return len(data) >= HEADER_BYTES and compute_crc(data) == CRC.unpack_from(data, CRC_POS)[0]


def _is_half_written(data: bytes, start_pos: int) -> bool:
    zeros_pos = start_pos + len(data.rstrip(b"\0"))
    block_pos = -(-zeros_pos // BLOCK_BYTES) * BLOCK_BYTES
    return start_pos + len(data) - block_pos >= ZEROS_MIN


# -- the log of `__eoctl_producer_ids`: the valid entries by key, read from a partition and written
#
# Only the `.log` files count. A change is one batch, which is appended and synced before the
# answer. The partition is not closed after it, so a broker recovers it at its next start. Other
# processes change it too, in turns. `refresh` reads the records added since. The caller holds the
# lock of the log directory. Without `fs` nothing is changed, and no lock is required.
#
# The end of a batch after a crash was never answered, and is truncated. Any other fault is damage
# and refused: ids would be handed out twice.
#
# When the log has grown, all valid entries are written again behind it into a new segment, with a
# floor as the last record (see `storage.formats.producer_id_record`). Then older segments are
# removed.


COMPACT_BYTES = 256 << 10  # a smaller log is never rewritten
COMPACT_RATIO = 4  # smallest ratio of the log to the valid entries for a rewrite
RECORD_BYTES = 80  # of a batch or a record, without key and value


class KeyedValue(NamedTuple):
    """The valid entry of a key, with its size and offset."""

    entry: Entry
    offset: int
    size_bytes: int


class _ReadSoFar(NamedTuple):
    """The progress of reading: segments by base offset, the last segment's file and position."""

    base_offsets: tuple[int, ...] = ()
    file_id: tuple[int, int] = (0, 0)
    end_pos: int = 0


class KeyedLog:
    """The valid entries in a partition, by key.

    Args:
        directory: of the partition, which may not exist yet.
        fs: makes the changes. None: the log is only read, also while others write.
        config: the topic's settings.
        topic_id: for a new directory.
        now_ms: the clock of the records' timestamps.

    Attributes:
        entries: by key.
        cut_bytes: bytes after crashes that were truncated here.
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
        """Reset the state."""
        self.close()
        self.entries.clear()
        self._held: dict[Key, KeyedValue] = {}
        self._held_bytes = 0
        self._older_bytes = 0  # of the segments before the last segment
        self._seen = _ReadSoFar()
        self._is_known = False
        self._is_durable = False  # of the bytes read: their writer may have died before a sync
        self._tail = empty_tail(0, self._config.index_interval_bytes)

    def close(self) -> None:
        """Close the files. Writes nothing."""
        if self._writer is not None:
            self._writer.store.close_log()
        self._writer = None

    # -- reading

    def refresh(self) -> None:
        """Read the records added since the last time. Truncates a batch that a crash left.

        Raises:
            RefusedError: it is damaged, or not ours.
            AccessError: it cannot be read or truncated.
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
                    next_step=_inspect(self.directory),
                )
            self._begin(files.base_offset)
            self._read(files, is_last=files is segments[-1])
        self._seen = self._seen._replace(base_offsets=tuple(each.base_offset for each in segments))
        self._require_nothing_lost(segments)
        self._is_known = True

    def _begin(self, base_offset: int) -> None:
        """Continue in another segment."""
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
        """Return whether a broker has run since.

        The next change must then remove its marker again.
        """
        return Path(self.directory).parent.joinpath(CLEAN_SHUTDOWN_NAME).exists()

    def _require_sound(self, partition: Partition) -> None:
        for problem in partition.problems:
            raise RefusedError(str(problem), next_step=_inspect(self.directory)) from problem
        for each in partition.files.others:
            if each.name.suffix in {FileSuffix.CLEANED, FileSuffix.SWAP}:
                raise RefusedError(
                    f"{each.path}: left by a compaction that a broker has to finish or undo",
                    next_step="let a broker start on it and stop it cleanly, then run it again",
                )

    def _require_nothing_lost(self, segments: Sequence[SegmentFiles]) -> None:
        """Require that all flushed records exist, and that none is to be deleted (OFS-1, OFS-2)."""
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
                f" and up to {recovery_point} all was flushed. Records are gone, and with them what"
                " was given out [OFS-2]",
                next_step="get the missing segments back",
            )

    def _read(self, files: SegmentFiles, *, is_last: bool) -> None:
        """Read a segment, or the bytes added to it."""
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
            next_step=_inspect(self.directory),
        )

    def _cut(self, fs: FileSystem, path: str, end_pos: int) -> None:
        """Truncate and verify, because the next batch may be shorter than the removed bytes."""
        with os_errors(path), open_alone(fs, path) as file:
            self.cut_bytes += file.pos - end_pos
            fs.truncate(file, end_pos)
            fs.fsync(file)

    # -- writing

    def sync(self) -> None:
        """Make the bytes read so far durable. Raises AccessError."""
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
        """Change entries durably in one step. Requires a `refresh` under the same lock.

        Raises:
            AppendError: the change is larger than the topic allows. Nothing was touched.
            AccessError: it could not be written, and may be in the log or not.
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
            self._is_known = False  # rolled: the next refresh reads everything
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
        """Write all valid entries into a new segment, then a floor below it.

        Removes older segments.
        """
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
    """Divide the valid entries into batches."""
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
    """Return the offset at the start of the name of a segment's file or a snapshot."""
    found = classify(path.name)
    return found.offset if found.offset is not None and found.has_padded_offset else default


def _removal_order(path: Path) -> tuple[int, bool]:
    """Return a sort key: oldest segments first, the `.log` first, so a log always remains."""
    return _offset_of(path, 0), path.suffix != ".log"


def _file_id(path: str) -> tuple[int, int]:
    with os_errors(path):
        found = Path(path).stat()
    return found.st_dev, found.st_ino


def _inspect(directory: str) -> str:
    return f"eoctl check {pasted(directory)} --deep; eoctl dump-segment {pasted(directory)}"


# -- producer ids


DEFAULT_BLOCK_SIZE = 1000  # of a controller, since Kafka 2.8
DIRECTORY_NAME = f"{PRODUCER_IDS_TOPIC}-0"


class LeaseError(EoctlError):
    """The error of a coordinator for a caller that does not hold the lease.

    `kafka_error` is the name of its error code.
    """

    exit_status = EXIT_REFUSED

    def __init__(self, kafka_error: str, message: str, *, next_step: str = "") -> None:
        super().__init__(f"{kafka_error}: {message}", next_step=next_step)
        self.kafka_error = kafka_error


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class ProducerIds:
    """The producer ids of one log directory.

    Args:
        log: the valid entries.
        lock: entered around each change.
        block_size: ids taken from the sequence at once.
        now_ms: the clock of the leases.
        ids_in_use: returns the ids in use. It runs whenever a block is taken.
    """

    def __init__(
        self,
        log: KeyedLog,
        lock: Callable[[], AbstractContextManager[object]],
        block_size: int,
        now_ms: Callable[[], int],
        ids_in_use: Callable[[], Iterable[int]],
    ) -> None:
        if not 0 < block_size < END_ID - FIRST_ID:
            raise ValueError(f"block size {block_size}")
        self._log = log
        self._lock = lock
        self._block_size = block_size
        self._now_ms = now_ms
        self._ids_in_use = ids_in_use
        self._own = range(0)  # ids of a block that were not handed out yet

    @classmethod
    def at(
        cls,
        log_dir: str | Path,
        fs: FileSystem | None,
        *,
        lock_wait_ms: int | None = None,
        block_size: int = DEFAULT_BLOCK_SIZE,
        now_ms: Callable[[], int] = _wall_ms,
        ids_in_use: Callable[[], Iterable[int]] = tuple,
        topic_id: bytes | None = None,
        config: LogConfig | None = None,
    ) -> Self:
        """Return the producer ids of a log directory. The first method reads them.

        Args:
            log_dir: of the partition, which may not exist yet.
            fs: makes the changes. None: read only, without a lock.
            lock_wait_ms: each change takes the lock of the log directory itself and waits for it at
                most this long. None: the caller holds it.
            block_size: ids taken from the sequence at once.
            now_ms: the clock.
            ids_in_use: returns the ids in producer states of the log directory.
            topic_id: of the topic, for a directory that does not exist yet.
            config: the settings of the topic.
        """
        lock: Callable[[], AbstractContextManager[object]] = nullcontext
        if lock_wait_ms is not None:
            lock = partial(take_in_turn, [str(log_dir)], lock_wait_ms, fs=fs)
        directory = str(Path(log_dir, DIRECTORY_NAME))
        log = KeyedLog(directory, fs, config or LogConfig(), topic_id, now_ms)
        return cls(log, lock, block_size, now_ms, ids_in_use)

    def close(self) -> None:
        """Close the files. Ids that were not handed out are lost."""
        self._own = range(0)
        self._log.close()

    # -- reading

    def refresh(self) -> None:
        """Read the changes of other processes. Raises RefusedError, AccessError."""
        self._log.refresh()

    def sync(self) -> None:
        """Make the bytes of the last refresh durable. Raises AccessError."""
        self._log.sync()

    @property
    def cut_bytes(self) -> int:
        """Bytes after crashes at the end of the log that were truncated."""
        return self._log.cut_bytes

    @property
    def ids(self) -> Ids:
        """The state of the sequence, as of the last refresh."""
        found = self._log.entries.get(IDS_KEY)
        return found if isinstance(found, Ids) else Ids()

    def lease(self, app_id: str) -> Lease | None:
        """Return the lease of an app id, held or not, as of the last refresh."""
        found = self._log.entries.get(("lease", app_id))
        return found if isinstance(found, Lease) else None

    def leases(self) -> list[Lease]:
        """Return all leases by app id, as of the last refresh."""
        found = [each for each in self._log.entries.values() if isinstance(each, Lease)]
        return sorted(found, key=lambda each: each.app_id)

    def free_ids(self) -> list[FreeId]:
        """Return the ids that may be leased again, as of the last refresh."""
        return sorted(each for each in self._log.entries.values() if isinstance(each, FreeId))

    # -- changing

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock():
            self._log.refresh()
            yield

    def next_id(self) -> int:
        """Return an id that was never handed out, and never will be again.

        Raises:
            RefusedError: there are none left, the log is damaged, or another process holds the
                lock.
            AccessError: it cannot be read or written.
        """
        if not self._own:
            with self._changing():
                block, ids = self._take_block(self.ids)
                self._log.put([ids])
                self._own = block
        given, self._own = self._own[0], self._own[1:]
        return given

    def _take_block(self, ids: Ids) -> tuple[range, Ids]:
        in_use = (each for each in self._ids_in_use() if ids.next_block_id <= each < END_ID)
        start = max(in_use, default=ids.next_block_id - 1) + 1
        end = start + self._block_size
        if end > END_ID:
            raise RefusedError(f"{self._log.directory}: all producer ids below {END_ID} are given")
        return range(start, end), ids._replace(next_block_id=end)

    def acquire(
        self,
        app_id: str,
        expiry_ms: int,
        *,
        partitions: Sequence[tuple[str, int]] = (),
        last_epoch: Callable[[int], int] = lambda _: NO_EPOCH,
    ) -> Lease:
        """Lease the id of an app id to the caller. The previous holder is fenced.

        Args:
            app_id: the application.
            expiry_ms: after which the lease lapses.
            partitions: the purpose of the lease, kept with it.
            last_epoch: returns the highest epoch of an id in a log, -1 without one.

        Raises:
            RefusedError, AccessError, AppendError: as `next_id`. There is no new lease.
        """
        with self._changing():
            before = self.lease(app_id)
            free = self.free_ids() if before is None else []
            changes: list[Entry | Forgotten] = []
            generation = MAX_GENERATION + 1
            producer_id = -1
            if before is not None:
                producer_id = before.producer_id
                generation = max(before.generation, last_epoch(producer_id)) + 1
            elif free:
                producer_id = free[0].producer_id
                generation = max(free[0].generation, last_epoch(producer_id)) + 1
                changes.append(Forgotten(key_of(free[0])))
            if generation > MAX_GENERATION:
                producer_id, ids = self._new_lease_id()
                generation = 0
                changes.append(ids)
            lease = Lease(
                app_id=app_id,
                producer_id=producer_id,
                generation=generation,
                expiry_ms=expiry_ms,
                expires_at_ms=self._end_ms(expiry_ms),
                partitions=tuple(partitions),
            )
            self._log.put([*changes, lease])
        return lease

    def _end_ms(self, expiry_ms: int) -> int:
        return min(self._now_ms() + expiry_ms, END_OF_TIME_MS)

    def _new_lease_id(self) -> tuple[int, Ids]:
        ids = self.ids
        if ids.next_lease_id == ids.lease_end_id:
            block, ids = self._take_block(ids)
            ids = ids._replace(next_lease_id=block.start, lease_end_id=block.stop)
        return ids.next_lease_id, ids._replace(next_lease_id=ids.next_lease_id + 1)

    def require_held(self, app_id: str, generation: int | None = None) -> Lease:
        """Return a lease that is held, as of the last refresh.

        Raises:
            LeaseError: there is none, it has lapsed, or another generation has it.
        """
        lease = self._require_current(app_id, generation)
        if not lease.is_held(self._now_ms()):
            what = "was released" if lease.is_released else "has lapsed"
            raise LeaseError(
                "INVALID_PRODUCER_ID_MAPPING",
                f"the lease of {app_id} {what}",
                next_step=f"--app-id {app_id} with eoctl lease-pid acquire gets its id back",
            )
        return lease

    def _require_current(self, app_id: str, generation: int | None) -> Lease:
        lease = self.lease(app_id)
        if lease is None:
            raise LeaseError(
                "INVALID_PRODUCER_ID_MAPPING",
                f"{app_id} has no producer id",
                next_step="eoctl lease-pid acquire",
            )
        if generation is not None and generation != lease.generation:
            since, next_step = "nobody has acquired it yet", "see eoctl lease-pid list"
            if generation < lease.generation:
                since = "another producer has acquired it"
                next_step = "stop that producer: its id has another holder"
            raise LeaseError(
                "PRODUCER_FENCED",
                (
                    f"generation {generation} of {app_id}: {since}, the last generation is "
                    f"{lease.generation}"
                ),
                next_step=next_step,
            )
        return lease

    def renew(self, app_id: str, generation: int, expiry_ms: int) -> Lease:
        """Set the remaining time of a held lease, longer or shorter than before.

        Raises:
            LeaseError: as `require_held`.
            RefusedError, AccessError: as `next_id`. The lease is as it was.
        """
        with self._changing():
            lease = self.require_held(app_id, generation)
            lease = lease._replace(expiry_ms=expiry_ms, expires_at_ms=self._end_ms(expiry_ms))
            self._log.put([lease])
        return lease

    def release(self, app_id: str, generation: int) -> Lease:
        """Release a lease, even if it has lapsed or was released already.

        Raises:
            LeaseError: there is none, or another generation has it.
            RefusedError, AccessError: as `next_id`. The lease is as it was.
        """
        with self._changing():
            lease = self._require_current(app_id, generation)._replace(is_released=True)
            self._log.put([lease])
        return lease

    def free(self, producer_ids: Collection[int]) -> list[Lease]:
        """End leases of ids that are in no producer state. Their ids become free.

        An id without further generations is not handed out again.

        Returns:
            The ended leases. A held lease does not end.
        """
        with self._changing():
            now_ms = self._now_ms()
            ended = [
                each
                for each in self.leases()
                if each.producer_id in producer_ids and not each.is_held(now_ms)
            ]
            for each in ended:
                changes: list[Entry | Forgotten] = [Forgotten(key_of(each))]
                if each.generation < MAX_GENERATION:
                    changes.append(FreeId(each.producer_id, each.generation))
                self._log.put(changes)
        return ended
