"""A driver of a streaming query that is killed within a micro-batch: certainly, not by chance.

A micro-batch is begun when its number is in `offsets` of the checkpoint, and has ended when it is in
`commits`. Between them it is killed at two places: while a task holds it (see `stream_driver`), and
when the sink has noted its files, which is when a second run of it would give everything twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.kafka.jars import REPOSITORY_DIR
from tests.spark.left_over import MARK, processes_with, wait_until_gone
from tests.spark.sink import numbers_in
from tests.spark.stream_driver import HELD, HOLD

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

WAIT_SECONDS = 300.0
FREEZE_SECONDS = 2.0
POLL_SECONDS = 0.001


class KilledDriver:
    """A driver, in a process group of its own: its JVM and its workers go with it."""

    def __init__(self, logs: Path, out: Path, mark: str) -> None:
        self._out, self._mark = out, mark
        (out / HOLD).unlink(missing_ok=True)
        (out / HELD).unlink(missing_ok=True)
        self._errors = out / f"{mark}.errors"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.spark.stream_driver", str(logs), str(out)],
                env={**os.environ, MARK: mark, "PYTHONPATH": str(REPOSITORY_DIR)}, cwd=out,
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def errors(self) -> str:
        """What it printed."""
        return self._errors.read_text(errors="replace")

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        status = self._process.wait(WAIT_SECONDS)
        assert status == 0, self.errors

    def kill(self) -> None:
        """End the driver and all that it has started, in the midst of what they do."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for each, _ in processes_with(self._mark):  # the workers' daemon has a group of its own
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        assert wait_until_gone(self._mark) == []

    def kill_in_task(self, place: str, batches: int) -> int | None:
        """Kill it while a task holds a micro-batch, when so many have ended; return its number."""
        begun = numbers_in(self._commits)
        self._await(lambda: len(numbers_in(self._commits) - begun) >= batches)
        (self._out / HOLD).write_text(place)
        self._await((self._out / HELD).exists)
        self.kill()
        return self._cut_off()

    def kill_behind_sink(self) -> int | None:
        """Kill it when the sink has a micro-batch that has not ended; return its number.

        None: each time when it was looked at, it had ended.
        """
        log = self._out / "rows" / "_spark_metadata"
        while self._process.poll() is None:
            if numbers_in(log) - numbers_in(self._commits):
                self._freeze()
                if numbers_in(log) - numbers_in(self._commits):
                    self.kill()
                    return self._cut_off()
                os.killpg(self._process.pid, signal.SIGCONT)
            time.sleep(POLL_SECONDS)
        assert self._process.returncode == 0, self.errors
        return None

    @property
    def _commits(self) -> Path:
        return self._out / "checkpoint" / "commits"

    def _cut_off(self) -> int | None:
        """Return the number of the micro-batch that has begun and not ended."""
        offsets = numbers_in(self._out / "checkpoint" / "offsets")
        left = offsets - numbers_in(self._commits)
        assert len(left) <= 1
        return next(iter(left), None)

    def _await(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_so():
            assert self._process.poll() is None, self.errors
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _freeze(self) -> None:
        """Stop its processes; a thread is stopped when the call that it is in has returned."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            os.killpg(self._process.pid, signal.SIGSTOP)
            turn = time.monotonic() + FREEZE_SECONDS
            while time.monotonic() < turn:
                if all(state in "TZ" for state in self._states()):
                    return
                time.sleep(POLL_SECONDS)
            assert time.monotonic() < deadline
            # A thread that starts a program waits for a child that was stopped before it did so.
            os.killpg(self._process.pid, signal.SIGCONT)

    def _states(self) -> list[str]:
        """The state of each thread of the process group."""
        found = []
        for pid, _ in processes_with(self._mark):
            try:
                if os.getpgid(pid) != self._process.pid:
                    continue
                stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += [each.rpartition(") ")[2][0] for each in stats]
        return found
