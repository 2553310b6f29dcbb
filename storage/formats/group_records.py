"""Schemas of the keys and values of `__consumer_offsets`, by record type.

Types 0 to 2 are of the classic groups, 3 to 8 and 16 of the consumer groups of KIP-848, 10 to 15
of share groups, 17 to 24 of streams groups. 4.3.1 does not know 9 and 18 any more, and not yet 24.
"""

from __future__ import annotations

from storage.formats.coordinator_record import RecordType
from storage.formats.message import MessageSchema
from storage.formats.message_codec import NEVER, Field

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
)
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


def _record(
    number: int, name: str, key: tuple[Field, ...], *fields: Field, old: MessageSchema | None = None
) -> RecordType:
    """A type whose value has one version, flexible; `old` is its layout before it was released."""
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
        # Its default is an empty struct, not null: a member without it has the tag, saying null.
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
