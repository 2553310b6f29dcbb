"""The network between brokers, controller and clients: late, in order on each link, sometimes cut.

A link is a connection: what was sent to a process that has ended since is lost, and the other side
learns of a process that was killed at once, as by a reset. A link that is cut tells nothing: what
is sent is lost, and only time shows it. A slow one is late by half a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.cluster.world.metadata import Led, MetadataView
    from eoctl.cluster.world.scheduler import Scheduler
    from storage.file_names import TopicPartition
    from storage.replication.leader import IsrChange

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
