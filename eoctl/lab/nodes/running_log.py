"""Log dir and partitions of a running broker: start, append, follow, truncate, stop."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.plan import Action
from recovery.repair.broker_start import plan_recovery
from recovery.replay.snapshots import Clock
from recovery.truncate.plan import TruncationSteps, producers_at_end
from recovery.truncate.removed_part import find_cut
from recovery.truncate.target import CutTarget, EpochEnd, find_epoch_end
from storage.dirs.log_dir import MAX_FILE_BYTES, PartitionDir, read_log_dir
from storage.dirs.log_tail import empty_tail
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import LogConfig
from storage.errors import FormatError, RefusedError, os_errors
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    HIGH_WATERMARK_NAME,
    LEADER_EPOCHS_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    TopicPartition,
    parse_partition_name,
)
from storage.files import fsio
from storage.files.positioned_file import read_small_file
from storage.formats.checkpoint import (
    OffsetCheckpointEntry,
    encode_leader_epochs,
    encode_offset_checkpoint,
)
from storage.formats.clean_shutdown import (
    CleanShutdown,
    encode_clean_shutdown,
    parse_clean_shutdown,
)
from storage.formats.record_batch import NO_LEADER_EPOCH
from storage.kernels.protocol import in_words
from storage.log.segment import open_segment
from storage.producers.transaction_metadata import EPOCH_BUMP_VERSION
from storage.producers.transactions import OpenTransactions
from storage.writing.partition_store import FileStore, FlushPolicy
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.truncate.removed_part import Cut
    from storage.dirs.log_tail import LogTail
    from storage.files.fsio import FileSystem
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.formats.record_batch import BatchHeader
    from storage.formats.txn_index import AbortedTxn
    from storage.producers.producer_state import CompletedTransaction
    from storage.writing.writer import Appended


# -- places of the batches in an open log, in columns.
#
# A broker that runs for long has a million batches. As objects they would take a hundred megabytes,
# through which the garbage collector walks repeatedly.


_INT64 = "q"


class BatchPlaces:
    """The batches of a log, in the order of their offsets.

    Attributes:
        base_offsets, last_offsets: of each batch.
    """

    def __init__(self) -> None:
        self.base_offsets = array(_INT64)
        self.last_offsets = array(_INT64)
        self._begins = array(_INT64)  # positions in the `.log`
        self._ends = array(_INT64)
        self._files: list[tuple[int, str]] = []  # the first row of each `.log`, and its path

    def __len__(self) -> int:
        return len(self.base_offsets)

    def add(self, base_offset: int, last_offset: int, path: str, batch_bytes: int) -> None:
        """Add the next batch, behind the previous batch or at the start of another file."""
        begin = 0
        if self._files and self._files[-1][1] == path:
            begin = self._ends[-1]
        else:
            self._files.append((len(self.base_offsets), path))
        self.base_offsets.append(base_offset)
        self.last_offsets.append(last_offset)
        self._begins.append(begin)
        self._ends.append(begin + batch_bytes)

    def rows(self, offset: int, end_offset: int, max_bytes: int) -> range:
        """Return the batches from `offset` to `end_offset`, at least one of any size."""
        row = first = bisect_left(self.last_offsets, offset)
        taken_bytes = 0
        while row < len(self.last_offsets) and self.last_offsets[row] < end_offset:
            taken_bytes += self._ends[row] - self._begins[row]
            if row > first and taken_bytes > max_bytes:
                break
            row += 1
        return range(first, row)

    def read(self, rows: range) -> Iterator[bytes]:
        """Read batches. Raises AccessError."""
        stops = [row for row, _ in self._files[1:]] + [len(self)]
        for (first, path), stop in zip(self._files, stops, strict=True):
            here = range(max(first, rows.start), min(stop, rows.stop))
            if here:
                yield from self._read_file(path, here)

    def _read_file(self, path: str, rows: range) -> Iterator[bytes]:
        """Read adjacent batches of one file."""
        begin, end = self._begins[rows[0]], self._ends[rows[-1]]
        with os_errors(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(fd, end - begin, begin)
            finally:
                os.close(fd)
        for row in rows:
            yield data[self._begins[row] - begin : self._ends[row] - begin]


# -- divergence of a follower from its leader, found by fetches (REPL-10, EPOCH-5, EPOCH-7,
# KIP-595).
#
# A fetch names the epoch of the follower's last batch. The leader looks up the end of that epoch in
# its own log. If the end is below the fetch offset, or the epoch is unknown, the leader returns
# that end without records. The follower truncates, and fetches again until they agree.
#
# Source: UnifiedLog and Partition.readRecords (divergingEpoch), AbstractFetcherThread.
# getOffsetTruncationState.


def diverging_end(
    epochs: Sequence[LeaderEpochEntry], end_offset: int, *, last_epoch: int, fetch_offset: int
) -> EpochEnd | None:
    """Return a leader's answer instead of records, None if the follower may continue.

    An end of -1 means that the leader knows no end, so it cannot give a truncation offset.
    """
    found = find_epoch_end(epochs, last_epoch, end_offset)
    if found is None:
        return EpochEnd(last_epoch, -1)
    if found.epoch < last_epoch or found.end_offset < fetch_offset:
        return found
    return None


def cut_offset(epochs: Sequence[LeaderEpochEntry], end_offset: int, diverging: EpochEnd) -> int:
    """Return the offset to which a follower truncates after the leader's answer.

    The follower then fetches again.
    """
    own = find_epoch_end(epochs, diverging.epoch, end_offset)
    if own is None:
        return min(diverging.end_offset, end_offset)
    if own.epoch != diverging.epoch:  # nothing of that epoch: to the end of the previous epoch
        return min(own.end_offset, end_offset)
    return min(own.end_offset, diverging.end_offset, end_offset)


# -- transactions of an open log: unstable and aborted transactions.
#
#   TXN-3: an ended transaction is unreplicated while its marker is at or above the high watermark.
#   TXN-4: the last stable offset is at most the first offset of these and of the open transactions.
#   RC-3: a consumer gets the aborted transactions that reach into its records.
#
# Source: ProducerStateManager (unreplicatedTxns), LocalLog.collectAbortedTransactions.


class _Ended(NamedTuple):
    """A transaction from its first offset to its marker."""

    first_offset: int
    last_offset: int


class RunningTransactions:
    """Ended transactions of one log. The writer's producer state has the open transactions."""

    def __init__(self) -> None:
        self._unreplicated: deque[_Ended] = deque()
        self._aborted: list[AbortedTxn] = []  # in the order of their markers, as in `.txnindex`
        self._markers: list[int] = []
        self._scanned = OpenTransactions(log_start_offset=0, high_watermark=None)

    def scanned(self, header: BatchHeader) -> None:
        """Add a transactional batch that a start finds, in the order of the log."""
        if header.is_control and header.records_count:
            first_offset = self._scanned.first_offset(header.producer_id)
            if first_offset is not None:
                self._unreplicated.append(_Ended(first_offset, header.base_offset))
        self._scanned.add_batch(header)

    def indexed(self, entries: Iterable[AbortedTxn]) -> None:
        """Add the entries of the next `.txnindex`."""
        for each in entries:
            self._aborted.append(each)
            self._markers.append(each.last_offset)

    def ended(self, completed: CompletedTransaction, aborted: AbortedTxn | None) -> None:
        """Add the transaction that an appended marker has ended."""
        self._unreplicated.append(_Ended(completed.first_offset, completed.last_offset))
        if aborted is not None:
            self.indexed((aborted,))

    def last_stable_offset(self, open_offsets: Iterable[int], high_watermark: int) -> int:
        """Return the last stable offset (TXN-4). `open_offsets` begin the open transactions.

        A leader's high watermark does not decrease, so transactions below it are forgotten.
        """
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0].last_offset < high_watermark:
            unreplicated.popleft()
        firsts = (each.first_offset for each in unreplicated)
        return min([high_watermark, *open_offsets, *firsts])

    def aborted_in(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that reach into a range of offsets (RC-3)."""
        found = []
        for place in range(bisect_left(self._markers, offset), len(self._markers)):
            each = self._aborted[place]
            if each.first_offset < end_offset:
                found.append(each)
            if each.last_stable_offset >= end_offset:
                break  # all transactions from below have ended by then
        return found


# -- the log of one replica while its broker runs: append, fetch, truncate, close.
#
# There is one way to write a log. Batches go through `storage.writing.writer`, a truncation through
# `recovery.truncate`, and a start after a crash through `recovery.repair.broker_start`. Their steps
# run at once, without backups, because a broker keeps none.
#
#   REC: the start verifies batches from the recovery point on, and truncates a torn end.
#   EPOCH-6: the start drops leader epochs that begin at the end of the log.
#   TRUNC: a truncation lowers checkpoints first, then truncates the `.log` without an fsync.


RECENT_COUNT = 64


class LogTerms(NamedTuple):
    """Settings for writing the replicas of a log dir.

    Attributes:
        fs: changes files.
        config: the topic's settings.
        now_ms: the clock.
        flush: when a `.log` is synced.
    """

    fs: FileSystem
    config: LogConfig
    now_ms: Callable[[], int]
    flush: FlushPolicy


class _LastStore(FileStore):
    """Store that keeps the last batch, which followers and consumers fetch next."""

    last = b""

    def append(self, batch: bytes | bytearray | memoryview) -> None:
        """Write a batch."""
        super().append(batch)
        self.last = bytes(batch)


def what_a_start_cuts(path: str, now_ms: int) -> str:
    """Return the truncation that a start of a replica would do, in words, "" for none. Reads only.

    Raises:
        RefusedError: a broker could not load the replica.
        AccessError: the replica cannot be read.
    """
    name = parse_partition_name(Path(path).name)
    assert name is not None
    partition = Partition(PartitionDir(path, name), read_log_dir(Path(path).parent))
    if not partition.segments:
        return ""
    interval_bytes = LogConfig().index_interval_bytes
    found = plan_recovery(partition, Clock(now_ms), interval_bytes, is_written_to=False)
    if not found.cut_bytes:
        return ""
    where = in_words(path, found.stop) if found.stop is not None else f"{path}: damaged"
    return f"{where}; {found.cut_bytes} bytes would be cut off"


class RunningLog:
    """One open replica. `close` or `abandon` ends it.

    Attributes:
        path: of the partition directory.
        started: truncation at the start, in words, "" for none.
    """

    def __init__(self, path: str, terms: LogTerms) -> None:
        self.path = path
        self._terms = terms
        self._batches = BatchPlaces()
        # The last of these batches, as a page cache has them.
        self._recent: deque[bytes] = deque(maxlen=RECENT_COUNT)
        self._written_base = -1
        self._written_path = ""
        self.started = ""
        self._writer = self._open()

    # -- content

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return self._writer.end_offset

    @property
    def start_offset(self) -> int:
        """The log start offset. Nothing is deleted while the broker runs."""
        return self._batches.base_offsets[0] if self._batches else 0

    @property
    def epochs(self) -> tuple[LeaderEpochEntry, ...]:
        """The leader epochs."""
        return self._writer.epochs

    @property
    def last_epoch(self) -> int:
        """The latest leader epoch, -1 without epochs."""
        return self._writer.last_epoch

    @property
    def rolled_count(self) -> int:
        """Number of segments closed since the start or the last truncation."""
        return self._writer.rolled_count

    @property
    def base_offset(self) -> int:
        """Base offset of the active segment. Records below were synced when it was rolled."""
        return self._writer.base_offset

    def read(self, offset: int, end_offset: int, max_bytes: int) -> list[bytes]:
        """Return whole batches from `offset` to `end_offset`, at least one of any size.

        Raises:
            AccessError: the batches cannot be read.
        """
        if offset >= self._writer.end_offset:
            return []
        batches = self._batches
        recent = self._recent
        if recent and batches.base_offsets[-1] == offset:
            # Usual case: the reader wants the last batch.
            return [recent[-1]] if batches.last_offsets[-1] < end_offset else []
        rows = batches.rows(offset, end_offset, max_bytes)
        first = len(batches) - len(recent)
        if rows.start < first:
            return [*batches.read(rows)]
        return [recent[row - first] for row in rows]

    # -- transactions

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a producer has an open transaction here, in this producer epoch."""
        state = self._writer.producers.producers.get(producer_id)
        return (
            state is not None
            and state.current_txn_first_offset is not None
            and state.producer_epoch == producer_epoch
        )

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the log has a later epoch of a producer."""
        state = self._writer.producers.producers.get(producer_id)
        return state is not None and producer_epoch < state.producer_epoch

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset (TXN-4) for the high watermark of a leader."""
        return self._transactions.last_stable_offset(self._writer.producers.ongoing, high_watermark)

    def aborted_in(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that reach into a range, ordered by marker."""
        return self._transactions.aborted_in(offset, end_offset)

    # -- operations of a broker

    def append(self, batch: bytes, *, is_begun: bool = False) -> Appended:
        """Append a client's batch, as leader. Raises as `PartitionWriter.append`.

        `is_begun` means that a coordinator has let its transaction begin here, of version 2.
        """
        version = EPOCH_BUMP_VERSION if is_begun else 0
        appended = self._writer.append(batch, transaction_version=version)
        if not appended.is_duplicate:
            self._note(appended)
        return appended

    def end_transaction(
        self, producer_id: int, producer_epoch: int, *, is_commit: bool, coordinator_epoch: int
    ) -> Appended:
        """Append a marker of transaction version 2. Raises as `PartitionWriter.end_transaction`."""
        appended = self._writer.end_transaction(
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=EPOCH_BUMP_VERSION,
        )
        self._note(appended)
        return appended

    def follow(self, batches: Iterable[bytes]) -> None:
        """Append batches from the leader. Raises as `PartitionWriter.append_replica`."""
        for batch in batches:
            self._note(self._writer.append_replica(batch))

    def _note(self, appended: Appended) -> None:
        batch, segment_base = self._store.last, self._writer.base_offset
        self._recent.append(batch)
        if segment_base != self._written_base:
            self._written_base = segment_base
            self._written_path = str(Path(self.path, f"{segment_base:020d}.log"))
        base_offset, last_offset, _ = appended
        self._batches.add(base_offset, last_offset, self._written_path, len(batch))

    def begin_epoch(self, leader_epoch: int) -> None:
        """Begin to lead, and record the epoch before its first batch."""
        self._writer.begin_epoch(leader_epoch)

    def cut(self, offset: int) -> int:
        """Truncate to an offset, or to the batch start below it, and return the new end.

        Raises:
            RefusedError: the remaining log is damaged.
            AccessError: the log cannot be read or written.
        """
        if offset >= self.end_offset:
            # Drop an epoch that it led without an append. Its leader would otherwise always send it
            # back here (UnifiedLog.truncateTo).
            if self.epochs and self.epochs[-1].start_offset >= self.end_offset:
                self._writer.abandon()
                self._writer = self._open()
            return self.end_offset
        self._writer.abandon()
        partition = self._partition()
        cut = find_cut(partition, offset, self.end_offset)
        self._perform(self._cut_steps(partition, cut))
        self._writer = self._open()
        return self.end_offset

    def _cut_steps(self, partition: Partition, cut: Cut) -> Iterator[Step]:
        start_offset = min(partition.log_start_offset or 0, cut.end_offset)
        target = CutTarget(
            offset=cut.offset,
            end_offset=cut.end_offset,
            log_start_offset=start_offset,
            cut=cut,
            notes=(),
        )
        producers, unknown = producers_at_end(partition, target, self._clock())
        if unknown:
            raise RefusedError("; ".join(unknown))
        return TruncationSteps(partition, cut, start_offset, producers).steps()

    def sync(self) -> None:
        """Make the log durable. Raises AccessError."""
        self._writer.store.sync_log()

    def close(self) -> None:
        """Close the log, as a clean stop does. Raises AccessError."""
        self._writer.close()

    def abandon(self) -> None:
        """Leave the log as it is, because the broker was killed."""
        self._writer.abandon()

    # -- opening

    @property
    def directory(self) -> PartitionDir:
        """The partition directory."""
        name = parse_partition_name(Path(self.path).name)
        assert name is not None
        return PartitionDir(self.path, name)

    def _partition(self) -> Partition:
        return Partition(self.directory, read_log_dir(fsio.directory_of(self.path)))

    def _clock(self) -> Clock:
        return Clock(self._terms.now_ms())

    def _open(self) -> PartitionWriter:
        """Recover the log, and find where to continue."""
        partition = self._partition()
        interval_bytes = self._terms.config.index_interval_bytes
        self.started = ""
        if partition.segments:
            found = plan_recovery(partition, self._clock(), interval_bytes, is_written_to=False)
            self._perform(found.steps)
            tail = self._tail(found.tail)
            if found.cut_bytes:
                reason = found.stop.reason if found.stop is not None else ""
                self.started = f"{found.cut_bytes} bytes cut off: {reason}"
        else:
            start = partition.log_start_offset or 0
            tail = self._tail(
                empty_tail(start, interval_bytes)._replace(
                    epochs=tuple(partition.leader_epochs() or ())
                )
            )
        self._transactions = RunningTransactions()
        # Listed again, because the recovery may have removed files. The log dir itself is
        # unchanged.
        self._batches = self._scan(tail, Partition(partition.directory, partition.log_dir))
        self._recent.clear()
        self._store = _LastStore(self.path, self._terms.fs)
        return PartitionWriter(
            self._store,
            tail,
            self._terms.config,
            leader_epoch=max(tail.last_leader_epoch, 0),
            now_ms=self._terms.now_ms,
            flush=self._terms.flush,
            on_end=self._transactions.ended,
        )

    def _tail(self, tail: LogTail) -> LogTail:
        kept = tuple(each for each in tail.epochs if each.start_offset < tail.end_offset)
        if kept != tail.epochs:
            path = Path(self.path, LEADER_EPOCHS_NAME)
            fsio.replace_file(self._terms.fs, path, encode_leader_epochs(kept))
        last = kept[-1].epoch if kept else NO_LEADER_EPOCH
        return tail._replace(epochs=kept, last_leader_epoch=last)

    def _scan(self, tail: LogTail, partition: Partition) -> BatchPlaces:
        found = BatchPlaces()
        for files in partition.segments:
            aborted: Sequence[AbortedTxn] | None = tail.aborted
            if files.base_offset != tail.base_offset:
                aborted = partition.aborted_transactions(files)
            if aborted is None:  # it cannot be read
                raise partition.problems[-1]
            self._transactions.indexed(aborted)
            with open_segment(files.log.path, base_offset=files.base_offset) as segment:
                for batch in segment.scan(verify_crc=False):
                    header = batch.header
                    if header.is_transactional:
                        self._transactions.scanned(header)
                    size = header.batch_bytes
                    found.add(header.base_offset, header.last_offset, files.log.path, size)
        return found

    def _perform(self, steps: Iterable[Step]) -> None:
        fs = self._terms.fs
        for step in steps:
            if step.action is Action.REPLACE:
                assert step.content is not None
                fsio.replace_file(fs, step.path, step.content)
            elif step.action is Action.REMOVE:
                with os_errors(step.path):
                    fs.unlink(step.path)
            else:
                assert step.action is Action.TRUNCATE
                with os_errors(step.path), fsio.open_alone(fs, step.path) as file:
                    fs.truncate(file, step.after_bytes)


# -- a log dir while its broker runs: replicas, checkpoints, the clean shutdown marker.
#
#   `replication-offset-checkpoint`: high watermarks, every
#     replica.high.watermark.checkpoint.interval.ms (5 s), and at a clean stop.
#   `recovery-point-offset-checkpoint`: the ends of closed and so synced segments, every
#     log.flush.offset.checkpoint.interval.ms (60 s). At a clean stop, the log end offsets.
#   `log-start-offset-checkpoint`: together with the recovery points.
#   `.kafka_cleanshutdown`: last at a clean stop, with the broker epoch. A start removes it first.
#
# Source: LogManager, ReplicaManager.checkpointHighWatermarks, KafkaBroker.


class RunningLogDir:
    """The log dir of a running broker. The caller has its lock.

    Attributes:
        was_clean: the clean shutdown marker existed.
        stopped_epoch: the broker epoch in the marker, None if unknown.
        replicas: by partition.
        high_watermarks: as checkpointed before the start.
    """

    def __init__(self, path: str, partitions: Iterable[TopicPartition], terms: LogTerms) -> None:
        """Start: remove the marker, and load all replicas.

        Raises:
            RefusedError: a replica is damaged so that a broker would stop.
            AccessError: a file cannot be read or written.
        """
        self.path = path
        self._terms = terms
        found = read_log_dir(path)
        self.was_clean = found.clean_shutdown
        self.stopped_epoch = _stopped_epoch(path) if found.clean_shutdown else None
        self.high_watermarks: dict[TopicPartition, int] = dict(found.high_watermarks or {})
        self._written: dict[str, bytes] = {}
        if self.was_clean:
            fsio.remove_clean_marker(terms.fs, path)
        self.replicas = {
            key: RunningLog(str(Path(path, f"{key.topic}-{key.partition}")), terms)
            for key in sorted(partitions)
        }

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the known high watermarks. Raises AccessError."""
        self._checkpoint(HIGH_WATERMARK_NAME, offsets)

    def checkpoint_recovery_points(self) -> None:
        """Write the durable end of each log: its closed segments. Raises AccessError."""
        points = {key: log.base_offset for key, log in self.replicas.items()}
        self._checkpoint(RECOVERY_POINT_NAME, points)
        self._checkpoint(LOG_START_NAME, {})

    def _checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        entries = [OffsetCheckpointEntry(*key, offset) for key, offset in sorted(offsets.items())]
        content = encode_offset_checkpoint(entries)
        path = f"{self.path}/{name}"
        # A truncation lowers a checkpoint by itself, so the file may differ from the last write.
        if self._written.get(name) != content or _content(path) != content:
            fsio.replace_file(self._terms.fs, path, content)
            self._written[name] = content

    def close(self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int) -> None:
        """Stop cleanly. Raises AccessError."""
        for log in self.replicas.values():
            log.close()
        ends = {key: log.end_offset for key, log in self.replicas.items()}
        self._checkpoint(RECOVERY_POINT_NAME, ends)
        self._checkpoint(LOG_START_NAME, {})
        self.checkpoint_high_watermarks(high_watermarks)
        marker = encode_clean_shutdown(CleanShutdown(0, broker_epoch))
        fsio.replace_file(self._terms.fs, Path(self.path, CLEAN_SHUTDOWN_NAME), marker)

    def abandon(self) -> None:
        """Leave all replicas as they are, because the broker was killed."""
        for log in self.replicas.values():
            log.abandon()


def _content(path: str) -> bytes | None:
    try:
        return read_small_file(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None


def _stopped_epoch(path: str) -> int | None:
    try:
        return parse_clean_shutdown(Path(path, CLEAN_SHUTDOWN_NAME).read_bytes()).broker_epoch
    except FormatError:
        return None
