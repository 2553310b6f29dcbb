"""Virtual time, the network and its messages, and the history and trace of them."""

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

    from eoctl.lab.environment.leader import IsrChange
    from eoctl.lab.environment.metadata import Led, MetadataView
    from recovery.truncate.target import EpochEnd
    from storage.file_names import TopicPartition
    from storage.formats.txn_index import AbortedTxn


# -- virtual time, and the order of all events: one queue, one source of randomness, no threads.
#
# One seed gives one sequence of events, on every Python and in every process. This code uses no
# clock, no hashes and no addresses. Of `random.Random` it uses only `random()`, whose numbers are
# guaranteed never to change.


SECOND_US = 1_000_000
MS_US = 1000
CALLED_OFF_MAX = 64
_Arguments = tuple[Any, ...]


class Timer:
    """Handle to cancel a scheduled event.

    Attributes:
        is_waiting: the event has not happened, and is not cancelled.
    """

    __slots__ = ("_scheduler", "is_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.is_waiting = True

    def call_off(self) -> None:
        """Cancel the event."""
        if self.is_waiting:
            self.is_waiting = False
            self._scheduler.called_off_count += 1


class Scheduler:
    """Clock of a simulation, with its scheduled events.

    Attributes:
        now_us: microseconds since the start.
        events_count: events that have happened.
        called_off_count: cancelled events that are still in the queue.
    """

    def __init__(self, seed: int) -> None:
        self.now_us = 0
        self.events_count = 0
        self.called_off_count = 0
        # By time, then by a unique number in the order of scheduling, so the comparison never
        # reaches the rest. Only an event that can be cancelled has a timer.
        self._queue: list[tuple[int, int, Timer | None, Callable[..., None], _Arguments]] = []
        self._number = 0
        self._random = random.Random(seed)  # noqa: S311 - it is to be repeated

    def draw(self, count: int) -> int:
        """Return a random number from 0 to count - 1."""
        return int(self._random.random() * count)

    def after(self, delay_us: int, action: Callable[..., None], *arguments: object) -> Timer:
        """Schedule an event. Events of the same time happen in the order of scheduling."""
        timer = Timer(self)
        queue = self._queue
        if self.called_off_count > CALLED_OFF_MAX and 2 * self.called_off_count > len(queue):
            # Most timers guard against rare events, and would stay in the queue for long.
            queue[:] = [each for each in queue if each[2] is None or each[2].is_waiting]
            heapq.heapify(queue)
            self.called_off_count = 0
        heapq.heappush(queue, (self.now_us + delay_us, self._number, timer, action, arguments))
        self._number += 1
        return timer

    def at(self, due_us: int, action: Callable[..., None], arguments: _Arguments) -> None:
        """Schedule an event, which cannot be cancelled, at a time that is not over."""
        heapq.heappush(self._queue, (due_us, self._number, None, action, arguments))
        self._number += 1

    def run(self, until: Callable[[], bool], limit_us: int) -> bool:
        """Run events until a condition holds. Return False at the limit or without events."""
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
                timer.is_waiting = False  # too late to cancel
            self.now_us = at_us
            self.events_count += 1
            action(*arguments)
        return True


# -- events of a cluster, in words for people


class TraceEvent(NamedTuple):
    """An event for a person to read.

    Attributes:
        kind: `fault`, `start`, `session`, `election`, `isr`, `cut`, `lost`, `append`, `answer`,
            `consumer`, `dropped`, `serves`, `transaction`.
        node: broker of the event, None without a broker.
        key: the partition.
        offset: offset of an append, an answer or a truncation, -1 without an offset.
    """

    time_us: int
    kind: str
    words: str
    node: int | None
    key: TopicPartition | None
    offset: int


class EventTrace:
    """Collector of events.

    Attributes:
        events: the first events, up to a limit.
        counts: all events, by kind.
    """

    LIMIT = 100_000

    def __init__(
        self, scheduler: Scheduler, report: Callable[[TraceEvent], None] | None = None
    ) -> None:
        self._scheduler = scheduler
        self._report = report
        self.events: list[TraceEvent] = []
        self.counts: dict[str, int] = {}

    def report(
        self,
        kind: str,
        words: str,
        node: int | None = None,
        *,
        key: TopicPartition | None = None,
        offset: int = -1,
    ) -> None:
        """Record an event."""
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
        if self._report is not None:
            self._report(event)


# -- the history of clients, with their requests and the answers: eoctl-history(5)


_encode = json.JSONEncoder(separators=(",", ":")).encode


class HistoryWriter:
    """Writer of lines through `write`, with a digest of them.

    Attributes:
        digest: SHA-256 of all lines but the header.
        on_commit: called after the line of a commit request, before the request.
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
        """SHA-256 of the lines so far."""
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
            # Each record takes two lines, so numbers and texts are encoded here. The encoder gets
            # only the rest.
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


# -- messages between brokers, producers and followers, with Kafka's names of errors


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
    """Answer to a producer. `error` is "" if the batch is acknowledged."""

    error: str
    base_offset: int
    leader: int
    leader_epoch: int


class EndMarker(NamedTuple):
    """Marker that a coordinator sends to a leader (WriteTxnMarkers)."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class ConsumerAnswer(NamedTuple):
    """Records of a partition for a consumer.

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
    last_epoch: int | None  # None: no check for divergence
    leader_epoch: int


class FetchAnswer(NamedTuple):
    """One partition of the fetch response."""

    error: str
    batches: list[bytes]
    high_watermark: int
    diverging: EpochEnd | None


# -- the network between brokers, controller and clients, with late messages in order on each link.
#
# A link is a connection. A message to a process that has ended since is lost. The other side learns
# at once that a process was killed, as by a reset. On an isolated link messages are lost, and only
# timeouts show it. A slow link is late by half a second.


LEAST_LATENCY_US = 200
LATENCY_SPREAD_US = 800
SLOW_US = 500_000


class Process(Protocol):
    """An end of a link.

    Attributes:
        name: of the node or client.
        incarnation: number of its starts.
        is_running: it takes messages.
    """

    name: str
    incarnation: int
    is_running: bool


class SimulatedMember(Process, Protocol):
    """A broker from its controller's view."""

    number: int

    def registered(self, broker_epoch: int, view: MetadataView) -> None:
        """Take the broker epoch of a registration."""

    def learn(self, view: MetadataView) -> None:
        """Take the cluster's metadata."""

    def may_stop(self) -> None:
        """Stop, because the partitions have other leaders."""

    def altered(self, key: TopicPartition, change: IsrChange, error: str, led: Led) -> None:
        """Take the result of an ISR change, and the state of the partition."""


class Network:
    """Delivery of messages, which are calls of a method of the target process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._isolated: set[str] = set()
        self._slow: set[str] = set()
        self._inside: set[str] = set()
        self._last_us: dict[tuple[str, str], int] = {}

    def isolate(self, name: str, inside: set[str]) -> None:
        """Isolate a process within a group. Processes outside of it still reach both sides."""
        self._isolated.add(name)
        self._inside = inside

    def slow(self, name: str, inside: set[str]) -> None:
        """Delay the messages between a process and others of a group."""
        self._slow.add(name)
        self._inside = inside

    def heal(self) -> None:
        """End all isolation and delay."""
        self._isolated.clear()
        self._slow.clear()

    @property
    def delay_us(self) -> int:
        """The current delay of slow messages."""
        return SLOW_US if self._slow else 0

    def _is_slow(self, source: str, target: str) -> bool:
        ends = {source, target}
        return ends <= self._inside and not ends.isdisjoint(self._slow)

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether no message passes between two processes."""
        if source == target or not {source, target} <= self._inside:
            return False
        return source in self._isolated or target in self._isolated

    def send(
        self, source: Process, target: Process, action: Callable[..., None], *arguments: object
    ) -> None:
        """Call a method of `target` a little later, unless the link or the process is down then."""
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
