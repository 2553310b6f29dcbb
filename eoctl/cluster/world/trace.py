"""What happens to a cluster, in words for people: the course of events of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.cluster.world.scheduler import Scheduler
    from storage.file_names import TopicPartition


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
