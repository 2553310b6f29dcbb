"""Rows as text: the quick ways give what the plain ones do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.console.columns import plain_line, plain_text
from eoctl.output import LINES_COUNT, Lines, json_text
from recovery.cluster.history import Why

# Lone surrogates, too: they stand for bytes of names that are no text.
TEXTS = st.text(st.characters(codec=None), max_size=6)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), TEXTS, st.sampled_from(list(Why)))
CELLS = st.one_of(PLAIN, st.lists(PLAIN, max_size=3).map(tuple))
NAMES = ("topic", "offset", "why", "command", "timestamp_ms")


@given(st.lists(CELLS, min_size=1, max_size=len(NAMES)))
def test_a_plain_line(values: list[Any]) -> None:
    names = NAMES[: len(values)]
    expected = "\t".join(map(plain_text, names, values))
    assert plain_line(names, values) == expected
    assert expected.count("\t") == len(values) - 1


@given(st.dictionaries(TEXTS, st.one_of(CELLS, st.floats(allow_nan=False)), max_size=4))
def test_json_of_what_is_no_bytes(row: dict[str, Any]) -> None:
    """Undecodable bytes of names come out as the character for them, all else as it is."""

    def known(value: Any) -> Any:
        if isinstance(value, tuple):
            return [known(each) for each in value]
        if isinstance(value, str):
            return _known_text(value)
        return value

    text = json_text(row)
    text.encode()  # no lone surrogate is left
    expected: dict[str, Any] = {}
    for name, value in row.items():
        expected[_known_text(name)] = known(value)
    assert json.loads(text) == expected


def _known_text(text: str) -> str:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        kept = ("\ufffd" if _stands_for_nothing(each) else each for each in text)
        data = "".join(kept).encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "replace")


def _stands_for_nothing(each: str) -> bool:
    return "\ud800" <= each <= "\udfff" and not "\udc80" <= each <= "\udcff"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"key": b"a"}, '{"key":"a"}'),
        ({"key": b"\xff"}, '{"key_base64":"/w=="}'),
        (
            {"headers": [{"key": "h", "value": b"\xff"}]},
            '{"headers":[{"key":"h","value_base64":"/w=="}]}',
        ),
        ({"why": (Why.ELECTION,)}, '{"why":["election"]}'),
    ],
)
def test_json_of_bytes(row: dict[str, Any], expected: str) -> None:
    assert json_text(row) == expected


def test_lines_come_in_order_and_the_last_ones_with_a_flush() -> None:
    written: list[str] = []
    lines = Lines(written.append)
    for number in range(2 * LINES_COUNT + 3):
        lines.put(str(number))
    assert len(written) == 2
    lines.flush()
    lines.flush()
    assert "\n".join(written).split("\n") == [str(each) for each in range(2 * LINES_COUNT + 3)]
