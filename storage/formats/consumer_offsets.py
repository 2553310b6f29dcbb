"""Records of `__consumer_offsets`: committed offsets, and the state of groups of every kind.

50 partitions, compacted; the framing of key and value is that of `coordinator_record`, the schemas
of all types are in `group_records`. The two kinds that hold offsets:

Key, type 1 (OffsetCommitKey; type 0 is the same, of brokers before 0.9): group string, topic
string, partition int32.

Value (OffsetCommitValue), flexible from version 4 on:
field            type    versions  meaning
offset           int64   0-        next offset to consume
leaderEpoch      int32   3-        -1 unknown
metadata         string  0-        the client's own
commitTimestamp  int64   0-        ms
expireTimestamp  int64   1         ms; -1: by the broker's retention
topicId          uuid    4-        tag 0

Offsets committed within a transaction are ordinary transactional batches: they count after the
COMMIT marker in the same partition only.

Valid if and only if the COO and MSG rules hold. Types of 9 and above were changed without a new
version during development, so a value of theirs that cannot be read need not be damaged.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import FormatError
from storage.formats import consumer_protocol
from storage.formats import coordinator_record as records
from storage.formats.group_records import (
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_VALUE,
    RECORD_TYPES,
)
from storage.formats.message import MessageSchema, to_json
from storage.formats.message_codec import ZERO_UUID
from storage.formats.message_json import Json

if TYPE_CHECKING:
    from storage.formats.coordinator_record import CoordinatorRecord
    from storage.formats.varint import BytesLike

LEGACY_OFFSET_COMMIT_TYPE = 0
OFFSET_COMMIT_TYPE = 1
GROUP_METADATA_TYPE = 2
OFFSET_TYPES = (LEGACY_OFFSET_COMMIT_TYPE, OFFSET_COMMIT_TYPE)

CONSUMER_PROTOCOL_TYPE = "consumer"
EMBEDDED = {
    "subscription": consumer_protocol.SUBSCRIPTION,
    "assignment": consumer_protocol.ASSIGNMENT,
}


class OffsetKey(NamedTuple):
    """Whose committed offset a record holds."""

    group: str
    topic: str
    partition: int


class OffsetCommit(NamedTuple):
    """The value of an offset commit; what a version lacks has its default."""

    version: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID


def parse_record(key: BytesLike | None, value: BytesLike | None) -> CoordinatorRecord:
    """Read a record of any type; its value is None for a tombstone.

    Raises:
        CorruptError, TruncatedError, UnsupportedError: the COO and MSG rules.
    """
    return records.parse_record(RECORD_TYPES, key, value)


def parse_offset_record(
    key: BytesLike | None, value: BytesLike | None
) -> tuple[OffsetKey, OffsetCommit | None] | None:
    """Read a committed offset; None for the other types, (key, None) for a tombstone.

    Errors as `parse_record`; the value of another type is not looked at.
    """
    if key is not None and records.parse_prefix(key, "key") not in OFFSET_TYPES:
        return None
    record = parse_record(key, value)
    offset_key = OffsetKey(record.key["group"], record.key["topic"], record.key["partition"])
    fields = record.value
    if fields is None:
        return offset_key, None
    return offset_key, OffsetCommit(
        version=record.version,
        offset=fields["offset"],
        leader_epoch=fields.get("leaderEpoch", -1),
        metadata=fields["metadata"],
        commit_timestamp_ms=fields["commitTimestamp"],
        expire_timestamp_ms=fields.get("expireTimestamp", -1),
        topic_id=fields.get("topicId", ZERO_UUID),
    )


def encode_offset_key(key: OffsetKey) -> bytes:
    """The key of a committed offset, type 1. UsageError: a name longer than 32767 bytes."""
    return records.encode_key(RECORD_TYPES[OFFSET_COMMIT_TYPE], key._asdict())


def encode_offset_value(value: OffsetCommit) -> bytes:
    """The value of a committed offset; fields that its version lacks are not written.

    UsageError: a value that does not fit its type. UnsupportedError: MSG-5.
    """
    fields: dict[str, Any] = {
        "offset": value.offset,
        "metadata": value.metadata,
        "commitTimestamp": value.commit_timestamp_ms,
    }
    if value.version == 1:
        fields["expireTimestamp"] = value.expire_timestamp_ms
    if value.version >= 3:
        fields["leaderEpoch"] = value.leader_epoch
    if value.version >= 4:
        fields["topicId"] = value.topic_id
    return records.encode_value(OFFSET_COMMIT_VALUE, value.version, fields)


def describe_record(
    offset: int, key: BytesLike | None, value: BytesLike | None
) -> tuple[str | None, str | None]:
    """What kafka-dump-log with --offsets-decoder prints: (key text, payload text).

    Types 9, 18 and 24, which 4.3.1 calls unknown, are shown as the releases that write them do.

    CorruptError (COO-1): there is no key, where the tool dies.
    """
    return records.describe_record(RECORD_TYPES, offset, key, value, data_json=_data_json)


def _data_json(schema: MessageSchema, version: int, fields: dict[str, Any]) -> str:
    if schema is GROUP_METADATA_VALUE and fields["protocolType"] == CONSUMER_PROTOCOL_TYPE:
        return _group_metadata_json(version, fields)
    return to_json(schema, version, fields)


def _group_metadata_json(version: int, fields: dict[str, Any]) -> str:
    """As `to_json`; what the members' bytes hold is shown in their place where it can be read."""
    members = []
    for member in fields["members"]:
        shown = dict(member)
        for name, schema in EMBEDDED.items():
            with suppress(FormatError):
                shown[name] = Json(consumer_protocol.parsed_json(schema, member[name]))
        members.append(shown)
    return to_json(GROUP_METADATA_VALUE, version, fields | {"members": members})
