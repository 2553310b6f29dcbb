"""Transactions whose outcome is decided and not yet everywhere: PrepareX as the newest record.

The coordinator writes PrepareCommit or PrepareAbort with all partitions of a transaction, then has
a marker written to each of them, then writes CompleteX. Stopped in between it goes
on when it is loaded again. Here each listed partition is looked up: is its marker there, is the
data still open, is there neither, or was the partition not given at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.formats.transaction_state import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.cluster.coordinator_log import CoordinatorLog, IdRecord
    from storage.formats.transaction_state import TransactionState
    from storage.producers.transactions import EndedBlock

_PREPARED = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
TopicNumber = tuple[str, int]


class PreparedTransaction(NamedTuple):
    """A transaction that its coordinator has not completed; partitions are `topic-N`.

    `without_marker` were given and have neither open data of it nor a marker: either nothing of the
    transaction reached them, or it is lost.
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
    """Looks up the partitions of prepared transactions, as they are read one after the other.

    Attributes:
        listed: the partitions that are needed for it.
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
        """Whether there is anything to look up."""
        return bool(self._prepared)

    def add_partition(self, topic: str, partition: int, open_producer_ids: set[int]) -> None:
        """Note that a partition is here, and who has a transaction open in it."""
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
        """Give what was found, by transactional id, when all partitions were read."""
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
        # Versions 0 and 1 end all transactions with one epoch: an older marker is of another one.
        is_its = marker is not None and (
            marker.epoch == state.producer_epoch
            and marker.timestamp_ms >= state.last_update_timestamp_ms
        )
        if marker is None or not is_its:
            return "without_marker"
        return "aborted_in" if marker.is_abort else "committed_in"
