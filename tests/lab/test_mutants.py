"""Each broken rule of replication is condemned, and the same course without the break is not.

A history that changes has changed what was saved with `--witness`, and what a seed stands for: then
this is no refactoring, and CHANGELOG says so.
"""

from __future__ import annotations

import pytest

from eoctl.lab.environment.faults import CLASSES, parse_faults
from eoctl.lab.environment.settings import PlaySettings, RunSettings
from eoctl.lab.guarantees.scenarios import explore, faults_of_seed, simulate_scenario
from recovery.rules.replication import REPLICATION
from tests.drawn import IS_ALL
from tests.lab.guarantee_page import named_for
from tests.lab.mutants import MUTANTS, Mutant

MAX_SEEDS = 500


@pytest.mark.share(1)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_broken_rule_is_condemned_and_the_rule_is_not(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = faults_of_seed(mutant.seed, mutant.faults, mutant.settings)
    run = mutant.run._replace(seed=mutant.seed, faults=faults)
    assert simulate_scenario(mutant.settings, run).findings == []
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


# -- courses of events that each release plays as the ones before it, to the last byte


TWO = PlaySettings(min_insync=2)
PINNED = {
    "nothing happens": (PlaySettings(), RunSettings(records=60), ""),
    "kills": (TWO, RunSettings(records=120, seed=3), "kill leader at 20%, start all at 70%"),
    "power": (
        PlaySettings(min_insync=2, fsync="batch", has_elr=True),
        RunSettings(records=120, in_flight=1, burst=6, seed=4),
        "kill follower at 30% ahead, power all at 50%, start all at 60%",
    ),
    "cut off": (
        TWO._replace(lag_time_max_ms=1500),
        RunSettings(records=120, rate=4, seed=5),
        "partition leader at 27%, heal at 80%",
    ),
    "slow": (TWO, RunSettings(records=120, rate=4, seed=6), "slow 1 at 20%, stop leader at 50%"),
    "not idempotent": (
        PlaySettings(truncation="hw", is_unclean=True),
        RunSettings(records=120, is_idempotent=False, rate=200, seed=7),
        "kill leader at 30%, kill leader at 60%, start first at 70%",
    ),
    "acks=1, partitions": (
        PlaySettings(partitions=3, nodes=4),
        RunSettings(records=150, acks=1, is_idempotent=False, linger_ms=5, rate=0, seed=8),
        "kill any at 40%",
    ),
    "a consumer commits": (
        TWO._replace(partitions=2),
        RunSettings(records=150, consumer_commit="after", seed=9),
        "kill consumer at 30% handling, start consumer at 60%, ask at quiet",
    ),
}
DIGESTS = {
    "nothing happens": ("97a1b9b3a03f37b8", 530),
    "kills": ("c2379e381a65d5d6", 547),
    "power": ("5427dc09ba5d628e", 471),
    "cut off": ("3897f37477be9883", 1705),
    "slow": ("7edfe66eb4a2eb70", 1565),
    "not idempotent": ("35f4dc66bd889c95", 540),
    "acks=1, partitions": ("148547b60582b1cf", 2312),
    "a consumer commits": ("7bf37734501d4aad", 2800),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("name", PINNED)
def test_a_course_of_events_stays_what_it_is(name: str) -> None:
    settings, run, faults = PINNED[name]
    result = simulate_scenario(settings, run._replace(faults=faults)).result
    assert (result.digest[:16], result.events_count) == DIGESTS[name]
