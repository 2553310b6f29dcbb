"""Runs of a simulated cluster: its nodes, its clients and the faults inflicted on it.

The state `quiet` begins after the effects of a fault: an expired session, an ISR change. The states
`ahead` and `isr-change` last less than a millisecond. The scheduler looks for them after every
message.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.lab.clients.consumer import CommittingConsumer, Probe, SimulatedConsumer
from eoctl.lab.clients.producer import Producer, TransactionalProducer
from eoctl.lab.environment.faults import CLIENTS, CONSUMER, PRODUCER, WhenKind, parse_faults
from eoctl.lab.environment.network import (
    MS_US,
    SECOND_US,
    EventTrace,
    HistoryWriter,
    Network,
    Scheduler,
)
from eoctl.lab.environment.settings import CONTROLLER_NAME, READ_UNCOMMITTED
from eoctl.lab.nodes.broker import Broker
from eoctl.lab.nodes.controller import Controller
from eoctl.lab.nodes.coordinator import COORDINATOR_NAME, SimulatedCoordinator, has_state
from storage.file_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eoctl.lab.environment.faults import Fault
    from eoctl.lab.environment.leader import LeaderReplica
    from eoctl.lab.environment.network import TraceEvent
    from eoctl.lab.environment.settings import PlaySettings, RunSettings


AFTER_FAULT_US = 20 * SECOND_US
QUIET_LIMIT_US = 300 * SECOND_US
STATE_LIMIT_US = 60 * SECOND_US
_WORDS = {
    "heal": "the network heals",
    "elect": "an unclean election is asked for",
    "ask": "is the partition read and written?",
}


class Serving(NamedTuple):
    """Service of the first partition at one moment.

    Attributes:
        after: faults since the previous probe.
        leader: None if no broker leads.
        is_read: a consumer gets an answer.
        records_count: records in that answer.
        write_error: error of a record with acks=all, "" if it is acknowledged.
    """

    time_us: int
    after: tuple[str, ...]
    leader: int | None
    isr: tuple[int, ...]
    is_read: bool
    records_count: int
    write_error: str

    @property
    def words(self) -> str:
        """The service in one line."""
        read = "no"
        if self.is_read:
            noun = "record" if self.records_count == 1 else "records"
            read = f"yes ({self.records_count:,} {noun})"
        write = f"no ({self.write_error})" if self.write_error else "yes"
        leader = "none" if self.leader is None else self.leader
        isr = ",".join(map(str, self.isr)) or "empty"
        return f"read {read}, write {write}; leader {leader}, ISR {isr}"


class Nemesis:
    """Injector of faults into the brokers and clients of one run.

    Attributes:
        servings: results of the `ask` actions.
        consumer, producer: clients that faults can stop, None without such a client.
    """

    def __init__(
        self,
        keys: list[TopicPartition],
        brokers: Mapping[int, Broker],
        controller: Controller,
        scheduler: Scheduler,
        network: Network,
        trace: EventTrace,
        history: HistoryWriter,
    ) -> None:
        self._keys = keys
        self._brokers = brokers
        self._controller = controller
        self._scheduler = scheduler
        self._network = network
        self._trace = trace
        self._history = history
        self._dead: list[int] = []
        self._count = 0
        self._done: list[str] = []
        self.servings: list[Serving] = []
        self.consumer: CommittingConsumer | None = None
        self.producer: Producer | None = None

    def _until(self, holds: Callable[[], bool], limit_us: int) -> bool:
        return self._scheduler.run(holds, self._scheduler.now_us + limit_us)

    # -- moments

    def await_state(self, kind: WhenKind) -> None:
        """Wait for a state of the cluster, up to a limit."""
        if kind is WhenKind.QUIET:
            self._until(lambda: False, AFTER_FAULT_US)
            self._until(self._is_settled, QUIET_LIMIT_US)
        elif kind is WhenKind.AHEAD:
            self._until(
                lambda: self._is_leader(lambda core: core.high_watermark < core.end_offset),
                STATE_LIMIT_US,
            )
            # A random delay: an answer may have arrived, a follower may have the record.
            self._until(lambda: False, self._scheduler.draw(1000))
        elif kind is WhenKind.HANDLING:
            consumer = self.consumer
            if consumer is not None and self._until(lambda: bool(consumer.left_us), STATE_LIMIT_US):
                # A random moment: before any of the records is handled, or after all.
                self._until(lambda: False, self._scheduler.draw(consumer.left_us))
        else:
            self._until(
                lambda: self._is_leader(lambda core: core.pending is not None), STATE_LIMIT_US
            )
            # The ISR change may be in flight, applied, or reported.
            spread_us = 3 * self._network.delay_us or 3000
            self._until(lambda: False, self._scheduler.draw(spread_us))

    def _is_leader(self, is_so: Callable[[LeaderReplica], bool]) -> bool:
        """Return whether the leader of the first partition runs and meets a condition."""
        key = self._keys[0]
        leader = self._brokers.get(self._controller.leader(key))
        core = leader.leading.get(key) if leader is not None and leader.is_running else None
        return core is not None and is_so(core)

    def _is_settled(self) -> bool:
        """Return whether running replicas match their leaders, and no ISR change is pending."""
        for key in self._keys:
            leader = self._brokers.get(self._controller.leader(key))
            if leader is None or not leader.is_running:
                continue
            core = leader.leading.get(key)
            if core is None or core.pending is not None:
                return False
            for each in core.replicas:
                broker = self._brokers[each]
                if broker.is_running and broker.log(key).end_offset != core.end_offset:
                    return False
        return True

    # -- faults

    def inflict(self, fault: Fault, run_number: int) -> None:
        """Inflict a fault now."""
        targets = self._targets(fault)
        self._count += 1
        words = f"{fault.action} {', '.join(f'broker {each}' for each in targets)}".strip()
        if fault.action == "set":
            words = f"set {fault.target}"
        if fault.target in CLIENTS:
            words = f"{fault.action} the {fault.target}"
        words = _WORDS.get(fault.action, words)
        self._trace.report("fault", words, targets[0] if targets else None)
        if fault.action == "ask":
            self._ask(run_number)
            return
        self._done.append(words)
        self._history.note(
            "info", "nemesis", self._count, self._scheduler.now_us, "fault",
            fault=fault.action, nodes=targets, detail=fault.target,
        )  # fmt: skip
        if fault.target == CONSUMER and self.consumer is not None:
            self._strike_consumer(fault.action, self.consumer)
        if fault.target == PRODUCER and self.producer is not None:
            self._strike_producer(fault.action, self.producer)
        for number in targets:
            self._strike(fault.action, self._brokers[number])
        if fault.action == "heal":
            self._network.heal()
        elif fault.action == "elect":
            self._controller.elect_uncleanly()
        elif fault.action == "set":
            key, _, value = fault.target.partition("=")
            if key == "min.insync.replicas":
                self._controller.set_min_insync(int(value))
            else:
                self._controller.set_unclean(is_allowed=value == "true")

    def _strike(self, action: str, broker: Broker) -> None:
        number = broker.number
        if action == "start":
            if not broker.is_running:
                if number in self._dead:
                    self._dead.remove(number)
                broker.start()
            return
        if action in {"partition", "slow"}:
            inside = {each.name for each in self._brokers.values()}
            inside |= {CONTROLLER_NAME, COORDINATOR_NAME}
            strike = self._network.isolate if action == "partition" else self._network.slow
            strike(broker.name, inside)
            return
        if number not in self._dead:
            self._dead.append(number)
        if action == "power":
            broker.lose_power()
        elif action == "kill":
            broker.kill()
        else:
            broker.stop()
            self._until(lambda: not broker.is_running, 10 * SECOND_US)

    def _strike_consumer(self, action: str, consumer: CommittingConsumer) -> None:
        if action == "start":
            if not consumer.is_running:
                consumer.restart()
        elif action == "kill":
            consumer.kill()
        else:
            consumer.close()
            self._until(lambda: not consumer.is_running, QUIET_LIMIT_US)

    def _strike_producer(self, action: str, producer: Producer) -> None:
        if action == "kill":
            before = producer.forgotten_count, producer.unsent_count
            producer.kill()
            forgotten = producer.forgotten_count - before[0]
            unsent = producer.unsent_count - before[1]
            if forgotten:
                words = f"{forgotten:,} in the memory of the producer, {unsent:,} never sent"
                self._trace.report("forgotten", words)
        elif not producer.is_running:
            producer.restart()

    def _targets(self, fault: Fault) -> list[int]:
        running = [number for number, each in self._brokers.items() if each.is_running]
        led = self._controller.led(self._keys[0])
        among = [each for each in self._brokers if each not in running]
        if fault.action != "start":
            among = running
        target = fault.target
        if not target or target in CLIENTS or fault.action == "set":
            return []
        if target.isdecimal():
            return [int(target)]
        if target == "all":
            return among
        if target in {"first", "last"}:
            dead = [each for each in self._dead if each in among]
            return dead[:1] if target == "first" else dead[-1:]
        if target == "leader":
            return [led.leader] if led.leader in among else []
        if target == "follower":
            among = [each for each in led.leadership.isr if each in among and each != led.leader]
        return [among[self._scheduler.draw(len(among))]] if among else []

    def heal(self) -> None:
        """Heal the network, and start every broker and client that is down."""
        self._network.heal()
        self._trace.report("fault", "all is healed: every broker that is down is started")
        self._history.note("info", "nemesis", self._count + 1, self._scheduler.now_us, "heal")
        for each in self._brokers.values():
            if not each.is_running:
                each.start()
        self._dead.clear()
        if self.consumer is not None and not self.consumer.is_running:
            self.consumer.restart()
        if self.producer is not None and not self.producer.is_running:
            self.producer.restart()

    # -- probes

    def _ask(self, run_number: int) -> None:
        probe = Probe(
            f"{run_number}-{len(self.servings)}", self._brokers, self._keys[0], self._scheduler,
            self._network, self._history,
        )  # fmt: skip
        probe.ask()
        led = self._controller.led(self._keys[0])
        serving = Serving(
            time_us=self._scheduler.now_us,
            after=tuple(self._done),
            leader=led.leader if led.leader >= 0 else None,
            isr=led.leadership.isr,
            is_read=probe.is_read,
            records_count=probe.records_count,
            write_error=probe.write_error,
        )
        self._done.clear()
        self.servings.append(serving)
        self._trace.report("serves", serving.words, serving.leader, key=self._keys[0])


# -- a run of a simulated cluster: nodes, clients, faults, and the healed and quiet end


STILL_US = 3600 * SECOND_US  # no record was given or answered for this long, so none will be
# For transactions, in addition to transaction.timeout.ms. Transactions wait for each other, so
# usually nothing is given once nothing is answered.
TRANSACTIONS_STILL_US = 300 * SECOND_US


class RunResult(NamedTuple):
    """Result of a run.

    Attributes:
        digest: of the history.
        is_quiet: at the end all replicas are in sync and complete, and no transaction is open.
        is_read: the final consumer has read everything, and a committing consumer has handled
            everything.
        is_answered: the producer got every record, and every record has its final answer.
        servings: results of the `ask` actions.
        dropped_count: records that failed because the producer's buffer was full.
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
    """One run over the directories of a simulated cluster."""

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
        report: Callable[[TraceEvent], None] | None = None,
    ) -> None:
        self._settings = settings
        self._run = run
        self.faults = parse_faults(run.faults, settings.nodes, run.clients)
        self.scheduler = Scheduler(run.seed)
        self.scheduler.now_us = start_us
        self._start_us = start_us
        self._network = Network(self.scheduler)
        self.trace = EventTrace(self.scheduler, report)
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
        self.coordinator: SimulatedCoordinator | None = None
        if run.is_transactional or has_state(Path(root)):
            self.coordinator = SimulatedCoordinator(
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
        """The isolation level of the consumers. Without transactions both levels read the same."""
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

    # -- steps of a run

    def run(self) -> RunResult:
        """Simulate the run to its end."""
        with _collector_paused():
            return self._simulate()

    def _simulate(self) -> RunResult:
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
            self.trace.report("dropped", words)
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

    def _first_consumer(self) -> SimulatedConsumer:
        if not self._run.has_group:
            return self._consumer("consumer-0")
        consumer = self._nemesis.consumer = CommittingConsumer(
            f"consumer-0-{self._run_number}", self.brokers, self._keys, self.scheduler,
            self._network, self.history, self.trace,
            commits_before=self._run.consumer_commit == "before", isolation=self._isolation,
        )  # fmt: skip
        return consumer

    def _end_consumer(self, consumer: SimulatedConsumer) -> bool:
        """End a consumer, and return whether a committing consumer has handled everything."""
        is_handled = True
        if isinstance(consumer, CommittingConsumer):
            is_handled = self._until(lambda: consumer.is_at_end, QUIET_LIMIT_US)
            consumer.close()
            self._until(lambda: not consumer.is_running, QUIET_LIMIT_US)
        consumer.end()
        return is_handled

    def _consumer(self, name: str, *, is_final: bool = False) -> SimulatedConsumer:
        return SimulatedConsumer(
            f"{name}-{self._run_number}", self.brokers, self._keys, self.scheduler,
            self._network, self.history, isolation=self._isolation, is_final=is_final,
        )  # fmt: skip

    def _until(self, holds: Callable[[], bool], limit_us: int) -> bool:
        return self.scheduler.run(holds, self.scheduler.now_us + limit_us)

    def _while_records_go_on(self, holds: Callable[[], bool]) -> None:
        """Run until a condition is met, or until no record is given or answered for a time."""
        still_us = STILL_US
        if self._run.is_transactional:
            still_us = TRANSACTIONS_STILL_US + self._run.transaction_timeout_ms * MS_US
        is_reached, before = False, -1
        while not is_reached and before != (now := self.producer.moved_count):
            is_reached, before = self._until(holds, still_us), now

    def is_quiet(self) -> bool:
        """Return whether all replicas are in sync and know that every record is committed."""
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
        """Return whether the cluster is quiet, with no transaction open or waiting for a marker."""
        coordinator = self.coordinator
        return (coordinator is None or coordinator.is_idle) and self.is_quiet()

    def _await(self, fault: Fault) -> None:
        if fault.kind is WhenKind.TIME:
            due_us = self._start_us + int(fault.when)
            self.scheduler.run(lambda: False, max(due_us, self.scheduler.now_us))
        elif fault.kind is WhenKind.RECORDS:
            count = fault.when * self._run.records
            self._while_records_go_on(lambda: self.producer.given_count >= count)
            # A random delay: the record may be in flight, appended, or half replicated.
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
    """Pause the garbage collector, because a run makes few cycles (33 objects in 60,000 records).

    The collector walks through all live objects repeatedly, which takes a tenth of a run's time.
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()
