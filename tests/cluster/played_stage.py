"""Courses of events on a played cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.cluster.layout import make_cluster
from eoctl.cluster.scheduler import MS_US, SECOND_US
from eoctl.cluster.settings import (
    CONTROLLER_NAME,
    START_MS,
    PlaySettings,
    RunSettings,
)
from eoctl.cluster.simulation import Simulation
from tests.cluster.courses import (
    BROKERS,
    LAG_MS,
    SESSION_MS,
    T0,
    Course,
    Facts,
    Stand,
    facts_of,
    offsets_of,
    play,
    states_of,
)
from tests.writing import batch

if TYPE_CHECKING:
    from eoctl.cluster.messages import ProduceAnswer

SETTLED_US = 100 * SECOND_US  # sessions end, followers leave the ISR, checkpoints are written


class _Client:
    """Who sends."""

    name, incarnation, is_running = "client", 0, True


class PlayedStage:
    """Three played brokers."""

    def __init__(self, root: Path, course: Course, seed: int = 0) -> None:
        settings = PlaySettings(
            min_insync=course.min_insync,
            has_elr=course.has_elr,
            session_timeout_ms=SESSION_MS,
            lag_time_max_ms=LAG_MS,
        )
        cluster = make_cluster(str(root), settings)
        self._root = Path(cluster.root)
        run = RunSettings(seed=seed)
        self._simulation = Simulation(
            cluster.root, cluster.cluster, settings, run, 1, write=lambda _: None
        )
        self._scheduler = self._simulation.scheduler
        self._brokers = self._simulation.brokers
        for each in self._brokers.values():
            each.start()
        self._wait()

    def _wait(self) -> None:
        self._scheduler.run(lambda: False, self._scheduler.now_us + SETTLED_US)

    def play(self, course: Course) -> tuple[list[list[str]], list[Stand], Facts]:
        """Play it; the answers and what was so after each group of steps, and the facts."""
        answers, stands = [], []
        for group in course.groups():
            answers.append([*play(self, group)])
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
        told = [each for group in answers for each in group]
        return answers, stands, facts_of(self, told, states, cuts)

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
        return self._send(batch(count, value=value.encode(), timestamp_ms=self._now_ms()), acks)

    def batch(self, identity: tuple[int, int, int], count: int, timeout_ms: int) -> str:
        """Send a batch."""
        data = batch(count, identity, timestamp_ms=self._now_ms())
        return self._send(data, -1, timeout_ms)

    def _now_ms(self) -> int:
        return START_MS + self._scheduler.now_us // MS_US

    def _send(self, data: bytes, acks: int, timeout_ms: int = 30_000) -> str:
        leader = self._brokers[self._simulation.controller.led(T0).leader]
        told: list[ProduceAnswer] = []
        leader.produce(_Client(), T0, data, acks, timeout_ms * MS_US, told.append)
        self._scheduler.run(lambda: bool(told), self._scheduler.now_us + SETTLED_US)
        (answer,) = told
        return answer.error or str(answer.base_offset)

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
