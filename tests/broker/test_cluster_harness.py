"""The harness of several brokers: who leads after a kill, a clean stop, and over copied log dirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from eoctl.lab.environment.settings import CONTROLLER_ID
from tests.kafka import client
from tests.kafka.broker import CLEAN_MARKER, BrokerError
from tests.kafka.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive, pytest.mark.share(1)]


@pytest.mark.parametrize("combined", [False, True], ids=["controller apart", "combined"])
def test_brokers_die_are_stopped_and_come_back(tmp_path: Path, *, combined: bool) -> None:
    sent = [client.Outgoing("t", 0, b"k", b"v%d" % number) for number in range(9)]
    with Cluster(tmp_path / "one", combined=combined) as cluster:
        assert cluster.controller_ids == ((0, 1, 2) if combined else (CONTROLLER_ID,))
        assert len({node.pid for node in cluster.nodes.values()}) == (3 if combined else 4)
        cluster.create_topic("t", [[0, 1, 2], [2, 1, 0]], {"min.insync.replicas": "2"})
        client.send(client.producer(cluster.bootstrap), sent)
        cluster.kill(0)
        assert 0 not in cluster.running
        assert cluster.wait_for("t", 0, leader=1, isr={1, 2}).replicas == (0, 1, 2)
        assert cluster.seen_by(0, "t") is None
        assert not (cluster.log_dir(0) / CLEAN_MARKER).exists()
        cluster.start(0)
        cluster.wait_for("t", 0, leader=1, isr={0, 1, 2})
        cluster.wait_for("t", 1, leader=2, isr={0, 1, 2})
        cluster.stop(2)
        assert (cluster.log_dir(2) / CLEAN_MARKER).exists()
        cluster.wait_for("t", 1, leader=1, isr={0, 1})
        with pytest.raises(TimeoutError, match="t-1 is not as wanted"):
            cluster.wait_for("t", 1, leader=2, timeout_s=0.2)
        with pytest.raises(KafkaException, match="ELECTION_NOT_NEEDED"):
            cluster.elect_uncleanly("t", 1)
        with pytest.raises(BrokerError, match="runs already"):
            cluster.nodes[0].spawn()
        cluster.kill(*cluster.running)
        copied = cluster.copy(tmp_path / "two")
    assert not cluster.running
    with Cluster(copied, combined=combined) as again:
        # Either of those in sync: one that registers after a crash first leaves the ISR (KIP-966).
        assert again.wait_for("t", 1, isr={0, 1, 2}).leader in {0, 1}
        read = client.consume(again.bootstrap, "t", 0, isolation="read_committed")
        assert [each.value for each in read.records] == [each.value for each in sent]
