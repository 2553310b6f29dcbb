"""JSON as Kafka's tools print it; the doubles are what Java's Double.toString (19 and later) gives."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.formats.message import MessageSchema, to_json
from storage.formats.message_codec import Field
from storage.formats.message_json import Json, json_bytes, json_double, json_string, json_uuid


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
