"""Requests and responses of Kafka's protocol, by the tables in `messages.json`, and error codes."""

from __future__ import annotations

import json
from enum import IntEnum
from functools import cache
from importlib import resources
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import TruncatedError
from storage.formats.message import NEVER, Field, MessageSchema, decode

if TYPE_CHECKING:
    from storage.formats.varint import BytesLike


class ErrorCode(IntEnum):
    """Kafka's error codes, as clients know them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    UNSTABLE_OFFSET_COMMIT = 88
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    MISMATCHED_ENDPOINT_TYPE = 114
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129


class CutOffError(Exception):
    """A client has sent something that is not a request, or that a broker answers by disconnecting.

    The connection is closed. The message is for people.
    """


class RequestError(Exception):
    """A part of a request that is answered with an error."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message


# -- requests and responses of Kafka's protocol, by the tables in `messages.json`
#
# `tests/kafka/protocol_messages.py` makes the tables from the schemas inside of kafka-clients.jar.
# Values are as in `storage.formats.message`, with Kafka's names.


API_VERSIONS = 18

_HEADER = Struct(">hhi")  # API, version, correlation id
_NULL_TEXT = -1
_TEXT = Struct(">h")
_TAGS = MessageSchema("tagged fields")


class Api(NamedTuple):
    """One API: its number, its versions, and its messages."""

    key: int
    name: str
    first_version: int
    last_version: int
    request: MessageSchema
    response: MessageSchema

    def has(self, version: int) -> bool:
        """Return whether the API has such a version."""
        return self.first_version <= version <= self.last_version

    def is_flexible(self, version: int) -> bool:
        """Return whether the headers of a version have tagged fields."""
        return version >= self.request.flexible_since


class RequestHeader(NamedTuple):
    """The beginning of every request. `next_pos` is the position after the parsed fields."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    next_pos: int


@cache
def apis() -> dict[int, Api]:
    """Return all APIs that a broker offers to clients, by number."""
    text = resources.files("eoctl.serve.protocol").joinpath("messages.json").read_text()
    tables = json.loads(text)
    found = {}
    for request, response in zip(tables[::2], tables[1::2], strict=True):
        name, key, first, last = request[:4]
        found[key] = Api(
            key=key,
            name=name.removesuffix("Request"),
            first_version=first,
            last_version=last,
            request=_schema(request),
            response=_schema(response),
        )
    return found


def _schema(table: list[Any]) -> MessageSchema:
    name, _, _, last, flexible_since, fields = table
    return MessageSchema(
        name,
        *map(_field, fields),
        highest_version=last,
        flexible_since=NEVER if flexible_since < 0 else flexible_since,
        is_strict=False,
    )


def _field(table: list[Any]) -> Field:
    name, type_name, since, until, tag, inner, *default = table
    return Field(
        name=name,
        type=type_name,
        since=since,
        until=until,
        tag=tag,
        fields=tuple(map(_field, inner)),
        default=default[0] if default else ...,
    )


def parse_header(buf: BytesLike) -> RequestHeader:
    """Read the header of a request, without its tagged fields.

    Raises:
        TruncatedError: the header is incomplete.
        UnicodeDecodeError: the client id is not valid text.
    """
    needed = _HEADER.size + _TEXT.size
    if len(buf) >= needed:
        key, version, correlation_id = _HEADER.unpack_from(buf, 0)
        (length,) = _TEXT.unpack_from(buf, _HEADER.size)
        end_pos = needed + max(length, 0)
        if length >= _NULL_TEXT and end_pos <= len(buf):
            client_id = None if length < 0 else bytes(buf[needed:end_pos]).decode()
            return RequestHeader(
                api_key=key,
                version=version,
                correlation_id=correlation_id,
                client_id=client_id,
                next_pos=end_pos,
            )
        needed = end_pos
    raise TruncatedError(
        "header of a request",
        check_id="MSG-1",
        pos=0,
        needed_bytes=needed,
        available_bytes=len(buf),
    )


def parse_body(api: Api, header: RequestHeader, buf: BytesLike) -> dict[str, Any]:
    """Read the rest of a request, after its header, in a supported version.

    Raises:
        FormatError: it does not match the schema.
    """
    pos = header.next_pos
    if api.is_flexible(header.version):
        pos = decode(_TAGS, 0, buf, pos)[1]
    return decode(api.request, header.version, buf, pos)[0]


def encode_response(
    api: Api, version: int, correlation_id: int, value: dict[str, Any]
) -> bytearray:
    """Write a response, including its header, without the length in front of it.

    Fields that the version does not have are left out. Missing fields have their default.
    """
    out = bytearray(_CORRELATION_ID.pack(correlation_id))
    # Clients that do not know the version must be able to read the ApiVersions response (KIP-511).
    if api.is_flexible(version) and api.key != API_VERSIONS:
        out.append(0)
    api.response.codec(version).write(out, value)
    return out


_CORRELATION_ID = Struct(">i")
