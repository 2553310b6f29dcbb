"""Brokers of a real cluster die, advise looks at what they leave, and they are started as it says.

What is recorded of all orders is in `tests/recovery/elections/test_deaths.py`; here one death of
this very run is looked at, with the best order and with another one.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.deaths_judge import advice_of, judge, shown_first
from tests.drawn import drawn
from tests.kafka.cluster import Cluster
from tests.kafka.deaths import (
    AT_ONCE,
    DEATHS,
    ONE,
    REPLICAS,
    Order,
    begin,
    bring_back,
    die,
    observe,
    start_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]


def best_order(eoctl: Callable[..., Outcome], root: Path) -> tuple[Order, Order]:
    """The order that advise recommends, and another one that it has tried."""
    done = eoctl("start-order", *sorted(root.glob("node-*")), "--output", "jsonl")
    assert done.status in {0, 1}, done.errors
    rows = [row for row in map(json.loads, done.text.splitlines()) if row["kind"] == "order"]
    best, *others = (Order(tuple(map(int, row["order"].split(",")))) for row in rows)
    assert [row["is_recommended"] for row in rows] == [True] + [False] * len(others)
    return best, drawn(others, 1)[0]


@pytest.mark.share(1)
@pytest.mark.parametrize("elr", [True, False], ids=["elr", "no-elr"])
@pytest.mark.parametrize("death", DEATHS)
def test_it_comes_as_advise_says(
    death: str, eoctl: Callable[..., Outcome], tmp_path: Path, *, elr: bool
) -> None:
    dead = die(tmp_path / "cluster", death, elr=elr)
    try:
        if death == ONE:  # broker 1 and the controller run, over the directories that are given
            best, _ = best_order(eoctl, dead.root)
            assert sorted(best.brokers) == [0, 2]
            kept = dead.copy(tmp_path / "kept")
            judge(kept, death, best, start_in(dead, best))
            return
        kept = dead.copy(tmp_path / "kept")
        best, other = best_order(eoctl, kept)
        assert sorted(best.brokers) == list(REPLICAS)
        seen = bring_back(dead.copy(tmp_path / "best"), best)
        judge(kept, death, best, seen)
        shown_first(kept, death, seen)
        judge(kept, death, other, bring_back(dead.copy(tmp_path / "other"), other))
    finally:
        dead.close()


def test_brokers_that_are_controllers_too(tmp_path: Path) -> None:
    """Nobody is elected, and nothing served, before most of them are up."""
    cluster = begin(Cluster(tmp_path / "cluster", combined=True))
    cluster.close()  # 0 and 1 at once: without most controllers nobody notices any more
    kept = cluster.copy(tmp_path / "kept")
    advice = advice_of(kept, AT_ONCE)
    assert (advice.plan.needed, advice.unseen) == (2, ())
    order = Order(advice.orders[0].order)
    assert order.brokers == (0, 1, 2)
    again = Cluster(cluster.copy(tmp_path / "again"), combined=True)
    try:
        again.start(0, wait=False)
        time.sleep(8)
        assert again.running == [0]
        assert not [line for line in again.nodes[0].log_lines() if "Kafka Server started" in line]
        again.start(1, wait=False)
        again.await_ready(0, 1)
        seen = list(observe(again, 2))
        again.start(2)
        seen += observe(again, 3)
    finally:
        again.close()
    judge(kept, AT_ONCE, order, seen)
