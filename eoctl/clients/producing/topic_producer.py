"""A producer of a topic: the partition of each record, the ends of transactions, the sends.

All of this is derived from the input and the options alone. Another run with the same input gets
the same partitions, identities and ends of transactions. It skips the records that the logs have
(see `produce_session`) and sends the rest. The number of a transaction decides whether it is
committed or aborted. Its records are acknowledged in all partitions before the first marker is
written. A run after a crash between two markers writes the missing markers with the same outcome.
"""

from __future__ import annotations

import struct
import time
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.partitions.identity import EPOCHS_COUNT, NOWHERE, SEQUENCES_COUNT, LogPlace
from eoctl.clients.partitions.open_partition import WriteOptions
from eoctl.clients.partitions.target import TargetOptions
from eoctl.clients.producing.produce_session import changed_input, digest_of
from eoctl.clients.record_formats.inputs import BytesAs, InputFormat, InputRecord
from storage.errors import RefusedError
from storage.limits import INT32_MAX
from storage.writing.record_builder import DEFAULT_BATCH_BYTES, MAX_BATCH_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eoctl.clients.coordinators.log_dir_coordinator import TransactionalOptions
    from eoctl.clients.partitions.identity import Identities
    from eoctl.clients.producing.produce_session import Content
    from eoctl.clients.producing.producer import Faults, PartitionProducer
    from storage.dirs.log_tail import LogTail
    from storage.dirs.partition import Partition
    from storage.log.segment import LogRecord
    from storage.writing.record_builder import ProducerIdentity


# -- the partition of a record, chosen as by Kafka's own producer.
#
# 1. With a key: the murmur2 hash of the key, without its sign bit, modulo the number of partitions
#    (Utils.murmur2, Utils.toPositive, BuiltInPartitioner.partitionForKey).
# 2. Without a key: one partition for a number of bytes, then another, drawn uniformly, which may be
#    the same (KIP-480, KIP-794). It is BuiltInPartitioner without load statistics, because no
#    broker is slow here.
#
# A Java client may delay a switch until its batch is full, up to twice the bytes. This producer
# never does, so that the partition of a record depends only on the records before it.


_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF

_CACHED_KEYS_COUNT = 1 << 16
_CACHED_KEY_BYTES = 256  # a cache must not keep keys of megabytes


def murmur2(data: bytes) -> int:
    """Return the hash as in Java, a signed 32-bit integer (Utils.murmur2)."""
    unsigned = _murmur2(data)
    return unsigned - (1 << 32) if unsigned > INT32_MAX else unsigned


def partition_for_key(key: bytes, count: int) -> int:
    """Return the partition, of `count`, for records with this key."""
    hashed = _cached_murmur2(key) if len(key) <= _CACHED_KEY_BYTES else _murmur2(key)
    return (hashed & INT32_MAX) % count


def _murmur2(data: bytes) -> int:
    size = len(data)
    words = struct.unpack_from(f"<{size // 4}I", data)
    return _finished(_mixed(_SEED ^ size, words), data[size & ~3 :])


_cached_murmur2 = lru_cache(_CACHED_KEYS_COUNT)(_murmur2)


def _mixed(hashed: int, words: Sequence[int]) -> int:
    """Mix words of four bytes, little-endian, into a hash."""
    for each in words:
        word = each * _FACTOR & _MASK
        hashed = (hashed * _FACTOR ^ (word ^ word >> _SHIFT) * _FACTOR) & _MASK
    return hashed


def _finished(hashed: int, tail: bytes) -> int:
    """Mix the last bytes, fewer than four, into a hash, and then its bits into each other."""
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


class StickyPartitions:
    """The choice of partitions for records without a key.

    The partition after a number of switches is derived from the seed and that number alone, in
    every version of Python. A producer of the same records therefore gets the same partitions
    again.

    Args:
        count: number of the topic's partitions.
        seed: decides the order.
        switch_bytes: number of bytes for a partition before the next is drawn (batch.size).
    """

    def __init__(self, count: int, seed: int, switch_bytes: int) -> None:
        if count < 1 or switch_bytes < 1:
            raise ValueError("at least one partition, and one byte for it")
        self._count = count
        self._seed = seed
        self._switch_bytes = switch_bytes
        self._switches = 0  # partitions drawn after the first
        self._bytes = 0  # for the current partition
        self._partition = self._drawn()

    def next_partition(self, record_bytes: int) -> int:
        """Return the partition of a record.

        The record that fills the partition still belongs to it.
        """
        partition = self._partition
        self._bytes += record_bytes
        if self._bytes >= self._switch_bytes:
            self._switches += 1
            self._bytes = 0
            self._partition = self._drawn()
        return partition

    def _drawn(self) -> int:
        drawn = _murmur2(b"%d %d" % (self._seed, self._switches))
        return (drawn & INT32_MAX) % self._count


# -- a producer's records in a log: their end, and the records to compare an input with


# Producer id, epoch and sequence number.
Sent = tuple[int, int, int]


def find_place(
    partition: Partition | None, tail: LogTail, identities: Identities, start_offset: int
) -> LogPlace:
    """Find the progress of a session that began at `start_offset` in a log.

    It comes from the producer state, or from the log itself if the state has forgotten the
    producer.

    Raises:
        RefusedError: the progress is unknown, because the log has lost its beginning.
    """
    place = identities.find_place(tail.producers, tail.end_offset - start_offset)
    if place != NOWHERE or tail.end_offset <= start_offset or partition is None:
        return place
    ids = identities.producer_ids
    log_start_offset = partition.local_log_start_offset or 0
    if log_start_offset > start_offset:
        raise RefusedError(
            f"{partition.path}: begins at {log_start_offset}, behind {start_offset} where the "
            f"session began, and does not know its producer {ids[0]}. It is unknown which part of "
            "the input it had"
        )
    last: LogPlace = NOWHERE
    first = identities.first
    for placed in partition.read(start_offset, tail.end_offset):
        header = placed.batch.header
        if header.producer_id not in ids:
            continue
        if identities.is_per_transaction:
            number = ids.index(header.producer_id) * EPOCHS_COUNT + header.producer_epoch
            count = 0 if header.is_control else header.last_sequence + 1
            last = LogPlace(number - first.producer_epoch, count, is_open=not header.is_control)
        elif header.is_control:
            last = last._replace(is_open=False)
        else:
            # Not the sum of the records, because compaction may have removed some.
            count = (header.last_sequence + 1 - first.base_sequence) % SEQUENCES_COUNT
            last = LogPlace(0, count, is_open=header.is_transactional)
    return last


def count_by_epoch(
    partition: Partition, producer_ids: list[int], start_offset: int, end_offset: int
) -> dict[tuple[int, int], int]:
    """Count the records of a log by (producer id, epoch), including compacted records.

    Records that retention has removed are not counted. A missing epoch therefore means nothing.
    """
    found: dict[tuple[int, int], int] = {}
    is_whole = (partition.local_log_start_offset or 0) <= start_offset
    wanted = set(producer_ids)
    for placed in partition.read(start_offset, end_offset):
        header = placed.batch.header
        if header.producer_id not in wanted:
            continue
        key = (header.producer_id, header.producer_epoch)
        if not header.is_control:
            found[key] = header.last_sequence + 1
        elif is_whole:
            # The epoch of a marker is one above the epoch of the data, which may be missing.
            found.setdefault((header.producer_id, header.producer_epoch - 1), 0)
    return found


class SentRecords:
    """The records of a session in the log of one partition, in their order.

    Args:
        partition: to read.
        producer_ids: of the session.
        start_offset: first offset.
        end_offset: exclusive end.
    """

    def __init__(
        self, partition: Partition, producer_ids: list[int], start_offset: int, end_offset: int
    ) -> None:
        self._ids = producer_ids
        self._records = self._read(partition, start_offset, end_offset)
        self._next: tuple[Sent, LogRecord] | None = None

    def _read(
        self, partition: Partition, start_offset: int, end_offset: int
    ) -> Iterator[tuple[Sent, LogRecord]]:
        for placed in partition.read(start_offset, end_offset):
            header = placed.batch.header
            if header.producer_id not in self._ids or header.is_control:
                continue
            for record in placed.segment.records(placed.batch):
                yield (header.producer_id, header.producer_epoch, record.sequence), record

    def differs(self, identity: ProducerIdentity, record: InputRecord) -> bool:
        """Return whether the log has another record with that identity. False if it has none."""
        wanted = (identity.producer_id, identity.producer_epoch, identity.base_sequence)
        while self._next is None or self._is_before(self._next[0], wanted):
            self._next = next(self._records, None)
            if self._next is None:
                return False
        found, logged = self._next
        return found == wanted and (logged.key, logged.value, logged.headers) != record.content

    def _is_before(self, found: Sent, wanted: Sent) -> bool:
        """Return whether a record was sent before another record. Sequence numbers wrap."""
        if found[:2] != wanted[:2]:
            ids = self._ids
            return (ids.index(found[0]), found[1]) < (ids.index(wanted[0]), wanted[1])
        return 0 < (wanted[2] - found[2]) % SEQUENCES_COUNT < SEQUENCES_COUNT // 2


# -- topic producer


SAVE_SECONDS = 1.0
RECORDS_PER_INSPECTION = 256  # records per reading of the clock


class Transactions(NamedTuple):
    """The division of records into transactions.

    Attributes:
        records: per transaction.
        abort_every: one of this many transactions is aborted. None: no transaction is.
        version: transaction version. From 2 on a marker raises the epoch.
        coordinator_epoch: of the markers.
    """

    records: int
    abort_every: int | None = None
    version: int = 2
    coordinator_epoch: int = 0

    def is_commit(self, number: int) -> bool:
        """Return whether a transaction commits, by its number from 0 on."""
        return self.abort_every is None or (number + 1) % self.abort_every != 0


class CheckedInput(NamedTuple):
    """The verified part of an input, and the records to compare the rest with.

    Attributes:
        input_name: for errors.
        pos: position up to which a digest has verified the input.
        last_sha256: digest of the record that ended there.
        sent: the records in the logs after that, by partition.
    """

    input_name: str
    pos: int
    last_sha256: bytes
    sent: Sequence[SentRecords | None]


class SessionCalls(NamedTuple):
    """The notifications to a session.

    Attributes:
        pass_over: records up to a position of the input were taken.
        save: sometimes, when all taken records are acknowledged.
    """

    pass_over: Callable[[int], None]
    save: Callable[[], None]


class CoordinatorCalls(NamedTuple):
    """The requests to a transaction coordinator, instead of own markers.

    Attributes:
        add: a partition, by number, gets its first record in the transaction.
        end: commit (True) or abort, after all records are acknowledged.
        give_up: abort after an error, if possible.
    """

    add: Callable[[int], None]
    end: Callable[[bool], None]
    give_up: Callable[[], None]


class TopicProducer:
    """A producer of the records of an input.

    Args:
        producers: of the partitions, by number.
        sticky: partitions of records without key, with more than one partition.
        transactions: None without transactions.
        early_ends: numbers of records after which a transaction ended at the end of an input.
        checked: with a session, the comparison of the input.
        session: gets the progress.
        coordinator: with a transactional id.
        add_producer_id: runs when all epochs of a producer id are used up.

    Attributes:
        records_count: records taken so far.
        input_pos: the position in the input after them.
        last_record: key, value and headers of the last record.
        transactions_count: transactions ended so far.
        open_count: records in the open transaction.
    """

    def __init__(
        self,
        producers: Sequence[PartitionProducer],
        *,
        sticky: StickyPartitions | None = None,
        transactions: Transactions | None = None,
        early_ends: Iterable[int] = (),
        checked: CheckedInput | None = None,
        session: SessionCalls | None = None,
        coordinator: CoordinatorCalls | None = None,
        add_producer_id: Callable[[], None] | None = None,
    ) -> None:
        self.records_count = 0
        self.input_pos = 0
        self.last_record: Content = (None, None, ())
        self.transactions_count = 0
        self.open_count = 0
        self._producers = producers
        self._sticky = sticky
        self._transactions = transactions
        self._early_ends = set(early_ends)
        self._checked = checked
        self._session = session
        self._coordinator = coordinator
        self._add_producer_id = add_producer_id
        self._saved_s = time.monotonic()
        self._touched: set[int] = set()
        self._decided: bool | None = None  # outcome of the transaction, from its first marker on

    # -- records

    def send_all(self, records: Iterable[InputRecord]) -> None:
        """Send records one by one.

        Raises:
            RefusedError: the records of the input differ from the records in the logs.
            EoctlError: as `PartitionProducer.add`, or from `records`.
        """
        for record in records:
            number = self._choose(record)
            producer = self._producers[number]
            if producer.is_next_in_log:
                self._compare(number, producer, record)
                producer.skip()
            else:
                self._require_open(number, producer)
                self._join(number)
                producer.add(record.key, record.value, record.headers, record.timestamp_ms)
            self.input_pos = record.end_pos
            self.last_record = record.content
            self._took(number, 1)
            if not self.records_count % RECORDS_PER_INSPECTION:
                self._save_in_time()

    def send_lines(self, blocks: Iterable[tuple[list[bytes], int]]) -> None:
        """Send lines as values to the only partition, faster than by `send_all`."""
        (producer,) = self._producers
        for lines, end_pos in blocks:
            start, counted, counted_pos = 0, 0, self.input_pos
            while start < len(lines):
                end = min(len(lines), start + self._room())
                place = producer.in_log
                if producer.is_next_in_log and place is not None:
                    if producer.transaction == place.transaction:
                        end = min(end, start + place.records - producer.count)
                    if self._checked is None or end_pos <= self._checked.pos:
                        producer.skip(end - start)
                    else:
                        counted_pos += sum(map(len, lines[counted:start])) + start - counted
                        counted, self.input_pos = start, counted_pos
                        self._skip_lines(producer, lines[start:end], end_pos)
                else:
                    self._require_open(0, producer)
                    self._join(0)
                    producer.add_values(lines, start, end)
                self._took(0, end - start)
                start = end
            # For the whole block, because no position inside is needed.
            self.input_pos, self.last_record = end_pos, (None, lines[-1], ())
            self._save_in_time()

    def _skip_lines(self, producer: PartitionProducer, lines: list[bytes], end_pos: int) -> None:
        for line in lines:
            line_end_pos = min(self.input_pos + len(line) + 1, end_pos)
            self._compare(
                0,
                producer,
                InputRecord(
                    key=None,
                    value=line,
                    headers=(),
                    timestamp_ms=None,
                    partition=None,
                    end_pos=line_end_pos,
                ),
            )
            producer.skip()
            self.input_pos = line_end_pos

    def _require_open(self, number: int, producer: PartitionProducer) -> None:
        """Require an open transaction before its first record that a log lacks."""
        place = producer.in_log
        if place is None or self._transactions is None or number not in self._touched:
            return
        if not place.is_open:
            raise self._ended_by_others(producer)

    def _join(self, number: int) -> None:
        """Add a partition to the transaction before its first record there."""
        if self._coordinator is not None and number not in self._touched:
            self._coordinator.add(number)

    def _ended_by_others(self, producer: PartitionProducer) -> RefusedError:
        return RefusedError(
            f"{producer.writer.store.directory}: transaction {self.transactions_count} of the"
            " session was ended before all of its records were there, and not by the session."
            " They cannot be added to it any more",
            next_step="begin a new session with the rest of the input",
        )

    def _room(self) -> int:
        """Return the number of records until the next end of a transaction."""
        if self._transactions is None:
            return 1 << 62
        left = self._transactions.records - self.open_count
        return min([left, *(each - self.records_count for each in self._early_ends
                            if each > self.records_count)])  # fmt: skip

    def _choose(self, record: InputRecord) -> int:
        if len(self._producers) == 1 or self._sticky is None:
            return 0
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_for_key(record.key, len(self._producers))
        return self._sticky.next_partition(len(record.value or b""))

    def _compare(self, number: int, producer: PartitionProducer, record: InputRecord) -> None:
        checked = self._checked
        if checked is None or record.end_pos <= checked.pos:
            return
        if self.input_pos < checked.pos:
            # The input ended in this record then. Only the end of its line may be new.
            is_other = digest_of(record.content) != checked.last_sha256
        else:
            sent = checked.sent[number]
            identity = producer.identities.at(producer.transaction, producer.count)
            is_other = sent is not None and sent.differs(identity, record)
        if is_other:
            where = f"the record before byte {record.end_pos} is not the record that was sent"
            raise changed_input(checked.input_name, where)

    def _took(self, number: int, count: int) -> None:
        self.records_count += count
        if self._transactions is None:
            return
        self._touched.add(number)
        self.open_count += count
        is_full = self.open_count == self._transactions.records
        if is_full or self.records_count in self._early_ends:
            self._end_transaction(self._transactions)

    # -- ends

    def finish(self, on_early_end: Callable[[int], None] | None = None) -> None:
        """Complete the input: end the open transaction, and flush.

        Args:
            on_early_end: gets the number of records before a partial transaction is ended.

        Raises:
            EoctlError: as `PartitionProducer.flush`, or the logs have more records than the input.
        """
        for producer in self._producers:
            if producer.is_next_in_log and self._checked is not None:
                what = f"the log {producer.writer.store.directory} has more than it holds"
                raise changed_input(self._checked.input_name, what)
        if self._transactions is not None and self.open_count:
            if on_early_end is not None:
                on_early_end(self.records_count)
            self._end_transaction(self._transactions)
        self.flush()

    def flush(self) -> None:
        """Send all records, and wait until they are acknowledged."""
        for producer in self._producers:
            producer.flush()

    def abort(self) -> None:
        """End the open transaction after an error, if there is one, to abort its records.

        The first written marker decides the outcome, which then applies in the other partitions,
        too.
        """
        if self._coordinator is not None:
            if self._decided is None:  # else its next opened coordinator completes it
                self._coordinator.give_up()
            return
        if self._transactions is not None and self.open_count:
            for number in sorted(self._touched):
                if self._producers[number].has_open_transaction:
                    self._write_marker(number, self._transactions, is_commit=bool(self._decided))

    def _end_transaction(self, transactions: Transactions) -> None:
        is_commit = transactions.is_commit(self.transactions_count)
        missing = []
        for number in sorted(self._touched):
            producer = self._producers[number]
            if not producer.is_end_in_log:
                self._require_open(number, producer)
                missing.append(number)
            elif not producer.is_whole_in_log:
                raise self._ended_by_others(producer)
        for number in missing:
            self._producers[number].flush()
        self._decided = is_commit
        if self._coordinator is not None:
            self._coordinator.end(is_commit)
            for number in missing:
                self._producers[number].note_end(is_commit=is_commit)
            missing = []
        for number in missing:
            self._write_marker(number, transactions, is_commit=is_commit)
        for producer in self._producers:
            producer.next_transaction()
        first = self._producers[0]
        if first.identities.lacks_id(first.transaction) and self._add_producer_id is not None:
            self._add_producer_id()
        self.transactions_count += 1
        self.open_count = 0
        self._decided = None
        self._touched.clear()

    def _write_marker(self, number: int, transactions: Transactions, *, is_commit: bool) -> None:
        self._producers[number].end_transaction(
            is_commit=is_commit,
            transaction_version=transactions.version,
            coordinator_epoch=transactions.coordinator_epoch,
        )

    # -- session

    def _save_in_time(self) -> None:
        if self._session is None:
            return
        self._session.pass_over(self.input_pos)
        if time.monotonic() - self._saved_s < SAVE_SECONDS:
            return
        if any(each.is_next_in_log for each in self._producers):
            return  # the session is ahead of this run
        self.flush()
        self._session.save()
        self._saved_s = time.monotonic()


# -- options of a producer


class ProduceOptions(NamedTuple):
    """The options of the command line. None: the topic's, the log's, or Kafka's value."""

    target: TargetOptions = TargetOptions()
    write: WriteOptions = WriteOptions()
    topic: str | None = None
    partitions_count: int | None = None
    now: str | None = None
    input_format: InputFormat = InputFormat.LINES
    bytes_as: BytesAs = BytesAs.TEXT
    key_separator: bytes | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    batch_records: int = MAX_BATCH_RECORDS
    timestamp_ms: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    transactions: Transactions | None = None
    transactional: TransactionalOptions | None = None
    lease: str | None = None
    session: str | None = None
    in_flight: int = 1
    faults: Faults | None = None
    acks_to: str | None = None
