"""The engine of generated messages: every schema and version, every fault, Kafka's own words."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, TruncatedError, UnsupportedError, UsageError
from storage.formats.message import (
    FIXED_WIDTH,
    NEVER,
    UNKNOWN_TAGS,
    Field,
    Json,
    MessageSchema,
    decode,
    decode_lenient,
    encode,
    json_bytes,
    json_double,
    json_string,
    json_uuid,
    kafka_reason,
    kafka_text,
    to_json,
)
from tests.drawn import examples
from tests.storage.formats.message_samples import (
    VERSION_IDS,
    VERSIONS,
    mutated,
    random_message,
    randoms,
)

if TYPE_CHECKING:
    from random import Random


INNER = (Field("x", "int8"), Field("y", "string?"))
PLAIN = MessageSchema(
    "Plain",
    Field("flag", "bool"),
    Field("name", "string"),
    Field("blob", "bytes?"),
    Field("list", "[]struct?", fields=INNER),
    Field("inner", "struct?", fields=INNER, default=None),
    Field("late", "int32", since=1, default=-1),
    Field("early", "int64", until=0, default=-1),
    highest_version=2,
    flexible_since=2,
)
TAGGED = MessageSchema(
    "Tagged",
    Field("id", "uint16"),
    Field("number", "int64", tag=2, default=-1),
    Field("list", "[]int32?", tag=0, default=None),
    Field("inner", "struct?", tag=4, fields=(Field("x", "int8"),)),
    Field("last", "uuid"),
    highest_version=1,
)
PLAIN_0 = {
    "flag": True, "name": "é", "blob": b"\x00\xff", "list": [{"x": -1, "y": None}],
    "inner": {"x": 5, "y": "z"}, "early": 7,
}  # fmt: skip
PLAIN_0_BYTES = bytes.fromhex(
    "01  0002 c3a9  00000002 00ff  00000001 ff ffff  01 05 0001 7a  0000000000000007"
)
PLAIN_2 = {
    "flag": False, "name": "", "blob": None, "list": None, "inner": None, "late": 1,
}  # fmt: skip
PLAIN_2_BYTES = bytes.fromhex("00 01 00 00 ff 00000001 00")
TOO_LONG = "Varint is too long, the most significant bit in the 5th byte is set, converted value: "
TAGGED_DEFAULT = {"id": 0xFFFF, "number": -1, "list": None, "inner": {"x": 0}, "last": bytes(16)}


@pytest.mark.parametrize(
    ("version", "value", "encoded"), [(0, PLAIN_0, PLAIN_0_BYTES), (2, PLAIN_2, PLAIN_2_BYTES)]
)
def test_plain_examples(version: int, value: dict[str, Any], encoded: bytes) -> None:
    assert decode(PLAIN, version, b"??" + encoded + b"!", 2) == (value, 2 + len(encoded))
    assert list(decode(PLAIN, version, encoded)[0]) == list(value)
    assert encode(PLAIN, version, value) == encoded


@pytest.mark.parametrize(
    ("changes", "tags"),
    [
        ({}, "00"),
        ({"number": 3}, "01 02 08 0000000000000003"),
        ({"list": []}, "01 00 01 01"),
        ({"list": [9], "inner": None}, "02 00 05 02 00000009 04 01 00"),
        ({"inner": {"x": 1}}, "01 04 03 01 01 00"),
        ({UNKNOWN_TAGS: [(3, b"u"), (300, b"")], "number": 3},
         "03 02 08 0000000000000003 03 01 75 ac02 00"),
    ],
)  # fmt: skip
def test_tagged_examples(changes: dict[str, Any], tags: str) -> None:
    value = TAGGED_DEFAULT | changes
    encoded = b"\xff\xff" + bytes(16) + bytes.fromhex(tags)
    assert decode(TAGGED, 0, encoded) == (value, len(encoded))
    assert encode(TAGGED, 0, value) == encoded
    # What equals its default need not be said, in values as on disk.
    assert encode(TAGGED, 0, {"id": 0xFFFF} | changes) == encoded


def test_the_order_is_the_schemas_with_tagged_fields_among_the_others() -> None:
    encoded = encode(TAGGED, 0, {"id": 1, "number": 3})
    assert list(decode(TAGGED, 0, encoded)[0]) == ["id", "number", "list", "inner", "last"]
    assert to_json(TAGGED, 0, decode(TAGGED, 0, encoded)[0]) == (
        '{"id":1,"number":3,"last":"AAAAAAAAAAAAAAAAAAAAAA"}'
    )


def test_an_absent_list_or_struct_is_a_fresh_one_each_time() -> None:
    first, _ = decode(TAGGED, 0, encode(TAGGED, 0, {}))
    first["inner"]["x"] = 99
    second, _ = decode(TAGGED, 0, encode(TAGGED, 0, {}))
    assert second["inner"] == {"x": 0}


@pytest.mark.parametrize(
    ("tags", "changes"),
    [
        ("02 04 01 00 00 01 01", {"list": [], "inner": None}),  # tags out of order
        ("01 02 08 ffffffffffffffff", {}),  # a default spelled out
        ("01 8200 08 0000000000000003", {"number": 3}),  # a varint longer than needed
        ("02 02 08 0000000000000003 02 08 0000000000000004", {"number": 4}),  # one tag twice
    ],
)
def test_what_kafka_reads_but_would_not_write(tags: str, changes: dict[str, Any]) -> None:
    encoded = b"\xff\xff" + bytes(16) + bytes.fromhex(tags)
    assert decode(TAGGED, 0, encoded) == (TAGGED_DEFAULT | changes, len(encoded))


def test_any_non_zero_byte_is_true_and_any_marker_from_0_on_is_a_struct() -> None:
    schema = MessageSchema(
        "S", Field("b", "bool"), Field("s", "struct?", fields=(Field("x", "int8"),))
    )
    assert decode(schema, 0, bytes.fromhex("80 00 07 00 00"))[0] == {"b": True, "s": {"x": 7}}
    assert decode(schema, 0, bytes.fromhex("00 80 00"))[0] == {"b": False, "s": None}


@pytest.mark.parametrize(
    ("encoded", "check_id", "pos", "reason"),
    [
        ("01 ffff", "MSG-2", 1, "non-nullable field name was serialized as null"),
        ("01 0003 6162", "MSG-3", 3,
         "Error reading byte array of 3 byte(s): only 2 byte(s) available"),
        ("01 0000 ffffffff 00000003 ff ff", "MSG-3", 7,
         "Tried to allocate a collection of size 3, but there are only 2 bytes remaining."),
        ("", "MSG-1", 0, "null"),
        ("01 00", "MSG-1", 1, "null"),
    ],
)  # fmt: skip
def test_faults_without_compact_lengths(encoded: str, check_id: str, pos: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode(PLAIN, 1, bytes.fromhex(encoded))
    assert (caught.value.check_id, caught.value.pos) == (check_id, pos)
    assert kafka_reason(caught.value) == reason


@pytest.mark.parametrize(
    ("encoded", "check_id", "pos", "reason"),
    [
        ("01 00", "MSG-2", 1, "non-nullable field name was serialized as null"),
        ("01 818002", "MSG-3", 1, "string field name had invalid length 32768"),
        ("01 ffffffff0f", "MSG-3", 1, "count 4294967295 is negative as int32"),
        ("01 ffffffffff", "VAR-2", 1, TOO_LONG + "ffffffff"),
        ("01 01 00 00 ff 00000000 01 05 02 61", "MSG-3", 12,
         "Error reading byte array of 2 byte(s): only 1 byte(s) available"),
        ("01 01 00 00 ff 00000000 01", "VAR-1", 10, "null"),
    ],
)  # fmt: skip
def test_faults_of_flexible_versions(encoded: str, check_id: str, pos: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode(PLAIN, 2, bytes.fromhex(encoded))
    assert (caught.value.check_id, caught.value.pos) == (check_id, pos)
    assert kafka_reason(caught.value) == reason


@pytest.mark.parametrize("size", ["07", "09"])
def test_a_tagged_field_is_as_long_as_its_size(size: str) -> None:
    tags = bytes.fromhex(f"01 02 {size} 0000000000000003 00")
    with pytest.raises(CorruptError) as caught:
        decode(TAGGED, 0, b"\xff\xff" + bytes(16) + tags)
    assert (caught.value.check_id, caught.value.pos) == ("MSG-4", 21)


@pytest.mark.parametrize("version", [-1, 3, 32767])
def test_unknown_versions(version: int) -> None:
    for call in (lambda: decode(PLAIN, version, b""), lambda: encode(PLAIN, version, {})):
        with pytest.raises(UnsupportedError) as caught:
            call()
        assert caught.value.check_id == "MSG-5"


def test_unknown_versions_as_kafka_reads_them() -> None:
    assert decode_lenient(PLAIN, 9, PLAIN_2_BYTES)[0] == PLAIN_2
    assert decode_lenient(PLAIN, -3, encode(PLAIN, 0, {}))[0]["early"] == -1
    with_struct = PLAIN_2 | {"inner": {"x": 1, "y": None}}
    assert decode_lenient(PLAIN, 2, encode(PLAIN, 2, with_struct))[0] == with_struct
    with pytest.raises(CorruptError) as caught:
        decode_lenient(PLAIN, 3, encode(PLAIN, 2, with_struct))
    assert caught.value.check_id == "MSG-5"


@pytest.mark.parametrize(
    "change",
    [
        {"no_such": 1}, {"late": 1}, {"early": 2**63}, {"name": None}, {"name": "x" * 32768},
        {"name": "\ud800"}, {"blob": 7}, {"list": 7}, {"inner": 7}, {"inner": {"z": 1}},
        {"early": "1"}, {"early": 1.5},
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        encode(PLAIN, 0, PLAIN_0 | change)


def test_uuid_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(UsageError, match="16 bytes"):
        encode(TAGGED, 0, {"last": b"short"})


def test_unknown_tags_need_a_flexible_version() -> None:
    with pytest.raises(UsageError):
        encode(PLAIN, 0, PLAIN_0 | {UNKNOWN_TAGS: [(1, b"")]})


def test_longest_string() -> None:
    for version in (0, 2):
        encoded = encode(PLAIN, version, {"name": "x" * 32767})
        assert decode(PLAIN, version, encoded)[0]["name"] == "x" * 32767


def test_huge_counts_cost_nothing() -> None:
    schema = MessageSchema("L", Field("l", "[]int64"), flexible_since=NEVER)
    with pytest.raises(CorruptError):
        decode(schema, 0, struct.pack(">i", 2**31 - 1) + bytes(64))
    # One byte an element is enough to pass that check, and then the elements are not there.
    with pytest.raises(TruncatedError):
        decode(schema, 0, struct.pack(">i", 64) + bytes(64))


@pytest.mark.parametrize(("schema", "version"), VERSIONS, ids=VERSION_IDS)
@settings(max_examples=examples(8))
@given(rnd=randoms)
def test_round_trip_of_every_schema_and_version(
    schema: MessageSchema, version: int, rnd: Random
) -> None:
    value = random_message(schema, version, rnd)
    encoded = encode(schema, version, value)
    assert decode(schema, version, encoded) == (value, len(encoded))
    assert decode(schema, version, memoryview(encoded)) == (value, len(encoded))
    names = [name for name in value if name != UNKNOWN_TAGS]
    assert [name for name in decode(schema, version, encoded)[0] if name != UNKNOWN_TAGS] == names
    for cut in {0, 1, len(encoded) // 2, len(encoded) - 1} - {len(encoded), -1}:
        with pytest.raises(FormatError):
            decode(schema, version, encoded[:cut])


@settings(max_examples=examples(200))
@given(case=st.sampled_from(VERSIONS), rnd=randoms, data=st.binary(max_size=60), raw=st.booleans())
def test_any_bytes_are_a_value_or_a_format_error(
    case: tuple[MessageSchema, int], rnd: Random, data: bytes, raw: bool
) -> None:
    schema, version = case
    if not raw:
        data = mutated(encode(schema, version, random_message(schema, version, rnd)), rnd)
    try:
        value, next_pos = decode(schema, version, data)
    except FormatError as caught:
        error = caught
    else:
        error = None
    if error is not None:
        assert 0 <= error.pos <= len(data)
        assert kafka_reason(error)
        return
    assert next_pos <= len(data)
    to_json(schema, version, value)
    again = encode(schema, version, value)
    assert encode(schema, version, decode(schema, version, again)[0]) == again


# -- text as Java decodes it, and the widths of the types


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("61 c3a9 f09f9880", "aé😀"),
        ("ff", "�"),
        ("c080", "��"),  # overlong
        ("e0 80 80", "���"),
        ("e2 82", "�"),  # cut short
        ("e2 82 41", "�A"),
        ("f0 9f 98", "�"),
        ("f0 9f 41", "�A"),
        ("f5 80", "��"),
        ("eda080", "�"),  # a surrogate: one piece for Java, three for Python
        ("edbfbf 62", "�b"),
        ("eda0", "�"),
        ("eda041", "�A"),
        ("ed41", "�A"),
        ("eda080 edb080", "��"),
    ],
)
def test_text_that_is_not_utf8(data: str, text: str) -> None:
    assert kafka_text(bytes.fromhex(data)) == text


@given(st.binary(max_size=20))
def test_any_bytes_are_text(data: bytes) -> None:
    text = kafka_text(data)
    assert kafka_text(text.encode()) == text
    if "�" not in text:
        assert text.encode() == data


@pytest.mark.parametrize(
    ("type_name", "value", "encoded"),
    [
        ("int8", -2, "fe"),
        ("int16", -2, "fffe"),
        ("int32", -2, "fffffffe"),
        ("int64", -2, "fffffffffffffffe"),
        ("uint16", 65535, "ffff"),
        ("uint32", 4294967295, "ffffffff"),
        ("float64", -1.5, "bff8000000000000"),
        ("bool", True, "01"),
        ("uuid", bytes(range(16)), "000102030405060708090a0b0c0d0e0f"),
        ("records", b"ab", "000000026162"),
    ],
)
def test_types(type_name: str, value: object, encoded: str) -> None:
    schema = MessageSchema("S", Field("x", type_name), flexible_since=1)
    assert encode(schema, 0, {"x": value}).hex() == encoded
    assert decode(schema, 0, bytes.fromhex(encoded))[0] == {"x": value}


def test_widths() -> None:
    assert {name: layout.size for name, layout in FIXED_WIDTH.items()} == {
        "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "uint32": 4, "float64": 8,
    }  # fmt: skip


# -- JSON as Kafka's tools print it; the doubles are what Java's Double.toString (19 and later)
#    gives


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-1.5, "-1.5"), (100.0, "100.0"),
        (0.001, "0.001"), (0.0009, "9.0E-4"), (0.00123, "0.00123"), (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"),
        (1048576.0, "1048576.0"), (1234567.125, "1234567.125"), (0.1, "0.1"), (1 / 3, "0.3333333333333333"),
        (1e21, "1.0E21"), (1.5e300, "1.5E300"), (1e-300, "1.0E-300"), (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (2e23, "2.0E23"),
        (math.nan, '"NaN"'), (math.inf, '"Infinity"'), (-math.inf, '"-Infinity"'),
    ],
)  # fmt: skip
def test_doubles(value: float, text: str) -> None:
    assert json_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(struct.unpack(">d", bytes.fromhex("0010000000000000"))[0])
def test_doubles_come_back(value: float) -> None:
    text = json_double(value)
    assert struct.pack(">d", float(text)) == struct.pack(">d", value)
    mantissa, _, exponent = text.partition("E")
    assert "." in mantissa
    assert bool(exponent) == (value != 0 and not 1e-3 <= abs(value) < 1e7)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a/b", '"a/b"'),
        ('"\\', r'"\"\\"'),
        ("\b\t\n\f\r", r'"\b\t\n\f\r"'),
        ("\x00\x1b\x1f", r'"\u0000\u001B\u001F"'),
        ("\x7f\x80é漢😀\u2028", '"\x7f\x80é漢😀\u2028"'),
    ],
)
def test_strings(text: str, quoted: str) -> None:
    assert json_string(text) == quoted


@given(st.text())
def test_any_text_is_json(text: str) -> None:
    assert json.loads(json_string(text)) == text


def test_bytes_and_uuids() -> None:
    assert json_bytes(b"\xfb\xff\x00\x01") == '"+/8AAQ=="'
    assert json_bytes(b"") == '""'
    assert json_uuid(b"\xfb\xff" + bytes(13) + b"\xff") == '"-_8AAAAAAAAAAAAAAAAA_w"'


def test_json_that_is_ready_is_put_in_as_it_is() -> None:
    schema = MessageSchema("S", Field("a", "string"), Field("b", "bytes?"), Field("c", "[]string"))
    value = {"a": Json("{}"), "b": None, "c": ["x", Json("1")]}
    assert to_json(schema, 0, value) == '{"a":{},"b":null,"c":["x",1]}'
