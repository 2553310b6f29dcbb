r"""Consumed records as bytes for a file or a pipe: text, JSON Lines, msgpack.

    text     a line of kafka-console-consumer, with the requested parts in its order and words, then
             the value, as bytes. A null value is `null`.
    jsonl    one object per line, with the fields
               offset, timestamp_ms     integers
               timestamp_type           CreateTime, LogAppendTime, null in message format 0
               key, value               strings, or null
               headers                  [[name, value], ...]
    msgpack  one map per record with the same fields. Keys and values are binary.

Strings of JSON Lines are text, and bytes that are not UTF-8 are {"base64": "..."}. With an option,
all strings except names of headers are base64. Nothing is lost, and `eoctl produce` can read it.
"""

from __future__ import annotations

import json
from itertools import repeat
from typing import TYPE_CHECKING

from eoctl.clients.log.consumed import Records
from eoctl.clients.record_formats.inputs import BytesAs
from eoctl.clients.record_formats.record_text import (
    NO_HEADERS,
    NO_TIMESTAMP,
    NULL_TEXT,
    JsonBytes,
    TextOptions,
    base64_text,
    header_text,
    json_headers,
    json_text,
)
from eoctl.output import OutputFormat
from storage.value_pieces import (
    base64_pieces,
    is_large,
    is_utf8,
    json_pieces,
    msgpack_pieces,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from eoctl.clients.log.consumed import Headers
    from eoctl.clients.log.table_records import TableRecords

    Encode = Callable[[Records | TableRecords], Iterator[bytes | memoryview]]

BULK_MIN_ROWS = 64
NO_PLACE: Mapping[str, object] = {}
UNICODE_ERRORS = "replace"  # JSON may escape half a surrogate pair, which UTF-8 cannot represent


def record_encoder(
    output: OutputFormat, bytes_as: BytesAs, text: TextOptions, topic: str | None = None
) -> Encode:
    """Return a function that turns records into bytes. A large record comes in pieces.

    With a `topic`, each record of JSON Lines and msgpack has it, and `text.partition`.
    """
    place = {} if topic is None else {"topic": topic, "partition": text.partition}

    def encode(records: Records | TableRecords) -> Iterator[bytes | memoryview]:
        is_bulk = records.row_count >= BULK_MIN_ROWS and not place
        if not isinstance(records, Records) and is_bulk:
            from eoctl.clients.record_formats.bulk_record_writers import paint_json, paint_text

            if output is OutputFormat.TEXT:
                yield paint_text(records, text)
                return
            if output is not OutputFormat.MSGPACK:
                yield paint_json(records, bytes_as)
                return
        lists = records.lists()
        is_in_pieces = any(map(is_large, lists.keys, lists.values))
        for row in range(lists.row_count if is_in_pieces else 0):
            yield from _pieces(lists.part(row, row + 1), output, bytes_as, text, place)
        if is_in_pieces:
            return
        if output is OutputFormat.MSGPACK:
            yield encode_msgpack(lists, place)
        elif output is OutputFormat.TEXT:
            yield encode_text(lists, text)
        else:
            yield encode_json(lists, bytes_as, place)

    return encode


def _pieces(
    record: Records,
    output: OutputFormat,
    bytes_as: BytesAs,
    text: TextOptions,
    place: Mapping[str, object],
) -> Iterator[bytes]:
    """Yield the bytes of one record without copying its key and value."""
    ((key,), (value,)) = record.keys, record.values
    if output is OutputFormat.TEXT:
        columns = [*_columns(record, text), _or_null(record.values)]
        for number, column in enumerate(columns):
            if number:
                yield text.key_separator
            yield next(iter(column))
        yield b"\n"
        return
    offset, time_ms, kind = record.offsets[0], record.timestamps_ms[0], record.timestamp_type
    headers = record.headers[0] if record.headers else ()
    if output is OutputFormat.MSGPACK:
        first = {**place, "offset": offset, "timestamp_ms": time_ms, "timestamp_type": kind}
        yield _packed(first, 6 + len(place))
        for name, data in (("key", key), ("value", value)):
            if data is None or isinstance(data, JsonBytes):
                yield _packed({name: _object(data)}, 0)
                continue
            yield _packed({name: None}, 0)[:-1]
            yield from msgpack_pieces(data)
        pairs = [[_name(name), content] for name, content in headers]
        yield _packed({"headers": pairs}, 0)
        return
    begin = f'{{{_json_place(place)}"offset":{offset},"timestamp_ms":{time_ms},'
    yield f'{begin}"timestamp_type":'.encode()
    yield b'null,"key":' if kind is None else f'"{kind}","key":'.encode()
    yield from _json_pieces(key, bytes_as)
    yield b',"value":'
    yield from _json_pieces(value, bytes_as)
    yield f',"headers":[{json_headers(headers, bytes_as)}]}}\n'.encode()


def _packed(fields: dict[str, object], map_count: int) -> bytes:
    """Return the packed fields of a map.

    If `map_count` is not 0, the header of a map comes first.
    """
    from msgpack import Packer

    packer = Packer(use_bin_type=True, autoreset=False, unicode_errors=UNICODE_ERRORS)
    if map_count:
        packer.pack_map_header(map_count)
    for name, value in fields.items():
        packer.pack(name)
        packer.pack(value)
    packed: bytes = packer.bytes()
    return packed


def _json_pieces(data: bytes | None, bytes_as: BytesAs) -> Iterator[bytes]:
    if data is None:
        yield b"null"
    elif isinstance(data, JsonBytes):
        yield data
    elif bytes_as is BytesAs.BASE64:
        yield from base64_pieces(data)
    elif is_utf8(data):
        yield from json_pieces(data)
    else:
        yield b'{"base64":'
        yield from base64_pieces(data)
        yield b"}"


# --- text -----------------------------------------------------------------------------------------


def encode_text(records: Records, options: TextOptions) -> bytes:
    """Return lines as kafka-console-consumer's DefaultMessageFormatter prints them."""
    columns = [*_columns(records, options), _or_null(records.values)]
    lines = columns[0]
    if len(columns) > 1:
        lines = map(options.key_separator.join, zip(*columns, strict=False))
    return b"\n".join([*lines, b""])


def _columns(records: Records, options: TextOptions) -> Iterator[Iterable[bytes]]:
    if options.print_timestamp:
        kind = records.timestamp_type
        form = b"" if kind is None else kind.encode() + b":%d"
        times = (form % each for each in records.timestamps_ms)
        yield repeat(NO_TIMESTAMP) if kind is None else times
    if options.print_partition:
        yield repeat(b"Partition:%d" % options.partition)
    if options.print_offset:
        yield (b"Offset:%d" % each for each in records.offsets)
    if options.print_headers:
        yield repeat(NO_HEADERS) if records.headers is None else map(header_text, records.headers)
    if options.print_key:
        yield _or_null(records.keys)


def _or_null(column: list[bytes | None]) -> list[bytes]:
    return [NULL_TEXT if each is None else each for each in column]


# --- JSON Lines -----------------------------------------------------------------------------------


def _json_place(place: Mapping[str, object]) -> str:
    return "".join(f"{json.dumps(name)}:{json.dumps(value)}," for name, value in place.items())


def encode_json(
    records: Records, bytes_as: BytesAs, place: Mapping[str, object] = NO_PLACE
) -> bytes:
    """Return one object per line. The fields of `place` come first."""
    begin = f"{{{_json_place(place)}"
    text = json_text if bytes_as is BytesAs.TEXT else base64_text
    kind = "null" if records.timestamp_type is None else f'"{records.timestamp_type}"'
    headers: Iterable[str] = repeat("")
    if records.headers is not None:
        headers = (json_headers(each, bytes_as) for each in records.headers)
    columns = (records.offsets, records.timestamps_ms, records.keys, records.values, headers)
    lines = [
        f'{begin}"offset":{offset},"timestamp_ms":{time_ms},"timestamp_type":{kind}'
        f',"key":{text(key)},"value":{text(value)},"headers":[{pairs}]}}\n'
        for offset, time_ms, key, value, pairs in zip(*columns, strict=False)
    ]
    return "".join(lines).encode()


# --- msgpack --------------------------------------------------------------------------------------


def encode_msgpack(records: Records, place: Mapping[str, object] = NO_PLACE) -> bytes:
    """Return one map per record. The fields of `place` come first."""
    from msgpack import Packer

    packer = Packer(use_bin_type=True, autoreset=False, unicode_errors=UNICODE_ERRORS)
    kind = records.timestamp_type
    columns = (records.offsets, records.timestamps_ms, records.keys, records.values)
    headers: Iterable[Headers] = repeat(()) if records.headers is None else records.headers
    for offset, time_ms, key, value, pairs in zip(*columns, headers, strict=False):
        packer.pack(
            {
                **place,
                "offset": offset,
                "timestamp_ms": time_ms,
                "timestamp_type": kind,
                "key": _object(key),
                "value": _object(value),
                "headers": [[_name(name), content] for name, content in pairs],
            }
        )
    packed: bytes = packer.bytes()
    return packed


def _object(data: bytes | None) -> object:
    """Return the value to pack. JSON that a schema has decoded is parsed."""
    return json.loads(data) if isinstance(data, JsonBytes) else data


def _name(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
