"""Courses of events on real brokers: what a simulated cluster does in them is what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.real_stage import RealStage, TooSlowError
from tests.lab.scenarios import SCENARIOS
from tests.lab.simulated_stage import SimulatedStage

if TYPE_CHECKING:
    from pathlib import Path


ATTEMPTS = 3


@pytest.mark.broker
@pytest.mark.exhaustive
@pytest.mark.share(2)
@pytest.mark.parametrize("name", SCENARIOS)
def test_real_brokers_do_the_same(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    answers, stands, expected = SimulatedStage(tmp_path / "played", scenario).simulate(scenario)
    slow = []
    for attempt in range(ATTEMPTS):
        try:
            with RealStage(tmp_path / f"real-{attempt}", scenario) as stage:
                found = stage.simulate(scenario, answers, stands)
        except TooSlowError as problem:
            slow.append(str(problem))
            continue
        assert found._asdict() == expected._asdict()
        return
    pytest.fail(f"in {ATTEMPTS} attempts brokers that ran were taken for dead: {slow}")
