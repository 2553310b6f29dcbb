"""Records of `__cluster_metadata` and of KRaft's snapshots: the state of the cluster.

The topic has one partition, written by the controllers. Keys are null. Values are frames (see
`parse_header`) around one of the messages in `RECORDS`. Control records are in `control_record`.
Batches have no producer id, the partition leader epoch of Raft, and one timestamp for all their
records.

`<offset>-<epoch>.checkpoint` and `bootstrap.checkpoint` consist of the same batches. First comes a
control batch that opens with SNAPSHOT_HEADER, then data, last a control batch with SNAPSHOT_FOOTER.
Offsets inside start at 0 again. Without a footer the file is incomplete.

Records between BEGIN_TRANSACTION and END_TRANSACTION take effect together. Records between
BEGIN_TRANSACTION and ABORT_TRANSACTION never take effect.

A record is valid if and only if the FRM rules hold (KRF-4).

Some records contain secrets: the parts of a SCRAM credential, and values of configurations that are
passwords or keys, in plain text. `describe_record` hides them by default. Only here does our text
differ from kafka-dump-log, which prints them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.message import (
    Field,
    Json,
    MessageSchema,
    decode_lenient,
    encode,
    json_string,
    to_json,
    unknown_tags,
)
from storage.formats.varint import encode_uvarint, parse_uvarint
from storage.limits import INT16_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.formats.varint import BytesLike


# -- the frame of records with their own type: `__cluster_metadata`, `__remote_log_metadata`

#     order  type     field          meaning
#         1  uvarint  frame_version  1
#         2  uvarint  api_key        which message it is
#         3  uvarint  version        of the message's schema
#         4  -        message        flexible, to the end of the record's value.
#
# The record has no key. All three numbers are at most 32767.
#
# Valid if and only if these FRM rules hold. In `__cluster_metadata` a break is KRF-4.
#
# * FRM-1: The three numbers can be read and are at most 32767.
# * FRM-2: The frame version is 1 (0 was the preview of KRaft in 2.8).
# * FRM-3: The api key is known.
# * FRM-4: The version is known. Kafka does not check it and reads its newest version.
# * FRM-5: The message can be read (the MSG rules), and nothing follows it.


FRAME_VERSION = 1

UNSUPPORTED_VERSION_CLASS = "org.apache.kafka.common.errors.UnsupportedVersionException"


class FrameHeader(NamedTuple):
    """The numbers before the message. `message_pos` is the start of the message."""

    api_key: int
    version: int
    message_pos: int


def parse_header(buf: BytesLike | None) -> FrameHeader:
    """Read the three numbers. The errors have the messages of Kafka's AbstractApiMessageSerde.

    Raises:
        CorruptError: FRM-1 (a null value counts as an empty value).
        UnsupportedError: FRM-2.
    """
    buf = b"" if buf is None else buf
    if len(buf) > 2 and buf[0] == FRAME_VERSION and buf[1] < 0x80 and buf[2] < 0x80:
        return FrameHeader(buf[1], buf[2], 3)  # one byte each, as for all known messages
    frame_version, pos = _parse_number(buf, 0, "frame version")
    if frame_version != FRAME_VERSION:
        raise UnsupportedError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from "
            "the preview release of KRaft in 2.8 to newer versions are not supported."
            if frame_version == 0
            else "Could not deserialize metadata record due to unknown frame version "
            f"{frame_version}(only frame version {FRAME_VERSION} is supported)",
            check_id="FRM-2",
            pos=0,
            expected=str(FRAME_VERSION),
            found=str(frame_version),
        )
    api_key, pos = _parse_number(buf, pos, "type")
    version, pos = _parse_number(buf, pos, "version")
    return FrameHeader(api_key, version, pos)


def _parse_number(buf: BytesLike, pos: int, what: str) -> tuple[int, int]:
    try:
        number, next_pos = parse_uvarint(buf, pos)
    except FormatError as error:
        raise CorruptError(
            f"Error while reading {what}",
            check_id="FRM-1",
            pos=pos,
            expected="uvarint",
            found=error.message,
        ) from error
    if number > INT16_MAX:
        raise CorruptError(
            f"Value for {what} was too large.",
            check_id="FRM-1",
            pos=pos,
            expected=f"at most {INT16_MAX}",
            found=str(number),
        )
    return number, next_pos


def parse_message(
    schemas: Mapping[int, MessageSchema], buf: BytesLike, header: FrameHeader
) -> dict[str, Any]:
    """Read the message as Kafka does, a version that is too high as the highest known version.

    Raises:
        UnsupportedError: FRM-3.
        CorruptError: FRM-5.
    """
    schema = schemas.get(header.api_key)
    if schema is None:
        raise UnsupportedError(
            f"{UNSUPPORTED_VERSION_CLASS}: Unknown metadata id {header.api_key}",
            check_id="FRM-3",
            pos=1,
            expected=f"one of {sorted(schemas)}",
            found=str(header.api_key),
        )
    try:
        data, end_pos = decode_lenient(schema, header.version, buf, header.message_pos)
    except FormatError as error:
        raise CorruptError(
            f"Failed to deserialize record with type {header.api_key}",
            check_id="FRM-5",
            pos=error.pos,
            expected=schema.name,
            found=error.message,
        ) from error
    if end_pos != len(buf):
        raise CorruptError(
            f"Found {len(buf) - end_pos} byte(s) of garbage after {header.api_key}",
            check_id="FRM-5",
            pos=end_pos,
            expected="the end",
            found=f"{len(buf) - end_pos} bytes",
        )
    return data


def require_known_version(schemas: Mapping[int, MessageSchema], header: FrameHeader) -> None:
    """Raise UnsupportedError for FRM-4. An unknown key passes."""
    schema = schemas.get(header.api_key)
    if schema is not None and header.version > schema.highest_version:
        raise UnsupportedError(
            f"unknown version {header.version} of {schema.name}",
            check_id="FRM-4",
            pos=1,
            expected=f"0..{schema.highest_version}",
            found=str(header.version),
        )


def encode_frame(
    schemas: Mapping[int, MessageSchema], api_key: int, version: int, data: dict[str, Any]
) -> bytes:
    """Write a whole value.

    Raises:
        UsageError, UnsupportedError: as `message.encode`.
        KeyError: FRM-3.
    """
    return (
        encode_uvarint(FRAME_VERSION)
        + encode_uvarint(api_key)
        + encode_uvarint(version)
        + encode(schemas[api_key], version, data)
    )


# -- schemas of the records of `__cluster_metadata`, by api key. All versions are flexible.
#
# Keys 6, 13 and 16 were never released.


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
    29: MessageSchema("UnregisterControllerRecord", Field("controllerId", "int32")),
}


# -- cluster metadata


REGISTER_BROKER = 0
UNREGISTER_BROKER = 1
TOPIC = 2
PARTITION = 3
CONFIG = 4
PARTITION_CHANGE = 5
FENCE_BROKER = 7
UNFENCE_BROKER = 8
REMOVE_TOPIC = 9
DELEGATION_TOKEN = 10
USER_SCRAM_CREDENTIAL = 11
FEATURE_LEVEL = 12
CLIENT_QUOTA = 14
PRODUCER_IDS = 15
BROKER_REGISTRATION_CHANGE = 17
ACCESS_CONTROL_ENTRY = 18
REMOVE_ACCESS_CONTROL_ENTRY = 19
NO_OP = 20
ZK_MIGRATION_STATE = 21
REMOVE_USER_SCRAM_CREDENTIAL = 22
BEGIN_TRANSACTION = 23
END_TRANSACTION = 24
ABORT_TRANSACTION = 25
REMOVE_DELEGATION_TOKEN = 26
REGISTER_CONTROLLER = 27
CLEAR_ELR = 28
UNREGISTER_CONTROLLER = 29


def _record_name(schema: MessageSchema) -> str:
    """Return the name as Kafka's MetadataRecordType has it: TOPIC_RECORD for TopicRecord."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", schema.name).upper()


RECORD_NAMES = {api_key: _record_name(schema) for api_key, schema in RECORDS.items()}

REDACTED = Json(json_string("(redacted)"))  # as Kafka's RecordRedactor prints it
SCRAM_SECRETS = ("salt", "storedKey", "serverKey")
# The configurations of type PASSWORD in 4.3.1 end like this, with or without a listener's prefix.
# The other endings are for plugins, whose types are unknown.
SECRET_CONFIG = re.compile(
    r"password|passwd|passphrase|secret|jaas\.config|certificate|(credentials?|token|\.key)$",
    re.IGNORECASE,
)


class MetadataRecord(NamedTuple):
    """One record. `data` has Kafka's field names (see `RECORDS`)."""

    api_key: int
    name: str  # such as TOPIC_RECORD
    version: int
    data: dict[str, Any]


def parse_record(value: BytesLike | None) -> MetadataRecord:
    """Read the value of a record.

    Raises:
        CorruptError: FRM-1, FRM-5.
        UnsupportedError: FRM-2, FRM-3, FRM-4. The record is of a newer (or preview) release. Do not
            guess.
    """
    header = parse_header(value)
    require_known_version(RECORDS, header)
    return _parse(value, header)


def _parse(value: BytesLike | None, header: FrameHeader) -> MetadataRecord:
    data = parse_message(RECORDS, b"" if value is None else value, header)
    return MetadataRecord(
        api_key=header.api_key, name=RECORD_NAMES[header.api_key], version=header.version, data=data
    )


def encode_record(api_key: int, version: int, data: dict[str, Any]) -> bytes:
    """Return the value of a record. Omitted fields have their defaults.

    Raises:
        UnsupportedError: FRM-3, MSG-5.
        UsageError: a name or a value that does not fit.
    """
    if api_key not in RECORDS:
        raise UnsupportedError(
            f"unknown api key {api_key}",
            check_id="FRM-3",
            pos=0,
            expected=f"one of {sorted(RECORDS)}",
            found=str(api_key),
        )
    return encode_frame(RECORDS, api_key, version, data)


def describe_record(
    offset: int,
    key: BytesLike | None,
    value: BytesLike | None,
    *,
    redact: bool = True,
    on_tags: Callable[[list[int]], object] | None = None,
) -> tuple[None, str]:
    """Return the output of kafka-dump-log with --cluster-metadata-decoder: (no key, payload text).

    Never raises for bad bytes: the payload then names the fault. Like the tool, it shows a record
    of a version that is too new if the newest known version can read it. `on_tags` receives the
    tagged fields that the schemas lack. The text does not contain them.
    """
    del key  # the tool ignores it too
    try:
        header = parse_header(value)
        record = _parse(value, header)
    except FormatError as error:
        return None, f"Error at {offset}, skipping. {error.message}"
    if on_tags is not None and (tags := unknown_tags(record.data)):
        on_tags(tags)
    schema = RECORDS[record.api_key]
    data = redacted(record) if redact else record.data
    text = to_json(schema, schema.nearest_version(record.version), data)
    return None, f'{{"type":"{record.name}","version":{record.version},"data":{text}}}'


def redacted(record: MetadataRecord) -> dict[str, Any]:
    """Return the data with secrets replaced by `(redacted)`, for printing only."""
    data = record.data
    if record.api_key == USER_SCRAM_CREDENTIAL:
        return data | dict.fromkeys(SCRAM_SECRETS, REDACTED)
    if (
        record.api_key == CONFIG
        and data["value"] is not None
        and SECRET_CONFIG.search(data["name"])
    ):
        return data | {"value": REDACTED}
    return data
