"""What a classic consumer group keeps in its members' opaque bytes (protocolType "consumer").

Both are written by clients, opened by an int16 version (0 to 3) and never flexible:

Subscription     type      since      Assignment          type     since
topics           []string      0      assignedPartitions  []           0
userData         bytes?        0        topic             string
ownedPartitions  []            1        partitions        []int32
  topic          string               userData            bytes?       0
  partitions     []int32
generationId     int32         2      default -1
rackId           string?       3

Valid if and only if the MSG rules of `message` hold. As in Kafka's tool, a version above 3 is read
as 3 unless there are structs in it; what follows is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.bounds import require_bytes
from storage.formats.message import MessageSchema, decode_lenient, encode, to_json
from storage.formats.message_codec import INT16, NEVER, Field

if TYPE_CHECKING:
    from storage.formats.varint import BytesLike

_TOPIC_PARTITIONS = (Field("topic", "string"), Field("partitions", "[]int32"))

SUBSCRIPTION = MessageSchema(
    "ConsumerProtocolSubscription",
    Field("topics", "[]string"),
    Field("userData", "bytes?", default=None),
    Field("ownedPartitions", "[]struct", since=1, fields=_TOPIC_PARTITIONS),
    Field("generationId", "int32", since=2, default=-1),
    Field("rackId", "string?", since=3, default=None),
    highest_version=3,
    flexible_since=NEVER,
)
ASSIGNMENT = MessageSchema(
    "ConsumerProtocolAssignment",
    Field("assignedPartitions", "[]struct", fields=_TOPIC_PARTITIONS),
    Field("userData", "bytes?", default=None),
    highest_version=3,
    flexible_since=NEVER,
)


def parse(schema: MessageSchema, buf: BytesLike) -> tuple[int, dict[str, Any]]:
    """Read SUBSCRIPTION or ASSIGNMENT; returns (version on disk, fields).

    Raises:
        TruncatedError, CorruptError: the MSG rules.
    """
    require_bytes(buf, 0, INT16.size, f"version of {schema.name}", check_id="MSG-1")
    version: int = INT16.unpack_from(buf, 0)[0]
    return version, decode_lenient(schema, version, buf, INT16.size)[0]


def encode_message(schema: MessageSchema, version: int, fields: dict[str, Any]) -> bytes:
    """Write SUBSCRIPTION or ASSIGNMENT. UsageError, UnsupportedError as `message.encode`."""
    return INT16.pack(version) + encode(schema, version, fields)


def parsed_json(schema: MessageSchema, buf: BytesLike) -> str:
    """The JSON of the message in `buf`, without its version. Errors as `parse`."""
    version, fields = parse(schema, buf)
    return to_json(schema, schema.nearest_version(version), fields)
