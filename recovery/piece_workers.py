"""Call a function for many values in several processes, results as they come.

The processes are forked, which takes no time, or started anew where this one runs threads (Arrow
does). They end when the iteration does, also when it is given up or this process is killed, and
leave an interrupt to this process. One that dies is replaced, and what it had to do is done again;
results that have come stay.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from recovery.segment_workers import WorkerLostError, end_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS_COUNT = 3  # for a value whose processes die


def map_unordered(
    function: Callable[[T], R], values: Sequence[T], jobs: int
) -> Iterator[tuple[int, R]]:
    """Give (index, result) for each value; what the function raises is raised here.

    Args:
        function: of a module, or a partial of one: it is sent to the processes. It may be called
            again for a value whose process has died.
        values: taken in order.
        jobs: processes; with one, or one value, it is done in this process.

    Raises:
        WorkerLostError: every process that was to do a certain value has died.
    """
    if jobs <= 1 or len(values) <= 1:
        for number, value in enumerate(values):
            yield number, function(value)
        return
    crew = _Crew(function, values)
    try:
        for _ in range(min(jobs, len(values))):
            crew.employ()
        while crew.is_busy:
            yield from crew.results()
    finally:
        crew.stop()


def start_method() -> str:
    """Tell how to start a process now: a fork has the locks of threads but not the threads."""
    is_alone = "pyarrow" not in sys.modules and threading.active_count() == 1
    return "fork" if is_alone and sys.platform == "linux" else "spawn"


class _Crew:
    """Workers, what each of them does, and what is left to do."""

    def __init__(self, function: Callable[[Any], Any], values: Sequence[Any]) -> None:
        self._function = function
        self._values = values
        self._left = deque(range(len(values)))
        self._lost_count: Counter[int] = Counter()  # by value
        self._workers: set[_Worker] = set()
        self._busy: dict[Any, tuple[_Worker, int]] = {}  # by connection

    @property
    def is_busy(self) -> bool:
        return bool(self._busy)

    def employ(self) -> None:
        """Start a worker for the next value."""
        worker = _Worker(self._function)
        self._workers.add(worker)
        self._hand_out(worker)

    def results(self) -> Iterator[tuple[int, Any]]:
        """Wait for workers; each goes on before its result is given."""
        from multiprocessing.connection import wait

        for connection in wait(list(self._busy)):
            worker, number = self._busy.pop(connection)
            try:
                is_right, value = worker.receive()
            except WorkerLostError:
                self._replace(worker, number)
                continue
            if not is_right:
                raise value
            self._hand_out(worker)
            yield number, value

    def _hand_out(self, worker: _Worker) -> None:
        if not self._left:
            self._dismiss(worker)
            return
        number = self._left.popleft()
        try:
            worker.send(self._values[number])
        except WorkerLostError:
            self._replace(worker, number)
        else:
            self._busy[worker.connection] = worker, number

    def _replace(self, worker: _Worker, number: int) -> None:
        self._dismiss(worker)
        self._lost_count[number] += 1
        if self._lost_count[number] == ATTEMPTS_COUNT:
            raise WorkerLostError
        self._left.appendleft(number)
        self.employ()

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        worker.stop()

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()


class _Worker:
    """A process. Whatever its connection fails with: the process is gone."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        import multiprocessing
        from multiprocessing import resource_tracker

        method = start_method()
        context: BaseContext = multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        self.process = context.Process(  # type: ignore[attr-defined]
            target=_work, args=(function, theirs, os.getpid()), daemon=True
        )
        # Children inherit what is blocked: an interrupt is for this process, which ends them. The
        # first start would begin with the tracker's, which takes the block away again.
        if method == "spawn":
            resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def send(self, value: Any) -> None:
        try:
            self.connection.send(value)
        except OSError:
            raise WorkerLostError from None

    def receive(self) -> tuple[bool, Any]:
        try:
            answer: tuple[bool, Any] = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerLostError from None
        return answer

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.join()


def _work(function: Callable[[Any], Any], connection: Connection, parent_pid: int) -> None:
    end_with(parent_pid)
    while True:
        try:
            value = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[bool, Any] = (True, function(value))
        except Exception as exc:  # noqa: BLE001 - raised again where the result is awaited
            answer = (False, exc)
        with suppress(OSError):  # nobody waits for it any more: seen above
            connection.send(answer)
