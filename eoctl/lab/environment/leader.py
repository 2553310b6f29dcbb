"""A leader's knowledge of its followers and of committed records."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


# -- progress of a follower, which its leader learns from fetch requests (Kafka's `Replica`).
#
#   REPL-2: a follower has all records below its fetch offset.
#   REPL-5: a follower has caught up when it fetches from the leader's log end. It had caught up at
#     its previous fetch if it now fetches from the leader's end of that time. A busy leader is
#     always slightly ahead of followers that keep up.
#
# The time since the last catch-up decides, never the number of missing records. Releases before 0.9
# counted records (`IsrRule.MESSAGES`). Any burst above the limit drove followers that kept up out
# of the ISR, and back in right after.


UNKNOWN_OFFSET = -1
NEVER_US = -1 << 62


class IsrRule(StrEnum):
    """Rule by which a follower is out of sync."""

    TIME = "time"  # replica.lag.time.max.ms
    MESSAGES = "messages"  # and replica.lag.max.messages, before Kafka 0.9


class IsrTerms(NamedTuple):
    """Settings for the ISR of a partition.

    Attributes:
        min_insync: min.insync.replicas.
        lag_time_max_us: replica.lag.time.max.ms.
        rule: the rule for a follower out of sync.
        lag_max_messages: replica.lag.max.messages, with `IsrRule.MESSAGES`.
        has_strict_minimum: the high watermark waits for min.insync.replicas, since Kafka 3.7.
    """

    min_insync: int = 1
    lag_time_max_us: int = 30_000_000
    rule: IsrRule = IsrRule.TIME
    lag_max_messages: int = 4000
    has_strict_minimum: bool = True


class FollowerProgress:
    """Progress of one follower, in times of the leader's clock.

    Attributes:
        end_offset: its log end offset, -1 until it fetches in this leader epoch.
        caught_up_us: the last time it had all records of the leader.
    """

    __slots__ = ("_fetched_us", "_leader_end_offset", "caught_up_us", "end_offset")

    def __init__(self, *, caught_up_us: int = NEVER_US) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.caught_up_us = caught_up_us
        self._leader_end_offset = 0  # at the previous fetch
        self._fetched_us = NEVER_US

    def fetched(self, fetch_offset: int, leader_end_offset: int, now_us: int) -> None:
        """Record a fetch request (Replica.updateFetchStateOrThrow)."""
        if fetch_offset >= leader_end_offset:
            self.caught_up_us = max(self.caught_up_us, now_us)
        elif fetch_offset >= self._leader_end_offset:
            self.caught_up_us = max(self.caught_up_us, self._fetched_us)
        self.end_offset = fetch_offset
        self._leader_end_offset = max(leader_end_offset, self._leader_end_offset)
        self._fetched_us = now_us

    def keeps_up(self, terms: IsrTerms, leader_end_offset: int, now_us: int) -> bool:
        """Return whether the follower may stay in the ISR (ReplicaState.isCaughtUp)."""
        if self.end_offset == leader_end_offset:
            return True
        if terms.rule is IsrRule.MESSAGES:
            behind = leader_end_offset - max(self.end_offset, 0)
            if behind > terms.lag_max_messages:
                return False
        return now_us - self.caught_up_us <= terms.lag_time_max_us


# -- a partition from its leader's view: ISR, high watermark, and answers to producers.
#
#   REPL-3: the high watermark is the smallest log end offset of the ISR. While an ISR change is
#     pending, all its possible members count (KIP-497). Followers that have caught up and will join
#     count too. The high watermark never decreases, and waits while the ISR is smaller than
#     min.insync.replicas.
#   REPL-4: a follower takes the leader's high watermark, at most its own log end offset.
#   REPL-5: a follower leaves if it has not caught up for replica.lag.time.max.ms. A follower may
#     join if it has everything up to the high watermark, and reaches into this leader epoch. The
#     controller decides.
#   REPL-6: acks=all waits for the high watermark, and requires min.insync.replicas before and
#     after.
#
# Source: Partition, PartitionState, DelayedProduce of Kafka 4.3.1.


ACKS_ALL = -1
NOT_ENOUGH_REPLICAS = "NOT_ENOUGH_REPLICAS"
NOT_ENOUGH_REPLICAS_AFTER_APPEND = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


def follower_high_watermark(leader_high_watermark: int, end_offset: int) -> int:
    """Return a follower's high watermark after it appended a fetch response (REPL-4)."""
    return min(leader_high_watermark, end_offset)


class IsrChange(NamedTuple):
    """ISR that a leader requests from the controller (AlterPartition).

    It applies to one state of the partition. The controller refuses it in another leader epoch or
    partition epoch.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class Leadership(NamedTuple):
    """State of a partition, as the controller decided it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class LeaderReplica:
    """One partition, from the start of its leader's epoch.

    Args:
        broker_id: the leader.
        leadership: state of the partition.
        terms: ISR settings.
        end_offset: log end offset at the start of the epoch.
        high_watermark: as known then.
        now_us: the time.

    Attributes:
        isr: the ISR of the controller, as far as the leader knows.
        pending: ISR that the leader has requested.
        fenced: brokers that may not join, by the cluster's metadata.
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
        # ISR members had caught up with the previous leader, so their time starts again.
        self.followers = {
            each: FollowerProgress(caught_up_us=now_us) if each in self.isr else FollowerProgress()
            for each in self.replicas
            if each != broker_id
        }
        self.advance(now_us)

    # -- the ISR

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """All possible members of the ISR while a change is pending (KIP-497)."""
        if self.pending is None:
            return self.isr
        return (*self.isr, *(each for each in self.pending.isr if each not in self.isr))

    @property
    def min_insync(self) -> int:
        """min.insync.replicas, at most the number of replicas."""
        return min(self.terms.min_insync, len(self.replicas))

    def leaving(self, now_us: int) -> tuple[int, ...]:
        """Return ISR members that do not keep up, none while a change is pending."""
        if self.pending is not None:
            return ()
        return tuple(
            each
            for each in self.isr
            if each != self.broker_id
            and not self.followers[each].keeps_up(self.terms, self.end_offset, now_us)
        )

    def may_join(self, follower: int) -> bool:
        """Return whether to add a follower that has fetched (Partition.maybeExpandIsr)."""
        if self.pending is not None or follower in self.isr or follower in self.fenced:
            return False
        end_offset = self.followers[follower].end_offset
        return end_offset >= self.high_watermark and end_offset >= self.epoch_start_offset

    def propose(self, isr: Sequence[int]) -> IsrChange:
        """Record a request for another ISR. `settle` ends it."""
        self.pending = IsrChange(tuple(isr), self.leader_epoch, self.partition_epoch)
        return self.pending

    def settle(self, leadership: Leadership | None, now_us: int) -> None:
        """Apply the controller's answer. None is a refusal, which changes nothing.

        An answer with an older partition epoch changes nothing either.
        """
        self.pending = None
        if leadership is not None and leadership.partition_epoch > self.partition_epoch:
            self.partition_epoch = leadership.partition_epoch
            self.isr = leadership.isr
        self.advance(now_us)

    # -- offsets

    def appended(self, end_offset: int, now_us: int) -> bool:
        """Record that the log has grown, and return whether the high watermark moved."""
        self.end_offset = end_offset
        return self.advance(now_us)

    def fetched(self, follower: int, fetch_offset: int, now_us: int) -> bool:
        """Record a follower's fetch, and return whether the high watermark moved."""
        self.followers[follower].fetched(fetch_offset, self.end_offset, now_us)
        return self.advance(now_us)

    def advance(self, now_us: int) -> bool:
        """Advance the high watermark (REPL-3), and return whether it moved."""
        candidate, high_watermark = self.end_offset, self.high_watermark
        members = self.maximal_isr
        for broker, progress in self.followers.items():
            if progress.end_offset < candidate and (
                broker in members or self._will_join(broker, progress, now_us)
            ):
                candidate = progress.end_offset
                if candidate <= high_watermark:
                    return False  # usual case: the first fetch does not move it
        if candidate <= high_watermark:
            return False
        if self.terms.has_strict_minimum and len(self.isr) < self.min_insync:
            return False
        self.high_watermark = candidate
        return True

    def _will_join(self, broker: int, progress: FollowerProgress, now_us: int) -> bool:
        """Return whether a follower will join the ISR.

        Without this rule, a follower that keeps up could stay below a high watermark that runs
        ahead.
        """
        keeps_up = progress.keeps_up(self.terms, self.end_offset, now_us)
        return keeps_up and broker not in self.fenced

    # -- producers

    def refusal(self, acks: int) -> str | None:
        """Return the error for a batch before the append, None to append it."""
        if acks == ACKS_ALL and len(self.isr) < self.min_insync:
            return NOT_ENOUGH_REPLICAS
        return None

    def answer(self, next_offset: int) -> str | None:
        """Return the answer to acks=all for a batch that ends below an offset, "" if acknowledged.

        None means to wait. Since Kafka 3.7 the high watermark itself waits for min.insync.replicas
        (KAFKA-15583). The error remains for an ISR that shrank right after the high watermark
        moved.
        """
        if self.high_watermark < next_offset:
            return None
        is_enough = len(self.maximal_isr) >= self.min_insync
        return "" if is_enough else NOT_ENOUGH_REPLICAS_AFTER_APPEND
