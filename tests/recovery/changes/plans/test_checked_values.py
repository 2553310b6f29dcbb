"""Values from another hand: what is accepted can be used, printed and written again."""

from __future__ import annotations

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.changes.plans.file_facts import (
    MAX_TIME_NS,
    number_of,
    plain_object,
    text_of,
    time_ns_of,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=9,
)


@given(VALUES)
def test_any_value(value: object) -> None:
    for check in (text_of, number_of, time_ns_of, plain_object):
        try:
            found = check(value)
        except (TypeError, ValueError):
            continue
        assert found == value or check is time_ns_of


@given(VALUES)
def test_what_is_plain_can_be_written(value: object) -> None:
    try:
        plain_object({"x": value})
    except (TypeError, ValueError):
        return
    msgpack.packb(value, unicode_errors="surrogatepass")
    assert json.loads(json.dumps(value, indent=1, allow_nan=False)) == value


@pytest.mark.parametrize("depth", [100, 500, 5000])
def test_depth(depth: int) -> None:
    value: object = 1
    for _ in range(depth):
        value = [value]
    with pytest.raises(ValueError, match="nested too deeply"):
        plain_object({"x": value})


def test_times() -> None:
    for value in (-(10**18), 0, 2**63, MAX_TIME_NS, -MAX_TIME_NS):
        assert time_ns_of(value) == time_ns_of(str(value)) == value
    for wrong in (MAX_TIME_NS + 1, "x", "9" * 99, 1.0, True, None, [1]):
        with pytest.raises((TypeError, ValueError)):
            time_ns_of(wrong)


@pytest.mark.parametrize("rows", [[{"a": 1}, {"a": 1, "b": 2}], [{"a": 1}, {}], [{"a": 1}, 1]])
def test_the_rows_of_a_table_have_the_same_fields(rows: list[object]) -> None:
    plain_object({"x": [{"a": 1, "b": None}, {"b": 2, "a": 1}], "y": [1, None, "z"]})
    with pytest.raises(ValueError, match="different fields"):
        plain_object({"x": rows})
