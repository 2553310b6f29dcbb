"""What `__transaction_state` shows of transactions whose end marker is damaged or absent.

A coordinator writes Complete... only once all markers are in their logs. So a transaction that it
has as complete has ended, and how. Which transaction of a log that is:

  with transaction version 2 the epoch names it (KIP-890): its data have the epoch of the record
      Ongoing, and no other transaction has it
  before, transactions of a producer share an epoch. If the topic still has all records of the id
      since InitProducerId, the transactions that list the partition are counted: there is one more
      than the log has end markers of the producer. Without that one, the outcomes must be those of
      the markers

The topic is compacted by transactional id, so that older records are there only until a cleaner
comes. Nothing is shown by a partition of the topic that is damaged or was not read whole.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import AccessError
from storage.file_names import TRANSACTION_STATE_TOPIC, DirState
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER, UNKNOWN
from storage.formats.transaction_state import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.cluster.coordinator_log import IdRecord
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition import Partition
    from storage.formats.transaction_state import TransactionState

VERSION_2 = 2  # client.transaction.version with epochs of its own for each transaction
CLOCK_SLACK_MS = 60_000  # between the clocks of a producer and a coordinator
_KINDS = {
    TransactionStatus.COMPLETE_COMMIT: COMMIT,
    TransactionStatus.COMPLETE_ABORT: ABORT,
}


class CompletedTransaction(NamedTuple):
    """A transaction that its coordinator has completed.

    Attributes:
        producer_epoch: of its data.
        kind: COMMIT or ABORT.
        partitions: that it lists.
        start_ms, end_ms: by the coordinator's clock.
    """

    producer_epoch: int
    kind: int
    partitions: tuple[tuple[str, int], ...]
    start_ms: int
    end_ms: int
    has_own_epoch: bool


class CoordinatorHistory:
    """The completed transactions of a log dir's coordinators, by producer id, in their order."""

    def __init__(self, log_dir: LogDir) -> None:
        """Read `__transaction_state`, as far as it is in the log dir."""
        from recovery.cluster.coordinator_log import CoordinatorLog

        self._open: dict[str, TransactionState] = {}
        self._completed: dict[int, list[CompletedTransaction]] = {}
        self._begun: set[int] = set()  # of these all records are there
        self._log = CoordinatorLog([log_dir], None, self._take)

    def _take(self, record: IdRecord) -> None:
        state, name = record.state, record.transactional_id
        if state is None:
            self._open.pop(name, None)
            return
        status, producer_id = state.status, state.producer_id
        if status is TransactionStatus.EMPTY:
            if state.producer_epoch == 0 and producer_id not in self._completed:
                self._begun.add(producer_id)
        elif status is TransactionStatus.ONGOING:
            self._open[name] = state
        elif status in _KINDS:
            opened = self._open.pop(name, None)
            if opened is None:
                self._begun.discard(producer_id)
                return
            self._completed.setdefault(opened.producer_id, []).append(
                CompletedTransaction(
                    producer_epoch=opened.producer_epoch,
                    kind=_KINDS[status],
                    partitions=opened.partitions or (),
                    start_ms=state.start_timestamp_ms,
                    end_ms=state.last_update_timestamp_ms,
                    has_own_epoch=state.client_transaction_version >= VERSION_2,
                )
            )

    def completed(self, producer_id: int, place: tuple[str, int]) -> list[CompletedTransaction]:
        """Return the completed transactions of a producer that list a partition, in order."""
        if not self._log.knows(producer_id):
            return []
        return [each for each in self._completed.get(producer_id, ()) if place in each.partitions]

    def has_all(self, producer_id: int) -> bool:
        """Tell whether no record of a producer id was compacted away."""
        return producer_id in self._begun


class MarkedTransaction(NamedTuple):
    """A transaction by the end markers of a log: first offset of its data, COMMIT or ABORT."""

    first_offset: int
    kind: int


def outcome_of(
    completed: Sequence[CompletedTransaction],
    marked: Sequence[MarkedTransaction] | None,
    *,
    first_offset: int,
    producer_epoch: int,
    timestamp_ms: int,
) -> int:
    """Decide about data whose end marker may lie in a stretch of a log.

    Args:
        completed: by `CoordinatorHistory.completed`.
        marked: all transactions of the producer in the log, by their markers, in order; None: they,
            or the records of the coordinator, are not all there, or there are more stretches.
        first_offset: of the data.
        producer_epoch: of the data.
        timestamp_ms: of the data, by the producer's clock.

    Returns:
        COMMIT or ABORT: so it ended in the stretch. NO_MARKER: it goes on up to the next marker.
        UNKNOWN: nothing is shown.
    """
    own = [each for each in completed if each.producer_epoch == producer_epoch]
    if own and all(each.has_own_epoch for each in own):
        return own[0].kind if len(own) == 1 else UNKNOWN
    if marked is None or any(each.has_own_epoch for each in completed):
        return UNKNOWN
    kinds, marked_kinds = ([each.kind for each in found] for found in (completed, marked))
    place = sum(each.first_offset < first_offset for each in marked)
    if kinds == marked_kinds:
        return NO_MARKER if place < len(marked) else UNKNOWN
    if len(kinds) != len(marked_kinds) + 1 or [*kinds[:place], *kinds[place + 1 :]] != marked_kinds:
        return UNKNOWN
    found = completed[place]
    is_timely = found.start_ms - CLOCK_SLACK_MS <= timestamp_ms <= found.end_ms + CLOCK_SLACK_MS
    return found.kind if is_timely else UNKNOWN


def history_of(partition: Partition) -> CoordinatorHistory | None:
    """Read the coordinators of the log dir around a partition; None: there are none."""
    log_dir = partition.log_dir
    if log_dir is None:
        return None
    found = [
        each
        for each in log_dir.partitions_of(TRANSACTION_STATE_TOPIC)
        if each.name.state is DirState.LIVE
    ]
    if not found:
        return None
    from storage.dirs.partition_files import list_partition

    try:
        sizes = tuple((each.path, list_partition(each.path).log_bytes) for each in found)
    except AccessError:
        return None
    return _read(_Kept(sizes, log_dir))


class _Kept:
    """A log dir, which is the same as long as its coordinators' logs have the same sizes."""

    def __init__(self, sizes: tuple[tuple[str, int], ...], log_dir: LogDir) -> None:
        self.log_dir = log_dir
        self._sizes = sizes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Kept) and other._sizes == self._sizes

    def __hash__(self) -> int:
        return hash(self._sizes)


@lru_cache(maxsize=2)
def _read(kept: _Kept) -> CoordinatorHistory:
    return CoordinatorHistory(kept.log_dir)
