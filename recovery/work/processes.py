"""Call a function for many values in several processes, results as they come.

The processes are forked, which takes no time, or started anew where this one runs threads (Arrow
does). They end when the iteration does, also when it is given up or this process is killed, and
leave an interrupt to this process. One that dies is replaced, and what it had to do is done again;
results that have come stay. Where somebody watches what this process reads, he is told of what they
read, too (`storage.files.read_watch`).

All values go to a process once, when it starts: a fork has them already. What is handed out are
their numbers. Values of one call share much (the log dir around a partition, its checkpoints, the
cluster's metadata), and each one sent by itself would carry all of that again.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from storage.errors import EXIT_ACCESS, EoctlError
from storage.files import read_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS_COUNT = 3  # for a value whose processes die
# A process has the next numbers while its last results travel: small values do not wait for this
# process. With few values each would hold some that another could begin with.
MAX_AHEAD_COUNT = 8
VALUES_PER_AHEAD = 64
TELL_SECONDS = 0.2  # between what a process tells of what it reads


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
    crew = _Crew(function, values, jobs)
    try:
        for _ in range(min(jobs, len(values))):
            crew.employ()
        while crew.is_busy:
            yield from crew.results()
    finally:
        crew.stop()


def map_in_order(
    function: Callable[[T], R],
    values: Sequence[T],
    jobs: int,
    *,
    on_done: Callable[[R], None] | None = None,
) -> Iterator[R]:
    """Give the results in the order of the values; the arguments are those of `map_unordered`.

    `on_done` is told each result as it comes.
    """
    waiting: dict[int, R] = {}
    next_number = 0
    for number, result in map_unordered(function, values, jobs):
        if on_done is not None:
            on_done(result)
        waiting[number] = result
        while next_number in waiting:
            yield waiting.pop(next_number)
            next_number += 1


def start_method() -> str:
    """Tell how to start a process now: a fork has the locks of threads but not the threads."""
    is_alone = "pyarrow" not in sys.modules and threading.active_count() == 1
    return "fork" if is_alone and sys.platform == "linux" else "spawn"


class _Crew:
    """Workers, what each of them does, and what is left to do."""

    def __init__(self, function: Callable[[Any], Any], values: Sequence[Any], jobs: int) -> None:
        self._function = function
        self._values = values
        self._left = deque(range(len(values)))
        self._ahead_count = min(len(values) // (jobs * VALUES_PER_AHEAD) + 1, MAX_AHEAD_COUNT)
        self._lost_count: Counter[int] = Counter()  # by value
        self._workers: set[_Worker] = set()
        self._selector = selectors.DefaultSelector()  # of those that are at work

    @property
    def is_busy(self) -> bool:
        return bool(self._workers)

    def employ(self) -> None:
        """Start a worker for the next values."""
        worker = _Worker(self._function, self._values)
        self._workers.add(worker)
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)
        self._hand_out(worker)

    def results(self) -> Iterator[tuple[int, Any]]:
        """Wait for workers; each goes on before its result is given."""
        for key, _ in self._selector.select():
            worker: _Worker = key.data
            try:
                answer = worker.take()
            except WorkerLostError:
                self._replace(worker)
                continue
            if isinstance(answer, ToldRead):
                continue
            is_right, value = answer
            if not is_right:
                raise value
            number = worker.numbers.popleft()
            self._hand_out(worker)
            yield number, value

    def _hand_out(self, worker: _Worker) -> None:
        while self._left and len(worker.numbers) < self._ahead_count:
            worker.numbers.append(self._left.popleft())
            try:
                worker.send(worker.numbers[-1])
            except WorkerLostError:
                self._replace(worker)
                return
        if not worker.numbers:
            self._dismiss(worker)

    def _replace(self, worker: _Worker) -> None:
        """Have another do what is left; the first number is that which its process died of."""
        self._dismiss(worker)
        self._lost_count[worker.numbers[0]] += 1
        if self._lost_count[worker.numbers[0]] == ATTEMPTS_COUNT:
            raise WorkerLostError
        self._left.extendleft(reversed(worker.numbers))
        self.employ()

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        self._selector.unregister(worker.connection)
        worker.stop()

    def stop(self) -> None:
        self._selector.close()
        for worker in self._workers:
            worker.stop()


class ChildProcess:
    """A process of ours with a connection to it. Whatever that fails with: the process is gone.

    It ends with this one, and leaves an interrupt to it.
    """

    def __init__(
        self, work: Callable[..., None], arguments: tuple[Any, ...], method: str | None = None
    ) -> None:
        """Call `work` there with the arguments, and its end of the connection behind them.

        Args:
            work: of a module unless the process is forked.
            arguments: plain values unless it is forked.
            method: "fork" where the process needs what is open here; else what is safe now.
        """
        import multiprocessing
        from multiprocessing import resource_tracker

        method = method or start_method()
        context: BaseContext = multiprocessing.get_context(method)
        self.connection, theirs = context.Pipe()
        # A forked one has our end too, and would not see that we are gone.
        ours = self.connection if method == "fork" else None
        self.process = context.Process(  # type: ignore[attr-defined]
            target=_begin,
            args=(work, arguments, theirs, ours, os.getpid(), read_watch.watcher() is not None),
            daemon=True,
        )
        # Children inherit what is blocked: an interrupt is for this process, which ends them. The
        # first start would begin with the tracker's, which takes the block away again.
        if method == "spawn":
            resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process.start()
        except BrokenPipeError:  # it has ended before it had all that a new one is told
            raise WorkerLostError from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def send(self, value: object) -> None:
        """Give it a value; WorkerLostError."""
        try:
            self.connection.send(value)
        except OSError:
            raise WorkerLostError from None

    def receive(self) -> Any:
        """Wait for a value of it; WorkerLostError."""
        while isinstance(value := self.take(), ToldRead):
            pass
        return value

    def take(self) -> Any:
        """Take the next thing it has sent, be it a value or what it has read; WorkerLostError."""
        try:
            value = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerLostError from None
        if isinstance(value, ToldRead) and (watcher := read_watch.watcher()) is not None:
            watcher.read_elsewhere(value.path, value.read_bytes)
        return value

    def stop(self) -> None:
        """End it, whatever it does: it has nothing that would be lost."""
        self.connection.close()
        self.process.kill()
        self.process.join()


def _begin(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    connection: Connection,
    ours: Connection | None,
    parent_pid: int,
    is_watched: bool,
) -> None:
    end_with(parent_pid)
    read_watch.watch(_Teller(connection) if is_watched else None)
    if ours is not None:
        ours.close()
    work(*arguments, connection)


class _Worker(ChildProcess):
    """A process and the numbers it has to do."""

    def __init__(self, function: Callable[[Any], Any], values: Sequence[Any]) -> None:
        self.numbers: deque[int] = deque()
        super().__init__(_work, (function, values))


class ToldRead(NamedTuple):
    """What a process has read of logs since it told of it last."""

    path: str
    read_bytes: int


class _Teller:
    """Watches what a process reads, and tells the one that it works for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._count = read_watch.LogCount()
        self._path = ""
        self._told_bytes = 0
        self._told_at = time.monotonic()

    def read(self, path: str, pos: int, count: int) -> None:
        self._count.read(path, pos, count)
        self._path = path
        if time.monotonic() - self._told_at >= TELL_SECONDS:
            self.tell()

    def tell(self) -> None:
        """Tell of what was read since it did so last."""
        self._told_at = time.monotonic()
        told, self._told_bytes = self._told_bytes, self._count.count_bytes
        if self._told_bytes != told:
            with suppress(OSError):  # nobody waits for it any more
                self._connection.send(ToldRead(self._path, self._told_bytes - told))

    def read_elsewhere(self, path: str, count: int) -> None:
        """Nothing: it has no processes of its own."""


def _work(
    function: Callable[[Any], Any],
    values: Sequence[Any],
    connection: Connection,
) -> None:
    while True:
        try:
            number = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[bool, Any] = (True, function(values[number]))
        except Exception as exc:  # noqa: BLE001 - raised again where the result is awaited
            answer = (False, exc)
        if isinstance(watcher := read_watch.watcher(), _Teller):
            watcher.tell()
        with suppress(OSError):  # nobody waits for it any more: seen above
            connection.send(answer)


PR_SET_PDEATHSIG = 1


class WorkerLostError(EoctlError):
    """A process of ours has ended before its work was done: killed, for lack of memory perhaps."""

    exit_status = EXIT_ACCESS

    def __init__(self) -> None:
        super().__init__(
            "one of the processes that read the log was killed; what it had to read is missing",
            next_step="the same with --jobs 1, which needs less memory",
        )


def end_with(parent_pid: int) -> None:
    """Have this process killed when the one that forked it ends, whatever ended that.

    Otherwise it would wait for ever: its siblings hold the other end of its pipe open.
    """
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it has ended meanwhile
        os._exit(1)
