"""MirrorMaker 2 brings a dead broker's directory into a living cluster."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from tests.kafka import client
from tests.kafka.broker import Broker
from tests.kafka.jars import COMMON_LIBS, java_command
from tests.serving import Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

TOPICS = {"plain": 2, "txn": 2, "idem-zstd": 1, "append-time": 1, "rolled": 1}
TIMEOUT_S = 240.0
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONVERTERS = f"key.converter={BYTES}\nvalue.converter={BYTES}\nheader.converter={BYTES}\n"
WORKER = (
    CONVERTERS
    + """\
bootstrap.servers={live}
offset.storage.file.filename={work}/offsets
listeners=http://127.0.0.1:0
plugin.discovery=only_scan
"""
)
MIRROR = (
    CONVERTERS
    + """\
name=rescue
connector.class=org.apache.kafka.connect.mirror.MirrorSourceConnector
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
source.cluster.alias=dead
target.cluster.alias=live
source.cluster.bootstrap.servers={dead}
target.cluster.bootstrap.servers={live}
topics={topics}
replication.factor=1
emit.offset-syncs.enabled=false
consumer.isolation.level=read_committed
consumer.auto.offset.reset=earliest
"""
)


@contextmanager
def mirror(dead: str, live: str, work: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Connect, standalone, with MirrorMaker's source connector."""
    places = {"dead": dead, "live": live, "work": work, "topics": ",".join(TOPICS)}
    files = []
    for name, text in (("worker", WORKER), ("mirror", MIRROR)):
        files.append(work / f"{name}.properties")
        files[-1].write_text(text.format(**places))
    command = java_command(
        "-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files), libs=COMMON_LIBS,
    )  # fmt: skip
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def records(bootstrap: str, where: tuple[str, int], isolation: str) -> list[tuple[object, ...]]:
    """What was sent: time, key, value, headers; in order."""
    found = client.consume(bootstrap, *where, isolation=isolation).records
    return [(each.timestamp_ms, each.key, each.value, each.headers) for each in found]


def end_offsets(bootstrap: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Those of a cluster; {} as long as it has not all the topics."""
    try:
        return client.end_offsets(bootstrap, places)
    except KafkaException:
        return {}


@pytest.mark.exhaustive
def test_a_living_cluster_gets_every_record(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Those of aborted transactions, and of one that is open, do not come."""
    work, log_dir = tmp_path / "connect", golden("kafka-4.3.1") / "clean"
    work.mkdir()
    keeping = {"log.retention.ms": "-1"}
    with Served(log_dir) as served, Broker(tmp_path / "live", overrides=keeping) as broker:
        places = [(name, number) for name, count in TOPICS.items() for number in range(count)]
        wanted = {each: records(served.bootstrap, each, client.READ_COMMITTED) for each in places}
        counts = {each: len(found) for each, found in wanted.items()}
        everything = client.consume(served.bootstrap, "txn", 0, isolation=client.READ_UNCOMMITTED)
        assert min(counts.values()) > 0
        assert counts["txn", 0] < len(everything.records)
        with mirror(served.bootstrap, broker.bootstrap, work) as process:
            deadline_s = time.monotonic() + TIMEOUT_S
            while end_offsets(broker.bootstrap, places) != counts:
                assert process.poll() is None, (work / "log").read_text()[-4000:]
                assert time.monotonic() < deadline_s, (work / "log").read_text()[-4000:]
                time.sleep(0.2)
        for each in places:
            came = records(broker.bootstrap, each, client.READ_UNCOMMITTED)
            assert came == wanted[each], each
