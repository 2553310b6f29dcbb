"""Appending to a partition as its leader does: the answers, the offsets, the rolls, the files.

The rules:

- APP-2, APP-3: a client may send one whole batch with a right checksum, dense and not too large.
- APP-4: the base offset is the log end offset. The leader epoch is stamped into the header.
- APP-5: LogAppendTime replaces the largest timestamp by the broker's clock.
- APP-8, APP-9: index entries, batch by batch (`log_tail.SegmentIndexes`).
- PROD-2 to PROD-6: a batch that is sent again is answered and not written. Sequences and epochs are
  checked (`producer_state`).
- PROD-7, PROD-8: end markers, as a coordinator requests them.
- TXN-6: a transaction that an ABORT marker ends is in `.txnindex`.
- ROLL-1 to ROLL-6: a new segment by size, time, full indexes, or if offsets do not fit.
- SNAP-2: a producer snapshot at each new base offset, and at the end on close.

A batch is checked before anything is touched. Other tasks of a leader (high watermark, fetches,
minimum of replicas) leave no trace in these files. Source: UnifiedLog.append, LocalLog, LogSegment.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_tail import SegmentIndexes
from storage.errors import CorruptError, FormatError, RefusedError
from storage.formats.checkpoint import LeaderEpochEntry
from storage.formats.control_record import (
    ControlRecordType,
    parse_control_key,
    parse_end_txn_marker,
)
from storage.formats.record import parse_records
from storage.formats.record_batch import (
    CONTROL_MASK,
    CRC,
    CRC_POS,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_MASK,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP_MS,
    PLACE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    compute_crc,
    parse_header,
    record_timestamp_ms,
)
from storage.formats.txn_index import VERSION, AbortedTxn
from storage.limits import MAX_RELATIVE_OFFSET
from storage.producers.producer_state import (
    DEFAULT_EXPIRATION_MS,
    AppendError,
    Marker,
    Origin,
    ProducerStateManager,
)
from storage.writing.partition_store import FlushPolicy
from storage.writing.record_builder import build_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from storage.dirs.log_tail import LogTail
    from storage.dirs.topic_settings import LogConfig
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.limits import Buf
    from storage.producers.producer_state import CompletedTransaction
    from storage.writing.batch_run import BatchRun, RunColumns
    from storage.writing.partition_store import PlannedStore


# -- the checks of a leader on a client's batch before anything is touched (APP-2, APP-3)
#
# The records in the batch are not checked. Source: UnifiedLog.analyzeAndValidateRecords,
# LogValidator.


def parse_client_batch(batch: bytes, offset: int) -> BatchHeader:
    """Read the header of one whole batch with a right checksum, as a client sends it.

    Raises:
        AppendError: the broker's error. `offset` is the offset that the batch would get.
    """
    try:
        header = parse_header(batch, 0)
    except FormatError as exc:
        raise _refusal("CORRUPT_MESSAGE", exc.message, offset) from exc
    if header.magic != MAGIC_V2:
        raise _refusal("CORRUPT_MESSAGE", f"magic {header.magic}", offset, header)
    if header.batch_bytes != len(batch):
        raise _refusal("CORRUPT_MESSAGE", "not exactly one batch", offset, header)
    if compute_crc(batch) != header.crc:
        raise _refusal("CORRUPT_MESSAGE", "its checksum is wrong", offset, header)
    if header.attributes & LOG_APPEND_TIME_MASK:
        what = "a client may not set LogAppendTime"
        raise _refusal("INVALID_TIMESTAMP", what, offset, header)
    return header


def require_valid(header: BatchHeader, config: LogConfig, offset: int) -> None:
    """Require that a batch is dense, not too large, and of a kind that a client may send.

    Raises:
        AppendError: the broker's error. `offset` is the offset that the batch would get.
    """
    batch_bytes = header.batch_bytes
    if batch_bytes > config.max_message_bytes:
        what = f"{batch_bytes} bytes, at most {config.max_message_bytes} (max.message.bytes)"
        raise _refusal("MESSAGE_TOO_LARGE", what, offset, header)
    if batch_bytes > config.segment_bytes:
        what = f"{batch_bytes} bytes, at most {config.segment_bytes} (segment.bytes)"
        raise _refusal("RECORD_LIST_TOO_LARGE", what, offset, header)
    attributes = header.attributes
    is_right = (
        header.base_offset == 0
        and header.records_count == header.last_offset_delta + 1 > 0
        and not attributes & CONTROL_MASK
        and (
            header.base_sequence >= 0
            if header.producer_id >= 0
            else not attributes & TRANSACTIONAL_MASK
        )
    )
    if not is_right:
        raise _refusal("INVALID_RECORD", _fault_of(header), offset, header)


def require_timely(header: BatchHeader, config: LogConfig, now_ms: int, offset: int) -> None:
    """Require that the times in the header are not too far from the clock.

    These are the time of the first record and the largest time. LogAppendTime replaces them.

    Raises:
        AppendError: INVALID_TIMESTAMP. `offset` is the offset that the batch would get.
    """
    if config.is_log_append_time:
        return
    oldest_ms, newest_ms = time_bounds(config, now_ms)
    for each_ms in (header.base_timestamp_ms, header.max_timestamp_ms):
        if each_ms != NO_TIMESTAMP_MS and not oldest_ms <= each_ms <= newest_ms:
            what = (
                f"its timestamp {each_ms} is more than {config.timestamp_after_max_ms} ms ahead of"
                " the clock (message.timestamp.after.max.ms)"
                if each_ms > newest_ms
                else f"its timestamp {each_ms} is more than {config.timestamp_before_max_ms} ms"
                " behind the clock (message.timestamp.before.max.ms)"
            )
            raise _refusal("INVALID_TIMESTAMP", what, offset, header)


def time_bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Return the smallest and the largest timestamp that a client may set."""
    return now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms


def _refusal(
    kafka_error: str, what: str, offset: int, header: BatchHeader | None = None
) -> AppendError:
    producer_id = NO_PRODUCER_ID if header is None else header.producer_id
    return AppendError(
        kafka_error, f"batch for offset {offset}: {what}", producer_id=producer_id, offset=offset
    )


def _fault_of(header: BatchHeader) -> str:
    """Return why a client may not send a batch (APP-3)."""
    faults = {
        "its base offset is not 0": header.base_offset != 0,
        "offsets without records": header.records_count != header.last_offset_delta + 1,
        "it has no record": header.records_count <= 0,
        "a client may not write control records": header.is_control,
        "a producer id without sequence": header.producer_id >= 0 > header.base_sequence,
        "a transaction without producer id": header.is_transactional and header.producer_id < 0,
    }
    return next(what for what, is_so in faults.items() if is_so)


# -- the checks of a follower on a fetched batch (APP-2, APP-10), which stays as on the leader
#
# Source: UnifiedLog.appendAsFollower, analyzeAndValidateRecords.


_END_TYPES = {ControlRecordType.ABORT, ControlRecordType.COMMIT}


def parse_replica_batch(batch: Buf, end_offset: int) -> tuple[BatchHeader, Marker | None]:
    """Read the header of one whole batch, and its end marker if it has one.

    Raises:
        AppendError: its checksum is wrong, it has another format, or it lies below the log end.
    """
    try:
        header, marker, is_crc_right = _read_kept(batch) if type(batch) is bytes else _read(batch)
    except FormatError as exc:
        raise _replica_refusal("CORRUPT_MESSAGE", exc.message, end_offset) from exc
    if not is_crc_right:
        raise _replica_refusal("CORRUPT_MESSAGE", "its checksum is wrong", end_offset)
    if header.base_offset < end_offset:
        what = f"the batch at {header.base_offset} lies below the log end"
        raise _replica_refusal("OFFSETS_OUT_OF_ORDER", what, end_offset)
    return header, marker


def _read(batch: Buf) -> tuple[BatchHeader, Marker | None, bool]:
    """Return header, marker, and whether the checksum is right. Raises FormatError."""
    header = parse_header(batch, 0)
    if header.magic != MAGIC_V2 or header.batch_bytes != len(batch):
        raise CorruptError("not exactly one batch of format v2", check_id="BAT-2", pos=0)
    return header, _marker_of(header, batch), compute_crc(batch) == header.crc


# If one process simulates a leader and its followers, the next follower reads the same bytes soon.
_read_kept = lru_cache(maxsize=4)(_read)


def _marker_of(header: BatchHeader, batch: Buf) -> Marker | None:
    if not header.is_control or header.producer_id < 0 or not header.records_count:
        return None
    record = next(iter(parse_records(memoryview(batch)[HEADER_BYTES:], 1)))
    kind = parse_control_key(record.key).type
    if kind not in _END_TYPES:
        return None
    return Marker(
        kind == ControlRecordType.COMMIT,
        parse_end_txn_marker(record.value).coordinator_epoch,
        record_timestamp_ms(header, record.timestamp_delta_ms),
    )


def _replica_refusal(kafka_error: str, what: str, offset: int) -> AppendError:
    return AppendError(
        kafka_error, f"log end {offset}: {what}", producer_id=NO_PRODUCER_ID, offset=offset
    )


# -- writer


WRITEBACK_BYTES = 8 << 20  # so that the sync of a whole segment has little left to write


class _State(Enum):
    READY = "ready"
    BROKEN = "broken"  # during a write, and for good if it fails
    CLOSED = "closed"


# Used for every batch, and several times slower to look up in the class.
_READY, _BROKEN, _CLOSED = _State
_CLIENT = Origin.CLIENT


class Appended(NamedTuple):
    """The answer to a batch. For a duplicate it is the place of the first write."""

    base_offset: int
    last_offset: int
    is_duplicate: bool = False


class PartitionWriter:
    """A writer to one partition. The caller holds the lock of its log directory.

    Args:
        store: the directory, or a record of planned changes.
        tail: the end of the log.
        config: the topic's settings.
        leader_epoch: stamped into batches, at least the last known leader epoch.
        now_ms: the clock.
        flush: the times at which the `.log` is synced.
        expiration_ms: after which a producer of the snapshot counts as unknown (PROD-10).
        on_end: receives each transaction that a marker ends, and its entry in `.txnindex`.

    Attributes:
        producers: the producer state up to `end_offset`.
        end_offset: the log end offset.
        rolled_count, batches_count, log_bytes: segments rolled, batches and bytes written so far.
    """

    def __init__(
        self,
        store: PlannedStore,
        tail: LogTail,
        config: LogConfig,
        *,
        leader_epoch: int,
        now_ms: Callable[[], int],
        flush: FlushPolicy = FlushPolicy.SEGMENT,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        on_end: Callable[[CompletedTransaction, AbortedTxn | None], None] | None = None,
    ) -> None:
        if leader_epoch < tail.last_leader_epoch:
            raise RefusedError(
                f"{store.directory}: leader epoch {leader_epoch} is below "
                f"{tail.last_leader_epoch}, the last leader epoch of the log [BAT-14]"
            )
        self.store = store
        self.config = config
        self.leader_epoch = leader_epoch
        self.end_offset = tail.end_offset
        self.rolled_count = 0
        self.batches_count = 0
        self.log_bytes = 0
        self.producers = ProducerStateManager()
        self.producers.load(
            tail.producers, tail.end_offset, now_ms=now_ms(), expiration_ms=expiration_ms
        )
        self._now_ms = now_ms
        self._on_end = on_end
        self._flush = flush
        self._syncs_batches = flush is FlushPolicy.BATCH
        self._epochs = list(tail.epochs)
        self._indexes = tail.indexes
        self._aborted = list(tail.aborted)  # of this segment
        self._segment_bytes = tail.log_bytes
        self._first_timestamp_ms = tail.first_timestamp_ms
        self._segment_opened_ms = now_ms()
        self._is_open = False  # the log of this segment is open: it was appended to
        self._rolls_next = False
        self._written_back_bytes = self._segment_bytes  # or being written
        self._state = _READY

    @property
    def base_offset(self) -> int:
        """Base offset of the current segment."""
        return self._indexes.base_offset

    @property
    def is_ready(self) -> bool:
        """Return whether it takes batches: it is not closed, and no write has failed."""
        return self._state is _READY

    # -- appending

    def append(
        self, batch: bytes, *, origin: Origin = _CLIENT, transaction_version: int = 0
    ) -> Appended:
        """Append a batch that a client sends: base offset 0, any leader epoch.

        Returns its place in the log. A duplicate is not written again. A coordinator's append for a
        client, such as the offsets of a group in its transaction, has no sequence to compare.

        Args:
            batch: whole.
            origin: of the append.
            transaction_version: of a batch whose transaction a coordinator has let begin here.

        Raises:
            AppendError: the broker's error. Nothing was touched.
            AccessError: it could not be written. The writer takes no further batch, and `close`
                only closes the files. The partition has to be recovered.
        """
        header = parse_client_batch(batch, self.end_offset)
        if origin is _CLIENT:
            require_timely(header, self.config, self._now_ms(), self.end_offset)
        return self._append(header, batch, origin, transaction_version)

    def append_copy(self, header: BatchHeader, batch: bytearray | memoryview) -> Appended:
        """Append a batch made from a batch of another log, as `append`. It is stamped in place.

        `header` is its own header, with a right checksum. It may have LogAppendTime, and the time
        of the other leader's append.
        """
        return self._append(header, batch, _CLIENT)

    def append_replica(self, batch: bytes) -> Appended:
        """Append a batch of its leader without changing offset, leader epoch and checksum (APP-10).

        Faults that a leader would refuse are only recorded (`producers.violations`).

        Raises:
            AppendError: it is not one whole batch with a right checksum, or lies below the log end.
                Nothing was touched.
            AccessError: as `append`.
        """
        if self._state is not _READY:
            raise ValueError("closed, or an earlier append has failed")
        header, marker = parse_replica_batch(batch, self.end_offset)
        self.end_offset = header.base_offset  # if there is a gap, a segment begins behind it
        roll_entries = self.producers.entries() if self._must_roll(header) else None
        self._state = _BROKEN  # see `_append`
        self.leader_epoch = header.partition_leader_epoch
        try:
            completed = self.producers.append(header, marker, Origin.REPLICATION)
        except AppendError:
            self._state = _READY
            raise
        self._write(header, batch, roll_entries)
        if completed is not None:
            self._complete(completed)
        self._state = _READY
        return Appended(header.base_offset, self.end_offset - 1)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Record a leader epoch that begins at the log end, before it has a batch (EPOCH-1).

        Raises:
            AccessError: it could not be written.
        """
        self.leader_epoch = leader_epoch
        if not self._epochs or self._epochs[-1].epoch < leader_epoch:
            self.store.begin()
            self._assign_epoch()

    @property
    def epochs(self) -> tuple[LeaderEpochEntry, ...]:
        """The leader epochs of the log."""
        return tuple(self._epochs)

    @property
    def last_epoch(self) -> int:
        """The latest leader epoch, or NO_LEADER_EPOCH."""
        return self._epochs[-1].epoch if self._epochs else NO_LEADER_EPOCH

    def abandon(self) -> None:
        """Close the files as they are, like a process that is killed."""
        self._state = _CLOSED
        self.store.close_log()

    def _append(
        self,
        header: BatchHeader,
        batch: bytes | bytearray | memoryview,
        origin: Origin,
        transaction_version: int = 0,
    ) -> Appended:
        if self._state is not _READY:
            raise ValueError("closed, or an earlier append has failed")
        require_valid(header, self.config, self.end_offset)
        duplicate = None
        if header.producer_id != NO_PRODUCER_ID and origin is _CLIENT:
            duplicate = self.producers.find_duplicate(header)
        if duplicate is not None:
            return Appended(duplicate.base_offset, duplicate.last_offset, is_duplicate=True)
        header = self._placed(header)
        roll_entries = self.producers.entries() if self._must_roll(header) else None
        # From here on any interruption, even without an error, leaves the writer broken.
        self._state = _BROKEN
        try:
            self.producers.append(header, None, origin, transaction_version=transaction_version)
        except AppendError:  # raised before anything is changed
            self._state = _READY
            raise
        self._write(header, _stamped(header, batch), roll_entries)
        self._state = _READY
        return Appended(header.base_offset, self.end_offset - 1)

    def room_for(self, parts: Iterable[RunColumns]) -> int:
        """Return how many of these batches, from the first on, `append_run` would take now.

        It stops at a batch that requires an action of its own: a roll, a sync, or a timestamp to
        replace or refuse. `parts` are read one by one, so that batches without room cost nothing.
        """
        config, first_ms = self.config, self._first_timestamp_ms
        is_plain = self._is_open and not (self._syncs_batches or config.is_log_append_time)
        is_plain = is_plain and not self._rolls_next
        if not is_plain or first_ms is None or first_ms < 0:
            return 0
        slots = self._indexes.free_slots(config.index_max_bytes)
        end_pos, end_offset = self._segment_bytes, self.end_offset - self.base_offset
        oldest_ms, newest_ms = time_bounds(config, self._now_ms())
        newest_ms = min(newest_ms, first_ms + config.segment_ms)
        count = 0
        for part in parts:
            ends = [*accumulate(part.batch_bytes, initial=end_pos)]
            end_offsets = [*accumulate(part.records_count, initial=end_offset)]
            whole = len(part.batch_bytes)
            fits = min(
                whole,
                slots - count,
                bisect_right(ends, config.segment_bytes) - 1,
                bisect_right(end_offsets, MAX_RELATIVE_OFFSET) - 1,
                _count_within(part.batch_bytes, 0, config.max_message_bytes),
                _count_within(part.max_timestamp_ms, oldest_ms, newest_ms),
            )
            count += max(fits, 0)
            if fits < whole:
                break
            end_pos, end_offset = ends[-1], end_offsets[-1]
        return count

    def append_run(self, run: BatchRun) -> None:
        """Append batches of one client at once, as `append_copy` would append each.

        `room_for` must have accepted all of them, and the first must not be a duplicate.

        Raises:
            AppendError, AccessError: as `append`.
        """
        if self._state is not _READY:
            raise ValueError("closed, or an earlier append has failed")
        self._state = _BROKEN  # see `_append`
        try:
            self.producers.append_run(run.headers)
        except AppendError:
            self._state = _READY
            raise
        self.store.append(run.data)
        pos = [*accumulate(run.columns.batch_bytes, initial=self._segment_bytes)]
        last_offsets = [*accumulate(run.columns.records_count, initial=self.end_offset - 1)]
        self._segment_bytes, self.end_offset = pos.pop(), last_offsets[-1] + 1
        self._indexes.add_run(pos, last_offsets[1:], run.columns.max_timestamp_ms)
        if self._segment_bytes - self._written_back_bytes >= WRITEBACK_BYTES:
            self._start_writeback()
        self.batches_count += len(run.columns.batch_bytes)
        self.log_bytes += len(run.data)
        self._state = _READY

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> Appended:
        """Append the marker that a transaction coordinator sends to this partition.

        Without an open transaction of the producer it ends nothing, and is written anyway.

        Args:
            producer_id: of the transaction.
            producer_epoch: of the data, or with transaction version 2 a higher epoch.
            is_commit: COMMIT, else ABORT.
            coordinator_epoch: leader epoch of the coordinator's partition.
            transaction_version: 0, 1 or 2.

        Raises:
            AppendError, AccessError: as `append`.
        """
        if self._state is not _READY:
            raise ValueError("closed, or an earlier append has failed")
        batch = build_marker(
            producer_id,
            producer_epoch,
            self._now_ms(),
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
        )
        header = self._placed(parse_header(batch, 0))
        roll_entries = self.producers.entries() if self._must_roll(header) else None
        self._state = _BROKEN  # see `append`
        try:
            completed = self.producers.append(
                header,
                Marker(is_commit, coordinator_epoch, header.max_timestamp_ms),
                Origin.COORDINATOR,
                transaction_version=transaction_version,
            )
        except AppendError:
            self._state = _READY
            raise
        self._write(header, _stamped(header, batch), roll_entries)
        if completed is not None:
            self._complete(completed)
        self._state = _READY
        return Appended(header.base_offset, header.last_offset)

    def _complete(self, completed: CompletedTransaction) -> None:
        aborted = None
        if completed.is_aborted:
            stable_offset = self.producers.last_stable_offset(completed)
            aborted = AbortedTxn(
                version=VERSION,
                producer_id=completed.producer_id,
                first_offset=completed.first_offset,
                last_offset=completed.last_offset,
                last_stable_offset=stable_offset,
            )
            self._aborted.append(aborted)
        self.producers.complete(completed)
        if self._on_end is not None:
            self._on_end(completed, aborted)

    def _write(
        self,
        header: BatchHeader,
        data: bytes | bytearray | memoryview,
        roll_entries: list[ProducerEntry] | None,
    ) -> None:
        """Write a batch in its final form.

        `roll_entries` are the producers before it, and begin a new segment.
        """
        if not self._is_open:
            self.store.begin()
        if not self._epochs or self._epochs[-1].epoch < self.leader_epoch:
            self._assign_epoch()
        if roll_entries is not None:
            self._roll(roll_entries)
        if not self._is_open:
            self.store.open_log(self.base_offset, self._segment_bytes)
            self._is_open = True
        self.store.append(data)
        if self._syncs_batches:
            self.store.sync_log()
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = header.max_timestamp_ms
        last_offset, batch_bytes = header.base_offset + header.last_offset_delta, len(data)
        self._indexes.add(self._segment_bytes, last_offset, header.max_timestamp_ms)
        self._segment_bytes += batch_bytes
        if self._segment_bytes - self._written_back_bytes >= WRITEBACK_BYTES:
            self._start_writeback()
        self.end_offset = last_offset + 1
        self.batches_count += 1
        self.log_bytes += batch_bytes

    def _start_writeback(self) -> None:
        if self._flush is FlushPolicy.SEGMENT:
            self.store.start_writeback(self._written_back_bytes)
        self._written_back_bytes = self._segment_bytes

    def _placed(self, header: BatchHeader) -> BatchHeader:
        """Return the header as it will be in the log. Its crc is still the client's."""
        header = BatchHeader(self.end_offset, header.batch_length, self.leader_epoch, *header[3:])
        if self.config.is_log_append_time:
            header = header._replace(
                attributes=header.attributes | LOG_APPEND_TIME_MASK,
                max_timestamp_ms=self._now_ms(),
            )
        return header

    def _assign_epoch(self) -> None:
        """Write a new leader epoch to the disk before its first batch (EPOCH-1, EPOCH-2)."""
        while self._epochs and self._epochs[-1].start_offset >= self.end_offset:
            self._epochs.pop()
        self._epochs.append(LeaderEpochEntry(self.leader_epoch, self.end_offset))
        self.store.write_epochs(self._epochs)

    # -- segments

    def roll_next(self) -> None:
        """Let the next batch open a new segment. A log may be rolled at any time (ROLL-1)."""
        self._rolls_next = True

    def _must_roll(self, header: BatchHeader) -> bool:
        """Return whether to roll by ROLL-1 or ROLL-2, without the random jitter."""
        config = self.config
        if not self._segment_bytes:  # its base offset is the log end offset already (ROLL-7)
            return False
        if self._rolls_next:
            return True
        if self._segment_bytes > config.segment_bytes - header.batch_bytes:
            return True
        # Compare event times, unless the segment's first batch has none.
        first_ms = self._first_timestamp_ms
        if first_ms is not None and first_ms >= 0:
            waited_ms = header.max_timestamp_ms - first_ms
        else:
            waited_ms = self._now_ms() - self._segment_opened_ms
        if waited_ms > config.segment_ms:
            return True
        indexes = self._indexes
        relative_offset = header.base_offset + header.last_offset_delta - indexes.base_offset
        return indexes.is_full(config.index_max_bytes) or relative_offset > MAX_RELATIVE_OFFSET

    def _roll(self, entries: list[ProducerEntry]) -> None:
        """Close the segment, then continue in a new segment at the log end offset (ROLL-6)."""
        self._finish_segment(entries)
        self._indexes = SegmentIndexes(self.end_offset, self.config.index_interval_bytes)
        self._aborted = []
        self._segment_bytes = self._written_back_bytes = 0
        self._first_timestamp_ms = None
        self._segment_opened_ms = self._now_ms()
        self._rolls_next = False
        self.rolled_count += 1

    def _finish_segment(self, entries: list[ProducerEntry]) -> None:
        """Leave a segment as a clean stop does. An unwritten segment already is in that state."""
        if not self._is_open:
            return
        if self._flush is FlushPolicy.SEGMENT:
            self.store.sync_log()
        self.store.close_log()
        self._is_open = False
        self.store.write_indexes(self._indexes)
        self.store.write_txn_index(self.base_offset, self._aborted)
        self.store.write_snapshot(self.end_offset, entries)

    def close(self) -> None:
        """Sync the log, write its indexes and the snapshot at its end.

        The partition is then closed.

        Nothing is written if nothing was appended, or if an append has failed.
        """
        state, self._state = self._state, _CLOSED
        if state is _READY:
            self._finish_segment(self.producers.entries())
        self.store.close_log()
        if state is _READY:
            self.store.end()


def _count_within(numbers: Sequence[int], least: int, most: int) -> int:
    """Return how many numbers, from the first on, are in a range."""
    if least <= min(numbers) and max(numbers) <= most:
        return len(numbers)
    return next(n for n, each in enumerate(numbers) if not least <= each <= most)


def _stamped(header: BatchHeader, batch: bytes | bytearray | memoryview) -> bytearray | memoryview:
    """Return the batch as it is written, with a new header and the same records."""
    data = bytearray(batch) if isinstance(batch, bytes) else batch
    if header.is_log_append_time:
        HEADER.pack_into(data, 0, *header)
        CRC.pack_into(data, CRC_POS, compute_crc(data))
    else:
        PLACE.pack_into(data, 0, *header[:3])
    return data
