"""Courses of events on a simulated cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.lab.clients.consumer import given_records
from eoctl.lab.environment.network import MS_US, NETWORK_EXCEPTION, SECOND_US
from eoctl.lab.environment.settings import (
    CONTROLLER_NAME,
    READ_COMMITTED,
    START_MS,
    PlaySettings,
    RunSettings,
)
from eoctl.lab.layout import make_cluster
from eoctl.lab.simulation import Simulation
from tests.lab.scenarios import (
    BROKERS,
    T0,
    TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONAL_ID,
    Facts,
    Scenario,
    Sending,
    Stand,
    facts_of,
    offsets_of,
    simulate,
    states_of,
)
from tests.writing import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.lab.environment.network import ConsumerAnswer, ProduceAnswer
    from storage.producers.transaction_metadata import ProducerIdAndEpoch


SETTLED_US = 100 * SECOND_US  # sessions end, followers leave the ISR, checkpoints are written


class _Client:
    """Who sends."""

    name, incarnation, is_running = "client", 0, True


class _Begun(NamedTuple):
    """What was sent to a broker, and its answer, once it has come."""

    broker: int
    reported: list[str]


class SimulatedStage:
    """Three played brokers."""

    def __init__(self, root: Path, scenario: Scenario, seed: int = 0) -> None:
        settings = PlaySettings(
            min_insync=scenario.min_insync,
            has_elr=scenario.has_elr,
            session_timeout_ms=scenario.session_ms,
            lag_time_max_ms=scenario.lag_ms,
        )
        cluster = make_cluster(str(root), settings)
        self._root = Path(cluster.root)
        run = RunSettings(seed=seed, transaction_records=int(scenario.has_transactions))
        self._simulation = Simulation(
            cluster.root, cluster.cluster, settings, run, 1, write=lambda _: None
        )
        self._scheduler = self._simulation.scheduler
        self._brokers = self._simulation.brokers
        self._begun: _Begun | None = None
        self._who: ProducerIdAndEpoch | None = None
        for each in self._brokers.values():
            each.clients.append(self._ended)
            each.start()
        self._wait()

    def _wait(self) -> None:
        self._scheduler.run(lambda: False, self._scheduler.now_us + SETTLED_US)

    def simulate(self, scenario: Scenario) -> tuple[list[list[str]], list[Stand], Facts]:
        """Play it; the answers and what was so after each group of steps, and the facts."""
        answers, stands = [], []
        for group in scenario.groups():
            answers.append([*simulate(self, group)])
            self._wait()
            stands.append(self.stand())
        cuts: dict[int, list[int]] = {}
        for event in self._simulation.trace.events:
            if event.kind == "cut":
                assert event.node is not None
                cuts.setdefault(event.node, []).append(event.offset)
        for each in self._brokers.values():
            each.kill()
        self._simulation.controller.close()
        states = states_of(self._root / CONTROLLER_NAME)
        reported = [each for group in answers for each in group]
        return answers, stands, facts_of(self, reported, states, cuts)

    def log_dir(self, broker: int) -> Path:
        """Of a broker."""
        return self._root / f"node-{broker}"

    def stand(self) -> Stand:
        """What is so."""
        led = self._simulation.controller.led(T0)
        running = [each for each in BROKERS if self._brokers[each].is_running]
        offsets = {each: offsets_of(self.log_dir(each)) for each in running}
        return Stand(led.leader, tuple(sorted(led.leadership.isr)), offsets)

    # -- steps

    def send(self, value: str, count: int, acks: int) -> str:
        """Send records."""
        data = batch(count, value=value.encode(), timestamp_ms=self._now_ms())
        return self._answer_to(self._sent(self._leader(), data, acks, TIMEOUT_MS))

    def begin(self, sending: Sending) -> None:
        """Send a batch."""
        assert self._begun is None
        data = batch(sending.records_count, sending.identity, timestamp_ms=self._now_ms())
        number = self._leader() if sending.broker is None else sending.broker
        self._begun = self._sent(number, data, -1, sending.timeout_ms)

    def answer(self) -> str:
        """Wait for the answer."""
        begun, self._begun = self._begun, None
        assert begun is not None
        return self._answer_to(begun)

    def _answer_to(self, begun: _Begun) -> str:
        self._scheduler.run(lambda: bool(begun.reported), self._scheduler.now_us + SETTLED_US)
        (reported,) = begun.reported
        return reported

    def _now_ms(self) -> int:
        return START_MS + self._scheduler.now_us // MS_US

    def _leader(self) -> int:
        return self._simulation.controller.led(T0).leader

    def _sent(
        self, number: int, data: bytes, acks: int, timeout_ms: int, name: str | None = None
    ) -> _Begun:
        begun = _Begun(number, [])

        def answered(answer: ProduceAnswer) -> None:
            begun.reported.append(answer.error or str(answer.base_offset))

        broker = self._brokers[number]
        broker.produce(_Client(), T0, data, acks, timeout_ms * MS_US, answered, name)
        return begun

    def _ended(self, number: int) -> None:
        """The connection to a broker was reset."""
        if self._begun is not None and self._begun.broker == number and not self._begun.reported:
            self._begun.reported.append(NETWORK_EXCEPTION)

    def _asked(self, call: Callable[..., None], *given: object) -> tuple[str, ProducerIdAndEpoch]:
        """What the coordinator answers."""
        reported: list[tuple[str, ProducerIdAndEpoch]] = []
        call(_Client(), TRANSACTIONAL_ID, *given, lambda *answer: reported.append(answer))
        self._scheduler.run(lambda: bool(reported), self._scheduler.now_us + SETTLED_US)
        (answer,) = reported
        return answer

    def begin_transaction(self, value: str, count: int) -> str:
        """Send records in a new transaction; returns the offset of the first."""
        coordinator = self._simulation.coordinator
        assert coordinator is not None
        if self._who is None:
            error, self._who = self._asked(coordinator.init_producer_id, TRANSACTION_TIMEOUT_MS)
            assert not error
        data = batch(
            count, (*self._who, 0), value=value.encode(), timestamp_ms=self._now_ms(),
            is_transactional=True,
        )  # fmt: skip
        return self._answer_to(self._sent(self._leader(), data, -1, TIMEOUT_MS, TRANSACTIONAL_ID))

    def end_transaction(self, *, is_commit: bool) -> None:
        """End it; it is decided when this returns."""
        coordinator = self._simulation.coordinator
        assert coordinator is not None
        error, self._who = self._asked(coordinator.end_transaction, self._who, is_commit)
        assert not error

    def read(self) -> str:
        """Count what a read_committed consumer is given."""
        reported: list[ConsumerAnswer] = []
        self._brokers[self._leader()].consume(_Client(), T0, 0, reported.append, READ_COMMITTED)
        self._scheduler.run(lambda: bool(reported), self._scheduler.now_us + SETTLED_US)
        (answer,) = reported
        return f"read {len(given_records(answer, 0))}"

    def act(self, action: str, target: str) -> None:
        """Do anything else."""
        controller, network = self._simulation.controller, self._simulation._network
        if action == "set":
            key, _, value = target.partition("=")
            if key == "min.insync.replicas":
                controller.set_min_insync(int(value))
            else:
                controller.set_unclean(is_allowed=value == "true")
        elif action == "elect":
            controller.elect_uncleanly()
        elif action == "pause":
            inside = {each.name for each in self._brokers.values()} | {CONTROLLER_NAME}
            network.isolate(self._brokers[int(target)].name, inside)
        elif action == "resume":
            network._isolated.discard(self._brokers[int(target)].name)
        else:
            getattr(self._brokers[int(target)], action)()
