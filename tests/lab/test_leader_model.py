"""The leader's state against a slow model, which keeps every event and derives all from them anew."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eoctl.lab.environment.leader import ACKS_ALL, IsrRule, IsrTerms, LeaderReplica, Leadership
from tests.drawn import examples

REPLICAS = (1, 2, 3, 4)
LEADER = 1
LAG_US = 100
FOLLOWERS = st.sampled_from(REPLICAS[1:])


class Fetch(NamedTuple):
    at_us: int
    offset: int
    leader_end: int


class SlowModel:
    """What is to hold, from all that ever happened; nothing but the high watermark is kept."""

    def __init__(self, isr: tuple[int, ...], terms: IsrTerms, high_watermark: int) -> None:
        self.terms = terms
        self.at_start = isr
        self.isr: set[int] = {*isr}
        self.asked: set[int] = set()
        self.fenced: set[int] = set()
        self.fetches: dict[int, list[Fetch]] = {each: [] for each in REPLICAS[1:]}
        self.end = self.epoch_start = high_watermark
        self.high_watermark = high_watermark

    def end_of(self, follower: int) -> int:
        return self.fetches[follower][-1].offset if self.fetches[follower] else -1

    def caught_up(self, follower: int) -> int | None:
        """The last time at which it had, or was about to ask on from, all that the leader had."""
        fetches = self.fetches[follower]
        times = [0] if follower in self.at_start else []
        for place, each in enumerate(fetches):
            later = fetches[place + 1 : place + 2]
            if each.offset >= each.leader_end or any(
                next_one.offset >= each.leader_end for next_one in later
            ):
                times.append(each.at_us)
        return max(times, default=None)

    def keeps_up(self, follower: int, now: int) -> bool:
        if self.end_of(follower) == self.end:
            return True
        if self.terms.rule is IsrRule.MESSAGES:
            lacking = self.end - max(self.end_of(follower), 0)
            if lacking > self.terms.lag_max_messages:
                return False
        caught_up = self.caught_up(follower)
        return caught_up is not None and now - caught_up <= LAG_US

    def advance(self, now: int) -> None:
        if self.terms.has_strict_minimum and len(self.isr) < self.min_insync:
            return
        waited_for = [
            each
            for each in REPLICAS[1:]
            if each in self.isr | self.asked
            or (self.keeps_up(each, now) and each not in self.fenced)
        ]
        ends = [self.end, *map(self.end_of, waited_for)]
        self.high_watermark = max(self.high_watermark, min(ends))

    @property
    def min_insync(self) -> int:
        return min(self.terms.min_insync, len(REPLICAS))


class Partition(RuleBasedStateMachine):
    """Both are given the same events."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.partition_epoch = 0

    @precondition(lambda self: not hasattr(self, "model"))
    @rule(
        isr=st.sets(FOLLOWERS),
        min_insync=st.integers(1, 5),
        is_strict=st.booleans(),
        by=st.sampled_from(IsrRule),
        start=st.integers(0, 3),
    )
    def begin(
        self, isr: set[int], min_insync: int, is_strict: bool, by: IsrRule, start: int
    ) -> None:
        terms = IsrTerms(min_insync, LAG_US, by, 4, is_strict)
        members = (LEADER, *sorted(isr))
        self.model = SlowModel(members, terms, start)
        leadership = Leadership(REPLICAS, members, 0, 0)
        self.real = LeaderReplica(
            LEADER, leadership, terms, end_offset=start, high_watermark=start, now_us=0
        )
        self.model.advance(0)

    def begun(self) -> bool:
        return hasattr(self, "model")

    @precondition(begun)
    @rule(wait=st.integers(0, LAG_US))
    def wait(self, wait: int) -> None:
        self.now += wait

    @precondition(begun)
    @rule(count=st.integers(1, 9))
    def append(self, count: int) -> None:
        self.model.end += count
        self.model.advance(self.now)
        self.real.appended(self.model.end, self.now)

    @precondition(begun)
    @rule(follower=FOLLOWERS, offset=st.integers(0, 200), is_at_end=st.booleans())
    def fetch(self, follower: int, offset: int, is_at_end: bool) -> None:
        model = self.model
        offset = model.end if is_at_end else min(offset, model.end)
        model.fetches[follower].append(Fetch(self.now, offset, model.end))
        model.advance(self.now)
        self.real.fetched(follower, offset, self.now)

    @precondition(lambda self: self.begun() and not self.model.asked)
    @rule(change=FOLLOWERS)
    def propose(self, change: int) -> None:
        self.model.asked = self.model.isr ^ {change}
        self.real.propose(sorted(self.model.asked))

    @precondition(lambda self: self.begun() and self.model.asked)
    @rule(is_taken=st.booleans())
    def settle(self, is_taken: bool) -> None:
        model = self.model
        leadership = None
        if is_taken:
            model.isr = model.asked
            self.partition_epoch += 1
            leadership = Leadership(REPLICAS, tuple(sorted(model.isr)), 0, self.partition_epoch)
        model.asked = set()
        model.advance(self.now)
        self.real.settle(leadership, self.now)

    @precondition(begun)
    @rule(follower=FOLLOWERS)
    def fence(self, follower: int) -> None:
        self.model.fenced ^= {follower}
        self.real.fenced = frozenset(self.model.fenced)

    @invariant()
    def all_agrees(self) -> None:
        if not self.begun():
            return
        model, real = self.model, self.real
        assert real.high_watermark == model.high_watermark
        assert {*real.isr} == model.isr
        assert {*real.maximal_isr} == model.isr | model.asked
        may_ask = not model.asked
        assert {*real.leaving(self.now)} == {
            each for each in model.isr - {LEADER} if may_ask and not model.keeps_up(each, self.now)
        }
        for each in REPLICAS[1:]:
            end = model.end_of(each)
            reaches = end >= model.high_watermark and end >= model.epoch_start
            may_join = may_ask and reaches and each not in model.isr | model.fenced
            assert real.may_join(each) == may_join
        assert bool(real.refusal(ACKS_ALL)) == (len(model.isr) < model.min_insync)
        assert real.answer(model.high_watermark + 1) is None
        assert bool(real.answer(model.high_watermark)) == (
            len(model.isr | model.asked) < model.min_insync
        )


TestPartition = Partition.TestCase
TestPartition.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
