"""How keys, values and headers of records stand in a line of text or JSON."""

from __future__ import annotations

from binascii import b2a_base64
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.text.inputs import BytesAs

if TYPE_CHECKING:
    from eoctl.clients.log.consumed import Headers


NULL_TEXT = b"null"


NO_HEADERS = b"NO_HEADERS"


NO_TIMESTAMP = b"NO_TIMESTAMP"


class TextOptions(NamedTuple):
    """What a line of text has beside the value."""

    partition: int = 0
    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_headers: bool = False
    print_key: bool = False
    key_separator: bytes = b"\t"


def header_text(headers: Headers) -> bytes:
    """Return the headers of a record as that tool prints them."""
    if not headers:
        return NO_HEADERS
    return b",".join(key + b":" + (NULL_TEXT if value is None else value) for key, value in headers)


def json_headers(headers: Headers, bytes_as: BytesAs) -> str:
    """Return the inside of the list of headers of a record."""
    text = json_text if bytes_as is BytesAs.TEXT else base64_text
    return ",".join([f"[{json_text(key)},{text(value)}]" for key, value in headers])


def json_text(data: bytes | None) -> str:
    """Return a JSON string, null, or what stands for bytes that are not UTF-8."""
    if data is None:
        return "null"
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64":{base64_text(data)}}}'


def base64_text(data: bytes | None) -> str:
    """Return base64 as a JSON string, or null."""
    return "null" if data is None else f'"{b2a_base64(data, newline=False).decode("ascii")}"'
