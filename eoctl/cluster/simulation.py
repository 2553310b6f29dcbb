"""A run of a played cluster: nodes, clients, faults, and the end, when all is healed and quiet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.cluster.broker import Broker
from eoctl.cluster.consumer import PlayedConsumer
from eoctl.cluster.controller import Controller
from eoctl.cluster.faults import WhenKind, parse_faults
from eoctl.cluster.history import HistoryWriter
from eoctl.cluster.network import Network
from eoctl.cluster.producer import Producer
from eoctl.cluster.scheduler import SECOND_US, Scheduler
from eoctl.cluster.settings import CONTROLLER_NAME
from eoctl.cluster.trace import EventTrace
from storage.file_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.cluster.faults import Fault
    from eoctl.cluster.settings import PlaySettings, RunSettings
    from eoctl.cluster.trace import TraceEvent

QUIET_LIMIT_US = 300 * SECOND_US
FAULT_GRACE_US = 3600 * SECOND_US
AFTER_FAULT_US = 20 * SECOND_US  # `quiet` is not before what follows from a fault has been seen


class RunResult(NamedTuple):
    """What a run came to.

    Attributes:
        digest: of the history.
        is_quiet: at the end all replicas were in sync and had all.
        is_read: the final consumer has read all.
    """

    digest: str
    events_count: int
    virtual_us: int
    is_quiet: bool
    is_read: bool
    counts: dict[tuple[str, str], int]


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
        self.faults = parse_faults(run.faults, settings.nodes)
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
        self.producer = Producer(
            run, run_number, self.brokers, self._keys, self.scheduler, self._network, self.history
        )
        self._run_number = run_number
        self._dead: list[int] = []
        self._faults_count = 0

    # -- the course of a run

    def run(self) -> RunResult:
        """Run it to its end."""
        for each in self.brokers.values():
            each.start()
        self._until(self.is_quiet, QUIET_LIMIT_US)
        consumer = self._consumer("consumer-0")
        self.producer.start()
        consumer.start()
        for fault in self.faults:
            self._await(fault)
            self._inflict(fault)
        self._until(lambda: self.producer.is_done, FAULT_GRACE_US)
        is_quiet = is_read = False
        if self._run.heals:
            self._heal()
            is_quiet = self._until(self.is_quiet, QUIET_LIMIT_US)
            consumer.end()
            final = self._consumer("consumer-final", is_final=True)
            final.start()
            is_read = self._until(lambda: final.is_at_end, QUIET_LIMIT_US)
            final.end()
            self._stop_all()
        else:
            consumer.end()
            for each in self.brokers.values():
                each.kill()
        self.controller.close()
        return RunResult(
            digest=self.history.digest,
            events_count=self.scheduler.events_count,
            virtual_us=self.scheduler.now_us - self._start_us,
            is_quiet=is_quiet,
            is_read=is_read,
            counts=self.history.counts,
        )

    def _consumer(self, name: str, *, is_final: bool = False) -> PlayedConsumer:
        return PlayedConsumer(
            f"{name}-{self._run_number}", self.brokers, self._keys, self.scheduler,
            self._network, self.history, is_final=is_final,
        )  # fmt: skip

    def _until(self, holds: Callable[[], bool], limit_us: int) -> bool:
        return self.scheduler.run(holds, self.scheduler.now_us + limit_us)

    def is_quiet(self) -> bool:
        """All replicas are in sync, and have all, and know that it is committed."""
        for key in self._keys:
            led = self.controller.led(key)
            leader = self.brokers.get(led.leader)
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

    def _is_settled(self) -> bool:
        """As quiet as it can be: all who run and are led have what their leader has."""
        now_us = self.scheduler.now_us
        if now_us < self._settled_from_us:
            return False
        for key in self._keys:
            leader = self.brokers.get(self.controller.led(key).leader)
            if leader is None or not leader.is_running:
                continue
            core = leader.leading.get(key)
            if core is None or core.pending is not None:
                return False
            for each in core.replicas:
                broker = self.brokers[each]
                if broker.is_running and broker.log(key).end_offset != core.end_offset:
                    return False
        return True

    # -- faults

    def _await(self, fault: Fault) -> None:
        if fault.kind is WhenKind.TIME:
            due_us = self._start_us + int(fault.when)
            self.scheduler.run(lambda: False, max(due_us, self.scheduler.now_us))
        elif fault.kind is WhenKind.RECORDS:
            count = fault.when * self._run.records
            self._until(lambda: self.producer.given_count >= count, FAULT_GRACE_US)
            # Not always as the record is given: it may be on its way, appended, half replicated.
            delay_us = self.scheduler.draw(5000)
            self.scheduler.run(lambda: False, self.scheduler.now_us + delay_us)
        else:
            self._settled_from_us = self.scheduler.now_us + AFTER_FAULT_US
            self._until(self._is_settled, QUIET_LIMIT_US)

    _settled_from_us = 0

    def _inflict(self, fault: Fault) -> None:
        targets = self._targets(fault)
        self._faults_count += 1
        words = f"{fault.action} {', '.join(f'broker {each}' for each in targets)}".strip()
        if fault.action == "set":
            words = f"set {fault.target}"
        elif fault.action in {"heal", "elect"}:
            words = {"heal": "the network heals", "elect": "an unclean election is asked for"}[
                fault.action
            ]
        self.trace.tell("fault", words, targets[0] if targets else None)
        self.history.note(
            "info", "nemesis", self._faults_count, self.scheduler.now_us, "fault",
            fault=fault.action, nodes=targets, detail=fault.target,
        )  # fmt: skip
        for number in targets:
            self._strike(fault.action, self.brokers[number])
        if fault.action == "heal":
            self._network.heal()
        elif fault.action == "elect":
            self.controller.elect_uncleanly()
        elif fault.action == "set":
            key, _, value = fault.target.partition("=")
            if key == "min.insync.replicas":
                self.controller.set_min_insync(int(value))
            else:
                self.controller.set_unclean(is_allowed=value == "true")

    def _strike(self, action: str, broker: Broker) -> None:
        number = broker.number
        if action == "start":
            if not broker.is_running:
                if number in self._dead:
                    self._dead.remove(number)
                broker.start()
            return
        if action == "partition":
            inside = {each.name for each in self.brokers.values()} | {CONTROLLER_NAME}
            self._network.isolate(broker.name, inside)
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

    def _targets(self, fault: Fault) -> list[int]:
        running = [number for number, each in self.brokers.items() if each.is_running]
        led = self.controller.led(self._keys[0])
        among = [each for each in self.brokers if each not in running]
        if fault.action != "start":
            among = running
        target = fault.target
        if fault.action not in {"kill", "power", "stop", "start", "partition"}:
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
        return [among[self.scheduler.draw(len(among))]] if among else []

    def _heal(self) -> None:
        self._network.heal()
        self.trace.tell("fault", "all is healed: every broker that is down is started")
        self.history.note("info", "nemesis", self._faults_count + 1, self.scheduler.now_us, "heal")
        for each in self.brokers.values():
            if not each.is_running:
                each.start()
        self._dead.clear()

    def _stop_all(self) -> None:
        for each in self.brokers.values():
            if each.is_running:
                each.stop()
                self._until(lambda each=each: not each.is_running, 10 * SECOND_US)  # type: ignore[misc]
