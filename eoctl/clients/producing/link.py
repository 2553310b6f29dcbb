"""A network that loses and overtakes: what lies between a producer and its leader.

A request may be dropped before the log, may be overtaken by a later one, and may be applied while
its answer is lost. The producer is told of none of this. All of it follows from a seed: one seed,
one course of events, in every version of Python (only `Random.random` is used, whose sequence is
promised to stay).
"""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import Generic, NamedTuple, TypeVar

from storage.errors import UsageError

Request = TypeVar("Request")

_EXAMPLE = "--fault drop=0.1,reorder=0.2,lost-ack=0.05,seed=7"


class Faults(NamedTuple):
    """How often a request meets with which fault: probabilities, and the seed of all draws."""

    drop: float = 0.0
    reorder: float = 0.0
    lost_ack: float = 0.0
    seed: int = 0


def parse_faults(text: str) -> Faults:
    """Read `drop=0.1,reorder=0.2,lost-ack=0.05,seed=7`; what is not given is 0.

    Raises:
        UsageError: a name or number is none, or nothing would ever arrive.
    """
    given: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (each.strip() for each in part.partition("="))
        field = name.replace("-", "_")
        if field not in Faults._fields or "_" in name:
            raise _refused(f"{name[:40]!r} is no fault, expected drop, reorder, lost-ack or seed")
        if field in given:
            raise _refused(f"{name} is given twice")
        given[field] = _seed(number) if field == "seed" else _probability(name, number)
    for name, field in (("drop", "drop"), ("lost-ack", "lost_ack")):
        if given.get(field, 0.0) >= 1:
            raise _refused(f"with {name}=1 no batch is ever acknowledged")
    return Faults()._replace(**given)  # type: ignore[arg-type]  # a seed is an int


def _seed(number: str) -> int:
    if not (number.isascii() and number.isdecimal() and len(number) <= 20):
        raise _refused(f"seed={number[:40]}: expected a whole number, 0 or more")
    return int(number)


def _probability(name: str, number: str) -> float:
    try:
        probability = float(number.replace("_", "?"))  # Python's own way to write numbers
    except ValueError:
        probability = -1.0
    if not 0 <= probability <= 1:  # nor is NaN
        raise _refused(f"{name}={number[:40]}: expected a probability, 0 to 1")
    return probability


def _refused(what: str) -> UsageError:
    return UsageError(f"--fault: {what}", next_step=_EXAMPLE)


class Fate(Enum):
    """What became of a request."""

    ANSWERED = "answered"
    DROPPED = "dropped"  # the leader never saw it
    ACK_LOST = "ack lost"  # the leader has dealt with it, and nobody knows


class Link(Generic[Request]):
    """The requests that are on their way, and what happens to them there.

    Attributes:
        drops, reorders, lost_acks: how often it did so.
    """

    def __init__(self, faults: Faults) -> None:
        self.drops = 0
        self.reorders = 0
        self.lost_acks = 0
        self._faults = faults
        self._random = Random(faults.seed).random  # noqa: S311  # no secret depends on it
        self._requests: list[Request] = []

    def __len__(self) -> int:
        """Count the requests that are on their way."""
        return len(self._requests)

    def put(self, request: Request) -> None:
        """Send a request after the others."""
        self._requests.append(request)

    def take(self) -> tuple[Request, Fate]:
        """Return the next request that comes to its end, and how; there must be one."""
        faults = self._faults
        index = 0
        later_count = len(self._requests) - 1
        if later_count and self._random() < faults.reorder:
            index = 1 + int(self._random() * later_count)
            self.reorders += 1
        request = self._requests.pop(index)
        if self._random() < faults.drop:
            self.drops += 1
            return request, Fate.DROPPED
        if self._random() < faults.lost_ack:
            self.lost_acks += 1
            return request, Fate.ACK_LOST
        return request, Fate.ANSWERED

    def clear(self) -> None:
        """Lose all that is on its way."""
        self._requests.clear()
