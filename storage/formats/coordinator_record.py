"""Keys and values of the coordinators' topics: the format that the three internal topics share.

`__consumer_offsets`, `__transaction_state` and `__share_group_state` are logs of changes, compacted
by key.

    part   pos  width  type   field    meaning
    key      0      2  int16  type     gives the schemas of the key's body and the value
    key      2      -  body            never flexible
    value    0      2  int16  version  of the value's schema
    value    2      -  body            flexible from some version on

A null value is a tombstone, which removes the key.

Valid if and only if these rules hold (the MSG rules of `message` apply to the bodies):

- COO-1: there is a key.
- COO-2: the type is known.
- COO-3: the value's version is known.
- COO-5: the tagged fields of the value are known (Kafka skips unknown fields).

Kafka ignores bytes that follow a body and, as to COO-2, records of a type that it does not know.
Development releases changed some schemas without a new version. For these `RecordType` has several
value schemas. The first schema that fits the value exactly counts.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import CorruptError, FormatError, TruncatedError, UnsupportedError
from storage.formats.message import (
    MessageSchema,
    decode,
    encode,
    kafka_reason,
    to_json,
    unknown_tags,
)
from storage.limits import require_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.formats.varint import BytesLike

PREFIX = Struct(">h")
PREFIX_BYTES = 2
KEY_VERSION = 0  # of every key schema; the number on disk is the record type


class RecordType(NamedTuple):
    """One type of record: its key, and its value with the newest schema first."""

    type: int
    key: MessageSchema
    values: tuple[MessageSchema, ...]

    @property
    def value(self) -> MessageSchema:
        """The newest schema of the value."""
        return self.values[0]


class CoordinatorRecord(NamedTuple):
    """A decoded record. For a tombstone `value` is None and `version` -1."""

    type: int
    key: dict[str, Any]
    version: int
    value: dict[str, Any] | None
    value_schema: MessageSchema | None


def parse_prefix(buf: BytesLike, what: str) -> int:
    """Read the int16 that opens a key or a value. TruncatedError: MSG-1."""
    require_bytes(buf, 0, PREFIX_BYTES, f"version of the {what}", check_id="MSG-1")
    number: int = PREFIX.unpack_from(buf, 0)[0]
    return number


def parse_key(types: Mapping[int, RecordType], key: BytesLike) -> tuple[RecordType, dict[str, Any]]:
    """Read a key. Returns (record type, fields).

    Raises:
        UnsupportedError: COO-2.
        TruncatedError, CorruptError: the MSG rules.
    """
    number = parse_prefix(key, "key")
    record_type = types.get(number)
    if record_type is None:
        raise UnsupportedError(
            f"unknown record type {number}",
            check_id="COO-2",
            pos=0,
            expected=f"one of {sorted(types)}",
            found=str(number),
        )
    return record_type, decode(record_type.key, KEY_VERSION, key, PREFIX_BYTES)[0]


def parse_value(
    record_type: RecordType, value: BytesLike
) -> tuple[MessageSchema, int, dict[str, Any]]:
    """Read a value. Returns (the schema that fits, version, fields).

    Raises:
        UnsupportedError: COO-3.
        TruncatedError, CorruptError: the MSG rules, of the newest schema.
    """
    version = parse_prefix(value, "value")
    newest = record_type.value
    if not 0 <= version <= newest.highest_version:
        raise UnsupportedError(
            f"unknown version {version} of {newest.name}",
            check_id="COO-3",
            pos=0,
            expected=f"0..{newest.highest_version}",
            found=str(version),
        )
    if len(record_type.values) > 1:
        for schema in record_type.values:
            try:
                fields, next_pos = decode(schema, version, value, PREFIX_BYTES)
            except FormatError:
                continue
            if next_pos == len(value):
                return schema, version, fields
    return newest, version, decode(newest, version, value, PREFIX_BYTES)[0]


def parse_record(
    types: Mapping[int, RecordType], key: BytesLike | None, value: BytesLike | None
) -> CoordinatorRecord:
    """Read key and value.

    Raises:
        CorruptError: COO-1, the MSG rules.
        UnsupportedError: COO-2, COO-3.
        TruncatedError: the MSG rules.
    """
    if key is None:
        raise CorruptError(
            "the record has no key", check_id="COO-1", pos=0, expected="a key", found="null"
        )
    record_type, key_fields = parse_key(types, key)
    if value is None:
        return CoordinatorRecord(
            type=record_type.type, key=key_fields, version=-1, value=None, value_schema=None
        )
    schema, version, fields = parse_value(record_type, value)
    return CoordinatorRecord(
        type=record_type.type, key=key_fields, version=version, value=fields, value_schema=schema
    )


def encode_key(record_type: RecordType, fields: dict[str, Any]) -> bytes:
    """Write a key. UsageError as `message.encode`."""
    return PREFIX.pack(record_type.type) + encode(record_type.key, KEY_VERSION, fields)


def encode_value(schema: MessageSchema, version: int, fields: dict[str, Any]) -> bytes:
    """Write a value. UsageError as `message.encode`."""
    return PREFIX.pack(version) + encode(schema, version, fields)


def value_json(schema: MessageSchema, version: int, fields: dict[str, Any]) -> str:
    """Return the `data` of a payload. Some topics have a function of their own for this."""
    return to_json(schema, version, fields)


def describe_record(
    types: Mapping[int, RecordType],
    offset: int,
    key: BytesLike | None,
    value: BytesLike | None,
    *,
    data_json: Callable[[MessageSchema, int, dict[str, Any]], str] = value_json,
    on_tags: Callable[[list[int]], object] | None = None,
) -> tuple[str | None, str | None]:
    """Return the text of kafka-dump-log for a record: (key text, payload text or None).

    For a record that cannot be read the key is the tool's error message, and there is no payload.
    `on_tags` receives the tagged fields that the schemas lack. As in the tool, the text does not
    contain them.

    Raises:
        CorruptError: COO-1, with the message with which the tool fails.
    """
    if key is None:
        raise CorruptError(
            f"Failed to decode message at offset {offset} using the specified decoder "
            "(message had a missing key)",
            check_id="COO-1",
            pos=0,
            expected="a key",
            found="null",
        )
    try:
        number = parse_prefix(key, "key")
    except TruncatedError:
        return _error_text(offset, "Could not read version from key's buffer."), None
    if number not in types:
        return f"Unknown record type {number} at offset {offset}, skipping.", None
    try:
        record_type, fields = parse_key(types, key)
    except FormatError as error:
        return _error_text(offset, _read_reason(number, "key", error)), None
    key_text = f'{{"type":"{number}","data":{to_json(record_type.key, KEY_VERSION, fields)}}}'
    if value is None:
        return key_text, "<DELETE>"
    try:
        version = parse_prefix(value, "value")
    except TruncatedError:
        return _error_text(offset, "Could not read version from value's buffer."), None
    try:
        schema, version, fields = parse_value(record_type, value)
    except UnsupportedError:
        reason = f"Found an unknown record version {version} for {number} type"
        return _error_text(offset, reason), None
    except FormatError as error:
        return _error_text(offset, _read_reason(version, "value", error)), None
    if on_tags is not None and (tags := unknown_tags(fields)):
        on_tags(tags)
    return key_text, f'{{"version":"{version}","data":{data_json(schema, version, fields)}}}'


def _error_text(offset: int, reason: str) -> str:
    return f"Error at offset {offset}, skipping. {reason}"


def _read_reason(number: int, what: str, error: FormatError) -> str:
    return (
        f"Could not read record with version {number} from {what}'s buffer due to: "
        f"{kafka_reason(error)}."
    )
