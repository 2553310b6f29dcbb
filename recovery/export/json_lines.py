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

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHUNK_ROWS = 8192


class _Target(Protocol):
    def write(self, data: bytes) -> int: ...


class JsonLines:
    """Writes record batches of one schema as lines."""

    def __init__(self, target: _Target, schema: pa.Schema, *, is_text: bool) -> None:
        self._target = target
        self._named = _as_text if is_text else _as_base64
        self._texts: dict[str, str] = {}  # of strings, of which there are few
        self._names = schema.names

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a line per record."""
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            part = batch.slice(start, CHUNK_ROWS)
            fields = [self._fields(name, part.column(name)) for name in self._names]
            lines = map(",".join, zip(*fields, strict=True))
            text = "}\n{".join(lines)
            self._target.write(f"{{{text}}}\n".encode())

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
