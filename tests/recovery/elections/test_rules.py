"""What a controller makes of brokers that stop and start: values of Kafka 4.3.1's own rules."""

from __future__ import annotations

import pytest

from recovery.elections.rules import (
    NO_LEADER,
    PartitionState,
    Terms,
    elected_uncleanly,
    fenced,
    joined,
    registered,
    started,
    states_after_stop,
    unfenced,
)

PLAIN = Terms(min_insync=2, is_unclean=False, has_elr=False)
UNCLEAN = PLAIN._replace(is_unclean=True)
ELR = PLAIN._replace(has_elr=True)
# AR = 0,1,2, ISR = 0,1: broker 2 has been away for some time.
START = PartitionState(replicas=(0, 1, 2), isr=(0, 1), leader=0)


def crashed(terms: Terms, *brokers: int, state: PartitionState = START) -> PartitionState:
    """The state after sessions have ended, one after the other; 2 has been away before."""
    running = {0, 1}
    for broker in brokers:
        running.discard(broker)
        state = fenced(state, terms, broker, running)
    return state


def test_the_other_one_in_the_isr_leads() -> None:
    assert crashed(PLAIN, 0) == START._replace(isr=(1,), leader=1)
    assert crashed(ELR, 0) == START._replace(isr=(1,), leader=1, elr=(0,))


def test_the_last_one_stays_in_the_isr_or_is_known_for_the_last_leader() -> None:
    assert crashed(PLAIN, 0, 1) == START._replace(isr=(1,), leader=NO_LEADER)
    gone = crashed(ELR, 0, 1)
    assert gone == START._replace(isr=(), leader=NO_LEADER, elr=(0, 1), last_known=(1,))


def test_the_first_dead_one_waits_for_the_last() -> None:
    dead = crashed(PLAIN, 0, 1)
    waiting = started(dead, PLAIN, 0, (), is_clean=False)
    assert waiting == dead
    assert started(waiting, PLAIN, 1, {0}, is_clean=False) == START._replace(isr=(1,), leader=1)


def test_with_an_elr_a_clean_stop_is_enough_to_lead() -> None:
    dead = crashed(ELR, 0, 1)
    led = started(dead, ELR, 0, (), is_clean=True)
    assert led == START._replace(isr=(0,), leader=0, elr=(1,))
    # 1 comes back without a clean stop: it is no more in the ELR, and follows
    assert started(led, ELR, 1, {0}, is_clean=False) == START._replace(isr=(0, 1), leader=0)


def test_with_an_elr_who_crashed_leads_only_as_the_last_known_leader() -> None:
    dead = crashed(ELR, 0, 1)
    waiting = started(dead, ELR, 0, (), is_clean=False)
    assert waiting == dead._replace(elr=(1,))
    led = started(waiting, ELR, 1, {0}, is_clean=False)
    assert led == START._replace(isr=(1,), leader=1, is_unclean=True)


def test_an_unclean_election_takes_the_first_that_runs() -> None:
    dead = crashed(PLAIN, 0, 1)
    assert elected_uncleanly(dead, PLAIN, {1, 2}) == START._replace(isr=(1,), leader=1)
    assert elected_uncleanly(dead, PLAIN, {0, 2}) == START._replace(
        isr=(0,), leader=0, is_unclean=True
    )
    assert elected_uncleanly(crashed(ELR, 0, 1), ELR, {2}) == START._replace(
        isr=(2,), leader=2, is_unclean=True
    )
    assert elected_uncleanly(START, PLAIN, {2}) == START


def test_unclean_elections_that_nobody_asks_for() -> None:
    running = fenced(START, UNCLEAN, 0, {1, 2})
    assert running == START._replace(isr=(1,), leader=1)
    assert fenced(running, UNCLEAN, 1, {2}) == START._replace(isr=(2,), leader=2, is_unclean=True)
    assert unfenced(crashed(UNCLEAN, 0, 1), UNCLEAN, 2, ()) == START._replace(
        isr=(2,), leader=2, is_unclean=True
    )


def test_who_registers_is_no_more_in_the_isr() -> None:
    assert registered(START, PLAIN, 0, {1}, is_clean=False) == START._replace(isr=(1,), leader=1)
    assert registered(START, ELR, 0, {1}, is_clean=True) == START._replace(
        isr=(1,), leader=1, elr=(0,)
    )
    assert registered(START, ELR, 0, {1}, is_clean=False) == START._replace(isr=(1,), leader=1)


def test_enough_in_the_isr_end_the_elr() -> None:
    one = crashed(ELR, 0)
    assert joined(one, ELR, 2, {1}) == START._replace(isr=(1, 2), leader=1)
    assert joined(one, ELR, 3, {1}) == one
    gone = crashed(ELR, 0, 1)
    assert joined(gone, ELR, 2, {2}) == gone


def test_a_full_isr_leaves_as_many_in_the_elr_as_were_needed() -> None:
    full = START._replace(isr=(0, 1, 2))
    running = {0, 1, 2}
    state = full
    for broker in (0, 1, 2):
        running.discard(broker)
        state = fenced(state, ELR, broker, running)
    assert state == full._replace(isr=(), leader=NO_LEADER, elr=(1, 2), last_known=(2,))


def test_nobody_knows_in_which_order_sessions_end() -> None:
    assert states_after_stop(START, PLAIN, (0, 1, 2), ()) == {
        START._replace(isr=(0,), leader=NO_LEADER),
        START._replace(isr=(1,), leader=NO_LEADER),
    }
    assert states_after_stop(START, PLAIN, (2,), (0, 1)) == {START}
    with_elr = states_after_stop(START, ELR, (0, 1), ())
    assert {each.last_known for each in with_elr} == {(0,), (1,)}
    assert {frozenset(each.elr) for each in with_elr} == {frozenset({0, 1})}


@pytest.mark.parametrize("terms", [PLAIN, UNCLEAN, ELR])
def test_what_does_not_concern_a_partition_changes_nothing(terms: Terms) -> None:
    dead = crashed(PLAIN, 0, 1)
    assert fenced(START, terms, 7, {0, 1}) == START
    assert joined(dead, terms, 0, {0}) == dead


def test_who_lost_its_disk_leads_with_the_next_start() -> None:
    """As `tests/broker/test_survival.py` saw it: with an empty log."""
    terms = PLAIN._replace(emptied=frozenset({1}))
    dead = crashed(terms, 0, 1)
    waiting = started(dead, terms, 1, (), is_clean=False)
    assert waiting == dead
    assert started(waiting, terms, 0, {1}, is_clean=False) == START._replace(leader=1)
