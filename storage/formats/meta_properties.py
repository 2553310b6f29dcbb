r"""`meta.properties`: the identity of a log directory. A Java properties file.

    key           version 0   version 1 (KRaft)  meaning
    version       0, or none  1
    cluster.id    optional    required           free text, mostly 22 characters
    broker.id     optional    ignored            node id, int32
    node.id       ignored     required           node id, int32
    directory.id  optional    optional           UUID of this log dir, 22 characters

Two comment lines come first: `#` and `#` with a date. Keys are in no order. The file is valid on
its own if and only if this rule holds:

- DIR-3: it is a properties file of version 0 or 1 with all required keys. Node id and directory id
  are well formed. The directory id is not one of the 100 reserved ids.

Syntax: `key=value`, `key:value` or `key value`. Escapes are \t \n \r \f \uXXXX, and \ before any
other character. A line continues after a \ at its end. Comments begin with # or !. Brokers write
UTF-8 and read ISO 8859-1. Text here is as brokers read it, each byte a character.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.java_text import JavaLine, require_integer, shown
from storage.formats.partition_metadata import format_uuid, parse_uuid
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.limits import Buf

NAME = "meta.properties"
CHECK_ID = "DIR-3"

VERSION_KEY = "version"
CLUSTER_ID_KEY = "cluster.id"
BROKER_ID_KEY = "broker.id"
NODE_ID_KEY = "node.id"
DIRECTORY_ID_KEY = "directory.id"

RESERVED_DIRECTORY_IDS = 100  # 0 migrating, 1 unassigned, 2 lost, the others reserved

BLANKS = " \t\f"
CONTROL_AND_BLANK = "".join(map(chr, range(0x21)))  # the characters that String.trim() removes
UNESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
ESCAPES = {char: f"\\{letter}" for letter, char in UNESCAPES.items()} | {
    char: f"\\{char}" for char in "\\=:#!"
}
HEX4 = re.compile(r"[0-9A-Fa-f]{4}")
# Key: up to the first =, : or blank without a \ before it. The separator may have blanks around it.
PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u(?P<hex>.{0,4})|.)", re.DOTALL)


class Comment(NamedTuple):
    """A comment line with its # or !, and the number of properties before it."""

    text: str
    property_count: int = 0


class MetaProperties(NamedTuple):
    """Content of meta.properties.

    `node_id` is broker.id in version 0 and node.id in version 1. `other` has all other keys with
    their text. `key_order` has all keys as read, or None for the order of the table.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: bytes | None  # 16 bytes
    other: tuple[tuple[str, str], ...] = ()
    comments: tuple[Comment, ...] = ()
    key_order: tuple[str, ...] | None = None


class _Property(NamedTuple):
    key: str
    value: str
    line: JavaLine  # the logical line, with place and number of its first part


def parse_meta_properties(buf: Buf) -> MetaProperties:
    """Read the whole file. The last value of a repeated key counts.

    Raises:
        UnsupportedError: the version is neither 0 nor 1.
        NotANumberError: version or node id are no numbers.
        CorruptError: any other break of DIR-3, except a reserved directory id.
    """
    comments, properties = _parse_lines(buf)
    version = _parse_version(properties.get(VERSION_KEY))
    node_id_key = _node_id_key(version)
    cluster_id = properties.get(CLUSTER_ID_KEY)
    node_id = properties.get(node_id_key)
    if version > 0:
        for key, required in ((NODE_ID_KEY, node_id), (CLUSTER_ID_KEY, cluster_id)):
            if required is None:
                raise CorruptError(f"{key} is missing", check_id=CHECK_ID, pos=len(buf))
    directory_id = properties.get(DIRECTORY_ID_KEY)
    used = {VERSION_KEY, CLUSTER_ID_KEY, node_id_key, DIRECTORY_ID_KEY}
    return MetaProperties(
        version=version,
        cluster_id=cluster_id and cluster_id.value,
        node_id=node_id
        and require_integer(
            node_id.value, node_id_key, node_id.line, max_value=INT32_MAX, check_id=CHECK_ID
        ),
        directory_id=directory_id
        and parse_uuid(directory_id.value, check_id=CHECK_ID, pos=directory_id.line.pos),
        other=tuple((key, prop.value) for key, prop in properties.items() if key not in used),
        comments=tuple(comments),
        key_order=tuple(properties),
    )


def encode_meta_properties(meta: MetaProperties) -> bytes:
    """Return the file as Properties.store writes it, with the comments and the order of `meta`.

    For a file that a broker wrote, the bytes are the same.
    """
    values = _values(meta)
    order = dict.fromkeys([*(key for key in meta.key_order or () if key in values), *values])
    comments: dict[int, list[str]] = {}  # by the number of properties before them
    for comment in meta.comments:
        comments.setdefault(min(comment.property_count, len(order)), []).append(comment.text)
    lines = comments.get(0, [])
    for count, key in enumerate(order, 1):
        lines.append(f"{_escape(key, is_key=True)}={_escape(values[key], is_key=False)}")
        lines += comments.get(count, ())
    return "".join(f"{line}\n" for line in lines).encode("latin-1", errors="backslashreplace")


def problems(buf: Buf) -> list[FormatError]:
    """Judge the file alone: DIR-3."""
    try:
        meta = parse_meta_properties(buf)
    except FormatError as error:
        return [error]
    directory_id = meta.directory_id
    if directory_id is None or int.from_bytes(directory_id, "big") >= RESERVED_DIRECTORY_IDS:
        return []
    return [
        CorruptError(
            "directory.id is reserved",
            check_id=CHECK_ID,
            pos=_parse_lines(buf)[1][DIRECTORY_ID_KEY].line.pos,
            expected="a random UUID",
            found=format_uuid(directory_id),
        )
    ]


def _node_id_key(version: int) -> str:
    return BROKER_ID_KEY if version == 0 else NODE_ID_KEY


def _values(meta: MetaProperties) -> dict[str, str]:
    """Return all properties as text, in the order of the table."""
    values: dict[str, str] = {}
    # A file without a version has version 0, and gets no version.
    if meta.version or meta.key_order is None or VERSION_KEY in meta.key_order:
        values[VERSION_KEY] = str(meta.version)
    if meta.cluster_id is not None:
        values[CLUSTER_ID_KEY] = meta.cluster_id
    if meta.node_id is not None:
        values[_node_id_key(meta.version)] = str(meta.node_id)
    if meta.directory_id is not None:
        values[DIRECTORY_ID_KEY] = format_uuid(meta.directory_id)
    return values | dict(meta.other)


def _parse_version(prop: _Property | None) -> int:
    if prop is None:
        return 0
    text = prop.value.strip(CONTROL_AND_BLANK)
    version = require_integer(text, VERSION_KEY, prop.line, max_value=INT32_MAX, check_id=CHECK_ID)
    if version not in (0, 1):
        raise UnsupportedError(
            "version of meta.properties is unknown",
            check_id=CHECK_ID,
            pos=prop.line.pos,
            expected="0 or 1",
            found=str(version),
        )
    return version


def _parse_lines(buf: Buf) -> tuple[list[Comment], dict[str, _Property]]:
    """Return comments and properties.

    A repeated key keeps its first place and takes its last value.
    """
    comments: list[Comment] = []
    properties: dict[str, _Property] = {}
    for line in _logical_lines(buf):
        if line.text.startswith(("#", "!")):
            comments.append(Comment(line.text, len(properties)))
        else:
            prop = _parse_property(line)
            properties[prop.key] = prop
    return comments, properties


def _logical_lines(buf: Buf) -> Iterator[JavaLine]:
    """Join continued lines without the joining backslash. Drops blank lines and indents.

    As in the line reader of java.util.Properties, a comment does not continue. A continued line is
    never a comment, unless it has been empty so far.
    """
    text = ""
    start = JavaLine("", 0, 0)
    pos = 0
    for number, raw in enumerate(bytes(buf).splitlines(keepends=True), 1):
        part = raw.decode("latin-1").rstrip("\r\n").lstrip(BLANKS)
        line = JavaLine(part, pos, number)
        pos += len(raw)
        if not text:
            start = line
            if part.startswith(("#", "!")):
                yield line
                continue
        if (len(part) - len(part.rstrip("\\"))) % 2:
            text += part[:-1]
            continue
        if text or part:
            yield JavaLine(text + part, start.pos, start.number)
        text = ""
    if text:
        yield JavaLine(text, start.pos, start.number)


def _parse_property(line: JavaLine) -> _Property:
    match = PROPERTY.fullmatch(line.text)
    if match is None:
        raise CorruptError("malformed", check_id=CHECK_ID, pos=line.pos, found=shown(line.text))
    key, value = match.groups()
    return _Property(_unescape(key, line), _unescape(value, line), line)


def _unescape(text: str, line: JavaLine) -> str:
    def char_of(match: re.Match[str]) -> str:
        digits = match["hex"]
        if digits is None:
            return UNESCAPES.get(match[1], match[1])
        if not HEX4.fullmatch(digits):
            raise CorruptError(
                f"line {line.number}: malformed escape",
                check_id=CHECK_ID,
                pos=line.pos,
                expected="4 hexadecimal digits",
                found=shown(match[0]),
            )
        return chr(int(digits, 16))

    plain = ESCAPE.sub(char_of, text)
    # Two escapes make one character beyond the basic plane.
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _escape(text: str, *, is_key: bool) -> str:
    chars = []
    for i, char in enumerate(text):
        if char == " " and (is_key or i == 0):
            chars.append("\\ ")
        elif char > "\xff":
            units = char.encode("utf-16-be", "surrogatepass").hex().upper()
            chars += [f"\\u{units[j : j + 4]}" for j in range(0, len(units), 4)]
        else:
            chars.append(ESCAPES.get(char, char))
    return "".join(chars)
