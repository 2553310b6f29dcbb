"""Virtual time, the network and its messages, and what is written down of them."""

from __future__ import annotations

import hashlib
import heapq
import json
import random
from json.encoder import encode_basestring_ascii as _encode_text
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from eoctl.lab.checker.histories import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.lab.world.leader import IsrChange
    from eoctl.lab.world.metadata import Led, MetadataView
    from recovery.truncate.target import EpochEnd
    from storage.file_names import TopicPartition
    from storage.formats.txn_index import AbortedTxn


# -- virtual time, and the order of all that happens: one queue, one source of chance, no threads
#
# One seed gives one course of events, on every Python and in every process: nothing here looks at
# a clock, at hashes or at addresses. Of `random.Random` only `random()` is used, whose numbers
# are promised never to change.


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


# -- what happens to a cluster, in words for people: the course of events of a run


class TraceEvent(NamedTuple):
    """Something that a person wants to know.

    Attributes:
        kind: fault, start, session, election, isr, cut, lost, append, answer, consumer, dropped,
            serves, transaction.
        node: whose; None: of no broker.
        key: the partition.
        offset: of what was appended, answered, or cut at; -1 none.
    """

    time_us: int
    kind: str
    words: str
    node: int | None
    key: TopicPartition | None
    offset: int


class EventTrace:
    """Collects events.

    Attributes:
        events: the first ones, up to a limit.
        counts: of all, by kind.
    """

    LIMIT = 100_000

    def __init__(
        self, scheduler: Scheduler, tell: Callable[[TraceEvent], None] | None = None
    ) -> None:
        self._scheduler = scheduler
        self._tell = tell
        self.events: list[TraceEvent] = []
        self.counts: dict[str, int] = {}

    def tell(
        self,
        kind: str,
        words: str,
        node: int | None = None,
        *,
        key: TopicPartition | None = None,
        offset: int = -1,
    ) -> None:
        """Something has happened."""
        event = TraceEvent(
            time_us=self._scheduler.now_us,
            kind=kind,
            words=words,
            node=node,
            key=key,
            offset=offset,
        )
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(self.events) < self.LIMIT:
            self.events.append(event)
        if self._tell is not None:
            self._tell(event)


# -- the history of clients: what they asked for, and what they were told: eoctl-history(5)


_encode = json.JSONEncoder(separators=(",", ":")).encode


class HistoryWriter:
    """Writes lines through `write`, and keeps a digest of them.

    Attributes:
        digest: SHA-256 of all lines but the header.
        on_commit: called once it is written that a commit is asked for, before it is.
    """

    def __init__(self, write: Callable[[bytes], object], settings: Mapping[str, Any]) -> None:
        self._write = write
        self._digest = hashlib.sha256()
        self.counts: dict[tuple[str, str], int] = {}
        self.on_commit: Callable[[], object] = lambda: None
        header = {"history": "eoctl", "version": VERSION, "clock": "virtual", "settings": settings}
        write(_line(header))

    @property
    def digest(self) -> str:
        """Of what has been written so far."""
        return self._digest.hexdigest()

    def note(
        self, kind: str, process: str, number: int, time_us: int, operation: str, **fields: object
    ) -> None:
        """Write one line."""
        text = (
            f'{{"type":"{kind}","process":{_encode_text(process)},"id":{number},"time_us":{time_us}'
            f',"op":"{operation}"'
        )
        for name, value in fields.items():
            # Two lines are written for each record: what the encoder does with a number or a text
            # is done here, and only the rest is given to it.
            if type(value) is str:
                text += f',"{name}":{_encode_text(value)}'
            else:
                text += f',"{name}":{value if type(value) is int else _encode(value)}'
        line = f"{text}}}\n".encode()
        self.counts[operation, kind] = self.counts.get((operation, kind), 0) + 1
        self._digest.update(line)
        self._write(line)
        if operation == "commit" and kind == "invoke":
            self.on_commit()


def _line(value: Mapping[str, Any]) -> bytes:
    return _encode(value).encode() + b"\n"


# -- what brokers, producers and followers tell each other, with Kafka's names of errors


NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"
REQUEST_TIMED_OUT = "REQUEST_TIMED_OUT"
OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
NETWORK_EXCEPTION = "NETWORK_EXCEPTION"
FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
UNKNOWN_LEADER_EPOCH = "UNKNOWN_LEADER_EPOCH"
CONCURRENT_TRANSACTIONS = "CONCURRENT_TRANSACTIONS"
INVALID_PRODUCER_EPOCH = "INVALID_PRODUCER_EPOCH"
PRODUCER_FENCED = "PRODUCER_FENCED"


class ProduceAnswer(NamedTuple):
    """What a producer is told; `error` is "" when it is acknowledged."""

    error: str
    base_offset: int
    leader: int
    leader_epoch: int


class EndMarker(NamedTuple):
    """What a coordinator has a leader append (WriteTxnMarkers)."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class ConsumerAnswer(NamedTuple):
    """What a consumer is given of a partition.

    Attributes:
        aborted: with read_committed, the aborted transactions that reach into the batches.
    """

    error: str
    batches: list[bytes]
    high_watermark: int
    aborted: list[AbortedTxn]


class FetchPart(NamedTuple):
    """One partition of a follower's fetch request."""

    offset: int
    last_epoch: int | None  # None: nothing is fetched that could part
    leader_epoch: int


class FetchAnswer(NamedTuple):
    """One partition of the response."""

    error: str
    batches: list[bytes]
    high_watermark: int
    diverging: EpochEnd | None


# -- the network between brokers, controller and clients: late, in order on each link, sometimes
#    cut
#
# A link is a connection: what was sent to a process that has ended since is lost, and the other
# side learns of a process that was killed at once, as by a reset. A link that is cut tells
# nothing: what is sent is lost, and only time shows it. A slow one is late by half a second.


LEAST_LATENCY_US = 200
LATENCY_SPREAD_US = 800
SLOW_US = 500_000


class Process(Protocol):
    """An end of a link.

    Attributes:
        name: of the node or client.
        incarnation: counts its starts.
        is_running: it takes messages.
    """

    name: str
    incarnation: int
    is_running: bool


class PlayedMember(Process, Protocol):
    """A broker as its controller knows it."""

    number: int

    def registered(self, broker_epoch: int, view: MetadataView) -> None:
        """It is known now, in this broker epoch."""

    def learn(self, view: MetadataView) -> None:
        """The cluster's metadata is this."""

    def may_stop(self) -> None:
        """Nobody counts on it any more."""

    def altered(self, key: TopicPartition, change: IsrChange, error: str, led: Led) -> None:
        """What became of a change of the ISR, and what the partition is now."""


class Network:
    """Delivers messages: calls of a method of the process that they are sent to."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._isolated: set[str] = set()
        self._slow: set[str] = set()
        self._inside: set[str] = set()
        self._last_us: dict[tuple[str, str], int] = {}

    def isolate(self, name: str, inside: set[str]) -> None:
        """Cut a process off from others of a group; who is not of it still reaches both."""
        self._isolated.add(name)
        self._inside = inside

    def slow(self, name: str, inside: set[str]) -> None:
        """Have what goes between a process and others of a group come late."""
        self._slow.add(name)
        self._inside = inside

    def heal(self) -> None:
        """All reach all, without delay."""
        self._isolated.clear()
        self._slow.clear()

    @property
    def delay_us(self) -> int:
        """By so much some messages are late now."""
        return SLOW_US if self._slow else 0

    def _is_slow(self, source: str, target: str) -> bool:
        ends = {source, target}
        return ends <= self._inside and not ends.isdisjoint(self._slow)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing goes from the one to the other."""
        if source == target or not {source, target} <= self._inside:
            return False
        return source in self._isolated or target in self._isolated

    def send(
        self, source: Process, target: Process, action: Callable[..., None], *arguments: object
    ) -> None:
        """Call a method of `target` a little later, unless the link or the process is gone then."""
        if not target.is_running or (self._isolated and self.is_cut(source.name, target.name)):
            return
        scheduler, link = self._scheduler, (source.name, target.name)
        due_us = scheduler.now_us + LEAST_LATENCY_US + scheduler.draw(LATENCY_SPREAD_US)
        if self._slow and self._is_slow(*link):
            due_us += SLOW_US
        last_us = self._last_us.get(link, 0)
        if due_us <= last_us:
            due_us = last_us + 1
        self._last_us[link] = due_us
        scheduler.at(due_us, self._deliver, (source, target, target.incarnation, action, arguments))

    def _deliver(
        self,
        source: Process,
        target: Process,
        incarnation: int,
        action: Callable[..., None],
        arguments: tuple[object, ...],
    ) -> None:
        if not target.is_running or target.incarnation != incarnation:
            return
        if not self._isolated or not self.is_cut(source.name, target.name):
            action(*arguments)
