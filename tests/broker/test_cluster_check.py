"""Histories that real clients recorded on real brokers: a sound one is sound, a real loss is seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka import client
from tests.kafka.cluster import Cluster
from tests.kafka.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]
BROKERS = (0, 1, 2)


def checked(eoctl: Callable[..., Outcome], *arguments: object) -> tuple[int, dict[str, Any], str]:
    outcome = eoctl("sim", "check", *arguments, "-o", "jsonl")
    found = [json.loads(each) for each in outcome.text.splitlines()]
    return outcome.status, {each["kind"]: each for each in reversed(found)}, outcome.errors


def test_what_real_brokers_kept_and_lost(tmp_path: Path, eoctl: Callable[..., Outcome]) -> None:
    with (
        Recorder(tmp_path / "sound.jsonl") as sound,
        Recorder(tmp_path / "lossy.jsonl") as lossy,
        Cluster(tmp_path / "cluster", elr=False) as cluster,
    ):
        cluster.create_topic("kept", [[0, 1, 2], [1, 2, 0]], {"min.insync.replicas": "2"})
        cluster.create_topic("lost", [[0, 1, 2]], {"min.insync.replicas": "1"})
        _simulate_kept(cluster, sound)
        _simulate_lost(cluster, lossy)
        for each in reversed(BROKERS):
            cluster.stop(each)
        logs = [word for each in BROKERS for word in ("--directory", cluster.log_dir(each))]
        alone = checked(eoctl, "--history", sound.path)
        assert alone[:2] == (0, {}), alone
        beside = checked(eoctl, "--history", sound.path, *logs)
        assert beside[:2] == (0, {}), beside
        assert "6 replicas" in beside[2]
        status, found, errors = checked(eoctl, "--history", lossy.path)
        assert status == 1, errors
        assert {"lost-write", "inconsistent-offsets"} <= {*found}
        assert found["lost-write"]["value"].startswith("doomed-")
        assert 3 <= len(found["lost-write"]["witness"]) <= 5
        assert any("producer sends doomed-" in each for each in found["lost-write"]["witness"])
        status, found, errors = checked(eoctl, "--history", lossy.path, *logs)
        assert status == 1, errors
        assert {"lost-write", "inconsistent-offsets"} <= {*found}
        assert "is in no replica" in found["lost-write"]["words"]
        assert {"replicas-differ", "damaged-replica"}.isdisjoint(found)  # they agree on the loss


def _simulate_kept(cluster: Cluster, recorder: Recorder) -> None:
    """Kills while idempotent producers send with acks=all lose nothing."""
    producer = client.producer(cluster.bootstrap, enable_idempotence=True, acks="all")
    recorder.send(producer, "kept", 0, [f"a{number}" for number in range(40)])
    recorder.read(cluster.bootstrap, "early", "kept", 0)
    recorder.happened("fault", fault="kill", nodes=[0])
    cluster.kill(0)
    assert recorder.send(producer, "kept", 0, [f"b{number}" for number in range(40)]) > 0
    transactional = client.transactional_producer(cluster.bootstrap, "writer")
    for number in range(3):
        recorder.transact(
            transactional, [("kept", place, f"x{number}-{place}") for place in (0, 1, 0)][:2]
        )
    cluster.start(0)
    for partition in (0, 1):
        cluster.wait_for("kept", partition, isr={*BROKERS})
    recorder.happened("heal")
    assert recorder.read(cluster.bootstrap, "last", "kept", 0, final=True) >= 80
    assert recorder.read(cluster.bootstrap, "last", "kept", 1, final=True) == 3


def _simulate_lost(cluster: Cluster, recorder: Recorder) -> None:
    """One replica alone acknowledges, dies, and another one is elected uncleanly."""
    producer = client.producer(cluster.bootstrap, acks="all")
    recorder.send(producer, "lost", 0, [f"kept-{number}" for number in range(10)])
    recorder.happened("fault", fault="kill", nodes=[1, 2])
    cluster.kill(1, 2)
    cluster.wait_for("lost", 0, leader=0, isr={0})
    assert recorder.send(producer, "lost", 0, [f"doomed-{number}" for number in range(10)]) == 10
    cluster.kill(0)
    cluster.start(1)
    cluster.start(2)
    cluster.wait_for("lost", 0, leader=-1, isr={0})  # before, the controller takes 0 to live
    cluster.elect_uncleanly("lost", 0)
    cluster.wait_until("lost", 0, lambda seen: seen.leader in {1, 2})
    again = client.producer(cluster.bootstrap, acks="all")
    assert recorder.send(again, "lost", 0, [f"after-{number}" for number in range(5)]) == 5
    cluster.start(0)
    cluster.wait_for("lost", 0, isr={*BROKERS})
    recorder.happened("heal")
    assert recorder.read(cluster.bootstrap, "last", "lost", 0, final=True) == 15
