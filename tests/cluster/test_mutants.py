"""Each broken rule of replication is condemned, and the same course without the break is not."""

from __future__ import annotations

import pytest

from eoctl.cluster.faults.classes import CLASSES
from eoctl.cluster.faults.language import parse_faults
from eoctl.cluster.guarantees.course import play_course
from eoctl.cluster.guarantees.explore import explore, faults_of_seed
from eoctl.cluster.world.settings import PlaySettings
from recovery.rules.replication import REPLICATION
from tests.cluster.guarantee_page import named_for
from tests.cluster.mutants import MUTANTS, Mutant
from tests.drawn import IS_ALL

MAX_SEEDS = 500


@pytest.mark.share(1)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_broken_rule_is_condemned_and_the_rule_is_not(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = faults_of_seed(mutant.seed, mutant.faults, mutant.settings)
    run = mutant.run._replace(seed=mutant.seed, faults=faults)
    assert play_course(mutant.settings, run).findings == []
    mutant.patch(monkeypatch)
    seeds = range(MAX_SEEDS) if IS_ALL else range(mutant.seed, mutant.seed + 1)
    found = explore(mutant.settings, mutant.run, mutant.faults, seeds, on_seed=lambda _: None)
    assert found is not None
    assert found.findings


def test_each_rule_of_replication_has_a_mutant_and_a_test_of_its_name() -> None:
    rules = {each.check_id for each in REPLICATION}
    assert {each.rule for each in MUTANTS.values()} == rules
    assert [each for each in rules if not [*named_for(each)]] == []


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_the_faults_of_a_class_can_be_written(name: str, nodes: int) -> None:
    settings = PlaySettings(nodes=nodes, replication_factor=nodes)
    drawn = {faults_of_seed(seed, (name,), settings) for seed in range(20)}
    assert len(drawn) > 1
    for each in drawn:
        assert parse_faults(each, nodes)
