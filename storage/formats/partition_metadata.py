r"""`partition.metadata`: the topic id of a partition directory. Two lines, no \n at the end.

    line  content               meaning
       1  version: 0
       2  topic_id: <22 chars>  URL-safe base64, without padding, of the 16 bytes of a UUID

A file is valid if and only if these rules hold:

- DIR-4: line 1 has a version >= 0 and line 2 a topic id of 16 bytes that are not all zero.
- TXT-1: it is exactly what a broker would write. A break is harmless. A broker reads only the text
  after the colon and white space of each line, and no third line.

The metadata log's topic id is always AAAAAAAAAAAAAAAAAAAAAQ.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.java_text import (
    parse_lines,
    require_integer,
    shown,
    split_fields,
    unusual_text,
)
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from storage.limits import Buf

NAME = "partition.metadata"
CHECK_ID = "DIR-4"
VERSION = 0

UUID_BYTES = 16
UUID_CHARS = 22
ZERO_UUID = bytes(UUID_BYTES)
METADATA_TOPIC_ID = bytes(UUID_BYTES - 1) + b"\x01"

SEPARATOR = re.compile(r":[ \t\x0b\f]+")
# Java's decoder accepts no padding or the right padding, and ignores the 4 unused bits.
UUID_TEXT = re.compile(r"([A-Za-z0-9_-]{22})(==)?")


class NotCaughtError(CorruptError):
    """A line that is missing or no UUID. The broker does not catch its exception and cannot start.

    Any other fault is an I/O error, which takes the log directory offline (4.3.1).
    """


class PartitionMetadata(NamedTuple):
    """Content of partition.metadata. `topic_id` is 16 bytes."""

    version: int
    topic_id: bytes


def format_uuid(uuid: bytes) -> str:
    """Return the 22 characters of Kafka's text for 16 bytes."""
    return urlsafe_b64encode(uuid).decode("ascii").rstrip("=")


def new_topic_id() -> str:
    """Return a random topic id as text that no command takes for an option (Uuid.randomUuid).

    It is never one of Kafka's reserved ids, which have another version.
    """
    from uuid import uuid4

    while True:
        text = format_uuid(uuid4().bytes)
        if not text.startswith("-"):
            return text


def parse_uuid(text: str, *, check_id: str = CHECK_ID, pos: int = 0) -> bytes:
    """Read a text that Kafka's Uuid.fromString reads: 22 characters, or 24 with padding.

    Args:
        text: the id.
        check_id: the rule that the error names.
        pos: the position that the error names.

    Raises:
        CorruptError: not base64 of 16 bytes.
    """
    match = UUID_TEXT.fullmatch(text)
    if match is None:
        raise CorruptError(
            "not a UUID",
            check_id=check_id,
            pos=pos,
            expected=f"{UUID_CHARS} characters of URL-safe base64",
            found=shown(text),
        )
    return urlsafe_b64decode(match.group(1) + "==")


def parse_partition_metadata(buf: Buf) -> PartitionMetadata:
    """Read the whole file.

    Raises:
        NotANumberError: the version is not a number.
        UnsupportedError: the version is negative. Later versions are accepted, as by a broker.
        NotCaughtError: a line is missing, or the topic id is no UUID.
        CorruptError: any other break of DIR-4.
    """
    lines = parse_lines(buf, check_id=CHECK_ID)
    values = []
    for line in lines[:2]:
        fields = split_fields(line.text, SEPARATOR)
        if len(fields) != 2:
            raise CorruptError(
                f"line {line.number}: malformed",
                check_id=CHECK_ID,
                pos=line.pos,
                expected="name, colon, blank, value",
                found=shown(line.text),
            )
        values.append(fields[1])
    if len(values) < 2:
        raise NotCaughtError(
            "lines are missing",
            check_id=CHECK_ID,
            pos=len(buf),
            expected="2 lines",
            found=f"{len(values)} lines",
        )
    version = require_integer(
        values[0], "version", lines[0], max_value=INT32_MAX, check_id=CHECK_ID
    )
    if version < VERSION:
        raise UnsupportedError(
            "version of partition.metadata is negative",
            check_id=CHECK_ID,
            pos=lines[0].pos,
            expected=f"version >= {VERSION}",
            found=f"version {version}",
        )
    try:
        topic_id = parse_uuid(values[1], pos=lines[1].pos)
    except CorruptError as error:
        raise NotCaughtError(
            error.message,
            check_id=CHECK_ID,
            pos=error.pos,
            expected=error.expected,
            found=error.found,
        ) from None
    if topic_id == ZERO_UUID:
        raise CorruptError(
            "topic id is all zero",
            check_id=CHECK_ID,
            pos=lines[1].pos,
            expected="a topic id",
            found=shown(values[1]),
        )
    return PartitionMetadata(version, topic_id)


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Return the file."""
    topic_id = format_uuid(metadata.topic_id)
    return f"version: {metadata.version}\ntopic_id: {topic_id}".encode()


def problems(buf: Buf) -> list[FormatError]:
    """Judge the file alone: DIR-4 if it does not parse, else TXT-1."""
    try:
        metadata = parse_partition_metadata(buf)
    except FormatError as error:
        return [error]
    return unusual_text(buf, encode_partition_metadata(metadata))
