"""A new log dir: topics, directories, and the metadata that a controller begins with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.journals.backups import SpentTargetError
from recovery.changes.journals.listing import require_finished
from recovery.changes.plans.plan import absolute_path, make_step, replace_step
from recovery.checks.context.broker_version import (
    BEGINS_WITH_SNAPSHOT,
    BOOTSTRAP_CHECKPOINT,
    DIRECTORY_IDS,
    METADATA_TRANSACTIONS,
    formatted_features,
    partition_record_version,
)
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import RefusedError, UsageError, os_errors, pasted
from storage.file_names import (
    BEGINNING_NAME,
    BOOTSTRAP_NAME,
    LOCK_FILE_NAME,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    PARTITION_METADATA_NAME,
)
from storage.files import fsio
from storage.formats import cluster_metadata as records
from storage.formats.control_record import (
    CURRENT_VERSION,
    ControlRecordType,
    encode_control_key,
    encode_control_message,
)
from storage.formats.meta_properties import MetaProperties, encode_meta_properties
from storage.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
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

    from recovery.changes.plans.plan import Step
    from recovery.checks.context.broker_version import BrokerVersion


# -- a KRaft snapshot as its writer makes it: a header, the records of the cluster, a footer.
#
# Kafka's RecordsSnapshotWriter puts the header and the footer into a control batch each. Offsets
# begin at 0, no batch has a producer, and the leader epoch is the snapshot's epoch. It is 0 in a
# `bootstrap.checkpoint`, which kafka-storage writes when it formats a log dir.


# Readers accept batches of up to 8 MiB (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
BATCH_RECORDS = 1000
BOOTSTRAP_EPOCH = 0
DYNAMIC_KRAFT_VERSION = 1  # of kraft.version: voters are in the log, and can change


class Voter(NamedTuple):
    """The only voter of a dynamic quorum (KIP-853), and its controller listener."""

    node_id: int
    directory_id: bytes
    listener: str
    host: str
    port: int


def encode_bootstrap(
    values: Sequence[bytes], timestamp_ms: int, voter: Voter | None = None
) -> bytes:
    """Return the content of a `bootstrap.checkpoint`, or of a snapshot to begin with.

    Args:
        values: of metadata records, from `cluster_metadata.encode_record`.
        timestamp_ms: of all records.
        voter: of a dynamic quorum. None: the voters are in server.properties.
    """
    return b"".join(_batches(values, timestamp_ms, voter))


def _batches(values: Sequence[bytes], timestamp_ms: int, voter: Voter | None) -> Iterator[bytes]:
    header = {"version": CURRENT_VERSION, "lastContainedLogTimestamp": 0}
    opening = [(ControlRecordType.SNAPSHOT_HEADER, header), *_quorum(voter)]
    yield _control_batch(opening, 0, timestamp_ms)
    offset = len(opening)
    for start in range(0, len(values), BATCH_RECORDS):
        part = values[start : start + BATCH_RECORDS]
        records = [encode_fields(0, number, None, each) for number, each in enumerate(part)]
        yield _batch(records, offset, timestamp_ms)
        offset += len(part)
    footer = {"version": CURRENT_VERSION}
    yield _control_batch([(ControlRecordType.SNAPSHOT_FOOTER, footer)], offset, timestamp_ms)


def _quorum(voter: Voter | None) -> Iterator[tuple[ControlRecordType, dict[str, Any]]]:
    """Yield the control records of a snapshot for a dynamic quorum (RecordsSnapshotWriter)."""
    if voter is None:
        return
    yield (
        ControlRecordType.KRAFT_VERSION,
        {"version": CURRENT_VERSION, "kRaftVersion": DYNAMIC_KRAFT_VERSION},
    )
    endpoint = {"name": voter.listener, "host": voter.host, "port": voter.port}
    levels = {"minSupportedVersion": 0, "maxSupportedVersion": DYNAMIC_KRAFT_VERSION}
    known = {
        "voterId": voter.node_id,
        "voterDirectoryId": voter.directory_id,
        "endpoints": [endpoint],
        "kRaftVersionFeature": levels,
    }
    yield ControlRecordType.KRAFT_VOTERS, {"version": CURRENT_VERSION, "voters": [known]}


def _control_batch(
    messages: Sequence[tuple[ControlRecordType, dict[str, Any]]], offset: int, timestamp_ms: int
) -> bytes:
    records = [
        encode_fields(0, number, encode_control_key(kind), encode_control_message(kind, message))
        for number, (kind, message) in enumerate(messages)
    ]
    return _batch(records, offset, timestamp_ms, attributes=CONTROL_MASK)


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


# -- the metadata that a controller begins with: features, topics, partitions, settings.
#
# A controller without a metadata log loads the records of `bootstrap.checkpoint`
# (ActivationRecordsGenerator), topics and partitions too, as if they had been in its log.


# The limit of a controller without metadata transactions (QuorumController).
MAX_RECORDS_AT_ONCE = 10_000
_META_PROPERTIES_VERSION = 1
_NO_BROKER = -1


class NodeIdentity(NamedTuple):
    """The node that owns the log dir. Ids are 16 bytes. The cluster id is text."""

    cluster_id: str
    node_id: int
    directory_id: bytes


class TopicStart(NamedTuple):
    """A topic that the cluster begins with, one replica per partition.

    Attributes:
        name: of the topic.
        topic_id: 16 bytes.
        leader_epochs: by partition number.
        settings: the topic's own settings.
    """

    name: str
    topic_id: bytes
    leader_epochs: Mapping[int, int]
    settings: Mapping[str, str]


def require_begins(version: BrokerVersion) -> None:
    """Refuse a release that cannot read the new log dir. Raises RefusedError."""
    if version < BOOTSTRAP_CHECKPOINT:
        raise RefusedError(
            f"Kafka {version} reads no bootstrap.checkpoint",
            next_step="--broker-version with 3.3 or later",
        )


def encode_identity(node: NodeIdentity, version: BrokerVersion) -> bytes:
    """Return the content of `meta.properties`. Releases before 3.7 have no id for a log dir."""
    return encode_meta_properties(
        MetaProperties(
            version=_META_PROPERTIES_VERSION,
            cluster_id=node.cluster_id,
            node_id=node.node_id,
            directory_id=node.directory_id if version >= DIRECTORY_IDS else None,
        )
    )


def first_values(
    node: NodeIdentity,
    version: BrokerVersion,
    topics: Iterable[TopicStart],
    *,
    next_producer_id: int | None = None,
    more: Iterable[bytes] = (),
) -> list[bytes]:
    """Return the values of the metadata records that a cluster begins with.

    Args:
        node: the node that has all partitions.
        version: of the broker that will start there.
        topics: with their partitions.
        next_producer_id: above all allocated ids. None: ids begin at 0.
        more: values of records that come last.

    Raises:
        RefusedError: there are more records than the release accepts at once.
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
    return values


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


# -- an empty log dir: its identity, its topics, and an empty directory for each partition


class NewLogDir(NamedTuple):
    """The content of a new log dir."""

    log_dir: str
    node: NodeIdentity
    version: BrokerVersion
    topics: tuple[TopicStart, ...]
    voter: Voter | None = None


def require_free(log_dir: str) -> None:
    """Refuse a place that is not empty, or that lies in a log dir.

    Raises:
        RefusedError: it is not free.
    SpentTargetError: it is a log dir already.
        UsageError: it is not a directory.
        AccessError: it cannot be read.
    """
    path = Path(log_dir)
    if not os.path.lexists(path):
        if not path.absolute().parent.is_dir():
            raise UsageError(
                f"{log_dir}: there is no directory {path.absolute().parent}",
                next_step=f"mkdir -p {pasted(str(path.absolute().parent))}",
            )
        require_outside_log_dirs(log_dir, "a log dir lies outside of others")
        return
    if not path.is_dir():
        raise UsageError(f"{log_dir}: is no directory")
    require_finished([log_dir])
    with os_errors(log_dir):
        found = {each.name for each in path.iterdir()} - {LOCK_FILE_NAME}
    # Temporary files of a run that was killed before it began do not count.
    names = sorted(each for each in found if not each.endswith(fsio.TEMP_SUFFIX))
    if META_PROPERTIES_NAME in names:
        raise SpentTargetError(
            f"{log_dir}: is a log dir already; nothing was touched",
            next_step=f"eoctl describe {pasted(log_dir)}   # or name an empty directory",
        )
    if names:
        raise SpentTargetError(
            f"{log_dir}: is not empty: {names[0]}{_and_more(names[1:])}; nothing was touched",
            next_step="name an empty directory, or one that is not there",
        )
    require_outside_log_dirs(path.absolute().parent, "a log dir lies outside of others")


def _and_more(names: Sequence[str]) -> str:
    return f" and {len(names)} more" if names else ""


def beginning_steps(beginning: NewLogDir, *, timestamp_ms: int) -> list[Step]:
    """Plan the files of an empty log dir. `meta.properties` comes last.

    Until that file exists, no broker starts on an incomplete log dir.

    Raises:
        RefusedError: as `first_values`.
    """
    values = first_values(beginning.node, beginning.version, beginning.topics)
    log_dir, version, voter = beginning.log_dir, beginning.version, beginning.voter
    # All directories come first: one sync then makes all their names durable.
    return [
        *metadata_dir_steps(log_dir, version, voter),
        *partition_dir_steps(log_dir, beginning.topics),
        *bootstrap_steps(log_dir, version, values, timestamp_ms, voter),
        *topic_id_steps(log_dir, beginning.topics),
        *identity_steps(beginning.log_dir, encode_identity(beginning.node, beginning.version)),
    ]


def metadata_dir_steps(
    log_dir: str, version: BrokerVersion, voter: Voter | None = None
) -> Iterator[Step]:
    """Plan the directory of the metadata log, for a snapshot that a controller begins with."""
    if version >= BEGINS_WITH_SNAPSHOT or voter is not None:
        yield make_step(str(_metadata_dir(log_dir)), "the metadata log")


def _metadata_dir(log_dir: str) -> Path:
    return Path(absolute_path(log_dir), f"{METADATA_TOPIC}-0")


def bootstrap_steps(
    log_dir: str,
    version: BrokerVersion,
    values: Sequence[bytes],
    timestamp_ms: int,
    voter: Voter | None = None,
) -> Iterator[Step]:
    """Plan the first metadata at the path where a release looks for it (Formatter).

    Since 4.4 it is a snapshot of the metadata log at offset 0. Earlier releases use
    `bootstrap.checkpoint`, and have such a snapshot only for the voters of a dynamic quorum.
    """
    in_snapshot = version >= BEGINS_WITH_SNAPSHOT
    what = "topics and settings that the controller begins with"
    if in_snapshot or voter is not None:
        content = encode_bootstrap(values if in_snapshot else (), timestamp_ms, voter)
        reason = what if in_snapshot else "the voters of the quorum"
        yield replace_step(str(_metadata_dir(log_dir) / BEGINNING_NAME), content, reason)
    if not in_snapshot:
        content = encode_bootstrap(values, timestamp_ms)
        yield replace_step(str(Path(absolute_path(log_dir), BOOTSTRAP_NAME)), content, what)


def identity_steps(log_dir: str, content: bytes) -> Iterator[Step]:
    """Plan the file that makes the directory a log dir of a node."""
    path = str(Path(absolute_path(log_dir), META_PROPERTIES_NAME))
    yield replace_step(path, content, "a broker starts where it is, so it comes last")


def _partition_dirs(log_dir: str, topics: Iterable[TopicStart]) -> Iterator[tuple[str, bytes]]:
    parent = Path(absolute_path(log_dir))
    for topic in topics:
        for number in topic.leader_epochs:
            yield str(parent / f"{topic.name}-{number}"), topic.topic_id


def partition_dir_steps(log_dir: str, topics: Iterable[TopicStart]) -> Iterator[Step]:
    """Plan an empty directory for each partition."""
    for path, _ in _partition_dirs(log_dir, topics):
        yield make_step(path, "a partition")


def topic_id_steps(log_dir: str, topics: Iterable[TopicStart]) -> Iterator[Step]:
    """Plan the file with the topic id for each partition."""
    for path, topic_id in _partition_dirs(log_dir, topics):
        content = encode_partition_metadata(PartitionMetadata(0, topic_id))
        yield replace_step(f"{path}/{PARTITION_METADATA_NAME}", content, "the id of its topic")
