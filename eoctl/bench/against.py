"""Brokers that run already: somebody's own cluster, and their owner's commands to kill and start.

Topics are made, used and deleted there; nothing else is touched.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from errno import EHOSTUNREACH
from typing import Self

from eoctl.bench.client import Cluster
from storage.errors import AccessError, RefusedError

FIND_S = 30.0
COMMAND_S = 300.0


class RunningBrokers(Cluster):
    """Somebody's cluster.

    Args:
        bootstrap: HOST:PORT, with commas.
        on_kill: is called with the id of a broker, which it ends at once; () without it.
        on_start: likewise, to start it again.
    """

    def __init__(self, bootstrap: str, on_kill: list[str], on_start: list[str]) -> None:
        super().__init__(bootstrap)
        self.broker_ids = ()
        self._on_kill, self._on_start = on_kill, on_start
        self._calls: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        deadline_s = time.monotonic() + FIND_S
        while not self.broker_ids:
            self.broker_ids = self.known_brokers()
            if not self.broker_ids and time.monotonic() > deadline_s:
                raise AccessError(
                    OSError(EHOSTUNREACH, "no broker answers"),
                    self.bootstrap,
                    next_step="--against HOST:PORT of one that runs",
                )
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def kill(self, broker: int) -> None:
        """Have it ended; that is not waited for, as records go on."""
        self._call(self._on_kill, broker)

    def start(self, broker: int) -> None:
        """Have it started."""
        self._call(self._on_start, broker)

    def require_running(self) -> None:
        """Raise RefusedError if a command of the owner failed."""
        for call, process in self._calls:
            if process.poll():
                raise RefusedError(f"{call} ended with status {process.returncode}")

    def close(self) -> None:
        """Wait for what was called."""
        super().close()
        for _, process in self._calls:
            try:
                process.wait(COMMAND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _call(self, command: list[str], broker: int) -> None:
        words = [*command, str(broker)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
        self._calls.append((shlex.join(words), process))
