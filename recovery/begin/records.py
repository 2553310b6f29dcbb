"""The metadata that a controller begins with: features, topics, partitions, settings.

Kafka's RecordsSnapshotWriter puts each of the two ends into a control batch of its own. Offsets
begin at 0, no batch has a producer, and the leader epoch is that of the snapshot: 0 in a
`bootstrap.checkpoint`, which kafka-storage writes when it formats a log dir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.checks.grounds.broker_version import (
    BOOTSTRAP_CHECKPOINT,
    DIRECTORY_IDS,
    METADATA_TRANSACTIONS,
    formatted_features,
    partition_record_version,
)
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.errors import RefusedError
from storage.formats import cluster_metadata as records
from storage.formats.control_record import (
    CURRENT_VERSION,
    ControlRecordType,
    encode_control_key,
    encode_control_message,
)
from storage.formats.meta_properties import MetaProperties, encode_meta_properties
from storage.formats.record_batch import (
    CONTROL_MASK,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    encode_batch,
)
from storage.writing.record_builder import encode_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.checks.grounds.broker_version import BrokerVersion


# Readers take batches of up to 8 MiB (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
BATCH_RECORDS = 1000
BOOTSTRAP_EPOCH = 0


def encode_bootstrap(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """The content of a `bootstrap.checkpoint` with these records.

    Args:
        values: of metadata records, as `cluster_metadata.encode_record` gives them.
        timestamp_ms: of all records.
    """
    return b"".join(_batches(values, timestamp_ms))


def _batches(values: Sequence[bytes], timestamp_ms: int) -> Iterator[bytes]:
    header = {"version": CURRENT_VERSION, "lastContainedLogTimestamp": 0}
    yield _control_batch(ControlRecordType.SNAPSHOT_HEADER, header, 0, timestamp_ms)
    offset = 1
    for start in range(0, len(values), BATCH_RECORDS):
        part = values[start : start + BATCH_RECORDS]
        records = [encode_fields(0, number, None, each) for number, each in enumerate(part)]
        yield _batch(records, offset, timestamp_ms)
        offset += len(part)
    footer = {"version": CURRENT_VERSION}
    yield _control_batch(ControlRecordType.SNAPSHOT_FOOTER, footer, offset, timestamp_ms)


def _control_batch(
    control_type: ControlRecordType, message: dict[str, int], offset: int, timestamp_ms: int
) -> bytes:
    key = encode_control_key(control_type)
    value = encode_control_message(control_type, message)
    record = encode_fields(0, 0, key, value)
    return _batch([record], offset, timestamp_ms, attributes=CONTROL_MASK)


def _batch(
    records: Sequence[bytes], offset: int, timestamp_ms: int, *, attributes: int = 0
) -> bytes:
    header = BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=BOOTSTRAP_EPOCH,
        magic=MAGIC_V2,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=len(records),
    )
    return encode_batch(header, b"".join(records))


# -- the metadata that a controller begins with: features, topics, partitions, settings
#
# A controller that finds no metadata log takes over the records of `bootstrap.checkpoint`
# (ActivationRecordsGenerator), topics and partitions too, as if they had been in its log.


# What a controller without metadata transactions takes at once (QuorumController).
MAX_RECORDS_AT_ONCE = 10_000
_META_PROPERTIES_VERSION = 1
_NO_BROKER = -1


class NodeIdentity(NamedTuple):
    """Whose log dir it is. Ids are 16 bytes, but for the cluster's, which is a text."""

    cluster_id: str
    node_id: int
    directory_id: bytes


class TopicStart(NamedTuple):
    """A topic that the cluster begins with, each partition with one replica.

    Attributes:
        name: of the topic.
        topic_id: 16 bytes.
        leader_epochs: of its partitions, by number.
        settings: its own.
    """

    name: str
    topic_id: bytes
    leader_epochs: Mapping[int, int]
    settings: Mapping[str, str]


def require_begins(version: BrokerVersion) -> None:
    """Refuse a release that does not read what is written here. Raises RefusedError."""
    if version < BOOTSTRAP_CHECKPOINT:
        raise RefusedError(
            f"Kafka {version} reads no bootstrap.checkpoint",
            next_step="--broker-version with 3.3 or later",
        )


def encode_identity(node: NodeIdentity, version: BrokerVersion) -> bytes:
    """The content of `meta.properties`; releases before 3.7 have no id for a log dir."""
    return encode_meta_properties(
        MetaProperties(
            version=_META_PROPERTIES_VERSION,
            cluster_id=node.cluster_id,
            node_id=node.node_id,
            directory_id=node.directory_id if version >= DIRECTORY_IDS else None,
        )
    )


def encode_beginning(
    node: NodeIdentity,
    version: BrokerVersion,
    topics: Iterable[TopicStart],
    *,
    timestamp_ms: int,
    next_producer_id: int | None = None,
    more: Iterable[bytes] = (),
) -> bytes:
    """The content of `bootstrap.checkpoint`.

    Args:
        node: that has all partitions.
        version: of the broker that will start there.
        topics: with their partitions.
        timestamp_ms: of the records.
        next_producer_id: above all that a broker has given out; None: it begins at 0.
        more: values of records that come last.

    Raises:
        RefusedError: more records than that release takes at once.
    """
    values = [
        *_features(version),
        *(value for topic in topics for value in _topic(topic, node, version)),
        *_producer_ids(next_producer_id),
        *more,
    ]
    if version < METADATA_TRANSACTIONS and len(values) > MAX_RECORDS_AT_ONCE:
        raise RefusedError(
            f"{len(values)} records of topics, partitions and settings: a controller of Kafka"
            f" {version} takes {MAX_RECORDS_AT_ONCE} to begin with",
            next_step="--broker-version with 3.6 or later, or fewer partitions",
        )
    return encode_bootstrap(values, timestamp_ms)


def _features(version: BrokerVersion) -> Iterator[bytes]:
    for name, level in formatted_features(version):
        data = {"name": name, "featureLevel": level}
        yield records.encode_record(records.FEATURE_LEVEL, 0, data)


def _topic(topic: TopicStart, node: NodeIdentity, version: BrokerVersion) -> Iterator[bytes]:
    data = {"name": topic.name, "topicId": topic.topic_id}
    yield records.encode_record(records.TOPIC, 0, data)
    record_version = partition_record_version(version)
    for number, leader_epoch in sorted(topic.leader_epochs.items()):
        partition = {
            "partitionId": number,
            "topicId": topic.topic_id,
            "replicas": [node.node_id],
            "isr": [node.node_id],
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": node.node_id,
            "leaderRecoveryState": 0,
            "leaderEpoch": leader_epoch,
            "partitionEpoch": 0,
        }
        if record_version:
            partition["directories"] = [node.directory_id]
        yield records.encode_record(records.PARTITION, record_version, partition)
    for key, value in sorted(topic.settings.items()):
        setting = {
            "resourceType": TOPIC_RESOURCE,
            "resourceName": topic.name,
            "name": key,
            "value": value,
        }
        yield records.encode_record(records.CONFIG, 0, setting)


def _producer_ids(next_producer_id: int | None) -> Iterator[bytes]:
    if next_producer_id is not None:
        data = {
            "brokerId": _NO_BROKER,
            "brokerEpoch": _NO_BROKER,
            "nextProducerId": next_producer_id,
        }
        yield records.encode_record(records.PRODUCER_IDS, 0, data)
