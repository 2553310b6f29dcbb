"""The log of one replica while its broker runs: appended to, fetched from, cut, closed.

Nothing here knows a second way to write a log: batches go through `storage.writing.writer`, a cut
is that of `recovery.truncate`, and a start after a crash is `recovery.repair.broker_start`. Their
steps are carried out at once, without backups: a broker keeps none.

  REC     the start: batches are verified from the recovery point on, a torn end goes
  EPOCH-6 leader epochs that begin at the end of the log are dropped then
  TRUNC   the cut: checkpoints are lowered first, the `.log` is cut without an fsync
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.plan import Action
from recovery.repair.broker_start import plan_recovery
from recovery.replay.snapshots import Clock
from recovery.running.batch_places import BatchPlaces
from recovery.running.running_transactions import RunningTransactions
from recovery.truncate.cut import find_cut
from recovery.truncate.plan import TruncationSteps, producers_at_end
from recovery.truncate.target import CutTarget
from storage.dirs.log_config import LogConfig
from storage.dirs.log_dir import PartitionDir, read_log_dir
from storage.dirs.log_tail import empty_tail
from storage.dirs.partition import Partition
from storage.errors import RefusedError
from storage.file_names import LEADER_EPOCHS_NAME, parse_partition_name
from storage.files import fsio
from storage.formats.checkpoint import encode_leader_epochs
from storage.formats.record_batch import NO_LEADER_EPOCH
from storage.kernels.protocol import in_words
from storage.log.segment import open_segment
from storage.os_errors import os_errors
from storage.producers.transaction_metadata import EPOCH_BUMP_VERSION
from storage.writing.partition_store import FileStore, FlushPolicy
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.truncate.cut import Cut
    from storage.dirs.log_tail import LogTail
    from storage.files.fsio import FileSystem
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.formats.txn_index import AbortedTxn
    from storage.writing.writer import Appended


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
