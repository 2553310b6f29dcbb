"""Malformed UTF-8 is replaced as java.lang.String does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.java_utf8 import kafka_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("Größe 🙂".encode(), "Größe 🙂"),
        (b"\xff", "\ufffd"),
        (b"a\xc3", "a\ufffd"),
        (b"\xc0\xaf", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),  # a surrogate is one piece, in Python three
        (b"\xed\xa0", "\ufffd"),
        (b"\xf0\x9f\x98!", "\ufffd!"),
        (b"\x80\x80", "\ufffd\ufffd"),
    ],
)
def test_java_s_own_answers(data: bytes, text: str) -> None:
    assert kafka_text(data) == text


@given(st.binary(max_size=40))
def test_any_bytes_decode(data: bytes) -> None:
    """And only surrogates are treated otherwise than by Python."""
    text = kafka_text(data)
    if b"\xed" not in data:
        assert text == data.decode("utf-8", "replace")
    text.encode()  # no lone surrogate is left
