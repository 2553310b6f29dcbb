"""A consumer that commits: before it handles what it is given, or after (REPL-12).

Who commits before has lost what it had not handled yet when it ends (at most once); who commits
after is given it again (at least once). It handles one record after the other, each in a
millisecond. What it has committed is kept by a coordinator that never fails and is no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.cluster.clients.consumer import PlayedConsumer
from eoctl.cluster.world.scheduler import MS_US
from eoctl.cluster.world.settings import READ_UNCOMMITTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.cluster.nodes.broker import Broker
    from eoctl.cluster.world.history import HistoryWriter
    from eoctl.cluster.world.network import Network, Process
    from eoctl.cluster.world.scheduler import Scheduler
    from eoctl.cluster.world.trace import EventTrace
    from storage.file_names import TopicPartition

    Offsets = Mapping[TopicPartition, int]

HANDLE_US = MS_US  # a record


class GroupCoordinator:
    """Keeps what a group has committed. It never fails."""

    name = "group-coordinator"
    incarnation = 0
    is_running = True

    def __init__(self, keys: list[TopicPartition], network: Network) -> None:
        self._network = network
        self._offsets: dict[TopicPartition, int] = dict.fromkeys(keys, 0)

    def commit(
        self, client: Process, key: TopicPartition, offset: int, answered: Callable[[], None]
    ) -> None:
        """Keep an offset (OffsetCommit)."""
        self._offsets[key] = offset
        self._network.send(self, client, answered)

    def tell(self, client: Process, answered: Callable[[Offsets], None]) -> None:
        """Say what is kept (OffsetFetch)."""
        self._network.send(self, client, answered, dict(self._offsets))


class _HandledRecords(NamedTuple):
    """Records of a partition that are being handled."""

    records: list[tuple[int, str]]
    begun_us: int


class CommittingConsumer(PlayedConsumer):
    """A consumer that can be killed, and goes on where it has committed.

    Attributes:
        incarnation: counts its starts.
        is_closing: it takes no more, and ends as all that it was given is handled.
    """

    def __init__(
        self,
        name: str,
        brokers: Mapping[int, Broker],
        keys: list[TopicPartition],
        scheduler: Scheduler,
        network: Network,
        history: HistoryWriter,
        trace: EventTrace,
        *,
        commits_before: bool,
        isolation: str = READ_UNCOMMITTED,
    ) -> None:
        super().__init__(name, brokers, keys, scheduler, network, history, isolation=isolation)
        self._trace = trace
        self._commits_before = commits_before
        self._coordinator = GroupCoordinator(keys, network)
        self._handling: dict[TopicPartition, _HandledRecords] = {}
        self._busy: set[TopicPartition] = set()
        self._is_starting = False
        self.is_closing = False

    @property
    def left_us(self) -> int:
        """So long it handles records yet, if nothing befalls it; 0: it handles none."""
        ends = (each.begun_us + len(each.records) * HANDLE_US for each in self._handling.values())
        return max((each - self._scheduler.now_us for each in ends), default=0)

    @property
    def is_at_end(self) -> bool:
        """It has handled all that there is."""
        is_idle = not (self._busy or self._is_starting)
        return self.is_running and is_idle and super().is_at_end

    # -- its life

    def restart(self) -> None:
        """Start after a kill or a stop: go on where it has committed."""
        self.incarnation += 1
        self.is_running = self._is_starting = True
        self.is_closing = False
        self.ends.clear()
        self._network.send(self, self._coordinator, self._coordinator.tell, self, self._go_on)

    def _go_on(self, committed: Offsets) -> None:
        if not self._is_starting:
            return
        self._is_starting = False
        if self.is_closing:
            self._forget()
            return
        for key, offset in committed.items():
            self.positions[key] = self._moved[key] = offset
            self._trace.tell(
                "consumer", f"the consumer goes on at offset {offset} of {_named(key)}", key=key
            )
        self.start()

    def kill(self) -> None:
        """End at once: what it had handled by now is handled."""
        now_us = self._scheduler.now_us
        for key, taken in self._handling.items():
            count = min((now_us - taken.begun_us) // HANDLE_US, len(taken.records))
            self._note_handled(key, taken.records[:count])
        self._forget()

    def close(self) -> None:
        """Take no more; handle and commit what it has.

        What a fetch under way brings it is not given any more (AsyncKafkaConsumer.close).
        """
        self.is_closing = True
        self._expected = dict.fromkeys(self.positions, -1)
        if not (self._busy or self._is_starting):
            self._forget()

    def _forget(self) -> None:
        self.is_running = self._is_starting = False
        self._handling.clear()
        self._busy.clear()
        self._expected = dict.fromkeys(self.positions, -1)

    # -- records

    def _later(self, delay_us: int, key: TopicPartition) -> None:
        incarnation = self.incarnation

        def poll() -> None:
            if self.incarnation == incarnation and not self.is_closing:
                self._poll(key)

        self._scheduler.after(delay_us, poll)

    def _taken(self, key: TopicPartition, records: list[tuple[int, str]]) -> None:
        self._busy.add(key)
        if self._commits_before:
            self._commit(key, lambda: self._handle(key, records, lambda: self._done(key)))
        else:
            self._handle(key, records, lambda: self._commit(key, lambda: self._done(key)))

    def _done(self, key: TopicPartition) -> None:
        self._busy.discard(key)
        if not self.is_closing:
            self._poll(key)
        elif not self._busy:
            self._forget()

    def _commit(self, key: TopicPartition, then: Callable[[], None]) -> None:
        offset = self.positions[key]
        number, incarnation = self._note_commit("invoke", key, offset), self.incarnation

        def answered() -> None:
            if self.incarnation != incarnation:
                return
            self._note_commit("ok", key, offset, number)
            then()

        coordinator = self._coordinator
        self._network.send(self, coordinator, coordinator.commit, self, key, offset, answered)

    def _note_commit(self, kind: str, key: TopicPartition, offset: int, number: int = 0) -> int:
        if not number:
            self._number += 1
            number = self._number
        now_us = self._scheduler.now_us
        self._history.note(
            kind, self.name, number, now_us, "offset-commit", offsets={_named(key): offset}
        )
        return number

    def _handle(
        self, key: TopicPartition, records: list[tuple[int, str]], then: Callable[[], None]
    ) -> None:
        taken = self._handling[key] = _HandledRecords(records, self._scheduler.now_us)

        def handled() -> None:
            if self._handling.get(key) is taken:  # else it was killed
                del self._handling[key]
                self._note_handled(key, records)
                then()

        self._scheduler.after(len(records) * HANDLE_US, handled)

    def _note_handled(self, key: TopicPartition, records: list[tuple[int, str]]) -> None:
        if records:
            self._number += 1
            now_us = self._scheduler.now_us
            self._history.note(
                "ok", self.name, self._number, now_us, "handle", records={_named(key): records}
            )


def _named(key: TopicPartition) -> str:
    return f"{key.topic}-{key.partition}"
