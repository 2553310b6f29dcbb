"""Java's hashes and the order of its hash maps, on values computed by Java itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.producers.java_hash_map import hash_map_order, long_hash, string_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("my-tx", 104315461),
        ("g", 103),
        ("console-consumer-12345", 158455506),
        ("café", 3045921),
        ("polygenelubricants", 2**31),  # -2147483648
        ("\U0001f642", 1772965),  # two UTF-16 units
    ],
)
def test_string_hash(text: str, expected: int) -> None:
    assert string_hash(text) == expected


@pytest.mark.parametrize(("value", "expected"), [(5, 5), (-1, 0), (2**32 + 1, 0), (2**40, 256)])
def test_long_hash(value: int, expected: int) -> None:
    assert long_hash(value) == expected


def test_order_of_a_small_table() -> None:
    """A worked example: 2000 and 1000 in buckets below 3000's."""
    assert hash_map_order([1000, 2000, 3000], long_hash) == [2000, 1000, 3000]


def test_the_thirteenth_key_doubles_the_table() -> None:
    """12 keys of 16 buckets stay, one more sorts by 32."""
    keys = [*range(16, 28)]
    assert hash_map_order(keys, long_hash) == keys
    assert hash_map_order([*keys, 0], long_hash) == [0, *keys]
    assert hash_map_order([*range(15, 27)], long_hash) == [*range(16, 27), 15]


def test_the_ninth_key_of_a_bucket_doubles_a_small_table() -> None:
    """Keys 0, 16, 32, ... share bucket 0 of 16; after the ninth there are 32 buckets."""
    keys = [16 * n for n in range(9)]
    assert hash_map_order(keys[:8], long_hash) == keys[:8]
    assert hash_map_order(keys, long_hash) == [*keys[::2], *keys[1::2]]


@given(st.lists(st.integers(0, 2**20), unique=True, max_size=300))
def test_order_holds_every_key_once(keys: list[int]) -> None:
    ordered = hash_map_order(keys, long_hash)
    assert sorted(ordered) == sorted(keys)
    assert hash_map_order(keys + keys, long_hash) == ordered
