"""Text as Java decodes it, and the widths of the types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.message import MessageSchema, decode, encode
from storage.formats.message_codec import FIXED_WIDTH, Field, kafka_text


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
