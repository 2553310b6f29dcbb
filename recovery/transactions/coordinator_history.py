"""What `__transaction_state` shows of transactions whose end marker is damaged or absent.

A coordinator writes Complete... only once all markers are in their logs, so that a transaction
which it has as complete has ended, and how. Data of a log belong to it for certain if no other
transaction has their producer id and epoch (KIP-890, transaction version 2):

  the client wrote it with that version: Ongoing says so, and Complete has a higher epoch
  the epoch was new when it began: the record before is Empty, or the Complete of such a
      transaction, with that epoch

Before that version all transactions of a producer share an epoch, and nothing tells which of them
data belong to. The version in Complete alone does not count: a coordinator that aborts by itself
writes its own. Nothing is shown by a partition of the topic that was not read whole.
Sources: TransactionMetadata, TransactionCoordinator.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.log_dir import read_log_dir
from storage.errors import EoctlError
from storage.file_names import TRANSACTION_STATE_TOPIC, DirState
from storage.formats.control_record import ABORT, COMMIT, UNKNOWN
from storage.formats.transaction_state import TransactionStatus

if TYPE_CHECKING:
    from recovery.cluster.coordinator_log import IdRecord
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition import Partition
    from storage.formats.transaction_state import TransactionState

_VERSION_2 = 2
_KINDS = {
    TransactionStatus.COMPLETE_COMMIT: COMMIT,
    TransactionStatus.COMPLETE_ABORT: ABORT,
}


class _Begun(NamedTuple):
    """The newest Ongoing of an id; `is_alone`: no other transaction has its epoch."""

    state: TransactionState
    is_alone: bool


class CoordinatorHistory:
    """What the coordinators of a log dir show, by producer id and epoch of the data."""

    def __init__(self, log_dir: LogDir) -> None:
        """Read `__transaction_state`, as far as it is in the log dir."""
        from recovery.cluster.coordinator_log import CoordinatorLog

        self._begun: dict[str, _Begun] = {}
        self._new_epochs: dict[str, tuple[int, int]] = {}  # that no transaction has used
        self._kinds: dict[tuple[int, int], int] = {}
        self._log = CoordinatorLog([log_dir], None, self._take)

    def outcome(self, producer_id: int, epoch: int) -> int:
        """Return COMMIT or ABORT for data of an epoch; UNKNOWN: that is not shown."""
        if not self._log.knows(producer_id):
            return UNKNOWN
        return self._kinds.get((producer_id, epoch), UNKNOWN)

    def _take(self, record: IdRecord) -> None:
        name, state = record.transactional_id, record.state
        status = None if state is None else state.status
        if state is None or status is TransactionStatus.EMPTY:
            self._begun.pop(name, None)
            self._new_epochs.pop(name, None)
            if state is not None:
                self._new_epochs[name] = state.producer_id, state.producer_epoch
        elif status is TransactionStatus.ONGOING:
            self._begin(name, state)
        elif status in _KINDS:
            self._complete(name, state, _KINDS[status])

    def _begin(self, name: str, state: TransactionState) -> None:
        begun, epoch = self._begun.get(name), (state.producer_id, state.producer_epoch)
        is_alone = self._new_epochs.pop(name, None) == epoch
        if begun is not None and _is_same(begun.state, state):
            is_alone = begun.is_alone and begun.state.producer_epoch == state.producer_epoch
        self._begun[name] = _Begun(state, is_alone)

    def _complete(self, name: str, state: TransactionState, kind: int) -> None:
        begun = self._begun.pop(name, None)
        self._new_epochs.pop(name, None)
        if begun is None or not _is_same(begun.state, state):
            return
        before = begun.state
        is_next_id = state.producer_id != before.producer_id  # epochs have run out
        is_raised = state.producer_epoch > before.producer_epoch or is_next_id
        versions = before.client_transaction_version, state.client_transaction_version
        if min(versions) < _VERSION_2 or not is_raised:
            return
        self._new_epochs[name] = state.producer_id, state.producer_epoch
        if begun.is_alone:
            self._kinds[before.producer_id, before.producer_epoch] = kind


def _is_same(one: TransactionState, other: TransactionState) -> bool:
    """Tell whether two records are of one transaction: it keeps its start, and its producer id."""
    ids = other.producer_id, other.previous_producer_id
    return one.start_timestamp_ms == other.start_timestamp_ms >= 0 and one.producer_id in ids


def history_of(partition: Partition) -> CoordinatorHistory | None:
    """Read the coordinators of the log dir around a partition; None: there are none."""
    log_dir = partition.log_dir
    if log_dir is None:
        return None
    from storage.dirs.partition_files import list_partition

    found = log_dir.partitions_of(TRANSACTION_STATE_TOPIC)
    live = [each.path for each in found if each.name.state is DirState.LIVE]
    try:
        sizes = tuple((each, list_partition(each).log_bytes) for each in live)
        return _read(log_dir.path, sizes) if live else None
    except EoctlError:
        return None


@lru_cache(maxsize=8)
def _read(log_dir: str, sizes: tuple[tuple[str, int], ...]) -> CoordinatorHistory:
    """Read the coordinators' logs as they are with those sizes."""
    del sizes
    return CoordinatorHistory(read_log_dir(log_dir))
