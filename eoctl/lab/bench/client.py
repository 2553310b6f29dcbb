"""A cluster from a client's view: create, watch and delete topics, start and kill brokers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from storage.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from eoctl.lab.bench.scenarios import Cell


WAIT_S = 180.0
POLL_S = 0.1
ASK_S = 10.0
STILL_S = 15.0  # longer than the session of a paused broker
QUIET_TURNS = 5  # number of successive checks without a change


class PartitionSeen(NamedTuple):
    """A partition as a broker reports it. `leader` is -1 without a leader."""

    leader: int
    in_sync: tuple[int, ...]
    replicas: tuple[int, ...]


class Cluster(ABC):
    """Brokers that a client can reach. Subclasses start and kill them.

    Attributes:
        bootstrap: `host:port`, with commas.
        broker_ids: all brokers.
    """

    broker_ids: tuple[int, ...]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin_client: AdminClient | None = None

    def close(self) -> None:
        """Drop the client."""
        self._admin_client = None

    @property
    def log_dirs(self) -> dict[int, Path]:
        """The log dir of each broker, {} if they are on other machines."""
        return {}

    @abstractmethod
    def kill(self, broker: int) -> None:
        """End a broker at once."""

    @abstractmethod
    def start(self, broker: int) -> None:
        """Start a broker again, and do not wait."""

    @abstractmethod
    def require_running(self) -> None:
        """Raise RefusedError if a broker has ended without a kill."""

    # --- topics ----------------------------------------------------------------------------------

    def create_topic(self, name: str, cell: Cell) -> dict[int, PartitionSeen]:
        """Create the topic of a cell, and wait until all replicas are in sync and all leaders lead.

        The controller begins with all replicas in sync, so they are in sync when the first broker
        knows the topic. A leader that does not know the topic yet refuses records. With acks=0 no
        client learns of this. The leader closes the connection, and its records are lost.

        Raises:
            RefusedError: the brokers refuse the topic, or do not reach this state.
        """
        settings = {
            "min.insync.replicas": str(cell.min_insync),
            "unclean.leader.election.enable": "false",
            "file.delete.delay.ms": "1000",
            "retention.ms": "-1",
        }
        topic = NewTopic(
            name,
            num_partitions=cell.partitions,
            replication_factor=cell.replication_factor,
            config=settings,
        )
        try:
            (future,) = self._admin.create_topics([topic], operation_timeout=ASK_S).values()
            future.result(WAIT_S)
        except KafkaException as error:
            raise RefusedError(f"topic {name} cannot be made: {error.args[0].str()}") from error
        self._wait(
            lambda: (
                (seen := self.seen(name)) is not None
                and len(seen) == cell.partitions
                and all(len(each.in_sync) == cell.replication_factor for each in seen.values())
            ),
            f"topic {name} is not in sync on all its brokers",
        )
        self._wait(
            lambda: self.end_offsets(name, cell.partitions) is not None,
            f"topic {name} is not led by those that shall lead it",
        )
        return self.seen(name) or {}

    def delete_topic(self, name: str) -> None:
        """Delete a topic. A late deletion is no error."""
        try:
            (future,) = self._admin.delete_topics([name], operation_timeout=ASK_S).values()
            future.result(WAIT_S)
        except (KafkaException, TimeoutError):
            return

    def topics(self) -> tuple[str, ...]:
        """Return the topics, () without an answer."""
        try:
            return tuple(sorted(self._admin.list_topics(timeout=ASK_S).topics))
        except KafkaException:
            return ()

    def seen(self, topic: str) -> dict[int, PartitionSeen] | None:
        """Return the partitions of a topic, None without an answer or a topic."""
        try:
            found: Any = self._admin.list_topics(topic, timeout=ASK_S).topics[topic]
        except (KafkaException, KeyError):
            return None
        if found.error is not None:
            return None
        return {
            number: PartitionSeen(part.leader, tuple(part.isrs), tuple(part.replicas))
            for number, part in sorted(found.partitions.items())
        }

    def end_offsets(self, topic: str, partitions: int) -> list[int] | None:
        """Return the log end offsets from the leaders, None if a leader is missing or silent."""
        # librdkafka remembers "no leader" from a broker that does not know the leader yet, until it
        # gets new metadata of the topic.
        seen = self.seen(topic)
        if seen is None or len(seen) < partitions or any(each.leader < 0 for each in seen.values()):
            return None
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, each): latest for each in range(partitions)}
        try:
            reported = self._admin.list_offsets(asked, request_timeout=ASK_S)
            return [each.result(WAIT_S).offset for each in reported.values()]
        except (KafkaException, TimeoutError):
            return None

    def await_records(self, topic: str, partitions: int, count: int) -> None:
        """Wait until the leaders have a number of records, or no new records for a time.

        Records with acks=0 may still be in the socket of a broker. Records with acks=1 may wait for
        the followers before a consumer gets them.
        """
        last: list[int] | None = None
        last_s = time.monotonic()
        while (found := self.end_offsets(topic, partitions)) is None or sum(found) < count:
            now_s = time.monotonic()
            if found != last:
                last, last_s = found, now_s
            if now_s - last_s > STILL_S:
                return
            time.sleep(POLL_S)

    def settled(
        self, topic: str, partitions: int, alive: Sequence[int]
    ) -> dict[int, PartitionSeen]:
        """Wait until all leaders of a topic are alive, and each ISR has all living replicas.

        Raises RefusedError if the topic does not reach this state.
        """
        last: list[dict[int, PartitionSeen] | None] = []

        def is_settled() -> bool:
            seen = self.seen(topic)
            last.append(seen)
            return (
                seen is not None
                and len(seen) == partitions
                and all(
                    part.leader in alive and {*part.in_sync} == {*part.replicas} & {*alive}
                    for part in seen.values()
                )
            )

        self._wait(is_settled, f"topic {topic} has not come to rest")
        found = last[-1]
        assert found is not None
        return found

    # --- brokers ---------------------------------------------------------------------------------

    def known_brokers(self) -> tuple[int, ...]:
        """Return the known brokers, () without an answer."""
        try:
            return tuple(sorted(self._admin.list_topics(timeout=ASK_S).brokers))
        except KafkaException:
            return ()

    def await_brokers(self, ids: Sequence[int]) -> None:
        """Wait until all of these brokers answer. Raises RefusedError."""
        self._wait(
            lambda: {*ids} <= {*self.known_brokers()},
            f"brokers {' '.join(map(str, ids))} do not all answer",
        )

    @property
    def _admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin_client

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not is_so():
            self.require_running()
            if time.monotonic() > deadline_s:
                raise RefusedError(f"{what} after {WAIT_S:.0f} s")
            time.sleep(POLL_S)


def await_quiet(log_bytes: Callable[[], dict[int, list[int]]], *, is_alike: bool) -> bool:
    """Wait until logs stop growing, and return whether they did.

    Args:
        log_bytes: returns, for each partition, the sizes of its replicas in sync.
        is_alike: all replicas must also have the same size.
    """
    deadline_s = time.monotonic() + WAIT_S
    before: dict[int, list[int]] | None = None
    turns = 0
    while turns < QUIET_TURNS:
        if time.monotonic() > deadline_s:
            return False
        now = log_bytes()
        same = not is_alike or all(len({*each}) <= 1 for each in now.values())
        turns = turns + 1 if same and now == before else 0
        before = now
        time.sleep(POLL_S)
    return True
