"""Producer state, rule by rule, and against the snapshots of real brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.producer_snapshot import (
    ProducerEntry,
    encode_snapshot,
    parse_snapshot,
)
from storage.formats.record_batch import (
    CONTROL_MASK,
    MAX_SEQUENCE,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from storage.log.segment import open_segment
from storage.producers.producer_state import (
    MAX_PRODUCER_EPOCH,
    AppendError,
    CachedBatch,
    CompletedTransaction,
    Marker,
    Origin,
    ProducerState,
    ProducerStateManager,
    Violation,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLIENT, COORDINATOR, REPLICATION = Origin.CLIENT, Origin.COORDINATOR, Origin.REPLICATION
TRANSACTIONAL = TRANSACTIONAL_MASK
MARKER = TRANSACTIONAL_MASK | CONTROL_MASK
DAY_MS = 86_400_000


def batch(
    offset: int,
    sequence: int = 0,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    count: int = 1,
    attributes: int = 0,
    timestamp_ms: int = 1000,
    magic: int = 2,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=magic,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        records_count=count,
    )


class Log:
    """A log that appends to itself: offsets are given out one after the other."""

    def __init__(self, manager: ProducerStateManager | None = None) -> None:
        self.manager = manager or ProducerStateManager()

    def data(
        self,
        sequence: int = 0,
        *,
        origin: Origin = CLIENT,
        transactional: bool = False,
        count: int = 1,
        producer_id: int = 7,
        epoch: int = 0,
        timestamp_ms: int = 1000,
    ) -> None:
        header = batch(
            self.manager.map_end_offset,
            sequence,
            producer_id=producer_id,
            epoch=epoch,
            count=count,
            timestamp_ms=timestamp_ms,
            attributes=TRANSACTIONAL if transactional else 0,
        )
        assert self.manager.append(header, None, origin) is None

    def end(
        self,
        *,
        commit: bool = True,
        producer_id: int = 7,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        timestamp_ms: int = 2000,
        origin: Origin = COORDINATOR,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        header = batch(
            self.manager.map_end_offset,
            -1,
            producer_id=producer_id,
            epoch=epoch,
            attributes=MARKER,
        )
        marker = Marker(commit, coordinator_epoch, timestamp_ms)
        return self.manager.append(header, marker, origin, transaction_version=transaction_version)

    def state(self, producer_id: int = 7) -> ProducerState:
        return self.manager.producers[producer_id]


def refused(name: str) -> pytest.RaisesExc[AppendError]:
    return pytest.raises(AppendError, match=f"^{name}: ")


# --- PROD-1, PROD-13 ------------------------------------------------------------------------------


def test_batches_without_producer_move_the_end_only() -> None:
    log = Log()
    log.data(-1, producer_id=-1, epoch=-1, count=5, origin=REPLICATION)
    assert log.manager.producers == {}
    assert log.manager.map_end_offset == 5


def test_old_formats_change_nothing() -> None:
    manager = ProducerStateManager(3)
    for magic in (0, 1):
        assert manager.append(batch(3, magic=magic), None) is None
    assert manager.producers == {}
    assert manager.map_end_offset == 3


def test_the_end_follows_gaps() -> None:
    manager = ProducerStateManager()
    manager.append(batch(100, count=3), None)
    assert manager.map_end_offset == 103


# --- PROD-2 ---------------------------------------------------------------------------------------


def test_a_duplicate_is_one_of_the_last_five_batches_of_its_epoch() -> None:
    log = Log()
    for sequence in range(0, 12, 2):
        log.data(sequence, count=2)
    found = [log.manager.find_duplicate(batch(50, each, count=2)) for each in range(0, 12, 2)]
    assert [each and each.base_offset for each in found] == [None, 2, 4, 6, 8, 10]
    assert log.manager.find_duplicate(batch(50, 10, count=1)) is None  # another range
    assert log.manager.find_duplicate(batch(50, 11, count=2)) is None
    assert log.manager.find_duplicate(batch(50, 10, count=2, epoch=1)) is None
    assert log.manager.find_duplicate(batch(50, 10, count=2, producer_id=8)) is None


def test_a_snapshot_keeps_the_newest_batch_only() -> None:
    log = Log()
    for sequence in range(3):
        log.data(sequence)
    later = ProducerStateManager()
    later.load(log.manager.entries(), 3, now_ms=1000)
    assert later.find_duplicate(batch(3, 1)) is None
    assert later.find_duplicate(batch(3, 2)) == CachedBatch(2, 2, 0, 1000)
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
        Log(later).data(1)


# --- PROD-3 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [CLIENT, COORDINATOR])
def test_a_lower_epoch_is_refused(origin: Origin) -> None:
    log = Log()
    log.data(epoch=2)
    with refused("INVALID_PRODUCER_EPOCH") as caught:
        log.data(1, epoch=1, origin=origin)
    assert (caught.value.producer_id, caught.value.offset) == (7, 1)
    with refused("INVALID_PRODUCER_EPOCH"):
        log.end(epoch=1)
    assert log.manager.map_end_offset == 1
    assert log.state().producer_epoch == 2
    assert log.manager.violations == []


def test_replication_only_notes_a_lower_epoch_and_takes_it() -> None:
    log = Log()
    log.data(epoch=2)
    log.data(9, epoch=1, origin=REPLICATION)
    assert log.manager.violations == [Violation("PRD-3", 1, 7, expected=2, found=1)]
    assert log.state().producer_epoch == 1
    assert [each.last_sequence for each in log.state().batches] == [9]
    log.end(epoch=0, origin=REPLICATION)
    assert log.manager.violations[1] == Violation("PRD-3", 2, 7, expected=1, found=0)
    assert not log.state().batches


# --- PROD-4 ---------------------------------------------------------------------------------------


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = Log()
    log.data(41)
    log.data(42)
    assert log.state().last_sequence == 42


def test_an_unknown_producer_of_transaction_version_2_begins_at_zero() -> None:
    """What it has sent before is lost: its transaction must not go on without that (KIP-890)."""
    manager = ProducerStateManager()
    for version in (2, 3):
        with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
            manager.append(batch(0, 41), None, CLIENT, transaction_version=version)
    assert manager.producers == {}
    manager.append(batch(0, 0), None, CLIENT, transaction_version=2)
    manager.append(batch(1, 1), None, CLIENT, transaction_version=2)
    replayed = ProducerStateManager()
    replayed.append(batch(0, 41), None, REPLICATION, transaction_version=2)
    assert replayed.producers[7].last_sequence == 41


@pytest.mark.parametrize("sequence", [0, 1, 3, 4, MAX_SEQUENCE])
def test_sequences_continue(sequence: int) -> None:
    log = Log()
    log.data(0, count=2)
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER") as caught:
        log.data(sequence)
    assert (caught.value.producer_id, caught.value.offset) == (7, 2)
    log.data(2)


def test_a_higher_epoch_begins_at_zero() -> None:
    log = Log()
    log.data(0, count=2)
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
        log.data(2, epoch=1)
    log.data(0, epoch=1)
    log.data(1, epoch=1)
    assert [each.last_sequence for each in log.state().batches] == [0, 1]


@pytest.mark.parametrize(
    ("sequence", "count", "last", "following"),
    [
        (MAX_SEQUENCE - 1, 2, MAX_SEQUENCE, 0),
        (MAX_SEQUENCE, 1, MAX_SEQUENCE, 0),
        (MAX_SEQUENCE, 2, 0, 1),
        (MAX_SEQUENCE - 1, 5, 2, 3),
    ],
)
def test_sequences_wrap_to_zero(sequence: int, count: int, last: int, following: int) -> None:
    log = Log()
    log.data(sequence, count=count)
    assert log.state().last_sequence == last
    assert log.state().batches[0].first_sequence == sequence
    assert log.manager.find_duplicate(batch(9, sequence, count=count)) is not None
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
        log.data(following + 1)
    log.data(following)


def test_after_a_marker_without_data_sequences_begin_at_zero() -> None:
    log = Log()
    log.end(epoch=3)
    with refused("OUT_OF_ORDER_SEQUENCE_NUMBER"):
        log.data(1, epoch=3)
    log.data(0, epoch=3)


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_only_clients_have_their_sequences_checked(origin: Origin) -> None:
    log = Log()
    for _ in range(3):
        log.data(0, origin=origin)  # PROD-12: what a group coordinator writes
    log.data(99, origin=origin)
    assert log.state().last_sequence == 99


# --- PROD-5 ---------------------------------------------------------------------------------------


def test_the_last_five_batches_are_kept() -> None:
    log = Log()
    for sequence in range(0, 14, 2):
        log.data(sequence, count=2, timestamp_ms=1000 + sequence)
    assert list(log.state().batches) == [
        CachedBatch(sequence + 1, sequence + 1, 1, 1000 + sequence) for sequence in range(4, 14, 2)
    ]
    assert log.state().timestamp_ms == 1012


def test_time_may_go_back() -> None:
    log = Log()
    log.data(0, timestamp_ms=5000)
    log.data(1, timestamp_ms=-1)
    assert log.state().timestamp_ms == -1


def test_a_transaction_begins_with_its_first_batch() -> None:
    log = Log()
    log.data(0)
    assert log.state().current_txn_first_offset is None
    log.data(1, transactional=True)
    log.data(2, transactional=True)
    assert log.state().current_txn_first_offset == 1
    assert log.manager.first_undecided_offset == 1


# --- PROD-6 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", list(Origin))
def test_nothing_else_inside_a_transaction_not_even_in_replication(origin: Origin) -> None:
    log = Log()
    log.data(0, transactional=True)
    with refused("INVALID_TXN_STATE") as caught:
        log.data(1, origin=origin)
    assert (caught.value.producer_id, caught.value.offset) == (7, 1)
    assert [each.last_sequence for each in log.state().batches] == [0]
    assert log.manager.map_end_offset == 1
    log.data(5, producer_id=8)  # TXN-10: other producers may


# --- PROD-7, PROD-8, TXN-2 ------------------------------------------------------------------------


def test_a_marker_of_the_same_epoch_keeps_the_batches() -> None:
    log = Log()
    log.data(0, transactional=True)
    assert log.end(commit=False, coordinator_epoch=4) == CompletedTransaction(
        producer_id=7, first_offset=0, last_offset=1, is_aborted=True
    )
    state = log.state()
    assert (state.coordinator_epoch, state.timestamp_ms) == (4, 2000)
    assert state.current_txn_first_offset is None
    log.data(1, transactional=True)  # transaction versions 0 and 1: sequences continue
    assert [each.last_sequence for each in state.batches] == [0, 1]
    assert state.coordinator_epoch == 4


def test_a_marker_of_a_higher_epoch_forgets_them() -> None:
    log = Log()
    log.data(0, transactional=True)
    assert log.end(epoch=1) == CompletedTransaction(7, 0, 1, is_aborted=False)
    assert not log.state().batches
    assert log.state().producer_epoch == 1
    log.data(0, epoch=1, transactional=True)  # transaction version 2: sequences restart


def test_a_marker_that_ends_nothing() -> None:
    log = Log()
    assert log.end() is None
    log.data(0)
    assert log.end() is None
    assert log.manager.map_end_offset == 3
    assert log.state().to_entry() == ProducerEntry(7, 0, 0, 1, 0, 2000, 0, -1)


def test_a_lower_coordinator_epoch() -> None:
    log = Log()
    log.end(coordinator_epoch=5)
    with refused("TRANSACTION_COORDINATOR_FENCED"):
        log.end(coordinator_epoch=4)
    log.end(coordinator_epoch=4, origin=REPLICATION)
    assert log.manager.violations == [Violation("PRD-5", 1, 7, expected=5, found=4)]
    assert log.state().coordinator_epoch == 4


def test_the_leader_wants_a_higher_epoch_of_transaction_version_2() -> None:
    log = Log()
    log.data(0, epoch=3, transactional=True)
    with refused("INVALID_PRODUCER_EPOCH"):
        log.end(epoch=3, transaction_version=2)
    log.end(epoch=4, transaction_version=2)
    assert log.end(epoch=4, transaction_version=2) is None  # sent again, nothing is open
    with refused("INVALID_PRODUCER_EPOCH"):
        log.end(epoch=3, transaction_version=2)
    log.data(0, epoch=MAX_PRODUCER_EPOCH, transactional=True)
    assert log.end(epoch=MAX_PRODUCER_EPOCH, transaction_version=2) is not None
    follower = Log()
    follower.data(0, epoch=3, transactional=True)
    assert follower.end(epoch=3, transaction_version=2, origin=REPLICATION) is not None


# --- PROD-9 ---------------------------------------------------------------------------------------


def test_an_empty_control_batch_says_nothing_of_a_known_producer() -> None:
    log = Log()
    log.data(0, transactional=True)
    before = log.state().to_entry()
    assert log.manager.append(batch(1, -1, epoch=4, attributes=MARKER), None) is None
    assert log.state().to_entry() == before
    assert log.manager.map_end_offset == 2


def test_an_empty_control_batch_makes_an_unknown_producer_known() -> None:
    log = Log()
    log.manager.append(batch(0, -1, epoch=4, attributes=MARKER), None)
    assert log.manager.entries() == [ProducerEntry(7, -1, -1, -1, 0, -1, -1, -1)]
    later = ProducerStateManager()
    later.load(log.manager.entries(), 1, now_ms=DAY_MS)
    assert later.entries() == []


# --- PROD-10, PROD-11 -----------------------------------------------------------------------------


def test_expiry() -> None:
    log = Log()
    log.data(5, timestamp_ms=1000)
    log.data(0, producer_id=8, timestamp_ms=1000, transactional=True)
    log.data(0, producer_id=9, timestamp_ms=1001)
    log.manager.remove_expired(999 + DAY_MS)
    assert list(log.manager.producers) == [7, 8, 9]
    log.manager.remove_expired(1000 + DAY_MS)
    assert list(log.manager.producers) == [8, 9]
    log.data(77)  # PROD-11: it goes on with any sequence
    log.manager.remove_expired(2**62, 5)
    assert list(log.manager.producers) == [8]
    assert log.manager.first_undecided_offset == 1


def test_loading_leaves_out_what_has_expired() -> None:
    entries = [
        ProducerEntry(7, 0, 5, 10, 2, 1000, -1, -1),
        ProducerEntry(8, 0, 5, 10, 2, 1000, 3, 8),
        ProducerEntry(9, 2, -1, -1, 0, 1001, 3, -1),
    ]
    manager = ProducerStateManager()
    manager.load(entries, 11, now_ms=2000, expiration_ms=1000)
    assert manager.entries() == entries[1:]
    assert manager.map_end_offset == 11
    assert manager.first_undecided_offset == 8
    assert not manager.producers[9].batches
    assert manager.producers[8].batches[0].base_offset == 8


# --- SNAP-8 ---------------------------------------------------------------------------------------


def ids_after(ids: list[int]) -> list[int]:
    log = Log()
    for each in ids:
        log.data(0, producer_id=each, origin=REPLICATION)
    return [entry.producer_id for entry in log.manager.entries()]


def test_snapshots_list_the_buckets_of_the_brokers_map() -> None:
    assert ids_after([17, 3, 16, 1, 33, 17]) == [16, 17, 1, 33, 3]
    # The 13th id doubles the table: 16 moves to a bucket of its own.
    twelve = [16, *range(11)]
    assert ids_after(twelve) == [16, *range(11)]
    assert ids_after([*twelve, 11]) == [*range(12), 16]
    # Both halves of an id count.
    assert ids_after([1 << 32, 2, 0, 1 << 16 | 1]) == [0, 1 << 16 | 1, 1 << 32, 2]


def test_a_table_never_shrinks_and_a_producer_that_returns_comes_last() -> None:
    log = Log()
    for each in (0, 32, *range(1, 12)):
        log.data(0, producer_id=each, timestamp_ms=DAY_MS if each % 32 else 0)
    log.data(0, producer_id=64, timestamp_ms=DAY_MS)
    log.manager.remove_expired(DAY_MS)
    log.data(0, producer_id=0)
    # 0 and 64 share a bucket in a table of 32; in one of 16, 32 would have been between them.
    assert [each.producer_id for each in log.manager.entries()] == [64, 0, *range(1, 12)]
    assert log.manager.table.buckets_count == 32


@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 64), max_size=60))
def test_snapshots_hold_each_producer_once(ids: list[int]) -> None:
    assert sorted(ids_after(ids)) == sorted(set(ids))


# --- TXN-6 ----------------------------------------------------------------------------------------


def test_last_stable_offset_is_the_first_offset_of_another_open_transaction() -> None:
    log = Log()
    for producer_id in (7, 8, 9):
        log.data(0, producer_id=producer_id, transactional=True)
    stable = []
    for producer_id in (8, 7, 9):
        completed = log.end(producer_id=producer_id)
        assert completed is not None
        stable.append(log.manager.last_stable_offset(completed))
        log.manager.complete(completed)
    assert stable == [0, 2, 6]  # the last one: none is open, so the offset behind its marker
    assert log.manager.first_undecided_offset is None


# --- real brokers ---------------------------------------------------------------------------------


def test_a_snapshot_and_the_segment_behind_it_give_the_next_snapshot(
    golden: Callable[[str], Path],
) -> None:
    tree = golden("kafka-4.3.1")
    before = (tree / "tv2" / "c2-0" / f"{81:020d}.snapshot").read_bytes()
    assert len(parse_snapshot(before)) == 3
    manager = ProducerStateManager()
    manager.load(parse_snapshot(before), 81, now_ms=1_795_230_910_000)
    assert encode_snapshot(manager.entries()) == before
    with open_segment(tree / "tv2" / "c2-0" / f"{81:020d}.log") as segment:
        for each in segment.scan():
            manager.append(each.header, None)
    after = (tree / "tv2-clean" / "c2-0" / f"{82:020d}.snapshot").read_bytes()
    assert encode_snapshot(manager.entries()) == after
