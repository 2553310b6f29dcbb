"""Schemas of the records of `__cluster_metadata`, by api key; all versions are flexible.

Keys 6, 13 and 16 were never released.
"""

from __future__ import annotations

from storage.formats.message import MessageSchema
from storage.formats.message_codec import Field

_ENDPOINTS = Field(
    "endPoints",
    "[]struct",
    fields=(
        Field("name", "string"),
        Field("host", "string"),
        Field("port", "uint16"),
        Field("securityProtocol", "int16"),
    ),
)
_FEATURES = Field(
    "features",
    "[]struct",
    fields=(
        Field("name", "string"),
        Field("minSupportedVersion", "int16"),
        Field("maxSupportedVersion", "int16"),
    ),
)

RECORDS: dict[int, MessageSchema] = {
    0: MessageSchema(
        "RegisterBrokerRecord",
        Field("brokerId", "int32"),
        Field("isMigratingZkBroker", "bool", since=2),
        Field("incarnationId", "uuid"),
        Field("brokerEpoch", "int64"),
        _ENDPOINTS,
        _FEATURES,
        Field("rack", "string?"),
        Field("fenced", "bool", default=True),
        Field("inControlledShutdown", "bool", since=1),
        Field("logDirs", "[]uuid", since=3, tag=0),
        Field("cordonedLogDirs", "[]uuid?", since=4, tag=1, default=None),
        highest_version=4,
    ),
    1: MessageSchema(
        "UnregisterBrokerRecord", Field("brokerId", "int32"), Field("brokerEpoch", "int64")
    ),
    2: MessageSchema("TopicRecord", Field("name", "string"), Field("topicId", "uuid")),
    3: MessageSchema(
        "PartitionRecord",
        Field("partitionId", "int32", default=-1),
        Field("topicId", "uuid"),
        Field("replicas", "[]int32"),
        Field("isr", "[]int32"),
        Field("removingReplicas", "[]int32"),
        Field("addingReplicas", "[]int32"),
        Field("leader", "int32", default=-1),
        Field("leaderRecoveryState", "int8", tag=0),
        Field("leaderEpoch", "int32", default=-1),
        Field("partitionEpoch", "int32", default=-1),
        Field("directories", "[]uuid", since=1),
        Field("eligibleLeaderReplicas", "[]int32?", since=2, tag=1, default=None),
        Field("lastKnownElr", "[]int32?", since=2, tag=2, default=None),
        highest_version=2,
    ),
    4: MessageSchema(
        "ConfigRecord",
        Field("resourceType", "int8"),
        Field("resourceName", "string"),
        Field("name", "string"),
        Field("value", "string?"),
    ),
    5: MessageSchema(
        "PartitionChangeRecord",
        Field("partitionId", "int32", default=-1),
        Field("topicId", "uuid"),
        Field("isr", "[]int32?", tag=0, default=None),
        Field("leader", "int32", tag=1, default=-2),
        Field("replicas", "[]int32?", tag=2, default=None),
        Field("removingReplicas", "[]int32?", tag=3, default=None),
        Field("addingReplicas", "[]int32?", tag=4, default=None),
        Field("leaderRecoveryState", "int8", tag=5, default=-1),
        Field("directories", "[]uuid?", since=1, tag=8, default=None),
        Field("eligibleLeaderReplicas", "[]int32?", since=2, tag=6, default=None),
        Field("lastKnownElr", "[]int32?", since=2, tag=7, default=None),
        highest_version=2,
    ),
    7: MessageSchema("FenceBrokerRecord", Field("id", "int32"), Field("epoch", "int64")),
    8: MessageSchema("UnfenceBrokerRecord", Field("id", "int32"), Field("epoch", "int64")),
    9: MessageSchema("RemoveTopicRecord", Field("topicId", "uuid")),
    10: MessageSchema(
        "DelegationTokenRecord",
        Field("owner", "string"),
        Field("requester", "string"),
        Field("renewers", "[]string"),
        Field("issueTimestamp", "int64"),
        Field("maxTimestamp", "int64"),
        Field("expirationTimestamp", "int64"),
        Field("tokenId", "string"),
    ),
    11: MessageSchema(
        "UserScramCredentialRecord",
        Field("name", "string"),
        Field("mechanism", "int8"),
        Field("salt", "bytes"),
        Field("storedKey", "bytes"),
        Field("serverKey", "bytes"),
        Field("iterations", "int32"),
    ),
    12: MessageSchema(
        "FeatureLevelRecord", Field("name", "string"), Field("featureLevel", "int16")
    ),
    14: MessageSchema(
        "ClientQuotaRecord",
        Field(
            "entity",
            "[]struct",
            fields=(Field("entityType", "string"), Field("entityName", "string?")),
        ),
        Field("key", "string"),
        Field("value", "float64"),
        Field("remove", "bool"),
    ),
    15: MessageSchema(
        "ProducerIdsRecord",
        Field("brokerId", "int32"),
        Field("brokerEpoch", "int64", default=-1),
        Field("nextProducerId", "int64"),
    ),
    17: MessageSchema(
        "BrokerRegistrationChangeRecord",
        Field("brokerId", "int32"),
        Field("brokerEpoch", "int64"),
        Field("fenced", "int8", tag=0),
        Field("inControlledShutdown", "int8", since=1, tag=1),
        Field("logDirs", "[]uuid", since=2, tag=2),
        Field("cordonedLogDirs", "[]uuid?", since=3, tag=3, default=None),
        highest_version=3,
    ),
    18: MessageSchema(
        "AccessControlEntryRecord",
        Field("id", "uuid"),
        Field("resourceType", "int8"),
        Field("resourceName", "string"),
        Field("patternType", "int8"),
        Field("principal", "string"),
        Field("host", "string"),
        Field("operation", "int8"),
        Field("permissionType", "int8"),
    ),
    19: MessageSchema("RemoveAccessControlEntryRecord", Field("id", "uuid")),
    20: MessageSchema("NoOpRecord"),
    21: MessageSchema("ZkMigrationStateRecord", Field("zkMigrationState", "int8")),
    22: MessageSchema(
        "RemoveUserScramCredentialRecord", Field("name", "string"), Field("mechanism", "int8")
    ),
    23: MessageSchema("BeginTransactionRecord", Field("name", "string?", tag=0, default=None)),
    24: MessageSchema("EndTransactionRecord"),
    25: MessageSchema("AbortTransactionRecord", Field("reason", "string?", tag=0, default=None)),
    26: MessageSchema("RemoveDelegationTokenRecord", Field("tokenId", "string")),
    27: MessageSchema(
        "RegisterControllerRecord",
        Field("controllerId", "int32"),
        Field("incarnationId", "uuid"),
        Field("zkMigrationReady", "bool"),
        _ENDPOINTS,
        _FEATURES,
    ),
    28: MessageSchema("ClearElrRecord", Field("topicName", "string")),
}
