"""The coordinator and the partitions: who is fenced where, and what cannot be finished."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from storage.errors import EoctlError
from storage.formats.transaction_state import TransactionStatus
from storage.producers.producer_state import AppendError
from storage.producers.transaction_metadata import CoordinatorError, ProducerIdAndEpoch
from storage.writing.coordinator import ClusterSettings, TransactionCoordinator
from tests.coordinator_cases import NOW_MS, PRODUCER_ID, state_of
from tests.coordinators import MemoryPartitions, committed, known_states, new_logs, rows_of
from tests.writing import batch

if TYPE_CHECKING:
    from storage.formats.transaction_state import TransactionState

HERE = [("t", n) for n in range(3)]


class Context:
    """A coordinator over partitions t-0 to t-2, and what its producers send."""

    def __init__(self, version: int, *known: TransactionState) -> None:
        self.version = version
        self.logs = new_logs(1, HERE)
        self.now_ms = NOW_MS
        self.ids = iter(range(900, 1000))
        self.open(known)

    def open(self, known: Any = None) -> None:
        self.partitions = MemoryPartitions(self.logs, lambda: self.now_ms)
        self.coordinator = TransactionCoordinator(
            self.partitions,
            known_states(self.logs).values() if known is None else known,
            ClusterSettings(1, 1, transaction_version=self.version),
            now_ms=lambda: self.now_ms,
            new_producer_id=lambda: next(self.ids),
        )

    def init(self) -> ProducerIdAndEpoch:
        """As a client does: once more if an older transaction had to be aborted."""
        with suppress(CoordinatorError):
            return self.coordinator.init_producer_id("a", 60_000)
        return self.coordinator.init_producer_id("a", 60_000)

    def add(self, producer: ProducerIdAndEpoch, *numbers: int) -> None:
        self.coordinator.add_partitions("a", producer, [("t", each) for each in numbers])

    def send(
        self, producer: ProducerIdAndEpoch, number: int, value: bytes, sequence: int = 0
    ) -> None:
        data = batch(1, (*producer, sequence), value=value, is_transactional=True)
        self.partitions.writer("t", number).append(data)

    def end(self, producer: ProducerIdAndEpoch, *, is_commit: bool = True) -> ProducerIdAndEpoch:
        return self.coordinator.end_transaction("a", producer, is_commit=is_commit)

    @property
    def committed(self) -> list[bytes | None]:
        return [value for where in HERE for value in committed(self.logs[where])]

    @property
    def status(self) -> str:
        return self.coordinator["a"].status.label


def refused(what: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises((CoordinatorError, AppendError)) as caught:
        what(*arguments, **named)
    return caught.value.kafka_error


# --- fencing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_older_of_two_producers_is_fenced(version: int) -> None:
    """In the midst of its transaction; the coordinator's marker has raised the epoch in the log."""
    context = Context(version)
    older = context.init()
    context.add(older, 0, 1)
    context.send(older, 0, b"older")
    newer = context.init()
    assert newer.producer_epoch > older.producer_epoch
    assert refused(context.add, older, 0) == "PRODUCER_FENCED"
    assert refused(context.add, older, 2) == "PRODUCER_FENCED"
    for is_commit in (True, False):
        assert refused(context.end, older, is_commit=is_commit) == "PRODUCER_FENCED"
    for number in (0, 1):
        assert refused(context.send, older, number, b"late", 1) == "INVALID_PRODUCER_EPOCH"
    context.add(newer, 0, 2)
    context.send(newer, 0, b"newer")
    context.send(newer, 2, b"newer")
    assert refused(context.send, older, 2, b"late") == "INVALID_PRODUCER_EPOCH"
    context.end(newer)
    assert refused(context.end, older) == "PRODUCER_FENCED"
    assert context.committed == [b"newer", b"newer"]


@pytest.mark.parametrize("version", [0, 2])
def test_the_older_is_fenced_between_its_transactions(version: int) -> None:
    context = Context(version)
    first = context.init()
    context.add(first, 0)
    context.send(first, 0, b"first")
    older = context.end(first)
    newer = context.init()
    assert refused(context.add, older, 0) == "PRODUCER_FENCED"
    assert refused(context.end, older) == "PRODUCER_FENCED"
    context.add(newer, 0)
    context.send(newer, 0, b"newer")
    assert refused(context.send, older, 0, b"late", 1) == "INVALID_PRODUCER_EPOCH"
    context.end(newer)
    assert context.committed == [b"first", b"newer"]


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_whose_transaction_took_too_long(version: int) -> None:
    context = Context(version)
    producer = context.init()
    context.add(producer, 0)
    context.send(producer, 0, b"slow")
    context.now_ms += 60_000
    assert context.coordinator.abort_timed_out() == []
    context.now_ms += 1
    assert context.coordinator.abort_timed_out() == ["a"]
    assert context.coordinator.abort_timed_out() == []
    assert refused(context.add, producer, 0) == "PRODUCER_FENCED"
    assert refused(context.send, producer, 0, b"late", 1) == "INVALID_PRODUCER_EPOCH"
    # Version 2 takes its commit for one that is asked for again, and it was aborted.
    late = "INVALID_TXN_STATE" if version == 2 else "PRODUCER_FENCED"
    assert refused(context.end, producer) == late
    assert context.committed == []


@pytest.mark.parametrize("version", [0, 2])
def test_fencing_outlives_the_coordinator(version: int) -> None:
    context = Context(version)
    older = context.init()
    context.add(older, 0)
    context.send(older, 0, b"older")
    context.open()
    assert context.coordinator.complete_prepared() == []
    newer = context.init()
    context.open()
    assert refused(context.add, older, 0) == "PRODUCER_FENCED"
    assert refused(context.send, older, 0, b"late", 1) == "INVALID_PRODUCER_EPOCH"
    context.add(newer, 0)
    assert context.end(newer).producer_id == newer.producer_id
    assert context.committed == []


def test_a_forgotten_id_has_no_producer() -> None:
    context = Context(2)
    older = context.init()
    context.now_ms += context.coordinator.settings.id_expiration_ms
    assert context.coordinator.expire_ids() == ["a"]
    assert known_states(context.logs) == {}
    assert refused(context.add, older, 0) == "INVALID_PRODUCER_ID_MAPPING"
    assert refused(context.end, older) == "INVALID_PRODUCER_ID_MAPPING"
    assert refused(lambda: context.coordinator["a"]) == "TRANSACTIONAL_ID_NOT_FOUND"
    assert context.init().producer_id != older.producer_id


# --- what cannot be finished ----------------------------------------------------------------------


def prepared(status: TransactionStatus, *partitions: tuple[str, int]) -> TransactionState:
    return state_of(status, 8, 2)._replace(partitions=partitions)


def markers(context: Context) -> list[int]:
    return [sum(row.header.is_control for row in rows_of(context.logs[each])) for each in HERE]


@pytest.mark.parametrize(
    "status", [TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT]
)
def test_a_decided_transaction_whose_partition_is_not_here(status: TransactionStatus) -> None:
    """It stays, is told, and no partition gets a marker that another one lacks."""
    context = Context(2, prepared(status, ("t", 0), ("gone", 1)))
    ((metadata, reason),) = context.coordinator.complete_prepared()
    assert (metadata.state.transactional_id, metadata.status) == ("a", status)
    assert reason == "gone-1 is not here"
    assert context.status == status.label
    assert markers(context) == [0, 0, 0]
    assert refused(context.coordinator.init_producer_id, "a", 1) == "CONCURRENT_TRANSACTIONS"
    context.logs["gone", 1] = []
    assert context.coordinator.complete_prepared() == []
    assert context.status == status.label.replace("Prepare", "Complete")


def test_one_that_cannot_be_finished_keeps_no_other_one_waiting() -> None:
    other = prepared(TransactionStatus.PREPARE_COMMIT, ("t", 1))._replace(
        transactional_id="b", producer_id=PRODUCER_ID + 1
    )
    context = Context(2, prepared(TransactionStatus.PREPARE_COMMIT, ("t", 0)), other)
    newer = ProducerIdAndEpoch(PRODUCER_ID, 9)
    context.send(newer, 0, b"another coordinator has let it go on")
    ((metadata, reason),) = context.coordinator.complete_prepared()
    assert metadata.state.transactional_id == "a"
    assert reason.startswith("INVALID_PRODUCER_EPOCH: ")
    assert context.status == "PrepareCommit"
    assert context.coordinator["b"].status.label == "CompleteCommit"
    assert markers(context) == [0, 1, 0]


@pytest.mark.parametrize("by", ["init", "timeout"])
def test_an_open_transaction_whose_partition_is_not_here(by: str) -> None:
    """It is decided: aborted, whoever finishes it."""
    state = prepared(TransactionStatus.ONGOING, ("t", 0), ("gone", 1))
    context = Context(2, state)
    if by == "init":
        for _ in range(2):
            assert (
                refused(context.coordinator.init_producer_id, "a", 1) == "CONCURRENT_TRANSACTIONS"
            )
    else:
        context.now_ms += 60_000
        assert context.coordinator.abort_timed_out() == ["a"]
        assert context.coordinator.abort_timed_out() == []
    assert context.status == "PrepareAbort"
    assert markers(context) == [0, 0, 0]


def test_a_partition_that_is_not_here_is_not_added() -> None:
    context = Context(2)
    producer = context.init()
    with pytest.raises(EoctlError, match="gone-0"):
        context.coordinator.add_partitions("a", producer, [("t", 0), ("gone", 0)])
    assert context.status == "Empty"


def test_a_second_marker_ends_nothing() -> None:
    """A coordinator that died behind its markers writes them once more."""
    context = Context(2)
    producer = context.init()
    context.add(producer, 0, 1)
    context.send(producer, 0, b"one")
    context.end(producer)
    state_log = context.logs["__transaction_state", 0]
    state_log.pop()  # CompleteCommit
    context.open()
    assert context.status == "PrepareCommit"
    assert context.coordinator.complete_prepared() == []
    assert context.status == "CompleteCommit"
    assert markers(context) == [2, 2, 0]
    assert context.committed == [b"one"]
