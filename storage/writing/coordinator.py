"""A transaction coordinator over the partitions of a log directory (TransactionStateManager).

Its state of each transactional id is the newest record of the id in `__transaction_state`. A record
is appended before its consequences:

    Ongoing         before the first batch of a transaction goes to a partition
    PrepareCommit   decides: from here on the outcome is final
    PrepareAbort
    (end markers)   to each partition of the transaction
    Complete...     all markers are written

With flush policy BATCH each of these is on the disk before the next is written. A coordinator that
failed after Prepare... completes the transaction when it is opened again. A partition that has its
marker gets a second marker, which ends nothing. Every method finishes its work before it returns,
so no request finds another request in progress. Errors are a broker's (`CoordinatorError`), or a
partition's `AppendError`. Source: TransactionCoordinator, TransactionStateManager and
TransactionMarkerChannelManager of Kafka 4.3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.errors import RefusedError
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.formats.consumer_offsets import OffsetKey, encode_offset_key, encode_offset_value
from storage.formats.transaction_state import encode_key, encode_value
from storage.limits import INT32_MAX
from storage.producers.java_hash_map import coordinator_partition
from storage.producers.producer_state import AppendError, Origin
from storage.producers.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    ONGOING,
    PREPARED,
    CoordinatorError,
    Metadata,
    ProducerIdAndEpoch,
    add_partitions,
    complete,
    end,
    fence,
    init,
    is_expired,
    is_timed_out,
    new_metadata,
    require_same,
)
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS
from storage.writing.record_builder import MAX_BATCH_RECORDS, BatchBuilder, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from storage.formats.consumer_offsets import OffsetCommit
    from storage.formats.transaction_state import TransactionState
    from storage.writing.writer import Appended, PartitionWriter

    Wanted = Callable[[Metadata], bool]


DEFAULT_PARTITIONS_COUNT = 50  # transaction.state.log.num.partitions, offsets.topic.num.partitions
DEFAULT_ID_EXPIRATION_MS = 604_800_000  # transactional.id.expiration.ms

_NOBODY = ProducerIdentity()


class Writer(Protocol):
    """The part of a partition's writer that a coordinator uses; see `storage.writing.writer`."""

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in batches.

        In the coordinator's own log it is the coordinator's epoch too.
        """

    def append(self, batch: bytes, *, origin: Origin) -> Appended:
        """Append a batch."""

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Appended:
        """Append an end marker."""


class Partitions(Protocol):
    """The partitions that a coordinator writes to."""

    def is_here(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists."""

    def writer(self, topic: str, partition: int) -> Writer:
        """Return the writer of a partition, always the same object.

        Raises:
            EoctlError: the partition does not exist, or cannot be written to.
        """


def _any(_: Metadata) -> bool:
    return True


class Waiting(NamedTuple):
    """A decided transaction that cannot be completed now."""

    metadata: Metadata
    reason: str


class ClusterSettings(NamedTuple):
    """The settings that the brokers of the cluster share.

    Attributes:
        state_partitions_count, group_partitions_count: of the two coordinators' topics.
        transaction_version: finalized level of the feature `transaction.version`.
        max_timeout_ms: transaction.max.timeout.ms.
        id_expiration_ms: transactional.id.expiration.ms.
    """

    state_partitions_count: int = DEFAULT_PARTITIONS_COUNT
    group_partitions_count: int = DEFAULT_PARTITIONS_COUNT
    transaction_version: int = EPOCH_BUMP_VERSION
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
    id_expiration_ms: int = DEFAULT_ID_EXPIRATION_MS


class TransactionCoordinator:
    """The state of all transactional ids of a log directory. It ends their transactions.

    Args:
        partitions: the partitions to write to, including `__transaction_state`.
        known: the newest record of each id.
        settings: of the cluster.
        now_ms: the clock.
        new_producer_id: returns an id that was never used.
    """

    def __init__(
        self,
        partitions: Partitions,
        known: Iterable[TransactionState],
        settings: ClusterSettings,
        *,
        now_ms: Callable[[], int],
        new_producer_id: Callable[[], int],
    ) -> None:
        self.settings = settings
        self._partitions = partitions
        self._ids = {each.transactional_id: Metadata(each) for each in known}
        self._places: dict[str, tuple[bytes, int]] = {}  # key, and partition of the state topic
        self._now_ms = now_ms
        self._new_producer_id = new_producer_id
        self._builder = BatchBuilder(batch_bytes=INT32_MAX, batch_records=MAX_BATCH_RECORDS)

    def __getitem__(self, transactional_id: str) -> Metadata:
        """Return the state of an id.

        Raises:
            CoordinatorError: TRANSACTIONAL_ID_NOT_FOUND.
        """
        found = self._ids.get(transactional_id)
        if found is None:
            raise CoordinatorError("TRANSACTIONAL_ID_NOT_FOUND", transactional_id)
        return found

    def __iter__(self) -> Iterator[Metadata]:
        """Yield the states of all ids."""
        return iter(self._ids.values())

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` for an id."""
        return coordinator_partition(transactional_id, self.settings.state_partitions_count)

    def group_partition_for(self, group: str) -> int:
        """Return the partition of `__consumer_offsets` for a group."""
        return coordinator_partition(group, self.settings.group_partitions_count)

    # -- requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None = None,
    ) -> ProducerIdAndEpoch:
        """Begin a session of an id. Older sessions are fenced (InitProducerId).

        Args:
            transactional_id: not empty.
            timeout_ms: after which its transactions may be aborted.
            expected: the producer's identity, if it continues after an error.

        Raises:
            CoordinatorError: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED. Or
                CONCURRENT_TRANSACTIONS: the open transaction of an older session was aborted, so
                retry.
            AppendError, AccessError: a record or a marker could not be written.
        """
        if not transactional_id:
            raise CoordinatorError("INVALID_REQUEST", "the transactional id is empty")
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            most = self.settings.max_timeout_ms
            raise CoordinatorError(
                "INVALID_TRANSACTION_TIMEOUT", f"{timeout_ms} ms, from 1 to {most} is allowed"
            )
        now_ms = self._now_ms()
        metadata = self._ids.get(transactional_id) or new_metadata(
            transactional_id,
            self._new_producer_id(),
            timeout_ms,
            now_ms=now_ms,
        )
        if metadata.status is ONGOING:
            require_same(metadata, expected)
            self._fence(metadata)
            raise metadata.refusal("CONCURRENT_TRANSACTIONS", "its transaction was aborted")
        begun = init(
            metadata, timeout_ms, expected, now_ms=now_ms, new_producer_id=self._new_producer_id
        )
        self._put(begun)
        return _who(begun)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[tuple[str, int]],
        *,
        client_version: int | None = None,
    ) -> None:
        """Add partitions to a transaction, before anything is written to them.

        Args:
            transactional_id: of the transaction.
            producer: the sender of the request.
            partitions: topics and numbers. They must exist.
            client_version: transaction version of the producer. None: the version of the cluster.

        Raises:
            CoordinatorError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
            EoctlError: as `Partitions.writer`.
        """
        metadata = self._mapped(transactional_id)
        wanted = list(partitions)
        for each in wanted:  # otherwise the transaction could never end
            self._partitions.writer(*each)
        added = add_partitions(
            metadata,
            producer,
            wanted,
            now_ms=self._now_ms(),
            client_version=self._client_version(client_version),
        )
        if added is not None:
            self._put(added)

    def add_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        group: str,
        *,
        client_version: int | None = None,
    ) -> int:
        """Add the partition of a group's offsets to a transaction, and return its number."""
        number = self.group_partition_for(group)
        self.add_partitions(
            transactional_id, producer, [(GROUPS_TOPIC, number)], client_version=client_version
        )
        return number

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        client_version: int | None = None,
    ) -> ProducerIdAndEpoch:
        """Commit or abort completely. Returns the producer's identity from now on.

        All batches of the transaction must be in the logs.

        Raises:
            CoordinatorError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
                INVALID_TXN_STATE.
            AppendError, AccessError: a record or a marker could not be written. After the first
                record the outcome is decided, and `complete_prepared` continues.
        """
        prepared = self.decide(
            transactional_id, producer, is_commit=is_commit, client_version=client_version
        )
        if prepared is None:
            return _who(self._mapped(transactional_id))
        return _who(self._complete(prepared))

    def decide(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        client_version: int | None = None,
    ) -> Metadata | None:
        """Write the decision, but no marker yet. None if that end was already made.

        Raises:
            CoordinatorError, AppendError, AccessError: as `end_transaction`.
        """
        prepared = end(
            self._mapped(transactional_id),
            producer,
            is_commit=is_commit,
            version=self._client_version(client_version),
            now_ms=self._now_ms(),
            new_producer_id=self._new_producer_id,
        )
        if prepared is not None:
            self._put(prepared)
        return prepared

    def _client_version(self, version: int | None) -> int:
        """Return the version to record: 0 for any version below 2."""
        wanted = self.settings.transaction_version if version is None else version
        return wanted if wanted >= EPOCH_BUMP_VERSION else 0

    def _mapped(self, transactional_id: str) -> Metadata:
        found = self._ids.get(transactional_id)
        if found is None:
            raise CoordinatorError(
                "INVALID_PRODUCER_ID_MAPPING", f"no transactional id {transactional_id}"
            )
        return found

    # -- actions without a request

    def complete_prepared(self, is_wanted: Wanted = _any) -> list[Waiting]:
        """Complete the decided transactions. Returns the transactions that cannot be completed.

        Args:
            is_wanted: selects the transactions.

        Raises:
            AccessError: a record or a marker could not be written.
        """
        waiting = []
        for metadata in [each for each in self if each.status in PREPARED and is_wanted(each)]:
            missing = self._missing(metadata)
            if missing:
                waiting.append(Waiting(metadata, f"{missing} is not here"))
                continue
            try:
                self._complete(metadata)
            except (RefusedError, AppendError) as exc:
                waiting.append(Waiting(metadata, str(exc)))
        return waiting

    def abort_timed_out(self, is_wanted: Wanted = _any) -> list[str]:
        """Abort transactions that exceed their timeout, and fence their producers.

        Returns their ids.

        If a partition does not exist, the abort is decided and not completed.
        """
        now_ms = self._now_ms()
        late = [each for each in self if is_timed_out(each, now_ms) and is_wanted(each)]
        for metadata in late:
            self._fence(metadata)
        return [each.state.transactional_id for each in late]

    def expire_ids(self) -> list[str]:
        """Remove ids that were not used for long. Returns them."""
        now_ms, expiration_ms = self._now_ms(), self.settings.id_expiration_ms
        late = [each for each in self if is_expired(each, now_ms, expiration_ms)]
        names = [each.state.transactional_id for each in late]
        for name in names:
            self._append(name, None)
            del self._ids[name]
        return names

    def _fence(self, metadata: Metadata) -> None:
        prepared = fence(
            metadata,
            version=self.settings.transaction_version,
            now_ms=self._now_ms(),
            new_producer_id=self._new_producer_id,
        )
        self._put(prepared)
        if not self._missing(prepared):
            self._complete(prepared)

    def _missing(self, metadata: Metadata) -> str:
        """Return the first missing partition of a transaction, "" if all exist."""
        for topic, partition in metadata.state.partitions or ():
            if not self._partitions.is_here(topic, partition):
                return f"{topic}-{partition}"
        return ""

    def _complete(self, prepared: Metadata) -> Metadata:
        state = prepared.state
        number = self.partition_for(state.transactional_id)
        coordinator = self._partitions.writer(TRANSACTION_STATE_TOPIC, number)
        for topic, partition in state.partitions or ():
            self._partitions.writer(topic, partition).end_transaction(
                state.producer_id,
                state.producer_epoch,
                is_commit=prepared.is_commit,
                coordinator_epoch=coordinator.leader_epoch,
                transaction_version=state.client_transaction_version,
            )
        done = complete(prepared, now_ms=self._now_ms())
        self._put(done)
        return done

    # -- records

    def _put(self, metadata: Metadata) -> None:
        # The version depends on the cluster, not on the record before.
        version = min(self.settings.transaction_version, 1)
        state = metadata.state._replace(version=version)
        self._append(state.transactional_id, encode_value(state))
        self._ids[state.transactional_id] = metadata._replace(state=state)

    def _append(self, transactional_id: str, value: bytes | None) -> None:
        place = self._places.get(transactional_id)
        if place is None:
            place = encode_key(transactional_id), self.partition_for(transactional_id)
            self._places[transactional_id] = place
        key, number = place
        self._builder.add(key, value, self._now_ms())
        batch = self._builder.build(_NOBODY, is_transactional=False)
        self._partitions.writer(TRANSACTION_STATE_TOPIC, number).append(
            batch, origin=Origin.COORDINATOR
        )


def _who(metadata: Metadata) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(metadata.state.producer_id, metadata.state.producer_epoch)


# -- committed offsets as a group coordinator appends them to `__consumer_offsets`
#
# Each commit is one batch with a record for each partition, and sequence number 0. No client sent
# it, so nobody compares the number (PROD-12). In a transaction it is a transactional batch of the
# producer, which takes effect with the COMMIT marker in the same partition. Source:
# OffsetMetadataManager.commitOffset, CoordinatorRuntime.


def append_records(
    writer: PartitionWriter,
    records: Iterable[tuple[bytes, bytes]],
    *,
    now_ms: int,
) -> None:
    """Append the records of one group, keys and values, in as few batches as the topic allows.

    Raises:
        AppendError, AccessError: as `PartitionWriter.append`.
    """
    builder = BatchBuilder(batch_bytes=writer.config.max_message_bytes)

    def send() -> None:
        batch = builder.build(ProducerIdentity(base_sequence=0), is_transactional=False)
        writer.append(batch, origin=Origin.COORDINATOR)

    for key, value in records:
        if not builder.add(key, value, now_ms):
            send()
            builder.add(key, value, now_ms)
    if len(builder):
        send()


def append_offsets(
    writer: PartitionWriter,
    offsets: Mapping[OffsetKey, OffsetCommit],
    *,
    now_ms: int,
    producer: ProducerIdAndEpoch | None = None,
) -> Appended:
    """Commit offsets, with a `producer` in its transaction.

    Args:
        writer: of the partition of `__consumer_offsets` for the group.
        offsets: at least one.
        now_ms: the time of the records.
        producer: of their transaction, to which the partition was added.

    Raises:
        AppendError, AccessError: as `PartitionWriter.append`.
    """
    builder = BatchBuilder(batch_bytes=INT32_MAX, batch_records=MAX_BATCH_RECORDS)
    for key, value in offsets.items():
        builder.add(encode_offset_key(key), encode_offset_value(value), now_ms)
    identity = ProducerIdentity(base_sequence=0)
    if producer is not None:
        identity = ProducerIdentity(*producer, base_sequence=0)
    batch = builder.build(identity, is_transactional=producer is not None)
    return writer.append(batch, origin=Origin.COORDINATOR)
