"""What `advise` says of dead brokers, held against what real ones did (`tests/kafka/deaths.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.elections.advice import advise
from recovery.elections.nodes import find_dead_cluster
from recovery.elections.orders import NEVER, outcomes
from tests.kafka.deaths import ONE, TOPICS, Order, Seen
from tests.read_log import read_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from recovery.elections.advice import Advice, Advised

# A topic that needs one in the ISR acknowledges all that it takes; others nothing to acks=1 that
# two have not got.
ACKNOWLEDGED = {"one": "zaxb", "two": "za", "two-unclean": "za"}


class Scenario(NamedTuple):
    """How an order ended for a topic; numbers of starts, `NEVER` for what did not come."""

    leader: int
    step: int
    write_step: int


def advice_of(root: Path, death: str, order: Order | None = None) -> Advice:
    """Ask for the nodes whose log dirs are in `root`; who is not in the order does not come back."""
    log_dirs = [str(each) for each in sorted(root.glob("node-*"))]
    running = (1,) if death == ONE else ()
    up = {0, 1, 2} if order is None else {*order.brokers, *running}
    return advise(
        find_dead_cluster(log_dirs, None),
        running=running,
        gone={0, 1, 2} - up,
        is_wanted=TOPICS.__contains__,
    )


def expected(each: Advised, advice: Advice, order: Order) -> set[Scenario]:
    """All courses that an order may take."""
    wanted = None if order.asked_after is None else order.brokers[order.asked_after - 1]
    setting = advice.plan.setting
    together = setting.together(order.brokers)

    def at(step: int) -> int:
        return step if step in (0, NEVER) else max(step, together)

    simulated = outcomes(each.case._replace(wanted=wanted), order.brokers, setting, together)
    return {Scenario(found.leader, at(found.step), at(found.write_step)) for found in simulated}


def scenario_of(seen: Iterable[Seen], *, is_led: bool) -> Scenario:
    """The course that it took. `is_led`: before any start; then `x` was accepted, or refused."""
    scenario = Scenario(-1, NEVER, NEVER)
    for each in seen:
        if each.leader >= 0 and scenario.leader < 0:
            scenario = scenario._replace(leader=each.leader, step=0 if is_led else each.step)
        if is_led and "x0" in (each.values or ()):
            scenario = scenario._replace(write_step=0)
        elif each.refusal == "":
            scenario = scenario._replace(write_step=min(scenario.write_step, each.step))
    return scenario


def values_in(root: Path, broker: int, topic: str) -> list[str]:
    """What a copy has."""
    found = read_log(root / f"node-{broker}" / f"{topic}-0").records
    return [(each.value or b"").decode() for each in found]


def lost_values(root: Path, seen: Sequence[Seen]) -> list[str]:
    """What the copy that lost most had, and nobody has at the end."""
    topic, kept = seen[-1].topic, {*(seen[-1].values or ())}
    copies = [values_in(root, broker, topic) for broker in (0, 1, 2)]
    return max(([each for each in copy if each not in kept] for copy in copies), key=len)


def judge(root: Path, death: str, order: Order, answers: Sequence[Seen]) -> None:
    """Let each topic end as advise said that it may, and lose what it said."""
    advice = advice_of(root, death, order)
    assert len(advice.partitions) == len(TOPICS)
    for each in advice.partitions:
        topic = each.key.topic
        seen = [found for found in answers if found.topic == topic]
        scenarios = expected(each, advice, order)
        scenario = scenario_of(seen, is_led=death == ONE)
        assert scenario in scenarios, (death, order, topic, scenario, scenarios)
        if scenario.leader < 0:
            continue
        lost, price = lost_values(root, seen), each.costs[scenario.leader].price
        assert not price.is_unknown
        assert price.offsets_count == len(lost), (death, order, topic, lost)
        acknowledged = [value for value in lost if value[0] in ACKNOWLEDGED[topic]]
        assert price.acknowledged_count == len(acknowledged), (death, order, topic, lost)


def shown_first(root: Path, death: str, answers: Sequence[Seen]) -> None:
    """Of the best order: consumers get at first what advise does not call hidden."""
    advice = advice_of(root, death)
    for each in advice.partitions:
        led = [row for row in answers if row.topic == each.key.topic and row.leader >= 0]
        hidden = each.hidden_offsets_count
        assert hidden is not None
        everything = values_in(root, led[0].leader, each.key.topic)
        assert list(led[0].values or ()) == everything[: len(everything) - hidden]
