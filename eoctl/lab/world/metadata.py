"""The cluster's metadata: the records that a controller writes, and what brokers know by them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.world.leader import Leadership
from recovery.checks.grounds.broker_version import CHECKED, formatted_features
from recovery.elections.rules import ELR_FEATURE
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.dirs.topic_settings import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats import cluster_metadata as records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eoctl.lab.world.settings import PlaySettings
    from storage.file_names import TopicPartition


PARTITION_VERSION = 2
CHANGE_VERSION = 2
REGISTER_VERSION = 3
REGISTRATION_CHANGE_VERSION = 2
FENCED, UNFENCED = 1, -1
RETENTION_MS = "retention.ms"
# As a broker asks for when it makes the topic (TransactionLog.configs), in this order.
TRANSACTION_TOPIC_SETTINGS = {
    "compression.type": "uncompressed",
    "cleanup.policy": "compact",
    MIN_INSYNC_REPLICAS: "1",
    "segment.bytes": str(100 << 20),
    UNCLEAN_LEADER_ELECTION: "false",
}


class Led(NamedTuple):
    """A partition as the controller has it.

    Attributes:
        is_recovering: its leader came by an unclean election and has not asked for anything since.
    """

    leader: int
    leadership: Leadership
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    is_recovering: bool = False


class MetadataView(NamedTuple):
    """What a broker or a client knows of the cluster; a higher version is newer.

    Attributes:
        incarnations: of each broker, the start that it was registered for last.
    """

    version: int
    partitions: Mapping[TopicPartition, Led]
    fenced: frozenset[int]
    min_insync: int
    incarnations: Mapping[int, int]


def derived_id(*parts: object) -> bytes:
    """16 bytes that are the same in every run: of a topic, a log dir, a start of a broker."""
    text = "/".join(map(str, parts)).encode()
    return b"\x10" + sha256(text).digest()[:15]


def first_view(settings: PlaySettings) -> dict[int, Led]:
    """The partitions of a cluster that nothing has happened to yet."""
    return {
        number: Led(
            replicas[0],
            Leadership(replicas=replicas, isr=replicas, leader_epoch=0, partition_epoch=0),
        )
        for number, replicas in enumerate(settings.assignment)
    }


def beginning(
    settings: PlaySettings,
    cluster: str,
    partitions: Mapping[int, Led],
    *,
    min_insync: int,
    is_unclean: bool,
) -> Iterator[bytes]:
    """The records that a controller begins with: features, topic, partitions, settings."""
    for name, level in formatted_features(CHECKED):
        if name != ELR_FEATURE:
            yield _record(records.FEATURE_LEVEL, 0, {"name": name, "featureLevel": level})
    level = 1 if settings.has_elr else 0
    yield _record(records.FEATURE_LEVEL, 0, {"name": ELR_FEATURE, "featureLevel": level})
    topic_id = derived_id(cluster, "topic", settings.topic)
    yield _record(records.TOPIC, 0, {"name": settings.topic, "topicId": topic_id})
    for number, led in partitions.items():
        yield partition_record(led, number, topic_id, cluster)
    yield setting_record(settings.topic, MIN_INSYNC_REPLICAS, str(min_insync))
    yield setting_record(settings.topic, UNCLEAN_LEADER_ELECTION, str(is_unclean).lower())
    # The records have the times of the played clock: a real broker would delete them at once.
    yield setting_record(settings.topic, RETENTION_MS, "-1")


def transaction_topic_id() -> bytes:
    """The topic id of `__transaction_state`."""
    return derived_id("topic", TRANSACTION_STATE_TOPIC)


def transaction_topic(cluster: str, node: int) -> Iterator[bytes]:
    """The records of `__transaction_state`, which one node has alone: with one partition."""
    topic_id = transaction_topic_id()
    yield _record(records.TOPIC, 0, {"name": TRANSACTION_STATE_TOPIC, "topicId": topic_id})
    for key, value in TRANSACTION_TOPIC_SETTINGS.items():
        yield setting_record(TRANSACTION_STATE_TOPIC, key, value)
    leadership = Leadership(replicas=(node,), isr=(node,), leader_epoch=0, partition_epoch=0)
    yield partition_record(Led(node, leadership), 0, topic_id, cluster)


def partition_record(led: Led, number: int, topic_id: bytes, cluster: str) -> bytes:
    """A partition, whole."""
    leadership = led.leadership
    data: dict[str, Any] = {
        "partitionId": number,
        "topicId": topic_id,
        "replicas": list(leadership.replicas),
        "isr": list(leadership.isr),
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": led.leader,
        "leaderRecoveryState": int(led.is_recovering),
        "leaderEpoch": leadership.leader_epoch,
        "partitionEpoch": leadership.partition_epoch,
        "directories": [derived_id(cluster, "directory", each) for each in leadership.replicas],
    }
    if led.elr:
        data["eligibleLeaderReplicas"] = list(led.elr)
    if led.last_known:
        data["lastKnownElr"] = list(led.last_known)
    return _record(records.PARTITION, PARTITION_VERSION, data)


def change_record(before: Led, after: Led, number: int, topic_id: bytes) -> bytes:
    """What has changed of a partition."""
    data: dict[str, Any] = {"partitionId": number, "topicId": topic_id}
    if after.leadership.isr != before.leadership.isr:
        data["isr"] = list(after.leadership.isr)
    if after.leader != before.leader:
        data["leader"] = after.leader
    if after.is_recovering != before.is_recovering:
        data["leaderRecoveryState"] = int(after.is_recovering)
    if after.elr != before.elr:
        data["eligibleLeaderReplicas"] = list(after.elr)
    if after.last_known != before.last_known:
        data["lastKnownElr"] = list(after.last_known)
    return _record(records.PARTITION_CHANGE, CHANGE_VERSION, data)


def setting_record(topic: str, key: str, value: str) -> bytes:
    """A setting of a topic."""
    data = {"resourceType": TOPIC_RESOURCE, "resourceName": topic, "name": key, "value": value}
    return _record(records.CONFIG, 0, data)


def producer_ids_record(next_producer_id: int) -> bytes:
    """Producer ids below this one are somebody's."""
    data = {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": next_producer_id}
    return _record(records.PRODUCER_IDS, 0, data)


def register_record(broker: int, incarnation_id: bytes, broker_epoch: int, log_dir: bytes) -> bytes:
    """A start of a broker; it is fenced until it has caught up."""
    data = {
        "brokerId": broker,
        "isMigratingZkBroker": False,
        "incarnationId": incarnation_id,
        "brokerEpoch": broker_epoch,
        "endPoints": [],
        "features": [],
        "rack": None,
        "fenced": True,
        "inControlledShutdown": False,
        "logDirs": [log_dir],
    }
    return _record(records.REGISTER_BROKER, REGISTER_VERSION, data)


def fencing_record(broker: int, broker_epoch: int, *, is_fenced: bool) -> bytes:
    """A broker is let in, or out."""
    data = {
        "brokerId": broker,
        "brokerEpoch": broker_epoch,
        "fenced": FENCED if is_fenced else UNFENCED,
    }
    return _record(records.BROKER_REGISTRATION_CHANGE, REGISTRATION_CHANGE_VERSION, data)


def _record(api_key: int, version: int, data: dict[str, Any]) -> bytes:
    return records.encode_record(api_key, version, data)
