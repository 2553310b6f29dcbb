"""Keys, values and headers in a line of text or JSON, and lines by a format."""

from __future__ import annotations

import re
from binascii import b2a_base64
from itertools import count
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.record_formats.inputs import BytesAs
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.clients.log.consumed import Headers, Records


NULL_TEXT = b"null"


NO_HEADERS = b"NO_HEADERS"


NO_TIMESTAMP = b"NO_TIMESTAMP"


class JsonBytes(bytes):
    """A value that is JSON in UTF-8: decoded by a schema."""


class TextOptions(NamedTuple):
    """The parts of a line of text besides the value."""

    partition: int = 0
    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_headers: bool = False
    print_key: bool = False
    key_separator: bytes = b"\t"


def header_text(headers: Headers) -> bytes:
    """Return the headers of a record as kafka-console-consumer prints them."""
    if not headers:
        return NO_HEADERS
    return b",".join(key + b":" + (NULL_TEXT if value is None else value) for key, value in headers)


def json_headers(headers: Headers, bytes_as: BytesAs) -> str:
    """Return the content of the list of headers of a record."""
    text = json_text if bytes_as is BytesAs.TEXT else base64_text
    return ",".join([f"[{json_text(key)},{text(value)}]" for key, value in headers])


def json_text(data: bytes | None) -> str:
    """Return a JSON string, null, or an object with base64 for bytes that are not UTF-8."""
    if data is None:
        return "null"
    if isinstance(data, JsonBytes):
        return data.decode()
    try:
        return encode_basestring(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64":{base64_text(data)}}}'


def base64_text(data: bytes | None) -> str:
    """Return base64 as a JSON string, or null."""
    if isinstance(data, JsonBytes):
        return data.decode()
    return "null" if data is None else f'"{b2a_base64(data, newline=False).decode("ascii")}"'


# -- lines by a format, with the letters of kcat and of rpk, which differ in %s, %v and %T, %d


class _Line(NamedTuple):
    """The values of one record for a format."""

    topic: bytes
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    number: int


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _format_headers(headers: Headers) -> bytes:
    """Return headers as kcat's %h: NAME=VALUE, separated by commas. A null value is NULL."""
    return b",".join(key + b"=" + (b"NULL" if value is None else value) for key, value in headers)


# Letter -> its text. kcat prints nothing for null, and -1 for its length.
LETTERS: dict[str, Callable[[_Line], bytes]] = {
    "t": lambda line: line.topic,
    "p": lambda line: b"%d" % line.partition,
    "o": lambda line: b"%d" % line.offset,
    "k": lambda line: line.key or b"",
    "K": lambda line: b"%d" % _length(line.key),
    "v": lambda line: line.value or b"",
    "V": lambda line: b"%d" % _length(line.value),
    "s": lambda line: line.value or b"",
    "S": lambda line: b"%d" % _length(line.value),
    "R": lambda line: _length(line.value).to_bytes(4, "big", signed=True),
    "T": lambda line: b"%d" % line.timestamp_ms,
    "d": lambda line: b"%d" % line.timestamp_ms,
    "h": lambda line: _format_headers(line.headers),
    "H": lambda line: b"%d" % len(line.headers),
    "i": lambda line: b"%d" % line.number,
    "%": lambda _: b"%",
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PARTS = re.compile(
    r"%(?P<letter>.)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>[nrt0\\]))|(?P<plain>[^%\\]+)",
    re.DOTALL,
)


class LineFormat:
    r"""A format of `consume --format`, such as `%t %p %o %k %v\n`."""

    def __init__(self, text: str) -> None:
        """Parse a format.

        Raises:
            UsageError: it has no letter of a record, or an unknown letter or escape.
        """
        self._parts: list[bytes | Callable[[_Line], bytes]] = []
        self._number = count(1)
        pos = 0
        while pos < len(text):
            found = _PARTS.match(text, pos)
            letter = None if found is None else found["letter"]
            if found is None or (letter is not None and letter not in LETTERS):
                raise UsageError(
                    f"--format {text!r}: {text[pos : pos + 2]} means nothing",
                    next_step=f"%% and a letter of {''.join(LETTERS)}; or \\n, \\r, \\t, \\xNN",
                )
            if letter is not None:
                self._parts.append(LETTERS[letter])
            elif found["hex"]:
                self._parts.append(bytes.fromhex(found["hex"]))
            else:
                plain = found["plain"] or ""
                self._parts.append(
                    _ESCAPES.get(found["escape"], plain.encode("utf-8", "surrogateescape"))
                )
            pos = found.end()
        if not any(callable(each) and each is not LETTERS["%"] for each in self._parts):
            raise UsageError(
                f"--format {text!r}: nothing of the record is in it",
                next_step=r"-f '%o %k %v\n'; or -o jsonl, -o csv",
            )

    def encode(self, records: Records, topic: str, partition: int) -> bytes:
        """Return the text of some records."""
        name = topic.encode()
        headers = records.headers or [()] * records.row_count
        columns = (
            *(records.offsets, records.timestamps_ms, records.keys, records.values),
            *(headers, self._number),
        )
        lines = (_Line(name, partition, *each) for each in zip(*columns, strict=False))
        return b"".join(
            part if isinstance(part, bytes) else part(line)
            for line in lines
            for part in self._parts
        )
