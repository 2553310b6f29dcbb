"""`make explore`: each call plays courses of events that were not played before."""

from __future__ import annotations

from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.guarantees.matrix import ENOUGH_SEEDS, LOSE, load_matrix, parse_matrix
from tests.lab import explored
from tests.lab.claims import CLAIMS
from tests.lab.explored import Found, Search, as_found, is_open

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from eoctl.lab.guarantees.scenarios import Scenario


FOUND = as_found(load_matrix())
OPEN = [each for each in FOUND.values() if is_open(each)]
Simulated = list[tuple[Any, Any]]


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    """What is played, with what settings; what is found is written to another file."""
    scenarios: Simulated = []
    real = explored.simulate_scenario

    def simulate(settings: Any, run: Any) -> Scenario:
        scenarios.append((settings, run))
        return real(settings, run)

    monkeypatch.setattr(explored, "MATRIX_PATH", tmp_path / "matrix.json")
    monkeypatch.setattr(explored, "simulate_scenario", simulate)
    monkeypatch.setattr(explored, "CLAIMS", ())
    return scenarios


def searched(found: Iterable[Found], more: int, seconds: float = 1e9) -> list[Found]:
    """Search these cells, and read what was written."""
    search = Search({each.cell: each for each in found}, more, seconds)
    with ThreadPool(1) as pool:
        search.run(pool, 1, is_trusted=True)
    search.save()
    data = explored.MATRIX_PATH.read_bytes()
    return [*as_found(parse_matrix(data, "matrix")).values()]


def test_open_are_all_cells_that_nothing_was_found_in() -> None:
    claimed = {each.cell.canonical for each in CLAIMS if each.never}
    nothing = {cell for cell, each in FOUND.items() if not each.witnesses}
    assert claimed
    assert {each.cell for each in OPEN} == nothing | claimed


def test_each_call_goes_on_behind_the_last_seed_of_each_cell(simulated: Simulated) -> None:
    before = OPEN[:3]
    assert all(each.seeds_count >= ENOUGH_SEEDS for each in before)
    for more in (2, 1):
        simulated.clear()
        after = searched(before, more)
        assert simulated == [
            (each.cell.settings, each.cell.run_of_seed(each.seeds_count + place))
            for each in before
            for place in range(more)
        ]
        assert after == [
            each._replace(seeds_count=each.seeds_count + more) for each in before
        ]  # they are counted
        before = after


def test_what_has_too_few_seeds_is_given_enough(simulated: Simulated) -> None:
    few = OPEN[0]._replace(seeds_count=ENOUGH_SEEDS - 3)
    assert searched([few], 1) == [few._replace(seeds_count=ENOUGH_SEEDS)]
    assert len(simulated) == 3


def test_no_seed_is_begun_after_the_time(simulated: Simulated) -> None:
    assert searched(OPEN[:3], 5, seconds=-1) == OPEN[:3]
    assert simulated == []


@pytest.mark.exhaustive
def test_what_a_new_seed_finds_is_told_and_kept(
    simulated: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    loses = next(each for each in FOUND.values() if {*each.witnesses} == {LOSE})
    (after,) = searched([Found(loses.cell, ENOUGH_SEEDS)], 20)
    assert LOSE in after.witnesses
    assert after.violations_count
    assert f"nothing had been found here: {loses.cell}" in capsys.readouterr().out
    assert simulated[0] == (loses.cell.settings, loses.cell.run_of_seed(ENOUGH_SEEDS))
