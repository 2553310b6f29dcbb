"""REPL-2 to REPL-6, one by one; `test_leader_model.py` holds all of them against a slow model."""

from __future__ import annotations

import pytest

from eoctl.lab.environment.leader import (
    ACKS_ALL,
    NEVER_US,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    FollowerProgress,
    IsrRule,
    IsrTerms,
    LeaderReplica,
    Leadership,
    follower_high_watermark,
)

LAG_US = 30_000_000


def led(
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    terms: IsrTerms | None = None,
    end_offset: int = 10,
    high_watermark: int = 10,
) -> LeaderReplica:
    leadership = Leadership((1, 2, 3), isr, leader_epoch=4, partition_epoch=7)
    return LeaderReplica(
        1,
        leadership,
        terms or IsrTerms(),
        end_offset=end_offset,
        high_watermark=high_watermark,
        now_us=0,
    )


def test_repl_2_a_follower_has_all_below_what_it_fetches() -> None:
    leader = led()
    assert leader.followers[2].end_offset == -1
    leader.fetched(2, 8, 1)
    assert leader.followers[2].end_offset == 8


def test_repl_3_the_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    leader = led()
    assert not leader.appended(15, 1)
    leader.fetched(2, 15, 2)
    assert leader.high_watermark == 10
    assert leader.fetched(3, 12, 3)
    assert leader.high_watermark == 12


def test_repl_3_it_never_goes_back() -> None:
    leader = led()
    leader.fetched(2, 4, 1)
    leader.fetched(3, 4, 1)
    assert leader.high_watermark == 10


def test_repl_3_it_waits_for_who_may_be_in_the_isr() -> None:
    """KIP-497: the controller may have taken the change already, or may still refuse it."""
    leader = led(isr=(1, 2))
    leader.appended(20, 1)
    leader.fetched(3, 10, LAG_US * 3)
    leader.followers[3].caught_up_us = NEVER_US  # it does not keep up: not waited for
    leader.propose((1, 2, 3))
    leader.fetched(2, 20, LAG_US * 3)
    assert leader.high_watermark == 10
    leader.settle(None, LAG_US * 3)
    assert leader.high_watermark == 20
    shrinking = led()
    shrinking.propose((1, 2))
    shrinking.appended(20, 1)
    shrinking.fetched(2, 20, 2)
    assert shrinking.high_watermark == 10
    shrinking.settle(Leadership((1, 2, 3), (1, 2), 4, 8), LAG_US * 2)
    assert (shrinking.high_watermark, shrinking.isr) == (20, (1, 2))


def test_repl_3_it_waits_for_who_has_caught_up_and_will_join() -> None:
    leader = led(isr=(1, 2))
    leader.fetched(3, 10, 1)
    leader.appended(20, 2)
    leader.fetched(2, 20, 3)
    assert leader.high_watermark == 10
    leader.fenced = {3}
    leader.advance(4)
    assert leader.high_watermark == 20


def test_repl_3_it_waits_for_min_insync_replicas() -> None:
    leader = led(isr=(1,), terms=IsrTerms(min_insync=2))
    assert not leader.appended(20, LAG_US * 2)
    older = led(isr=(1,), terms=IsrTerms(min_insync=2, has_strict_minimum=False))
    assert older.appended(20, LAG_US * 2)
    assert older.high_watermark == 20


def test_repl_4_a_follower_is_never_ahead_of_its_own_log() -> None:
    assert follower_high_watermark(12, 9) == 9
    assert follower_high_watermark(7, 9) == 7


def test_repl_5_who_has_not_caught_up_for_long_is_to_leave() -> None:
    leader = led()
    leader.fetched(2, 10, 5)
    leader.appended(20, 6)
    assert leader.leaving(5 + LAG_US) == (3,)
    assert leader.leaving(6 + LAG_US) == (2, 3)
    leader.propose((1,))
    assert leader.leaving(6 + LAG_US) == ()


def test_repl_5_a_follower_of_a_busy_leader_keeps_up() -> None:
    """It is behind at every fetch, and has each time what the leader had at the one before."""
    leader = led(end_offset=0, high_watermark=0)
    for step in range(1, 100):
        leader.fetched(2, (step - 1) * 1000, step * LAG_US // 2)
        leader.fetched(3, 0, step * LAG_US // 2)
        leader.appended(step * 1000, step * LAG_US // 2)
    assert leader.leaving(99 * LAG_US // 2) == (3,)


def test_repl_5_who_has_all_that_is_committed_may_join() -> None:
    leader = led(isr=(1, 2))
    assert not leader.may_join(3)
    leader.fetched(3, 9, 1)
    assert not leader.may_join(3)
    leader.fetched(3, 10, 2)
    assert leader.may_join(3)
    leader.fenced = {3}
    assert not leader.may_join(3)
    leader.fenced = ()
    leader.propose((1, 2, 3))
    assert not leader.may_join(3)


def test_repl_5_who_joins_has_reached_the_epoch_of_its_leader() -> None:
    """Below it, what it has may still be cut; the high watermark of a new leader is old."""
    leader = led(isr=(1, 2), end_offset=12, high_watermark=10)
    leader.fetched(3, 11, 1)
    assert not leader.may_join(3)
    leader.fetched(3, 12, 1)
    assert leader.may_join(3)


def test_repl_5_the_rule_of_old_counts_messages() -> None:
    terms = IsrTerms(rule=IsrRule.MESSAGES, lag_max_messages=4)
    leader = led(terms=terms)
    for each in (2, 3):
        leader.fetched(each, 10, 1)
    leader.appended(14, 2)
    assert leader.leaving(2) == ()
    leader.appended(15, 2)  # a burst, and both have kept up with all before it
    assert leader.leaving(2) == (2, 3)
    assert led(terms=IsrTerms()).leaving(2) == ()


@pytest.mark.parametrize("acks", [0, 1])
def test_repl_6_only_acks_all_asks_for_min_insync_replicas(acks: int) -> None:
    leader = led(isr=(1,), terms=IsrTerms(min_insync=2))
    assert leader.refusal(acks) is None
    assert leader.refusal(ACKS_ALL) == NOT_ENOUGH_REPLICAS


def test_repl_6_acks_all_waits_for_the_high_watermark() -> None:
    leader = led(isr=(1, 2), terms=IsrTerms(min_insync=2))
    leader.followers[3].caught_up_us = NEVER_US
    assert leader.refusal(ACKS_ALL) is None
    leader.appended(11, LAG_US * 2)
    assert leader.answer(11) is None
    leader.fetched(2, 11, LAG_US * 2)
    assert leader.answer(11) == ""
    leader.settle(Leadership((1, 2, 3), (1,), 4, 8), LAG_US * 2)
    assert leader.answer(11) == NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_repl_6_min_insync_replicas_is_at_most_all() -> None:
    leader = led(terms=IsrTerms(min_insync=9))
    assert leader.refusal(ACKS_ALL) is None


def test_what_is_older_than_what_is_known_says_nothing() -> None:
    leader = led()
    leader.settle(Leadership((1, 2, 3), (1,), 4, 7), 1)
    assert leader.isr == (1, 2, 3)


def test_a_follower_that_never_fetched_has_never_caught_up() -> None:
    assert not FollowerProgress().keeps_up(IsrTerms(), 0, 0)
