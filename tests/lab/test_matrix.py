"""The guarantee matrix that is shipped: what it says is so, and what must be found is in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.lab.guarantees.matrix import (
    DUPLICATE,
    EFFECTS,
    ENOUGH_SEEDS,
    FAULTS,
    LOSE,
    GuaranteeCell,
    all_cells,
    effect_of,
    encode_matrix,
    grouped,
    load_matrix,
    parse_matrix,
    tried_cells,
)
from eoctl.lab.guarantees.scenarios import MAX_STEPS, simulate_scenario, steps
from storage.errors import RefusedError
from tests.drawn import IS_ALL, drawn, times
from tests.lab.claims import CLAIMS, Claim
from tests.lab.guarantee_page import PAGE, page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.lab.guarantees.matrix import CellResult


# Each setting with its values, the weakest first. More replicas are not stronger: one that has nobody
# to follow it is never led by somebody who lacks what it acknowledged.
WEAKEST_FIRST: dict[str, tuple[Any, ...]] = {
    "acks": ("0", "1", "all"),
    "idempotence": (False, True),
    "min_insync_replicas": (1, 2),
    "unclean": (True, False),
    "truncation": ("hw", "epoch"),
    "elr": (False, True),
    "fsync": ("never", "batch"),
}
AGAIN = "it is not so any more with these sources; make explore searches anew"
RESULTS = load_matrix().results
MAY = [each for each in RESULTS if each.effects]
NONE = [each for each in RESULTS if not each.effects]
SEEDS = 50
PARTS = 2  # of the cells of a class of faults, for two processes


def repeated(result: CellResult, effect: str) -> None:
    """Play a witness, and hold it against what the matrix says."""
    witness = load_matrix().witnesses[result.witnesses[effect]]
    scenario = simulate_scenario(result.cell.settings, witness.run_in(result.cell))
    assert effect in {effect_of(each) for each in scenario.kinds}, (AGAIN, result.cell)
    assert 1 <= len(steps(scenario)) <= MAX_STEPS
    assert len(witness.faults.split(", ")) <= MAX_STEPS


def seeds_of(result: CellResult) -> list[int]:
    """Return the first 50 seeds of a cell in `make test-all`, one of all that were tried else."""
    return drawn(range(SEEDS if IS_ALL else result.seeds_count), times(SEEDS, 1), result.cell)


def test_every_cell_is_in_it() -> None:
    assert [each.cell for each in RESULTS] == tried_cells()
    assert all(each.seeds_count for each in RESULTS)
    assert {each.canonical for each in all_cells()} == {each.cell for each in RESULTS}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.words[:60])
def test_what_must_be_found_is_found(claim: Claim) -> None:
    result = load_matrix().by_cell()[claim.cell.canonical]
    if claim.effect:
        repeated(result, claim.effect)
        return
    never = {*(claim.never or EFFECTS)}
    assert never.isdisjoint(result.effects)
    assert result.seeds_count >= ENOUGH_SEEDS
    if not result.effects:
        assert result in NONE  # whose courses are played below, once
        return
    for seed in seeds_of(result):
        scenario = simulate_scenario(claim.cell.settings, claim.cell.run_of_seed(seed))
        assert never.isdisjoint(effect_of(each) for each in scenario.kinds), (AGAIN, seed)


@pytest.mark.share(1)
@pytest.mark.parametrize("faults", FAULTS)
def test_what_may_be_lost_is_lost_again(faults: str) -> None:
    cells = [each for each in MAY if each.cell.faults == faults]
    for each in drawn(cells, 5, faults):
        for effect in each.effects:
            repeated(each, effect)


@pytest.mark.share(1)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("faults", FAULTS)
def test_where_nothing_was_lost_nothing_is(faults: str, part: int) -> None:
    """Of each cell, of the courses that were tried: others may find what nobody has found yet."""
    cells = [each for each in NONE if each.cell.faults == faults]
    for each in cells[part::PARTS]:
        for seed in seeds_of(each):
            scenario = simulate_scenario(each.cell.settings, each.cell.run_of_seed(seed))
            assert scenario.findings == [], (AGAIN, each.cell, seed)


def neighbours(name: str) -> Iterator[tuple[CellResult, CellResult]]:
    """Results that differ in one setting only, the weaker one first."""
    by_cell = load_matrix().by_cell()
    values = WEAKEST_FIRST[name]
    there = {*all_cells()}
    for cell in all_cells():
        place = values.index(getattr(cell, name)) + 1
        if place < len(values):
            stronger = cell._replace(**{name: values[place]})
            if stronger in there:
                yield by_cell[cell.canonical], by_cell[stronger.canonical]


def is_led_by_an_eligible_one(cell: GuaranteeCell) -> bool:
    """ELR promises what is committed. With acks=1 a leader alone acknowledges more than that."""
    return cell.elr and cell.min_insync_replicas > 1 and cell.acks == "1"


@pytest.mark.parametrize("name", WEAKEST_FIRST)
def test_a_weaker_setting_loses_no_less(name: str) -> None:
    pairs = [*neighbours(name)]
    assert len(pairs) > 100
    assert any(LOSE in weaker.effects and LOSE not in each.effects for weaker, each in pairs) or (
        name in {"truncation", "idempotence"}  # what these do beside: `diverge`, `duplicate`
    )
    wrong = [
        (weaker.cell, stronger.cell)
        for weaker, stronger in pairs
        if LOSE in stronger.effects and LOSE not in weaker.effects
    ]
    assert [each for each in wrong if not is_led_by_an_eligible_one(each[1])] == []
    if name == "elr":  # it would be no exception if it were not so
        assert wrong


def test_a_producer_that_is_not_idempotent_duplicates_no_less() -> None:
    pairs = [*neighbours("idempotence")]
    wrong = [each for each in pairs if DUPLICATE in {*each[1].effects} - {*each[0].effects}]
    assert wrong == []
    assert any(DUPLICATE in weaker.effects for weaker, _ in pairs)


@pytest.mark.exhaustive
def test_syncing_changes_nothing_where_no_machine_loses_power() -> None:
    """Why such cells are tried once: the histories are equal, to the last byte."""
    cells = [each for each in tried_cells() if each == each._replace(fsync="batch").canonical]
    for cell in drawn(cells, 8):
        synced = cell._replace(fsync="batch")
        run = cell.run_of_seed(7)
        digests = {simulate_scenario(each.settings, run).result.digest for each in (cell, synced)}
        assert len(digests) == 1, cell


def test_min_insync_replicas_and_truncation_change_nothing_with_one_replica() -> None:
    cells = [
        each
        for each in tried_cells()
        if each.replication_factor == 1 and not each.elr and not each.idempotence
    ]
    for cell in drawn(cells, 5):
        run = cell.run_of_seed(3)
        others = (cell, cell._replace(min_insync_replicas=2), cell._replace(truncation="hw"))
        digests = {simulate_scenario(each.settings, run).result.digest for each in others}
        assert len(digests) == 1, cell


def test_groups_have_each_cell_once() -> None:
    by_cell = load_matrix().by_cell()
    cells = {each: by_cell[each.canonical].verdict for each in all_cells()}
    groups = grouped(cells)
    assert len(groups) < len(cells) / 4
    for cell, verdict in cells.items():
        found = [
            each.comes_to
            for each in groups
            if all(getattr(cell, name) in values for name, values in each.values.items())
        ]
        assert found == [verdict]


def test_the_file_is_read_as_it_was_written() -> None:
    matrix = load_matrix()
    data = encode_matrix(matrix)
    assert parse_matrix(data, "file") == matrix
    for damage in (b"", b"{}", data[:-100], data.replace(b'"version": 2', b'"version": 3')):
        with pytest.raises(RefusedError):
            parse_matrix(damage, "file")
    value = json.loads(data)
    value["results"][0][3] = {EFFECTS[0]: 10**6}
    with pytest.raises(RefusedError):
        parse_matrix(json.dumps(value).encode(), "file")


def test_the_page_is_that_of_the_matrix() -> None:
    assert PAGE.read_text() == page(), "python -m tests.lab.guarantee_page"


def test_cells_have_the_names_of_the_options() -> None:
    from eoctl.commands.sim import SUBCOMMANDS
    from eoctl.parameters import parameters_of

    names = {each.name for each in parameters_of(SUBCOMMANDS["table"])}
    assert {*GuaranteeCell._fields} == names - {"witness", "output"}
