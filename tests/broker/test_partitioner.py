"""A real client puts keys where our partitioner puts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eoctl.clients.producing.topic_producer import partition_for_key
from tests.kafka import client
from tests.kafka.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.broker


@pytest.mark.exhaustive
def test_a_real_client_chooses_the_same_partitions(tmp_path: Path) -> None:
    keys = [bytes((n * k) % 256 for k in range(n % 23)) for n in range(400)]
    with Broker(tmp_path / "log-dir") as broker:
        client.create_topics(broker.bootstrap, {"t": (7, {})})
        producer = client.producer(broker.bootstrap, partitioner="murmur2_random")
        sent = client.send(producer, [client.Outgoing("t", -1, key, b"v") for key in keys])
    found = [partition for _, partition, _ in sent]
    assert found == [partition_for_key(key, 7) for key in keys]
