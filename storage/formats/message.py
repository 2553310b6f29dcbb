r"""Kafka's generated messages: the one encoding of the records of every internal topic.

A table of fields, a `MessageSchema`, describes a message. Each version is either flexible (compact
lengths, tagged fields) or not:

    type                  not flexible                      flexible
    bool                  int8, 0 is false                  same
    int8 .. int64         big-endian, signed                same
    uint16 uint32         big-endian                        same
    float64               IEEE 754, big-endian              same
    uuid                  16 bytes                          same
    string                int16 length, UTF-8; -1 null      uvarint length + 1, UTF-8; 0 null
    bytes, records        int32 length; -1 null             uvarint length + 1; 0 null
    []T                   int32 count; -1 null              uvarint count + 1; 0 null
    struct                its fields                        its fields, then tagged fields
    nullable struct       int8 -1 null, 1 and the struct    same; inside a tag uvarint 0 null, or 1
    tagged fields         -                                 uvarint count, then by tag order
                                                            uvarint tag, uvarint size, payload

A message is valid if and only if these rules hold:

- MSG-1: the buffer has all of it.
- MSG-2: null occurs only where the schema allows it.
- MSG-3: no length or count is larger than the rest of the buffer. No string is longer than 32767
  bytes.
- MSG-4: a tagged field that the schema has is as long as its size.
- MSG-5: the schema has its version.

eoctl reads some forms that Kafka reads but does not write. These are a bool other than 0 and 1,
tags out of order, a default in a tag, a varint longer than needed, and text that is not UTF-8.
Malformed pieces of text become U+FFFD. Of all valid messages only these forms change in `encode`.
MSG-4 is ours: Kafka continues wherever the field ended, among bytes with another meaning.

Values are dicts in the order of the schema with Kafka's names as keys. They contain integers,
floats, bools, str, bytes (a uuid is its 16 bytes), list, dict and None. An absent tagged field has
its default. `UNKNOWN_TAGS` has the tagged fields that the schema lacks, as (tag, payload) pairs.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode, urlsafe_b64encode
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import CorruptError, FormatError, TruncatedError, UnsupportedError, UsageError
from storage.formats.java_text import kafka_text
from storage.formats.varint import BytesLike, encode_uvarint, parse_uvarint
from storage.limits import INT16_MAX, INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable


# -- JSON text of Kafka's messages, character by character as Kafka's tools print it.
#
# kafka-dump-log turns a message into a tree with the generated JsonConverter. It prints the tree
# with Jackson, without blanks. The texts of values:
#
# * Integers: as numbers, int64 too.
# * Bool: true or false.
# * Float64: as Java's Double.toString. NaN and the infinities are strings.
# * Uuid: 22 characters, URL-safe base64 without padding.
# * Bytes, records: standard base64 with padding.
# * String: control characters as \b \t \n \f \r or \u00XX (capital hex). `"` and `\` are escaped,
#   everything else is as it is.
# * Null: null.
# * Struct: an object in the order of the schema. Tagged fields that equal their default are left
#   out, and so are tagged fields that the schema lacks.
#
# Java before 19 prints some doubles with more digits than needed to be unique. We print the fewest
# digits, as Java 19 and later.


ESCAPED = re.compile(r'["\\\x00-\x1f]')
ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
# Java writes a double without exponent from 10^-3 to below 10^7.
PLAIN_MIN_EXPONENT = -3
PLAIN_END_EXPONENT = 7


class Json(str):
    """Text that is JSON already and is inserted as it is."""

    __slots__ = ()


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return ESCAPES.get(character) or f"\\u{ord(character):04X}"


def json_string(text: str) -> str:
    """Return the text quoted and escaped as Jackson does by default."""
    return f'"{ESCAPED.sub(_escape, text)}"'


def json_bool(value: bool) -> str:
    """Return `true` or `false`."""
    return "true" if value else "false"


def json_bytes(value: bytes) -> str:
    """Return standard base64 with padding, quoted."""
    return f'"{b64encode(value).decode()}"'


def json_uuid(value: bytes) -> str:
    """Return the 22 characters of Kafka's Uuid, quoted."""
    return f'"{urlsafe_b64encode(value).decode().rstrip("=")}"'


def json_double(value: float) -> str:
    """Return the text of Java's Double.toString (19 and later), a string for NaN and infinities."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    digits, exponent = _shortest_digits(abs(value))
    if PLAIN_MIN_EXPONENT <= exponent < PLAIN_END_EXPONENT:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest_digits(value: float) -> tuple[str, int]:
    """Return the fewest exact digits d1 d2 ... and exponent e with value = d1.d2... * 10^e.

    If one digit is enough, Java takes the nearest of two digits: 4.9E-324 rather than 5E-324.
    """
    mantissa, exponent = f"{value!r}e".split("e")[:2]
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0").rstrip("0")
    if len(digits) == 1:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return mantissa.replace(".", "").rstrip("0"), int(exponent)
    point = len(whole) if whole != "0" else len(fraction.lstrip("0")) - len(fraction)
    return digits, point - 1 + int(exponent or 0)


def json_array(elements: list[str]) -> str:
    """Return an array of elements that are JSON already."""
    return f"[{','.join(elements)}]"


def json_object(members: list[tuple[str, str]]) -> str:
    """Return an object of names that need no escaping, and values that are JSON already."""
    return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"


# -- reading, writing and printing of the types of Kafka's generated messages
#
# A `TypeCodec` is made once per message and version, so that reading needs no lookups in its
# schema. The errors have the messages of Kafka's generated readers, which its tools print.


UNKNOWN_TAGS = "_unknownTaggedFields"

MAX_STRING_BYTES = INT16_MAX
MAX_UINT32 = 0xFFFF_FFFF
UUID_BYTES = 16
ZERO_UUID = bytes(UUID_BYTES)

INT16 = Struct(">h")
INT32 = Struct(">i")
FIXED_WIDTH = {
    "int8": Struct(">b"),
    "int16": INT16,
    "int32": INT32,
    "int64": Struct(">q"),
    "uint16": Struct(">H"),
    "uint32": Struct(">I"),
    "float64": Struct(">d"),
}


class Elsewhere:
    """Bytes of a `bytes` or `records` field that are sent without a copy into the message.

    Attributes:
        size_bytes: their number.
        pos: their position in the encoded message, -1 before it is encoded.
    """

    __slots__ = ("pos", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.pos = -1


class TypeCodec(NamedTuple):
    """The functions to read, write and print one type. `default` makes a new default value."""

    read: Callable[[BytesLike, int], tuple[Any, int]]
    write: Callable[[bytearray, Any], None]
    json: Callable[[Any], str]
    default: Callable[[], Any]


def _short(what: str, pos: int, needed_bytes: int, buf: BytesLike) -> TruncatedError:
    return TruncatedError(
        what,
        check_id="MSG-1",
        pos=pos,
        needed_bytes=needed_bytes,
        available_bytes=len(buf) - pos,
    )


def _corrupt(message: str, check_id: str, pos: int) -> CorruptError:
    return CorruptError(message, check_id=check_id, pos=pos)


def _read_uvarint(buf: BytesLike, pos: int) -> tuple[int, int]:
    if pos < len(buf) and (byte := buf[pos]) < 0x80:
        return byte, pos + 1
    try:
        value, next_pos = parse_uvarint(buf, pos)
    except CorruptError as error:
        low_bits = sum((buf[pos + place] & 0x7F) << (7 * place) for place in range(5)) & MAX_UINT32
        error.message = (
            "Varint is too long, the most significant bit in the 5th byte is set, "
            f"converted value: {low_bits:x}"
        )
        raise
    if value > INT32_MAX:  # Kafka takes it for a negative number, and that for null or no element
        raise _corrupt(f"count {value} is negative as int32", "MSG-3", pos)
    return value, next_pos


def _fixed_codec(type_name: str) -> TypeCodec:
    layout = FIXED_WIDTH[type_name]
    width_bytes, unpack_from, pack = layout.size, layout.unpack_from, layout.pack

    def read(buf: BytesLike, pos: int) -> tuple[Any, int]:
        end_pos = pos + width_bytes
        if end_pos > len(buf):
            raise _short(type_name, pos, width_bytes, buf)
        return unpack_from(buf, pos)[0], end_pos

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    if type_name == "float64":
        return TypeCodec(read=read, write=write, json=json_double, default=float)
    return TypeCodec(read=read, write=write, json=str, default=int)


def _bool_codec() -> TypeCodec:
    def read(buf: BytesLike, pos: int) -> tuple[bool, int]:
        if pos >= len(buf):
            raise _short("bool", pos, 1, buf)
        return buf[pos] != 0, pos + 1

    def write(out: bytearray, value: Any) -> None:
        out.append(1 if value else 0)

    return TypeCodec(read=read, write=write, json=json_bool, default=bool)


def _uuid_codec() -> TypeCodec:
    def read(buf: BytesLike, pos: int) -> tuple[bytes, int]:
        end_pos = pos + UUID_BYTES
        if end_pos > len(buf):
            raise _short("uuid", pos, UUID_BYTES, buf)
        return bytes(buf[pos:end_pos]), end_pos

    def write(out: bytearray, value: Any) -> None:
        if len(value) != UUID_BYTES:
            raise ValueError(f"a uuid has {UUID_BYTES} bytes, not {len(value)}")
        out += value

    return TypeCodec(read=read, write=write, json=json_uuid, default=lambda: ZERO_UUID)


class _Length(NamedTuple):
    """The encoding of the length of a string, bytes or list. Null is -1."""

    read: Callable[[BytesLike, int], tuple[int, int]]
    write: Callable[[bytearray, int], None]


def _fixed_length(layout: Struct) -> _Length:
    codec = _fixed_codec("int16" if layout is INT16 else "int32")

    def write(out: bytearray, length: int) -> None:
        out += layout.pack(length)

    return _Length(codec.read, write)


def _read_compact_length(buf: BytesLike, pos: int) -> tuple[int, int]:
    value, next_pos = _read_uvarint(buf, pos)
    return value - 1, next_pos


def _write_compact_length(out: bytearray, length: int) -> None:
    out += encode_uvarint(length + 1)


COMPACT_LENGTH = _Length(_read_compact_length, _write_compact_length)
INT16_LENGTH = _fixed_length(INT16)
INT32_LENGTH = _fixed_length(INT32)


def _null_error(name: str, pos: int) -> CorruptError:
    return _corrupt(f"non-nullable field {name} was serialized as null", "MSG-2", pos)


def _read_array(buf: BytesLike, pos: int, length: int) -> bytes:
    available_bytes = len(buf) - pos
    if length > available_bytes:
        raise _corrupt(
            f"Error reading byte array of {length} byte(s): "
            f"only {available_bytes} byte(s) available",
            "MSG-3",
            pos,
        )
    return bytes(buf[pos : pos + length])


def _blob_codec(name: str, *, text: bool, nullable: bool, flexible: bool) -> TypeCodec:
    """Return the codec of strings (`text`) or bytes."""
    length_codec = COMPACT_LENGTH if flexible else INT16_LENGTH if text else INT32_LENGTH
    read_length, write_length = length_codec

    def read(buf: BytesLike, pos: int) -> tuple[Any, int]:
        length, data_pos = read_length(buf, pos)
        if length < 0:
            if not nullable:
                raise _null_error(name, pos)
            return None, data_pos
        if text and length > MAX_STRING_BYTES:
            raise _corrupt(f"string field {name} had invalid length {length}", "MSG-3", pos)
        data = _read_array(buf, data_pos, length)
        return (kafka_text(data) if text else data), data_pos + length

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{name} must not be null")
            write_length(out, -1)
            return
        if isinstance(value, Elsewhere):
            write_length(out, value.size_bytes)
            value.pos = len(out)
            return
        data = value.encode() if text else value
        if text and len(data) > MAX_STRING_BYTES:
            raise ValueError(f"{name} is longer than {MAX_STRING_BYTES} bytes")
        write_length(out, len(data))
        out += data

    quoted: Callable[[Any], str] = json_string if text else json_bytes

    def to_text(value: Any) -> str:
        if value is None:
            return "null"
        return value if isinstance(value, Json) else quoted(value)

    return TypeCodec(
        read=read,
        write=write,
        json=to_text,
        default=str if text else bytes,
    )


def _list_codec(name: str, element: TypeCodec, *, nullable: bool, flexible: bool) -> TypeCodec:
    read_length, write_length = COMPACT_LENGTH if flexible else INT32_LENGTH
    read_element, write_element, element_json = element.read, element.write, element.json

    def read(buf: BytesLike, pos: int) -> tuple[Any, int]:
        count, next_pos = read_length(buf, pos)
        if count < 0:
            if not nullable:
                raise _null_error(name, pos)
            return None, next_pos
        # Every element takes at least a byte, so this limits the loop and the list.
        if count > len(buf) - next_pos:
            raise _corrupt(
                f"Tried to allocate a collection of size {count}, "
                f"but there are only {len(buf) - next_pos} bytes remaining.",
                "MSG-3",
                pos,
            )
        values = []
        for _ in range(count):
            value, next_pos = read_element(buf, next_pos)
            values.append(value)
        return values, next_pos

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError(f"{name} must not be null")
            write_length(out, -1)
            return
        write_length(out, len(value))
        for element_value in value:
            write_element(out, element_value)

    def to_text(value: Any) -> str:
        if value is None:
            return "null"
        return json_array([element_json(one) for one in value])

    return TypeCodec(read=read, write=write, json=to_text, default=list)


def _nullable_struct_codec(struct: TypeCodec, *, tagged: bool) -> TypeCodec:
    """Return the codec of a struct after a marker byte: int8 -1 or 1, in a tag uvarint 0 or 1."""

    def read(buf: BytesLike, pos: int) -> tuple[Any, int]:
        if tagged:
            marker, next_pos = _read_uvarint(buf, pos)
            return struct.read(buf, next_pos) if marker > 0 else (None, next_pos)
        if pos >= len(buf):
            raise _short("int8", pos, 1, buf)
        return struct.read(buf, pos + 1) if buf[pos] < 0x80 else (None, pos + 1)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0 if tagged else 0xFF)
            return
        out.append(1)
        struct.write(out, value)

    return TypeCodec(
        read=read,
        write=write,
        json=lambda value: "null" if value is None else struct.json(value),
        default=struct.default,
    )


def _unreadable_struct_codec(codec: TypeCodec) -> TypeCodec:
    """Return the codec of a struct of an unknown version.

    Kafka's generated structs refuse an unknown version, unlike its messages.
    """

    def read(buf: BytesLike, pos: int) -> tuple[Any, int]:
        del buf
        raise _corrupt("a struct of an unknown version", "MSG-5", pos)

    return codec._replace(read=read)


def _field_codec(
    field: Field, version: int, *, flexible: bool, known: bool, is_strict: bool
) -> TypeCodec:
    type_name = field.type.removesuffix("?")
    nullable = field.type.endswith("?")
    if type_name.startswith("[]"):
        one = field._replace(name=f"{field.name} element", type=type_name[2:], tag=-1, default=...)
        element = _field_codec(one, version, flexible=flexible, known=known, is_strict=is_strict)
        codec = _list_codec(field.name, element, nullable=nullable, flexible=flexible)
    elif type_name in ("string", "bytes", "records"):
        text = type_name == "string"
        codec = _blob_codec(field.name, text=text, nullable=nullable, flexible=flexible)
    elif type_name == "struct":
        codec = struct_codec(
            field.fields, version, flexible=flexible, known=known, is_strict=is_strict
        )
        if not known:
            codec = _unreadable_struct_codec(codec)
        if nullable:
            codec = _nullable_struct_codec(codec, tagged=field.tag >= 0)
    elif type_name == "bool":
        codec = _bool_codec()
    elif type_name == "uuid":
        codec = _uuid_codec()
    else:
        codec = _fixed_codec(type_name)
    if field.default is not ...:
        codec = codec._replace(default=lambda: field.default)
    return codec


def struct_codec(
    fields: tuple[Field, ...],
    version: int,
    *,
    flexible: bool,
    known: bool = True,
    is_strict: bool = True,
) -> TypeCodec:
    """Return the codec of a message or of a struct in it, for one version.

    `known` False: the version on disk is another version that is read as this version. `is_strict`
    False: names that the version lacks are not written.
    """
    present = [
        (
            field,
            _field_codec(field, version, flexible=flexible, known=known, is_strict=is_strict),
        )
        for field in fields
        if field.since <= version <= field.until
    ]
    names = {field.name for field, _ in present} | ({UNKNOWN_TAGS} if flexible else set())
    plain = [(field.name, codec.read) for field, codec in present if field.tag < 0]
    tagged = {field.tag: (field.name, codec) for field, codec in present if field.tag >= 0}
    in_order = sorted(tagged.items())
    # A new value has its tagged fields at their defaults, in the order of the schema.
    order = [(field.name, codec.default, field.tag >= 0) for field, codec in present]
    begun = {name: default() if is_tag else None for name, default, is_tag in order if tagged}
    # Mutable defaults are made again for each value.
    made = [
        (name, default) for name, default, _ in order if isinstance(begun.get(name), list | dict)
    ]

    def read(buf: BytesLike, pos: int) -> tuple[dict[str, Any], int]:
        value = begun.copy()
        for name, default in made:
            value[name] = default()
        for name, read_field in plain:
            value[name], pos = read_field(buf, pos)
        if flexible:
            pos = _read_tags(buf, pos, tagged, value)
        return value, pos

    def write(out: bytearray, value: Any) -> None:
        if is_strict and not value.keys() <= names:
            raise ValueError(f"no such field in this version: {sorted(value.keys() - names)}")
        for field, codec in present:
            if field.tag < 0:
                name = field.name
                codec.write(out, value[name] if name in value else codec.default())
        if flexible:
            _write_tags(out, in_order, value)

    def to_text(value: Any) -> str:
        return json_object(
            [
                (field.name, codec.json(value[field.name]))
                for field, codec in present
                if field.tag < 0 or value[field.name] != codec.default()
            ]
        )

    return TypeCodec(
        read=read,
        write=write,
        json=to_text,
        default=lambda: {name: default() for name, default, _ in order},
    )


def _read_tags(
    buf: BytesLike, pos: int, tagged: dict[int, tuple[str, TypeCodec]], value: dict[str, Any]
) -> int:
    """Read a tagged-field section into `value`. Returns next_pos."""
    count, pos = _read_uvarint(buf, pos)
    unknown = []
    for _ in range(count):  # each takes at least two bytes, so the buffer limits the loop
        tag, pos = _read_uvarint(buf, pos)
        size_bytes, pos = _read_uvarint(buf, pos)
        if tag not in tagged:
            unknown.append((tag, _read_array(buf, pos, size_bytes)))
            pos += size_bytes
            continue
        name, codec = tagged[tag]
        value[name], end_pos = codec.read(buf, pos)
        if end_pos != pos + size_bytes:
            raise CorruptError(
                f"tagged field {name} is not as long as its size says",
                check_id="MSG-4",
                pos=pos,
                expected=f"{size_bytes} bytes",
                found=f"{end_pos - pos} bytes",
            )
        pos = end_pos
    if unknown:
        value[UNKNOWN_TAGS] = unknown
    return pos


def _write_tags(
    out: bytearray, in_order: list[tuple[int, tuple[str, TypeCodec]]], value: dict[str, Any]
) -> None:
    """Write the fields that differ from their defaults, and unknown fields, in order of tags."""
    payloads: list[tuple[int, bytes]] = list(value.get(UNKNOWN_TAGS, ()))
    for tag, (name, codec) in in_order:
        if name in value and value[name] != codec.default():
            payload = bytearray()
            codec.write(payload, value[name])
            payloads.append((tag, bytes(payload)))
    payloads.sort(key=lambda pair: pair[0])
    out += encode_uvarint(len(payloads))
    for tag, one in payloads:
        out += encode_uvarint(tag) + encode_uvarint(len(one)) + one


LAST_VERSION = INT16_MAX


NEVER = LAST_VERSION + 1  # `flexible_since` of a message that is never flexible


class Field(NamedTuple):
    """One field of a message, as in Kafka's schema files.

    `type` is a type of the table above, or `struct` for a field with `fields`. The prefix `[]`
    means a list, the suffix `?` a nullable field. `default` None means null. If omitted, it is
    zero, false, "" or empty. A field with a `tag` is a tagged field.
    """

    name: str
    type: str
    since: int = 0
    until: int = LAST_VERSION
    tag: int = -1
    default: Any = ...
    fields: tuple[Field, ...] = ()


# -- message


class MessageSchema:
    """A message: its fields, its versions, and the first flexible version.

    `is_strict` False: names that a version lacks are omitted in its encoding.
    """

    __slots__ = ("_codecs", "fields", "flexible_since", "highest_version", "is_strict", "name")

    def __init__(
        self,
        name: str,
        *fields: Field,
        highest_version: int = 0,
        flexible_since: int = 0,
        is_strict: bool = True,
    ) -> None:
        self.name = name
        self.fields = fields
        self.highest_version = highest_version
        self.flexible_since = flexible_since
        self.is_strict = is_strict
        self._codecs: dict[tuple[int, bool], TypeCodec] = {}

    def codec(self, version: int) -> TypeCodec:
        """Return the codec of this version, which is made once. UnsupportedError: MSG-5."""
        if not 0 <= version <= self.highest_version:
            raise UnsupportedError(
                f"{self.name} has no version {version}",
                check_id="MSG-5",
                pos=0,
                expected=f"0..{self.highest_version}",
                found=str(version),
            )
        return self._codec(version, known=True)

    def _codec(self, version: int, *, known: bool) -> TypeCodec:
        codec = self._codecs.get((version, known))
        if codec is None:
            flexible = version >= self.flexible_since
            codec = struct_codec(
                self.fields, version, flexible=flexible, known=known, is_strict=self.is_strict
            )
            self._codecs[version, known] = codec
        return codec

    def lenient_codec(self, version: int) -> TypeCodec:
        """Return the codec of any version, as Kafka's generated reader takes it.

        It reads an unknown version as the nearest known version, and fails at the first struct
        inside.
        """
        codec = self._codecs.get((version, True))
        if codec is not None:  # known, and already in use
            return codec
        nearest = self.nearest_version(version)
        return self._codec(nearest, known=nearest == version)

    def nearest_version(self, version: int) -> int:
        """Return the known version that is nearest to `version`."""
        return min(max(version, 0), self.highest_version)


def decode(
    schema: MessageSchema, version: int, buf: BytesLike, pos: int = 0
) -> tuple[dict[str, Any], int]:
    """Read one message at `pos`. Returns (value, next_pos). Bytes that follow are ignored.

    Raises:
        TruncatedError: MSG-1, VAR-1.
        CorruptError: MSG-2, MSG-3, MSG-4, VAR-2.
        UnsupportedError: MSG-5.
    """
    value, next_pos = schema.codec(version).read(buf, pos)
    return value, next_pos


def decode_lenient(
    schema: MessageSchema, version: int, buf: BytesLike, pos: int = 0
) -> tuple[dict[str, Any], int]:
    """Read one message as `decode` does. Unknown versions use `MessageSchema.lenient_codec`."""
    value, next_pos = schema.lenient_codec(version).read(buf, pos)
    return value, next_pos


def unknown_tags(value: Any) -> list[int]:
    """Return the tagged fields that the schemas lack, in a message and all its structs."""
    if isinstance(value, dict):
        found = [tag for tag, _ in value.get(UNKNOWN_TAGS, ())]
        for name, each in value.items():
            if name != UNKNOWN_TAGS and isinstance(each, dict | list):
                found += unknown_tags(each)
        return found
    return [tag for each in value if isinstance(each, dict) for tag in unknown_tags(each)]


def encode(schema: MessageSchema, version: int, value: dict[str, Any]) -> bytes:
    """Write a message as Kafka does. An omitted field has its default.

    Raises:
        UsageError: a name that this version does not have, or a value that does not fit its type.
    """
    out = bytearray()
    try:
        schema.codec(version).write(out, value)
    except (struct_error, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(f"{schema.name} version {version}: {error}") from error
    return bytes(out)


def to_json(schema: MessageSchema, version: int, value: dict[str, Any]) -> str:
    """Return the JSON that Kafka's tools print (see the table above).

    Values must have the shape of `decode`. A string or bytes may be given as `Json` and is inserted
    as it is.
    """
    return schema.codec(version).json(value)


def kafka_reason(error: FormatError) -> str:
    """Return the text of Kafka's exception, `null` for a buffer that ends too early."""
    return "null" if isinstance(error, TruncatedError) else error.message
