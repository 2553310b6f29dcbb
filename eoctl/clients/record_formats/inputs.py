r"""The input of a producer: lines, JSON Lines or msgpack, as records with their positions.

    format   a record is                                   and ends
    lines    a line, or its part after the separator       after its `\n`, or with the input
    jsonl    an object on a line (fields: `FieldReader`)   as in lines, blank lines are skipped
    msgpack  a map with the same fields                    at the end of its map

`end_pos` of a record is the number of bytes of the input up to its end. A producer that resumes
seeks there and continues. Memory is bounded for every input. A record has at most MAX_RECORD_BYTES.
The size of a record above PLAIN_BYTES must come from its strings, because a megabyte of brackets
would become a hundred megabytes of Python objects.
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


# -- a record as an object of named fields, as in JSON Lines and msgpack.
#
# 1. Fields key and value: a string, or {"base64": "..."}. The default is null.
# 2. Field headers: [[name, value], ...], or [{"key": name, "value": value}, ...], or {name: value,
#    ...}. By default there are none.
# 3. Field timestamp_ms: an integer, or -1, which is Kafka's "no timestamp". By default the clock
#    decides.
# 4. Field partition: an integer, the number of a target partition. By default the key decides.
#
# A string is UTF-8 text, or base64 if the reader has that option. Names of headers are always text.
# In msgpack, bytes stand for themselves. `key_base64` and `value_base64`, as `eoctl export` writes
# them, are always base64. Other fields that `consume` and `export` print are ignored, so that their
# output can be read again. Any other field is refused, because it may be misspelt.


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
    """A problem with one record of an input. The caller adds the position."""


def unique_fields(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return an object with its fields, as the hook of a parser (`object_pairs_hook`).

    Raises:
        MalformedError: a name occurs twice, or is a list or a map.
    """
    try:
        fields = dict(pairs)
    except TypeError:  # in msgpack any value can be a key of a map
        raise MalformedError("a list or a map is no name of a field") from None
    if len(fields) != len(pairs):
        last = {name: index for index, (name, _) in enumerate(pairs)}
        twice = next(name for index, (name, _) in enumerate(pairs) if last[name] != index)
        raise MalformedError(f"the field {_shown(twice)} occurs twice")
    return fields


class FieldReader:
    """A reader of objects as parts of a record.

    Args:
        is_base64: strings are base64.
        needs_keys: the topic is compacted, and accepts no record without a key.
        partitions: the partitions that records may name, None for any.
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
            MalformedError: it is not an object, or a field is unknown or has an invalid value.
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
    """Return the topic of a record, if there are several topics.

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
    """Return the name and the value of an entry in a list of headers."""
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
    """Return the fields with `key_base64` and `value_base64` under their plain names."""
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
    """Return a short text of a name or a string of the input, escaped for a terminal."""
    if type(value) not in {str, bytes}:
        return _kind(value)
    cut = value[:_SHOWN_CHARACTERS]
    return f"{cut!r}..." if len(value) > len(cut) else repr(cut)


# -- inputs


BLOCK_BYTES = 1 << 20
MAX_RECORD_BYTES = 100 << 20  # maximum request of a broker (socket.request.max.bytes)
PLAIN_BYTES = 1 << 20
MAX_ITEMS_COUNT = 1 << 17  # names, values and brackets of a record larger than that

_NO_HEADERS: tuple[RecordHeader, ...] = ()
_WHITE_SPACE = b" \t\r"


class InputFormat(StrEnum):
    """The division of an input into records."""

    LINES = "lines"
    JSONL = "jsonl"
    MSGPACK = "msgpack"


class BytesAs(StrEnum):
    """The meaning of strings in JSON Lines and msgpack."""

    TEXT = "text"
    BASE64 = "base64"


class InputRecord(NamedTuple):
    """A record of the input. `end_pos`: number of bytes of the input up to its end."""

    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]
    timestamp_ms: int | None  # None: the clock decides
    partition: int | None  # None: the key decides
    end_pos: int

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[RecordHeader, ...]]:
        """The key, the value and the headers."""
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
    """Yield the records of an input, one at a time, in order.

    Args:
        file: is read from its current position to its end, without waiting for full blocks.
        name: of the input, for errors.
        format: its division into records.
        key_separator: ends the key of each line. None: lines have no keys.
        bytes_as: meaning of strings in JSON Lines and msgpack.
        needs_keys: the topic is compacted, and accepts no record without a key.
        partitions: the partitions that records may name, None for any.
        on_bytes: gets the number of bytes after each read.
        start_pos: current position of `file`.

    Raises:
        UsageError: the options contradict each other. Or a record is malformed, too large, or has
            no key. All records before it were yielded.
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
    """Yield the records of JSON Lines, each with the topic in its field `topic`.

    Args:
        file: is read from its current position to its end.
        name: of the input, for errors.
        needs_keys: by topic that may be named, whether it accepts no record without a key.
        bytes_as: meaning of strings.

    Raises:
        UsageError: a record is malformed, or names another topic. All records before it were
            yielded.
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
    r"""Yield the lines of a file in blocks: (lines without their `\n`, position after the block).

    Only `\n` ends a line. A last line without it is a block of its own. In all other blocks each
    line is therefore followed by one byte.

    Args:
        file: is read from its current position to its end, without waiting for full blocks.
        name: of the file, for errors.
        on_bytes: gets the number of bytes after each read.
        start_pos: current position of `file`.
        block_bytes: maximum size of a read.

    Raises:
        UsageError: a line is longer than MAX_RECORD_BYTES. All lines before it were yielded.
    """
    read = _reader(file)
    size = min(block_bytes, MAX_RECORD_BYTES)  # only earlier blocks can make it long
    begun: list[bytes] = []  # a line without its end so far
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
    """Return a read function that does not wait for full blocks. A pipe may stay open for hours."""
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    return read


def _line_place(name: str, number: int, start_pos: int) -> str:
    after = f" after byte {start_pos}" if start_pos else ""
    return f"{name}: line {number}{after}"


def _of_lines(
    blocks: Iterable[tuple[list[bytes], int]], name: str, separator: bytes | None, start_pos: int
) -> Iterator[Iterator[InputRecord]]:
    """Yield an iterator for each block, which runs no Python code per line."""
    pos = start_pos
    number = 1
    for lines, end_pos in blocks:
        ends: Iterable[int] = (end_pos,)  # of a single line, with or without its `\n`
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
    # InputRecord(...) and its _make are Python functions, and take twice as long as everything
    # else.
    parts = zip(keys, values, repeat(_NO_HEADERS), repeat(None), repeat(None), ends, strict=False)
    new: Callable[[type[InputRecord], Iterable[Any]], InputRecord] = tuple.__new__
    return map(new, repeat(InputRecord), parts)


# --- JSON Lines -----------------------------------------------------------------------------------


def _of_json_lines(
    blocks: Iterable[tuple[list[bytes], int]], name: str, read_fields: ReadFields, start_pos: int
) -> Iterator[InputRecord]:
    import json

    decoder = json.JSONDecoder(object_pairs_hook=unique_fields, parse_constant=_constant)
    decode = decoder.raw_decode  # takes a third of the time of `decode`, which skips white space
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
    """Refuse a long line unless its strings make it long.

    Without escapes, the parts between quotes are alternately outside and inside of strings.
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
    """Yield the msgpack values of a stream as (its bytes, position after it), without decoding.

    Skipping a value requires no memory, whatever its stated size.
    """
    from msgpack import OutOfData, Unpacker

    read = _reader(file)
    sizer = Unpacker(max_buffer_size=0)  # no limit, as ours is checked below
    begun: list[bytes] = []  # a value without its end so far
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


# First byte of a msgpack value -> (width of its length field, bytes after the length field that it
# does not count). The length of an array or a map counts values that follow as values.
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
          0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
          0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
          0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}  # fmt: skip


def _require_plain_msgpack(data: bytes) -> None:
    """Refuse a large, complete value that has too many smaller values."""
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


# -- the input of a producer, by its name on the command line


def open_input(name: str, stack: ExitStack) -> BinaryIO:
    """Open a file for reading. `-` is the standard input.

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
    """An input with waits that can be interrupted, for work that otherwise cannot."""

    def __init__(self, file: BinaryIO, interrupts: Interrupts) -> None:
        self._file = file
        self._read: Callable[[int], bytes] = getattr(file, "read1", file.read)
        self._interrupts = interrupts

    def read1(self, count: int) -> bytes:
        """Read available bytes, at most `count`."""
        with self._interrupts.released():
            return self._read(count)

    read = read1

    def seekable(self) -> bool:
        """Return whether the input can be read twice."""
        return self._file.seekable()

    def seek(self, pos: int) -> int:
        """Continue at a position."""
        return self._file.seek(pos)


def separator_bytes(text: str) -> bytes:
    """Return the bytes of a separator, unchanged from the command line.

    Raises:
        UsageError: it is empty.
    """
    if not text:
        raise UsageError("--key-separator: it must not be empty")
    return text.encode("utf-8", "surrogateescape")
