"""The cluster's state replayed from real metadata logs, and from records made for the purpose."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from storage.dirs.cluster_image import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionImage,
    load_cluster_image,
)
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import CorruptError
from storage.formats import cluster_metadata as records
from storage.formats.cluster_metadata import MetadataRecord, encode_record, parse_record
from storage.formats.partition_metadata import parse_partition_metadata
from tests import metadata_logs
from tests.metadata_logs import batch, leader_change, level, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))
DIRECTORY = b"d" * 16


def image_of(path: Path) -> ClusterImage:
    (selected,) = discover([path]).selected
    return load_cluster_image(Partition.of(selected))


def metadata_of(log_dir: Path) -> ClusterImage:
    return image_of(log_dir / "__cluster_metadata-0")


def test_one_node(golden: Callable[[str], Path]) -> None:
    log_dir = golden("kafka-4.3.1") / "crash"
    image = metadata_of(log_dir)
    assert image.is_complete
    assert image.end_offset == 209
    assert image.replication_factor("txn", 1) == 1
    assert image.replication_factor("txn", 2) is None
    assert image.replication_factor("no-such-topic", 0) is None
    assert image.topic_config("plain", "index.interval.bytes") == "512"
    assert image.topic_config("idem-zstd", "index.interval.bytes") == "1024"
    assert image.topic_config("plain", "segment.bytes") == "1048576"
    assert image.topic_config("compacted", "cleanup.policy") == "compact"
    assert image.topic_config("many-producers", "segment.bytes") is None
    assert image.topic_config("no-such-topic", "segment.bytes") is None
    assert image.broker_config("min.insync.replicas", broker_id=1) == "1"
    assert image.features["metadata.version"] == 30
    assert list(image.brokers) == [1]
    assert image.next_producer_id is not None
    assert image.next_producer_id > 42  # the ids in the topics are below it


@pytest.mark.parametrize("state", ["crash", "clean", "tv2-clean"])
def test_topic_ids_are_those_of_the_partitions(golden: Callable[[str], Path], state: str) -> None:
    log_dir = golden("kafka-4.3.1") / state
    image = metadata_of(log_dir)
    checked = 0
    for selected in discover([log_dir]).selected:
        name = selected.partition.name
        if name.topic == "__cluster_metadata":
            continue
        data = (
            log_dir / str(selected.partition.topic_partition) / "partition.metadata"
        ).read_bytes()
        topic = image.topics[name.topic]
        assert topic.topic_id == parse_partition_metadata(data).topic_id
        assert image.topic_by_id(topic.topic_id) is topic
        assert selected.log_dir is not None
        assert selected.log_dir.meta is not None
        assert topic.partitions[name.partition].directories == (selected.log_dir.meta.directory_id,)
        checked += 1
    assert checked > 20


def test_later_life(golden: Callable[[str], Path]) -> None:
    image = metadata_of(golden("kafka-4.3.1") / "tv2-clean")
    assert image.features["transaction.version"] == 2
    assert image.topic_config("c2", "delete.retention.ms") == "4000"
    partition = image.topics["plain"].partitions[0]
    # The node was stopped: nobody leads, and that was a change of leader too.
    assert (partition.leader, partition.leader_epoch) == (-1, 9)
    assert image.brokers[1].is_fenced


def test_three_nodes(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-three-brokers")
    for state in ("diverged", "after"):
        for node in (1, 2, 3):
            image = metadata_of(root / state / f"broker-{node}")
            assert image.is_complete
            assert image.replication_factor("div", 0) == 3
            assert sorted(image.brokers) == [1, 2, 3]
            partition = image.partition("div", 0)
            assert partition is not None
            assert partition.replicas == (1, 2, 3)


@pytest.mark.parametrize(
    ("node", "leader", "epochs", "fenced"),
    [(1, 1, (0, 2), {1: False, 2: True, 3: True}), (2, 2, (1, 3), {1: True, 2: False, 3: True})],
)
def test_who_led_and_was_in_sync(
    golden: Callable[[str], Path],
    node: int,
    leader: int,
    epochs: tuple[int, int],
    fenced: dict[int, bool],
) -> None:
    root = golden("kafka-4.3.1-three-brokers")
    image = metadata_of(root / "diverged" / f"broker-{node}")
    found = image.partition("div", 0)
    assert found is not None
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (leader, (leader,), (), ())
    assert (found.leader_epoch, found.partition_epoch) == epochs
    assert {each.broker_id: each.is_fenced for each in image.brokers.values()} == fenced
    of_broker = image.brokers[node]
    assert found.directories[node - 1 : node] == of_broker.log_dirs
    assert [(each.name, each.host) for each in of_broker.endpoints] == [("PLAINTEXT", "127.0.0.1")]
    assert list(image.controllers) == [100]


# --- record by record -----------------------------------------------------------------------------


def record(api_key: int, version: int = 0, **data: Any) -> MetadataRecord:
    return parse_record(encode_record(api_key, version, data))


def topic(name: str, topic_id: bytes) -> MetadataRecord:
    return record(records.TOPIC, name=name, topicId=topic_id)


def partition(topic_id: bytes, replicas: list[int], **data: Any) -> MetadataRecord:
    fields = {"partitionId": 0, "isr": replicas, "leader": replicas[0], "leaderEpoch": 3}
    fields |= {"partitionEpoch": 5, "topicId": topic_id, "replicas": replicas}
    return record(records.PARTITION, 1, **(fields | data))


def replay(*all_records: MetadataRecord) -> ClusterImage:
    image = ClusterImage()
    for each in all_records:
        image.replay(each)
    return image


def config(value: str | None, *, name: str = "t", resource_type: int = 2) -> MetadataRecord:
    return record(
        records.CONFIG, resourceType=resource_type, resourceName=name, name="k", value=value
    )


def test_partition_changes() -> None:
    image = replay(
        topic("t", TOPIC_ID),
        partition(TOPIC_ID, [1, 2], directories=[DIRECTORY, DIRECTORY]),
        record(records.PARTITION_CHANGE, 1, partitionId=0, topicId=TOPIC_ID, isr=[2], leader=2),
    )
    found = image.partition("t", 0)
    assert found is not None
    assert found.replicas == (1, 2)
    assert found.isr == (2,)
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (2, 4, 6)
    assert found.directories == (DIRECTORY, DIRECTORY)
    image.replay(
        record(records.PARTITION_CHANGE, 1, partitionId=0, topicId=TOPIC_ID, replicas=[1, 2, 3])
    )
    found = image.partition("t", 0)
    assert found is not None
    assert image.replication_factor("t", 0) == 3
    assert (found.leader, found.leader_epoch) == (2, 4)
    assert found.directories == (bytes(16),) * 3  # not told: as the broker, not assigned


def elr_change(**changes: Any) -> MetadataRecord:
    return record(records.PARTITION_CHANGE, 2, partitionId=0, topicId=TOPIC_ID, **changes)


def test_eligible_leader_replicas() -> None:
    image = replay(
        topic("t", TOPIC_ID),
        partition(TOPIC_ID, [1, 2, 3]),
        elr_change(isr=[3], leader=3, eligibleLeaderReplicas=[1, 2]),
    )

    def found() -> PartitionImage:
        value = image.partition("t", 0)
        assert value is not None
        return value

    assert (found().isr, found().elr, found().last_known_elr) == ((3,), (1, 2), ())
    image.replay(elr_change(isr=[], leader=-1, eligibleLeaderReplicas=[1], lastKnownElr=[3]))
    assert (found().isr, found().elr, found().last_known_elr) == ((), (1,), (3,))
    # A change that says nothing of them leaves them; one of an older version knows none.
    image.replay(elr_change(leader=2, isr=[2], leaderRecoveryState=1))
    assert (found().elr, found().last_known_elr, found().is_recovering) == ((1,), (3,), True)
    epochs = (found().leader_epoch, found().partition_epoch)
    image.replay(record(records.CLEAR_ELR, topicName="other"))
    assert (found().elr, found().partition_epoch) == ((1,), epochs[1])
    image.replay(record(records.CLEAR_ELR, topicName=""))
    assert (found().elr, found().last_known_elr, found().is_recovering) == ((), (), True)
    assert (found().leader_epoch, found().partition_epoch) == (epochs[0], epochs[1] + 1)
    image.replay(record(records.CLEAR_ELR, topicName="t"))  # nothing to clear: no change
    assert found().partition_epoch == epochs[1] + 1
    image.replay(elr_change(leaderRecoveryState=0))
    assert not found().is_recovering


def test_a_partition_with_eligible_leader_replicas() -> None:
    made = {
        "topicId": TOPIC_ID,
        "replicas": [1, 2],
        "eligibleLeaderReplicas": [2],
        "partitionId": 0,
    }
    image = replay(topic("t", TOPIC_ID), record(records.PARTITION, 2, lastKnownElr=[1], **made))
    found = image.partition("t", 0)
    assert found is not None
    assert (found.elr, found.last_known_elr, found.isr, found.leader) == ((2,), (1,), (), -1)


def test_a_controller_that_was_unregistered_is_gone() -> None:
    registered = [
        record(records.REGISTER_CONTROLLER, controllerId=each, endPoints=[], features=[])
        for each in (8, 9)
    ]
    image = replay(*registered, record(records.UNREGISTER_CONTROLLER, controllerId=8))
    assert sorted(image.controllers) == [9]
    image.replay(record(records.UNREGISTER_CONTROLLER, controllerId=7))  # was never there
    assert sorted(image.controllers) == [9]
    assert image.is_complete


def test_access_control_entries_and_credentials() -> None:
    image = ClusterImage()
    first, second = ({"id": bytes([each]) * 16, "resourceName": str(each)} for each in (1, 2))
    for each in (first, second):
        image.replay(record(records.ACCESS_CONTROL_ENTRY, **each))
    image.replay(record(records.REMOVE_ACCESS_CONTROL_ENTRY, id=first["id"]))
    assert [(each, acl["resourceName"]) for each, acl in image.acls.items()] == [
        (second["id"], "2")
    ]
    for name, mechanism, iterations in (("a", 1, 4096), ("a", 2, 5000), ("b", 1, 1), ("a", 1, 9)):
        fields = {"name": name, "mechanism": mechanism, "iterations": iterations}
        image.replay(record(records.USER_SCRAM_CREDENTIAL, **fields))
    image.replay(record(records.REMOVE_USER_SCRAM_CREDENTIAL, name="b", mechanism=1))
    assert image.scram_iterations == {("a", 1): 9, ("a", 2): 5000}


def test_the_way_of_a_broker() -> None:
    registered = record(
        records.REGISTER_BROKER,
        4,
        brokerId=1,
        brokerEpoch=7,
        incarnationId=OTHER_ID,
        rack=None,
        fenced=True,
        logDirs=[DIRECTORY],
        endPoints=[{"name": "P", "host": "h", "port": 9092, "securityProtocol": 0}],
        features=[{"name": "f", "minSupportedVersion": 1, "maxSupportedVersion": 3}],
    )
    image = replay(registered, record(records.UNFENCE_BROKER, id=1, epoch=7))
    assert image.brokers[1] == BrokerImage(
        broker_id=1,
        broker_epoch=7,
        is_fenced=False,
        rack=None,
        log_dirs=(DIRECTORY,),
        incarnation_id=OTHER_ID,
        endpoints=(Endpoint("P", "h", 9092),),
        features=(("f", 1, 3),),
    )
    change = records.BROKER_REGISTRATION_CHANGE
    image.replay(record(change, 1, brokerId=1, brokerEpoch=7, inControlledShutdown=1))
    image.replay(record(change, 3, brokerId=1, brokerEpoch=7, cordonedLogDirs=[DIRECTORY]))
    image.replay(record(records.FENCE_BROKER, id=1, epoch=7))
    broker = image.brokers[1]
    assert (broker.is_fenced, broker.in_controlled_shutdown) == (True, True)
    assert broker.cordoned_log_dirs == (DIRECTORY,)
    image.replay(record(change, 3, brokerId=1, brokerEpoch=7, cordonedLogDirs=[]))
    assert image.brokers[1].cordoned_log_dirs == ()
    image.replay(registered)  # started again
    assert not image.brokers[1].in_controlled_shutdown


def test_a_topic_deleted_and_created_again() -> None:
    image = replay(
        topic("t", TOPIC_ID),
        partition(TOPIC_ID, [1]),
        config("1"),
        record(records.REMOVE_TOPIC, topicId=TOPIC_ID),
    )
    assert image.topics == {}
    assert image.deleted_topics == {TOPIC_ID: "t"}
    assert image.topic_config("t", "k") is None
    image.replay(topic("t", OTHER_ID))
    image.replay(partition(OTHER_ID, [1, 2]))
    assert image.replication_factor("t", 0) == 2
    image.replay(partition(TOPIC_ID, [9]))  # of a topic that is gone
    assert image.replication_factor("t", 0) == 2
    assert image.topic_by_id(TOPIC_ID) is None


def test_settings() -> None:
    image = replay(config("1"), config("2"), config("3", name="", resource_type=4))
    assert image.topic_config("t", "k") == "2"
    assert image.broker_config("k") == "3"
    image.replay(config("4", name="7", resource_type=4))
    assert image.broker_config("k", broker_id=7) == "4"
    assert image.broker_config("k", broker_id=8) == "3"
    image.replay(config(None))
    assert image.topic_config("t", "k") is None


def test_metadata_transactions() -> None:
    begin, end = record(records.BEGIN_TRANSACTION), record(records.END_TRANSACTION)
    abort = record(records.ABORT_TRANSACTION)
    assert replay(begin, config("1"), end).topic_config("t", "k") == "1"
    assert replay(begin, config("1"), abort).topic_config("t", "k") is None
    image = replay(config("0"), begin, config("1"))
    assert image.topic_config("t", "k") == "0"
    assert image.open_transaction_records_count == 1
    image.replay(end)
    assert image.topic_config("t", "k") == "1"


def test_brokers_and_features() -> None:
    image = replay(
        record(records.REGISTER_BROKER, 3, brokerId=1, fenced=True, logDirs=[DIRECTORY], rack="r"),
        record(records.REGISTER_BROKER, 0, brokerId=2, fenced=True),
        record(records.UNFENCE_BROKER, id=2),
        record(records.BROKER_REGISTRATION_CHANGE, 2, brokerId=1, fenced=-1, logDirs=[OTHER_ID]),
        record(records.FEATURE_LEVEL, name="a", featureLevel=2),
        record(records.FEATURE_LEVEL, name="b", featureLevel=2),
        record(records.FEATURE_LEVEL, name="a", featureLevel=0),
        record(records.PRODUCER_IDS, nextProducerId=3000),
    )
    assert (image.brokers[1].is_fenced, image.brokers[1].log_dirs) == (False, (OTHER_ID,))
    assert image.brokers[1].rack == "r"
    assert not image.brokers[2].is_fenced
    assert image.features == {"b": 2}
    assert image.next_producer_id == 3000
    image.replay(record(records.FENCE_BROKER, id=1))
    assert image.brokers[1].is_fenced
    image.replay(record(records.UNREGISTER_BROKER, brokerId=1))
    assert list(image.brokers) == [2]


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def metadata_dir(tmp_path: Path) -> Path:
    path = tmp_path / "__cluster_metadata-0"
    path.mkdir()
    return path


def test_snapshot_then_log(metadata_dir: Path) -> None:
    (metadata_dir / "00000000000000000010-0000000001.checkpoint").write_bytes(
        snapshot(metadata_logs.topic("a", TOPIC_ID), level("f", 1))
    )
    log = metadata_dir / f"{5:020d}.log"
    # Offset 9 is in the snapshot already, 10 is not.
    log.write_bytes(batch(5, [b"junk"] * 4) + batch(9, [level("f", 9), level("g", 2)]))
    image = image_of(metadata_dir)
    assert image.is_complete
    assert list(image.topics) == ["a"]
    assert image.features == {"f": 1, "g": 2}
    assert (image.snapshot_offset, image.end_offset) == (10, 11)


def test_newest_whole_snapshot_counts(metadata_dir: Path) -> None:
    whole = snapshot(metadata_logs.topic("a", TOPIC_ID))
    (metadata_dir / "00000000000000000010-0000000001.checkpoint").write_bytes(whole)
    torn = snapshot(metadata_logs.topic("b", OTHER_ID))[:-70]
    (metadata_dir / "00000000000000000020-0000000001.checkpoint").write_bytes(torn)
    unfinished = metadata_dir / "00000000000000000030-0000000001-77.checkpoint.part"
    unfinished.write_bytes(snapshot(metadata_logs.topic("c", OTHER_ID)))
    (metadata_dir / f"{10:020d}.log").write_bytes(batch(10, [level("f", 1)]))
    image = image_of(metadata_dir)
    assert list(image.topics) == ["a"]
    assert image.features == {"f": 1}
    assert image.snapshot_offset == 10
    (problem,) = image.problems
    assert isinstance(problem, CorruptError)
    assert problem.check_id == "KRF-2"
    assert problem.path == str(metadata_dir / "00000000000000000020-0000000001.checkpoint")


def test_missing_snapshot(metadata_dir: Path) -> None:
    (metadata_dir / f"{10:020d}.log").write_bytes(batch(10, [level("f", 1)]))
    image = image_of(metadata_dir)
    assert image.features == {"f": 1}
    assert not image.is_complete
    (problem,) = image.problems
    assert isinstance(problem, CorruptError)
    assert problem.check_id == "KRF-1"


def test_unknown_and_broken_records_are_counted(metadata_dir: Path) -> None:
    values = [b"\x01\xff\x7f\x00", b"\x00\x02\x00", b"", level("f", 1)]
    (metadata_dir / f"{0:020d}.log").write_bytes(batch(0, values))
    image = image_of(metadata_dir)
    assert image.features == {"f": 1}
    assert image.unknown_records_count == 3
    assert not image.is_complete
    assert [type(each) for each in image.problems] == [CorruptError]


def test_damage_is_a_problem_and_the_rest_counts(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    source = golden("kafka-4.3.1") / "crash" / "__cluster_metadata-0"
    shutil.copytree(source, tmp_path / source.name)
    log = tmp_path / source.name / f"{0:020d}.log"
    log.chmod(0o600)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0x10
    log.write_bytes(data)
    image = image_of(tmp_path / source.name)
    assert not image.is_complete
    assert image.end_offset == 209
    assert {each.check_id for each in image.problems if isinstance(each, CorruptError)} == {"BAT-1"}


def test_a_torn_tail_is_no_problem(metadata_dir: Path) -> None:
    whole = batch(0, [level("f", 1)])
    (metadata_dir / f"{0:020d}.log").write_bytes(whole + batch(1, [level("f", 2)])[:-3])
    image = image_of(metadata_dir)
    assert image.is_complete
    assert image.features == {"f": 1}


def test_empty_directory(metadata_dir: Path) -> None:
    (metadata_dir / "leader-epoch-checkpoint").write_text("0\n0\n")
    image = image_of(metadata_dir)
    assert (image.topics, image.end_offset, image.problems) == ({}, 0, [])


def test_who_votes_is_what_the_quorum_said_last(metadata_dir: Path) -> None:
    (metadata_dir / f"{0:020d}.log").write_bytes(
        leader_change(0, 2, [3, 2, 1], time_ms=1, epoch=1)
        + leader_change(1, 3, [2, 3], time_ms=2, epoch=4)
    )
    image = image_of(metadata_dir)
    assert (image.quorum_leader, image.voters) == (3, (2, 3))
    assert image.is_complete
