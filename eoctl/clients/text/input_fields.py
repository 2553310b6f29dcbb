"""A record as an object of named fields, as JSON Lines and msgpack have it: checked, and as bytes.

field         is                                        absent or null
key, value    a string, or {"base64": "..."}            null
headers       [[name, value], ...], or                  none
              [{"key": name, "value": value}, ...], or
              {name: value, ...}
timestamp_ms  an integer; -1 is Kafka's "no timestamp"  the clock decides
partition     an integer, one of those written to       the key decides

A string is UTF-8 text, or base64 if the reader was told so; names of headers are text always. In
msgpack, bytes stand for themselves. `key_base64` and `value_base64`, as `eoctl export` writes them,
are base64 in either case. What else `consume` and `export` print of a record is passed over, so
that their output can be read again; any other field is refused, since it may be a misspelt one.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import TYPE_CHECKING, Any

from storage.formats.record import RecordHeader
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_TIMESTAMP_MS = INT64_MAX
NO_TIMESTAMP_MS = -1

_BASE64_FIELDS = {"key_base64": "key", "value_base64": "value"}
_HEADER_FIELDS = frozenset({"key", "value"})
_OWN_FIELDS = frozenset({"key", "value", "headers", "timestamp_ms", "partition"})
_PASSED_OVER = frozenset({
    "kind", "topic", "offset", "timestamp_type",
    "broker", "directory", "path", "batch_base_offset", "partition_leader_epoch", "producer_id",
    "producer_epoch", "sequence", "is_transactional", "outcome", "codec",
})  # fmt: skip
_KNOWN_FIELDS = _OWN_FIELDS | _PASSED_OVER
_SHOWN_CHARACTERS = 60
_SHOWN_PARTITIONS = 10

_KINDS = {
    str: "a string", bytes: "bytes", bool: "a boolean", int: "an integer", float: "a number",
    list: "a list", dict: "an object", type(None): "null",
}  # fmt: skip

Fields = tuple[bytes | None, bytes | None, tuple[RecordHeader, ...], int | None, int | None]


class MalformedError(ValueError):
    """What is wrong with one record of an input; who knows the place says where."""


def unique_fields(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Make an object of its fields, as the hook of a parser (`object_pairs_hook`).

    Raises:
        MalformedError: a name is there twice, or is no name at all.
    """
    try:
        fields = dict(pairs)
    except TypeError:  # of msgpack, where any value can be a key of a map
        raise MalformedError("a list or a map is no name of a field") from None
    if len(fields) != len(pairs):
        last = {name: index for index, (name, _) in enumerate(pairs)}
        twice = next(name for index, (name, _) in enumerate(pairs) if last[name] != index)
        raise MalformedError(f"the field {_shown(twice)} is there twice")
    return fields


class FieldReader:
    """Turns objects into the parts of a record.

    Args:
        is_base64: strings are base64.
        needs_keys: the topic is compacted, and takes no record without a key.
        partitions: those that records may name; None: any.
    """

    def __init__(
        self,
        *,
        is_base64: bool = False,
        needs_keys: bool = False,
        partitions: Collection[int] | None = None,
    ) -> None:
        self._of_string = _from_base64 if is_base64 else _from_text
        self._needs_keys = needs_keys
        self._partitions = partitions

    def read(self, fields: Any) -> Fields:
        """Return (key, value, headers, timestamp_ms, partition) of an object.

        Raises:
            MalformedError: it is no object, or a field is unknown or no such value.
        """
        if type(fields) is not dict:
            raise MalformedError(f"expected an object, found {_kind(fields)}")
        if not fields.keys() <= _KNOWN_FIELDS:
            fields = _renamed(fields, _KNOWN_FIELDS)
        key = self._bytes("key", fields.get("key"))
        if key is None and self._needs_keys:
            raise MalformedError("the topic is compacted and takes no record without a key")
        value = self._bytes("value", fields.get("value"))
        given = fields.get("headers")
        headers = () if given is None else self._headers(given)
        timestamp_ms = fields.get("timestamp_ms")
        if timestamp_ms is not None:
            timestamp_ms = _timestamp(timestamp_ms)
        partition = fields.get("partition")
        if partition is not None:
            self._require_partition(partition)
        return key, value, headers, timestamp_ms, partition

    def _require_partition(self, value: Any) -> None:
        if type(value) is not int:
            raise MalformedError(f"partition: expected an integer, found {_kind(value)}")
        if self._partitions is not None and value not in self._partitions:
            expected = ", ".join(map(str, sorted(self._partitions)[:_SHOWN_PARTITIONS]))
            more = ", ..." if len(self._partitions) > _SHOWN_PARTITIONS else ""
            raise MalformedError(
                f"partition: expected {expected}{more}, found {value};"
                " without the field the record goes where its key says"
            )

    def _bytes(self, name: str, value: Any) -> bytes | None:
        if type(value) is str:
            return self._of_string(name, value)
        if value is None or type(value) is bytes:
            return value
        if type(value) is dict and value.keys() == {"base64"} and type(value["base64"]) is str:
            return _from_base64(name, value["base64"])
        raise MalformedError(
            f'{name}: expected a string, null or {{"base64": "..."}}, found {_kind(value)}'
        )

    def _headers(self, headers: Any) -> tuple[RecordHeader, ...]:
        if type(headers) is dict:
            return tuple(self._header(pair) for pair in headers.items())
        if type(headers) is not list:
            raise MalformedError(f"headers: expected a list or an object, found {_kind(headers)}")
        return tuple(self._header(_pair(each)) for each in headers)

    def _header(self, pair: tuple[Any, Any]) -> RecordHeader:
        name, value = pair
        if type(name) is str:
            key = _from_text("name of a header", name)
        else:
            found = None if name is None else self._bytes("name of a header", name)
            if found is None:
                raise MalformedError("name of a header: expected a string, found null")
            key = found
        return RecordHeader(key, self._bytes("value of a header", value))


def topic_of(fields: Any, topics: Collection[str]) -> str:
    """Return the topic that a record is for, where there are several.

    Raises:
        MalformedError: it names none of them.
    """
    found = fields.get("topic") if type(fields) is dict else None
    if type(found) is str and found in topics:
        return found
    expected = ", ".join(map(repr, topics))
    what = "none" if found is None else _shown(found)
    raise MalformedError(f"topic: expected one of {expected}, found {what}")


def _pair(header: Any) -> tuple[Any, Any]:
    """The name and the value of an entry in a list of headers."""
    if type(header) is list and len(header) == 2:
        return header[0], header[1]
    if type(header) is dict:
        if not header.keys() <= _HEADER_FIELDS:
            header = _renamed(header, _HEADER_FIELDS)
        if "key" in header:
            return header["key"], header.get("value")
    raise MalformedError(
        'headers: expected [name, value] or {"key": name, "value": value} in the list,'
        f" found {_kind(header)} that is neither"
    )


def _renamed(fields: dict[Any, Any], known: frozenset[str]) -> dict[Any, Any]:
    """The fields with `key_base64` and `value_base64` under their plain names."""
    renamed: dict[Any, Any] = {}
    for name, value in fields.items():
        plain = _BASE64_FIELDS.get(name)
        if plain is None:
            if name not in known:
                expected = ", ".join(sorted(known & _OWN_FIELDS))
                raise MalformedError(f"unknown field {_shown(name)}, expected {expected}")
            renamed[name] = value
        elif plain in fields:
            raise MalformedError(f"both {plain} and {name} are given")
        else:
            renamed[plain] = None if value is None else {"base64": value}
    return renamed


def _from_text(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise MalformedError(f"{name}: half of a surrogate pair is no character") from None


def _from_base64(name: str, value: str) -> bytes:
    try:
        return a2b_base64(value, strict_mode=True)
    except ValueError:
        raise MalformedError(f"{name}: expected base64, found {_shown(value)}") from None


def _timestamp(value: Any) -> int | None:
    if type(value) is not int:
        raise MalformedError(f"timestamp_ms: expected an integer, found {_kind(value)}")
    if not NO_TIMESTAMP_MS <= value <= MAX_TIMESTAMP_MS:
        raise MalformedError("timestamp_ms: expected 0 to 2^63 - 1, or -1 for none")
    return None if value == NO_TIMESTAMP_MS else value


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), f"a value of type {type(value).__name__}")


def _shown(value: Any) -> str:
    """A name or a string of the input, short, and without what could confuse a terminal."""
    if type(value) not in {str, bytes}:
        return _kind(value)
    cut = value[:_SHOWN_CHARACTERS]
    return f"{cut!r}..." if len(value) > len(cut) else repr(cut)
