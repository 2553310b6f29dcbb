"""Orders of starting brokers: the leaders, the time of their elections, and the losses.

An order is simulated for every possible state of a partition. Its worst outcome counts.
A started broker registers, is unfenced, and catches up before the next broker is started. If
brokers are controllers, too, there are no elections until a majority of these is up. It is then
unknown which of the first brokers is unfenced first.

If all orders need an unclean election, the operator requests it as soon as the broker with the
least loss runs. The elected broker is the first running broker in the order of the replicas.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

from recovery.elections.rules import NO_LEADER, elected_uncleanly, joined, started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.elections.rules import PartitionState, Terms

MAX_PERMUTED = 5  # the most brokers for which all orders are tried
NEVER = 1 << 30  # a step that never happens


class Cost(NamedTuple):
    """The losses of the other copies when a copy leads. A greater price is worse.

    Attributes:
        is_unknown: the content of the leader, or of another copy, is unknown.
        acknowledged_count: offsets that were certainly acknowledged.
        offsets_count: all offsets.
    """

    is_unknown: bool = False
    acknowledged_count: int = 0
    offsets_count: int = 0


class Case(NamedTuple):
    """The inputs that decide the outcomes of orders for a partition. Many partitions share a case.

    Attributes:
        states: possible states after the sessions of the stopped brokers have ended.
        prices: by leading broker. The price of a missing broker is unknown.
        wanted: the broker to elect uncleanly, if none may lead otherwise. None: there is none.
        emptied: brokers with replaced disks. They are in `terms` only before they report it.
    """

    states: frozenset[PartitionState]
    terms: Terms
    prices: tuple[tuple[int, Cost], ...]
    wanted: int | None
    emptied: frozenset[int] = frozenset()


class Surroundings(NamedTuple):
    """The conditions that all partitions share.

    Attributes:
        clean: brokers that stopped cleanly.
        running: brokers that run already.
        voters: stopped brokers that are controllers, too.
        needed: number of voters to start before any election.
    """

    clean: frozenset[int] = frozenset()
    running: frozenset[int] = frozenset()
    voters: frozenset[int] = frozenset()
    needed: int = 0

    def together(self, order: Sequence[int]) -> int:
        """Return how many first brokers are unfenced together by the first controller.

        If no controller is ever elected, the number is greater than the number of brokers.
        """
        if not self.needed:
            return 1
        places = [place for place, each in enumerate(order, start=1) if each in self.voters]
        return places[self.needed - 1] if len(places) >= self.needed else len(order) + 1


class Outcome(NamedTuple):
    """The end of an order for a partition.

    Attributes:
        price: of the first leader.
        leader: the first leader, or -1 if there is none after all starts.
        step: number of starts before its election. 0: it leads already.
        write_step: number of starts before acks=all is accepted.
        is_unclean: it was not in ISR or ELR.
        is_requested: it leads because the operator requested an unclean election.
    """

    price: Cost
    leader: int
    step: int
    write_step: int
    is_unclean: bool
    is_requested: bool

    @property
    def is_led(self) -> bool:
        """Return whether there is a leader at the end."""
        return self.leader != NO_LEADER

    @property
    def weight(self) -> tuple[Cost, bool, bool, bool, int, int]:
        """The sort key of outcomes. A worse outcome has a greater key."""
        return (
            self.price,
            not self.is_led,
            self.is_requested,
            self.is_unclean,
            self.step,
            self.write_step,
        )


def outcomes(
    case: Case, order: Sequence[int], setting: Surroundings, together: int
) -> Iterator[Outcome]:
    """Simulate an order in all possible ways. Any of the first `together` may be unfenced first.

    If `together` is greater than the number of brokers, no broker is unfenced.
    """
    if together > max(len(order), 1):
        order = ()
    # A broker with an empty disk may report it before or after it is unfenced.
    reported = case._replace(terms=case.terms._replace(emptied=frozenset()))
    for each in (case, reported) if case.terms.emptied else (case,):
        for state in each.states:
            for first in permutations(order[:together]):
                yield _outcome(each, state, (*first, *order[together:]), setting)


def worst_outcome(
    case: Case, order: Sequence[int], setting: Surroundings, together: int
) -> Outcome:
    """Simulate an order in all possible ways, and return the worst outcome."""
    return max(outcomes(case, order, setting, together), key=lambda each: each.weight)


def _outcome(
    case: Case, state: PartitionState, order: Sequence[int], setting: Surroundings
) -> Outcome:
    simulated = _simulate(case, state, order, setting, wanted=None)
    if case.wanted is None:
        return simulated
    if not simulated.is_led:
        return _simulate(case, state, order, setting, wanted=case.wanted)
    if simulated.leader in case.emptied:  # it has no records, so another broker may be better
        asked = _simulate(case, state, order, setting, wanted=case.wanted)
        return min(simulated, asked, key=lambda each: each.price)
    return simulated


def _simulate(
    case: Case,
    state: PartitionState,
    order: Sequence[int],
    setting: Surroundings,
    *,
    wanted: int | None,
) -> Outcome:
    terms, running = case.terms, set(setting.running)
    leader, step = state.leader, 0 if state.has_leader else NEVER
    is_unclean, is_requested = False, False
    if not state.has_leader and wanted in running:
        state = elected_uncleanly(state, terms, running)
        leader, step, is_unclean, is_requested = state.leader, 0, state.is_unclean, True
        for each in running:
            state = joined(state, terms, each, running)
    write_step = 0 if _is_writable(state, terms) else NEVER
    for number, broker in enumerate(order, start=1):
        state = started(state, terms, broker, running, is_clean=broker in setting.clean)
        running.add(broker)
        if not state.has_leader and broker == wanted:
            state = elected_uncleanly(state, terms, running)
            is_requested = state.has_leader
        if leader == NO_LEADER and state.has_leader:
            leader, step, is_unclean = state.leader, number, state.is_unclean
            for each in running:  # brokers that waited for a leader
                state = joined(state, terms, each, running)
        if write_step == NEVER and _is_writable(state, terms):
            write_step = number
    price = Cost()
    if leader != NO_LEADER:
        price = dict(case.prices).get(leader, Cost(is_unknown=True))
    return Outcome(
        price=price,
        leader=leader,
        step=step,
        write_step=write_step,
        is_unclean=is_unclean,
        is_requested=is_requested,
    )


def _is_writable(state: PartitionState, terms: Terms) -> bool:
    return state.has_leader and len(state.isr) >= terms.min_insync


# --- all orders -----------------------------------------------------------------------------------


class OrderSum(NamedTuple):
    """The end of an order, over all partitions.

    Attributes:
        order: brokers.
        lost_acknowledged_offsets_count: a lower limit.
        lost_partitions_count: partitions that lose offsets.
        unclean_partitions_count: partitions with an unclean election, requested or not.
        asked_partitions_count: of these, partitions for which the operator must request it.
        leaderless_partitions_count: partitions without a leader at the end.
        unknown_partitions_count: partitions with unknown losses.
        waits_count: total of the starts for which partitions wait in vain.
        first_partitions_count: partitions with a leader once the first broker is up.
    """

    order: tuple[int, ...]
    lost_acknowledged_offsets_count: int
    lost_offsets_count: int
    lost_partitions_count: int
    unclean_partitions_count: int
    asked_partitions_count: int
    leaderless_partitions_count: int
    unknown_partitions_count: int
    waits_count: int
    first_partitions_count: int

    @property
    def weight(self) -> tuple[int | tuple[int, ...], ...]:
        """The sort key of orders. The least is the best, and the lowest ids win between equals."""
        return (
            self.lost_acknowledged_offsets_count,
            self.unknown_partitions_count,
            self.leaderless_partitions_count,
            self.unclean_partitions_count,
            self.lost_offsets_count,
            self.waits_count,
            self.order,
        )


class Orders:
    """The simulation of orders on the partitions of a cluster.

    Partitions with a common case are simulated once, and only with the brokers of their replicas.
    """

    def __init__(self, cases: Iterable[Case], setting: Surroundings) -> None:
        self._setting = setting
        self._counts: dict[Case, int] = {}
        for each in cases:
            self._counts[each] = self._counts.get(each, 0) + 1
        self._replicas = {
            case: frozenset(each for state in case.states for each in state.replicas)
            for case in self._counts
        }
        self._simulated: dict[tuple[Case, tuple[int, ...], int], Outcome] = {}

    def outcome(self, case: Case, order: Sequence[int]) -> Outcome:
        """Return the worst outcome of an order for a partition."""
        replicas = self._replicas[case]
        own = tuple(each for each in order if each in replicas)
        together = self._setting.together(order)
        is_up = together <= max(len(order), 1)
        own_together = sum(each in replicas for each in order[:together]) if is_up else NEVER
        key = case, own, own_together
        found = self._simulated.get(key)
        if found is None:
            found = worst_outcome(case, own, self._setting, own_together)
            self._simulated[key] = found

        def step(own_step: int) -> int:
            if own_step in (0, NEVER):
                return own_step
            return max(order.index(own[own_step - 1]) + 1, together)

        return found._replace(step=step(found.step), write_step=step(found.write_step))

    def sum_of(self, order: Sequence[int]) -> OrderSum:
        """Simulate an order on all partitions."""
        found = [(self.outcome(case, order), times) for case, times in self._counts.items()]
        never = len(order) + 1
        return OrderSum(
            order=tuple(order),
            lost_acknowledged_offsets_count=sum(
                each.price.acknowledged_count * times for each, times in found
            ),
            lost_offsets_count=sum(each.price.offsets_count * times for each, times in found),
            lost_partitions_count=sum(times for each, times in found if each.price.offsets_count),
            unclean_partitions_count=sum(times for each, times in found if each.is_unclean),
            asked_partitions_count=sum(times for each, times in found if each.is_requested),
            leaderless_partitions_count=sum(times for each, times in found if not each.is_led),
            unknown_partitions_count=sum(times for each, times in found if each.price.is_unknown),
            waits_count=sum(max(min(each.step, never) - 1, 0) * times for each, times in found),
            first_partitions_count=sum(
                times for each, times in found if each.step <= self._setting.together(order)
            ),
        )

    def all_of(self, brokers: Sequence[int]) -> list[OrderSum]:
        """Try all orders of few brokers, else one order per first broker. Return the best first."""
        ids = sorted(brokers)
        if len(ids) <= MAX_PERMUTED:
            tried = [self.sum_of(each) for each in permutations(ids)]
        else:
            best = self._greedy(ids)
            firsts = ((each, *(other for other in best if other != each)) for each in ids)
            tried = [self.sum_of(each) for each in {best, *firsts}]
        return sorted(tried, key=lambda each: each.weight)

    def _greedy(self, brokers: Sequence[int]) -> tuple[int, ...]:
        """Return an order in which each next broker gives the best sum so far."""
        order: tuple[int, ...] = ()
        while len(order) < len(brokers):
            left = [each for each in brokers if each not in order]
            order = min(
                ((*order, each) for each in left), key=lambda each: self.sum_of(each).weight
            )
        return order
