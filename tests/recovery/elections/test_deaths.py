"""Dead clusters of real brokers: for each order of starting, advise says what real ones did."""

from __future__ import annotations

import json
import shutil
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from recovery.elections.advice import advise
from recovery.elections.nodes import find_dead_cluster
from recovery.elections.orders import NEVER
from tests.deaths_judge import advice_of, judge, lost_values, scenario_of, shown_first
from tests.kafka.deaths import AT_ONCE, DEATHS, ONE, REPLICAS, Order, Seen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ELR = ("elr", "no-elr")
METADATA = "__cluster_metadata-0"
Answers = list[tuple[Order, list[Seen]]]


def answers_in(root: Path) -> Answers:
    found = []
    for line in (root / "answers.jsonl").read_text().splitlines():
        brokers, asked_after, rows = json.loads(line)
        seen = [Seen(row[0], row[1], row[2], tuple(row[3]), row[4], row[5]) for row in rows]
        found.append((Order(tuple(brokers), asked_after), seen))
    return found


@pytest.fixture(params=[(elr, death) for elr in ELR for death in DEATHS], ids="-".join)
def dead(
    request: pytest.FixtureRequest, golden: Callable[[str], Path]
) -> tuple[Path, str, Answers]:
    elr, death = request.param
    root = golden("kafka-4.3.1-deaths") / elr / death.replace(" ", "-")
    return root, death, answers_in(root)


@pytest.mark.share(3)
def test_every_order_ends_as_it_was_said(dead: tuple[Path, str, Answers]) -> None:
    root, death, answers = dead
    assert len(answers) >= (2 if death == ONE else 6)
    for order, seen in answers:
        judge(root, death, order, seen)


def test_no_order_was_better_than_the_best(dead: tuple[Path, str, Answers]) -> None:
    """By what was lost, by who was left without a leader, by how long partitions waited."""
    root, death, answers = dead
    everybody = {*REPLICAS} - ({1} if death == ONE else set())
    whole = {
        order.brokers: seen
        for order, seen in answers
        if {*order.brokers} == everybody and order.asked_after is None
    }

    def weight(seen: list[Seen]) -> tuple[int, ...]:
        topics = [
            list(rows)
            for _, rows in groupby(sorted(seen, key=lambda row: row.topic), lambda row: row.topic)
        ]
        scenarios = [scenario_of(rows, is_led=death == ONE) for rows in topics]
        lost = sum(len(lost_values(root, rows)) for rows in topics)
        leaderless = sum(each.step == NEVER for each in scenarios)
        return lost, leaderless, sum(each.step for each in scenarios)

    best = advice_of(root, death).orders[0].order
    least = min(map(weight, whole.values()))
    # Who of those that died at once leads is drawn by the controller: only the loss is certain.
    certain = 1 if death == AT_ONCE else 3
    assert weight(whole[best])[:certain] == least[:certain]
    if death != ONE:
        shown_first(root, death, whole[best])


@pytest.mark.parametrize("elr", ELR)
def test_the_metadata_of_the_brokers_may_be_older(elr: str, golden: Callable[[str], Path]) -> None:
    """The first one dead does not know that another one led after it: that is said."""
    root = golden("kafka-4.3.1-deaths") / elr / "0-then-1"
    first = advise(find_dead_cluster([str(root / "node-0"), str(root / "node-2")], None))
    assert first.unseen == (100,)
    assert first.is_short
    assert all(each.costs[0].price.is_unknown for each in first.partitions)
    known = advise(find_dead_cluster([str(root / f"node-{each}") for each in (0, 2, 100)], None))
    assert known.unseen == ()
    assert {each.missed for each in known.partitions if not each.terms.is_unclean} <= {(1,), ()}


def test_a_copy_of_the_metadata_alone_is_a_controllers(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = golden("kafka-4.3.1-deaths") / "elr" / "0-then-1"
    copied = shutil.copytree(root / "node-100" / "__cluster_metadata-0", tmp_path / METADATA)
    found = find_dead_cluster([str(root / "node-0"), str(root / "node-1")], str(copied))
    assert found.metadata.unseen == ()
    assert not found.is_short
