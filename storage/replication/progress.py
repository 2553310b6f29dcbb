"""How far a follower is, as its leader learns it from fetch requests (Kafka's `Replica`).

  REPL-2  a follower has all below the offset that it fetches from
  REPL-5  it has caught up at the time of a fetch from the leader's end; and at the time of the
          fetch before, if it asks now from where the leader ended then: a busy leader is always a
          little ahead, and its followers do keep up

A follower is judged by when it had last caught up, never by how many records it lacks. The rule of
releases before 0.9 counted records (`IsrRule.MESSAGES`): any burst above the limit drove followers
that kept up out of the ISR, and back in right after.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

UNKNOWN_OFFSET = -1
NEVER_US = -1 << 62


class IsrRule(StrEnum):
    """By what a follower is out of sync."""

    TIME = "time"  # replica.lag.time.max.ms
    MESSAGES = "messages"  # and replica.lag.max.messages, before Kafka 0.9


class IsrTerms(NamedTuple):
    """What is set for the ISR of a partition.

    Attributes:
        min_insync: min.insync.replicas.
        lag_time_max_us: replica.lag.time.max.ms.
        rule: what else counts.
        lag_max_messages: replica.lag.max.messages, with that rule.
        has_strict_minimum: the high watermark waits for min.insync.replicas, as from Kafka 3.7 on.
    """

    min_insync: int = 1
    lag_time_max_us: int = 30_000_000
    rule: IsrRule = IsrRule.TIME
    lag_max_messages: int = 4000
    has_strict_minimum: bool = True


class FollowerProgress:
    """One follower; times are those of the leader's clock.

    Attributes:
        end_offset: its log end; -1 until it has fetched in this leader epoch.
        caught_up_us: when it had last all that the leader had.
    """

    __slots__ = ("_fetched_us", "_leader_end_offset", "caught_up_us", "end_offset")

    def __init__(self, *, caught_up_us: int = NEVER_US) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.caught_up_us = caught_up_us
        self._leader_end_offset = 0  # at the fetch before
        self._fetched_us = NEVER_US

    def fetched(self, fetch_offset: int, leader_end_offset: int, now_us: int) -> None:
        """Take note of a fetch request (Replica.updateFetchStateOrThrow)."""
        if fetch_offset >= leader_end_offset:
            self.caught_up_us = max(self.caught_up_us, now_us)
        elif fetch_offset >= self._leader_end_offset:
            self.caught_up_us = max(self.caught_up_us, self._fetched_us)
        self.end_offset = fetch_offset
        self._leader_end_offset = max(leader_end_offset, self._leader_end_offset)
        self._fetched_us = now_us

    def keeps_up(self, terms: IsrTerms, leader_end_offset: int, now_us: int) -> bool:
        """Whether it may stay in the ISR (ReplicaState.isCaughtUp)."""
        if self.end_offset == leader_end_offset:
            return True
        if terms.rule is IsrRule.MESSAGES:
            behind = leader_end_offset - max(self.end_offset, 0)
            if behind > terms.lag_max_messages:
                return False
        return now_us - self.caught_up_us <= terms.lag_time_max_us
