"""Where the markers of a decided transaction are, and where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recovery.cluster.coordinator_log import CoordinatorLog, IdRecord
from recovery.transactions.open_transactions import PreparedSearch
from storage.formats.transaction_state import TransactionState, TransactionStatus
from storage.producers.pairs import EndedBlock

NOW_MS = 1_800_000_000_000
PLACES = tuple(("t", number) for number in range(6))


def log_of(status: TransactionStatus, *, name: str = "id", **fields: Any) -> CoordinatorLog:
    state = TransactionState(
        name, 1, 7, 7, -1, 4, -1, 60_000, status, PLACES, NOW_MS, NOW_MS - 9, 2
    )._replace(**fields)
    log = CoordinatorLog([])
    log.ids[name] = IdRecord(name, 3, 11, state)
    return log


def marker(epoch: int, timestamp_ms: int, *, is_abort: bool, producer_id: int = 7) -> EndedBlock:
    def column(value: int, kind: str = "i8") -> Any:
        return np.array([value], kind)

    return EndedBlock(
        column(producer_id), column(epoch, "i2"), column(0), column(1), column(timestamp_ms),
        column(is_abort, "?"), column(0, "?"),
    )  # fmt: skip


def test_each_partition_is_somewhere() -> None:
    search = PreparedSearch(log_of(TransactionStatus.PREPARE_COMMIT))
    assert search.is_needed
    for number in range(5):
        search.add_partition("t", number, {7, 8} if number == 0 else {8})
    search.add_ended("t", 1, marker(4, NOW_MS, is_abort=False))
    search.add_ended("t", 2, marker(3, NOW_MS, is_abort=False))
    search.add_ended("t", 2, marker(4, NOW_MS + 1, is_abort=True))  # the last one counts
    search.add_ended("t", 3, marker(4, NOW_MS - 1, is_abort=False))  # of the one before
    search.add_ended("t", 4, marker(4, NOW_MS, is_abort=False, producer_id=8))
    (found,) = search.found()
    assert (found.open_in, found.committed_in, found.aborted_in) == (("t-0",), ("t-1",), ("t-2",))
    assert (found.without_marker, found.not_here) == (("t-3", "t-4"), ("t-5",))
    assert (found.transactional_id, found.coordinator_partition) == ("id", 3)
    assert (found.producer_id, found.producer_epoch, found.status.label) == (7, 4, "PrepareCommit")


@pytest.mark.parametrize(
    ("status", "is_needed"),
    [(each, each.label.startswith("PrepareA")) for each in TransactionStatus if each != 2],
)
def test_only_what_is_prepared(status: TransactionStatus, is_needed: bool) -> None:
    search = PreparedSearch(log_of(status))
    assert search.is_needed is is_needed
    assert len(list(search.found())) == is_needed
