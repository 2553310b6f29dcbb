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


class World:
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
    world = World(version)
    older = world.init()
    world.add(older, 0, 1)
    world.send(older, 0, b"older")
    newer = world.init()
    assert newer.producer_epoch > older.producer_epoch
    assert refused(world.add, older, 0) == "PRODUCER_FENCED"
    assert refused(world.add, older, 2) == "PRODUCER_FENCED"
    for is_commit in (True, False):
        assert refused(world.end, older, is_commit=is_commit) == "PRODUCER_FENCED"
    for number in (0, 1):
        assert refused(world.send, older, number, b"late", 1) == "INVALID_PRODUCER_EPOCH"
    world.add(newer, 0, 2)
    world.send(newer, 0, b"newer")
    world.send(newer, 2, b"newer")
    assert refused(world.send, older, 2, b"late") == "INVALID_PRODUCER_EPOCH"
    world.end(newer)
    assert refused(world.end, older) == "PRODUCER_FENCED"
    assert world.committed == [b"newer", b"newer"]


@pytest.mark.parametrize("version", [0, 2])
def test_the_older_is_fenced_between_its_transactions(version: int) -> None:
    world = World(version)
    first = world.init()
    world.add(first, 0)
    world.send(first, 0, b"first")
    older = world.end(first)
    newer = world.init()
    assert refused(world.add, older, 0) == "PRODUCER_FENCED"
    assert refused(world.end, older) == "PRODUCER_FENCED"
    world.add(newer, 0)
    world.send(newer, 0, b"newer")
    assert refused(world.send, older, 0, b"late", 1) == "INVALID_PRODUCER_EPOCH"
    world.end(newer)
    assert world.committed == [b"first", b"newer"]


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_whose_transaction_took_too_long(version: int) -> None:
    world = World(version)
    producer = world.init()
    world.add(producer, 0)
    world.send(producer, 0, b"slow")
    world.now_ms += 60_000
    assert world.coordinator.abort_timed_out() == []
    world.now_ms += 1
    assert world.coordinator.abort_timed_out() == ["a"]
    assert world.coordinator.abort_timed_out() == []
    assert refused(world.add, producer, 0) == "PRODUCER_FENCED"
    assert refused(world.send, producer, 0, b"late", 1) == "INVALID_PRODUCER_EPOCH"
    # Version 2 takes its commit for one that is asked for again, and it was aborted.
    late = "INVALID_TXN_STATE" if version == 2 else "PRODUCER_FENCED"
    assert refused(world.end, producer) == late
    assert world.committed == []


@pytest.mark.parametrize("version", [0, 2])
def test_fencing_outlives_the_coordinator(version: int) -> None:
    world = World(version)
    older = world.init()
    world.add(older, 0)
    world.send(older, 0, b"older")
    world.open()
    assert world.coordinator.complete_prepared() == []
    newer = world.init()
    world.open()
    assert refused(world.add, older, 0) == "PRODUCER_FENCED"
    assert refused(world.send, older, 0, b"late", 1) == "INVALID_PRODUCER_EPOCH"
    world.add(newer, 0)
    assert world.end(newer).producer_id == newer.producer_id
    assert world.committed == []


def test_a_forgotten_id_has_no_producer() -> None:
    world = World(2)
    older = world.init()
    world.now_ms += world.coordinator.settings.id_expiration_ms
    assert world.coordinator.expire_ids() == ["a"]
    assert known_states(world.logs) == {}
    assert refused(world.add, older, 0) == "INVALID_PRODUCER_ID_MAPPING"
    assert refused(world.end, older) == "INVALID_PRODUCER_ID_MAPPING"
    assert refused(lambda: world.coordinator["a"]) == "TRANSACTIONAL_ID_NOT_FOUND"
    assert world.init().producer_id != older.producer_id


# --- what cannot be finished ----------------------------------------------------------------------


def prepared(status: TransactionStatus, *partitions: tuple[str, int]) -> TransactionState:
    return state_of(status, 8, 2)._replace(partitions=partitions)


def markers(world: World) -> list[int]:
    return [sum(row.header.is_control for row in rows_of(world.logs[each])) for each in HERE]


@pytest.mark.parametrize(
    "status", [TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT]
)
def test_a_decided_transaction_whose_partition_is_not_here(status: TransactionStatus) -> None:
    """It stays, is told, and no partition gets a marker that another one lacks."""
    world = World(2, prepared(status, ("t", 0), ("gone", 1)))
    ((metadata, reason),) = world.coordinator.complete_prepared()
    assert (metadata.state.transactional_id, metadata.status) == ("a", status)
    assert reason == "gone-1 is not here"
    assert world.status == status.label
    assert markers(world) == [0, 0, 0]
    assert refused(world.coordinator.init_producer_id, "a", 1) == "CONCURRENT_TRANSACTIONS"
    world.logs["gone", 1] = []
    assert world.coordinator.complete_prepared() == []
    assert world.status == status.label.replace("Prepare", "Complete")


def test_one_that_cannot_be_finished_keeps_no_other_one_waiting() -> None:
    other = prepared(TransactionStatus.PREPARE_COMMIT, ("t", 1))._replace(
        transactional_id="b", producer_id=PRODUCER_ID + 1
    )
    world = World(2, prepared(TransactionStatus.PREPARE_COMMIT, ("t", 0)), other)
    newer = ProducerIdAndEpoch(PRODUCER_ID, 9)
    world.send(newer, 0, b"another coordinator has let it go on")
    ((metadata, reason),) = world.coordinator.complete_prepared()
    assert metadata.state.transactional_id == "a"
    assert reason.startswith("INVALID_PRODUCER_EPOCH: ")
    assert world.status == "PrepareCommit"
    assert world.coordinator["b"].status.label == "CompleteCommit"
    assert markers(world) == [0, 1, 0]


@pytest.mark.parametrize("by", ["init", "timeout"])
def test_an_open_transaction_whose_partition_is_not_here(by: str) -> None:
    """It is decided: aborted, whoever finishes it."""
    state = prepared(TransactionStatus.ONGOING, ("t", 0), ("gone", 1))
    world = World(2, state)
    if by == "init":
        for _ in range(2):
            assert refused(world.coordinator.init_producer_id, "a", 1) == "CONCURRENT_TRANSACTIONS"
    else:
        world.now_ms += 60_000
        assert world.coordinator.abort_timed_out() == ["a"]
        assert world.coordinator.abort_timed_out() == []
    assert world.status == "PrepareAbort"
    assert markers(world) == [0, 0, 0]


def test_a_partition_that_is_not_here_is_not_added() -> None:
    world = World(2)
    producer = world.init()
    with pytest.raises(EoctlError, match="gone-0"):
        world.coordinator.add_partitions("a", producer, [("t", 0), ("gone", 0)])
    assert world.status == "Empty"


def test_a_second_marker_ends_nothing() -> None:
    """A coordinator that died behind its markers writes them once more."""
    world = World(2)
    producer = world.init()
    world.add(producer, 0, 1)
    world.send(producer, 0, b"one")
    world.end(producer)
    state_log = world.logs["__transaction_state", 0]
    state_log.pop()  # CompleteCommit
    world.open()
    assert world.status == "PrepareCommit"
    assert world.coordinator.complete_prepared() == []
    assert world.status == "CompleteCommit"
    assert markers(world) == [2, 2, 0]
    assert world.committed == [b"one"]
