"""`eoctl serve` beside a broker that runs, and writes: what it serves, and that it is in no one's way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests import wire
from tests.kafka import client
from tests.kafka.broker import Broker
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]

DEADLINE_S = 120
CHECKPOINT_MS = "300"
RECORDS = 500


def checkpointed(log_dir: Path, topic: str) -> int:
    for line in (log_dir / "replication-offset-checkpoint").read_text().splitlines():
        if line.startswith(f"{topic} 0 "):
            return int(line.split()[2])
    return -1


def await_that(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.1)


def produce(bootstrap: str, first: int) -> None:
    values = (f"value-{each}".encode().ljust(4000) for each in range(first, first + RECORDS))
    with_keys = [client.Outgoing("live", 0, b"key", each) for each in values]
    client.send(client.producer(bootstrap, enable_idempotence=True), with_keys)


def test_a_directory_is_followed_while_a_broker_writes_it(tmp_path: Path) -> None:
    """Its end is the checkpointed high watermark, never what is beyond; the broker goes on."""
    log_dir = tmp_path / "log-dir"
    overrides = {"replica.high.watermark.checkpoint.interval.ms": CHECKPOINT_MS}
    with Broker(log_dir, overrides=overrides) as broker:
        client.create_topics(broker.bootstrap, {"live": (1, {"segment.bytes": "1048576"})})
        produce(broker.bootstrap, 0)
        await_that(lambda: checkpointed(log_dir, "live") == RECORDS)
        with Served(log_dir, "--follow") as served, Wire(served.bootstrap) as connection:
            assert wire.list_offset(connection, "live", 0, -1)["offset"] == RECORDS
            for count in (2, 3):
                produce(broker.bootstrap, (count - 1) * RECORDS)

                def has_come(end: int = count * RECORDS) -> bool:
                    offered = wire.list_offset(connection, "live", 0, -1)["offset"]
                    assert offered <= checkpointed(log_dir, "live")
                    return bool(offered == end)

                await_that(has_come)
            isolation = client.READ_COMMITTED
            ours = client.consume(served.bootstrap, "live", 0, isolation=isolation)
            theirs = client.consume(broker.bootstrap, "live", 0, isolation=isolation)
            ended = served.stop()
        assert ours == theirs
        assert len(ours.records) == 3 * RECORDS
        assert "is followed" in ended.stderr
        assert ended.status == 130
        produce(broker.bootstrap, 3 * RECORDS)  # nobody has locked, or moved, anything
        assert not broker.error_lines()


def test_retention_of_a_broker_is_followed(tmp_path: Path) -> None:
    """What it deletes while it is served is out of range then, and no gap."""
    log_dir = tmp_path / "log-dir"
    overrides = {
        "replica.high.watermark.checkpoint.interval.ms": CHECKPOINT_MS,
        "log.flush.start.offset.checkpoint.interval.ms": CHECKPOINT_MS,
    }
    with Broker(log_dir, overrides=overrides) as broker:
        client.create_topics(broker.bootstrap, {"live": (1, {"segment.bytes": "1048576"})})
        produce(broker.bootstrap, 0)
        await_that(lambda: checkpointed(log_dir, "live") == RECORDS)
        with Served(log_dir, "--follow") as served, Wire(served.bootstrap) as connection:
            assert wire.fetch(connection, "live", 0, 0)["records"]
            client.delete_records(broker.bootstrap, {("live", 0): RECORDS})
            out_of_range = 1

            def is_gone() -> bool:
                answer = wire.fetch(connection, "live", 0, 0)
                assert answer["errorCode"] in (0, out_of_range, 56)
                return bool(answer["errorCode"] == out_of_range)

            await_that(is_gone)
            # Files may be gone before the checkpoint says where the log begins.
            await_that(lambda: wire.list_offset(connection, "live", 0, -2)["offset"] == RECORDS)
            produce(broker.bootstrap, RECORDS)
            await_that(lambda: wire.list_offset(connection, "live", 0, -1)["offset"] == 2 * RECORDS)
            found = client.consume(served.bootstrap, "live", 0, isolation=client.READ_UNCOMMITTED)
            ended = served.stop()
        assert [each.offset for each in found.records] == [*range(RECORDS, 2 * RECORDS)]
        assert "internal error" not in ended.stderr
