"""A leader's knowledge of its followers, and what is committed."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


# -- how far a follower is, as its leader learns it from fetch requests (Kafka's `Replica`)
#
#   REPL-2  a follower has all below the offset that it fetches from
#   REPL-5  it has caught up at the time of a fetch from the leader's end; and at the time of the
#           fetch before, if it asks now from where the leader ended then: a busy leader is always a
#           little ahead, and its followers do keep up
#
# A follower is judged by when it had last caught up, never by how many records it lacks. The rule
# of releases before 0.9 counted records (`IsrRule.MESSAGES`): any burst above the limit drove
# followers that kept up out of the ISR, and back in right after.


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


# -- a partition as its leader sees it: ISR, high watermark, and what a producer is answered
#
# REPL-3  the high watermark is the smallest log end of the ISR; of all that may be in it while a
# change of it is under way (KIP-497), and of those that have caught up and will join. It never
# goes back, and waits while the ISR is smaller than min.insync.replicas REPL-4  a follower takes
# the leader's high watermark, at most its own log end REPL-5  who has not caught up for
# replica.lag.time.max.ms is to leave; who has all up to the high watermark, and reaches into this
# leader's epoch, may join. The controller decides REPL-6  acks=all waits for the high watermark
# and asks for min.insync.replicas before and after
#
# Source: Partition, PartitionState, DelayedProduce of Kafka 4.3.1.


ACKS_ALL = -1
NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
NOT_ENOUGH_REPLICAS_AFTER_APPEND = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


def follower_high_watermark(leader_high_watermark: int, end_offset: int) -> int:
    """REPL-4: what a follower takes from a fetch response, once it has appended what was in it."""
    return min(leader_high_watermark, end_offset)


class IsrChange(NamedTuple):
    """What a leader asks of the controller (AlterPartition); it is for one state of the partition.

    Another leader epoch or partition epoch there, and it is refused.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class Leadership(NamedTuple):
    """What the controller has made of a partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class LeaderReplica:
    """One partition from the start of its leader's epoch on.

    Args:
        broker_id: the leader.
        leadership: of it.
        terms: what is set.
        end_offset: log end at the start of the epoch.
        high_watermark: as known then.
        now_us: the time.

    Attributes:
        isr: as the controller has it, as far as is known here.
        pending: an ISR that the controller was asked for.
        fenced: brokers that are not to join, as the cluster's metadata says.
    """

    def __init__(
        self,
        broker_id: int,
        leadership: Leadership,
        terms: IsrTerms,
        *,
        end_offset: int,
        high_watermark: int,
        now_us: int,
    ) -> None:
        self.broker_id = broker_id
        self.terms = terms
        self.leader_epoch = leadership.leader_epoch
        self.partition_epoch = leadership.partition_epoch
        self.replicas = leadership.replicas
        self.isr = leadership.isr
        self.pending: IsrChange | None = None
        self.fenced: Collection[int] = frozenset()
        self.end_offset = end_offset
        self.epoch_start_offset = end_offset
        self.high_watermark = high_watermark
        # Members of the ISR had caught up with the leader before; they get a new start.
        self.followers = {
            each: FollowerProgress(caught_up_us=now_us) if each in self.isr else FollowerProgress()
            for each in self.replicas
            if each != broker_id
        }
        self.advance(now_us)

    # -- the ISR

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """All that may be in the ISR while a change is under way (KIP-497)."""
        if self.pending is None:
            return self.isr
        return (*self.isr, *(each for each in self.pending.isr if each not in self.isr))

    @property
    def min_insync(self) -> int:
        """min.insync.replicas, which cannot be more than there are."""
        return min(self.terms.min_insync, len(self.replicas))

    def leaving(self, now_us: int) -> tuple[int, ...]:
        """Members of the ISR that do not keep up; none while a change is under way."""
        if self.pending is not None:
            return ()
        return tuple(
            each
            for each in self.isr
            if each != self.broker_id
            and not self.followers[each].keeps_up(self.terms, self.end_offset, now_us)
        )

    def may_join(self, follower: int) -> bool:
        """Whether a follower that has just fetched is to be added (Partition.maybeExpandIsr)."""
        if self.pending is not None or follower in self.isr or follower in self.fenced:
            return False
        end_offset = self.followers[follower].end_offset
        return end_offset >= self.high_watermark and end_offset >= self.epoch_start_offset

    def propose(self, isr: Sequence[int]) -> IsrChange:
        """Note that the controller is asked for another ISR; `settle` ends it."""
        self.pending = IsrChange(tuple(isr), self.leader_epoch, self.partition_epoch)
        return self.pending

    def settle(self, leadership: Leadership | None, now_us: int) -> None:
        """Take what the controller made of it; None: it was refused, and nothing has changed.

        What is older than what is known says nothing.
        """
        self.pending = None
        if leadership is not None and leadership.partition_epoch > self.partition_epoch:
            self.partition_epoch = leadership.partition_epoch
            self.isr = leadership.isr
        self.advance(now_us)

    # -- offsets

    def appended(self, end_offset: int, now_us: int) -> bool:
        """Note that the log has grown; returns whether the high watermark moved."""
        self.end_offset = end_offset
        return self.advance(now_us)

    def fetched(self, follower: int, fetch_offset: int, now_us: int) -> bool:
        """Note a fetch of a follower; returns whether the high watermark moved."""
        self.followers[follower].fetched(fetch_offset, self.end_offset, now_us)
        return self.advance(now_us)

    def advance(self, now_us: int) -> bool:
        """REPL-3; returns whether the high watermark moved."""
        candidate, high_watermark = self.end_offset, self.high_watermark
        members = self.maximal_isr
        for broker, progress in self.followers.items():
            if progress.end_offset < candidate and (
                broker in members or self._will_join(broker, progress, now_us)
            ):
                candidate = progress.end_offset
                if candidate <= high_watermark:
                    return False  # as mostly: the first one to fetch does not move it
        if candidate <= high_watermark:
            return False
        if self.terms.has_strict_minimum and len(self.isr) < self.min_insync:
            return False
        self.high_watermark = candidate
        return True

    def _will_join(self, broker: int, progress: FollowerProgress, now_us: int) -> bool:
        """Else a follower that keeps up could stay below a high watermark that runs ahead."""
        keeps_up = progress.keeps_up(self.terms, self.end_offset, now_us)
        return keeps_up and broker not in self.fenced

    # -- producers

    def refusal(self, acks: int) -> str | None:
        """The error for a batch before it is appended; None: it is appended."""
        if acks == ACKS_ALL and len(self.isr) < self.min_insync:
            return NOT_ENOUGH_REPLICAS
        return None

    def answer(self, next_offset: int) -> str | None:
        """What acks=all is answered for a batch that ends below an offset; "": it is acknowledged.

        None: it is to wait. The high watermark itself waits for min.insync.replicas since Kafka 3.7
        (KAFKA-15583): the error is left to an ISR that shrank right after it had moved.
        """
        if self.high_watermark < next_offset:
            return None
        is_enough = len(self.maximal_isr) >= self.min_insync
        return "" if is_enough else NOT_ENOUGH_REPLICAS_AFTER_APPEND
