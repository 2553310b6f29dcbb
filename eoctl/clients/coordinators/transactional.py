"""A transactional id at work in a log dir: its coordinator, opened there, and its newest producer.

In a log dir that belongs to no cluster both coordinators' topics are made. What other ids had
decided and not finished is finished first, as a broker does when it becomes their coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.coordinators.log_dir_coordinator import (
    TRANSACTION_VERSION,
    open_coordinator,
    read_coordinator_log,
    require_home,
)
from recovery.cluster.clusters import image_around
from storage.dirs.log_dir import read_log_dir
from storage.errors import RefusedError
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import encode_key
from storage.producers.transaction_metadata import DEFAULT_TIMEOUT_MS, CoordinatorError
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS
from storage.writing.coordinator import DEFAULT_PARTITIONS_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eoctl.clients.coordinators.group_offsets import GroupCommits
    from eoctl.clients.partitions.open_partitions import OpenPartitions
    from storage.file_names import TopicPartition
    from storage.producers.transaction_metadata import ProducerIdAndEpoch

MAX_INIT_REQUESTS = 3


class TransactionalOptions(NamedTuple):
    """What the command line says.

    Attributes:
        transactional_id: whose transactions they are.
        timeout_ms: transaction.timeout.ms.
        max_timeout_ms: transaction.max.timeout.ms of the brokers.
        version: transaction version of this producer; None: that of the cluster.
    """

    transactional_id: str
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
    version: int | None = None


class Transactional:
    """A producer with a transactional id.

    Attributes:
        producer: id and epoch of the transaction that is going on, or that comes next.
        version: the transaction version of this producer.
        notes: what a person should know.
    """

    def __init__(
        self,
        log_dir_path: str,
        metadata_dir: str | None,
        partitions: OpenPartitions,
        options: TransactionalOptions,
        now_ms: Callable[[], int],
    ) -> None:
        """Open the coordinator, and begin a session of the id: older ones are fenced.

        Raises:
            CoordinatorError: a coordinator refuses it.
            UsageError: the id does not fit into a record.
            RefusedError, AccessError: the coordinators' topics cannot be used.
        """
        encode_key(options.transactional_id)  # before a topic is made
        log_dir = read_log_dir(log_dir_path)
        image = image_around(log_dir if log_dir.is_log_dir else None, metadata_dir)
        self.notes: list[str] = []
        self._options = options
        self._partitions = partitions
        self._now_ms = now_ms
        self._added: set[tuple[str, int]] = set()
        read = read_coordinator_log(log_dir, image, self.notes)
        if image is None and not read.topic.numbers:
            partitions.create_topic(TRANSACTION_STATE_TOPIC, DEFAULT_PARTITIONS_COUNT)
        else:
            require_home(read.topic, image, options.transactional_id)
        self.coordinator = open_coordinator(
            read, [log_dir], image, partitions, now_ms, self.notes,
            max_timeout_ms=options.max_timeout_ms,
        )  # fmt: skip
        version = self.coordinator.settings.transaction_version
        self.version = version if options.version is None else options.version
        if self.version > version:
            raise RefusedError(
                f"transaction version {self.version}: the cluster's feature {TRANSACTION_VERSION}"
                f" is at {version}"
            )
        for metadata, reason in self.coordinator.complete_prepared():
            self.notes.append(
                f"{metadata.state.transactional_id}: is {metadata.status.label}, and stays so:"
                f" {reason}"
            )
        self.producer = self._init()

    def _init(self) -> ProducerIdAndEpoch:
        """Ask as a client does: what an older session left open is aborted by the first request."""
        name, timeout_ms = self._options.transactional_id, self._options.timeout_ms
        for number in range(MAX_INIT_REQUESTS):
            try:
                return self.coordinator.init_producer_id(name, timeout_ms)
            except CoordinatorError as exc:
                is_last = number == MAX_INIT_REQUESTS - 1
                if exc.kafka_error != "CONCURRENT_TRANSACTIONS" or is_last:
                    raise
                self.notes.append(str(exc))
        raise AssertionError("the last request returns or raises")

    def add(
        self, partitions: Iterable[tuple[str, int]], sender: ProducerIdAndEpoch | None = None
    ) -> None:
        """Add partitions to the transaction, before anything is sent to them.

        Args:
            partitions: topics and numbers.
            sender: who will send to them, by its own account.

        Raises:
            CoordinatorError: PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING: that is somebody else.
        """
        missing = [each for each in partitions if each not in self._added]
        if missing:
            self.coordinator.add_partitions(
                self._options.transactional_id,
                sender or self.producer,
                missing,
                client_version=self.version,
            )
            self._added.update(missing)

    def commit_offsets(
        self, offsets: GroupCommits, positions: Mapping[TopicPartition, int]
    ) -> None:
        """Commit the next offsets of a group within the transaction."""
        offsets.create_topic(self._partitions)
        place = (GROUPS_TOPIC, offsets.partition)
        if place not in self._added:
            name = self._options.transactional_id
            self.coordinator.add_offsets(
                name, self.producer, offsets.group, client_version=self.version
            )
            self._added.add(place)
        offsets.commit(self._partitions, positions, self._now_ms, self.producer)

    def end(self, *, is_commit: bool) -> None:
        """Commit or abort; all that was sent is in the logs. Without partitions it does nothing."""
        if not self._added:
            return
        self.producer = self.coordinator.end_transaction(
            self._options.transactional_id,
            self.producer,
            is_commit=is_commit,
            client_version=self.version,
        )
        self._added.clear()

    def abort(self) -> None:
        """Abort after an error. Where files failed it is left to the next one that opens the id."""
        if all(each.writer.is_ready for each in self._partitions):
            self.end(is_commit=False)
