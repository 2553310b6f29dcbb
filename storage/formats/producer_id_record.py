"""Records of `__eoctl_producer_ids`: producer ids handed out, leased, and free to be leased again.

Key and value are msgpack. A key is an array, a value a map with `version` 1. The newest record of a
key counts. A null value removes the key (topic with cleanup.policy=compact).

    key                   value                   meaning
    ["ids"]               next_block_id           first id of the next block
                          next_lease_id,          half-open range of ids for new leases,
                          lease_end_id            empty if both are equal
    ["lease", app_id]     producer_id, generation the leased id; the generation is its epoch
                          expiry_ms,              duration in ms, and
                          expires_at_ms           end in ms since 1970
                          is_released             the holder has released it
                          partitions              [[topic, partition], ...] of the lease
    ["free", producer_id] generation              may be leased again, from the next generation on
    ["floor"]             offset                  no record below this offset is valid

A record is valid if and only if these rules hold:

- PID-1: key and value are msgpack of these shapes, with no other field, and the version is 1.
- PID-2: ids belong to this sequence, and generations are 0 to 32766.

The floor makes a rewrite of the log one step. First all valid records are written again at its end,
then the floor. Then the records below the floor are removed, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from storage.errors import CorruptError, UnsupportedError
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 1
# A controller hands out ids from 0 up, in blocks of 1000 to each broker. At a million producers per
# second it reaches FIRST_ID in nine years. From END_ID on `produce` and `copy` have their own ids.
FIRST_ID = 2**48
END_ID = 2**52
MAX_GENERATION = 32766  # as in transaction coordinators: no producer gets 32767

Key = tuple[str | int, ...]

END_OF_TIME_MS = INT64_MAX  # expiry of a lease without an end


class Ids(NamedTuple):
    """The state of the sequence."""

    next_block_id: int = FIRST_ID
    next_lease_id: int = FIRST_ID
    lease_end_id: int = FIRST_ID


class Lease(NamedTuple):
    """A producer id and its holder."""

    app_id: str
    producer_id: int
    generation: int
    expiry_ms: int
    expires_at_ms: int
    is_released: bool = False
    partitions: tuple[tuple[str, int], ...] = ()

    def is_held(self, now_ms: int) -> bool:
        """Return whether the lease is neither released nor expired."""
        return not self.is_released and now_ms < self.expires_at_ms


class FreeId(NamedTuple):
    """A producer id that may be leased again."""

    producer_id: int
    generation: int


class Floor(NamedTuple):
    """The offset below which no record is valid."""

    offset: int


class Forgotten(NamedTuple):
    """A null value, which removes its key."""

    key: Key


Entry = Ids | Lease | FreeId | Floor

IDS_KEY = ("ids",)
FLOOR_KEY = ("floor",)


def key_of(entry: Entry) -> Key:
    """Return the key of an entry, as its parts."""
    match entry:
        case Ids():
            return IDS_KEY
        case Lease():
            return ("lease", entry.app_id)
        case FreeId():
            return ("free", entry.producer_id)
        case Floor():
            return FLOOR_KEY


def encode_key(key: Key) -> bytes:
    """Encode the key of a record."""
    return bytes(msgpack.packb(key))


def encode_value(entry: Entry) -> bytes:
    """Encode the value of a record, without the parts of its key."""
    fields = {"version": VERSION, **entry._asdict()}
    if isinstance(entry, Lease):
        del fields["app_id"]
    elif isinstance(entry, FreeId):
        del fields["producer_id"]
    return bytes(msgpack.packb(fields))


def parse_record(key: bytes | None, value: bytes | None) -> Entry | Forgotten:
    """Read a record.

    Raises:
        CorruptError: it breaks PID-1 or PID-2. The position is 0.
        UnsupportedError: an unknown version.
    """
    parts = _parse_key(key)
    if value is None:
        return Forgotten(parts)
    fields = _unpacked(value, "value")
    if not isinstance(fields, dict) or not isinstance(fields.get("version"), int):
        raise _corrupt("a value without version")
    if fields.pop("version") != VERSION:
        raise UnsupportedError("version of a value", check_id="PID-1", pos=0, expected=str(VERSION))
    try:
        return _ENTRIES[str(parts[0])](parts, fields)
    except TypeError as error:  # a field is missing or too many
        raise _corrupt(f"fields of {parts[0]}: {sorted(map(str, fields))}") from error


def _corrupt(message: str, check_id: str = "PID-1") -> CorruptError:
    return CorruptError(f"record of producer ids: {message}", check_id=check_id, pos=0)


def _unpacked(data: bytes, what: str) -> Any:
    try:
        return msgpack.unpackb(data, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise _corrupt(f"its {what} is no msgpack: {error}") from error


def _parse_key(key: bytes | None) -> Key:
    if key is None:
        raise _corrupt("it has no key")
    parts = _unpacked(key, "key")
    if any(parts == each for each in (IDS_KEY, FLOOR_KEY)):  # `parts` may not be hashable
        return parts  # type: ignore[no-any-return]
    if not isinstance(parts, tuple) or len(parts) != 2:
        raise _corrupt("its key is not one of ours")
    if parts[0] == "free":
        _require_id(parts[1])
    elif parts[0] != "lease" or not isinstance(parts[1], str):
        raise _corrupt("its key is not one of ours")
    return parts


def _require(is_right: bool, what: str, check_id: str = "PID-1") -> None:
    if not is_right:
        raise _corrupt(what, check_id)


def _is_number(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _require_id(value: Any, end_id: int = END_ID - 1) -> None:
    _require(_is_number(value, FIRST_ID, end_id), f"producer id {value!r}", "PID-2")


def _require_generation(value: Any) -> None:
    _require(_is_number(value, 0, MAX_GENERATION), f"generation {value!r}", "PID-2")


def _ids(parts: tuple[Any, ...], fields: dict[str, Any]) -> Ids:
    del parts
    found = Ids(**fields)
    _require(len(fields) == len(Ids._fields), "fields of ids are missing")
    for each in found:
        _require_id(each, END_ID)
    is_ordered = found.next_lease_id <= found.lease_end_id <= found.next_block_id
    _require(is_ordered, f"ids out of order: {tuple(found)}", "PID-2")
    return found


def _lease(parts: tuple[Any, ...], fields: dict[str, Any]) -> Lease:
    found: Any = Lease(app_id=parts[1], **fields)
    _require(len(fields) == len(Lease._fields) - 1, "fields of a lease are missing")
    _require_id(found.producer_id)
    _require_generation(found.generation)
    _require(_is_number(found.expiry_ms, 0, INT64_MAX), "its expiry is no time")
    _require(_is_number(found.expires_at_ms, -INT64_MAX, INT64_MAX), "its end is no time")
    _require(isinstance(found.is_released, bool), "is_released is neither true nor false")
    _require(
        isinstance(found.partitions, tuple) and all(map(_is_partition, found.partitions)),
        "its partitions are none",
    )
    return Lease._make(found)


def _is_partition(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and _is_number(value[1], 0, INT32_MAX)
    )


def _free(parts: tuple[Any, ...], fields: dict[str, Any]) -> FreeId:
    found = FreeId(producer_id=parts[1], **fields)
    _require_generation(found.generation)
    return found


def _floor(parts: tuple[Any, ...], fields: dict[str, Any]) -> Floor:
    del parts
    found = Floor(**fields)
    _require(_is_number(found.offset, 0, INT64_MAX), "the floor is no offset")
    return found


_ENTRIES: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], Entry]] = {
    "ids": _ids,
    "lease": _lease,
    "free": _free,
    "floor": _floor,
}
