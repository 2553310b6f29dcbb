"""Failure scenarios on a simulated cluster; `tests/lab/test_scenarios_on_brokers.py` has them on real brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.scenarios import SCENARIOS, Scenario
from tests.lab.simulated_stage import SimulatedStage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.share(3)
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_shows_what_it_is_there_for(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    _, stands, facts = SimulatedStage(tmp_path / "play", scenario).simulate(scenario)
    assert {*scenario.shows} <= facts.reported
    last = stands[-1]
    for each in last.isr:
        assert last.offsets[each] == (len(facts.records[last.leader]),) * 2
        assert facts.records[each] == facts.records[last.leader]
        assert facts.epochs[each] == facts.epochs[last.leader]


@pytest.mark.share(1)
@pytest.mark.parametrize("name", SCENARIOS)
def test_other_delays_change_none_of_what_is_compared(tmp_path: Path, name: str) -> None:
    """So real brokers, which have delays of their own, are held against all three."""
    scenario = SCENARIOS[name]
    simulated = [
        SimulatedStage(tmp_path / str(seed), scenario, seed).simulate(scenario) for seed in range(3)
    ]
    assert simulated[1] == simulated[0]
    assert simulated[2] == simulated[0]


def test_a_leader_of_an_unclean_election_recovers_with_its_first_change(tmp_path: Path) -> None:
    """The record of the election says so, as a real controller's does."""
    scenario = Scenario("send a 1 -1; kill 2; kill 1; kill 0; start 2; elect; start 1")
    _, _, facts = SimulatedStage(tmp_path / "play", scenario).simulate(scenario)
    ends = [(each.leader, each.isr, each.is_recovering) for each in facts.states[-2:]]
    assert ends == [(2, (2,), True), (2, (1, 2), False)]
