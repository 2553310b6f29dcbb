"""Call a generator for many values in several processes; what each yields comes as a stream."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from recovery.work.processes import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

T = TypeVar("T")
M = TypeVar("M")


def stream_in_order(
    function: Callable[[T], Iterator[M]],
    values: Sequence[T],
    jobs: int,
    *,
    weight_of: Callable[[M], int],
    max_weight: int,
) -> Iterator[Iterator[M]]:
    """Give the messages of each value, in order; what the function raises is raised in its place.

    The values are dealt out in turn to the processes, which work ahead of the reader and end when
    the iteration does. A reader may leave a stream before its end.

    Args:
        function: of a module: it is sent to the processes.
        values: one stream each.
        jobs: processes; with one, or one value, it is done in this process.
        weight_of: what a message counts.
        max_weight: how much a process keeps before it waits for the reader.

    Raises:
        WorkerLostError: in a stream: its process has died. What was given of it may be used
            already, so that it cannot be done again.
    """
    if jobs <= 1 or len(values) <= 1:
        yield from map(function, values)
        return
    workers: list[_Streams] = []
    try:
        for first in range(min(jobs, len(values))):
            arguments = (function, values[first::jobs], weight_of, max_weight)
            workers.append(_Streams(ChildProcess(_work, arguments)))
        for number in range(len(values)):
            yield workers[number % len(workers)].following()
    finally:
        for worker in workers:
            worker.child.stop()


class _Streams:
    """What one process sends: (True, message), (False, what was raised), None behind each value."""

    def __init__(self, child: ChildProcess) -> None:
        self.child = child
        self._is_within = False

    def following(self) -> Iterator[Any]:
        """Give the messages of its next value."""
        while self._is_within:  # the reader had enough of the one before
            self._next()
        self._is_within = True
        while True:
            answer = self._next()
            if answer is None:
                return
            yield answer[1]

    def _next(self) -> tuple[bool, Any] | None:
        answer: tuple[bool, Any] | None = self.child.receive()
        if answer is None:
            self._is_within = False
        elif not answer[0]:
            raise answer[1]
        return answer


def _work(
    function: Callable[[Any], Iterator[Any]],
    values: Sequence[Any],
    weight_of: Callable[[Any], int],
    max_weight: int,
    connection: Connection,
) -> None:
    with suppress(OSError):  # nobody waits for it any more; what a value raises is sent
        for value in values:
            for answer in _ahead(_answers(function, value), weight_of, max_weight):
                connection.send(answer)


def _answers(
    function: Callable[[Any], Iterator[Any]], value: object
) -> Iterator[tuple[bool, Any] | None]:
    try:
        for message in function(value):
            yield True, message
    except Exception as exc:  # noqa: BLE001 - raised again where the stream is read
        yield False, exc
    yield None


def _ahead(
    answers: Iterator[tuple[bool, Any] | None], weight_of: Callable[[Any], int], max_weight: int
) -> Iterator[tuple[bool, Any] | None]:
    """Give the answers behind the next ones: these are kept up to a weight."""
    waiting: deque[tuple[tuple[bool, Any] | None, int]] = deque()
    waiting_weight = 0
    for answer in answers:
        weight = weight_of(answer[1]) if answer is not None and answer[0] else 0
        waiting.append((answer, weight))
        waiting_weight += weight
        while waiting_weight > max_weight:
            oldest, weight = waiting.popleft()
            yield oldest
            waiting_weight -= weight
    for answer, _ in waiting:
        yield answer
