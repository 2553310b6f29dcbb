"""What `eoctl metadata --durability` says that topics survive: real brokers do, and no more than that."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.environment.settings import CONTROLLER_ID
from recovery.elections.advice import TopicClaims, claims_of
from recovery.elections.nodes import find_dead_cluster
from storage.log.segment import open_segment
from tests.deaths_judge import advice_of, judge
from tests.kafka.cluster import Cluster
from tests.kafka.deaths import IN_TURN, TOPICS, Order, begin, bring_back, send, start_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive, pytest.mark.share(1)]
ELR = pytest.mark.parametrize("elr", [True, False], ids=["elr", "no-elr"])


def claims_in(root: Path) -> dict[str, TopicClaims]:
    cluster = find_dead_cluster([str(each) for each in sorted(root.glob("node-*"))], None)
    return {each.topic: each for each in claims_of(cluster.metadata.image, lambda _: True)}


@ELR
def test_writes_go_on_with_so_many_away(tmp_path: Path, *, elr: bool) -> None:
    cluster = begin(Cluster(tmp_path, elr=elr))
    try:
        claims = claims_in(tmp_path)
        assert {name: each.survives_for_writes for name, each in claims.items()} == {
            "one": 2, "two": 1, "two-unclean": 1,
        }  # fmt: skip
        cluster.kill(0)  # the second one
        for topic in TOPICS:
            cluster.wait_for(topic, leader=1, isr={1})
            refusal = send(cluster, topic, "x", "all")
            assert bool(refusal) == (claims[topic].survives_for_writes < 2), (topic, refusal)
    finally:
        cluster.close()


@ELR
def test_a_replaced_disk_that_another_one_leads_for(tmp_path: Path, *, elr: bool) -> None:
    cluster = begin(Cluster(tmp_path, elr=elr))
    try:
        claims = claims_in(tmp_path)
        assert {name: each.survives_for_data for name, each in claims.items()} == {
            "one": 0, "two": 1, "two-unclean": 1,
        }  # fmt: skip
        cluster.kill(0)
        for topic in TOPICS:
            cluster.wait_for(topic, leader=1, isr={1})
        shutil.rmtree(cluster.log_dir(0))
        for each in start_in(cluster, Order((0,))):
            assert (each.leader, each.isr, each.refusal) == (1, (0, 1), "")
            assert len(each.values or ()) == 10
    finally:
        cluster.close()


@ELR
def test_a_replaced_disk_that_nobody_leads_for(tmp_path: Path, *, elr: bool) -> None:
    """Of the last leader the disk goes. The next start of any broker lets it lead, with nothing."""
    cluster = begin(Cluster(tmp_path / "dead", elr=elr))
    try:
        cluster.kill(0)
        for topic in TOPICS:
            cluster.wait_for(topic, leader=1, isr={1})
        cluster.kill(1, CONTROLLER_ID)
        shutil.rmtree(cluster.log_dir(1))
        cluster.format()
        kept = cluster.copy(tmp_path / "kept")
    finally:
        cluster.close()
    advice = advice_of(kept, IN_TURN)
    assert advice.orders[0].order[0] == 0
    assert all(1 not in each.at_once for each in advice.partitions)
    worst = Order((1, 0))
    seen = bring_back(cluster.copy(tmp_path / "worst"), worst)
    judge(kept, IN_TURN, worst, seen)
    assert {each.topic: each.values for each in seen[-3:]} == dict.fromkeys(TOPICS, ())
    best = Order((0, 1), 1)
    seen = bring_back(cluster.copy(tmp_path / "best"), best)
    judge(kept, IN_TURN, best, seen)
    assert {each.topic: len(each.values or ()) for each in seen[-3:]} == dict.fromkeys(TOPICS, 10)


@ELR
def test_what_was_not_flushed_is_kept_by_an_elr(tmp_path: Path, *, elr: bool) -> None:
    """Broker 0 is stopped, then 1 loses what it has not flushed, and comes back first."""
    cluster = begin(Cluster(tmp_path, elr=elr))
    try:
        claims = claims_in(tmp_path)
        assert claims["two"].survives_power == (1 if elr else 0)
        assert claims["one"].survives_power == claims["two-unclean"].survives_power == 0
        cluster.stop(0)
        for topic in TOPICS:
            cluster.wait_for(topic, leader=1, isr={1})
        cluster.kill(1)
        for topic in TOPICS:
            (log,) = (cluster.log_dir(1) / f"{topic}-0").glob("*.log")
            with open_segment(log) as segment:
                ends = [each.pos for each in segment.scan() if each.header.base_offset >= 5]
            with log.open("r+b") as file:
                file.truncate(ends[0])
        seen = start_in(cluster, Order((1, 0)))
    finally:
        cluster.close()
    kept = {each.topic: {value[0] for value in each.values or ()} for each in seen[-3:]}
    assert kept["two"] == ({"z", "a"} if claims["two"].survives_power else {"z"})
    assert kept["one"] == {"z"}
    assert kept["two-unclean"] == {"z"}
