"""The frame of records that carry their own type: `__cluster_metadata`, `__remote_log_metadata`.

order  type     field          meaning
    1  uvarint  frame_version  1
    2  uvarint  api_key        which message it is
    3  uvarint  version        of the message's schema
    4  -        message        flexible, to the end of the record's value
The record has no key. All three numbers are at most 32767.

Valid if and only if (FRM rules; what they mean for a topic is KRF-4 for `__cluster_metadata`):
  FRM-1  the three numbers can be read and are at most 32767
  FRM-2  the frame version is 1 (0 was the preview of KRaft in 2.8)
  FRM-3  the api key is known
  FRM-4  the version is known (Kafka does not look and reads its newest)
  FRM-5  the message can be read (the MSG rules), and nothing follows it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.message import MessageSchema, decode_lenient, encode
from storage.formats.varint import encode_uvarint, parse_uvarint
from storage.limits import INT16_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.formats.varint import BytesLike

FRAME_VERSION = 1

UNSUPPORTED_VERSION_CLASS = "org.apache.kafka.common.errors.UnsupportedVersionException"


class FrameHeader(NamedTuple):
    """What comes before the message; `message_pos` is where it starts."""

    api_key: int
    version: int
    message_pos: int


def parse_header(buf: BytesLike | None) -> FrameHeader:
    """Read the three numbers. The errors' messages are those of Kafka's AbstractApiMessageSerde.

    Raises:
        CorruptError: FRM-1 (a null value counts as an empty one).
        UnsupportedError: FRM-2.
    """
    buf = b"" if buf is None else buf
    if len(buf) > 2 and buf[0] == FRAME_VERSION and buf[1] < 0x80 and buf[2] < 0x80:
        return FrameHeader(buf[1], buf[2], 3)  # one byte each, as of all that are known
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
    """Read the message as Kafka does: a version that is too high is read as the highest known.

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
    """UnsupportedError: FRM-4. A key that is not known passes."""
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
    """Write a whole value. UsageError, UnsupportedError as `message.encode`; KeyError: FRM-3."""
    return (
        encode_uvarint(FRAME_VERSION)
        + encode_uvarint(api_key)
        + encode_uvarint(version)
        + encode(schemas[api_key], version, data)
    )
