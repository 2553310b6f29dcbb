"""The log of producer ids under a real broker: kept where the topic is known, else set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from storage.formats.producer_id_record import FIRST_ID, parse_record
from storage.writing import producer_ids
from storage.writing.producer_ids import DIRECTORY_NAME
from tests.changes import rows_of
from tests.kafka import client
from tests.kafka.broker import Broker
from tests.kafka.dump import dump_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

TOPIC = "__eoctl_producer_ids"
COMPACTED = {TOPIC: (1, {"cleanup.policy": "compact"})}
EXPIRY = ("--expiry-ms", 10**12)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "log-dir"


@pytest.fixture
def acquire(eoctl: Callable[..., Outcome], log_dir: Path) -> Callable[..., dict[str, Any]]:
    def call(app: str, *more: object) -> dict[str, Any]:
        where = ("--app-id", app, *EXPIRY, *more, "--output", "jsonl")
        found = eoctl("lease-pid", "acquire", log_dir, *where)
        assert found.status == 0, found.errors
        (row,) = rows_of(found, "lease")
        return row

    return call


def consumed(broker: Broker) -> list[tuple[Any, Any]]:
    """What a client reads; each is a record of ours."""
    found = client.consume(broker.bootstrap, TOPIC, 0, isolation=client.READ_UNCOMMITTED)
    for each in found.records:
        parse_record(each.key, each.value)
    return [
        (msgpack.unpackb(each.key or b""), each.value and msgpack.unpackb(each.value))
        for each in found.records
    ]


@pytest.mark.exhaustive
def test_a_broker_keeps_it_and_we_go_on(
    acquire: Callable[..., dict[str, Any]],
    eoctl: Callable[..., Outcome],
    log_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ours, the broker's start and stop, ours again, a rewrite, a crash of the broker."""
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {**COMPACTED, "t": (1, {})})
        sent = [client.Outgoing("t", 0, None, b"value")]
        client.send(client.producer(broker.bootstrap, enable_idempotence=True), sent)
        beside = eoctl("lease-pid", "acquire", log_dir, "--app-id", "a", *EXPIRY, "--wait-ms", 1)
        assert beside.status == 4
        assert f"process {broker.pid} holds the lock" in beside.errors
    assert acquire("a", "--topic", "t", "--partition", 0)["producer_id"] == FIRST_ID
    assert acquire("b")["producer_id"] == FIRST_ID + 1
    with Broker(log_dir) as broker:
        (ids, a, _, b) = consumed(broker)
        assert ids[0] == ["ids"]
        assert (a[0], a[1]["generation"], b[0]) == (["lease", "a"], 0, ["lease", "b"])
        # Its controller is far below.
        client.send(client.producer(broker.bootstrap, enable_idempotence=True), sent)
    assert acquire("a", "--topic", "t", "--partition", 0)["generation"] == 1
    listed = rows_of(eoctl("lease-pid", "list", log_dir, "--output", "jsonl"), "lease")
    assert [(each["app_id"], each["generation"]) for each in listed] == [("a", 1), ("b", 0)]
    checked = eoctl("check", log_dir, "--deep")
    assert checked.status == 0, checked.text
    monkeypatch.setattr(producer_ids, "COMPACT_BYTES", 0)
    monkeypatch.setattr(producer_ids, "COMPACT_RATIO", 0)
    assert acquire("a")["generation"] == 2
    (log,) = (log_dir / DIRECTORY_NAME).glob("*.log")
    base_offset = int(log.stem)
    assert base_offset > 0
    dumped = dump_log([log], "--print-data-log")
    assert dumped.returncode == 0
    assert b"isvalid: true" in dumped.stdout
    assert dumped.stdout.count(b"| offset: ") == 5
    broker = Broker(log_dir).start()
    try:
        found = client.consume(broker.bootstrap, TOPIC, 0, isolation=client.READ_UNCOMMITTED)
        assert (found.log_start_offset, found.end_offset) == (base_offset, base_offset + 5)
        assert [key for key, _ in consumed(broker)][-2:] == [["floor"], ["lease", "a"]]
        assert "stray" not in " ".join(broker.log_lines(DIRECTORY_NAME))
        broker.kill()
    finally:
        broker.close()
    assert acquire("b")["generation"] == 1
    assert acquire("c")["producer_id"] == FIRST_ID + 2


@pytest.mark.exhaustive
def test_the_holder_writes_and_the_broker_fences(
    acquire: Callable[..., dict[str, Any]],
    eoctl: Callable[..., Outcome],
    log_dir: Path,
    tmp_path: Path,
) -> None:
    """The producer state that a broker recovers has the generation of the lease."""
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {**COMPACTED, "t": (1, {})})
    (tmp_path / "input").write_bytes(b"line\n" * 3)
    partition = ("--topic", "t", "--partition", 0)
    for generation in (0, 1):
        assert acquire("a", *partition)["generation"] == generation
        done = eoctl("produce", log_dir / "t-0", tmp_path / "input", "--apply", "--lease", "a")
        assert done.status == 0, done.errors
    with Broker(log_dir) as broker:
        found = client.consume(broker.bootstrap, "t", 0, isolation=client.READ_UNCOMMITTED)
        assert len(found.records) == 6
    (snapshot,) = dump_log(sorted((log_dir / "t-0").glob("*.snapshot"))[-1:]).stdout.splitlines()[
        1:2
    ]
    assert f"producerId: {FIRST_ID} producerEpoch: 1".encode() in snapshot


@pytest.mark.exhaustive
def test_a_topic_that_the_cluster_does_not_know_is_set_aside(
    acquire: Callable[..., dict[str, Any]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    """And put back as the man page says."""
    with Broker(log_dir):
        pass
    call = ("lease-pid", "acquire", log_dir, "--app-id", "a", *EXPIRY)
    refused = eoctl(*call)
    assert refused.status == 4
    assert "kafka-topics.sh --create" in refused.errors
    unknown = ("--topic-id", "AAECAwQFBgcICQoLDA0ODw", "--single-copy")
    assert acquire("a", *unknown)["generation"] == 0
    with Broker(log_dir) as broker:
        assert not (log_dir / DIRECTORY_NAME).exists()
        client.create_topics(broker.bootstrap, COMPACTED)
    (aside,) = log_dir.glob(f"{DIRECTORY_NAME}.*-stray")
    refused = eoctl(*call)
    assert refused.status == 4
    assert "a broker has set the producer ids aside" in refused.errors
    for path in (log_dir / DIRECTORY_NAME).iterdir():
        path.unlink()
    (log_dir / DIRECTORY_NAME).rmdir()
    (aside / "partition.metadata").unlink()
    aside.rename(log_dir / DIRECTORY_NAME)
    assert acquire("a")["generation"] == 1
    with Broker(log_dir) as broker:
        assert len(consumed(broker)) == 3


@pytest.mark.exhaustive
def test_a_topic_that_is_not_compacted_is_refused(
    eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    with Broker(log_dir) as broker:
        client.create_topics(broker.bootstrap, {TOPIC: (1, {})})
    refused = eoctl("lease-pid", "acquire", log_dir, "--app-id", "a", *EXPIRY)
    assert refused.status == 4
    assert "its cleanup.policy is delete" in refused.errors
    assert "--add-config cleanup.policy=compact" in refused.errors
