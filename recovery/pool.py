"""Call a function for many values in worker processes.

A server process forks the workers (multiprocessing's "forkserver"). This process never forks: the
child of a process with threads can inherit a lock that no thread will release. Python does not see
such threads, because librdkafka and Arrow start them natively. The server has one thread. It has
imported the function's module, so a worker starts in a few milliseconds.

Workers end with the iteration, also if the iteration is abandoned or this process is killed. They
leave an interrupt to this process. If a worker dies, the pool tries its value once more and keeps
the results that have arrived. The progress line counts what workers read
(`storage.files.positioned_file`).

A worker gets all values when it starts, and then only their numbers. Values of one command share
much data (the log directory, its checkpoints, the metadata of the cluster). Each worker gets this
data once.

A worker imports the caller's main module, as in all of multiprocessing. A program that uses this
module needs `if __name__ == "__main__":`.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import threading
import time
from collections import Counter, deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from storage.errors import EXIT_ACCESS, EoctlError
from storage.files import positioned_file
from storage.files.uris import is_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS_COUNT = 2  # per value whose worker dies
# A worker has its next numbers while its last results travel, so small values do not wait for this
# process. With few values, a worker would keep values that an idle worker could take.
MAX_AHEAD_COUNT = 8
VALUES_PER_AHEAD = 64
REPORT_SECONDS = 0.2  # between two messages of a worker about its reads
# This process reads fewer bytes than this itself. Starting two workers costs 0.3 to 0.5 s, as much
# as 300 small partitions (check, rebuild and repair of 300, with one process and with two).
MIN_SHARED_BYTES = 256 << 20
# Opening the smallest partition takes 2 ms, as much time as reading this many bytes.
MIN_PARTITION_BYTES = 512 << 10
STALL_SECONDS = 30.0  # without a result or a read, until a worker is reported
POLL_SECONDS = 1.0


def paying_jobs(jobs: int, sizes_bytes: Iterable[int], *, least_bytes: int = 0) -> int:
    """Return `jobs` if this many workers are worth their start for these values, else 1.

    Args:
        jobs: the most workers.
        sizes_bytes: the bytes to read per value. Reads only as many as the answer needs.
        least_bytes: the least cost of a value, as bytes to read.
    """
    if jobs <= 1:
        return 1
    total_bytes = 0
    for each in sizes_bytes:
        total_bytes += max(each, least_bytes)
        if total_bytes >= MIN_SHARED_BYTES:
            return jobs
    return 1


def reading_bytes(path: str, size_bytes: int) -> int:
    """Return how many bytes on a local disk take as long to read as these."""
    # The latency of a remote store decides, and workers share it.
    return MIN_SHARED_BYTES if is_uri(path) else size_bytes


class WorkerLostError(EoctlError):
    """A worker process died twice on the same value.

    Attributes:
        path: the path that the worker read, "" if unknown.
    """

    exit_status = EXIT_ACCESS

    def __init__(self, path: str = "", how: str = "") -> None:
        self.path = path
        super().__init__(
            f"{path}: the process that read it {how or 'ended before its work was done'}, twice",
            next_step="the same command with --jobs 1, which needs less memory",
        )


class _LostError(Exception):
    """The loss of a worker. `_Pool` and `_Stream` try its value once more."""


def map_unordered(
    function: Callable[[T], R],
    values: Sequence[T],
    jobs: int,
    *,
    name_of: Callable[[T], object] = str,
) -> Iterator[tuple[int, R]]:
    """Yield (index, result) for each value, as results arrive. Raise what the function raises.

    Args:
        function: of a module, or a partial of such a function. The pool may run it again for a
            value whose worker died.
        values: taken in order.
        jobs: number of workers. With 1 job or 1 value this process does the work.
        name_of: the path that errors and stall reports print for a value.

    Raises:
        WorkerLostError: two workers died on the same value.
    """
    if jobs <= 1 or len(values) <= 1:
        for number, value in enumerate(values):
            yield number, function(value)
        return
    pool = _Pool(function, values, jobs, name_of)
    try:
        for _ in range(min(jobs, len(values))):
            pool.add_worker()
        while pool.is_busy:
            yield from pool.results()
    finally:
        pool.stop()


def map_in_order(
    function: Callable[[T], R],
    values: Sequence[T],
    jobs: int,
    *,
    name_of: Callable[[T], object] = str,
    on_done: Callable[[R], None] | None = None,
) -> Iterator[R]:
    """Yield the results in the order of the values. For the arguments see `map_unordered`.

    `on_done` gets each result when it arrives.
    """
    waiting: dict[int, R] = {}
    next_number = 0
    for number, result in map_unordered(function, values, jobs, name_of=name_of):
        if on_done is not None:
            on_done(result)
        waiting[number] = result
        while next_number in waiting:
            yield waiting.pop(next_number)
            next_number += 1


def stream_in_order(
    function: Callable[[T], Iterator[R]],
    values: Sequence[T],
    jobs: int,
    *,
    weight_of: Callable[[R], int],
    max_weight: int,
    name_of: Callable[[T], object] = str,
) -> Iterator[Iterator[R]]:
    """Yield an iterator of messages per value, in order. Errors of the function keep their place.

    The workers take the values in turn and work ahead of the reader. The reader may leave a stream
    before its end.

    Args:
        function: of a module, or a partial of such a function. For the same value it must yield the
            same messages: a second worker skips messages that were already sent.
        values: one stream each.
        jobs: number of workers. With 1 job or 1 value this process does the work.
        weight_of: the weight of a message.
        max_weight: how much a worker keeps before it waits for the reader.
        name_of: the path that errors and stall reports print for a value.

    Raises:
        WorkerLostError: in a stream, if two workers died on its value.
    """
    if jobs <= 1 or len(values) <= 1:
        yield from map(function, values)
        return
    streams = [
        _Stream(function, values[first::jobs], weight_of, max_weight, name_of)
        for first in range(min(jobs, len(values)))
    ]
    try:
        for stream in streams:
            stream.start()
        for number in range(len(values)):
            yield streams[number % len(streams)].following()
    finally:
        stop_all([stream.worker for stream in streams if stream.worker is not None])


# --- values and results ---------------------------------------------------------------------------


class _Pool:
    """Workers, the values of each, and the remaining values."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        values: Sequence[Any],
        jobs: int,
        name_of: Callable[[Any], object],
    ) -> None:
        self._function = function
        self._values = values
        self._name_of = name_of
        self._left = deque(range(len(values)))
        self._ahead_count = min(len(values) // (jobs * VALUES_PER_AHEAD) + 1, MAX_AHEAD_COUNT)
        self._lost_count: Counter[int] = Counter()  # per value
        self._numbers: dict[Worker, deque[int]] = {}  # of the values of a worker
        self._selector = selectors.DefaultSelector()
        self._inspected = time.monotonic()

    @property
    def is_busy(self) -> bool:
        return bool(self._numbers)

    def add_worker(self) -> None:
        """Start a worker on the next values."""
        worker = Worker(_work, (self._function, self._values), self._function)
        self._numbers[worker] = deque()
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)
        self._hand_out(worker)

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield results as they arrive. Each worker continues before its result is yielded."""
        ready = self._selector.select(POLL_SECONDS)
        if time.monotonic() - self._inspected >= POLL_SECONDS:
            self._inspect_others({key.data for key, _ in ready})
        for key, _ in ready:
            worker = key.data
            try:
                answer = worker.take()
            except _LostError:
                self._replace(worker)
                continue
            if isinstance(answer, ReportedRead):
                continue
            is_right, value = answer
            if not is_right:
                raise value
            number = self._numbers[worker].popleft()
            self._hand_out(worker)
            yield number, value

    def _inspect_others(self, ready: set[Worker]) -> None:
        self._inspected = time.monotonic()
        for worker, numbers in [*self._numbers.items()]:
            if worker not in ready:
                try:
                    worker.inspect_stalled(str(self._name_of(self._values[numbers[0]])))
                except _LostError:
                    self._replace(worker)

    def _hand_out(self, worker: Worker) -> None:
        numbers = self._numbers[worker]
        while self._left and len(numbers) < self._ahead_count:
            numbers.append(self._left.popleft())
            try:
                worker.send(numbers[-1])
            except _LostError:
                worker.kill()  # the end of its connection comes after the data that it has sent
                return
        if not numbers:
            self._dismiss(worker)

    def _replace(self, worker: Worker) -> None:
        """Give the values of a dead worker to a new worker. It died on the first of them."""
        numbers = self._dismiss(worker)
        self._lost_count[numbers[0]] += 1
        if self._lost_count[numbers[0]] == ATTEMPTS_COUNT:
            name = str(self._name_of(self._values[numbers[0]]))
            raise WorkerLostError(name, worker.ending())
        self._left.extendleft(reversed(numbers))
        self.add_worker()

    def _dismiss(self, worker: Worker) -> deque[int]:
        self._selector.unregister(worker.connection)
        worker.stop()
        return self._numbers.pop(worker)

    def stop(self) -> None:
        self._selector.close()
        stop_all(self._numbers)


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
            answer = (False, _sendable(exc))
        if isinstance(watcher := positioned_file.current_watcher(), _Reporter):
            watcher.report()
        with suppress(OSError):  # nobody waits for this worker: handled above
            connection.send(answer)


# --- streams --------------------------------------------------------------------------------------


class _Stream:
    """The values of one worker. It sends (True, message), (False, error), None after each value."""

    def __init__(
        self,
        function: Callable[[Any], Iterator[Any]],
        values: Sequence[Any],
        weight_of: Callable[[Any], int],
        max_weight: int,
        name_of: Callable[[Any], object],
    ) -> None:
        self._function = function
        self._values = values
        self._limits = weight_of, max_weight
        self._name_of = name_of
        self._number = -1  # of the current value
        self._taken = _Taken(0, 0)  # of this value
        self._lost_number = -1  # of the value on which a worker has died
        self._is_within = False
        self.worker: Worker | None = None

    def start(self) -> None:
        """Start a worker on the values from the current value on, after the messages taken."""
        first = max(self._number, 0)
        arguments = (self._function, self._values[first:], *self._limits, self._taken)
        self.worker = Worker(_send_streams, arguments, self._function)

    def following(self) -> Iterator[Any]:
        """Return an iterator over the messages of the next value."""
        while self._is_within:  # the reader has left the previous value
            self._receive()
        self._is_within = True
        self._number += 1
        self._taken = _Taken(0, 0)
        return self._messages()

    def _messages(self) -> Iterator[Any]:
        while (answer := self._receive()) is not None:
            is_right, message = answer
            if not is_right:
                raise message
            yield message

    def _receive(self) -> tuple[bool, Any] | None:
        while True:
            assert self.worker is not None
            try:
                answer: tuple[bool, Any] | None = self.worker.receive(self._name())
            except _LostError:
                self.worker.stop()
                if self._lost_number == self._number:
                    self._is_within = False
                    raise WorkerLostError(self._name(), self.worker.ending()) from None
                self._lost_number = self._number
                self.start()
            else:
                self._taken = self._taken.with_answer(answer, self._limits[0])
                self._is_within = answer is not None
                return answer

    def _name(self) -> str:
        return str(self._name_of(self._values[self._number]))


class _Taken(NamedTuple):
    """The number and weight of the messages of a value that the reader has."""

    answers: int
    weight: int

    def with_answer(
        self, answer: tuple[bool, Any] | None, weight_of: Callable[[Any], int]
    ) -> _Taken:
        return _Taken(self.answers + 1, self.weight + _weight(answer, weight_of))


def _send_streams(
    function: Callable[[Any], Iterator[Any]],
    values: Sequence[Any],
    weight_of: Callable[[Any], int],
    max_weight: int,
    taken: _Taken,
    connection: Connection,
) -> None:
    """Send all answers, except answers of the first value that the reader has.

    End if the first value yields other messages than in the dead worker: the file has changed.
    """
    with suppress(OSError):  # the reader may have left; errors of a value are sent
        for value in values:
            skipped = _Taken(0, 0)
            for answer in _ahead(_answers(function, value), weight_of, max_weight):
                if skipped.answers < taken.answers:
                    skipped = skipped.with_answer(answer, weight_of)
                    if answer is None or (skipped.answers == taken.answers and skipped != taken):
                        return
                else:
                    connection.send(answer)
            taken = _Taken(0, 0)


def _weight(answer: tuple[bool, Any] | None, weight_of: Callable[[Any], int]) -> int:
    return weight_of(answer[1]) if answer is not None and answer[0] else 0


def _answers(
    function: Callable[[Any], Iterator[Any]], value: object
) -> Iterator[tuple[bool, Any] | None]:
    try:
        for message in function(value):
            yield True, message
    except Exception as exc:  # noqa: BLE001 - raised again where the stream is read
        yield False, _sendable(exc)
    yield None


def _sendable(error: Exception) -> Exception:
    """Return an error that can be sent to another process."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - its own bytes
    except Exception:  # noqa: BLE001 - whatever its class does
        return EoctlError(f"{type(error).__name__}: {error}")
    return error


def _ahead(
    answers: Iterator[tuple[bool, Any] | None], weight_of: Callable[[Any], int], max_weight: int
) -> Iterator[tuple[bool, Any] | None]:
    """Yield the answers late: compute as many as the weight allows before sending them."""
    waiting: deque[tuple[tuple[bool, Any] | None, int]] = deque()
    waiting_weight = 0
    for answer in answers:
        weight = _weight(answer, weight_of)
        waiting.append((answer, weight))
        waiting_weight += weight
        while waiting_weight > max_weight:
            oldest, weight = waiting.popleft()
            yield oldest
            waiting_weight -= weight
    for answer, _ in waiting:
        yield answer


# --- one worker -----------------------------------------------------------------------------------


class Worker:
    """A worker process and the connection to it. If the connection fails, the worker is lost."""

    def __init__(
        self, work: Callable[..., None], arguments: tuple[Any, ...], function: Any = None
    ) -> None:
        """Run `work` in the worker with the arguments and its end of the connection.

        Args:
            work: of a module.
            arguments: plain values.
            function: the function that `work` runs. The server imports its module before the first
                worker starts.
        """
        context = _start_server(function)
        with suppress(AttributeError, ValueError):  # as multiprocessing does, but errors are raised
            sys.stdout.flush()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_begin, args=(work, arguments, theirs, dict(os.environ)), daemon=True
        )
        self._heard_at = self._inspected = time.monotonic()
        self._is_reported = self._was_stopped = False
        try:
            with suppress(ConnectionError, EOFError):  # died at once: `take` handles it
                self.process.start()
        except BaseException:
            self.stop()
            raise
        finally:
            theirs.close()

    def send(self, value: object) -> None:
        """Send a value. Raise _LostError if the worker is gone."""
        try:
            self.connection.send(value)
        except OSError:
            raise _LostError from None
        self._heard_at = time.monotonic()

    def receive(self, name: str) -> Any:
        """Return the next value that is not a message about reads. Raises _LostError."""
        self._heard_at = self._inspected = time.monotonic()
        while True:
            if not self._has_more():
                self.inspect_stalled(name)
            elif not isinstance(value := self.take(), ReportedRead):
                return value

    def _has_more(self) -> bool:
        try:
            return bool(self.connection.poll(POLL_SECONDS))
        except OSError:
            raise _LostError from None

    def take(self) -> Any:
        """Return the next message, a value or a message about reads. Raises _LostError."""
        try:
            value = self.connection.recv()
        except (EOFError, OSError):
            raise _LostError from None
        self._heard_at = time.monotonic()
        self._is_reported = False
        if (
            isinstance(value, ReportedRead)
            and (watcher := positioned_file.current_watcher()) is not None
        ):
            watcher.read_elsewhere(value.path, value.read_bytes)
        return value

    def inspect_stalled(self, name: str) -> None:
        """Report once that the worker makes no progress. Raise _LostError if it was stopped."""
        now = time.monotonic()
        if now - self._inspected > 5 * POLL_SECONDS:  # this process itself was stopped (Ctrl-Z)
            self._heard_at = now
        self._inspected = now
        seconds = now - self._heard_at
        if seconds < STALL_SECONDS:
            return
        if _is_stopped(self.process.pid):
            self._was_stopped = True
            raise _LostError
        if not self._is_reported:
            self._is_reported = True
            positioned_file.report_stall(name, seconds)

    def kill(self) -> None:
        """Kill the process at once: it has nothing that would be lost."""
        if self.process.pid is not None:
            self.process.kill()

    def stop(self) -> None:
        """End the process and its connection."""
        stop_all([self])

    def ending(self) -> str:
        """Return how the process ended, as the rest of a sentence, "" if unknown."""
        code = self.process.exitcode
        if self._was_stopped:
            return "was stopped"
        if code is None or code >= 0:
            return "" if code is None else f"ended with status {code}"
        names = {each.value: each.name for each in signal.Signals}
        return f"was killed by {names.get(-code, f'signal {-code}')}"


def stop_all(workers: Iterable[Worker]) -> None:
    """End workers and their connections, within a second."""
    from multiprocessing import process

    workers = [*workers]
    for each in workers:
        each.kill()
        each.connection.close()
    deadline = time.monotonic() + POLL_SECONDS
    for each in workers:
        if each.process.pid is not None:
            each.process.join(max(deadline - time.monotonic(), 0))
            if each.process.is_alive():  # blocked by a disk: the end of Python would wait for it
                process._children.discard(each.process)  # type: ignore[attr-defined] # noqa: SLF001


class ReportedRead(NamedTuple):
    """The bytes of a log that a worker has read since its last message."""

    path: str
    read_bytes: int


class _Reporter:
    """A watcher of a worker's reads. Sends them to the process that waits for the worker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._count = positioned_file.LogCount()
        self._path = ""
        self._reported_bytes = 0
        self._reported_at = time.monotonic()

    def read(self, path: str, pos: int, count: int) -> None:
        self._count.read(path, pos, count)
        self._path = path
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self.report()

    def report(self) -> None:
        """Send the number of bytes read since the last message."""
        self._reported_at = time.monotonic()
        reported, self._reported_bytes = self._reported_bytes, self._count.count_bytes
        with suppress(OSError):  # the reader may have left
            self._connection.send(ReportedRead(self._path, self._reported_bytes - reported))

    def read_elsewhere(self, path: str, count: int) -> None:
        """Do nothing: a worker has no workers."""


def _start_server(function: Any) -> Any:
    """Start the server unless it runs. Return the context that starts workers.

    The first caller's function decides what the server imports. Each worker imports modules that
    need Arrow: that import starts threads. numpy's import would start threads too, without the
    variable. Without a place for the server's socket (a full disk, a long TMPDIR), each worker
    starts again. So does each worker on macOS, whose numerical libraries may not be forked.
    """
    import multiprocessing
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    modules = [__name__, "numpy"]
    while hasattr(function, "func"):  # a partial function
        function = function.func
    if function is not None and "pyarrow" not in sys.modules:
        modules.append(function.__module__)
    context.set_forkserver_preload(modules)
    resource_tracker.ensure_running()  # its start would end a block of interrupts
    if sys.platform == "darwin":
        return multiprocessing.get_context("spawn")
    try:
        # Workers inherit the blocked signals of the server.
        with _interrupts_blocked(), _one_thread_in_numpy():
            forkserver.ensure_running()
    except OSError:
        return multiprocessing.get_context("spawn")
    return context


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let new processes inherit a blocked SIGINT: an interrupt is for this process alone."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread_in_numpy() -> Iterator[None]:
    name = "OPENBLAS_NUM_THREADS"
    is_set = name in os.environ
    os.environ.setdefault(name, "1")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[name]


def _begin(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    connection: Connection,
    environment: dict[str, str],
) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # The server has the environment of the moment when it started.
    os.environ.clear()
    os.environ.update(environment)
    positioned_file.watch(_Reporter(connection))
    work(*arguments, connection)


def _end_with_parent() -> None:
    """End this worker when the process that started it ends, even if this worker is busy."""
    from multiprocessing import connection, parent_process

    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _is_stopped(pid: int | None) -> bool:
    """Return whether a process was stopped by a signal (SIGSTOP), according to /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[:1] == ["T"]
