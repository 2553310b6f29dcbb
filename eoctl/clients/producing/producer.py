"""A producer of one partition: records into batches, their identities, and the log's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.partitions.identity import NOWHERE, LogPlace
from eoctl.clients.producing.sender import Sender
from storage.errors import pasted
from storage.formats.record_batch import increment_sequence
from storage.producers.producer_state import AppendError
from storage.writing.batch_run import Values, value_batches
from storage.writing.record_builder import ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.clients.partitions.identity import Identities
    from eoctl.clients.producing.link import Faults
    from eoctl.clients.producing.sender import SentBatch
    from storage.formats.record import RecordHeader
    from storage.writing.record_builder import BatchBuilder
    from storage.writing.writer import Appended, PartitionWriter

MIN_RUN_BATCHES = 4  # fewer are sent one by one

# What to do about an answer; about the others the log's own knowledge of its producers tells more.
_NEXT_STEPS = {
    "MESSAGE_TOO_LARGE": "smaller batches or records, or a larger max.message.bytes of the topic",
    "RECORD_LIST_TOO_LARGE": "smaller batches or records, or a larger segment.bytes of the topic",
    "INVALID_TIMESTAMP": "other timestamps, or a --now that is not so far from them",
}


@dataclass(slots=True)
class ProducerOutcome:
    """What a producer has done; offsets and sequences are None if nothing was appended.

    Attributes:
        records, batches: appended.
        duplicates: records that the log had when this producer sent them; not appended again.
        skipped: records that it was known to have, and that were not sent.
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
    """How batches travel; see `sender`. `on_ack` is told of each batch that was acknowledged."""

    in_flight: int = 1
    faults: Faults | None = None
    on_ack: Callable[[PartitionWriter, SentBatch, Appended], None] | None = None


class PartitionProducer:
    """Sends records in batches to a writer.

    Args:
        writer: of the partition.
        builder: decides what a batch holds.
        identities: who sends which record.
        now_ms: the clock, asked once a batch.
        timestamp_ms: of every record that has none, in place of the clock.
        is_transactional: records belong to transactions.
        in_log: what the log has of these records already: it is not sent again.
        counts: with version 2, the records that the log has by producer id and epoch.
        sending: the way of the batches.

    Attributes:
        outcome: what was done so far.
        transaction, count: the place of the next record (see `identity`).
        in_log: None from the first record on that the log does not have.
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

    # -- what the log has already

    @property
    def is_next_in_log(self) -> bool:
        """Whether the log has the next record."""
        place = self.in_log
        here = (self.transaction, self.count)
        return place is not None and here < (place.transaction, place.records)

    def skip(self, count: int = 1) -> None:
        """Pass over records that the log has."""
        self.count += count
        self.outcome.skipped += count

    @property
    def is_end_in_log(self) -> bool:
        """Whether the log has the marker of the transaction that ends at the next record."""
        place = self.in_log
        if place is None:
            return False
        if self.identities.is_per_transaction:
            return place.transaction > self.transaction
        return place.records > self.count or (place.records == self.count and not place.is_open)

    @property
    def is_whole_in_log(self) -> bool:
        """Whether the log has all records of the transaction that ends here, not only its marker.

        With version 2 the marker's epoch says that it has ended, and nothing of its records.
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
        """Take a record; a batch that is full is sent.

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
        """Take values[start:end] as records without key: `add` for each, but faster."""
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
        """Send the full batches from `start` on at once, if that can be; returns how many values.

        Some values are always left, for the batch behind them. Before the first answer the log may
        have what is sent, and answers batch by batch.
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
        """Whether so few batches are left, by the first value, that a run does not pay."""
        builder, count = self._builder, rest.end - start
        return (
            count * len(rest.values[start]) < MIN_RUN_BATCHES * builder.batch_bytes
            and count <= MIN_RUN_BATCHES * builder.batch_records
        )

    def _next_in_log(self, producer_id: int) -> ProducerIdentity | None:
        """What the log expects of a producer; None if it does not know it."""
        state = self.writer.producers.producers.get(producer_id)
        if state is None or not state.batches:
            return None
        sequence = increment_sequence(state.last_sequence, 1)
        return ProducerIdentity(producer_id, state.producer_epoch, sequence)

    def _start_batch(self) -> None:
        self._batch_ms = self._now_ms() if self._timestamp_ms is None else self._timestamp_ms

    def send(self) -> None:
        """Send what waits."""
        count = len(self._builder)
        if not count:
            return
        identity = self.identities.at(self.transaction, self.count - count)
        batch = self._builder.build(identity, is_transactional=self._is_transactional)
        self.sender.send(batch, identity.base_sequence, count)

    def flush(self) -> None:
        """Send what waits, and wait until all is acknowledged."""
        self.send()
        self.sender.flush()

    def _append(self, batch: bytes) -> Appended:
        """Ask the leader; an answer that ends the run tells where it comes from."""
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
        # Acknowledgements may come in another order than the batches stand in the log.
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
        """Whether a marker is missing in the log, and can be written."""
        identity = self.identities.at(self.transaction, 0)
        state = self.writer.producers.producers.get(identity.producer_id)
        is_open = state is not None and state.current_txn_first_offset is not None
        return is_open and self.writer.is_ready

    def end_transaction(
        self, *, is_commit: bool, transaction_version: int, coordinator_epoch: int
    ) -> None:
        """Have the marker of the transaction appended; all of its records are acknowledged."""
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
        """Go on behind the end of a transaction, whether this partition had a part in it or not."""
        if self.identities.is_per_transaction:
            self.transaction += 1
            self.count = 0
            if self.identities.begins_id(self.transaction):
                self.sender.begin_producer()
