"""The rules of Kafka 4.3.1 for leader elections, ISR and ELR, as pure functions.

A partition's state changes by events of its replicas. Each event gives the new ISR. One function
derives the rest (`_changed`, Kafka's PartitionChangeBuilder):

    ELR    It requires the feature eligible.leader.replicas.version. If the ISR has at least
           min.insync.replicas members, the ELR is empty. Else it has the brokers that left the ISR
           since, except brokers that stopped without a clean shutdown (KIP-966).
    leader It stays if it may lead. Else it is the first running broker in replica order that is in
           the ISR, or in the ELR while the ISR is empty. If ISR and ELR are empty, it is the last
           known leader. Else, only with unclean elections, it is the first running broker.
    ISR    After an election from the ELR, or an unclean election, it has only the leader. The last
           member stays in it when it leaves, unless there is an ELR.

Events are the end of a broker's session (`fenced`), its next registration (`registered`), its
unfencing (`unfenced`), and its return to the ISR (`joined`). An operator may also request an
election (`elected_uncleanly`).
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

NO_LEADER = -1
ELR_FEATURE = "eligible.leader.replicas.version"


class Terms(NamedTuple):
    """The settings of a partition.

    Attributes:
        min_insync: min.insync.replicas, never above the number of replicas.
        is_unclean: unclean.leader.election.enable.
        has_elr: the cluster keeps eligible leader replicas.
        emptied: brokers that come back with a new log dir instead of the log dir where the
            controller knows their replica (KIP-858). If a broker has not reported this when it is
            unfenced, it does not lead. After its report it may lead, without any records.
    """

    min_insync: int
    is_unclean: bool
    has_elr: bool
    emptied: frozenset[int] = frozenset()


class PartitionState(NamedTuple):
    """The controller's state of a partition.

    Attributes:
        last_known: the last leader, while there is none (lastKnownElr). Only with an ELR.
        is_unclean: the leader was elected without being in ISR or ELR.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    is_unclean: bool = False

    @property
    def has_leader(self) -> bool:
        """Return whether there is a leader."""
        return self.leader != NO_LEADER


def fenced(
    state: PartitionState, terms: Terms, broker: int, running: Collection[int]
) -> PartitionState:
    """Return the state after a broker's session ends. `running`: all other running brokers."""
    if broker not in state.isr:
        return state
    return _changed(state, terms, isr=_without(state.isr, broker), running={*running} - {broker})


def registered(
    state: PartitionState,
    terms: Terms,
    broker: int,
    running: Collection[int],
    *,
    is_clean: bool,
) -> PartitionState:
    """Return the state after a started broker has registered again.

    Args:
        state: before.
        terms: the settings.
        broker: the started broker.
        running: all other running brokers.
        is_clean: it was stopped cleanly in the registration that the controller knows.
    """
    if is_clean or not terms.has_elr:
        return fenced(state, terms, broker, running)
    others = {*running} - {broker}
    for members in (state.isr, state.elr):
        if broker in members:
            state = _changed(
                state, terms, isr=_without(state.isr, broker), running=others, lost=broker
            )
    return state


def unfenced(
    state: PartitionState, terms: Terms, broker: int, running: Collection[int]
) -> PartitionState:
    """Return the state after a broker is unfenced."""
    if state.has_leader:
        return state
    running = {*running, broker} - ({broker} & terms.emptied)
    return _changed(state, terms, isr=state.isr, running=running)


def joined(
    state: PartitionState, terms: Terms, broker: int, running: Collection[int]
) -> PartitionState:
    """Return the state after a follower has caught up with its leader."""
    if not state.has_leader or broker in state.isr or broker not in state.replicas:
        return state
    members = {*state.isr, broker}
    isr = tuple(each for each in state.replicas if each in members)
    return _changed(state, terms, isr=isr, running={*running, broker})


def altered(
    state: PartitionState, terms: Terms, isr: Collection[int], running: Collection[int]
) -> PartitionState:
    """Return the state after the leader has requested another ISR, which is not empty."""
    ordered = tuple(each for each in state.replicas if each in isr)
    return _changed(state, terms, isr=ordered, running=running)


def elected_uncleanly(
    state: PartitionState, terms: Terms, running: Collection[int]
) -> PartitionState:
    """Return the state after an unclean election was requested (kafka-leader-election)."""
    if state.has_leader:
        return state
    return _changed(state, terms._replace(is_unclean=True), isr=state.isr, running=running)


def started(
    state: PartitionState,
    terms: Terms,
    broker: int,
    running: Collection[int],
    *,
    is_clean: bool,
) -> PartitionState:
    """Return the state after a broker was started, unfenced, and has caught up with any leader."""
    state = registered(state, terms, broker, running, is_clean=is_clean)
    state = unfenced(state, terms, broker, running)
    return joined(state, terms, broker, running)


def states_after_stop(
    state: PartitionState, terms: Terms, stopped: Iterable[int], running: Collection[int]
) -> frozenset[PartitionState]:
    """Return the possible states after the sessions of stopped brokers have ended.

    Sessions that end together are handled one by one, in an unknown order. The last member of the
    ISR stays there, or is the last known leader.
    """
    leaving = [each for each in stopped if each in state.isr]
    found = set()
    for order in permutations(leaving):
        after, others = state, {*running, *leaving}
        for broker in order:
            others.discard(broker)
            after = fenced(after, terms, broker, others)
        found.add(after)
    return frozenset(found)


def _changed(
    state: PartitionState,
    terms: Terms,
    *,
    isr: tuple[int, ...],
    running: Collection[int],
    lost: int | None = None,
) -> PartitionState:
    elr = tuple(_new_elr(state, terms, isr, lost))
    leader, is_unclean = _elect(state, terms, isr, elr, running)
    if leader == state.leader:
        is_unclean = state.is_unclean
    elif leader in elr:
        isr, elr = (leader,), _without(elr, leader)
    if leader != state.leader and is_unclean:
        isr, elr = (leader,), ()
    last_known = state.last_known if terms.has_elr else ()
    if terms.has_elr and leader != state.leader:
        last_known = last_known or (state.leader,) if leader == NO_LEADER else ()
    return state._replace(
        isr=isr if isr or terms.has_elr else state.isr,
        leader=leader,
        elr=elr,
        last_known=last_known,
        is_unclean=is_unclean and leader != NO_LEADER,
    )


def _new_elr(
    state: PartitionState, terms: Terms, isr: tuple[int, ...], lost: int | None
) -> Iterator[int]:
    if not terms.has_elr or len(isr) >= terms.min_insync:
        return
    for each in dict.fromkeys((*state.elr, *state.isr)):
        if each not in isr and each != lost:
            yield each


def _elect(
    state: PartitionState,
    terms: Terms,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    running: Collection[int],
) -> tuple[int, bool]:
    """Return the leader, and whether its election is unclean."""
    eligible = isr or elr
    for each in (state.leader, *state.replicas):
        if each in running and each in eligible:
            return each, False
    if terms.has_elr and not isr and not elr and len(state.last_known) == 1:
        known = state.last_known[0]
        if known in running:
            return known, True
    if terms.is_unclean:
        for each in state.replicas:
            if each in running:
                return each, True
    return NO_LEADER, False


def _without(members: tuple[int, ...], broker: int) -> tuple[int, ...]:
    return tuple(each for each in members if each != broker)
