"""`.kafka_cleanshutdown`: a marker whose existence means a clean stop of the log directory.

    version  content
    up to 3.6  zero bytes
    from 3.7   {"version":0,"brokerEpoch":1234}   one JSON object, no end of line

The keys of the JSON object:

    key          type   meaning
    version      int32  0
    brokerEpoch  int64  of the registration in which the broker stopped; -1 unknown

A broker deletes the file as soon as it has seen it. No content makes the stop unclean. Unreadable
content only loses the broker epoch. The content is valid if and only if these rules hold:

- CSD-1: it is empty, or a JSON object with both keys, integers of their size. Other keys are
  ignored.
- TXT-1: it is exactly what a broker would write. A break is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.errors import FormatError
from storage.formats.java_text import (
    decode_utf8,
    encode_json,
    json_integer,
    parse_json_object,
    unusual_text,
)
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from storage.limits import Buf

NAME = ".kafka_cleanshutdown"
CHECK_ID = "CSD-1"
VERSION = 0
NO_BROKER_EPOCH = -1


class CleanShutdown(NamedTuple):
    """Content of the marker. Both fields are None when it is empty."""

    version: int | None
    broker_epoch: int | None


def parse_clean_shutdown(buf: Buf) -> CleanShutdown:
    """Read the whole file.

    Raises:
        CorruptError: CSD-1. The stop was clean all the same.
    """
    if not buf:
        return CleanShutdown(None, None)
    document = parse_json_object(decode_utf8(buf, check_id=CHECK_ID), check_id=CHECK_ID)
    return CleanShutdown(
        json_integer(document, "version", max_value=INT32_MAX, check_id=CHECK_ID),
        json_integer(document, "brokerEpoch", max_value=INT64_MAX, check_id=CHECK_ID),
    )


def encode_clean_shutdown(marker: CleanShutdown) -> bytes:
    """Return the file: zero bytes if the version is None."""
    if marker.version is None:
        return b""
    epoch = NO_BROKER_EPOCH if marker.broker_epoch is None else marker.broker_epoch
    return encode_json({"version": marker.version, "brokerEpoch": epoch})


def broker_epoch(buf: Buf) -> int | None:
    """Return the broker epoch, or None if the file does not have it. Never raises."""
    try:
        return parse_clean_shutdown(buf).broker_epoch
    except FormatError:
        return None


def problems(buf: Buf) -> list[FormatError]:
    """Judge the file alone: CSD-1 if it does not parse, else TXT-1."""
    try:
        marker = parse_clean_shutdown(buf)
    except FormatError as error:
        return [error]
    return unusual_text(buf, encode_clean_shutdown(marker))
