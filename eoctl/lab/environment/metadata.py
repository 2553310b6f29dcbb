"""Metadata of a cluster: the controller's records, and the view that brokers have of them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.environment.leader import Leadership
from recovery.checks.context.broker_version import CHECKED, formatted_features
from recovery.elections.rules import ELR_FEATURE
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.dirs.topic_settings import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats import cluster_metadata as records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eoctl.lab.environment.settings import PlaySettings
    from storage.file_names import TopicPartition


PARTITION_VERSION = 2
CHANGE_VERSION = 2
REGISTER_VERSION = 3
REGISTRATION_CHANGE_VERSION = 2
FENCED, UNFENCED = 1, -1
RETENTION_MS = "retention.ms"
# Settings that a broker requests for the topic (TransactionLog.configs), in this order.
TRANSACTION_TOPIC_SETTINGS = {
    "compression.type": "uncompressed",
    "cleanup.policy": "compact",
    MIN_INSYNC_REPLICAS: "1",
    "segment.bytes": str(100 << 20),
    UNCLEAN_LEADER_ELECTION: "false",
}


class Led(NamedTuple):
    """A partition in the controller's state.

    Attributes:
        is_recovering: its leader came from an unclean election, and has not requested an ISR change
            since.
    """

    leader: int
    leadership: Leadership
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    is_recovering: bool = False


class MetadataView(NamedTuple):
    """Metadata of the cluster as a broker or a client knows it. A higher version is newer.

    Attributes:
        incarnations: for each broker, the start that was registered last.
    """

    version: int
    partitions: Mapping[TopicPartition, Led]
    fenced: frozenset[int]
    min_insync: int
    incarnations: Mapping[int, int]


def derived_id(*parts: object) -> bytes:
    """Return 16 bytes that are the same in every run, for a topic, a log dir or a broker start."""
    text = "/".join(map(str, parts)).encode()
    return b"\x10" + sha256(text).digest()[:15]


def first_view(settings: PlaySettings) -> dict[int, Led]:
    """Return the partitions of a new cluster."""
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
    """Yield the first records of a controller: features, topic, partitions, settings."""
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
    # Record timestamps come from the simulated clock, so a real broker would delete the records at
    # once.
    yield setting_record(settings.topic, RETENTION_MS, "-1")


def transaction_topic_id() -> bytes:
    """Return the topic id of `__transaction_state`."""
    return derived_id("topic", TRANSACTION_STATE_TOPIC)


def transaction_topic(cluster: str, node: int) -> Iterator[bytes]:
    """Yield the records of `__transaction_state`, with one partition on one node."""
    topic_id = transaction_topic_id()
    yield _record(records.TOPIC, 0, {"name": TRANSACTION_STATE_TOPIC, "topicId": topic_id})
    for key, value in TRANSACTION_TOPIC_SETTINGS.items():
        yield setting_record(TRANSACTION_STATE_TOPIC, key, value)
    leadership = Leadership(replicas=(node,), isr=(node,), leader_epoch=0, partition_epoch=0)
    yield partition_record(Led(node, leadership), 0, topic_id, cluster)


def partition_record(led: Led, number: int, topic_id: bytes, cluster: str) -> bytes:
    """Return the record of a whole partition."""
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
    """Return the record of a partition's changes."""
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
    """Return the record of a topic setting."""
    data = {"resourceType": TOPIC_RESOURCE, "resourceName": topic, "name": key, "value": value}
    return _record(records.CONFIG, 0, data)


def producer_ids_record(next_producer_id: int) -> bytes:
    """Return the record that reserves the producer ids below `next_producer_id`."""
    data = {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": next_producer_id}
    return _record(records.PRODUCER_IDS, 0, data)


def register_record(broker: int, incarnation_id: bytes, broker_epoch: int, log_dir: bytes) -> bytes:
    """Return the record of a broker start. The broker starts fenced."""
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
    """Return the record that fences or unfences a broker."""
    data = {
        "brokerId": broker,
        "brokerEpoch": broker_epoch,
        "fenced": FENCED if is_fenced else UNFENCED,
    }
    return _record(records.BROKER_REGISTRATION_CHANGE, REGISTRATION_CHANGE_VERSION, data)


def _record(api_key: int, version: int, data: dict[str, Any]) -> bytes:
    return records.encode_record(api_key, version, data)
