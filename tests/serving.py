"""`eoctl serve` as a process of its own, as a person starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 60


class Ended(NamedTuple):
    """What it left behind."""

    status: int
    stdout: str
    stderr: str


class Served:
    """A context manager: it listens at `bootstrap` within; `stop` interrupts it."""

    def __init__(
        self,
        *arguments: object,
        environment: dict[str, str] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """`prepare` is called in its process before it begins."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "eoctl", "serve", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            preexec_fn=prepare,  # noqa: PLW1509 - it only sets limits
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("bootstrap "):
            stdout, stderr = self._process.communicate(timeout=TIMEOUT_S)
            raise AssertionError(f"it does not serve: {line}{stdout}{stderr}")
        self.bootstrap = line.split()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate(timeout=TIMEOUT_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> Ended:
        """Interrupt it, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        stdout, stderr = self._process.communicate(timeout=TIMEOUT_S)
        return Ended(self._process.returncode, stdout, stderr)
