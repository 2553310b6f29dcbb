"""Broker of a simulated cluster: a real log dir under Kafka's replication rules.

- REPL-1: a leader appends the batches of producers, and so moves its log end offset.
- REPL-2: a follower's fetch waits until there is enough data, or until its time is over.
- REPL-7: consumers get records below the high watermark, with read_committed below the last stable
  offset. Followers get all records.
- REPL-10: a leader reports to a follower where it diverges.

A broker knows only the metadata that the controller has sent, a little late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.lab.environment.leader import ACKS_ALL, NOT_ENOUGH_REPLICAS, LeaderReplica
from eoctl.lab.environment.network import (
    FENCED_LEADER_EPOCH,
    INVALID_PRODUCER_EPOCH,
    MS_US,
    NOT_LEADER,
    OFFSET_OUT_OF_RANGE,
    PRODUCER_FENCED,
    REQUEST_TIMED_OUT,
    SECOND_US,
    UNKNOWN_LEADER_EPOCH,
    ConsumerAnswer,
    FetchAnswer,
    FetchPart,
    ProduceAnswer,
)
from eoctl.lab.environment.settings import READ_COMMITTED, READ_UNCOMMITTED
from eoctl.lab.nodes.broker_life import BrokerFollower
from eoctl.lab.nodes.running_log import diverging_end
from recovery.truncate.target import EpochEnd
from storage.formats.record_batch import parse_header
from storage.producers.producer_state import AppendError
from storage.producers.transaction_metadata import ProducerIdAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eoctl.lab.environment.leader import IsrChange
    from eoctl.lab.environment.metadata import Led, MetadataView
    from eoctl.lab.environment.network import EndMarker, Network, Process, Scheduler, Timer
    from eoctl.lab.nodes.coordinator import SimulatedCoordinator
    from storage.file_names import TopicPartition
    from storage.formats.txn_index import AbortedTxn
    from storage.writing.writer import Appended

    _Key = tuple[TopicPartition, ProducerIdAndEpoch]


FETCH_BYTES = 1 << 20


class _Uncommitted(NamedTuple):
    """A batch that waits to be committed."""

    next_offset: int
    base_offset: int
    answer: Callable[[ProduceAnswer], None]
    timer: Timer


class _WaitingFetch:
    """A follower's fetch that waits for enough data (DelayedFetch)."""

    def __init__(
        self,
        follower: BrokerFollower,
        request: int,
        parts: Mapping[TopicPartition, FetchPart],
        timer: Timer,
    ) -> None:
        self.follower = follower
        self.request = request
        self.parts = parts
        self.timer = timer


class Broker(BrokerFollower):
    """One node, with its work while it runs.

    Attributes:
        leading: partitions that it leads.
    """

    peers: Mapping[int, Broker]
    coordinator: SimulatedCoordinator | None = None

    def _begin(self) -> None:
        super()._begin()
        self._beginnings = Beginnings(self, self._scheduler, self._network)
        self.leading: dict[TopicPartition, LeaderReplica] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, list[_Uncommitted]] = {}
        self._waiting_fetches: list[_WaitingFetch] = []

    def _call_off(self) -> None:
        for waiting in self._waiting.values():
            for each in waiting:
                each.timer.call_off()
        for fetch in self._waiting_fetches:
            fetch.timer.call_off()
        self._beginnings.call_off()

    # -- metadata from the controller

    def learn(self, view: MetadataView) -> None:
        """Apply the cluster's metadata: lead, follow, or wait for a leader.

        It ignores metadata older than its registration. With such metadata it could lead again in
        an epoch from before its start, without records that its disk has lost. A real broker
        answers no request before it has the metadata that its registration wrote
        (BrokerServer.startup).
        """
        if view.incarnations.get(self.number) != self.incarnation:
            return
        if self.view is not None and view.version < self.view.version:
            return
        self.view = view
        for key in self._hosted:
            led = view.partitions[key]
            leader_epoch = led.leadership.leader_epoch
            core = self.leading.get(key)
            if core is not None and core.leader_epoch == leader_epoch:
                core.fenced = view.fenced
                core.terms = core.terms._replace(min_insync=view.min_insync)
                if led.leadership.partition_epoch > core.partition_epoch:
                    core.settle(led.leadership, self._scheduler.now_us)
                self._committed(key)
                continue
            if leader_epoch <= self._epochs.get(key, -1):
                continue
            self._epochs[key] = leader_epoch
            if led.leader == self.number:
                self._lead(key, led, view)
            else:
                self._follow(key, led)

    def _lead(self, key: TopicPartition, led: Led, view: MetadataView) -> None:
        self.following.pop(key, None)
        log = self.log(key)
        log.begin_epoch(led.leadership.leader_epoch)
        terms = self._settings.isr_terms._replace(min_insync=view.min_insync)
        core = LeaderReplica(
            self.number,
            led.leadership,
            terms,
            end_offset=log.end_offset,
            high_watermark=self.high_watermarks[key],
            now_us=self._scheduler.now_us,
        )
        core.fenced = view.fenced
        self.leading[key] = core

    def _follow(self, key: TopicPartition, led: Led) -> None:
        core = self.leading.pop(key, None)
        if core is not None:
            self.high_watermarks[key] = core.high_watermark
            self._refuse_waiting(key, NOT_LEADER)
        self._begin_to_follow(key, led)

    def peer_ended(self, number: int) -> None:
        """Handle the reset of the connection to a broker."""
        super().peer_ended(number)
        self._waiting_fetches = [
            each for each in self._waiting_fetches if each.follower.number != number
        ]

    # -- leading

    def high_watermark(self, key: TopicPartition) -> int:
        """Return the high watermark of a partition, as far as it knows."""
        core = self.leading.get(key)
        return self.high_watermarks[key] if core is None else core.high_watermark

    def fetched(
        self,
        follower: BrokerFollower,
        life: int,
        request: int,
        parts: Mapping[TopicPartition, FetchPart],
    ) -> None:
        """Handle a follower's fetch (FetchRequest)."""
        if follower.incarnation != life:
            return
        for key, part in parts.items():
            core = self.leading.get(key)
            if core is None or not self._is_in_order(key, core, part):
                continue
            if core.fetched(follower.number, part.offset, self._scheduler.now_us):
                self._committed(key)
            if core.may_join(follower.number):
                self._ask(key, core, (*core.isr, follower.number))
        if self._settings.fetch_wait_max_ms <= 0 or self._is_enough(parts):
            answers = self._answers(parts)
            self._network.send(self, follower, follower.given, self.number, request, answers)
            return
        timer = self._scheduler.after(
            self._settings.fetch_wait_max_ms * MS_US,
            self._waited,
            self.incarnation,
            request,
            follower,
        )
        self._waiting_fetches.append(_WaitingFetch(follower, request, parts, timer))

    def _is_in_order(self, key: TopicPartition, core: LeaderReplica, part: FetchPart) -> bool:
        """Return whether a fetch is in this epoch, within the log, and without divergence."""
        if part.leader_epoch != core.leader_epoch or part.offset > core.end_offset:
            return False
        return self._diverging(key, part) is None

    def _is_enough(self, parts: Mapping[TopicPartition, FetchPart]) -> bool:
        """Return whether a fetch has an error, or replica.fetch.min.bytes of data."""
        lacking = self._settings.fetch_min_bytes
        for key, part in parts.items():
            core = self.leading.get(key)
            if lacking <= 0 or core is None or not self._is_in_order(key, core, part):
                return True
            if part.offset >= core.end_offset:
                continue
            if lacking == 1:
                return True  # the default, which needs no read
            batches = self.log(key).read(part.offset, core.end_offset, FETCH_BYTES)
            lacking -= sum(map(len, batches))
        return lacking <= 0

    def _waited(self, life: int, request: int, follower: BrokerFollower) -> None:
        if not self.is_running or self.incarnation != life:
            return
        for each in self._waiting_fetches:
            if each.follower is follower and each.request == request:
                self._waiting_fetches.remove(each)
                self._give(each)
                return

    def _give(self, fetch: _WaitingFetch) -> None:
        fetch.timer.call_off()
        follower = fetch.follower
        answers = self._answers(fetch.parts)
        self._network.send(self, follower, follower.given, self.number, fetch.request, answers)

    def _answers(
        self, parts: Mapping[TopicPartition, FetchPart]
    ) -> dict[TopicPartition, FetchAnswer]:
        return {key: self._answer(key, part) for key, part in parts.items()}

    def _answer(self, key: TopicPartition, part: FetchPart) -> FetchAnswer:
        core = self.leading.get(key)
        if core is None:
            return _fetch_error(NOT_LEADER)
        if part.leader_epoch != core.leader_epoch:
            is_older = part.leader_epoch < core.leader_epoch
            return _fetch_error(FENCED_LEADER_EPOCH if is_older else UNKNOWN_LEADER_EPOCH)
        log = self.log(key)
        end_offset = log.end_offset
        diverging = self._diverging(key, part)
        if diverging is None and part.offset > end_offset:
            diverging = EpochEnd(-1, end_offset)  # without epochs: the follower's log is longer
        batches = [] if diverging else log.read(part.offset, end_offset, FETCH_BYTES)
        return FetchAnswer("", batches, core.high_watermark, diverging)

    def _diverging(self, key: TopicPartition, part: FetchPart) -> EpochEnd | None:
        if part.last_epoch is None:
            return None
        log = self.log(key)
        if part.last_epoch == log.last_epoch and part.offset <= log.end_offset:
            return None  # usual case
        return diverging_end(
            log.epochs, log.end_offset, last_epoch=part.last_epoch, fetch_offset=part.offset
        )

    def _shrink(self) -> None:
        """Remove followers that do not keep up from the ISR."""
        for key, core in self.leading.items():
            leaving = core.leaving(self._scheduler.now_us)
            if leaving:
                self._ask(key, core, [each for each in core.isr if each not in leaving])

    def _ask(self, key: TopicPartition, core: LeaderReplica, isr: Iterable[int]) -> None:
        assert self.controller is not None
        change = core.propose(tuple(isr))
        self._network.send(self, self.controller, self.controller.alter, self, key, change)
        self._scheduler.after(2 * SECOND_US, self._ask_again, self.incarnation, key, core, change)

    def _ask_again(
        self, life: int, key: TopicPartition, core: LeaderReplica, change: IsrChange
    ) -> None:
        """Repeat an ISR change without an answer. The controller may not have received it."""
        is_same = self.incarnation == life and self.leading.get(key) is core
        if self.is_running and is_same and core.pending is change:
            assert self.controller is not None
            self._network.send(self, self.controller, self.controller.alter, self, key, change)
            self._scheduler.after(2 * SECOND_US, self._ask_again, life, key, core, change)

    def altered(self, key: TopicPartition, change: IsrChange, error: str, led: Led) -> None:
        """Handle the controller's answer to an ISR change."""
        core = self.leading.get(key)
        if core is None or core.pending is not change:
            return
        is_ours = led.leadership.leader_epoch == core.leader_epoch
        core.settle(led.leadership if is_ours else None, self._scheduler.now_us)
        if error:
            self._trace.report("refused", f"{self.name}: its change of the ISR is refused: {error}")
        self._committed(key)

    # -- producers and consumers

    def produce(
        self,
        client: Process,
        key: TopicPartition,
        batch: bytes,
        acks: int,
        timeout_us: int,
        answered: Callable[[ProduceAnswer], None],
        transactional_id: str | None = None,
    ) -> None:
        """Handle a producer's batch (ProduceRequest)."""

        def answer(given: ProduceAnswer) -> None:
            if acks:
                self._network.send(self, client, answered, given)

        def append(error: str = "") -> None:
            if error:
                answer(self._answer_of(error, self._epochs.get(key, -1)))
            else:
                self._append(key, write_batch, acks, timeout_us, answer)

        def write_batch() -> Appended:
            return self.log(key).append(batch, is_begun=transactional_id is not None)

        if transactional_id is not None and key in self.leading:
            header = parse_header(batch, 0)
            producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
            if self.log(key).is_fenced(*producer):  # UnifiedLog.maybeStartTransactionVerification
                append(INVALID_PRODUCER_EPOCH)
                return
            is_open = self.log(key).has_open(*producer)
            if not is_open or self._beginnings.is_waiting(key, producer):
                assert self.coordinator is not None
                self._beginnings.ask(self.coordinator, key, producer, transactional_id, append)
                return
        append()

    def write_marker(
        self,
        coordinator: Process,
        key: TopicPartition,
        marker: EndMarker,
        answered: Callable[[str], None],
    ) -> None:
        """End a transaction here for the coordinator (WriteTxnMarkers), as with acks=all."""

        def answer(given: ProduceAnswer) -> None:
            self._network.send(self, coordinator, answered, given.error)

        def write() -> Appended:
            return self.log(key).end_transaction(
                marker.producer_id,
                marker.producer_epoch,
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
            )

        self._append(key, write, ACKS_ALL, REQUEST_TIMEOUT_US, answer)

    def _append(
        self,
        key: TopicPartition,
        write: Callable[[], Appended],
        acks: int,
        timeout_us: int,
        answer: Callable[[ProduceAnswer], None],
    ) -> None:
        """Append as leader, and answer according to acks (ReplicaManager.appendRecords)."""
        core = self.leading.get(key)
        if core is None:
            answer(self._answer_of(NOT_LEADER, -1))
            return
        error = core.refusal(acks)
        if error is not None:
            answer(self._answer_of(error, core.leader_epoch))
            return
        try:
            appended = write()
        except AppendError as problem:
            answer(self._answer_of(problem.kafka_error, core.leader_epoch))
            return
        base_offset, next_offset = appended.base_offset, appended.last_offset + 1
        if acks < 0:
            timer = self._scheduler.after(
                timeout_us, self._timed_out, self.incarnation, key, next_offset, answer
            )
            waiting = self._waiting.setdefault(key, [])
            waiting.append(_Uncommitted(next_offset, base_offset, answer, timer=timer))
        core.appended(self.log(key).end_offset, self._scheduler.now_us)
        if acks > 0:
            answer(self._answer_of("", core.leader_epoch, base_offset))
        self._committed(key)
        self._wake(key)

    def _wake(self, key: TopicPartition) -> None:
        """Answer waiting fetches that have enough data."""
        asks_for_more = self._settings.fetch_min_bytes > 1  # otherwise each append is enough
        for each in [*self._waiting_fetches]:
            if key in each.parts and (not asks_for_more or self._is_enough(each.parts)):
                self._waiting_fetches.remove(each)
                self._give(each)

    def _committed(self, key: TopicPartition) -> None:
        """Answer the producers whose batches are committed."""
        core, waiting = self.leading.get(key), self._waiting.get(key)
        if core is None or not waiting:
            return
        kept = []
        for each in waiting:
            error = core.answer(each.next_offset)
            if error is None:
                kept.append(each)
                continue
            each.timer.call_off()
            each.answer(self._answer_of(error, core.leader_epoch, each.base_offset))
        self._waiting[key] = kept

    def _timed_out(
        self,
        life: int,
        key: TopicPartition,
        next_offset: int,
        answer: Callable[[ProduceAnswer], None],
    ) -> None:
        if not self.is_running or self.incarnation != life:
            return
        waiting = self._waiting.get(key, [])
        self._waiting[key] = [
            each for each in waiting if each.answer is not answer or each.next_offset != next_offset
        ]
        answer(self._answer_of(REQUEST_TIMED_OUT, self._epochs.get(key, -1)))

    def _refuse_waiting(self, key: TopicPartition, error: str) -> None:
        for each in self._waiting.pop(key, []):
            each.timer.call_off()
            each.answer(self._answer_of(error, self._epochs.get(key, -1)))

    def _answer_of(self, error: str, leader_epoch: int, base_offset: int = -1) -> ProduceAnswer:
        return ProduceAnswer(error, base_offset, self.number, leader_epoch)

    def consume(
        self,
        client: Process,
        key: TopicPartition,
        offset: int,
        answered: Callable[[ConsumerAnswer], None],
        isolation: str = READ_UNCOMMITTED,
    ) -> None:
        """Handle a consumer's fetch (FetchRequest of a client)."""
        self._network.send(self, client, answered, self._given(key, offset, isolation))

    def _given(self, key: TopicPartition, offset: int, isolation: str) -> ConsumerAnswer:
        core = self.leading.get(key)
        if core is None:
            return ConsumerAnswer(error=NOT_LEADER, batches=[], high_watermark=-1, aborted=[])
        log, high_watermark = self.log(key), core.high_watermark
        # No error up to the log end offset: the high watermark of a new leader is late.
        if offset > core.end_offset:
            return ConsumerAnswer(
                error=OFFSET_OUT_OF_RANGE, batches=[], high_watermark=high_watermark, aborted=[]
            )
        is_committed = isolation == READ_COMMITTED
        end_offset = log.last_stable_offset(high_watermark) if is_committed else high_watermark
        batches = log.read(offset, end_offset, FETCH_BYTES)
        aborted: list[AbortedTxn] = []
        if is_committed and batches:
            aborted = log.aborted_in(offset, parse_header(batches[-1], 0).last_offset + 1)
        return ConsumerAnswer(
            error="", batches=batches, high_watermark=high_watermark, aborted=aborted
        )

    def report_metadata(self, client: Process, answered: Callable[[MetadataView], None]) -> None:
        """Answer a client's request for the leaders (MetadataRequest)."""
        if self.view is not None:
            self._network.send(self, client, answered, self.view)


def _fetch_error(error: str) -> FetchAnswer:
    return FetchAnswer(error=error, batches=[], high_watermark=-1, diverging=None)


# -- transactions that begin in a partition: its leader asks the coordinator first (KIP-890).
#
# A batch of a transaction that is not open in a partition waits until the coordinator has added the
# partition to it. A late batch can thus never open a transaction without an end. Later batches of
# the same producer wait behind it.
#
# Source: AddPartitionsToTxnManager, ReplicaManager.maybeSendPartitionsToTransactionCoordinator.


REQUEST_TIMEOUT_US = 30 * SECOND_US


class _Beginning:
    """Waiting batches of one transaction."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self.appends: list[Callable[[str], None]] = []


class Beginnings:
    """Waiting batches in one life of a broker."""

    def __init__(self, broker: Process, scheduler: Scheduler, network: Network) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._network = network
        self._waiting: dict[_Key, _Beginning] = {}

    def is_waiting(self, key: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        """Return whether a request to the coordinator has no answer yet."""
        return (key, producer) in self._waiting

    def ask(
        self,
        coordinator: SimulatedCoordinator,
        key: TopicPartition,
        producer: ProducerIdAndEpoch,
        transactional_id: str,
        append: Callable[[str], None],
    ) -> None:
        """Call `append` with "" once the transaction may begin there, otherwise with an error."""
        beginning = self._waiting.get((key, producer))
        if beginning is None:
            # If the coordinator does not answer, this error makes the client send again.
            timer = self._scheduler.after(
                REQUEST_TIMEOUT_US, self._end, (key, producer), NOT_ENOUGH_REPLICAS
            )
            beginning = self._waiting[key, producer] = _Beginning(timer)

            def answered(error: str) -> None:
                if self._waiting.get((key, producer)) is beginning:
                    self._end((key, producer), error)

            self._network.send(
                self._broker, coordinator, coordinator.add_partition, self._broker,
                transactional_id, producer, key, answered,
            )  # fmt: skip
        beginning.appends.append(append)

    def _end(self, key: _Key, error: str) -> None:
        beginning = self._waiting.pop(key)
        beginning.timer.call_off()
        for append in beginning.appends:
            append(INVALID_PRODUCER_EPOCH if error == PRODUCER_FENCED else error)

    def call_off(self) -> None:
        """Cancel all timers."""
        for each in self._waiting.values():
            each.timer.call_off()
