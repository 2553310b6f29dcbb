"""Kills executors of a cluster, and their Python processes, while calls are at work."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.spark.left_over import processes_with

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from pathlib import Path

    from tests.spark.cluster import Cluster

ASK_SECONDS = 0.02
# Words of the command of each kind; what plans for the driver runs other modules.
COMMANDS = {
    "executor": "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "python": "pyspark.daemon pyspark.worker",
}


class Killed(NamedTuple):
    """A process that was killed, and the number of the call that was at work."""

    kind: str
    pid: int
    call: int


class Killer:
    """While it is open it kills at moments that are drawn: `wanted` of each kind, and then Python.

    A kind is "executor", a JVM, or "python": an executor's daemon or one of the workers, which
    outlive it. A call is at work from NUMBER.begun to NUMBER.json among the results of
    `tests.spark.audit_driver`.
    """

    def __init__(
        self, cluster: Cluster, results: Path, rng: random.Random, wanted: Mapping[str, int]
    ) -> None:
        self.killed: list[Killed] = []
        self._cluster, self._results, self._rng = cluster, results, rng
        self._left = dict(wanted)
        self._is_over = Event()
        self._thread = Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def is_done(self) -> bool:
        """Have as many been killed as are wanted?"""
        return all(left <= 0 for left in self._left.values())

    def _work(self) -> None:
        call = 0
        while not self._is_over.is_set():
            call += self._rng.randrange(1, 4)
            delay_seconds = self._rng.uniform(0, 0.5)
            while not (self._results / f"{call}.begun").exists():
                if self._is_over.wait(ASK_SECONDS):
                    return
            self._is_over.wait(delay_seconds)
            kinds = [each for each, left in self._left.items() if left > 0]
            kind = self._rng.choice(kinds or ["python"])
            # One that is not there yet is waited for: an executor takes seconds to come again.
            while not (victims := self._victims(kind)):
                if self._is_over.wait(ASK_SECONDS):
                    return
            call = max(int(each.stem) for each in self._results.glob("*.begun"))
            if not (self._results / f"{call}.json").exists():
                pid = self._rng.choice(victims)
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGKILL)
                self.killed.append(Killed(kind, pid, call))
                self._left[kind] -= 1

    def _victims(self, kind: str) -> list[int]:
        words = COMMANDS[kind]
        return [pid for pid, command in processes_with(self._cluster.mark) if words in command]
