"""Records of `__consumer_offsets`: committed offsets, and the state of groups of every kind.

The topic has 50 partitions and is compacted. `coordinator_record` describes the framing of key and
value. The schemas of all types are below. Two types contain offsets.

Their key is of type 1 (OffsetCommitKey): group string, topic string, partition int32. Type 0 is the
same, written by brokers before 0.9.

Their value (OffsetCommitValue) is flexible from version 4 on:

    field            type    versions  meaning
    offset           int64   0-        next offset to consume
    leaderEpoch      int32   3-        -1 unknown
    metadata         string  0-        the client's own
    commitTimestamp  int64   0-        ms
    expireTimestamp  int64   1         ms; -1: by the broker's retention
    topicId          uuid    4-        tag 0

Offsets committed within a transaction are ordinary transactional batches. They take effect only
with the COMMIT marker that follows in the same partition.

Valid if and only if the COO and MSG rules hold. Development releases changed types of 9 and above
without a new version, so an unreadable value of these types is not always damaged.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import FormatError
from storage.formats import coordinator_record as records
from storage.formats.coordinator_record import RecordType
from storage.formats.message import (
    INT16,
    NEVER,
    ZERO_UUID,
    Field,
    Json,
    MessageSchema,
    decode_lenient,
    encode,
    to_json,
)
from storage.limits import require_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.formats.coordinator_record import CoordinatorRecord
    from storage.formats.varint import BytesLike


# -- the members' opaque bytes in a classic consumer group (protocolType "consumer").
#
# Clients write both messages. Both open with an int16 version (0 to 3) and are never flexible.
#
#     Subscription     type      since      Assignment          type     since
#     topics           []string      0      assignedPartitions  []           0
#     userData         bytes?        0        topic             string
#     ownedPartitions  []            1        partitions        []int32
#       topic          string               userData            bytes?       0
#       partitions     []int32
#     generationId     int32         2      default -1
#     rackId           string?       3
#
# * Valid if and only if the MSG rules of `message` hold.
# * As in Kafka's tool, a version above 3 is read as 3 unless it has structs.
# * Bytes that follow are ignored.


_OWNED_PARTITIONS = (Field("topic", "string"), Field("partitions", "[]int32"))

SUBSCRIPTION = MessageSchema(
    "ConsumerProtocolSubscription",
    Field("topics", "[]string"),
    Field("userData", "bytes?", default=None),
    Field("ownedPartitions", "[]struct", since=1, fields=_OWNED_PARTITIONS),
    Field("generationId", "int32", since=2, default=-1),
    Field("rackId", "string?", since=3, default=None),
    highest_version=3,
    flexible_since=NEVER,
)
ASSIGNMENT = MessageSchema(
    "ConsumerProtocolAssignment",
    Field("assignedPartitions", "[]struct", fields=_OWNED_PARTITIONS),
    Field("userData", "bytes?", default=None),
    highest_version=3,
    flexible_since=NEVER,
)


def parse(schema: MessageSchema, buf: BytesLike) -> tuple[int, dict[str, Any]]:
    """Read SUBSCRIPTION or ASSIGNMENT. Returns (version on disk, fields).

    Raises:
        TruncatedError, CorruptError: the MSG rules.
    """
    require_bytes(buf, 0, INT16.size, f"version of {schema.name}", check_id="MSG-1")
    version: int = INT16.unpack_from(buf, 0)[0]
    return version, decode_lenient(schema, version, buf, INT16.size)[0]


def encode_message(schema: MessageSchema, version: int, fields: dict[str, Any]) -> bytes:
    """Write SUBSCRIPTION or ASSIGNMENT. UsageError and UnsupportedError as `message.encode`."""
    return INT16.pack(version) + encode(schema, version, fields)


def parsed_json(schema: MessageSchema, buf: BytesLike) -> str:
    """Return the JSON of the message in `buf`, without its version. Errors as `parse`."""
    version, fields = parse(schema, buf)
    return to_json(schema, schema.nearest_version(version), fields)


# -- schemas of the keys and values of `__consumer_offsets`, by record type.
#
# Types 0 to 2 belong to classic groups, 3 to 8 and 16 to consumer groups of KIP-848. Types 10 to 15
# belong to share groups, 17 to 24 to streams groups. 4.3.1 does not know 9, 18 and 24.


_EPOCHS_OF_MEMBER = (
    Field("memberEpoch", "int32"),
    Field("previousMemberEpoch", "int32"),
    Field("state", "int8"),
)
_TARGET_METADATA = (
    Field("assignmentEpoch", "int32"),
    Field("assignmentTimestamp", "int64", tag=0),
)
_TOPIC_PARTITIONS = (Field("topicId", "uuid"), Field("partitions", "[]int32"))
_TOPIC_PARTITIONS_EPOCHS = (*_TOPIC_PARTITIONS, Field("assignmentEpochs", "[]int32?", tag=0))
_NAMED_TOPIC = (Field("topicId", "uuid"), Field("topicName", "string"))
_NAMED_TOPIC_PARTITIONS = (*_NAMED_TOPIC, Field("partitions", "[]int32"))
_TASKS = (Field("subtopologyId", "string"), Field("partitions", "[]int32"))
_TASKS_EPOCHS = (*_TASKS, Field("assignmentEpochs", "[]int32?", tag=0))
_KEY_VALUE = (Field("key", "string"), Field("value", "string"))
_PARTITION_METADATA = Field(
    "topics",
    "[]struct",
    fields=(
        *_NAMED_TOPIC,
        Field("numPartitions", "int32"),
        Field(
            "partitionMetadata",
            "[]struct",
            fields=(Field("partition", "int32"), Field("racks", "[]string")),
        ),
    ),
)
_TOPOLOGY_TOPIC = (
    Field("name", "string"),
    Field("partitions", "int32"),
    Field("replicationFactor", "int16"),
    Field("topicConfigs", "[]struct", fields=_KEY_VALUE),
)

_OFFSET_KEY = (Field("group", "string"), Field("topic", "string"), Field("partition", "int32"))
_GROUP_KEY = (Field("groupId", "string"),)
_MEMBER_KEY = (Field("groupId", "string"), Field("memberId", "string"))

LEGACY_OFFSET_COMMIT_VALUE = MessageSchema(
    "LegacyOffsetCommitValue",
    Field("offset", "int64"),
    Field("metadata", "string"),
    Field("commitTimestamp", "int64"),
    flexible_since=NEVER,
)
OFFSET_COMMIT_VALUE = MessageSchema(
    "OffsetCommitValue",
    Field("offset", "int64"),
    Field("leaderEpoch", "int32", since=3, default=-1),
    Field("metadata", "string"),
    Field("commitTimestamp", "int64"),
    Field("expireTimestamp", "int64", since=1, until=1, default=-1),
    Field("topicId", "uuid", since=4, tag=0),
    highest_version=4,
    flexible_since=4,
    is_strict=False,
)
# metadata.version -> version of OffsetCommitValue that brokers write from then on. 30 is 4.3-IV0.
OFFSET_VALUE_VERSIONS = ((0, 3), (30, 4))
GROUP_METADATA_VALUE = MessageSchema(
    "GroupMetadataValue",
    Field("protocolType", "string"),
    Field("generation", "int32"),
    Field("protocol", "string?"),
    Field("leader", "string?"),
    Field("currentStateTimestamp", "int64", since=2, default=-1),
    Field(
        "members",
        "[]struct",
        fields=(
            Field("memberId", "string"),
            Field("groupInstanceId", "string?", since=3, default=None),
            Field("clientId", "string"),
            Field("clientHost", "string"),
            Field("rebalanceTimeout", "int32", since=1, default=-1),
            Field("sessionTimeout", "int32"),
            Field("subscription", "bytes"),
            Field("assignment", "bytes"),
        ),
    ),
    highest_version=4,
    flexible_since=4,
)
# Version of OffsetCommitValue -> version of GroupMetadataValue that the same brokers write.
GROUP_VALUE_VERSIONS = {2: 2, 3: 3, 4: 3}


def _record(
    number: int, name: str, key: tuple[Field, ...], *fields: Field, old: MessageSchema | None = None
) -> RecordType:
    """Return a type whose value has one flexible version.

    `old` is its layout before its release.
    """
    value = MessageSchema(f"{name}Value", *fields)
    return RecordType(number, _key(name, key), (value,) if old is None else (value, old))


def _key(name: str, key: tuple[Field, ...]) -> MessageSchema:
    return MessageSchema(f"{name}Key", *key, flexible_since=NEVER)


_RECORD_TYPES = (
    RecordType(0, _key("LegacyOffsetCommit", _OFFSET_KEY), (LEGACY_OFFSET_COMMIT_VALUE,)),
    RecordType(1, _key("OffsetCommit", _OFFSET_KEY), (OFFSET_COMMIT_VALUE,)),
    RecordType(2, _key("GroupMetadata", (Field("group", "string"),)), (GROUP_METADATA_VALUE,)),
    _record(
        3,
        "ConsumerGroupMetadata",
        _GROUP_KEY,
        Field("epoch", "int32"),
        Field("metadataHash", "int64", tag=0),
    ),
    _record(4, "ConsumerGroupPartitionMetadata", _GROUP_KEY, _PARTITION_METADATA),
    _record(
        5,
        "ConsumerGroupMemberMetadata",
        _MEMBER_KEY,
        Field("instanceId", "string?"),
        Field("rackId", "string?"),
        Field("clientId", "string"),
        Field("clientHost", "string"),
        Field("subscribedTopicNames", "[]string"),
        Field("subscribedTopicRegex", "string?"),
        Field("rebalanceTimeoutMs", "int32", default=-1),
        Field("serverAssignor", "string?"),
        # Its default is an empty struct, not null. A member without it has the tag with null.
        Field(
            "classicMemberMetadata",
            "struct?",
            tag=0,
            fields=(
                Field("sessionTimeoutMs", "int32"),
                Field(
                    "supportedProtocols",
                    "[]struct",
                    fields=(Field("name", "string"), Field("metadata", "bytes")),
                ),
            ),
        ),
    ),
    _record(6, "ConsumerGroupTargetAssignmentMetadata", _GROUP_KEY, *_TARGET_METADATA),
    _record(
        7,
        "ConsumerGroupTargetAssignmentMember",
        _MEMBER_KEY,
        Field("topicPartitions", "[]struct", fields=_TOPIC_PARTITIONS),
    ),
    _record(
        8,
        "ConsumerGroupCurrentMemberAssignment",
        _MEMBER_KEY,
        *_EPOCHS_OF_MEMBER,
        Field("assignedPartitions", "[]struct", fields=_TOPIC_PARTITIONS_EPOCHS),
        Field("partitionsPendingRevocation", "[]struct", fields=_TOPIC_PARTITIONS_EPOCHS),
    ),
    _record(9, "ShareGroupPartitionMetadata", _GROUP_KEY, _PARTITION_METADATA),
    _record(
        10,
        "ShareGroupMemberMetadata",
        _MEMBER_KEY,
        Field("rackId", "string?"),
        Field("clientId", "string"),
        Field("clientHost", "string"),
        Field("subscribedTopicNames", "[]string"),
    ),
    _record(
        11,
        "ShareGroupMetadata",
        _GROUP_KEY,
        Field("epoch", "int32"),
        Field("metadataHash", "int64"),
        old=MessageSchema("ShareGroupMetadataValue of 4.0", Field("epoch", "int32")),
    ),
    _record(12, "ShareGroupTargetAssignmentMetadata", _GROUP_KEY, *_TARGET_METADATA),
    _record(
        13,
        "ShareGroupTargetAssignmentMember",
        _MEMBER_KEY,
        Field("topicPartitions", "[]struct", fields=_TOPIC_PARTITIONS),
    ),
    _record(
        14,
        "ShareGroupCurrentMemberAssignment",
        _MEMBER_KEY,
        *_EPOCHS_OF_MEMBER,
        Field("assignedPartitions", "[]struct", fields=_TOPIC_PARTITIONS),
    ),
    _record(
        15,
        "ShareGroupStatePartitionMetadata",
        _GROUP_KEY,
        Field("initializingTopics", "[]struct", fields=_NAMED_TOPIC_PARTITIONS),
        Field("initializedTopics", "[]struct", fields=_NAMED_TOPIC_PARTITIONS),
        Field("deletingTopics", "[]struct", fields=_NAMED_TOPIC),
        old=MessageSchema(
            "ShareGroupStatePartitionMetadataValue of 4.0",
            Field("initializedTopics", "[]struct", fields=_NAMED_TOPIC_PARTITIONS),
            Field("deletingTopics", "[]struct", fields=_NAMED_TOPIC),
        ),
    ),
    _record(
        16,
        "ConsumerGroupRegularExpression",
        (Field("groupId", "string"), Field("regularExpression", "string")),
        Field("topics", "[]string"),
        Field("version", "int64"),
        Field("timestamp", "int64"),
    ),
    _record(
        17,
        "StreamsGroupMetadata",
        _GROUP_KEY,
        Field("epoch", "int32"),
        Field("metadataHash", "int64"),
        Field("validatedTopologyEpoch", "int32", tag=0, default=-1),
        Field("lastAssignmentConfigs", "[]struct?", tag=1, fields=_KEY_VALUE),
        Field("storedDescriptionTopologyEpoch", "int32", tag=2, default=-1),
        Field("failedDescriptionTopologyEpoch", "int32", tag=3, default=-1),
    ),
    _record(18, "StreamsGroupPartitionMetadata", _GROUP_KEY, _PARTITION_METADATA),
    _record(
        19,
        "StreamsGroupMemberMetadata",
        _MEMBER_KEY,
        Field("instanceId", "string?"),
        Field("rackId", "string?"),
        Field("clientId", "string"),
        Field("clientHost", "string"),
        Field("rebalanceTimeoutMs", "int32", default=-1),
        Field("topologyEpoch", "int32"),
        Field("processId", "string"),
        Field(
            "userEndpoint",
            "struct?",
            default=None,
            fields=(Field("host", "string"), Field("port", "uint16")),
        ),
        Field("clientTags", "[]struct", fields=_KEY_VALUE),
    ),
    _record(20, "StreamsGroupTargetAssignmentMetadata", _GROUP_KEY, *_TARGET_METADATA),
    _record(
        21,
        "StreamsGroupTargetAssignmentMember",
        _MEMBER_KEY,
        Field("activeTasks", "[]struct", fields=_TASKS),
        Field("standbyTasks", "[]struct", fields=_TASKS),
        Field("warmupTasks", "[]struct", fields=_TASKS),
    ),
    _record(
        22,
        "StreamsGroupCurrentMemberAssignment",
        _MEMBER_KEY,
        *_EPOCHS_OF_MEMBER,
        Field("activeTasks", "[]struct", fields=_TASKS_EPOCHS),
        Field("standbyTasks", "[]struct", fields=_TASKS_EPOCHS),
        Field("warmupTasks", "[]struct", fields=_TASKS_EPOCHS),
        Field("activeTasksPendingRevocation", "[]struct", fields=_TASKS_EPOCHS),
        Field("standbyTasksPendingRevocation", "[]struct", fields=_TASKS_EPOCHS),
        Field("warmupTasksPendingRevocation", "[]struct", fields=_TASKS_EPOCHS),
    ),
    _record(
        23,
        "StreamsGroupTopology",
        _GROUP_KEY,
        Field("epoch", "int32"),
        Field(
            "subtopologies",
            "[]struct",
            fields=(
                Field("subtopologyId", "string"),
                Field("sourceTopics", "[]string"),
                Field("sourceTopicRegex", "[]string"),
                Field("stateChangelogTopics", "[]struct", fields=_TOPOLOGY_TOPIC),
                Field("repartitionSinkTopics", "[]string"),
                Field("repartitionSourceTopics", "[]struct", fields=_TOPOLOGY_TOPIC),
                Field(
                    "copartitionGroups",
                    "[]struct",
                    fields=(
                        Field("sourceTopics", "[]int16"),
                        Field("sourceTopicRegex", "[]int16"),
                        Field("repartitionSourceTopics", "[]int16"),
                    ),
                ),
            ),
        ),
    ),
    _record(
        24,
        "StreamsGroupTargetAssignmentResolvedTopicIds",
        _GROUP_KEY,
        Field("assignmentEpoch", "int32"),
        Field(
            "resolvedTopicIdsBySubtopology",
            "[]struct",
            fields=(Field("subtopologyId", "string"), Field("topicIds", "[]uuid")),
        ),
    ),
)

RECORD_TYPES = {record_type.type: record_type for record_type in _RECORD_TYPES}


# -- consumer offsets


LEGACY_OFFSET_COMMIT_TYPE = 0
OFFSET_COMMIT_TYPE = 1
GROUP_METADATA_TYPE = 2
OFFSET_TYPES = (LEGACY_OFFSET_COMMIT_TYPE, OFFSET_COMMIT_TYPE)

CONSUMER_PROTOCOL_TYPE = "consumer"
EMBEDDED = {
    "subscription": SUBSCRIPTION,
    "assignment": ASSIGNMENT,
}


class OffsetKey(NamedTuple):
    """The group and partition of a committed offset."""

    group: str
    topic: str
    partition: int


class OffsetCommit(NamedTuple):
    """The value of an offset commit. Fields that its version lacks have their defaults."""

    version: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID


# Fields of OffsetCommit, by their names in the schema.
COMMIT_FIELDS = {
    "offset": "offset",
    "leader_epoch": "leaderEpoch",
    "metadata": "metadata",
    "commit_timestamp_ms": "commitTimestamp",
    "expire_timestamp_ms": "expireTimestamp",
    "topic_id": "topicId",
}


def offset_commit_of(version: int, fields: Mapping[str, Any]) -> OffsetCommit:
    """Return the value of an offset commit from the fields of `parse_value`."""
    known = {name: fields[field] for name, field in COMMIT_FIELDS.items() if field in fields}
    return OffsetCommit(version, **known)


def offset_value_version(metadata_version: int) -> int:
    """Return the version of OffsetCommitValue that brokers of a metadata.version write."""
    return max(version for since, version in OFFSET_VALUE_VERSIONS if metadata_version >= since)


def parse_record(key: BytesLike | None, value: BytesLike | None) -> CoordinatorRecord:
    """Read a record of any type. Its value is None for a tombstone.

    Raises:
        CorruptError, TruncatedError, UnsupportedError: the COO and MSG rules.
    """
    return records.parse_record(RECORD_TYPES, key, value)


def parse_offset_record(
    key: BytesLike | None, value: BytesLike | None
) -> tuple[OffsetKey, OffsetCommit | None] | None:
    """Read a committed offset. Returns None for the other types, (key, None) for a tombstone.

    Errors as `parse_record`. The value of another type is not read.
    """
    if key is not None and records.parse_prefix(key, "key") not in OFFSET_TYPES:
        return None
    record = parse_record(key, value)
    offset_key = OffsetKey(record.key["group"], record.key["topic"], record.key["partition"])
    if record.value is None:
        return offset_key, None
    return offset_key, offset_commit_of(record.version, record.value)


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the key of a committed offset, type 1. UsageError: a name longer than 32767 bytes."""
    return records.encode_key(RECORD_TYPES[OFFSET_COMMIT_TYPE], key._asdict())


def encode_offset_value(value: OffsetCommit) -> bytes:
    """Return the value of a committed offset. Fields that its version lacks are not written.

    Raises:
        UsageError: a value that does not fit its type.
        UnsupportedError: MSG-5.
    """
    fields = {field: getattr(value, name) for name, field in COMMIT_FIELDS.items()}
    return records.encode_value(OFFSET_COMMIT_VALUE, value.version, fields)


def describe_record(
    offset: int,
    key: BytesLike | None,
    value: BytesLike | None,
    *,
    on_tags: Callable[[list[int]], object] | None = None,
) -> tuple[str | None, str | None]:
    """Return the output of kafka-dump-log with --offsets-decoder: (key text, payload text).

    Types 9, 18 and 24, which 4.3.1 calls unknown, are shown as in the releases that write them.
    `on_tags` is as in `coordinator_record.describe_record`.

    Raises:
        CorruptError: COO-1, there is no key. The tool fails there.
    """
    return records.describe_record(
        RECORD_TYPES, offset, key, value, data_json=_data_json, on_tags=on_tags
    )


def _data_json(schema: MessageSchema, version: int, fields: dict[str, Any]) -> str:
    if schema is GROUP_METADATA_VALUE and fields["protocolType"] == CONSUMER_PROTOCOL_TYPE:
        return _group_metadata_json(version, fields)
    return to_json(schema, version, fields)


def _group_metadata_json(version: int, fields: dict[str, Any]) -> str:
    """Return the JSON as `to_json` does, with the members' bytes decoded if they can be read."""
    members = []
    for member in fields["members"]:
        shown = dict(member)
        for name, schema in EMBEDDED.items():
            with suppress(FormatError):
                shown[name] = Json(parsed_json(schema, member[name]))
        members.append(shown)
    return to_json(GROUP_METADATA_VALUE, version, fields | {"members": members})
