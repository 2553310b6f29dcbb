"""Call a function for many values in several processes, results as they come.

The processes are started anew, not forked: Arrow runs threads. They end when the iteration does,
also when it is given up or this process is killed, and leave an interrupt to this process.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any, TypeVar

from recovery.segment_workers import WorkerLostError, end_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

T = TypeVar("T")
R = TypeVar("R")


def map_unordered(
    function: Callable[[T], R], values: Sequence[T], jobs: int
) -> Iterator[tuple[int, R]]:
    """Give (index, result) for each value; what the function raises is raised here.

    Args:
        function: of a module, or a partial of one: it is sent to the processes.
        values: taken in order.
        jobs: processes; with one, or one value, it is done in this process.

    Raises:
        WorkerLostError: a process was killed.
    """
    if jobs <= 1 or len(values) <= 1:
        for number, value in enumerate(values):
            yield number, function(value)
        return
    from multiprocessing.connection import wait

    workers: dict[Any, _Worker] = {}
    for _ in range(min(jobs, len(values))):
        worker = _Worker(function)
        workers[worker.connection] = worker
    try:
        numbers = iter(range(len(values)))
        busy = dict(zip(workers, numbers, strict=False))
        for idle, number in busy.items():
            idle.send(values[number])
        while busy:
            for ready in wait(list(busy)):
                connection: Any = ready
                number = busy.pop(connection)
                yield number, _received(connection)
                following = next(numbers, None)
                if following is not None:
                    busy[connection] = following
                    connection.send(values[following])
    finally:
        for worker in workers.values():
            worker.stop()


def _received(connection: Connection) -> Any:
    try:
        is_right, value = connection.recv()
    except (EOFError, ConnectionResetError):
        raise WorkerLostError from None
    if not is_right:
        raise value
    return value


class _Worker:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        import multiprocessing

        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(function, theirs, os.getpid()), daemon=True
        )
        # Children inherit what is blocked: an interrupt is for this process, which ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def stop(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()


def _work(function: Callable[[Any], Any], connection: Connection, parent_pid: int) -> None:
    end_with(parent_pid)
    while True:
        try:
            value = connection.recv()
        except EOFError:
            return
        try:
            answer: tuple[bool, Any] = (True, function(value))
        except Exception as exc:  # noqa: BLE001 - raised again where the result is awaited
            answer = (False, exc)
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
