"""A client that asks one question: is a partition read, and is it written with acks=all?

It tries, as any client would, and what it did stands in the history as of any client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.clients.consumer import given_records
from eoctl.cluster.clients.producer import NOT_APPENDED, REQUEST_TIMEOUT_US
from eoctl.cluster.world.messages import REQUEST_TIMED_OUT
from eoctl.cluster.world.scheduler import MS_US, SECOND_US
from eoctl.cluster.world.settings import START_MS
from storage.replication.leader import ACKS_ALL
from storage.writing.record_builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eoctl.cluster.nodes.broker import Broker
    from eoctl.cluster.world.history import HistoryWriter
    from eoctl.cluster.world.messages import ConsumerAnswer, ProduceAnswer
    from eoctl.cluster.world.metadata import MetadataView
    from eoctl.cluster.world.network import Network
    from eoctl.cluster.world.scheduler import Scheduler
    from storage.file_names import TopicPartition

METADATA_US = 2 * SECOND_US
LEADER_NOT_AVAILABLE = "LEADER_NOT_AVAILABLE"


class Probe:
    """Reads from the start, then sends one record, once.

    Attributes:
        is_read: a leader has answered.
        records_count: that it gave.
        write_error: "": it was acknowledged.
    """

    incarnation = 0
    is_running = True

    def __init__(
        self,
        number: str,
        brokers: Mapping[int, Broker],
        key: TopicPartition,
        scheduler: Scheduler,
        network: Network,
        history: HistoryWriter,
    ) -> None:
        self.name = f"probe-{number}"
        self.is_read = False
        self.records_count = 0
        self.write_error = LEADER_NOT_AVAILABLE
        self._value = f"p{number}"
        self._brokers = brokers
        self._key = key
        self._scheduler = scheduler
        self._network = network
        self._history = history
        self._view: MetadataView | None = None

    def ask(self) -> None:
        """Find the leader, read, write."""
        for _, each in sorted(self._brokers.items()):
            if each.is_running:
                self._network.send(self, each, each.tell_metadata, self, self.learn)
        self._until(lambda: False, METADATA_US)
        leader = -1 if self._view is None else self._view.partitions[self._key].leader
        broker = self._brokers.get(leader)
        if broker is not None and broker.is_running:
            self._read(broker)
            self._write(broker)

    def learn(self, view: MetadataView) -> None:
        """A broker has told who leads."""
        if self._view is None or view.version > self._view.version:
            self._view = view

    def _until(self, holds: Callable[[], bool], limit_us: int) -> bool:
        return self._scheduler.run(holds, self._scheduler.now_us + limit_us)

    def _read(self, broker: Broker) -> None:
        told: list[ConsumerAnswer] = []
        self._network.send(self, broker, broker.consume, self, self._key, 0, told.append)
        self._until(lambda: bool(told), REQUEST_TIMEOUT_US)
        if not told or told[0].error:
            return
        self.is_read = True
        records, high_watermark = given_records(told[0], 0), told[0].high_watermark
        self.records_count = len(records)
        name, now_us = f"{self._key.topic}-{self._key.partition}", self._scheduler.now_us
        self._history.note("invoke", self.name, 0, now_us, "poll")
        self._history.note(
            "ok", self.name, 0, now_us, "poll",
            records={name: records}, high_watermark={name: high_watermark},
        )  # fmt: skip

    def _write(self, broker: Broker) -> None:
        told: list[ProduceAnswer] = []
        builder = BatchBuilder()
        builder.add(None, self._value.encode(), START_MS + self._scheduler.now_us // MS_US)
        self._note("invoke")
        self._network.send(
            self, broker, broker.produce, self, self._key, builder.build(), ACKS_ALL,
            REQUEST_TIMEOUT_US, told.append,
        )  # fmt: skip
        self._until(lambda: bool(told), REQUEST_TIMEOUT_US + SECOND_US)
        self.write_error = told[0].error if told else REQUEST_TIMED_OUT
        if not self.write_error:
            answer = told[0]
            self._note(
                "ok", offset=answer.base_offset, leader=answer.leader,
                leader_epoch=answer.leader_epoch,
            )  # fmt: skip
            return
        kind = "fail" if self.write_error in NOT_APPENDED else "info"
        self._note(kind, error=self.write_error)

    def _note(self, kind: str, **fields: object) -> None:
        self._history.note(
            kind, self.name, 1, self._scheduler.now_us, "send",
            topic=self._key.topic, partition=self._key.partition, value=self._value, **fields,
        )  # fmt: skip
