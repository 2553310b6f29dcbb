"""The state table of a transactional id: what Kafka 4.3.1 answers and writes, event by event.

`tests/golden/kafka-4.3.1-coordinator.answers.xz` has the words of Kafka's own coordinator for every
state with every request, and for rows of requests (`tests.coordinator_cases`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from storage.producers.transaction_metadata import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
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
)
from tests.coordinator_cases import NEW_ID, NOW_MS, OLD_ID, PRODUCER_ID, STATUSES, state_of
from tests.coordinators import Commands, is_same_answer, parse_answer
from tests.kafka.coordinator_answers import noted

if TYPE_CHECKING:
    from storage.formats.transaction_state import TransactionStatus

LATER_MS = NOW_MS + 5
FIRST_REQUESTS = {"init", "add", "end"}
REQUESTS = FIRST_REQUESTS | {"finish", "timeouts", "expire"}
FAILED = "UNKNOWN_SERVER_ERROR"


def new_id() -> int:
    return NEW_ID


def no_new_id() -> int:
    raise AssertionError("it has epochs left")


def known(
    status: TransactionStatus, epoch: int = 7, *, last_epoch: int = -1, **state: int
) -> Metadata:
    client_version = state.pop("client_version", 2)
    return Metadata(state_of(status, epoch, client_version, **state), last_epoch)


def who(metadata: Metadata) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(metadata.state.producer_id, metadata.state.producer_epoch)


def ended(
    metadata: Metadata, producer: ProducerIdAndEpoch, *, is_commit: bool = True, version: int = 2
) -> Metadata | None:
    return end(
        metadata,
        producer,
        is_commit=is_commit,
        version=version,
        now_ms=LATER_MS,
        new_producer_id=new_id,
    )


# --- everything -----------------------------------------------------------------------------------


def status_of(case: str) -> str:
    """The state that a case begins with."""
    loads = [each.split() for each in case.split(";") if each.startswith("load ")]
    if not loads:
        return "none"
    _, ((state, *_)) = parse_answer(f"- {loads[0][-1]}")
    assert state is not None
    return state.status.label


@pytest.mark.share(2)
@pytest.mark.parametrize("status", ["none", *(each.label for each in STATUSES)])
def test_every_state_and_event_as_kafka_answers(status: str) -> None:
    """But for what its server could not do (below)."""
    requests: Counter[str] = Counter()
    for case, kafka in noted():
        if status_of(case) != status:
            continue
        ours = Commands().answers(case)
        pairs = zip(case.split(";"), ours.split(";"), kafka.split(";"), strict=True)
        for command, mine, its in pairs:
            if its.startswith(FAILED):
                break
            assert is_same_answer(mine, its), (command, case)
            requests[command.split()[0]] += 1
    assert set(requests) >= (FIRST_REQUESTS if status == "none" else REQUESTS)


def test_where_kafka_only_fails() -> None:
    """An id without a further epoch that is asked by another than its newest producer.

    There Kafka's coordinator fails by itself. Here the answer is that of any other epoch; and a
    transaction that reached the last epoch all the same can be committed.
    """
    found: Counter[str] = Counter()
    for case, kafka in noted():
        if FAILED not in kafka:
            continue
        pairs = zip(
            case.split(";"), Commands().answers(case).split(";"), kafka.split(";"), strict=True
        )
        for command, mine, its in pairs:
            if not its.startswith(FAILED):
                continue
            words, states = parse_answer(mine)
            found[f"{command.split()[0]} {words[0]} {len(states)}"] += 1
            if words[0] == "NONE":
                assert states[0] is not None
                assert states[0].producer_epoch >= 32766
            break
    assert set(found) == {"init PRODUCER_FENCED 0", "init NONE 1", "end NONE 2"}


# --- one by one -----------------------------------------------------------------------------------


def test_the_records_of_a_first_transaction() -> None:
    fresh = new_metadata("a", NEW_ID, 30_000, now_ms=NOW_MS)
    begun = init(fresh, 30_000, None, now_ms=NOW_MS, new_producer_id=no_new_id)
    assert begun.state == state_of(EMPTY, 0, 0, value_version=0)._replace(
        producer_id=NEW_ID,
        previous_producer_id=NEW_ID,
        timeout_ms=30_000,
        last_update_timestamp_ms=NOW_MS,
    )
    added = add_partitions(
        begun, who(begun), [("t", 1), ("t", 1)], now_ms=LATER_MS, client_version=2
    )
    assert added is not None
    assert added.state == begun.state._replace(
        transaction_status=ONGOING,
        partitions=(("t", 1),),
        start_timestamp_ms=LATER_MS,
        last_update_timestamp_ms=LATER_MS,
        client_transaction_version=2,
    )
    prepared = ended(added, who(added))
    assert prepared is not None
    assert prepared.state == added.state._replace(
        transaction_status=PREPARE_COMMIT, producer_epoch=1, last_update_timestamp_ms=LATER_MS
    )
    done = complete(prepared, now_ms=LATER_MS + 1)
    assert done.state == prepared.state._replace(
        transaction_status=COMPLETE_COMMIT, partitions=(), last_update_timestamp_ms=LATER_MS + 1
    )


@pytest.mark.parametrize("epoch", [32764, 32765, 32766])
def test_ends_use_up_the_epochs_of_a_producer(epoch: int) -> None:
    """32767 is for markers alone; the next transaction has another producer."""
    ongoing = known(ONGOING, epoch)
    prepared = ended(ongoing, who(ongoing))
    assert prepared is not None
    is_last = epoch == 32766
    assert prepared.state.producer_epoch == epoch + 1
    assert prepared.state.next_producer_id == (NEW_ID if is_last else -1)
    done = complete(prepared, now_ms=LATER_MS)
    assert who(done) == ((NEW_ID, 0) if is_last else (PRODUCER_ID, epoch + 1))
    assert done.state.previous_producer_id == PRODUCER_ID
    assert done.state.next_producer_id == -1
    assert ended(done, who(ongoing)) is None  # it did not get the answer
    with pytest.raises(CoordinatorError, match="INVALID_TXN_STATE"):
        ended(done, who(ongoing), is_commit=False)


@pytest.mark.parametrize("epoch", [32764, 32765, 32766, 32767])
@pytest.mark.parametrize("has_expected", [False, True])
def test_inits_use_up_the_epochs_of_a_producer(epoch: int, has_expected: bool) -> None:
    before = known(EMPTY, epoch)
    expected = who(before) if has_expected else None
    begun = init(before, 1, expected, now_ms=LATER_MS, new_producer_id=new_id)
    is_used_up = epoch >= 32766
    assert who(begun) == ((NEW_ID, 0) if is_used_up else (PRODUCER_ID, epoch + 1))
    assert begun.state.previous_producer_id == PRODUCER_ID
    assert begun.last_producer_epoch == (epoch if has_expected else -1)


def test_a_producer_without_the_answer_to_its_init_asks_again() -> None:
    before = known(COMPLETE_ABORT, 7)
    begun = init(before, 1, who(before), now_ms=NOW_MS, new_producer_id=no_new_id)
    again = init(begun, 1, who(before), now_ms=LATER_MS, new_producer_id=no_new_id)
    assert who(again) == who(begun) == (PRODUCER_ID, 8)
    newer = init(begun, 1, None, now_ms=LATER_MS, new_producer_id=no_new_id)
    assert who(newer) == (PRODUCER_ID, 9)
    with pytest.raises(CoordinatorError, match="PRODUCER_FENCED: a: epoch 7, the newest is 9"):
        init(newer, 1, who(before), now_ms=LATER_MS, new_producer_id=no_new_id)


def test_a_new_producer_id_that_was_not_told_is_told_again() -> None:
    before = known(COMPLETE_COMMIT, 32766)
    begun = init(before, 1, who(before), now_ms=NOW_MS, new_producer_id=new_id)
    again = init(begun, 1, who(before), now_ms=LATER_MS, new_producer_id=no_new_id)
    assert who(again) == who(begun) == (NEW_ID, 0)


def test_only_the_newest_producer_asks_again() -> None:
    """The epoch before the newest is not in the record: a coordinator that starts forgets it."""
    begun = known(EMPTY, 8)
    with pytest.raises(CoordinatorError, match="PRODUCER_FENCED"):
        init(begun, 1, ProducerIdAndEpoch(PRODUCER_ID, 7), now_ms=NOW_MS, new_producer_id=no_new_id)


@pytest.mark.parametrize("status", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_version_2_aborts_what_has_no_partitions(status: TransactionStatus) -> None:
    before = known(status)
    prepared = ended(before, who(before), is_commit=False)
    assert prepared is not None
    assert prepared.status is PREPARE_ABORT
    assert prepared.state.partitions == ()
    assert prepared.state.producer_epoch == 8
    assert prepared.state.start_timestamp_ms == LATER_MS
    with pytest.raises(CoordinatorError, match="INVALID_TXN_STATE: a: in state "):
        ended(before, who(before))
    if status is not COMPLETE_ABORT:
        with pytest.raises(CoordinatorError, match="INVALID_TXN_STATE"):
            ended(before, who(before), is_commit=False, version=0)


@pytest.mark.parametrize("version", [0, 2])
def test_a_fence_raises_the_epoch_of_the_markers(version: int) -> None:
    ongoing = known(ONGOING, 7, last_epoch=6)
    fenced = fence(ongoing, version=version, now_ms=LATER_MS, new_producer_id=no_new_id)
    assert fenced.state == ongoing.state._replace(
        transaction_status=PREPARE_ABORT,
        producer_epoch=8,
        last_update_timestamp_ms=LATER_MS,
        client_transaction_version=version,
    )
    with pytest.raises(CoordinatorError, match="PRODUCER_FENCED"):
        add_partitions(fenced, who(ongoing), [("t", 1)], now_ms=LATER_MS, client_version=version)


def test_a_fence_of_the_last_epoch() -> None:
    """Version 2 goes on with a new producer at once; before, the next init takes one."""
    ongoing = known(ONGOING, 32766)
    newer = fence(ongoing, version=2, now_ms=LATER_MS, new_producer_id=new_id)
    assert (newer.state.producer_epoch, newer.state.next_producer_id) == (32767, NEW_ID)
    older = fence(ongoing, version=0, now_ms=LATER_MS, new_producer_id=no_new_id)
    assert (older.state.producer_epoch, older.state.next_producer_id) == (32767, -1)
    done = complete(older, now_ms=LATER_MS)
    begun = init(done, 1, None, now_ms=LATER_MS, new_producer_id=new_id)
    assert who(begun) == (NEW_ID, 0)


def test_one_whose_id_is_used_up_is_fenced_and_not_unknown() -> None:
    """A later session of the new id is empty: the end of the old one is not asked for again."""
    state = state_of(EMPTY, 0, 2, previous_id=OLD_ID)
    with pytest.raises(CoordinatorError, match="PRODUCER_FENCED"):
        ended(Metadata(state), ProducerIdAndEpoch(OLD_ID, 32766))
    with pytest.raises(CoordinatorError, match="INVALID_PRODUCER_ID_MAPPING"):
        ended(Metadata(state), ProducerIdAndEpoch(OLD_ID, 32765))


def test_a_two_phase_commit_never_times_out() -> None:
    never = known(ONGOING, timeout_ms=2**31 - 1)
    assert not is_timed_out(never, NOW_MS + 2**40)
    assert is_timed_out(known(ONGOING, timeout_ms=2**31 - 2), NOW_MS + 2**40)


@pytest.mark.parametrize("status", STATUSES)
def test_what_is_going_on_does_not_expire(status: TransactionStatus) -> None:
    is_idle = status in {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
    assert is_expired(known(status), 2**60, 1000) is is_idle
