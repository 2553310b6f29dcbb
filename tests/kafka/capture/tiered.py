"""Captures `tests/golden/kafka-4.3.1-tiered.tar.xz`: a broker whose old segments are remote.

    python -m tests.kafka.capture.tiered ARCHIVE

The remote tier is Kafka's own LocalTieredStorage, a directory; its class is in the test jar of
kafka-storage, which Maven fetches. Of `tiered` everything below the last segment is remote only,
with transactional and idempotent producers that are known from a snapshot alone; of `halved` some
segments are. `shortened` has a log start inside of a remote segment (DeleteRecords), `grown` is
tiered, and still all of it is local; `plain` is not tiered.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kafka import client
from tests.kafka.broker import Broker
from tests.kafka.client import Outgoing
from tests.kafka.jars import KAFKA_LIBS, tool

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "4.3.1"
STORAGE_TEST_JAR = f"org.apache.kafka:kafka-storage:{VERSION}:jar:test"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
WAIT_S = 60.0

TOPIC = {"remote.storage.enable": "true", "internal.segment.bytes": "4096"}
SHORT = {**TOPIC, "local.retention.bytes": "1", "file.delete.delay.ms": "100"}
TOPICS = {
    "tiered": SHORT,
    "halved": {**SHORT, "local.retention.bytes": "16000"},
    "shortened": SHORT,
    "grown": TOPIC,
    "plain": {"internal.segment.bytes": "4096"},
}


def settings(remote: Path) -> dict[str, str]:
    """What a broker with this remote tier has in its properties."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        ),
        "rsm.config.dir": str(remote),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.manager.task.interval.ms": "300",
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "300",
    }


def fetch_test_jar(directory: Path) -> Path:
    """The jar with LocalTieredStorage, through Maven."""
    command = [tool("mvn"), "--batch-mode", "-q", COPY, f"-Dartifact={STORAGE_TEST_JAR}"]
    subprocess.run([*command, f"-DoutputDirectory={directory}"], check=True, timeout=300)
    (jar,) = directory.glob("kafka-storage-*-test.jar")
    return jar


def records(topic: str, name: str, count: int, value_bytes: int = 200) -> list[Outgoing]:
    """`count` records that compress well in an archive."""
    value = b"v" * value_bytes
    return [Outgoing(topic, 0, f"{name}-{number}".encode(), value) for number in range(count)]


def write(bootstrap: str, topic: str) -> None:
    """Producers of each kind; the first ones write nothing that stays local."""
    writers = [
        client.transactional_producer(bootstrap, f"{topic}-{each}", batch_size=1500)
        for each in range(3)
    ]
    idempotent = client.producer(bootstrap, enable_idempotence=True, batch_size=1500)
    client.send(idempotent, records(topic, "idempotent", 30))
    for turn in range(4):
        for place, writer in enumerate(writers):
            commit = (turn + place) % 3 != 1
            client.transact(writer, records(topic, f"t{place}", 12), commit=commit)
    client.send(
        client.producer(bootstrap, enable_idempotence=False, batch_size=1500),
        records(topic, "plain", 20),
    )
    client.transact(writers[0], records(topic, "t0", 5), commit=False)
    client.transact(writers[0], records(topic, "t0", 5), commit=True)
    # Begins in a segment that becomes remote, ends in the local one.
    client.transact(writers[1], records(topic, "t1", 40), commit=False)


def local_start(log_dir: Path, topic: str) -> int:
    """Smallest base offset of a local segment."""
    return min(int(each.stem) for each in (log_dir / f"{topic}-0").glob("*.log"))


def wait_for_the_remote_tier(log_dir: Path, topics: list[str]) -> None:
    """Until only one segment of each topic is local, and nothing waits to be deleted."""
    deadline_s = time.monotonic() + WAIT_S
    for topic in topics:
        directory = log_dir / f"{topic}-0"
        while len([*directory.glob("*.log"), *directory.glob("*.deleted")]) > 1:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{topic}: {sorted(map(str, directory.iterdir()))}")
            time.sleep(0.2)


def list_files(remote: Path) -> Iterator[str]:
    """Name and size of every file of the remote tier."""
    for path in sorted(remote.rglob("*")):
        if path.is_file():
            yield f"{path.relative_to(remote / 'kafka-tiered-storage')} {path.stat().st_size}\n"


def capture(work: Path) -> None:
    """Make `crash`, `clean` and `remote.txt` in `work`."""
    jar = fetch_test_jar(work / "jars")
    remote, log_dir = work / "remote", work / "log-dir"
    remote.mkdir()
    options = ("-Xmx512M", "-cp", f"{KAFKA_LIBS}/*:{jar}")  # the last -cp counts
    broker = Broker(log_dir, overrides=settings(remote), java_options=options)
    try:
        broker.start()
        client.create_topics(broker.bootstrap, {name: (1, each) for name, each in TOPICS.items()})
        for name in TOPICS:
            write(broker.bootstrap, name)
        wait_for_the_remote_tier(log_dir, ["tiered", "shortened"])
        client.delete_records(broker.bootstrap, {("shortened", 0): 40})
        idempotent = client.producer(broker.bootstrap, enable_idempotence=True, batch_size=1500)
        for name in TOPICS:
            client.send(idempotent, records(name, "late", 2))
        time.sleep(8)  # the high watermarks are written every five seconds
        broker.kill()
        shutil.copytree(log_dir, work / "crash")
        broker.start()
        time.sleep(3)
        broker.stop()
        shutil.copytree(log_dir, work / "clean")
        (work / "remote.txt").write_text("".join(list_files(remote)))
    finally:
        broker.close()


def main() -> None:
    """Write the archive that the command line names."""
    with tempfile.TemporaryDirectory(prefix="eoctl-tiered-") as name:
        work = Path(name)
        capture(work)
        with tarfile.open(sys.argv[1], "w:xz", preset=9) as archive:
            for state in ("crash", "clean", "remote.txt"):
                archive.add(work / state, state)


if __name__ == "__main__":
    main()
