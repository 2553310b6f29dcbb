"""Text as Java reads it. The tables were taken from a JVM's own answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError
from storage.formats.java_text import (
    JavaLine,
    encode_json,
    kafka_text,
    parse_integer,
    parse_json_object,
    parse_lines,
    split_fields,
    unusual_text,
)
from storage.limits import INT32_MAX, INT64_MAX

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "text, value",
    [
        ("5", 5),
        ("+5", 5),
        ("-0", 0),
        ("0" * 40 + "1", 1),
        ("\u0661", 1),
        ("\uff11", 1),
        ("2147483647", INT32_MAX),
        ("-2147483648", -INT32_MAX - 1),
        ("2147483648", None),
        ("-2147483649", None),
        ("\U0001d7d8", None),
        ("1_0", None),
        (" 1", None),
        ("1 ", None),
        ("1\n", None),
        ("-", None),
        ("+", None),
        ("", None),
        ("0x10", None),
        ("\u00b2", None),
        ("9" * 1_000_000, None),
    ],
)
def test_integers_are_read_as_parse_int_does(text: str, value: int | None) -> None:
    assert parse_integer(text, max_value=INT32_MAX) == value


def test_long_has_its_own_limits() -> None:
    assert parse_integer(str(INT64_MAX), max_value=INT64_MAX) == INT64_MAX
    assert parse_integer(str(-INT64_MAX - 1), max_value=INT64_MAX) == -INT64_MAX - 1
    assert parse_integer(str(INT64_MAX + 1), max_value=INT64_MAX) is None


@pytest.mark.parametrize(
    "text, fields",
    [
        ("0 5", ["0", "5"]),
        ("0 \t\x0b\f 5", ["0", "5"]),
        (" 0 5 ", ["", "0", "5"]),
        ("", [""]),
        ("  ", []),
        ("0\u00a05", ["0\u00a05"]),
        ("0\x1c5", ["0\x1c5"]),
    ],
)
def test_fields_are_split_as_pattern_split_does(text: str, fields: list[str]) -> None:
    assert split_fields(text) == fields


def test_fields_are_split_at_another_separator() -> None:
    assert split_fields("version: 0: ", re.compile(r":\s+")) == ["version", "0"]


def test_lines_end_at_newline_return_or_both() -> None:
    lines = parse_lines("a\nb\r\n\ré\u2028\x85\x0b\x1c".encode(), check_id="X")
    assert lines == [
        JavaLine("a", 0, 1),
        JavaLine("b", 2, 2),
        JavaLine("", 5, 3),
        JavaLine("é\u2028\x85\x0b\x1c", 6, 4),
    ]
    assert parse_lines(b"", check_id="X") == []
    assert parse_lines(b"\n", check_id="X") == [JavaLine("", 0, 1)]


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xc3", b"\xf8\x88\x80\x80\x80"]
)
def test_bytes_that_are_no_utf8_are_located(bad: bytes) -> None:
    with pytest.raises(CorruptError) as caught:
        parse_lines("é\nö".encode() + bad, check_id="X-1")
    assert (caught.value.pos, caught.value.check_id) == (5, "X-1")


@pytest.mark.parametrize(
    "text, value",
    [
        ('{"a":1} junk', {"a": 1}),
        ('{"a":1}{', {"a": 1}),
        (' \t{"a":1,"a":2}', {"a": 2}),
        ('{"a":-0}', {"a": 0}),
        ('{"a":9999999999999999999999}', {"a": 9999999999999999999999}),
    ],
)
def test_json_is_read_as_jackson_does(text: str, value: dict[str, Any]) -> None:
    assert parse_json_object(text, check_id="X") == value


@pytest.mark.parametrize(
    "text, pos",
    [
        ("", 0),
        ("  ", 2),
        ('{"a":01}', 6),
        ('{"a":NaN}', 0),
        ('{"a":-Infinity}', 0),
        ('{"a":1e400}', 0),
        ("{'a':1}", 1),
        ('{"é":x}', 6),  # in bytes
        ('\ufeff{"a":1}', 0),
        ("[1]", 0),
        ("1", 0),
        ("null", 0),
        ('{"a":' + "9" * 5000 + "}", 0),
        ('{"a":' + "[" * 100_000, 0),
        ('{"a":' + "[" * 200 + "]" * 200 + "}", 0),
    ],
)
def test_json_that_is_refused(text: str, pos: int) -> None:
    with pytest.raises(CorruptError) as caught:
        parse_json_object(text, check_id="X-1")
    assert (caught.value.check_id, caught.value.pos) == ("X-1", pos)


@given(st.dictionaries(st.text(), JSON_VALUES))
def test_json_round_trip(document: dict[str, Any]) -> None:
    assert parse_json_object(encode_json(document).decode(), check_id="X") == document


@given(st.text(alphabet='{}[]",:\\ 019.eE+-unltrfasEINy\ud800\x00é'))
def test_any_text_is_an_object_or_a_format_error(text: str) -> None:
    error = None
    document = {}
    try:
        document = parse_json_object(text, check_id="X-1")
    except FormatError as caught:
        error = caught
    if error is None:
        assert encode_json(document).decode().startswith("{")
    else:
        assert error.check_id == "X-1"
        assert 0 <= error.pos <= len(text.encode(errors="surrogatepass"))


def test_lone_surrogates_survive() -> None:
    document = parse_json_object(r'{"a":"\ud800x"}', check_id="X")
    assert encode_json(document) == rb'{"a":"\ud800x"}'


def test_unusual_text_names_the_first_difference() -> None:
    assert unusual_text(b"abc", b"abc") == []
    assert [problem.pos for problem in unusual_text(b"abd", b"abc")] == [2]
    assert [problem.pos for problem in unusual_text(b"abc\n", b"abc")] == [3]
    assert [problem.check_id for problem in unusual_text(b"", b"0\n0\n")] == ["TXT-1"]


# -- malformed UTF-8 is replaced as java.lang.String does it


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
