"""Elections against a model that knows what no controller does: which replica has all that counts.

REPL-8, REPL-9, REPL-11: brokers die with and without their disks, are let in, join and leave the
ISR, in any order. The model keeps one set: the replicas that have every committed record. A leader
that runs is one of them, unless elections are unclean, or a disk forgets without ELR.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from recovery.elections import rules
from recovery.elections.rules import NO_LEADER, PartitionState, Terms
from tests.drawn import examples

REPLICAS = (0, 1, 2)
BROKERS = st.sampled_from(REPLICAS)


class Elections(RuleBasedStateMachine):
    """A controller's state of a partition, and what is so.

    Attributes:
        whole: replicas that have all that was committed.
        up: brokers that run, and that the controller knows since their last start.
        let_in: brokers that run as far as the controller knows.
        is_safe: nothing has happened that may lose what was committed.
    """

    @initialize(min_insync=st.integers(1, 3), has_elr=st.booleans(), is_unclean=st.booleans())
    def begin(self, min_insync: int, has_elr: bool, is_unclean: bool) -> None:
        self.terms = Terms(min_insync, is_unclean, has_elr)
        self.state = PartitionState(REPLICAS, REPLICAS, 0)
        self.whole = {*REPLICAS}
        self.up, self.let_in = {*REPLICAS}, {*REPLICAS}
        self.stopped_cleanly: dict[int, bool] = {}
        self.is_safe = True

    def take(self, state: PartitionState) -> None:
        """Take a new state; an election of who is neither in ISR nor ELR ends the guarantee."""
        before = self.state
        if state.leader not in {before.leader, NO_LEADER, *before.isr, *before.elr}:
            assert state.is_unclean
        if state.leader != before.leader and state.is_unclean:
            is_last_known = self.terms.has_elr and before.last_known == (state.leader,)
            assert is_last_known or self.terms.is_unclean or self.asked
            self.is_safe = False
        self.state = state

    asked = False

    @precondition(lambda self: self.state.leader in self.up)
    @rule()
    def commit(self) -> None:
        """The high watermark moves: all of the ISR have it, and nobody else."""
        if len(self.state.isr) >= self.terms.min_insync and {*self.state.isr} <= self.up:
            self.whole &= {*self.state.isr}

    @precondition(lambda self: self.up)
    @rule(broker=BROKERS, forgets=st.booleans(), is_clean=st.booleans())
    def die(self, broker: int, forgets: bool, is_clean: bool) -> None:
        if broker not in self.up:
            return
        self.up.discard(broker)
        self.stopped_cleanly[broker] = is_clean and not forgets
        if forgets:
            self.whole.discard(broker)
            # Without ELR nobody asks how a broker has died; with min.insync.replicas=1 the ISR
            # may be one whose disk forgets.
            self.is_safe &= self.terms.has_elr
        if is_clean and not forgets:
            self.expire(broker)

    @rule(broker=BROKERS)
    def expire(self, broker: int) -> None:
        """The session of a broker that does not run ends."""
        if broker in self.let_in and broker not in self.up:
            self.let_in.discard(broker)
            self.take(rules.fenced(self.state, self.terms, broker, self.let_in))

    @rule(broker=BROKERS)
    def start(self, broker: int) -> None:
        if broker in self.up:
            return
        self.let_in.discard(broker)
        is_clean = self.stopped_cleanly[broker]
        self.take(rules.registered(self.state, self.terms, broker, self.let_in, is_clean=is_clean))
        self.up.add(broker)
        self.take(rules.unfenced(self.state, self.terms, broker, self.let_in))
        self.let_in.add(broker)

    @precondition(lambda self: self.state.leader in self.up)
    @rule(broker=BROKERS)
    def join(self, broker: int) -> None:
        """A follower has all that its leader has, and its leader asks for it."""
        state = self.state
        if broker in self.up and broker not in state.isr:
            if state.leader in self.whole:
                self.whole.add(broker)
            self.take(rules.altered(state, self.terms, {*state.isr, broker}, self.let_in))

    @precondition(lambda self: self.state.leader in self.up)
    @rule(broker=BROKERS)
    def lag(self, broker: int) -> None:
        """A follower does not keep up."""
        state = self.state
        if broker in state.isr and broker != state.leader:
            self.take(rules.altered(state, self.terms, {*state.isr} - {broker}, self.let_in))

    @rule()
    def ask(self) -> None:
        """Somebody asks for an unclean election."""
        self.asked = True
        self.take(rules.elected_uncleanly(self.state, self.terms, self.let_in))
        self.asked = False

    @invariant()
    def all_holds(self) -> None:
        state, terms = self.state, self.terms
        assert {*state.isr} <= {*REPLICAS}
        assert not {*state.isr} & {*state.elr}
        if state.has_leader:
            assert state.leader in state.isr
            assert not state.last_known
        if not terms.has_elr or len(state.isr) >= terms.min_insync:
            assert not state.elr
        if not terms.has_elr:
            assert state.isr
        if self.is_safe and state.leader in self.up:
            assert state.leader in self.whole


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
