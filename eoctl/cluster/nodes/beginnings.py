"""Transactions that are to begin in a partition: its leader asks the coordinator first (KIP-890).

A batch of a transaction that is not known to be open there waits until the coordinator has added
the partition to it; so no batch that comes late opens one that nobody would end. What comes from
the same producer meanwhile waits behind it.

Source: AddPartitionsToTxnManager, ReplicaManager.maybeSendPartitionsToTransactionCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.world.messages import INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
from eoctl.cluster.world.scheduler import SECOND_US
from storage.replication.leader import NOT_ENOUGH_REPLICAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.cluster.nodes.coordinator import PlayedCoordinator
    from eoctl.cluster.world.network import Network, Process
    from eoctl.cluster.world.scheduler import Scheduler, Timer
    from storage.file_names import TopicPartition
    from storage.producers.transaction_metadata import ProducerIdAndEpoch

    _Key = tuple[TopicPartition, ProducerIdAndEpoch]

REQUEST_TIMEOUT_US = 30 * SECOND_US


class _Beginning:
    """Batches of one transaction that wait."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self.appends: list[Callable[[str], None]] = []


class Beginnings:
    """Those of one life of a broker."""

    def __init__(self, broker: Process, scheduler: Scheduler, network: Network) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._network = network
        self._waiting: dict[_Key, _Beginning] = {}

    def is_waiting(self, key: TopicPartition, producer: ProducerIdAndEpoch) -> bool:
        """Whether the coordinator was asked, and has not answered."""
        return (key, producer) in self._waiting

    def ask(
        self,
        coordinator: PlayedCoordinator,
        key: TopicPartition,
        producer: ProducerIdAndEpoch,
        transactional_id: str,
        append: Callable[[str], None],
    ) -> None:
        """Call `append` with "" once the transaction may begin there, else with an error."""
        beginning = self._waiting.get((key, producer))
        if beginning is None:
            # What a client is told of a coordinator that does not answer: to send it again.
            timer = self._scheduler.after(
                REQUEST_TIMEOUT_US, self._end, (key, producer), NOT_ENOUGH_REPLICAS
            )
            beginning = self._waiting[key, producer] = _Beginning(timer)

            def answered(error: str) -> None:
                if self._waiting.get((key, producer)) is beginning:
                    self._end((key, producer), error)

            self._network.send(
                self._broker, coordinator, coordinator.add_partition, self._broker,
                transactional_id, producer, key, answered,
            )  # fmt: skip
        beginning.appends.append(append)

    def _end(self, key: _Key, error: str) -> None:
        beginning = self._waiting.pop(key)
        beginning.timer.call_off()
        for append in beginning.appends:
            append(INVALID_PRODUCER_EPOCH if error == PRODUCER_FENCED else error)

    def call_off(self) -> None:
        """Nobody waits any more."""
        for each in self._waiting.values():
            each.timer.call_off()
