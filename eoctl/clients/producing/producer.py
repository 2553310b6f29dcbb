"""A producer of one partition: records in batches, sent again until they are acknowledged."""

from __future__ import annotations

import json
from bisect import insort
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from eoctl.clients.partitions.identity import NOWHERE, LogPlace
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import EXIT_ACCESS, AccessError, EoctlError, UsageError, os_errors, pasted
from storage.formats.record_batch import increment_sequence, parse_header
from storage.producers.producer_state import CACHED_BATCHES_COUNT, AppendError
from storage.writing.batch_run import Values, value_batches
from storage.writing.record_builder import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.clients.partitions.identity import Identities
    from storage.files.fsio import FileSystem
    from storage.formats.record import RecordHeader
    from storage.writing.record_builder import BatchBuilder
    from storage.writing.writer import Appended, PartitionWriter


# -- a faulty network between a producer and its leader
#
# A request may be dropped before the log, or overtaken by a later request. Or it is applied and its
# answer is lost. The producer does not learn which. A seed determines all of this, in every version
# of Python. Only `Random.random` is used, whose sequence is guaranteed to stay.


Request = TypeVar("Request")

_EXAMPLE = "--fault drop=0.1,reorder=0.2,lost-ack=0.05,seed=7"


class Faults(NamedTuple):
    """The probability of each fault per request, and the seed of all draws."""

    drop: float = 0.0
    reorder: float = 0.0
    lost_ack: float = 0.0
    seed: int = 0


def parse_faults(text: str) -> Faults:
    """Parse `drop=0.1,reorder=0.2,lost-ack=0.05,seed=7`. The default is 0.

    Raises:
        UsageError: a name or number is invalid, or nothing would ever arrive.
    """
    given: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (each.strip() for each in part.partition("="))
        field = name.replace("-", "_")
        if field not in Faults._fields or "_" in name:
            raise _refused(f"{name[:40]!r} is no fault, expected drop, reorder, lost-ack or seed")
        if field in given:
            raise _refused(f"{name} is given twice")
        given[field] = _seed(number) if field == "seed" else _probability(name, number)
    for name, field in (("drop", "drop"), ("lost-ack", "lost_ack")):
        if given.get(field, 0.0) >= 1:
            raise _refused(f"with {name}=1 no batch is ever acknowledged")
    return Faults()._replace(**given)  # type: ignore[arg-type]  # a seed is an int


def _seed(number: str) -> int:
    if not (number.isascii() and number.isdecimal() and len(number) <= 20):
        raise _refused(f"seed={number[:40]}: expected a whole number, 0 or more")
    return int(number)


def _probability(name: str, number: str) -> float:
    try:
        probability = float(number.replace("_", "?"))  # underscores are only Python's notation
    except ValueError:
        probability = -1.0
    if not 0 <= probability <= 1:  # NaN is refused, too
        raise _refused(f"{name}={number[:40]}: expected a probability, 0 to 1")
    return probability


def _refused(what: str) -> UsageError:
    return UsageError(f"--fault: {what}", next_step=_EXAMPLE)


class Fate(Enum):
    """The result of a request."""

    ANSWERED = "answered"
    DROPPED = "dropped"  # the leader has not received it
    ACK_LOST = "ack lost"  # the leader has handled it, but the answer is lost


class Link(Generic[Request]):
    """The requests in flight, and their faults.

    Attributes:
        drops, reorders, lost_acks: numbers of these faults.
    """

    def __init__(self, faults: Faults) -> None:
        self.drops = 0
        self.reorders = 0
        self.lost_acks = 0
        self._faults = faults
        self._random = Random(faults.seed).random  # noqa: S311  # no secret depends on it
        self._requests: list[Request] = []

    def __len__(self) -> int:
        """Return the number of requests in flight."""
        return len(self._requests)

    def put(self, request: Request) -> None:
        """Send a request after all others."""
        self._requests.append(request)

    def take(self) -> tuple[Request, Fate]:
        """Remove a request in flight, and return it with its result. There must be a request."""
        faults = self._faults
        index = 0
        later_count = len(self._requests) - 1
        if later_count and self._random() < faults.reorder:
            index = 1 + int(self._random() * later_count)
            self.reorders += 1
        request = self._requests.pop(index)
        if self._random() < faults.drop:
            self.drops += 1
            return request, Fate.DROPPED
        if self._random() < faults.lost_ack:
            self.lost_acks += 1
            return request, Fate.ACK_LOST
        return request, Fate.ANSWERED

    def clear(self) -> None:
        """Lose all requests in flight."""
        self._requests.clear()


# -- a producer's sender: batches to the leader, several in flight, and again until acknowledged.
#
# With idempotence the log then has each record once and in order, whatever the link does.
# 1. The leader answers a batch that is among the producer's last five, and does not write it again.
# 2. The leader refuses a batch that leaves a gap: OUT_OF_ORDER_SEQUENCE_NUMBER.
# 3. The sender repeats such a batch, unless all batches before it are acknowledged. In that case
#    the sender has not caused the gap.
# 4. Batches that wait to be sent again are in the order of their sequence numbers. Only the next
#    batch to be acknowledged is sent.
# 5. A batch waits if it is five or more after the oldest batch without acknowledgement. That batch
#    may be in the log, and the leader must still know it.
# 6. The first batch is acknowledged before the second is sent. A leader accepts any sequence number
#    as the first of an unknown producer, and an overtaken batch would then never fit.
#
# Without idempotence, batches without acknowledgement are sent again in any case. The log then has
# duplicate records, and overtaken batches out of order.
#
# Source: Sender, TransactionManager (canRetry, isNextSequence), RecordAccumulator
# (insertInSequenceOrder, shouldStopDrainBatchesForPartition). There, one connection keeps answers
# in order, so if an older batch has no answer, later batches have none. Here answers are lost one
# by one, and the limit of five has the same effect. Time does not pass. A loss is noticed when
# nothing else is in flight.


MAX_ATTEMPTS = 1000
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class SentBatch(NamedTuple):
    """A batch as it was given to the sender. `tag` belongs to the caller."""

    batch: bytes
    first_sequence: int
    records_count: int
    tag: Any


class SenderStats(NamedTuple):
    """The totals of a sender and its link.

    `requests` counts all requests, `retries` the requests that were not the first of their batch.
    `duplicates` are batches that the leader knew already.
    """

    requests: int
    drops: int
    reorders: int
    lost_acks: int
    retries: int
    duplicates: int


class DeliveryTimeoutError(EoctlError):
    """A batch was sent many times and never acknowledged (delivery.timeout.ms)."""

    exit_status = EXIT_ACCESS


class _Waiting:
    """A batch without acknowledgement. `number` counts the sender's batches."""

    __slots__ = ("attempts", "number", "sent")

    def __init__(self, number: int, sent: SentBatch) -> None:
        self.number = number
        self.sent = sent
        self.attempts = 0


_by_number = attrgetter("number")


class Sender:
    """A sender of the batches of one producer to one partition.

    Args:
        append: the leader: `PartitionWriter.append`.
        in_flight: maximum number of batches without acknowledgement
            (max.in.flight.requests.per.connection).
        faults: of the link. None: there is no link, and each batch is appended at once. Senders
            with equal seeds have equal faults.
        is_idempotent: the batches have sequence numbers.
        on_ack: gets each batch once, when its acknowledgement arrives. If an earlier batch was lost
            in flight, that is before the earlier batch.
    """

    def __init__(
        self,
        append: Callable[[bytes], Appended],
        *,
        in_flight: int,
        faults: Faults | None,
        is_idempotent: bool,
        on_ack: Callable[[SentBatch, Appended], None] | None = None,
    ) -> None:
        if not 1 <= in_flight <= CACHED_BATCHES_COUNT:
            raise UsageError(
                f"--in-flight {in_flight}: expected 1 to {CACHED_BATCHES_COUNT}, since that many"
                " batches of a producer are known to a broker"
            )
        self._append = append
        self._in_flight = in_flight
        self._is_idempotent = is_idempotent
        self._on_ack = on_ack
        self._link: Link[_Waiting] | None = None if faults is None else Link(faults)
        self._queue: list[_Waiting] = []  # to send, by number
        self._lost: list[_Waiting] = []  # lost, but not noticed yet
        self._unacknowledged: list[_Waiting] = []  # all of these batches, by number
        self._sent_count = 0
        self._is_known = False  # the leader has acknowledged a batch of this producer
        self._requests = self._retries = self._duplicates = 0

    @property
    def stats(self) -> SenderStats:
        """The totals so far."""
        link = self._link
        return SenderStats(
            requests=self._requests,
            drops=0 if link is None else link.drops,
            reorders=0 if link is None else link.reorders,
            lost_acks=0 if link is None else link.lost_acks,
            retries=self._retries,
            duplicates=self._duplicates,
        )

    def begin_producer(self) -> None:
        """Continue with another producer id that the leader does not know. All is acknowledged."""
        self._is_known = False

    def send(self, batch: bytes, first_sequence: int, records_count: int, tag: Any = None) -> None:
        """Send a batch. Return when it is in flight, which may be before it is in the log.

        Raises:
            AppendError: the leader's answer to this or an earlier batch, if sending it again does
                not help. All batches in flight are forgotten. They may be in the log or not.
            DeliveryTimeoutError, AccessError: batches in flight are forgotten, too.
        """
        sent = SentBatch(
            batch=batch, first_sequence=first_sequence, records_count=records_count, tag=tag
        )
        if self._link is None:
            self._requests += 1
            self._acknowledge(sent, self._append(batch))
            return
        waiting = _Waiting(self._sent_count, sent)
        self._sent_count += 1
        self._queue.append(waiting)
        self._unacknowledged.append(waiting)
        self._run(self._link, until_acknowledged=False)

    def flush(self) -> None:
        """Return when every batch is acknowledged.

        Raises:
            AppendError, DeliveryTimeoutError, AccessError: as `send`.
        """
        if self._link is not None:
            self._run(self._link, until_acknowledged=True)

    def _run(self, link: Link[_Waiting], *, until_acknowledged: bool) -> None:
        try:
            while True:
                self._transmit(link)
                if not self._queue and not (until_acknowledged and self._unacknowledged):
                    return
                if len(link):
                    self._deliver(link)
                else:
                    for waiting in self._lost:
                        insort(self._queue, waiting, key=_by_number)
                    self._lost.clear()
        except BaseException:
            link.clear()
            for each in (self._queue, self._lost, self._unacknowledged):
                each.clear()
            raise

    def _transmit(self, link: Link[_Waiting]) -> None:
        """Put the allowed batches on the link, in order."""
        in_flight = self._in_flight if self._is_known or not self._is_idempotent else 1
        while self._queue:
            waiting = self._queue[0]
            next_number = self._unacknowledged[0].number
            if waiting.number >= next_number + in_flight:
                return
            if waiting.attempts and self._is_idempotent and waiting.number != next_number:
                return
            if waiting.attempts >= MAX_ATTEMPTS:
                raise DeliveryTimeoutError(
                    f"a batch was sent {MAX_ATTEMPTS} times and not acknowledged (sequence"
                    f" {waiting.sent.first_sequence}, {waiting.sent.records_count} records)",
                    next_step="--fault with less of drop and lost-ack",
                )
            del self._queue[0]
            self._retries += waiting.attempts > 0
            waiting.attempts += 1
            self._requests += 1
            link.put(waiting)

    def _deliver(self, link: Link[_Waiting]) -> None:
        """Complete one request."""
        waiting, fate = link.take()
        if fate is Fate.DROPPED:
            self._lost.append(waiting)
            return
        answer: Appended | AppendError
        try:
            answer = self._append(waiting.sent.batch)
        except AppendError as exc:
            answer = exc.without_frames()
        if fate is Fate.ACK_LOST:
            self._lost.append(waiting)
        elif not isinstance(answer, AppendError):
            self._unacknowledged.remove(waiting)
            self._is_known = True
            self._acknowledge(waiting.sent, answer)
        elif self._is_repairable(waiting, answer):
            insort(self._queue, waiting, key=_by_number)
        else:
            raise answer

    def _is_repairable(self, waiting: _Waiting, answer: AppendError) -> bool:
        """Return whether a batch was only too early."""
        return (
            self._is_idempotent
            and answer.kafka_error == OUT_OF_ORDER
            and waiting is not self._unacknowledged[0]
        )

    def _acknowledge(self, sent: SentBatch, appended: Appended) -> None:
        self._duplicates += appended.is_duplicate
        if self._on_ack is not None:
            self._on_ack(sent, appended)


# -- acknowledgements as JSON lines, one for each batch, in the order in which they arrive


class AckFile:
    """A file with a line for each batch that was acknowledged. It is not synced.

    Raises:
        RefusedError: it is in a log dir.
        AccessError: it cannot be written.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        require_outside_log_dirs(path, place=Path(path).absolute().parent)
        self._fs = fs
        try:
            try:
                self._file = fs.open_new(path, 0o644)
            except FileExistsError:
                self._file = fs.open_existing(path)
        except OSError as exc:
            raise AccessError(exc, path) from exc

    def write(self, writer: PartitionWriter, sent: SentBatch, appended: Appended) -> None:
        """Write the line of a batch. Raises AccessError."""
        header = parse_header(sent.batch, 0)
        row = {
            "partition": Path(writer.store.directory).name,
            "base_offset": appended.base_offset,
            "last_offset": appended.last_offset,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "records": sent.records_count,
            "duplicate": appended.is_duplicate,
        }
        with os_errors(self._file.path):
            self._fs.write(self._file, json.dumps(row).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        with os_errors(self._file.path):
            self._fs.close(self._file)


# -- a producer of one partition: records into batches, their identities, and the log's answers


MIN_RUN_BATCHES = 4  # fewer are sent one by one

# Next steps by error. For other errors `eoctl producers` shows more.
_NEXT_STEPS = {
    "MESSAGE_TOO_LARGE": "smaller batches or records, or a larger max.message.bytes of the topic",
    "RECORD_LIST_TOO_LARGE": "smaller batches or records, or a larger segment.bytes of the topic",
    "INVALID_TIMESTAMP": "other timestamps, or a --now that is not so far from them",
}


@dataclass(slots=True)
class ProducerOutcome:
    """The totals of a producer. Offsets and sequences are None if nothing was appended.

    Attributes:
        records, batches: appended.
        duplicates: records that the log had when this producer sent them, not appended again.
        skipped: records that the log was known to have, and that were not sent.
        committed, aborted: transactions that were ended here.
    """

    records: int = 0
    batches: int = 0
    duplicates: int = 0
    skipped: int = 0
    committed: int = 0
    aborted: int = 0
    base_offset: int | None = None
    last_offset: int | None = None
    base_sequence: int | None = None
    last_sequence: int | None = None


class Sending(NamedTuple):
    """The settings of a sender, see `Sender`. `on_ack` gets each batch that was acknowledged."""

    in_flight: int = 1
    faults: Faults | None = None
    on_ack: Callable[[PartitionWriter, SentBatch, Appended], None] | None = None


class PartitionProducer:
    """A producer that sends records in batches to a writer.

    Args:
        writer: of the partition.
        builder: decides the content of a batch.
        identities: of the records.
        now_ms: the clock, read once per batch.
        timestamp_ms: used instead of the clock for records without a timestamp.
        is_transactional: records belong to transactions.
        in_log: the place up to which the log has the records, which are not sent again.
        counts: with version 2, the records that the log has by producer id and epoch.
        sending: settings of the sender.

    Attributes:
        outcome: the totals so far.
        transaction, count: the place of the next record (see `identity`).
        in_log: None from the first record that the log does not have.
    """

    def __init__(
        self,
        writer: PartitionWriter,
        builder: BatchBuilder,
        identities: Identities,
        *,
        now_ms: Callable[[], int],
        timestamp_ms: int | None = None,
        is_transactional: bool = False,
        in_log: LogPlace = NOWHERE,
        counts: Mapping[tuple[int, int], int] | None = None,
        sending: Sending = Sending(),  # noqa: B008 - immutable
    ) -> None:
        self.writer = writer
        self.identities = identities
        self.outcome = ProducerOutcome()
        self.transaction = 0
        self.count = 0
        self.in_log: LogPlace | None = in_log
        self._counts = counts or {}
        self._first_offset = writer.end_offset
        self._builder = builder
        self._now_ms = now_ms
        self._timestamp_ms = timestamp_ms
        self._is_transactional = is_transactional
        self._batch_ms = 0
        self._on_ack = sending.on_ack
        self._sends_runs = sending.faults is None and sending.on_ack is None
        self.sender = Sender(
            self._append,
            in_flight=sending.in_flight,
            faults=sending.faults,
            is_idempotent=identities.first.base_sequence >= 0,
            on_ack=self._acknowledge,
        )

    # -- records that the log has already

    @property
    def is_next_in_log(self) -> bool:
        """True if the log has the next record."""
        place = self.in_log
        here = (self.transaction, self.count)
        return place is not None and here < (place.transaction, place.records)

    def skip(self, count: int = 1) -> None:
        """Skip records that the log has."""
        self.count += count
        self.outcome.skipped += count

    @property
    def is_end_in_log(self) -> bool:
        """True if the log has the marker of the transaction that ends at the next record."""
        place = self.in_log
        if place is None:
            return False
        if self.identities.is_per_transaction:
            return place.transaction > self.transaction
        return place.records > self.count or (place.records == self.count and not place.is_open)

    @property
    def is_whole_in_log(self) -> bool:
        """True if the log has all records of the transaction that ends here, not only its marker.

        With version 2 the marker's epoch proves that the transaction has ended, but not its
        records.
        """
        identity = self.identities.at(self.transaction, 0)
        found = self._counts.get((identity.producer_id, identity.producer_epoch))
        return found is None or found == self.count

    # -- sending

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[RecordHeader, ...] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record. A full batch is sent.

        Raises:
            AppendError, AccessError: as `PartitionWriter.append`.
        """
        self.in_log = None
        builder = self._builder
        if not len(builder):
            self._start_batch()
        time_ms = self._batch_ms if timestamp_ms is None else timestamp_ms
        if not builder.add(key, value, time_ms, headers):
            self.send()
            self._start_batch()
            time_ms = self._batch_ms if timestamp_ms is None else timestamp_ms
            builder.add(key, value, time_ms, headers)
        self.count += 1

    def add_values(self, values: list[bytes], start: int, end: int) -> None:
        """Add values[start:end] as records without key, faster than by `add`."""
        self.in_log = None
        builder = self._builder
        rest = Values(values, start, end)
        while start < end:
            if not len(builder):
                self._start_batch()
                start += self._send_run(rest, start)
            taken_end = builder.add_values(values, start, end, self._batch_ms)
            self.count += taken_end - start
            start = taken_end
            if start < end:
                self.send()

    def _send_run(self, rest: Values, start: int) -> int:
        """Send the full batches from `start` on at once, if possible. Return the number of values.

        Some values are always left, for the next batch. Before the first answer the log may have
        the records, and answers batch by batch.
        """
        builder, writer = self._builder, self.writer
        if not self._sends_runs or builder.is_compressed or self._is_short(rest, start):
            return 0
        identity = self.identities.at(self.transaction, self.count)
        if identity != self._next_in_log(identity.producer_id):
            return 0
        batches = value_batches(
            rest,
            start,
            batch_bytes=builder.batch_bytes,
            batch_records=builder.batch_records,
            timestamp_ms=self._batch_ms,
        )
        count = writer.room_for(batches.parts())
        if count < MIN_RUN_BATCHES:
            return 0
        run = batches.encode(
            count,
            identity,
            writer.end_offset,
            writer.leader_epoch,
            is_transactional=self._is_transactional,
        )
        writer.append_run(run)
        first, *_, last = run.headers
        self._count_appended(first.base_offset, last.last_offset, first.base_sequence, count)
        records_count = last.last_offset - first.base_offset + 1
        self.count += records_count
        return records_count

    def _is_short(self, rest: Values, start: int) -> bool:
        """Return whether too few batches are left for a run, by the size of the first value."""
        builder, count = self._builder, rest.end - start
        return (
            count * len(rest.values[start]) < MIN_RUN_BATCHES * builder.batch_bytes
            and count <= MIN_RUN_BATCHES * builder.batch_records
        )

    def _next_in_log(self, producer_id: int) -> ProducerIdentity | None:
        """Return the next identity that the log expects of a producer, None if it is unknown."""
        state = self.writer.producers.producers.get(producer_id)
        if state is None or not state.batches:
            return None
        sequence = increment_sequence(state.last_sequence, 1)
        return ProducerIdentity(producer_id, state.producer_epoch, sequence)

    def _start_batch(self) -> None:
        self._batch_ms = self._now_ms() if self._timestamp_ms is None else self._timestamp_ms

    def send(self) -> None:
        """Send the records that wait for a full batch."""
        count = len(self._builder)
        if not count:
            return
        identity = self.identities.at(self.transaction, self.count - count)
        batch = self._builder.build(identity, is_transactional=self._is_transactional)
        self.sender.send(batch, identity.base_sequence, count)

    def flush(self) -> None:
        """Send all records, and wait until they are acknowledged."""
        self.send()
        self.sender.flush()

    def _append(self, batch: bytes) -> Appended:
        """Append a batch. An error gets the directory and a next step."""
        try:
            return self.writer.append(batch)
        except AppendError as exc:
            path = self.writer.store.directory
            next_step = _NEXT_STEPS.get(exc.kafka_error, f"eoctl producers {pasted(path)}")
            raise exc.located(path, next_step) from None

    def _acknowledge(self, sent: SentBatch, appended: Appended) -> None:
        if self._on_ack is not None:
            self._on_ack(self.writer, sent, appended)
        if appended.base_offset < self._first_offset:
            self.outcome.duplicates += sent.records_count
            return
        self._count_appended(appended.base_offset, appended.last_offset, sent.first_sequence, 1)

    def _count_appended(
        self, base_offset: int, last_offset: int, first_sequence: int, batches_count: int
    ) -> None:
        done, count = self.outcome, last_offset - base_offset + 1
        done.records += count
        done.batches += batches_count
        # Acknowledgements may arrive in another order than the batches have in the log.
        if done.base_offset is None or base_offset < done.base_offset:
            done.base_offset = base_offset
            done.base_sequence = first_sequence if first_sequence >= 0 else None
        if done.last_offset is None or last_offset > done.last_offset:
            done.last_offset = last_offset
            if first_sequence >= 0:
                done.last_sequence = increment_sequence(first_sequence, count - 1)

    # -- transactions

    @property
    def has_open_transaction(self) -> bool:
        """True if a marker is missing in the log, and can be written."""
        identity = self.identities.at(self.transaction, 0)
        state = self.writer.producers.producers.get(identity.producer_id)
        is_open = state is not None and state.current_txn_first_offset is not None
        return is_open and self.writer.is_ready

    def end_transaction(
        self, *, is_commit: bool, transaction_version: int, coordinator_epoch: int
    ) -> None:
        """Append the marker of the transaction, after all of its records were acknowledged."""
        identity = self.identities.at(self.transaction, 0)
        epoch = identity.producer_epoch + (1 if self.identities.is_per_transaction else 0)
        self.writer.end_transaction(
            identity.producer_id,
            epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        self.note_end(is_commit=is_commit)

    def note_end(self, *, is_commit: bool) -> None:
        """Count a transaction that was ended."""
        if is_commit:
            self.outcome.committed += 1
        else:
            self.outcome.aborted += 1

    def next_transaction(self) -> None:
        """Continue with the next transaction, even if this partition had no part in the last."""
        if self.identities.is_per_transaction:
            self.transaction += 1
            self.count = 0
            if self.identities.begins_id(self.transaction):
                self.sender.begin_producer()
