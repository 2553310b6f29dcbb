"""Producer of a simulated cluster: buffer, batches, retries, sequences, final knowledge.

REPL-12: the producer sends a batch again, with the same sequence, while an answer is missing or may
change. It sends to the leader that a broker names. A record has certainly failed if it was refused
before the append. Any other record without success is unknown. The client itself loses records that
do not fit into its buffer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from eoctl.lab.checker.histories import BUFFER_FULL
from eoctl.lab.environment.leader import NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND
from eoctl.lab.environment.network import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    MS_US,
    NETWORK_EXCEPTION,
    NOT_LEADER,
    REQUEST_TIMED_OUT,
    SECOND_US,
)
from eoctl.lab.environment.settings import START_MS
from storage.writing.record_builder import BatchBuilder, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.lab.environment.metadata import MetadataView
    from eoctl.lab.environment.network import (
        HistoryWriter,
        Network,
        ProduceAnswer,
        Scheduler,
        Timer,
    )
    from eoctl.lab.environment.settings import RunSettings
    from eoctl.lab.nodes.broker import Broker
    from eoctl.lab.nodes.coordinator import SimulatedCoordinator
    from storage.file_names import TopicPartition
    from storage.producers.transaction_metadata import ProducerIdAndEpoch


REQUEST_TIMEOUT_US = 30 * SECOND_US
DELIVERY_TIMEOUT_US = 120 * SECOND_US
RETRY_BACKOFF_US = 100 * MS_US
METADATA_TIMEOUT_US = SECOND_US
DELIVERY_TIMED_OUT = "DELIVERY_TIMED_OUT"
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
# Refused before an append. NOT_LEADER is missing, because a former leader also answers waiting
# batches with it.
NOT_APPENDED = frozenset(
    {
        NOT_ENOUGH_REPLICAS,
        OUT_OF_ORDER,
        INVALID_PRODUCER_EPOCH,
        CONCURRENT_TRANSACTIONS,
        "INVALID_PRODUCER_ID_MAPPING",
    }
)
RETRIABLE = frozenset(
    {
        NOT_LEADER,
        NOT_ENOUGH_REPLICAS,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        REQUEST_TIMED_OUT,
        NETWORK_EXCEPTION,
        CONCURRENT_TRANSACTIONS,  # partitions of the previous transaction have no marker yet
    }
)
BATCH_BYTES = 1_000_000


class _GivenRecord(NamedTuple):
    number: int
    value: bytes
    at_us: int


class FlyingBatch:
    """A batch in flight.

    Attributes:
        is_unknown: an attempt had no answer, or an answer that leaves the append open.
        is_sent: an answer is expected.
        attempts: number of attempts. Answers to earlier attempts are ignored.
    """

    def __init__(self, key: TopicPartition, records: list[_GivenRecord], data: bytes) -> None:
        self.key = key
        self.records = records
        self.data = data
        self.is_unknown = False
        self.is_sent = False
        self.not_before_us = 0
        self.attempts = 0
        self.leader = -1
        self.timer: Timer | None = None
        self.expiry: Timer | None = None
        self.is_done = False


class Producer:
    """One producer, with one identity.

    Attributes:
        is_done: every record has its answer.
        answered_count: answered records, with the records in the memory of a killed producer.
        forgotten_count: records in the memory of a killed producer, which get no answer.
        unsent_count: of these, the records that were never sent.
    """

    name = "producer-0"
    incarnation = 0
    is_running = True
    transactional_id: str | None = None

    def __init__(
        self,
        settings: RunSettings,
        run_number: int,
        brokers: Mapping[int, Broker],
        keys: list[TopicPartition],
        scheduler: Scheduler,
        network: Network,
        history: HistoryWriter,
    ) -> None:
        self._settings = settings
        self._run_number = run_number
        self._brokers = brokers
        self._keys = keys
        self._scheduler = scheduler
        self._network = network
        self._history = history
        self._view: MetadataView | None = None
        self._asked = 0
        self._is_asking = False
        self._waiting: dict[TopicPartition, deque[_GivenRecord]] = {key: deque() for key in keys}
        self._flying: dict[TopicPartition, list[FlyingBatch]] = {key: [] for key in keys}
        self._sequences: dict[TopicPartition, int] = dict.fromkeys(keys, 0)
        self._producer_epochs: dict[TopicPartition, int] = dict.fromkeys(keys, 0)
        self._draining: set[TopicPartition] = set()
        self._given_count = 0
        self._buffered_count = 0
        self._is_full = False
        self._builder = BatchBuilder(batch_bytes=BATCH_BYTES)
        self._history_fields: dict[str, str] = {}  # further fields of each line
        self.is_done = False
        self.answered_count = 0
        self.dropped_count = self.forgotten_count = self.unsent_count = 0
        for each in brokers.values():
            each.clients.append(self.ended)

    @property
    def given_count(self) -> int:
        """Records that the application has given to the producer."""
        return self._given_count

    @property
    def moved_count(self) -> int:
        """A number that rises while records are given or answered."""
        return self._given_count + self.answered_count

    def start(self) -> None:
        """Begin, once the leaders are known."""
        self._ask()

    # -- life

    def kill(self) -> None:
        """End the producer at once, and forget the records in its memory."""
        for batches in self._flying.values():
            for each in batches:
                self.unsent_count += 0 if each.attempts else len(each.records)
                each.is_done = True
                for timer in (each.timer, each.expiry):
                    if timer is not None:
                        timer.call_off()
            batches.clear()
        for waiting in self._waiting.values():
            self.unsent_count += len(waiting)
            waiting.clear()
        self.forgotten_count += self._given_count - self.answered_count
        self.answered_count, self._buffered_count = self._given_count, 0
        self._is_full = self.is_running = False
        self._settle()

    def restart(self) -> None:
        """Start after a kill. Its sequences start again, as with a new producer id."""
        self.incarnation += 1
        self.is_running = True
        self._draining.clear()
        for key in self._keys:
            self._renew(key)
        if self._view is not None:  # otherwise after the first metadata
            self._ready()

    # -- incoming records

    def _next(self) -> None:
        """Take the next record of the application."""
        if self._given_count >= self._settings.records:
            return
        if self._buffered_count >= self._settings.buffered_max and self._settings.is_blocking:
            self._is_full = True
            return
        number = self._given_count
        self._given_count += 1
        key = self._keys[number % len(self._keys)]
        text = f"r{self._run_number}-{number}"
        self._history.note(
            "invoke", self.name, number, self._scheduler.now_us, "send",
            topic=key.topic, partition=key.partition, value=text, **self._history_fields,
        )  # fmt: skip
        if self._buffered_count >= self._settings.buffered_max:
            self.dropped_count += 1
            self._end(number, key, text, "fail", error=BUFFER_FULL)
        else:
            self._buffered_count += 1
            self._waiting[key].append(_GivenRecord(number, text.encode(), self._scheduler.now_us))
            delay_us = self._settings.linger_ms * MS_US
            if delay_us and len(self._waiting[key]) < self._settings.batch_records:
                self._scheduler.after(delay_us, self._lingered, key)
            else:
                self._send(key)
        if self._settings.rate:
            due_us = self._scheduler.now_us + self._pause_us()
            self._scheduler.at(due_us, self._next_of, (self.incarnation,))

    def _next_of(self, incarnation: int) -> None:
        """Take the next record, unless the producer was killed since."""
        if self.is_running and self.incarnation == incarnation:
            self._next()

    def _pause_us(self) -> int:
        """Return the time until the next record."""
        even_us, burst = SECOND_US // self._settings.rate, self._settings.burst
        near_us = min(even_us, MS_US)
        if self._given_count % burst:
            return near_us
        return burst * even_us - (burst - 1) * near_us

    def _room(self) -> None:
        self._buffered_count -= 1
        if self._is_full:
            self._is_full = False
            self._scheduler.after(0, self._next_of, self.incarnation)

    # -- outgoing batches

    def _lingered(self, key: TopicPartition) -> None:
        """Send the waiting records, because the linger of a record is over."""
        self._send(key)

    def _send(self, key: TopicPartition) -> None:
        if key in self._draining:
            if self._flying[key]:
                return
            self._draining.discard(key)
            self._renew(key)
        while self._waiting[key] and len(self._flying[key]) < self._settings.in_flight:
            records: list[_GivenRecord] = []
            while self._waiting[key] and len(records) < self._settings.batch_records:
                records.append(self._waiting[key].popleft())
            batch = FlyingBatch(key, records, self._encode(key, records))
            self._flying[key].append(batch)
            batch.expiry = self._scheduler.after(DELIVERY_TIMEOUT_US, self._expired, batch)
        self._drain(key)

    def _encode(self, key: TopicPartition, records: list[_GivenRecord]) -> bytes:
        builder = self._builder
        for each in records:
            builder.add(None, each.value, START_MS + each.at_us // MS_US)
        if not self._settings.is_idempotent:
            return builder.build()
        identity = self._identity(key)
        self._sequences[key] += len(records)
        return builder.build(identity, is_transactional=self.transactional_id is not None)

    def _identity(self, key: TopicPartition) -> ProducerIdentity:
        """Return the identity, with the sequence of the next record."""
        return ProducerIdentity(self._run_number, self._producer_epochs[key], self._sequences[key])

    def _drain(self, key: TopicPartition) -> None:
        """Send the waiting batches in order. A batch that must wait delays all later batches."""
        if not self._flying[key]:
            return
        view = self._view
        leader = -1 if view is None else view.partitions[key].leader
        for place, batch in enumerate([*self._flying[key]]):
            if batch.is_sent or batch.is_done:
                continue
            if batch.not_before_us > self._scheduler.now_us:
                return
            if place and batch.attempts and self._settings.is_idempotent:
                # Sent again one by one, because a leader remembers five batches. More batches could
                # push this batch out of that memory
                # (RecordAccumulator.shouldStopDrainBatchesForPartition).
                return
            if leader < 0:
                self._ask()
                self._wait(batch)
                return
            self._attempt(batch, leader)

    def _wait(self, batch: FlyingBatch) -> None:
        batch.is_sent = False
        batch.not_before_us = self._scheduler.now_us + RETRY_BACKOFF_US
        self._scheduler.after(RETRY_BACKOFF_US, self._drain, batch.key)

    def _attempt(self, batch: FlyingBatch, leader: int) -> None:
        batch.is_sent = True
        batch.attempts += 1
        batch.leader = leader
        broker, attempt = self._brokers[leader], batch.attempts
        if not broker.is_running:  # the connection is refused
            self._answered(batch, attempt, NETWORK_EXCEPTION, -1, -1, is_sent=False)
            return
        acks = self._settings.acks

        def answered(given: ProduceAnswer) -> None:
            if not given.error and not batch.is_done and attempt == batch.attempts:
                batch.leader = given.leader
            self._answered(batch, attempt, given.error, given.base_offset, given.leader_epoch)

        self._network.send(
            self, broker, broker.produce, self, batch.key, batch.data, acks, REQUEST_TIMEOUT_US,
            answered, self.transactional_id,
        )  # fmt: skip
        if acks:
            batch.timer = self._scheduler.after(REQUEST_TIMEOUT_US, self._silent, batch, attempt)
        else:
            self._finish(batch, "ok", offset=-1)

    def _silent(self, batch: FlyingBatch, attempt: int) -> None:
        self._answered(batch, attempt, REQUEST_TIMED_OUT, -1, -1)

    def ended(self, number: int) -> None:
        """Handle the reset of a broker's connection, whose requests have no answer."""
        for batches in self._flying.values():
            for each in [*batches]:
                if each.leader == number and each.is_sent and not each.is_done:
                    self._answered(each, each.attempts, NETWORK_EXCEPTION, -1, -1)

    def _answered(
        self,
        batch: FlyingBatch,
        attempt: int,
        error: str,
        base_offset: int,
        leader_epoch: int,
        *,
        is_sent: bool = True,
    ) -> None:
        if batch.is_done or attempt != batch.attempts or not batch.is_sent:
            return
        if batch.timer is not None:
            batch.timer.call_off()
        if not error:
            self._finish(
                batch, "ok", offset=base_offset, leader=batch.leader, leader_epoch=leader_epoch
            )
            return
        if is_sent and error not in NOT_APPENDED:
            batch.is_unknown = True
        is_retriable = error in RETRIABLE
        if error == OUT_OF_ORDER and self._settings.is_idempotent:
            is_retriable = self._goes_on_after(batch)
        if is_retriable:
            self._ask()  # the new leader, also if the batch is not sent again
            if batch.attempts <= self._settings.retries:
                self._wait(batch)
                return
        self._finish(batch, "info" if batch.is_unknown else "fail", error=error)

    def _goes_on_after(self, batch: FlyingBatch) -> bool:
        """Return True: the batch before it comes first, or is acknowledged and lost (KIP-360)."""
        if self._flying[batch.key][0] is batch:
            self._renew(batch.key)
        return True

    def _expired(self, batch: FlyingBatch) -> None:
        if batch.is_done:
            return
        if batch.timer is not None:
            batch.timer.call_off()
        is_unknown = batch.is_unknown or batch.is_sent
        self._finish(batch, "info" if is_unknown else "fail", error=DELIVERY_TIMED_OUT)

    def _finish(self, batch: FlyingBatch, kind: str, **fields: object) -> None:
        batch.is_done = True
        if batch.expiry is not None:
            batch.expiry.call_off()
        self._flying[batch.key].remove(batch)
        base_offset = fields.get("offset")
        for place, each in enumerate(batch.records):
            if isinstance(base_offset, int) and base_offset >= 0:
                fields["offset"] = base_offset + place
            self._end(each.number, batch.key, each.value.decode(), kind, **fields)
            self._room()
        if kind != "ok" and self._settings.is_idempotent:
            self._give_up(batch.key)
        self._send(batch.key)
        if not self._settings.rate and not self._waiting[batch.key]:
            self._scheduler.after(0, self._next_of, self.incarnation)

    def _give_up(self, key: TopicPartition) -> None:
        """Delay new records until the batches in flight, which keep their sequences, have ended."""
        self._draining.add(key)

    def _renew(self, key: TopicPartition) -> None:
        """Begin the sequences of a partition again, in a new producer epoch."""
        self._producer_epochs[key] += 1
        self._sequences[key] = 0
        for each in self._flying[key]:
            each.data = self._encode(key, each.records)

    def _end(
        self, number: int, key: TopicPartition, value: str, kind: str, **fields: object
    ) -> None:
        self._history.note(
            kind, self.name, number, self._scheduler.now_us, "send",
            topic=key.topic, partition=key.partition, value=value, **fields,
            **self._history_fields,
        )  # fmt: skip
        self.answered_count += 1
        self._settle()

    def _settle(self) -> None:
        """Update `is_done`."""
        self.is_done = self.answered_count >= self._settings.records

    # -- metadata

    def _ask(self) -> None:
        """Ask the brokers for metadata, one after the other."""
        if self._is_asking:
            return
        running = [each for _, each in sorted(self._brokers.items()) if each.is_running]
        self._is_asking = True
        self._asked += 1
        if running:
            broker = running[self._asked % len(running)]
            self._network.send(self, broker, broker.report_metadata, self, self.learn)
        self._scheduler.after(METADATA_TIMEOUT_US, self._ask_again, self._asked)

    def _ask_again(self, asked: int) -> None:
        if self._is_asking and asked == self._asked:
            self._is_asking = False
            self._ask()

    def learn(self, view: MetadataView) -> None:
        """Take the metadata from a broker."""
        self._is_asking = False
        is_first = self._view is None
        if self._view is None or view.version >= self._view.version:
            self._view = view
        if is_first:
            self._ready()

    def _ready(self) -> None:
        """Begin to take records."""
        if self.is_running:
            self._next()


# -- a transactional producer: begin, send, commit or abort (KIP-98, KIP-890)


class TransactionalProducer(Producer):
    """One producer with transactions, one at a time."""

    transactional_id = "eoctl-producer-0"

    def __init__(
        self,
        settings: RunSettings,
        run_number: int,
        brokers: Mapping[int, Broker],
        keys: list[TopicPartition],
        scheduler: Scheduler,
        network: Network,
        history: HistoryWriter,
        coordinator: SimulatedCoordinator,
    ) -> None:
        super().__init__(settings, run_number, brokers, keys, scheduler, network, history)
        self._coordinator = coordinator
        self._who: ProducerIdAndEpoch | None = None
        self._begun_count = 0
        self._first_number = 0  # first record of this transaction
        self._is_open = False  # it takes records
        self._is_ending = False
        self._is_held = False  # a record came in the meantime
        self._has_failed = False

    # -- life

    def kill(self) -> None:
        """End the producer at once, without an end of its transaction."""
        self._is_open = self._is_ending = self._is_held = False
        self._history_fields.clear()
        self._who = None
        super().kill()

    def restart(self) -> None:
        """Start after a kill, in a new session, which aborts the previous transaction."""
        self.incarnation += 1
        self.is_running = True
        if self._view is not None:  # otherwise after the first metadata
            self._ready()

    def _of_this_life(self, action: Callable[..., None]) -> Callable[..., None]:
        """Return an action that runs only if the producer was not killed since."""
        incarnation = self.incarnation

        def done(*given: object) -> None:
            if self.is_running and self.incarnation == incarnation:
                action(*given)

        return done

    def _later(self, action: Callable[[], None]) -> None:
        """Try again after a delay."""
        self._scheduler.after(RETRY_BACKOFF_US, self._of_this_life(action))

    # -- sessions

    def _ready(self) -> None:
        """Request the identity before the first record."""
        if not self.is_running:  # killed before the first metadata
            return
        coordinator = self._coordinator
        self._network.send(
            self, coordinator, coordinator.init_producer_id, self, self.transactional_id,
            self._settings.transaction_timeout_ms, self._of_this_life(self._begun),
        )  # fmt: skip

    def _begun(self, error: str, who: ProducerIdAndEpoch | None) -> None:
        if error:
            assert error == CONCURRENT_TRANSACTIONS, error
            self._later(self._ready)
            return
        self._go_on(who)

    def _go_on(self, who: ProducerIdAndEpoch | None) -> None:
        """Begin all sequences again, in the epoch after the last transaction."""
        assert who is not None
        is_first, self._who = self._who is None, who
        self._sequences = dict.fromkeys(self._sequences, 0)
        self._is_ending = False
        self._history_fields.clear()
        self._settle()
        if is_first or self._is_held:
            self._is_held = False
            self._next()

    def _identity(self, key: TopicPartition) -> ProducerIdentity:
        assert self._who is not None
        return ProducerIdentity(
            self._who.producer_id, self._who.producer_epoch, self._sequences[key]
        )

    # -- a transaction

    def _next(self) -> None:
        if self._is_ending:
            self._is_held = True
            return
        if not self._is_open and self._given_count < self._settings.records:
            self._begin_transaction()
        super()._next()
        if self._is_open:
            given = self._given_count - self._first_number
            is_full = given >= self._settings.transaction_records
            if is_full or self._has_failed or self._given_count >= self._settings.records:
                self._close()

    def _begin_transaction(self) -> None:
        self._begun_count += 1
        self._first_number = self._given_count
        self._is_open, self._has_failed = True, False
        self._history_fields["transaction"] = f"x{self._run_number}-{self._begun_count}"
        self._note("invoke", "begin")
        self._note("ok", "begin")

    def _end(
        self, number: int, key: TopicPartition, value: str, kind: str, **fields: object
    ) -> None:
        self._has_failed = self._has_failed or kind != "ok"
        super()._end(number, key, value, kind, **fields)
        if self._is_ending:
            self._end_if_answered()
        elif self._has_failed:
            self._close()

    def _close(self) -> None:
        """Take no more, send lingering records (RecordAccumulator.ready), end the transaction."""
        for key in self._keys:
            self._send(key)
        if self._is_open:  # otherwise a batch has failed at once, and ended it
            self._is_open, self._is_ending = False, True
            self._end_if_answered()

    def _lingered(self, key: TopicPartition) -> None:
        """Send records that have waited long enough. They may be newer than the timer."""
        waiting = self._waiting[key]
        due_us = self._scheduler.now_us - self._settings.linger_ms * MS_US
        if waiting and waiting[0].at_us <= due_us:
            super()._lingered(key)

    def _settle(self) -> None:
        """Update `is_done`, which requires all answers, and no open transaction."""
        self.is_done = False
        if not (self._is_open or self._is_ending):
            super()._settle()

    def _end_if_answered(self) -> None:
        if self.answered_count < self._given_count:
            return
        every = self._settings.abort_every
        is_on_purpose = bool(every) and self._begun_count % every == 0
        operation = "abort" if self._has_failed or is_on_purpose else "commit"
        self._note("invoke", operation)
        self._ask_end(operation)

    def _ask_end(self, operation: str) -> None:
        coordinator, who = self._coordinator, self._who

        def answered(error: str, who: ProducerIdAndEpoch | None) -> None:
            self._ended(operation, error, who)

        self._network.send(
            self, coordinator, coordinator.end_transaction, self, self.transactional_id, who,
            operation == "commit", self._of_this_life(answered),
        )  # fmt: skip

    def _ended(self, operation: str, error: str, who: ProducerIdAndEpoch | None) -> None:
        if error == CONCURRENT_TRANSACTIONS:
            self._later(lambda: self._ask_end(operation))
        elif error:
            # A refused commit has failed. A refused abort leaves the result open.
            self._note("fail" if operation == "commit" else "info", operation, error=error)
            self._ready()
        else:
            self._note("ok", operation)
            self._go_on(who)

    def _note(self, kind: str, operation: str, **fields: object) -> None:
        # Above the numbers of the records.
        number = self._settings.records + 2 * self._begun_count + (operation == "begin")
        self._history.note(
            kind, self.name, number, self._scheduler.now_us, operation,
            **fields, **self._history_fields,
        )  # fmt: skip

    # -- refused batches

    def _goes_on_after(self, batch: FlyingBatch) -> bool:
        """Return whether a missing batch before it comes first. Otherwise that batch is lost."""
        return self._flying[batch.key][0] is not batch

    def _give_up(self, key: TopicPartition) -> None:
        """Keep the sequences, because the abort of the transaction raises the epoch."""
        del key
