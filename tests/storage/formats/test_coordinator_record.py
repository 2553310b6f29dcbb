"""What the coordinators' topics have in common: framing, faults, Kafka's sentences about them."""

from __future__ import annotations

import pytest

from storage.errors import CorruptError, FormatError, TruncatedError, UnsupportedError
from storage.formats.coordinator_record import (
    RecordType,
    describe_record,
    encode_key,
    encode_value,
    parse_key,
    parse_record,
)
from storage.formats.message import NEVER, Field, MessageSchema

NEW = MessageSchema("New", Field("a", "int32"), Field("b", "string"), highest_version=1)
OLD = MessageSchema("Old", Field("a", "int16"), highest_version=1)
SIMPLE = RecordType(3, MessageSchema("Key", Field("id", "string"), flexible_since=NEVER), (NEW,))
CHANGED = RecordType(5, SIMPLE.key, (NEW, OLD))
TYPES = {3: SIMPLE, 5: CHANGED}

KEY = bytes.fromhex("0003 0001 67")
CHANGED_KEY = bytes.fromhex("0005 0001 67")
VALUE = bytes.fromhex("0001 00000007 02 78 00")


def test_records() -> None:
    record = parse_record(TYPES, KEY, VALUE)
    assert record == (3, {"id": "g"}, 1, {"a": 7, "b": "x"}, NEW)
    assert encode_key(SIMPLE, {"id": "g"}) == KEY
    assert encode_value(NEW, 1, {"a": 7, "b": "x"}) == VALUE
    assert parse_record(TYPES, KEY, None) == (3, {"id": "g"}, -1, None, None)
    assert parse_key(TYPES, KEY) == (SIMPLE, {"id": "g"})


def test_bytes_after_a_body_are_not_looked_at() -> None:
    assert parse_record(TYPES, KEY + b"?", VALUE + b"?").value == {"a": 7, "b": "x"}


def test_the_layout_that_takes_the_value_exactly_is_the_one() -> None:
    assert parse_record(TYPES, CHANGED_KEY, VALUE).value_schema is NEW
    old = parse_record(TYPES, CHANGED_KEY, bytes.fromhex("0001 0007 00"))
    assert (old.value_schema, old.value) == (OLD, {"a": 7})
    # Neither does: the newest says what is wrong, or takes what it can.
    with pytest.raises(TruncatedError):
        parse_record(TYPES, CHANGED_KEY, bytes.fromhex("0001 00"))
    assert parse_record(TYPES, CHANGED_KEY, VALUE + b"?").value_schema is NEW


@pytest.mark.parametrize(
    ("key", "value", "check_id", "error_class"),
    [
        (None, VALUE, "COO-1", CorruptError),
        (b"", VALUE, "MSG-1", TruncatedError),
        (b"\x00\x09", VALUE, "COO-2", UnsupportedError),
        (b"\xff\xff", VALUE, "COO-2", UnsupportedError),
        (KEY[:-1], VALUE, "MSG-3", CorruptError),
        (KEY, b"\x00", "MSG-1", TruncatedError),
        (KEY, b"\x00\x02", "COO-3", UnsupportedError),
        (KEY, b"\xff\xff", "COO-3", UnsupportedError),
        (KEY, VALUE[:-1], "VAR-1", TruncatedError),
        (KEY, bytes.fromhex("0000 00000007 00 00"), "MSG-2", CorruptError),
    ],
)
def test_faults(
    key: bytes | None, value: bytes, check_id: str, error_class: type[FormatError]
) -> None:
    with pytest.raises(FormatError) as caught:
        parse_record(TYPES, key, value)
    assert (caught.value.check_id, type(caught.value)) == (check_id, error_class)


@pytest.mark.parametrize(
    ("key", "value", "key_text", "payload"),
    [
        (KEY, VALUE, '{"type":"3","data":{"id":"g"}}', '{"version":"1","data":{"a":7,"b":"x"}}'),
        (KEY, None, '{"type":"3","data":{"id":"g"}}', "<DELETE>"),
        (b"\x00\x09", VALUE, "Unknown record type 9 at offset 42, skipping.", None),
        (
            b"\x00",
            VALUE,
            "Error at offset 42, skipping. Could not read version from key's buffer.",
            None,
        ),
        (
            KEY,
            b"",
            "Error at offset 42, skipping. Could not read version from value's buffer.",
            None,
        ),
        (
            KEY,
            b"\x00\x02",
            "Error at offset 42, skipping. Found an unknown record version 2 for 3 type",
            None,
        ),
        (
            KEY[:3],
            VALUE,
            (
                "Error at offset 42, skipping. "
                "Could not read record with version 3 from key's buffer due to: null."
            ),
            None,
        ),
        (
            KEY,
            VALUE[:4],
            (
                "Error at offset 42, skipping. "
                "Could not read record with version 1 from value's buffer due to: null."
            ),
            None,
        ),
        (
            KEY,
            bytes.fromhex("0000 00000007 00 00"),
            (
                "Error at offset 42, skipping. Could not read record with version 0 from value's buffer "
                "due to: non-nullable field b was serialized as null."
            ),
            None,
        ),
    ],
)
def test_text(key: bytes, value: bytes | None, key_text: str, payload: str | None) -> None:
    assert describe_record(TYPES, 42, key, value) == (key_text, payload)


def test_without_a_key_the_tool_dies() -> None:
    with pytest.raises(CorruptError) as caught:
        describe_record(TYPES, 42, None, VALUE)
    assert caught.value.message == (
        "Failed to decode message at offset 42 using the specified decoder "
        "(message had a missing key)"
    )
