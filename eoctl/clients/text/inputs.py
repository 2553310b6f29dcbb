r"""What a producer is fed with: lines, JSON Lines or msgpack, as records with their place.

format  a record is                                     and ends
lines   a line, or what follows the separator in it     after its `\n`, or with the input
jsonl   an object on a line (fields: `input_fields`)    so; lines of white space are passed over
msgpack a map with the same fields                      where its map ends

`end_pos` of a record is the number of bytes of the input up to and with it: a producer that
resumes seeks there and goes on. Memory is bounded, whatever the input claims to hold: a record
has at most MAX_RECORD_BYTES, and one above PLAIN_BYTES must owe its size to its strings,
because a megabyte of brackets would become a hundred of Python objects.
"""

from __future__ import annotations

import errno
import os
import sys
from binascii import a2b_base64
from enum import StrEnum
from itertools import accumulate, chain, count, repeat
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import AccessError, UsageError
from storage.formats.record import RecordHeader
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from contextlib import ExitStack
    from typing import BinaryIO

    from eoctl.clients.partitions.interrupts import Interrupts

    OnBytes = Callable[[int], None] | None
    ReadFields = Callable[[Any], "Fields"]


# -- a record as an object of named fields, as JSON Lines and msgpack have it: checked, and as
#    bytes
#
# field         is                                        absent or null
# key, value    a string, or {"base64": "..."}            null
# headers       [[name, value], ...], or                  none
#               [{"key": name, "value": value}, ...], or
#               {name: value, ...}
# timestamp_ms  an integer; -1 is Kafka's "no timestamp"  the clock decides
# partition     an integer, one of those written to       the key decides
#
# A string is UTF-8 text, or base64 if the reader was told so; names of headers are text always.
# In msgpack, bytes stand for themselves. `key_base64` and `value_base64`, as `eoctl export`
# writes them, are base64 in either case. What else `consume` and `export` print of a record is
# passed over, so that their output can be read again; any other field is refused, since it may be
# a misspelt one.


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
        raise MalformedError(f"the field {_shown(twice)} occurs twice")
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


# -- inputs


BLOCK_BYTES = 1 << 20
MAX_RECORD_BYTES = 100 << 20  # the most that a broker takes in a request (socket.request.max.bytes)
PLAIN_BYTES = 1 << 20
MAX_ITEMS_COUNT = 1 << 17  # names, values and brackets of a record that is larger than that

_NO_HEADERS: tuple[RecordHeader, ...] = ()
_WHITE_SPACE = b" \t\r"


class InputFormat(StrEnum):
    """How an input is divided into records."""

    LINES = "lines"
    JSONL = "jsonl"
    MSGPACK = "msgpack"


class BytesAs(StrEnum):
    """What the strings of JSON Lines and msgpack stand for."""

    TEXT = "text"
    BASE64 = "base64"


class InputRecord(NamedTuple):
    """A record of the input. `end_pos`: bytes of the input up to and with this record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]
    timestamp_ms: int | None  # None: the clock decides
    partition: int | None  # None: the key decides
    end_pos: int

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[RecordHeader, ...]]:
        """Key, value and headers."""
        return self.key, self.value, self.headers


def read_records(
    file: BinaryIO,
    name: str,
    format: InputFormat,  # noqa: A002  # the option is called so
    *,
    key_separator: bytes | None = None,
    bytes_as: BytesAs = BytesAs.TEXT,
    needs_keys: bool = False,
    partitions: Collection[int] | None = None,
    on_bytes: OnBytes = None,
    start_pos: int = 0,
) -> Iterator[InputRecord]:
    """Give the records of an input, one at a time, in its order.

    Args:
        file: is read from where it stands to its end, as much at a time as is there.
        name: of the input, for errors.
        format: how it is divided.
        key_separator: what ends the key of each line; None: lines have no keys.
        bytes_as: what strings of JSON Lines and msgpack stand for.
        needs_keys: the topic is compacted, and takes no record without a key.
        partitions: those that records may name; None: any.
        on_bytes: told how much was read.
        start_pos: where `file` stands.

    Raises:
        UsageError: the options contradict; or, after all records before it, one that is malformed,
            too large, or has no key.
    """
    if format is InputFormat.LINES:
        if needs_keys and key_separator is None:
            raise UsageError(
                "the topic is compacted and takes no record without a key",
                next_step="--key-separator TEXT",
            )
        blocks = read_line_blocks(file, name, on_bytes=on_bytes, start_pos=start_pos)
        return chain.from_iterable(_of_lines(blocks, name, key_separator, start_pos))
    if key_separator is not None:
        raise UsageError(f"a key separator is for lines; {format.value} has a field for the key")
    fields = FieldReader(
        is_base64=bytes_as is BytesAs.BASE64, needs_keys=needs_keys, partitions=partitions
    )
    if format is InputFormat.JSONL:
        blocks = read_line_blocks(file, name, on_bytes=on_bytes, start_pos=start_pos)
        return _of_json_lines(blocks, name, fields.read, start_pos)
    return _of_msgpack(_sized_maps(file, name, on_bytes, start_pos), name, fields.read)


def read_addressed(
    file: BinaryIO, name: str, needs_keys: Mapping[str, bool], *, bytes_as: BytesAs = BytesAs.TEXT
) -> Iterator[tuple[str, InputRecord]]:
    """Give the records of JSON Lines, each with the topic that its field `topic` names.

    Args:
        file: is read from where it stands to its end.
        name: of the input, for errors.
        needs_keys: of each topic that may be named: whether it takes no record without a key.
        bytes_as: what strings stand for.

    Raises:
        UsageError: after all records before it, one is malformed, or names another topic.
    """
    readers = {
        topic: FieldReader(is_base64=bytes_as is BytesAs.BASE64, needs_keys=needs_key)
        for topic, needs_key in needs_keys.items()
    }
    topic = ""

    def read(fields: Any) -> Fields:
        nonlocal topic
        topic = topic_of(fields, readers)
        return readers[topic].read(fields)

    for record in _of_json_lines(read_line_blocks(file, name), name, read, 0):
        yield topic, record


# --- lines ----------------------------------------------------------------------------------------


def read_line_blocks(
    file: BinaryIO,
    name: str,
    *,
    on_bytes: OnBytes = None,
    start_pos: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[list[bytes], int]]:
    r"""Give the lines of a file in blocks: (lines without their `\n`, position after the block).

    Only `\n` ends a line. A last line without one is a block of its own, so that in all others
    each line is followed by one byte.

    Args:
        file: is read from where it stands to its end, as much at a time as is there.
        name: of the file, for errors.
        on_bytes: told how much was read.
        start_pos: where `file` stands.
        block_bytes: the most to read at a time.

    Raises:
        UsageError: a line is longer than MAX_RECORD_BYTES; the lines before it were given.
    """
    read = _reader(file)
    size = min(block_bytes, MAX_RECORD_BYTES)  # so only what began in an earlier block can be long
    begun: list[bytes] = []  # the line whose end is not there yet
    begun_bytes = 0
    given_count = 0
    pos = start_pos
    while block := read(size):
        if on_bytes is not None:
            on_bytes(len(block))
        lines = block.split(b"\n")
        rest = lines.pop()
        first_bytes = begun_bytes + len(lines[0] if lines else rest)
        if first_bytes > MAX_RECORD_BYTES:
            where = _line_place(name, given_count + 1, start_pos)
            raise UsageError(f"{where} is longer than {MAX_RECORD_BYTES} bytes")
        if not lines:
            begun.append(rest)
            begun_bytes = first_bytes
            continue
        if begun:
            lines[0] = b"".join((*begun, lines[0]))
        pos += begun_bytes + len(block) - len(rest)
        given_count += len(lines)
        begun, begun_bytes = ([rest] if rest else []), len(rest)
        yield lines, pos
    if begun:
        yield [b"".join(begun)], pos + begun_bytes


def _reader(file: BinaryIO) -> Callable[[int], bytes]:
    """A call that does not wait for more than there is: a pipe may stay open for hours."""
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    return read


def _line_place(name: str, number: int, start_pos: int) -> str:
    after = f" after byte {start_pos}" if start_pos else ""
    return f"{name}: line {number}{after}"


def _of_lines(
    blocks: Iterable[tuple[list[bytes], int]], name: str, separator: bytes | None, start_pos: int
) -> Iterator[Iterator[InputRecord]]:
    """Give an iterator for each block; nothing of it runs in Python for each line."""
    pos = start_pos
    number = 1
    for lines, end_pos in blocks:
        ends: Iterable[int] = (end_pos,)  # of a line by itself, with or without its end
        if len(lines) > 1:
            ends = map(add, accumulate(map(len, lines)), count(pos + 1))
        pos = end_pos
        if separator is None:
            yield _made(repeat(None), lines, ends)
        else:
            keys, found, values = zip(*[line.partition(separator) for line in lines], strict=True)
            if not all(found):
                good_count = found.index(b"")
                yield _made(keys[:good_count], values, ends)
                where = _line_place(name, number + good_count, start_pos)
                text = separator.decode(errors="backslashreplace")
                raise UsageError(f"{where} has no {text!r} after a key")
            yield _made(keys, values, ends)
        number += len(lines)


def _made(
    keys: Iterable[bytes | None], values: Iterable[bytes], ends: Iterable[int]
) -> Iterator[InputRecord]:
    # InputRecord(...) and its _make are Python functions, and take twice as long as all the rest.
    parts = zip(keys, values, repeat(_NO_HEADERS), repeat(None), repeat(None), ends, strict=False)
    new: Callable[[type[InputRecord], Iterable[Any]], InputRecord] = tuple.__new__
    return map(new, repeat(InputRecord), parts)


# --- JSON Lines -----------------------------------------------------------------------------------


def _of_json_lines(
    blocks: Iterable[tuple[list[bytes], int]], name: str, read_fields: ReadFields, start_pos: int
) -> Iterator[InputRecord]:
    import json

    decoder = json.JSONDecoder(object_pairs_hook=unique_fields, parse_constant=_constant)
    decode = decoder.raw_decode  # a third of the time of `decode`, which looks for white space
    pos = start_pos
    number = 0
    for lines, end_pos in blocks:
        for line in lines:
            number += 1
            pos = min(pos + len(line) + 1, end_pos)
            try:
                if len(line) > PLAIN_BYTES:
                    _require_plain_json(line)
                text = line.strip(_WHITE_SPACE).decode()
                if not text:
                    continue
                value, end = decode(text)
                if end != len(text):
                    raise MalformedError(f"more than one value, from character {end + 1} on")
                fields = read_fields(value)
            except (ValueError, RecursionError) as exc:
                where = _line_place(name, number, start_pos)
                raise UsageError(f"{where}: {_json_fault(exc)}") from exc
            yield InputRecord(*fields, pos)


def _constant(text: str) -> Any:
    raise MalformedError(f"{text} is no value of JSON")


def _json_fault(exc: Exception) -> str:
    import json

    if isinstance(exc, json.JSONDecodeError):
        return f"expected JSON: {exc.msg} at character {exc.pos + 1}"
    if isinstance(exc, MalformedError):
        return str(exc)
    if isinstance(exc, UnicodeDecodeError):
        return f"expected UTF-8, found byte {exc.object[exc.start]:#04x} at byte {exc.start + 1}"
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    return "a number has too many digits"


def _require_plain_json(line: bytes) -> None:
    """Refuse a long line that is not long because of its strings.

    Without its escapes a line is, between one quote and the next, in turn outside of strings and
    inside of them.
    """
    bare = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') <= 2 * MAX_ITEMS_COUNT:
        outside_bytes = sum(map(len, bare.split(b'"')[::2]))
        if outside_bytes <= 8 * MAX_ITEMS_COUNT:
            return
    raise MalformedError(_too_many_items(len(line)))


def _too_many_items(size_bytes: int) -> str:
    return f"{size_bytes} bytes hold too many values for one record"


# --- msgpack --------------------------------------------------------------------------------------


def _sized_maps(
    file: BinaryIO, name: str, on_bytes: OnBytes, start_pos: int
) -> Iterator[tuple[bytes, int]]:
    """Give the msgpack values of a stream as (its bytes, position after it), without decoding.

    To step over a value costs no memory, whatever it claims to hold.
    """
    from msgpack import OutOfData, Unpacker

    read = _reader(file)
    sizer = Unpacker(max_buffer_size=0)  # no limit: ours is below
    begun: list[bytes] = []  # the value whose end is not there yet
    begun_bytes = 0
    pos = block_pos = start_pos
    while block := read(BLOCK_BYTES):
        if on_bytes is not None:
            on_bytes(len(block))
        sizer.feed(block)
        while True:
            try:
                sizer.skip()
            except OutOfData:
                break
            except ValueError as exc:
                where = f"{name}: byte {pos}"
                raise UsageError(f"{where}: expected msgpack ({type(exc).__name__})") from exc
            data = block[max(pos - block_pos, 0) : start_pos + sizer.tell() - block_pos]
            if begun:
                data = b"".join((*begun, data))
                begun = []
            if len(data) > MAX_RECORD_BYTES:
                break
            pos += len(data)
            yield data, pos
        block_pos += len(block)
        begun_bytes = block_pos - pos
        if begun_bytes > MAX_RECORD_BYTES:
            raise UsageError(f"{name}: byte {pos}: a record of more than {MAX_RECORD_BYTES} bytes")
        if begun_bytes:
            begun.append(block[-begun_bytes:] if not begun else block)
    if begun_bytes:
        raise UsageError(f"{name}: byte {pos}: the input ends within a record")


def _of_msgpack(
    maps: Iterable[tuple[bytes, int]], name: str, read_fields: ReadFields
) -> Iterator[InputRecord]:
    from msgpack import unpackb

    for data, end_pos in maps:
        try:
            if len(data) > PLAIN_BYTES:
                _require_plain_msgpack(data)
            value = unpackb(data, strict_map_key=False, object_pairs_hook=unique_fields)
            fields = read_fields(value)
        except ValueError as exc:
            where = f"{name}: record at byte {end_pos - len(data)}"
            raise UsageError(f"{where}: {_msgpack_fault(exc)}") from exc
        yield InputRecord(*fields, end_pos)


def _msgpack_fault(exc: ValueError) -> str:
    if isinstance(exc, MalformedError):
        return str(exc)
    if isinstance(exc, UnicodeDecodeError):
        return "a str is not UTF-8: pack it as bin"
    return f"expected msgpack: {str(exc) or type(exc).__name__}"


# First byte of a msgpack value -> (width of its length field, bytes that follow the length field
# besides what it counts). An array's or map's length counts values that follow as values.
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
          0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
          0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
          0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}  # fmt: skip


def _require_plain_msgpack(data: bytes) -> None:
    """Refuse a large value, known to be whole, that holds too many smaller ones."""
    pos = 0
    items_count = 0
    while pos < len(data):
        items_count += 1
        if items_count > MAX_ITEMS_COUNT:
            raise MalformedError(_too_many_items(len(data)))
        first = data[pos]
        pos += 1
        if first in _SIZED:
            width, more = _SIZED[first]
            pos += width + more + int.from_bytes(data[pos : pos + width])
        elif 0xA0 <= first < 0xC0:  # a short str
            pos += first & 0x1F
        else:
            pos += _FIXED.get(first, 0)


# -- the input of a producer as the command line names it


def open_input(name: str, stack: ExitStack) -> BinaryIO:
    """Open a file to be read; `-` is the standard input.

    Raises:
        AccessError: it cannot be opened.
    """
    if name == "-":
        if sys.stdin is None:
            raise AccessError(OSError(errno.EBADF, os.strerror(errno.EBADF)), "standard input")
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(name).open("rb"))
    except OSError as exc:
        raise AccessError(exc, name) from exc


class InterruptibleInput:
    """An input that can be interrupted while it is waited for, in work that else cannot."""

    def __init__(self, file: BinaryIO, interrupts: Interrupts) -> None:
        self._file = file
        self._read: Callable[[int], bytes] = getattr(file, "read1", file.read)
        self._interrupts = interrupts

    def read1(self, count: int) -> bytes:
        """Read what there is, at most `count` bytes."""
        with self._interrupts.released():
            return self._read(count)

    read = read1

    def seekable(self) -> bool:
        """Whether it can be read twice."""
        return self._file.seekable()

    def seek(self, pos: int) -> int:
        """Go on from a place."""
        return self._file.seek(pos)


def separator_bytes(text: str) -> bytes:
    """The bytes of a separator as they came on the command line.

    Raises:
        UsageError: there are none.
    """
    if not text:
        raise UsageError("--key-separator: it must not be empty")
    return text.encode("utf-8", "surrogateescape")
