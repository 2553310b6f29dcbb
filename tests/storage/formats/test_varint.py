"""Variable-length integers: a table of examples, limits, and what a reader must tolerate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, TruncatedError
from storage.formats.varint import (
    encode_uvarint,
    encode_uvarlong,
    encode_varint,
    encode_varlong,
    parse_uvarint,
    parse_uvarlong,
    parse_varint,
    parse_varlong,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Parse = Callable[[bytes, int], tuple[int, int]]
    Encode = Callable[[int], bytes]

CODINGS: dict[str, tuple[Parse, Encode, int, int, int]] = {
    "uvarint": (parse_uvarint, encode_uvarint, 0, 2**32 - 1, 5),
    "varint": (parse_varint, encode_varint, -(2**31), 2**31 - 1, 5),
    "uvarlong": (parse_uvarlong, encode_uvarlong, 0, 2**64 - 1, 10),
    "varlong": (parse_varlong, encode_varlong, -(2**63), 2**63 - 1, 10),
}
coding = pytest.mark.parametrize("name", CODINGS)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (-64, "7f"),
        (64, "80 01"),
        (300, "d8 04"),
        (-300, "d7 04"),
        (2147483647, "fe ff ff ff 0f"),
        (-2147483648, "ff ff ff ff 0f"),
    ],
)
def test_varint_table(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == encode_varlong(value) == data
    assert parse_varint(data, 0) == parse_varlong(data, 0) == (value, len(data))


def test_varlong_of_a_timestamp() -> None:
    data = bytes.fromhex("80a0abfef962")
    assert parse_varlong(data, 0) == (1_700_000_000_000, 6)
    assert encode_varlong(1_700_000_000_000) == data


@coding
@given(st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    parse, encode, low, high, max_bytes = CODINGS[name]
    value = data.draw(st.integers(low, high) | st.sampled_from([low, high, 0, 127, 128]))
    encoded = encode(value)
    assert len(encoded) <= max_bytes
    assert parse(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@coding
def test_out_of_range_is_not_encoded(name: str) -> None:
    _, encode, low, high, _ = CODINGS[name]
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match="is not in"):
            encode(value)


@coding
def test_longer_forms_are_read(name: str) -> None:
    parse, _, _, _, max_bytes = CODINGS[name]
    for size_bytes in range(1, max_bytes + 1):
        padded = b"\x02" if size_bytes == 1 else b"\x82" + b"\x80" * (size_bytes - 2) + b"\x00"
        assert parse(padded, 0) == (2 if name.startswith("u") else 1, size_bytes)


@coding
def test_bits_beyond_the_width_are_dropped(name: str) -> None:
    parse, _, _, _, max_bytes = CODINGS[name]
    highest = b"\x80" * (max_bytes - 1)
    assert parse(highest + b"\x70", 0) == (0, max_bytes)


@coding
def test_too_long(name: str) -> None:
    parse, _, _, _, max_bytes = CODINGS[name]
    for rest in (b"", b"\x00"):
        with pytest.raises(CorruptError) as caught:
            parse(b"\x00" + b"\x80" * max_bytes + rest, 1)
        assert (caught.value.check_id, caught.value.pos) == ("VAR-2", 1)


@coding
def test_truncated(name: str) -> None:
    parse, _, _, _, max_bytes = CODINGS[name]
    for size_bytes in range(max_bytes):
        with pytest.raises(TruncatedError) as caught:
            parse(b"\x00" + b"\xff" * size_bytes, 1)
        error = caught.value
        assert (error.check_id, error.pos) == ("VAR-1", 1)
        assert (error.available_bytes, error.needed_bytes) == (size_bytes, size_bytes + 1)


@coding
@given(buf=st.binary(max_size=14), pos=st.integers(0, 16))
@example(buf=b"", pos=3)
def test_any_bytes(name: str, buf: bytes, pos: int) -> None:
    parse, encode, low, high, max_bytes = CODINGS[name]
    error = None
    try:
        value, next_pos = parse(buf, pos)
    except FormatError as caught:
        error = caught
    if error is not None:
        assert error.pos == pos
        return
    assert low <= value <= high
    assert pos < next_pos <= min(len(buf), pos + max_bytes)
    assert len(encode(value)) <= next_pos - pos
    assert parse(memoryview(buf), pos) == parse(bytearray(buf), pos) == (value, next_pos)
