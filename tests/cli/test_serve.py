"""`eoctl serve`: what any client is given is what `eoctl consume` and a real broker give."""

from __future__ import annotations

import base64
import json
import socket
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.clients.log.consumer import ConsumeOptions, Consumer
from eoctl.serve.answers.refusals import UNOFFERED
from eoctl.serve.connection import ANSWERS
from eoctl.serve.protocol.messages import apis
from recovery.transactions.isolation import Isolation
from storage.formats.message import decode
from storage.log.segment import open_segment
from tests import wire
from tests.kafka import client
from tests.serving import Served
from tests.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

ISOLATIONS = ("read_uncommitted", "read_committed")
CORRUPT_MESSAGE, STORAGE_ERROR = 2, 56


@pytest.fixture(scope="module")
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


@pytest.fixture(scope="module")
def served(clean: Path) -> Iterator[Served]:
    """A log dir that a real broker had stopped in, with its internal topics."""
    with Served(clean, "--internal") as found:
        yield found


def digests(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): (sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def consumed(path: Path, isolation: str, *, skips: bool = False) -> list[tuple[Any, ...]]:
    """What `eoctl consume` gives of a partition: offset, key, value."""
    options = ConsumeOptions(isolation=Isolation(isolation), skip_corrupt=skips)
    consumer = Consumer(str(path), options, lambda _: None)
    consumer.start()
    found: list[tuple[Any, ...]] = []
    for records in consumer.records():
        if records is not None:
            got = records.lists()
            keys, values = map(text, got.keys), map(text, got.values)
            found += zip(got.offsets, keys, values, strict=True)
    return found


def records_of(
    batches: list[wire.Batch], aborted: set[tuple[int, int]], tmp_path: Path
) -> list[tuple[Any, ...]]:
    """What a client makes of batches: those of aborted transactions are hidden."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(each.data for each in batches))
    found, hidden = [], set()
    firsts = sorted((first, producer_id) for producer_id, first in aborted)
    with open_segment(path, base_offset=None) as segment:
        for batch in segment.scan(verify_crc=True):
            header = batch.header
            assert batch.crc_ok
            while firsts and firsts[0][0] <= header.last_offset:
                hidden.add(firsts.pop(0)[1])
            if header.is_control:
                hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                found += [(each.offset, text(each.key), text(each.value))
                          for each in segment.records(batch)]  # fmt: skip
    return found


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


# --- the same as a real broker, and as consume


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", ["plain-0", "txn-0", "txn-1", "idem-zstd-0", "compacted-0",
                                  "append-time-0", "many-producers-0"])  # fmt: skip
@pytest.mark.share(5)
def test_librdkafka_is_given_what_a_real_broker_gave(
    served: Served, golden: Callable[[str], Path], name: str, isolation: str
) -> None:
    (path,) = golden("kafka-4.3.1-clean.consumed").rglob(f"{name}.{isolation}.jsonl")
    about, *rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    topic, _, number = name.rpartition("-")
    found = client.consume(served.bootstrap, topic, int(number), isolation=isolation)
    assert found.log_start_offset == about["log_start_offset"]
    assert found.end_offset == about["high_watermark"]
    assert [
        (each.offset, each.timestamp_ms, text(each.key), text(each.value)) for each in found.records
    ] == [(row["offset"], row["timestamp_ms"], row["key"], row["value"]) for row in rows]


@pytest.mark.share(2)
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("state", ["clean", "crash", "hard", "tv2"])
def test_what_is_served_is_what_consume_gives(
    golden: Callable[[str], Path], tmp_path: Path, state: str, isolation: str
) -> None:
    log_dir = golden("kafka-4.3.1") / state
    names = [each.name for each in sorted(log_dir.glob("*-[0-9]*")) if each.name[0] != "_"]
    # In the log of `hard` offsets are absent, which may have held end markers.
    skips = state == "hard"
    options = ("--on-damage", "skip") if skips else ()
    with Served(log_dir, *options) as served, Wire(served.bootstrap) as connection:
        for name in names:
            topic, _, number = name.rpartition("-")
            batches, aborted, _ = wire.fetch_all(
                connection, topic, int(number), is_committed=isolation == "read_committed",
                max_bytes=4096,
            )  # fmt: skip
            given = records_of(batches, aborted, tmp_path)
            assert given == consumed(log_dir / name, isolation, skips=skips), name


def test_bytes_are_those_of_the_files(served: Served, clean: Path) -> None:
    with Wire(served.bootstrap) as connection:
        batches, _, _ = wire.fetch_all(connection, "rolled", 0)
    files = b"".join(each.read_bytes() for each in sorted((clean / "rolled-0").glob("*.log")))
    assert b"".join(each.data for each in batches) == files


def test_nothing_is_written(golden: Callable[[str], Path], tmp_path: Path) -> None:
    clean = golden("kafka-4.3.1") / "clean"
    before = digests(clean)
    with Served(clean, "--internal", "--verify") as served, Wire(served.bootstrap) as connection:
        for topic in ("txn", "plain", "__consumer_offsets"):
            wire.fetch_all(connection, topic, 0, is_committed=True)
        connection.ask("OffsetFetch", 7, {"groupId": "x", "topics": None})
        connection.ask("ListTransactions", 1, {})
        ended = served.stop()
    assert ended.status == 130
    assert digests(clean) == before


def test_isolation_floor_leaves_out_what_was_aborted(clean: Path, tmp_path: Path) -> None:
    with Served(clean, "--isolation-floor") as served, Wire(served.bootstrap) as connection:
        batches, aborted, last = wire.fetch_all(connection, "txn", 0)
        assert not aborted
        assert last["highWatermark"] == 311
        assert wire.list_offset(connection, "txn", 0, -1)["offset"] == 311
    given = records_of(batches, set(), tmp_path)
    assert given == consumed(clean / "txn-0", "read_committed")


def test_a_checkpoint_that_cannot_be_read_is_lacking(killed: Path, eoctl: Eoctl) -> None:
    """All is served; how far consumers had seen it is known to nobody."""
    (killed / "replication-offset-checkpoint").write_bytes(b"\0garbage\n")
    done = eoctl("serve", killed, "--for-seconds", "0.1")
    assert "replication-offset-checkpoint" in done.errors
    assert done.status == 5


def test_until_hw_ends_at_the_checkpoint(killed: Path, eoctl: Eoctl) -> None:
    checkpoint = killed / "replication-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()
    lines = ["plain 0 57" if each.startswith("plain 0 ") else each for each in lines]
    checkpoint.write_text("\n".join(lines) + "\n")
    with Served(killed) as served, Wire(served.bootstrap) as connection:
        whole = wire.list_offset(connection, "plain", 0, -1)["offset"]
    done = eoctl("serve", killed, "--for-seconds", 0)
    assert "above the checkpointed high watermark are offered, of plain-0" in done.errors
    with Served(killed, "--until", "hw") as served, Wire(served.bootstrap) as connection:
        batches, _, last = wire.fetch_all(connection, "plain", 0)
        assert last["highWatermark"] == 57 < whole
        assert batches[-1].header.last_offset < 57
        assert wire.list_offset(connection, "plain", 0, -1)["offset"] == 57


# --- damage


def damage(path: Path, offset: int) -> int:
    """Flip a byte of the records of the batch with an offset; returns its last offset."""
    with open_segment(path) as segment:
        batch = next(each for each in segment.scan() if each.header.last_offset >= offset)
    data = bytearray(path.read_bytes())
    data[batch.pos + batch.header.batch_bytes - 1] ^= 0x55
    path.write_bytes(data)
    return batch.header.last_offset


def test_damage_stops_a_client_with_its_own_error(kafka: Path) -> None:
    log = kafka / "plain-0" / f"{0:020d}.log"
    last = damage(log, 50)
    with Served(kafka) as served, Wire(served.bootstrap) as connection:
        batches, _, answer = wire.fetch_all(connection, "plain", 0)
        assert answer["errorCode"] == CORRUPT_MESSAGE
        first = batches[-1].header.last_offset + 1
        assert first <= 50 <= last
        assert wire.fetch(connection, "plain", 0, last + 1)["errorCode"] == 0
        ended = served.stop()
    assert "plain-0: not given" in ended.stderr
    assert "; 1 damaged place met" in ended.stderr


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_past_damage_it_is_what_consume_gives(kafka: Path, tmp_path: Path, isolation: str) -> None:
    path = kafka / "txn-0"
    for offset in (40, 41, 150):
        damage(path / f"{0:020d}.log", offset)
    with Served(kafka, "--on-damage", "skip") as served, Wire(served.bootstrap) as connection:
        batches, aborted, _ = wire.fetch_all(
            connection, "txn", 0, is_committed=isolation == "read_committed"
        )
        ended = served.stop()
    given = records_of(batches, aborted, tmp_path)
    assert given == consumed(path, isolation, skips=True)
    assert "skipped" in ended.stderr


def test_a_batch_with_a_wrong_magic_is_given_as_it_should_be(kafka: Path, tmp_path: Path) -> None:
    log = kafka / "plain-0" / f"{0:020d}.log"
    with open_segment(log) as segment:
        batch = list(segment.scan())[3]
    data = bytearray(log.read_bytes())
    data[batch.pos + 16] = 7
    log.write_bytes(data)
    with Served(kafka) as served, Wire(served.bootstrap) as connection:
        batches, _, _ = wire.fetch_all(connection, "plain", 0)
        served.stop()
    given = records_of(batches, set(), tmp_path)
    assert given == consumed(kafka / "plain-0", "read_uncommitted")


def test_missing_offsets_are_told_and_decide_the_status(kafka: Path, eoctl: Eoctl) -> None:
    log = kafka / "plain-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:2000])
    done = eoctl("serve", kafka, "--for-seconds", 0.2, "--verify", "--output", "jsonl")
    assert done.status == 5
    rows = [json.loads(line) for line in done.text.splitlines()]
    assert rows[0]["kind"] == "bootstrap"
    row = next(each for each in rows if each.get("topic") == "plain" and each["partition"] == 0)
    assert row["end_offset"] < row["high_watermark"]
    assert "are missing" in done.errors


# --- other directories


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["v0-none-0", "v0-gzip-0", "v1-snappy-0", "v1-lz4-0"])
def test_old_message_formats_are_read_by_librdkafka(
    golden: Callable[[str], Path], legacy: Served, name: str
) -> None:
    directory = golden("kafka-0.10.2-legacy") / name
    topic = name.removesuffix("-0")
    found = client.consume(legacy.bootstrap, topic, 0, isolation="read_uncommitted")
    given = [(each.offset, text(each.key), text(each.value)) for each in found.records]
    assert given == consumed(directory, "read_uncommitted")


@pytest.fixture(scope="module")
def legacy(golden: Callable[[str], Path]) -> Iterator[Served]:
    with Served(golden("kafka-0.10.2-legacy")) as found:
        yield found


def test_where_copies_part_nothing_above_is_served(diverged: Path) -> None:
    dirs = [diverged / f"broker-{each}" for each in (1, 2, 3)]
    with Served(*dirs) as served, Wire(served.bootstrap) as connection:
        batches, _, last = wire.fetch_all(connection, "div", 0)
        assert last["highWatermark"] == 36
        assert batches[-1].header.last_offset == 35
        ended = served.stop()
    assert "diverge at offset 36" in ended.stderr
    for each in dirs[:2]:
        with Served(*dirs, "--diverged", each) as served, Wire(served.bootstrap) as connection:
            batches, _, _ = wire.fetch_all(connection, "div", 0)
        files = b"".join(path.read_bytes() for path in sorted((each / "div-0").glob("*.log")))
        given = b"".join(batch.data for batch in batches)
        assert given == files[: len(given)]
        assert batches[-1].header.last_offset > 36


def test_copies_that_agree_are_served_to_the_furthest_end(golden: Callable[[str], Path]) -> None:
    dirs = [golden("kafka-4.3.1-three-brokers") / "after" / f"broker-{each}" for each in (1, 2, 3)]
    with Served(*dirs) as served, Wire(served.bootstrap) as connection:
        _, _, last = wire.fetch_all(connection, "div", 0)
        ended = served.stop()
    assert last["highWatermark"] > 36
    assert "diverge at offset" not in ended.stderr


# --- the protocol


def test_every_version_of_every_api_is_answered(served: Served) -> None:
    """With an empty body: never by a closed connection, and in its own shape."""
    with Wire(served.bootstrap) as connection:
        for key, api in apis().items():
            if key not in ANSWERS:
                continue
            for version in range(api.first_version, api.last_version + 1):
                body = api.request.codec(version).default()
                if api.name == "Produce":
                    body["acks"] = 1
                if api.name == "DescribeAcls":  # 0 stands for UNKNOWN, which a broker cuts off
                    body |= dict.fromkeys(
                        ("resourceTypeFilter", "patternTypeFilter", "operation", "permissionType"),
                        1,
                    )
                assert connection.ask(api.name, version, body) is not None, (api.name, version)


def test_an_unknown_version_of_api_versions_is_answered_as_the_first(served: Served) -> None:
    api = wire.api_named("ApiVersions")
    with Wire(served.bootstrap) as connection:
        request = bytearray(wire.encoded(api, 4, {}))
        request[2:4] = (99).to_bytes(2, "big")
        connection.send(bytes(request))
        found = decode(api.response, 0, connection.receive(), 4)[0]
        assert found["errorCode"] == 35
        assert {each["apiKey"] for each in found["apiKeys"]} == {*ANSWERS} - {*UNOFFERED}
        connection.send(wire.encoded(api, 0, {}))
        assert connection.receive()


def test_what_would_write_is_refused_by_name(served: Served) -> None:
    record = {"index": 0, "records": b"x"}
    with Wire(served.bootstrap) as connection:
        answer = connection.ask(
            "Produce", 9,
            {"acks": -1, "timeoutMs": 1, "topicData": [{"name": "txn", "partitionData": [record]}]},
        )  # fmt: skip
        refused = answer["responses"][0]["partitionResponses"][0]
        assert (refused["errorCode"], refused["baseOffset"]) == (29, -1)
        answer = connection.ask("CreateTopics", 7, {"topics": [{"name": "new"}]})
        assert answer["topics"][0]["errorCode"] == 44
        answer = connection.ask("InitProducerId", 4, {"transactionalId": "t"})
        assert answer["errorCode"] == 53
        answer = connection.ask("IncrementalAlterConfigs", 1, {"resources": [
            {"resourceType": 2, "resourceName": "txn", "configs": []}]})  # fmt: skip
        assert answer["responses"][0]["errorCode"] == 44


def test_metadata_never_shows_the_clusters_own_log(served: Served) -> None:
    with Wire(served.bootstrap) as connection:
        names = {each["name"] for each in connection.ask("Metadata", 9, {"topics": None})["topics"]}
        assert "__consumer_offsets" in names
        assert "__cluster_metadata" not in names
        assert wire.fetch(connection, "__cluster_metadata", 0, 0)["errorCode"] == 3


def test_a_request_of_two_gibibytes_is_cut_off(served: Served) -> None:
    with Wire(served.bootstrap) as connection:
        connection.socket.sendall((0x7FFFFFFF).to_bytes(4, "big") + b"x" * 100)
        with pytest.raises((EOFError, ConnectionError)):
            connection.receive()
    with Wire(served.bootstrap) as connection:
        assert connection.ask("ApiVersions", 0)["errorCode"] == 0


def test_the_end_is_waited_for(served: Served) -> None:
    body = {
        "maxWaitMs": 300, "minBytes": 1, "isolationLevel": 0,
        "topics": [{"topic": "plain", "partitions": [
            {"partition": 0, "fetchOffset": 179, "partitionMaxBytes": 1000}]}],
    }  # fmt: skip
    with Wire(served.bootstrap, timeout_s=0.2) as connection, pytest.raises(TimeoutError):
        connection.ask("Fetch", 12, body)
    with Wire(served.bootstrap) as connection:
        (answer,) = connection.ask("Fetch", 12, body)["responses"][0]["partitions"]
        assert (answer["errorCode"], answer["records"]) == (0, b"")


def test_fetch_by_topic_id(served: Served) -> None:
    with Wire(served.bootstrap) as connection:
        topics = connection.ask("Metadata", 12, {"topics": None})["topics"]
        topic_id = next(each["topicId"] for each in topics if each["name"] == "plain")
        asked = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 100}
        for wanted, code in ((topic_id, 0), (b"\x07" * 16, 100)):
            answer = connection.ask("Fetch", 17, {
                "minBytes": 0, "topics": [{"topicId": wanted, "partitions": [asked]}]})  # fmt: skip
            (found,) = answer["responses"][0]["partitions"]
            assert found["errorCode"] == code
            assert bool(found["records"]) == (code == 0)  # one batch at least


# --- groups


def test_members_of_a_group_share_partitions_and_commit(clean: Path, tmp_path: Path) -> None:
    saved = tmp_path / "commits.jsonl"
    with Served(clean, "--offsets-to", saved) as served:
        assert client.join_group(served.bootstrap, "new", "txn") > 0
        assert client.committed_offset(served.bootstrap, "new", "txn", 0) == 311
        client.commit_offsets(served.bootstrap, "other", {("plain", 1): 7})
        assert client.committed_offset(served.bootstrap, "other", "plain", 1) == 7
        ended = served.stop()
    assert ended.status == 130
    rows = [json.loads(line) for line in saved.read_text().splitlines()]
    assert {"group": "other", "topic": "plain", "partition": 1, "offset": 7}.items() <= rows[
        -1
    ].items()


# --- how it is called


def test_the_port_and_the_address(clean: Path, eoctl: Eoctl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = eoctl("serve", clean, "--listen", f"127.0.0.1:{port}")
        assert done.status == 3
        assert str(port) in done.errors
    done = eoctl("serve", clean, "--listen", "0.0.0.0:0")
    assert done.status == 4
    assert "--allow-remote" in done.errors
    for wrong in ("nonsense", "127.0.0.1:99999", ":9092"):
        assert eoctl("serve", clean, "--listen", wrong).status == 2
    done = eoctl("serve", clean, "--listen", "0.0.0.0:0", "--allow-remote", "--for-seconds", 0.1)
    assert done.status == 0


def test_what_cannot_be_served(tmp_path: Path, clean: Path, eoctl: Eoctl) -> None:
    assert eoctl("serve").status == 2
    assert eoctl("serve", tmp_path).status == 3
    assert eoctl("serve", tmp_path / "absent").status == 3
    done = eoctl("serve", clean, "--topic", "nothing*")
    assert done.status == 2
    assert "nothing to serve" in done.errors
    done = eoctl("serve", clean, "--offsets-to", clean / "commits")
    assert done.status == 4


def test_a_partition_directory_alone_is_served(clean: Path, eoctl: Eoctl) -> None:
    done = eoctl("serve", clean / "plain-0", "--for-seconds", 0.1, "--output", "jsonl")
    assert done.status == 0
    rows = [json.loads(line) for line in done.text.splitlines()]
    assert [(row["topic"], row["partition"]) for row in rows[1:]] == [("plain", 0)]
