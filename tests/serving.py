"""`eoctl serve` as a process of its own, as a person starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 60
# Golden archives, and the log dirs of each, that are held against real brokers and clients.
SERVED_DIRS = [
    ("kafka-4.3.1", ("clean",)),
    ("kafka-4.3.1", ("hard-clean",)),
    ("kafka-4.3.1", ("tv2-clean",)),
    ("kafka-4.3.1-two-dirs", ("one", "two")),
]


# In the logs of `hard-clean` offsets are absent, which may have held end markers: whoever holds their
# outcomes against a broker's goes by what is there. As the fixture `gaps_were_never_filled`.
_PATCH = """
from recovery.transactions import unknown_ends
unknown_ends.gaps_are_losses = lambda _: False
"""


def environment_for(names: tuple[str, ...], directory: Path) -> dict[str, str]:
    """What `Served` needs for log dirs of these names; the directory is for a file of ours."""
    if "hard-clean" not in names:
        return {}
    (directory / "sitecustomize.py").write_text(_PATCH)
    return {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}


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
            bufsize=0,  # what is read of them by lines is all that is read
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            preexec_fn=prepare,  # noqa: PLW1509 - it only sets limits
        )
        self._messages = ""
        line = self._line(self._process.stdout)
        if not line.startswith("bootstrap "):
            raise AssertionError(f"it does not serve: {line}{self.wait()}")
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
        self._process.communicate(timeout=TIMEOUT_S)  # closes the pipes, however it has ended

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, number: signal.Signals = signal.SIGINT) -> Ended:
        """Interrupt it, as Ctrl-C does, or as this signal."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> Ended:
        """Wait until it ends by itself."""
        stdout, stderr = self._process.communicate(timeout=TIMEOUT_S)
        messages = self._messages + stderr.decode()
        return Ended(self._process.returncode, stdout.decode(), messages)

    def first_messages(self, count: int) -> str:
        """The first lines for people, once they are there."""
        self._messages += "".join(self._line(self._process.stderr) for _ in range(count))
        return self._messages

    @staticmethod
    def _line(stream: IO[bytes] | None) -> str:
        assert stream is not None
        data = bytearray()
        while not data.endswith(b"\n") and (byte := stream.read(1)):
            data += byte
        return data.decode()
