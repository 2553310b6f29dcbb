"""Virtual time, and the order of all that happens: one queue, one source of chance, no threads.

One seed gives one course of events, on every Python and in every process: nothing here looks at a
clock, at hashes or at addresses. Of `random.Random` only `random()` is used, whose numbers are
promised never to change.
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND_US = 1_000_000
MS_US = 1000
CALLED_OFF_MAX = 64
_Arguments = tuple[Any, ...]


class Timer:
    """By this something that is to happen can be called off.

    Attributes:
        is_waiting: it has not happened, and is not called off.
    """

    __slots__ = ("_scheduler", "is_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.is_waiting = True

    def call_off(self) -> None:
        """It will not happen."""
        if self.is_waiting:
            self.is_waiting = False
            self._scheduler.called_off_count += 1


class Scheduler:
    """The clock of a simulation, and what is to happen.

    Attributes:
        now_us: microseconds since the start.
        events_count: so many things have happened.
        called_off_count: so many still lie in the queue, and will not happen.
    """

    def __init__(self, seed: int) -> None:
        self.now_us = 0
        self.events_count = 0
        self.called_off_count = 0
        # By time, then by number, in the order of the calls: no two have the same one, so that
        # nothing behind it is compared. The timer is there where it may be called off.
        self._queue: list[tuple[int, int, Timer | None, Callable[..., None], _Arguments]] = []
        self._number = 0
        self._random = random.Random(seed)  # noqa: S311 - it is to be repeated

    def draw(self, count: int) -> int:
        """A number from 0 to count - 1."""
        return int(self._random.random() * count)

    def after(self, delay_us: int, action: Callable[..., None], *arguments: object) -> Timer:
        """Have something happen later; what is due at one time happens as it was called for."""
        timer = Timer(self)
        queue = self._queue
        if self.called_off_count > CALLED_OFF_MAX and 2 * self.called_off_count > len(queue):
            # Most timers guard against what does not come, and would lie here for long.
            queue[:] = [each for each in queue if each[2] is None or each[2].is_waiting]
            heapq.heapify(queue)
            self.called_off_count = 0
        heapq.heappush(queue, (self.now_us + delay_us, self._number, timer, action, arguments))
        self._number += 1
        return timer

    def at(self, due_us: int, action: Callable[..., None], arguments: _Arguments) -> None:
        """Have something happen at a time that is not over; nobody can call it off."""
        heapq.heappush(self._queue, (due_us, self._number, None, action, arguments))
        self._number += 1

    def run(self, until: Callable[[], bool], limit_us: int) -> bool:
        """Let things happen until something holds; False: first it was late, or nothing is left."""
        queue, pop = self._queue, heapq.heappop
        while not until():
            if not queue or queue[0][0] > limit_us:
                self.now_us = max(self.now_us, limit_us)
                return False
            at_us, _, timer, action, arguments = pop(queue)
            if timer is not None:
                if not timer.is_waiting:
                    self.called_off_count -= 1
                    continue
                timer.is_waiting = False  # it happens: to call it off is too late
            self.now_us = at_us
            self.events_count += 1
            action(*arguments)
        return True
