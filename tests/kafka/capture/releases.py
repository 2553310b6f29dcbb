"""Captures `tests/golden/kafka-RELEASE.tar.xz`: what other releases leave at a clean stop.

    python -m tests.kafka.capture.releases RELEASE ARCHIVE

One node with two log dirs, `one` and `two`, with everything that a release wrote in its own way:
indexes, snapshots, transactions, cleaned segments, topics being deleted, moved log starts, groups.
Releases before 3.3 run with ZooKeeper. Maven fetches the jars of the release.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from storage.formats.record import Record
from tests.batches import encoded_batch
from tests.kafka import client, jars
from tests.kafka.broker import Broker, BrokerError
from tests.kafka.client import Outgoing
from tests.kafka.jars import java_command, tool
from tests.kafka.raw_produce import NONE, RawProducer

NEWEST = "4.3.1"
_SMALL = {"file.delete.delay.ms": "100"}
_COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "100",
}


class Release(NamedTuple):
    """What differs between releases: where their classes are, how they run, what they know."""

    scala: str
    zookeeper: bool
    dependencies: tuple[str, ...] = ()
    legacy_formats: bool = False
    segment_bytes: str = "segment.bytes"
    is_killed: bool = False  # and recovers, before it is stopped


RELEASES = {
    # JAXB left Java with version 11.
    "1.1.1": Release("2.12", True, ("javax.xml.bind:jaxb-api:2.3.1",), True, is_killed=True),
    "2.8.2": Release("2.13", True, (), True),
    "3.3.2": Release("2.13", False),
    "3.9.1": Release("2.13", False),
    # From 4.0 on small segments are for Kafka's own tests only.
    NEWEST: Release(
        "2.13",
        False,
        ("org.apache.kafka:kafka-tools:4.3.1",),
        segment_bytes="internal.segment.bytes",
    ),
}

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>eoctl</groupId><artifactId>libs</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = """\
<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>
"""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.threads": "1",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.message.timestamp.difference.max.ms": str(2**62),
    # Metadata snapshots, where there are any.
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "6000",
    "internal.metadata.log.segment.bytes": "8192",
    "metadata.log.segment.min.bytes": "4096",
    "metadata.log.segment.bytes": "8192",
    "delete.topic.enable": "true",
}


class ZooKeeperBroker(Broker):
    """A broker with a ZooKeeper of its own, which lives as long as it is used."""

    ready_words = "[KafkaServer id=1] started"

    def _spawn(self, ports: tuple[int, int]) -> None:
        port, zookeeper_port = ports
        directory = self._work_dir / "zookeeper"
        directory.mkdir(exist_ok=True)
        config = self._work_dir / "zookeeper.cfg"
        config.write_text(
            f"tickTime=2000\ndataDir={directory}\nclientPort={zookeeper_port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        )
        self._end_zookeeper()
        self._zookeeper = self._start(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)
        )
        time.sleep(3)
        properties = self._work_dir / "server.properties"
        lines = {
            "broker.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
            "log.dirs": ",".join(str(each) for each in self.log_dirs),
            **self.settings,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._process = self._start("kafka.Kafka", str(properties))
        self.bootstrap = f"127.0.0.1:{port}"

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        options = ("-Dzookeeper.jmx.log4j.disable=true", "-Xmx512M")
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                java_command(*options, *arguments),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._work_dir,
            )  # fmt: skip

    def close(self) -> None:
        """End ZooKeeper, too."""
        self._end_zookeeper()
        super().close()

    def _end_zookeeper(self) -> None:
        if (zookeeper := getattr(self, "_zookeeper", None)) is not None:
            zookeeper.kill()
            zookeeper.wait()


def fetch_jars(version: str, directory: Path) -> Path:
    """The jars of a release, through Maven."""
    release = RELEASES[version]
    wanted = [
        f"org.apache.kafka:kafka_{release.scala}:{version}",
        "org.slf4j:slf4j-simple:1.7.36",
        *release.dependencies,
    ]
    return fetch(wanted, directory)


def fetch(wanted: list[str], directory: Path) -> Path:
    """Jars and what they need, by `group:artifact:version`, through Maven."""
    directory.mkdir()
    text = "".join(_DEPENDENCY.format(*each.split(":")) for each in wanted)
    (directory / "pom.xml").write_text(_POM.format(dependencies=text))
    command = [tool("mvn"), "--batch-mode", "-q", "-f", str(directory / "pom.xml"), _COPY]
    subprocess.run([*command, f"-DoutputDirectory={directory}"], check=True, timeout=600)
    return directory


def topics(release: Release) -> dict[str, tuple[int, dict[str, str]]]:
    """Every topic, with its number of partitions and its settings."""
    small = {**_SMALL, release.segment_bytes: "2048"}
    found: dict[str, tuple[int, dict[str, str]]] = {
        "plain": (2, small),
        "idempotent": (2, {"index.interval.bytes": "200"}),
        "txn": (2, {"index.interval.bytes": "200"}),
        "compacted": (2, {**_COMPACTED, release.segment_bytes: "4096"}),
        "trimmed": (2, small),
        "going": (2, {"file.delete.delay.ms": "3600000"}),
        "empty": (2, {}),
    }
    if release.legacy_formats:
        found["v0"] = (1, {"message.format.version": "0.9.0", "index.interval.bytes": "200"})
        found["v1"] = (1, {"message.format.version": "0.10.2", "index.interval.bytes": "200"})
    return found


def records(topic: str, partition: int, name: str, count: int, size: int = 60) -> list[Outgoing]:
    """`count` records with timestamps that go back and forth, so that indexes have a choice."""
    now_ms = int(time.time() * 1000)
    return [
        Outgoing(
            topic, partition, f"{name}-{number % 7}".encode(), b"v" * size,
            timestamp_ms=now_ms - (number * 7919) % 5000,
        )
        for number in range(count)
    ]  # fmt: skip


def write(bootstrap: str, release: Release) -> None:
    """Each kind of producer into each kind of topic."""
    small: dict[str, str | int] = {"batch_size": 500}
    plain = client.producer(bootstrap, enable_idempotence=False, **small)
    idempotent = client.producer(bootstrap, enable_idempotence=True, **small)
    for number in range(2):
        for topic in ("plain", "trimmed", "going"):
            client.send(plain, records(topic, number, "p", 60))
        client.send(idempotent, records("idempotent", number, "i", 60))
    for topic in ("v0", "v1") if release.legacy_formats else ():
        client.send(plain, records(topic, 0, "old", 60))
        packed = client.producer(
            bootstrap, enable_idempotence=False, compression_type="gzip", **small
        )
        client.send(packed, records(topic, 0, "packed", 40))
    writers = [client.transactional_producer(bootstrap, f"t-{n}", **small) for n in range(3)]
    for turn in range(5):
        for place, writer in enumerate(writers):
            both = [*records("txn", 0, f"t{place}", 6), *records("txn", 1, f"t{place}", 5)]
            client.transact(writer, both, commit=(turn + place) % 3 != 1)
            kept = [*records("compacted", 0, "c", 9), *records("compacted", 1, "c", 9)]
            client.transact(writer, kept, commit=(turn + place) % 2 == 0)
    group = {("txn", 0): 7, ("txn", 1): 5}
    client.transact(writers[0], records("txn", 0, "o", 2), commit=True, offsets=group)
    client.commit_offsets(bootstrap, "by-hand", {("plain", 0): 11, ("plain", 1): 12})
    client.join_group(bootstrap, "classic", "plain")


def roll(bootstrap: str) -> None:
    """So much more that the aborted transactions are in segments that can be cleaned."""
    plain = client.producer(bootstrap, enable_idempotence=False, batch_size=500)
    for number in range(2):
        client.send(plain, records("compacted", number, "c", 120))


def odd_producers(bootstrap: str) -> None:
    """Sequences that turn over, and the last epoch that a producer id can have."""
    now_ms = int(time.time() * 1000)
    with RawProducer(bootstrap) as raw:
        for producer_id, epoch, sequence in (
            (500, 0, 2**31 - 5), (500, 0, 5), (501, 32766, 0), (501, 32766, 10),
        ):  # fmt: skip
            batch = encoded_batch(
                0, [Record(0, 0, number, b"k", b"v", ()) for number in range(10)],
                base_timestamp_ms=now_ms, max_timestamp_ms=now_ms, producer_id=producer_id,
                producer_epoch=epoch, base_sequence=sequence,
            )  # fmt: skip
            answer = raw.send("idempotent", 0, batch)
            if answer.error_code != NONE:
                raise BrokerError(f"{producer_id}, {epoch}, {sequence}: error {answer.error_code}")


def new_groups(bootstrap: str) -> None:
    """A KIP-848 group and a share group, with what they leave in their coordinators' topics."""
    client.join_group(bootstrap, "next-generation", "plain", protocol="consumer")
    group = ("--entity-type", "groups", "--entity-name", "shared")
    setting = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *group, *setting)
    run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", bootstrap,
        "--topic", "plain", "--group", "shared", "--max-messages", "30", "--timeout-ms", "20000",
    )  # fmt: skip


def run_tool(*arguments: str) -> None:
    """One of Kafka's own tools, to its end."""
    done = subprocess.run(
        java_command("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *arguments),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if done.returncode:
        raise BrokerError(f"{arguments[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def capture(version: str, log_dirs: list[Path]) -> None:
    """Write all that the release is to write, and stop it cleanly."""
    release = RELEASES[version]
    kind = ZooKeeperBroker if release.zookeeper else Broker
    broker = kind(log_dirs, overrides=SETTINGS)
    try:
        broker.start()
        client.create_topics(broker.bootstrap, topics(release))
        write(broker.bootstrap, release)
        roll(broker.bootstrap)
        if version == NEWEST:
            odd_producers(broker.bootstrap)
            new_groups(broker.bootstrap)
        client.delete_records(broker.bootstrap, {("trimmed", 0): 33, ("trimmed", 1): 60})
        client.delete_topics(broker.bootstrap, ["going"])
        # The cleaner, checkpoints, and (every minute) the log start of the metadata.
        time.sleep(75 if version == NEWEST else 10)
        if release.is_killed:
            broker.kill()
            time.sleep(20)  # ZooKeeper forgets the broker that died
            broker.start()
            time.sleep(5)
        broker.stop()
    finally:
        broker.close()


def main() -> None:
    """Write the archive that the command line names."""
    version, archive_path = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="eoctl-release-") as name:
        work = Path(name)
        jars.KAFKA_LIBS = fetch_jars(version, work / "jars")
        log_dirs = [work / "one", work / "two"]
        for log_dir in log_dirs:
            log_dir.mkdir()
        capture(version, log_dirs)
        with tarfile.open(archive_path, "w:xz", preset=9) as archive:
            for log_dir in log_dirs:
                archive.add(log_dir, log_dir.name)


if __name__ == "__main__":
    main()
