"""A run of a played cluster: nodes, clients, faults, and the end, when all is healed and quiet."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.cluster.clients.committing import CommittingConsumer
from eoctl.cluster.clients.consumer import PlayedConsumer
from eoctl.cluster.clients.producer import Producer
from eoctl.cluster.clients.transactional import TransactionalProducer
from eoctl.cluster.faults.language import WhenKind, parse_faults
from eoctl.cluster.nemesis import Nemesis
from eoctl.cluster.nodes.broker import Broker
from eoctl.cluster.nodes.controller import Controller
from eoctl.cluster.nodes.coordinator import PlayedCoordinator, has_state
from eoctl.cluster.world.history import HistoryWriter
from eoctl.cluster.world.network import Network
from eoctl.cluster.world.scheduler import MS_US, SECOND_US, Scheduler
from eoctl.cluster.world.settings import READ_UNCOMMITTED
from eoctl.cluster.world.trace import EventTrace
from storage.file_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eoctl.cluster.faults.language import Fault
    from eoctl.cluster.nemesis import Serving
    from eoctl.cluster.world.settings import PlaySettings, RunSettings
    from eoctl.cluster.world.trace import TraceEvent

QUIET_LIMIT_US = 300 * SECOND_US
STILL_US = 3600 * SECOND_US  # no record was given or answered for so long: none will be
# The same of transactions, beside transaction.timeout.ms: they wait for each other, so that mostly
# nothing is given any more as soon as nothing is answered.
TRANSACTIONS_STILL_US = 300 * SECOND_US


class RunResult(NamedTuple):
    """What a run came to.

    Attributes:
        digest: of the history.
        is_quiet: at the end all replicas were in sync and had all, and all transactions had ended.
        is_read: the final consumer has read all, and one that commits has handled all.
        is_answered: each record was given to the producer, and has what it is ever told of it.
        servings: what was answered to `ask`.
        dropped_count: records that the producer's buffer had no room for; they have failed.
        forgotten_count: records in the memory of a killed producer, which have no answer.
        unsent_count: of these, the records that were never sent.
    """

    digest: str
    events_count: int
    virtual_us: int
    is_quiet: bool
    is_read: bool
    is_answered: bool
    counts: dict[tuple[str, str], int]
    servings: list[Serving]
    dropped_count: int
    forgotten_count: int = 0
    unsent_count: int = 0


class Simulation:
    """One run over the directories of a played cluster."""

    def __init__(
        self,
        root: str,
        cluster: str,
        settings: PlaySettings,
        run: RunSettings,
        run_number: int,
        *,
        start_us: int = 0,
        write: Callable[[bytes], object],
        tell: Callable[[TraceEvent], None] | None = None,
    ) -> None:
        self._settings = settings
        self._run = run
        self.faults = parse_faults(run.faults, settings.nodes, run.clients)
        self.scheduler = Scheduler(run.seed)
        self.scheduler.now_us = start_us
        self._start_us = start_us
        self._network = Network(self.scheduler)
        self.trace = EventTrace(self.scheduler, tell)
        self.history = HistoryWriter(write, settings._asdict() | run._asdict())
        self.controller = Controller(
            Path(root), cluster, settings, self.scheduler, self._network, self.trace
        )
        assignment = settings.assignment
        self._keys = [TopicPartition(settings.topic, number) for number in range(len(assignment))]
        self.brokers = {
            number: Broker(
                number,
                str(Path(root, f"node-{number}")),
                [key for key in self._keys if number in assignment[key.partition]],
                settings,
                self.scheduler,
                self._network,
                self.trace,
            )
            for number in range(settings.nodes)
        }
        for each in self.brokers.values():
            each.peers = self.brokers
            each.controller = self.controller
        self.coordinator: PlayedCoordinator | None = None
        if run.is_transactional or has_state(Path(root)):
            self.coordinator = PlayedCoordinator(
                Path(root), run_number, self.brokers, self.controller, self.scheduler,
                self._network, self.trace,
            )  # fmt: skip
            for each in self.brokers.values():
                each.coordinator = self.coordinator
                each.clients.append(self.coordinator.broker_ended)
        self.producer = self._producer(run_number)
        self._run_number = run_number
        self._nemesis = Nemesis(
            self._keys, self.brokers, self.controller, self.scheduler, self._network, self.trace,
            self.history,
        )  # fmt: skip
        self._nemesis.producer = self.producer

    @property
    def _isolation(self) -> str:
        """Where nothing was ever sent in a transaction, there is no difference."""
        return READ_UNCOMMITTED if self.coordinator is None else self._run.isolation

    def _producer(self, run_number: int) -> Producer:
        parts = (
            self._run, run_number, self.brokers, self._keys, self.scheduler, self._network,
            self.history,
        )  # fmt: skip
        if not self._run.is_transactional:
            return Producer(*parts)
        assert self.coordinator is not None
        return TransactionalProducer(*parts, self.coordinator)

    # -- the course of a run

    def run(self) -> RunResult:
        """Run it to its end."""
        with _collector_paused():
            return self._play()

    def _play(self) -> RunResult:
        for each in self.brokers.values():
            each.start()
        if self.coordinator is not None:
            self.coordinator.start()
        self._until(self.is_quiet, QUIET_LIMIT_US)
        consumer = self._first_consumer()
        self.producer.start()
        consumer.start()
        for fault in self.faults:
            self._await(fault)
            self._nemesis.inflict(fault, self._run_number)
        self._while_records_go_on(lambda: self.producer.is_done)
        is_quiet = is_read = False
        if self._run.heals:
            self._nemesis.heal()
            self._while_records_go_on(lambda: self.producer.is_done)
            is_quiet = self._until(self._is_over, QUIET_LIMIT_US)
            is_handled = self._end_consumer(consumer)
            final = self._consumer("consumer-final", is_final=self.producer.is_done)
            final.start()
            is_read = self._until(lambda: final.is_at_end, QUIET_LIMIT_US) and is_handled
            final.end()
            self._stop_all()
        else:
            if isinstance(consumer, CommittingConsumer):
                consumer.kill()
            consumer.end()
            for each in self.brokers.values():
                each.kill()
        self.controller.close()
        if self.coordinator is not None:
            self.coordinator.close()
        dropped = self.producer.dropped_count
        if dropped:
            words = f"dropped by the client: {dropped:,}, for which its buffer had no room"
            self.trace.tell("dropped", words)
        return RunResult(
            digest=self.history.digest,
            events_count=self.scheduler.events_count,
            virtual_us=self.scheduler.now_us - self._start_us,
            is_quiet=is_quiet,
            is_read=is_read,
            is_answered=self.producer.is_done,
            counts=self.history.counts,
            servings=self._nemesis.servings,
            dropped_count=dropped,
            forgotten_count=self.producer.forgotten_count,
            unsent_count=self.producer.unsent_count,
        )

    def _first_consumer(self) -> PlayedConsumer:
        if not self._run.has_group:
            return self._consumer("consumer-0")
        consumer = self._nemesis.consumer = CommittingConsumer(
            f"consumer-0-{self._run_number}", self.brokers, self._keys, self.scheduler,
            self._network, self.history, self.trace,
            commits_before=self._run.consumer_commit == "before", isolation=self._isolation,
        )  # fmt: skip
        return consumer

    def _end_consumer(self, consumer: PlayedConsumer) -> bool:
        """End it; whether one that commits has handled all."""
        is_handled = True
        if isinstance(consumer, CommittingConsumer):
            is_handled = self._until(lambda: consumer.is_at_end, QUIET_LIMIT_US)
            consumer.close()
            self._until(lambda: not consumer.is_running, QUIET_LIMIT_US)
        consumer.end()
        return is_handled

    def _consumer(self, name: str, *, is_final: bool = False) -> PlayedConsumer:
        return PlayedConsumer(
            f"{name}-{self._run_number}", self.brokers, self._keys, self.scheduler,
            self._network, self.history, isolation=self._isolation, is_final=is_final,
        )  # fmt: skip

    def _until(self, holds: Callable[[], bool], limit_us: int) -> bool:
        return self.scheduler.run(holds, self.scheduler.now_us + limit_us)

    def _while_records_go_on(self, holds: Callable[[], bool]) -> None:
        """Run until something holds, however many records there are; at last nothing moves."""
        still_us = STILL_US
        if self._run.is_transactional:
            still_us = TRANSACTIONS_STILL_US + self._run.transaction_timeout_ms * MS_US
        is_reached, before = False, -1
        while not is_reached and before != (now := self.producer.moved_count):
            is_reached, before = self._until(holds, still_us), now

    def is_quiet(self) -> bool:
        """All replicas are in sync, and have all, and know that it is committed."""
        for key in self._keys:
            leader = self.brokers.get(self.controller.leader(key))
            if leader is None or not leader.is_running or key not in leader.leading:
                return False
            core = leader.leading[key]
            ends = {
                self.brokers[each].high_watermark(key) if self.brokers[each].is_running else -1
                for each in core.replicas
            }
            ends |= {each.end_offset for each in core.followers.values()}
            is_whole = len(core.isr) == len(core.replicas) and core.pending is None
            if not is_whole or ends != {core.end_offset}:
                return False
        return True

    def _is_over(self) -> bool:
        """It is quiet, and no transaction is open or waits for a marker."""
        coordinator = self.coordinator
        return (coordinator is None or coordinator.is_idle) and self.is_quiet()

    def _await(self, fault: Fault) -> None:
        if fault.kind is WhenKind.TIME:
            due_us = self._start_us + int(fault.when)
            self.scheduler.run(lambda: False, max(due_us, self.scheduler.now_us))
        elif fault.kind is WhenKind.RECORDS:
            count = fault.when * self._run.records
            self._while_records_go_on(lambda: self.producer.given_count >= count)
            # Not always as the record is given: it may be on its way, appended, half replicated.
            delay_us = self.scheduler.draw(5000)
            self.scheduler.run(lambda: False, self.scheduler.now_us + delay_us)
        else:
            self._nemesis.await_state(fault.kind)
        if fault.state is not None:
            self._nemesis.await_state(fault.state)

    def _stop_all(self) -> None:
        for each in self.brokers.values():
            if each.is_running:
                each.stop()
                self._until(lambda each=each: not each.is_running, 10 * SECOND_US)  # type: ignore[misc]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Let no garbage be looked for: a run makes next to no cycles (33 objects in 60,000 records).

    The collector walks through all that is kept again and again: a tenth of the time of a run.
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()
