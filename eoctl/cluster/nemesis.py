"""Who inflicts the faults on a played cluster, waits for their moments, and asks what still serves.

`quiet` is not before what follows from a fault has been seen: a session that ends, a change of the
ISR. `ahead` and `isr-change` last for less than a millisecond; they are looked for after every
message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.cluster.clients.probe import Probe
from eoctl.cluster.faults.language import CLIENTS, CONSUMER, PRODUCER, WhenKind
from eoctl.cluster.nodes.coordinator import COORDINATOR_NAME
from eoctl.cluster.world.scheduler import SECOND_US
from eoctl.cluster.world.settings import CONTROLLER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.cluster.clients.committing import CommittingConsumer
    from eoctl.cluster.clients.producer import Producer
    from eoctl.cluster.faults.language import Fault
    from eoctl.cluster.nodes.broker import Broker
    from eoctl.cluster.nodes.controller import Controller
    from eoctl.cluster.world.history import HistoryWriter
    from eoctl.cluster.world.network import Network
    from eoctl.cluster.world.scheduler import Scheduler
    from eoctl.cluster.world.trace import EventTrace
    from storage.file_names import TopicPartition
    from storage.replication.leader import LeaderReplica

AFTER_FAULT_US = 20 * SECOND_US
QUIET_LIMIT_US = 300 * SECOND_US
STATE_LIMIT_US = 60 * SECOND_US
_WORDS = {
    "heal": "the network heals",
    "elect": "an unclean election is asked for",
    "ask": "is the partition read and written?",
}


class Serving(NamedTuple):
    """What the first partition still serves.

    Attributes:
        after: what was done since it was asked before.
        leader: None: nobody leads.
        is_read: a consumer is answered.
        records_count: that it is given.
        write_error: of a record with acks=all; "" it is acknowledged.
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
        """It in a line."""
        read = "no"
        if self.is_read:
            noun = "record" if self.records_count == 1 else "records"
            read = f"yes ({self.records_count:,} {noun})"
        write = f"no ({self.write_error})" if self.write_error else "yes"
        leader = "none" if self.leader is None else self.leader
        isr = ",".join(map(str, self.isr)) or "empty"
        return f"read {read}, write {write}; leader {leader}, ISR {isr}"


class Nemesis:
    """Faults, on the brokers of one run.

    Attributes:
        servings: what `ask` found out.
        consumer, producer: that can be killed, too; None: there is none.
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
        """Wait for a state of the cluster; it does not come for ever."""
        if kind is WhenKind.QUIET:
            self._until(lambda: False, AFTER_FAULT_US)
            self._until(self._is_settled, QUIET_LIMIT_US)
        elif kind is WhenKind.AHEAD:
            self._until(
                lambda: self._is_leader(lambda core: core.high_watermark < core.end_offset),
                STATE_LIMIT_US,
            )
            # Not always before anybody knows of it: an answer may be there, a follower have it.
            self._until(lambda: False, self._scheduler.draw(1000))
        elif kind is WhenKind.HANDLING:
            consumer = self.consumer
            if consumer is not None and self._until(lambda: bool(consumer.left_us), STATE_LIMIT_US):
                # Before any of the records, or all.
                self._until(lambda: False, self._scheduler.draw(consumer.left_us))
        else:
            self._until(
                lambda: self._is_leader(lambda core: core.pending is not None), STATE_LIMIT_US
            )
            # On its way, made, or told.
            spread_us = 3 * self._network.delay_us or 3000
            self._until(lambda: False, self._scheduler.draw(spread_us))

    def _is_leader(self, is_so: Callable[[LeaderReplica], bool]) -> bool:
        """Whether the first partition is led by one who runs, and of whom something holds."""
        key = self._keys[0]
        leader = self._brokers.get(self._controller.leader(key))
        core = leader.leading.get(key) if leader is not None and leader.is_running else None
        return core is not None and is_so(core)

    def _is_settled(self) -> bool:
        """As quiet as it can be: all who run and are led have what their leader has."""
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
        """Have it happen now."""
        targets = self._targets(fault)
        self._count += 1
        words = f"{fault.action} {', '.join(f'broker {each}' for each in targets)}".strip()
        if fault.action == "set":
            words = f"set {fault.target}"
        if fault.target in CLIENTS:
            words = f"{fault.action} the {fault.target}"
        words = _WORDS.get(fault.action, words)
        self._trace.tell("fault", words, targets[0] if targets else None)
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
                self._trace.tell("forgotten", words)
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
        """Start all, and cut nobody off any more."""
        self._network.heal()
        self._trace.tell("fault", "all is healed: every broker that is down is started")
        self._history.note("info", "nemesis", self._count + 1, self._scheduler.now_us, "heal")
        for each in self._brokers.values():
            if not each.is_running:
                each.start()
        self._dead.clear()
        if self.consumer is not None and not self.consumer.is_running:
            self.consumer.restart()
        if self.producer is not None and not self.producer.is_running:
            self.producer.restart()

    # -- questions

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
        self._trace.tell("serves", serving.words, serving.leader, key=self._keys[0])
