"""The open transactions of a partition, and a verdict on each (TXO-1).

A transaction is open if a broker has it as open after its next start: from snapshots and the log
after them (SNAP-6, SNAP-9). The verdict comes from the coordinator's newest record for the producer
id:

    ongoing   the coordinator lists the partition and will write the marker
    overdue   likewise, but the producer has been silent longer than any transaction may last.
              A running coordinator should have aborted it
    hanging   silent that long, and the coordinator does not list the partition, so nobody
              will ever end it
    unlisted  the coordinator does not list it, but it is younger
    unknown   the coordinator's partition was not given, or not read whole

A transaction is late if its producer has been silent for `transaction.max.timeout.ms` and five
minutes (ProducerStateManager.LATE_TRANSACTION_BUFFER_MS).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from recovery.replay.recover_state import recover_state
from recovery.replay.snapshots import Clock
from storage.formats.transaction_state import TransactionStatus
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS, LATE_BUFFER_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.cluster.coordinator_log import CoordinatorLog, IdRecord
    from recovery.replay.recover_state import RecoveredState
    from storage.dirs.partition import Partition
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.formats.transaction_state import TransactionState
    from storage.producers.pairs import EndedBlock


_LISTING = frozenset(
    {TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT}
)


class TransactionVerdict(StrEnum):
    """The verdict on an open transaction."""

    ONGOING = "ongoing"
    OVERDUE = "overdue"
    HANGING = "hanging"
    UNLISTED = "unlisted"
    UNKNOWN = "unknown"


class OpenTransactionReport(NamedTuple):
    """A transaction without a marker.

    Attributes:
        producer_epoch: of its data.
        transactional_id: None if unknown.
        last_offset: of the last data batch of the producer. -1 if it is absent.
        age_ms: since that batch, by its own timestamp. None if it has none.
        coordinator_epoch: of the producer's last marker here. -1: it had none.
        coordinator_partition: of `__transaction_state`. None if unknown.
        coordinator_status, coordinator_producer_epoch: by the newest record of the id. The epoch
            only if that record is of this producer id. None: no such record.
        holds_last_stable_offset: it is the oldest open transaction here.
        held_offsets_count: from its first offset to the log end.
        reason: for the verdict.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    first_offset: int
    last_offset: int
    last_timestamp_ms: int
    age_ms: int | None
    verdict: TransactionVerdict
    is_late: bool
    coordinator_epoch: int
    coordinator_partition: int | None
    coordinator_status: str | None
    coordinator_producer_epoch: int | None
    holds_last_stable_offset: bool
    held_offsets_count: int
    reason: str
    path: str


def find_open(
    partition: Partition,
    coordinators: CoordinatorLog | None,
    *,
    now_ms: int,
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS,
) -> tuple[list[OpenTransactionReport], RecoveredState]:
    """Find the open transactions of a partition, by first offset. Return also the recovered state.

    Args:
        partition: as listed.
        coordinators: of its cluster. None: not given. Read them before the partition. Otherwise a
            transaction that ended meanwhile would look forgotten.
        now_ms: the clock.
        max_timeout_ms: the broker's transaction.max.timeout.ms.

    Raises:
        AccessError, FormatError, AppendError, RefusedError: as in `recover_state`.
    """
    state = recover_state(partition, Clock(now_ms))
    judge = _Judge(coordinators, now_ms, max_timeout_ms)
    opened = [each for each in state.entries if each.current_txn_first_offset >= 0]
    opened.sort(key=lambda each: each.current_txn_first_offset)
    found = [
        judge.judged(partition, entry, state.offset, is_oldest=not place)
        for place, entry in enumerate(opened)
    ]
    return found, state


class _Judge:
    def __init__(
        self, coordinators: CoordinatorLog | None, now_ms: int, max_timeout_ms: int
    ) -> None:
        self._coordinators = coordinators
        self._now_ms = now_ms
        self._late_ms = max_timeout_ms + LATE_BUFFER_MS

    def judged(
        self, partition: Partition, entry: ProducerEntry, end_offset: int, *, is_oldest: bool
    ) -> OpenTransactionReport:
        producer_id, first_offset = entry.producer_id, entry.current_txn_first_offset
        # As in Kafka's own finder: data without a timestamp counts as old.
        silent_ms = self._now_ms - entry.timestamp_ms
        is_late = silent_ms > self._late_ms
        log = self._coordinators
        owner = None if log is None else log.owner_of(producer_id)
        verdict, reason = self._verdict(partition, producer_id, owner, is_late=is_late)
        state = None if owner is None else owner.state
        is_owner = state is not None and state.producer_id == producer_id
        return OpenTransactionReport(
            topic=partition.topic,
            partition=partition.partition,
            producer_id=producer_id,
            producer_epoch=entry.producer_epoch,
            transactional_id=None if owner is None else owner.transactional_id,
            first_offset=first_offset,
            last_offset=entry.last_offset,
            last_timestamp_ms=entry.timestamp_ms,
            age_ms=None if entry.timestamp_ms < 0 else silent_ms,
            verdict=verdict,
            is_late=is_late,
            coordinator_epoch=entry.coordinator_epoch,
            coordinator_partition=None if owner is None else owner.partition,
            coordinator_status=None if state is None else state.status.label,
            coordinator_producer_epoch=state.producer_epoch if state and is_owner else None,
            holds_last_stable_offset=is_oldest,
            held_offsets_count=end_offset - first_offset,
            reason=reason,
            path=partition.path,
        )

    def _verdict(
        self, partition: Partition, producer_id: int, owner: IdRecord | None, *, is_late: bool
    ) -> tuple[TransactionVerdict, str]:
        log = self._coordinators
        if log is None or not log.knows(producer_id):
            return TransactionVerdict.UNKNOWN, _what_is_missing(log, owner)
        is_listed, reason = _listed(partition, producer_id, owner)
        if is_listed:
            return (TransactionVerdict.OVERDUE if is_late else TransactionVerdict.ONGOING), reason
        return (TransactionVerdict.HANGING if is_late else TransactionVerdict.UNLISTED), reason


def _what_is_missing(log: CoordinatorLog | None, owner: IdRecord | None) -> str:
    if log is None or not log.partitions:
        return "no partition of __transaction_state was given"
    if owner is not None:
        return f"__transaction_state-{owner.partition} was not read whole"
    if log.partitions_count is None:
        return "no record of the producer id; how many partitions there are is unknown"
    missing = [each for each in range(log.partitions_count) if each not in log.partitions]
    what = f"{len(missing)} of {log.partitions_count} were not given" if missing else "not all read"
    return f"no record of the producer id in the partitions of __transaction_state: {what}"


def _listed(partition: Partition, producer_id: int, owner: IdRecord | None) -> tuple[bool, str]:
    """Return whether a coordinator will end a transaction, and the reason."""
    if owner is None:
        return False, "no coordinator has a record of the producer id"
    state = owner.state
    if state is None:
        return False, "the coordinator has forgotten the id"
    if state.producer_id != producer_id:
        return False, f"the id has moved to producer id {state.producer_id}"
    if state.status not in _LISTING:
        return False, f"the coordinator has it as {state.status.label}"
    is_listed = (partition.topic, partition.partition) in (state.partitions or ())
    lists = "lists" if is_listed else "does not list"
    return is_listed, f"the coordinator has it as {state.status.label} and {lists} the partition"


def abort_command(found: OpenTransactionReport) -> str:
    """Return the command of Kafka's own tool that ends a transaction on running brokers."""
    return (
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort"
        f" --topic {found.topic} --partition {found.partition}"
        f" --start-offset {found.first_offset}"
    )


# -- decided transactions that have not ended everywhere: PrepareX as the newest record.
#
# The coordinator writes PrepareCommit or PrepareAbort with all partitions of a transaction. Then it
# has a marker written to each of them, then writes CompleteX. If it stops in between, it continues
# after it is loaded again. Each listed partition is looked up: it has the marker, open data,
# neither, or it was not given.


_PREPARED = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
TopicNumber = tuple[str, int]


class PreparedTransaction(NamedTuple):
    """A transaction that its coordinator has not completed. Partitions are `topic-N`.

    The partitions `without_marker` were given and have neither its open data nor a marker: either
    nothing of the transaction reached them, or it is lost.
    """

    transactional_id: str
    coordinator_partition: int
    producer_id: int
    producer_epoch: int
    status: TransactionStatus
    last_update_timestamp_ms: int
    committed_in: tuple[str, ...]
    aborted_in: tuple[str, ...]
    open_in: tuple[str, ...]
    without_marker: tuple[str, ...]
    not_here: tuple[str, ...]


class _LastMarker(NamedTuple):
    epoch: int
    timestamp_ms: int
    is_abort: bool


class PreparedSearch:
    """A search in the partitions of prepared transactions, as they are read one by one.

    Attributes:
        listed: the partitions to read for it.
    """

    def __init__(self, log: CoordinatorLog) -> None:
        self._prepared = [
            (record, record.state)
            for record in log.ids.values()
            if record.state is not None and record.state.status in _PREPARED
        ]
        self._producer_ids = {state.producer_id for _, state in self._prepared}
        self.listed = {place for _, state in self._prepared for place in state.partitions or ()}
        self.given: set[TopicNumber] = set()
        self._open: set[tuple[TopicNumber, int]] = set()
        self._markers: dict[tuple[TopicNumber, int], _LastMarker] = {}

    @property
    def is_needed(self) -> bool:
        """Return whether there is anything to look up."""
        return bool(self._prepared)

    def add_partition(self, topic: str, partition: int, open_producer_ids: set[int]) -> None:
        """Note that a partition was read, and the producers with an open transaction in it."""
        self.given.add((topic, partition))
        found = open_producer_ids & self._producer_ids
        self._open |= {((topic, partition), producer_id) for producer_id in found}

    def add_ended(self, topic: str, partition: int, block: EndedBlock) -> None:
        """Note the last markers of a partition."""
        is_marker = block.timestamp_ms >= 0
        columns = tuple(
            each[is_marker]
            for each in (block.producer_id, block.epoch, block.timestamp_ms, block.is_abort)
        )
        for producer_id, *marker in zip(*(each.tolist() for each in columns), strict=True):
            if producer_id in self._producer_ids:
                self._markers[(topic, partition), producer_id] = _LastMarker(*marker)

    def found(self) -> Iterator[PreparedTransaction]:
        """Yield the results, by transactional id, after all partitions were read."""
        for record, state in sorted(self._prepared, key=lambda each: each[0].transactional_id):
            yield self._look_up(record, state)

    def _look_up(self, record: IdRecord, state: TransactionState) -> PreparedTransaction:
        places: dict[str, list[str]] = {
            name: []
            for name in ("committed_in", "aborted_in", "open_in", "without_marker", "not_here")
        }
        for place in state.partitions or ():
            places[self._state_in(place, state)].append(f"{place[0]}-{place[1]}")
        return PreparedTransaction(
            transactional_id=record.transactional_id,
            coordinator_partition=record.partition,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            status=state.status,
            last_update_timestamp_ms=state.last_update_timestamp_ms,
            **{name: tuple(sorted(each)) for name, each in places.items()},
        )

    def _state_in(self, place: TopicNumber, state: TransactionState) -> str:
        if place not in self.given:
            return "not_here"
        if (place, state.producer_id) in self._open:
            return "open_in"
        marker = self._markers.get((place, state.producer_id))
        # Versions 0 and 1 end all transactions with one epoch: an older marker is another's.
        is_its = marker is not None and (
            marker.epoch == state.producer_epoch
            and marker.timestamp_ms >= state.last_update_timestamp_ms
        )
        if marker is None or not is_its:
            return "without_marker"
        return "aborted_in" if marker.is_abort else "committed_in"
