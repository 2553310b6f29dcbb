"""Kafka's generated messages: the one encoding of the records of every internal topic.

A message is described by a table of fields, a `MessageSchema`. Each version is either flexible
(compact lengths, tagged fields) or not:

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
tagged fields         -                                 uvarint count; of each, in order of tags,
                                                        uvarint tag, uvarint size, payload

A message is valid if and only if:
  MSG-1  the buffer holds all of it
  MSG-2  null stands only where the schema allows it
  MSG-3  no length or count is larger than what is left, no string is longer than 32767 bytes
  MSG-4  a tagged field that the schema has is as long as its size says
  MSG-5  its version is one that the schema has

We read what Kafka reads although it would not write it: a bool other than 0 and 1, tags out of
order, a default spelled out in a tag, a varint longer than needed, text that is not UTF-8 (bad
pieces become U+FFFD). Of all valid messages only these do not come back equal from `encode`.
MSG-4 is ours: Kafka goes on wherever the field ended, among bytes that mean something else.

Values are dicts in the order of the schema with keys in Kafka's words; integers, floats, bools,
str, bytes (a uuid is its 16 bytes), list, dict, None. An absent tagged field has its default.
Tagged fields that the schema lacks are kept under `UNKNOWN_TAGS` as (tag, payload) pairs.
"""

from __future__ import annotations

from struct import error as struct_error
from typing import TYPE_CHECKING, Any

from storage.errors import FormatError, TruncatedError, UnsupportedError, UsageError
from storage.formats.message_codec import Field, TypeCodec, struct_codec

if TYPE_CHECKING:
    from storage.formats.varint import BytesLike


class MessageSchema:
    """A message: its fields, its versions, and from which version on it is flexible.

    Not `is_strict`: names that a version lacks are left out when it is encoded.
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
        """What reads and writes this version; made once. UnsupportedError: MSG-5."""
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
        """As `codec`, for any version: what Kafka's generated reader takes it for.

        It reads an unknown version as the nearest one, and fails at the first struct inside.
        """
        codec = self._codecs.get((version, True))
        if codec is not None:  # it is known, and was asked for before
            return codec
        nearest = self.nearest_version(version)
        return self._codec(nearest, known=nearest == version)

    def nearest_version(self, version: int) -> int:
        """The version of ours that is nearest to `version`."""
        return min(max(version, 0), self.highest_version)


def decode(
    schema: MessageSchema, version: int, buf: BytesLike, pos: int = 0
) -> tuple[dict[str, Any], int]:
    """Read one message at `pos`; returns (value, next_pos). What follows it is not looked at.

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
    """As `decode`, with versions that are not known read as Kafka does (`Schema.lenient_codec`)."""
    value, next_pos = schema.lenient_codec(version).read(buf, pos)
    return value, next_pos


def encode(schema: MessageSchema, version: int, value: dict[str, Any]) -> bytes:
    """Write a message as Kafka does. A field that is left out has its default.

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
    """The JSON that Kafka's tools print (see `message_json`). Values must be of `decode`'s shape.

    A string or bytes may be given as `message_json.Json` and is put in as it is.
    """
    return schema.codec(version).json(value)


def kafka_reason(error: FormatError) -> str:
    """What Kafka's exception would say; `null` for a buffer that ends too early."""
    return "null" if isinstance(error, TruncatedError) else error.message
