"""What a broker that was started again still knows of its producers: the last batch of each.

It goes by its producer snapshot, which has no other. So of several batches in flight that were
appended and not answered, all but the last are taken for out of sequence when they are sent again;
an idempotent client then begins a new epoch, and has them appended twice (KIP-360).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.environment.settings import PlaySettings, RunSettings
from eoctl.lab.guarantees.scenarios import simulate_scenario
from tests.kafka import client
from tests.kafka.broker import Broker
from tests.kafka.raw_produce import NONE, OUT_OF_ORDER_SEQUENCE_NUMBER, Answer, RawProducer
from tests.writing import batch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.broker
@pytest.mark.exhaustive
def test_a_real_broker_knows_the_last_batch_after_a_start(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    sent = [batch(3, (7, 0, 3 * number), timestamp_ms=now_ms) for number in range(4)]
    with Broker(tmp_path / "data") as broker:
        client.create_topics(broker.bootstrap, {"t": (1, {})})
        with RawProducer(broker.bootstrap) as producer:
            reported = [producer.send("t", 0, each) for each in sent]
            assert reported == [Answer(NONE, 3 * number) for number in range(4)]
            assert producer.send("t", 0, sent[1]) == Answer(NONE, 3)
        broker.kill()
        broker.start()
        with RawProducer(broker.bootstrap) as producer:
            assert producer.send("t", 0, sent[3]) == Answer(NONE, 9)
            for each in sent[:3]:
                assert producer.send("t", 0, each) == Answer(OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


@pytest.mark.parametrize("in_flight", [1, 5])
def test_so_does_a_played_one(in_flight: int) -> None:
    settings = PlaySettings(min_insync=2, fsync="batch")
    faults = "kill follower at 26%, power any at 34%, kill any at 79%, start all at 80%"
    run = RunSettings(records=60, rate=4, in_flight=in_flight, faults=faults, seed=77)
    assert simulate_scenario(settings, run).kinds == (set() if in_flight == 1 else {"duplicate"})
