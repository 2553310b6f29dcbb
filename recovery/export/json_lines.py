"""Records as JSON Lines: one object per record, with one way to write bytes.

    key_base64, value_base64   base64, null for null; in headers the same
    key, value                 with text: the bytes as text, if they are valid UTF-8 (or null);
                               else the field is called NAME_base64, so a name tells what is in it

All other columns keep their names and are numbers, booleans or strings.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from storage.kernels.select import load_native
from storage.value_pieces import LARGE_BYTES, base64_pieces, is_utf8, json_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

CHUNK_ROWS = 8192


class _Target(Protocol):
    def write(self, data: bytes) -> int: ...


class JsonLines:
    """Writes record batches of one schema as lines."""

    def __init__(self, target: _Target, schema: pa.Schema, *, is_text: bool) -> None:
        self._target = target
        self._native = load_native()
        self._is_text = is_text
        self._named = _as_text if is_text else _as_base64
        self._texts: dict[str, str] = {}  # of strings, of which there are few
        self._names = schema.names

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a line per record."""
        if batch.nbytes > LARGE_BYTES and batch.num_rows == 1:
            for piece in self._pieces(batch):
                self._target.write(piece)
            return
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            part = batch.slice(start, CHUNK_ROWS)
            if self._native is not None:
                columns = [_native_column(name, part.column(name)) for name in self._names]
                lines = self._native.object_lines(columns, part.num_rows, is_text=self._is_text)
                self._target.write(lines)
                continue
            fields = [self._fields(name, part.column(name)) for name in self._names]
            text = "}\n{".join(map(",".join, zip(*fields, strict=True)))
            self._target.write(f"{{{text}}}\n".encode())

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Give the line of one large record."""
        for place, name in enumerate(self._names):
            yield b"," if place else b"{"
            column = batch.column(name)
            if not pa.types.is_binary(column.type) or not column[0].is_valid:
                (field,) = self._fields(name, column)
                yield field.encode()
                continue
            data = memoryview(column[0].as_buffer())
            is_text = self._is_text and is_utf8(data)
            yield f'"{name}":'.encode() if is_text else f'"{name}_base64":'.encode()
            yield from json_pieces(data) if is_text else base64_pieces(data)
        yield b"}\n"

    def close(self) -> None:
        """Do nothing: every line is complete."""

    def _fields(self, name: str, column: Any) -> Iterable[str]:
        """Return `"name":value` for each record."""
        values = column.to_pylist()
        if pa.types.is_binary(column.type):
            named = self._named
            return [named(name, value) for value in values]
        if pa.types.is_list(column.type):
            return [f'"{name}":{self._headers(value)}' for value in values]
        if pa.types.is_boolean(column.type):
            return [f'"{name}":true' if value else f'"{name}":false' for value in values]
        if pa.types.is_integer(column.type):
            return [f'"{name}":{value}' for value in values]
        return [self._string(name, value) for value in values]

    def _string(self, name: str, value: str | None) -> str:
        key = f"{name}\0{value}" if value is not None else name
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = f'"{name}":{json.dumps(value)}'
        return text

    def _headers(self, headers: list[dict[str, bytes | None]]) -> str:
        if not headers:
            return "[]"
        named = self._named
        inside = ",".join(
            f"{{{named('key', each['key'])},{named('value', each['value'])}}}" for each in headers
        )
        return f"[{inside}]"


def _native_column(name: str, column: Any) -> tuple[Any, ...]:
    """Return a column as `object_lines` takes it: see native/src/json_text.rs."""
    prefix = f'"{name}":'
    if pa.types.is_binary(column.type):
        return _native_bytes(name, column)
    if pa.types.is_list(column.type):
        ends = column.offsets.to_numpy().astype(np.int64)
        inside = column.values.slice(ends[0], ends[-1] - ends[0])
        fields = tuple(_native_bytes(each, inside.field(each)) for each in ("key", "value"))
        return prefix, np.diff(ends), fields
    if pa.types.is_boolean(column.type):
        return [prefix + "false", prefix + "true"], _numbers(column)
    if pa.types.is_integer(column.type):
        return prefix, _numbers(column)
    encoded = column.dictionary_encode()
    words = [*encoded.dictionary.to_pylist(), None]
    places = encoded.indices.fill_null(len(words) - 1)
    return [prefix + json.dumps(word) for word in words], _numbers(places)


def _native_bytes(
    name: str, column: Any
) -> tuple[str, NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Name, bytes, and where each value lies in them: positions and sizes, -1 for null."""
    _, offsets, data = column.buffers()
    row_count = len(column)
    if not row_count:
        return name, np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
    ends = np.frombuffer(offsets, np.int32, row_count + 1, 4 * column.offset).astype(np.int64)
    source = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    size = np.diff(ends)
    if column.null_count:
        size[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return name, source, ends[:-1] - ends[0], size


def _numbers(column: Any) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return numbers


def _as_base64(name: str, value: bytes | None) -> str:
    if value is None:
        return f'"{name}_base64":null'
    return f'"{name}_base64":"{b2a_base64(value, newline=False).decode("ascii")}"'


def _as_text(name: str, value: bytes | None) -> str:
    if value is None:
        return f'"{name}":null'
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return _as_base64(name, value)
    return f'"{name}":{_dumps(text)}'


_dumps: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode
