"""Producer ids of our own: handed out in blocks, and leased to applications, by any process.

The sequence begins at 2^48, where no controller ever comes that hands out ids of its cluster,
and ends at 2^52. How far it has come, the leases, and ids that may be leased again are in the
log of `__eoctl_producer_ids-0` (`storage.writing.producer_ids`); nothing is answered before it is
durable there.

A block is taken from the sequence before an id of it is given out; what its owner does not use
is never given out. Ids of leases come one by one from a block that all processes share. A block
begins above every id of our range that is in use, so that a lost log does not give ids out
twice.

    lease state   how it comes                          the id
    held          acquire, renew                        its holder's, with that generation
      as epoch
    lapsed        its time has run out                  still that of the app id
    released      release                               still that of the app id
    free          free, once nothing knows of the id    anybody's, from the next generation on

Each acquire has a generation of its own: the one before, or a higher epoch that a log knows,
and 1. An earlier holder is fenced: by the log once the new one has written
(INVALID_PRODUCER_EPOCH), and here at once. Behind generation 32766 comes another id, as with a
transaction coordinator.

    PRODUCER_FENCED              renew, release: another one has acquired it since
    INVALID_PRODUCER_ID_MAPPING  renew, release: there is no such lease; renew: it has lapsed
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


# -- whether what is wrong at the end of a log can be what a crash left of an unsynced batch
#
# It can be if, at the end of the last segment,
#   - the file ends inside of a batch, whose checksum does not come right at the end of the
#     file: then
#     it would be whole and its length damaged
#   - there are only zeros, from the beginning of the batch or from one of the blocks that a disk
#     writes as a whole
# Everything else is damage: a batch that was synced and answered may have been there. A broker
#   cuts a
# log at either (REC-7); one who must not lose an answer cannot.


BLOCK_BYTES = 512
ZEROS_MIN = 8  # a batch may end with a few zeros of its own


def is_torn(segment: Segment, verdict: Verdict) -> bool:
    """Look at the bytes of a verdict about the end of the last segment. Raises AccessError."""
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


# -- the log of `__eoctl_producer_ids`: what holds by key, read from a partition and written to it
#
# The `.log` files alone count. A change is one batch, appended and synced before it is answered;
# the partition is not closed after it, so a broker recovers it at its next start like any that
# was in use. Other processes change it, too, in turns: `refresh` reads what was added since. The
# caller holds the lock of the log dir; without `fs` nothing is changed, and no lock is needed.
#
# What a crash leaves of a batch at the end was never answered, and is cut off. Anything else that
# is wrong is damage and refused: ids would be given out twice.
#
# When the log has grown, all that holds is written again behind it, with a floor as the last
# record (see `storage.formats.producer_id_record`), into a new segment; then older segments go.


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


# -- producer ids


DEFAULT_BLOCK_SIZE = 1000  # of a controller, since Kafka 2.8
DIRECTORY_NAME = f"{PRODUCER_IDS_TOPIC}-0"


class LeaseError(EoctlError):
    """What a coordinator answers one who is not, or not any more, what it says.

    `kafka_error` is the name of its error code.
    """

    exit_status = EXIT_REFUSED

    def __init__(self, kafka_error: str, message: str, *, next_step: str = "") -> None:
        super().__init__(f"{kafka_error}: {message}", next_step=next_step)
        self.kafka_error = kafka_error


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class ProducerIds:
    """The producer ids of one log dir.

    Args:
        log: what holds.
        lock: entered around each change.
        block_size: ids taken from the sequence at once.
        now_ms: the clock that leases go by.
        ids_in_use: asked for ids that somebody knows, whenever a block is taken.
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
        self._own = range(0)  # of a block, what was not given out yet

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
        """Return the producer ids of a log dir; nothing is read before the first call.

        Args:
            log_dir: where the partition is, or will be.
            fs: what writes; None: for looking only, without any lock.
            lock_wait_ms: each change takes the lock of the log dir for itself and waits so long for
                it; None: the caller holds it.
            block_size: ids taken from the sequence at once.
            now_ms: the clock.
            ids_in_use: gives ids that producer states of the log dir know.
            topic_id: of the topic, for a directory that is not there yet.
            config: the settings of the topic.
        """
        lock: Callable[[], AbstractContextManager[object]] = nullcontext
        if lock_wait_ms is not None:
            lock = partial(take_in_turn, [str(log_dir)], lock_wait_ms, fs=fs)
        directory = str(Path(log_dir, DIRECTORY_NAME))
        log = KeyedLog(directory, fs, config or LogConfig(), topic_id, now_ms)
        return cls(log, lock, block_size, now_ms, ids_in_use)

    def close(self) -> None:
        """Let go of the files. Ids that were not given out are gone."""
        self._own = range(0)
        self._log.close()

    # -- looking

    def refresh(self) -> None:
        """Read what other processes have written. Raises RefusedError, AccessError."""
        self._log.refresh()

    def sync(self) -> None:
        """Make durable what the last refresh has read. Raises AccessError."""
        self._log.sync()

    @property
    def cut_bytes(self) -> int:
        """What crashes left at the end of the log, and was cut off."""
        return self._log.cut_bytes

    @property
    def ids(self) -> Ids:
        """How far the sequence has come, as of the last refresh."""
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
        """Return what may be leased again, as of the last refresh."""
        return sorted(each for each in self._log.entries.values() if isinstance(each, FreeId))

    # -- changing

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock():
            self._log.refresh()
            yield

    def next_id(self) -> int:
        """Return an id that nobody was given before, and nobody else will be.

        Raises:
            RefusedError: there are none left, the log is damaged, or somebody holds the lock.
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
        """Lease the id of an app id to the caller; who had it is fenced.

        Args:
            app_id: whose id it is.
            expiry_ms: after which the lease lapses.
            partitions: what it is for; kept with the lease.
            last_epoch: the highest epoch that a log knows of an id, -1 if it knows none.

        Raises:
            RefusedError, AccessError, AppendError: as `next_id`; there is no new lease.
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
        """Let a lease that is held last longer, or shorter: so long from now on.

        Raises:
            LeaseError: as `require_held`.
            RefusedError, AccessError: as `next_id`; the lease is as it was.
        """
        with self._changing():
            lease = self.require_held(app_id, generation)
            lease = lease._replace(expiry_ms=expiry_ms, expires_at_ms=self._end_ms(expiry_ms))
            self._log.put([lease])
        return lease

    def release(self, app_id: str, generation: int) -> Lease:
        """Give a lease up; a lapsed one too, and once more.

        Raises:
            LeaseError: there is none, or another generation has it.
            RefusedError, AccessError: as `next_id`; the lease is as it was.
        """
        with self._changing():
            lease = self._require_current(app_id, generation)._replace(is_released=True)
            self._log.put([lease])
        return lease

    def free(self, producer_ids: Collection[int]) -> list[Lease]:
        """End leases of ids of which no producer state knows any more; their ids are free.

        An id whose generations are used up is not given out again.

        Returns:
            The leases that were ended; one that is held is not.
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
