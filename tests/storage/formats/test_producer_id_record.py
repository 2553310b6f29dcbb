"""Records of `__eoctl_producer_ids`: there and back; anything else is told by its rule."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.producer_id_record import (
    END_ID,
    FIRST_ID,
    MAX_GENERATION,
    Entry,
    Floor,
    Forgotten,
    FreeId,
    Ids,
    Lease,
    encode_key,
    encode_value,
    key_of,
    parse_record,
)

IDS = st.integers(FIRST_ID, END_ID - 1)
GENERATIONS = st.integers(0, MAX_GENERATION)
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.tuples(IDS, IDS, IDS).map(lambda three: Ids(*sorted(three, reverse=True)[:1], *sorted(three)[:2])),
    st.builds(
        Lease,
        st.text(),
        IDS,
        GENERATIONS,
        st.integers(0, 2**63 - 1),
        st.integers(-(2**63) + 1, 2**63 - 1),
        st.booleans(),
        st.lists(st.tuples(st.text(), st.integers(0, 2**31 - 1))).map(tuple),
    ),
    st.builds(FreeId, IDS, GENERATIONS),
    st.builds(Floor, st.integers(0, 2**63 - 1)),
)  # fmt: skip
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**63)
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def pack(value: Any) -> bytes:
    return bytes(msgpack.packb(value))


@given(ENTRIES)
def test_there_and_back(entry: Entry) -> None:
    key = encode_key(key_of(entry))
    assert parse_record(key, encode_value(entry)) == entry
    assert parse_record(key, None) == Forgotten(key_of(entry))


def test_the_layout() -> None:
    """As the man page has it: other programs may read these."""
    lease = Lease("app", FIRST_ID + 7, 3, 1000, 5000, partitions=(("t", 0),))
    assert msgpack.unpackb(encode_key(key_of(lease))) == ["lease", "app"]
    assert msgpack.unpackb(encode_value(lease)) == {
        "version": 1,
        "producer_id": FIRST_ID + 7,
        "generation": 3,
        "expiry_ms": 1000,
        "expires_at_ms": 5000,
        "is_released": False,
        "partitions": [["t", 0]],
    }
    ids = Ids(FIRST_ID + 1000, FIRST_ID + 5, FIRST_ID + 1000)
    assert encode_key(key_of(ids)) == pack(["ids"])
    assert msgpack.unpackb(encode_value(ids)) == {"version": 1, **ids._asdict()}
    assert encode_key(key_of(FreeId(FIRST_ID, 2))) == pack(["free", FIRST_ID])
    assert msgpack.unpackb(encode_value(FreeId(FIRST_ID, 2))) == {"version": 1, "generation": 2}
    assert encode_key(key_of(Floor(9))) == pack(["floor"])
    assert msgpack.unpackb(encode_value(Floor(9))) == {"version": 1, "offset": 9}


@given(st.none() | st.binary() | VALUES.map(pack), st.none() | st.binary() | VALUES.map(pack))
def test_any_bytes_are_a_record_or_an_error(key: bytes | None, value: bytes | None) -> None:
    try:
        parse_record(key, value)
    except FormatError as error:
        assert error.check_id in {"PID-1", "PID-2"}  # noqa: PT017


@given(ENTRIES, st.text(max_size=12) | st.sampled_from(Lease._fields), VALUES)
def test_a_field_that_is_another(entry: Entry, name: str, value: Any) -> None:
    """Whatever a field holds, what comes out is written back as it was, or it is an error."""
    fields = {**msgpack.unpackb(encode_value(entry)), name: value}
    key = encode_key(key_of(entry))
    try:
        found = parse_record(key, pack(fields))
    except (CorruptError, UnsupportedError):
        return
    assert not isinstance(found, Forgotten)
    assert msgpack.unpackb(encode_value(found)) == fields


LEASE = {"version": 1, "producer_id": FIRST_ID, "generation": 0, "expiry_ms": 1, "expires_at_ms": 1,
         "is_released": False, "partitions": []}  # fmt: skip
IDS_FIELDS = {"version": 1, **Ids()._asdict()}


@pytest.mark.parametrize(
    "key, fields, error, check_id",
    [
        (["lease", "a"], {**LEASE, "version": 2}, UnsupportedError, "PID-1"),
        (["lease", "a"], {**LEASE, "producer_id": FIRST_ID - 1}, CorruptError, "PID-2"),
        (["lease", "a"], {**LEASE, "producer_id": END_ID}, CorruptError, "PID-2"),
        (["lease", "a"], {**LEASE, "generation": 32767}, CorruptError, "PID-2"),
        (["lease", "a"], {**LEASE, "generation": True}, CorruptError, "PID-2"),
        (["lease", "a"], {**LEASE, "is_released": 1}, CorruptError, "PID-1"),
        (["lease", "a"], {**LEASE, "partitions": [["t"]]}, CorruptError, "PID-1"),
        (["lease", "a"], {**LEASE, "partitions": [["t", -1]]}, CorruptError, "PID-1"),
        (["lease", "a"], {**LEASE, "more": 1}, CorruptError, "PID-1"),
        (["lease", "a"], {k: v for k, v in LEASE.items() if k != "partitions"}, CorruptError, "PID-1"),
        (["lease", 1], LEASE, CorruptError, "PID-1"),
        (["lease"], LEASE, CorruptError, "PID-1"),
        ("ids", IDS_FIELDS, CorruptError, "PID-1"),
        (["ids"], {"version": 1}, CorruptError, "PID-1"),
        (["ids"], {**IDS_FIELDS, "next_lease_id": FIRST_ID + 1}, CorruptError, "PID-2"),
        (["ids"], {**IDS_FIELDS, "lease_end_id": FIRST_ID + 1}, CorruptError, "PID-2"),
        (["free", 5], {"version": 1, "generation": 0}, CorruptError, "PID-2"),
        (["floor"], {"version": 1, "offset": -1}, CorruptError, "PID-1"),
        (["other"], {"version": 1}, CorruptError, "PID-1"),
        (["floor"], [1], CorruptError, "PID-1"),
        (["floor"], {}, CorruptError, "PID-1"),
    ],
)  # fmt: skip
def test_what_is_none_of_ours(
    key: Any, fields: Any, error: type[FormatError], check_id: str
) -> None:
    with pytest.raises(error) as caught:
        parse_record(pack(key), pack(fields))
    assert caught.value.check_id == check_id
