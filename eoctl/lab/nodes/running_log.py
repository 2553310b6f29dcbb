"""A log dir and its partitions as a running broker keeps them: start, append, follow, cut, stop."""

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
from recovery.truncate.cut import find_cut
from recovery.truncate.plan import TruncationSteps, producers_at_end
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
    from recovery.truncate.cut import Cut
    from storage.dirs.log_tail import LogTail
    from storage.files.fsio import FileSystem
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.formats.record_batch import BatchHeader
    from storage.formats.txn_index import AbortedTxn
    from storage.producers.producer_state import CompletedTransaction
    from storage.writing.writer import Appended


# -- where each batch of a log that is written to lies, in columns
#
# A broker that runs for long has a million of them. As values they would take a hundred megabytes,
# through which the garbage collector walks again and again.


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
        """Take the next batch: behind the one before, or the first one of another file."""
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
        """Give the batches from the one with `offset` on, all below `end_offset`; at least one."""
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
        """Read batches that lie behind each other in one file."""
        begin, end = self._begins[rows[0]], self._ends[rows[-1]]
        with os_errors(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.pread(fd, end - begin, begin)
            finally:
                os.close(fd)
        for row in rows:
            yield data[self._begins[row] - begin : self._ends[row] - begin]


# -- where a follower parts from its leader, by what it fetches (REPL-10, EPOCH-5, EPOCH-7;
#    KIP-595)
#
# A fetch names the epoch of the last batch that the follower has. The leader looks where that
# epoch ends in its own log. If that is below the fetch offset, or it does not know the epoch, it
# gives no records but that end; the follower cuts, and fetches again, until they agree.
#
# Source: UnifiedLog and Partition.readRecords (divergingEpoch), AbstractFetcherThread.
# getOffsetTruncationState.


def diverging_end(
    epochs: Sequence[LeaderEpochEntry], end_offset: int, *, last_epoch: int, fetch_offset: int
) -> EpochEnd | None:
    """What a leader answers instead of records; None: the follower may go on.

    An end of -1: the leader knows of no end, and the follower cannot be told where to cut.
    """
    found = find_epoch_end(epochs, last_epoch, end_offset)
    if found is None:
        return EpochEnd(last_epoch, -1)
    if found.epoch < last_epoch or found.end_offset < fetch_offset:
        return found
    return None


def cut_offset(epochs: Sequence[LeaderEpochEntry], end_offset: int, diverging: EpochEnd) -> int:
    """Where a follower cuts itself, given the leader's answer; it then asks again."""
    own = find_epoch_end(epochs, diverging.epoch, end_offset)
    if own is None:
        return min(diverging.end_offset, end_offset)
    if own.epoch != diverging.epoch:  # it has nothing of that epoch: to the end of the one before
        return min(own.end_offset, end_offset)
    return min(own.end_offset, diverging.end_offset, end_offset)


# -- transactions of a log that is written to: what is not stable yet, and what was aborted
#
#   TXN-3  ended, and not replicated yet: its marker is at or above the high watermark
#   TXN-4  what is stable ends below the first offset of these and of the open ones
#   RC-3   a consumer is told of the aborted transactions that reach into what it is given
#
# Source: ProducerStateManager (unreplicatedTxns), LocalLog.collectAbortedTransactions.


class _Ended(NamedTuple):
    """A transaction from its first offset to its marker."""

    first_offset: int
    last_offset: int


class RunningTransactions:
    """Those of one log that have ended; the open ones are in its writer's producer state."""

    def __init__(self) -> None:
        self._unreplicated: deque[_Ended] = deque()
        self._aborted: list[AbortedTxn] = []  # in the order of their markers, as in `.txnindex`
        self._markers: list[int] = []
        self._scanned = OpenTransactions(log_start_offset=0, high_watermark=None)

    def scanned(self, header: BatchHeader) -> None:
        """Take a transactional batch that is found there at a start, in the order of the log."""
        if header.is_control and header.records_count:
            first_offset = self._scanned.first_offset(header.producer_id)
            if first_offset is not None:
                self._unreplicated.append(_Ended(first_offset, header.base_offset))
        self._scanned.add_batch(header)

    def indexed(self, entries: Iterable[AbortedTxn]) -> None:
        """Take the entries of the next `.txnindex`."""
        for each in entries:
            self._aborted.append(each)
            self._markers.append(each.last_offset)

    def ended(self, completed: CompletedTransaction, aborted: AbortedTxn | None) -> None:
        """Take what a marker that is appended has ended."""
        self._unreplicated.append(_Ended(completed.first_offset, completed.last_offset))
        if aborted is not None:
            self.indexed((aborted,))

    def last_stable_offset(self, open_offsets: Iterable[int], high_watermark: int) -> int:
        """TXN-4; `open_offsets`: the first ones of the open transactions.

        The high watermark of a leader does not go back: what is below it once is not asked for
        again.
        """
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0].last_offset < high_watermark:
            unreplicated.popleft()
        firsts = (each.first_offset for each in unreplicated)
        return min([high_watermark, *open_offsets, *firsts])

    def aborted_in(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """Those that reach into a range of offsets (RC-3)."""
        found = []
        for place in range(bisect_left(self._markers, offset), len(self._markers)):
            each = self._aborted[place]
            if each.first_offset < end_offset:
                found.append(each)
            if each.last_stable_offset >= end_offset:
                break  # all that began below has ended by then
        return found


# -- the log of one replica while its broker runs: appended to, fetched from, cut, closed
#
# Nothing here knows a second way to write a log: batches go through `storage.writing.writer`, a
# cut is that of `recovery.truncate`, and a start after a crash is `recovery.repair.broker_start`.
# Their steps are carried out at once, without backups: a broker keeps none.
#
#   REC     the start: batches are verified from the recovery point on, a torn end goes
#   EPOCH-6 leader epochs that begin at the end of the log are dropped then
#   TRUNC   the cut: checkpoints are lowered first, the `.log` is cut without an fsync


RECENT_COUNT = 64


class LogTerms(NamedTuple):
    """How the replicas of a log dir are written.

    Attributes:
        fs: what changes files.
        config: the topic's settings.
        now_ms: the clock.
        flush: when a `.log` is synced.
    """

    fs: FileSystem
    config: LogConfig
    now_ms: Callable[[], int]
    flush: FlushPolicy


class _LastStore(FileStore):
    """Knows the last batch as it was written: followers and consumers ask for it next."""

    last = b""

    def append(self, batch: bytes | bytearray | memoryview) -> None:
        """Write a batch."""
        super().append(batch)
        self.last = bytes(batch)


def what_a_start_cuts(path: str, now_ms: int) -> str:
    """What the start of a replica would cut off, in words; "" nothing. Reads only.

    Raises:
        RefusedError: a broker could not load it.
        AccessError: it cannot be read.
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
    """One open replica; `start` opens it, `close` or `abandon` ends it.

    Attributes:
        path: of the partition directory.
        started: what the start has cut off, in words; "" nothing.
    """

    def __init__(self, path: str, terms: LogTerms) -> None:
        self.path = path
        self._terms = terms
        self._batches = BatchPlaces()
        # The last batches of those, as a page cache has them.
        self._recent: deque[bytes] = deque(maxlen=RECENT_COUNT)
        self._written_base = -1
        self._written_path = ""
        self.started = ""
        self._writer = self._open()

    # -- what is in it

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return self._writer.end_offset

    @property
    def start_offset(self) -> int:
        """The log start offset; nothing is deleted while it runs."""
        return self._batches.base_offsets[0] if self._batches else 0

    @property
    def epochs(self) -> tuple[LeaderEpochEntry, ...]:
        """Its leader epochs."""
        return self._writer.epochs

    @property
    def last_epoch(self) -> int:
        """The latest of them; -1 none."""
        return self._writer.last_epoch

    @property
    def rolled_count(self) -> int:
        """So many segments were closed since the start or the last cut."""
        return self._writer.rolled_count

    @property
    def base_offset(self) -> int:
        """Of the segment that is written to: all below was synced when it was closed."""
        return self._writer.base_offset

    def read(self, offset: int, end_offset: int, max_bytes: int) -> list[bytes]:
        """Give whole batches from the one with `offset` on, all below `end_offset`; at least one.

        Raises:
            AccessError: they cannot be read.
        """
        if offset >= self._writer.end_offset:
            return []
        batches = self._batches
        recent = self._recent
        if recent and batches.base_offsets[-1] == offset:
            # As nearly always: the last one is wanted.
            return [recent[-1]] if batches.last_offsets[-1] < end_offset else []
        rows = batches.rows(offset, end_offset, max_bytes)
        first = len(batches) - len(recent)
        if rows.start < first:
            return [*batches.read(rows)]
        return [recent[row - first] for row in rows]

    # -- its transactions

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer has begun a transaction here, in this epoch of it."""
        state = self._writer.producers.producers.get(producer_id)
        return (
            state is not None
            and state.current_txn_first_offset is not None
            and state.producer_epoch == producer_epoch
        )

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a later epoch of a producer is known here."""
        state = self._writer.producers.producers.get(producer_id)
        return state is not None and producer_epoch < state.producer_epoch

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where a read_committed consumer stops (TXN-4); the high watermark is a leader's."""
        return self._transactions.last_stable_offset(self._writer.producers.ongoing, high_watermark)

    def aborted_in(self, offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that reach into a range, in the order of their markers."""
        return self._transactions.aborted_in(offset, end_offset)

    # -- what a broker does with it

    def append(self, batch: bytes, *, is_begun: bool = False) -> Appended:
        """Append what a client sends, as leader. Raises as `PartitionWriter.append`.

        `is_begun`: a coordinator has let its transaction begin here, of version 2.
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
        """Append what the leader has given. Raises as `PartitionWriter.append_replica`."""
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
        """Begin to lead: the epoch is noted before its first batch."""
        self._writer.begin_epoch(leader_epoch)

    def cut(self, offset: int) -> int:
        """Cut to an offset, or below it where that lies inside of a batch; returns the new end.

        Raises:
            RefusedError: what stays is damaged.
            AccessError: it cannot be read or written.
        """
        if offset >= self.end_offset:
            # An epoch that it led, and appended nothing in, goes all the same: it would be told to
            # cut there for ever (UnifiedLog.truncateTo).
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
        """Leave it as a clean stop does. Raises AccessError."""
        self._writer.close()

    def abandon(self) -> None:
        """Leave it as it is: the broker was killed."""
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
        """Recover, and find where to go on."""
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
        # Listed anew: the recovery may have removed files of it. What is around it is as it was.
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


# -- a log dir while its broker runs: replicas, checkpoints, the marker of a clean stop
#
# replication-offset-checkpoint     high watermarks, every replica.high.watermark.checkpoint.
# interval.ms (5 s), and at a clean stop recovery-point-offset-checkpoint  every
# log.flush.offset.checkpoint.interval.ms (60 s): what was synced as a segment was closed; all of
# the log at a clean stop log-start-offset-checkpoint       with it .kafka_cleanshutdown
# last at a clean stop, with the broker epoch; first thing gone at a start Source: LogManager,
# ReplicaManager.checkpointHighWatermarks, KafkaBroker.


class RunningLogDir:
    """The log dir of a broker that runs; the caller has its lock.

    Attributes:
        was_clean: there was the marker of a clean stop.
        stopped_epoch: the broker epoch in it; None unknown.
        replicas: by partition.
        high_watermarks: as checkpointed before the start.
    """

    def __init__(self, path: str, partitions: Iterable[TopicPartition], terms: LogTerms) -> None:
        """Start: take the marker away, load all replicas.

        Raises:
            RefusedError: a replica is damaged where a broker would not go on.
            AccessError: something cannot be read or written.
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
        """Write what is known of them now. Raises AccessError."""
        self._checkpoint(HIGH_WATERMARK_NAME, offsets)

    def checkpoint_recovery_points(self) -> None:
        """Write what is durable of each log: its closed segments. Raises AccessError."""
        points = {key: log.base_offset for key, log in self.replicas.items()}
        self._checkpoint(RECOVERY_POINT_NAME, points)
        self._checkpoint(LOG_START_NAME, {})

    def _checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        entries = [OffsetCheckpointEntry(*key, offset) for key, offset in sorted(offsets.items())]
        content = encode_offset_checkpoint(entries)
        path = f"{self.path}/{name}"
        # A cut lowers a checkpoint by itself: what was written last may not be there any more.
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
        """Leave all as it is: the broker was killed."""
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
