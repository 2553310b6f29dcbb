"""The rows of a page as the one block of data in it: columns as JSON, compressed, in base64.

A column of numbers is written as differences, one of few different texts as a list of these and
numbers of it: both shrink a lot. Integers that JavaScript cannot hold are written as text.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

from eoctl.face.columns import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.report.layout import Lane
    from eoctl.report.model import Model

MAX_SAFE = (1 << 53) - 1
COMPRESSION_LEVEL = 9
LANE_FIELDS = ("kind", "key", "title", "note", "first_offset", "end_offset", "marks", "is_unread")


def island(model: Model, lanes: Sequence[Lane]) -> str:
    """Return all that the script of a page draws; equal rows give equal text."""
    value = {
        "now": model.now_ms,
        "lanes": [dict(zip(LANE_FIELDS, map(_plain, each), strict=True)) for each in lanes],
        "tables": {
            kind: _table(columns, rows)
            for kind, columns, rows in model.tables()
            if kind not in {"verdict", "source"}
        },
    }
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()
    return base64.b64encode(zlib.compress(data, COMPRESSION_LEVEL)).decode("ascii")


def _table(columns: tuple[str, ...], rows: Sequence[Any]) -> dict[str, Any]:
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return {
        "count": len(rows),
        "columns": {name: _column(list(each)) for name, each in zip(columns, values, strict=True)},
    }


def _column(values: list[Any]) -> Any:
    known = [each for each in values if each is not None]
    if not known:
        return None if values else []
    kinds = set(map(type, known))
    if kinds == {int}:
        return _numbers(values, is_safe=max(known) <= MAX_SAFE and min(known) >= -MAX_SAFE)
    if kinds == {str}:
        return _texts(values)
    return [_plain(each) for each in values]


def _numbers(values: list[Any], *, is_safe: bool) -> Any:
    if not is_safe:
        return [_plain(each) for each in values]
    before, differences = 0, []
    for each in values:
        differences.append(None if each is None else each - before)
        before = before if each is None else each
    return {"d": differences}


def _texts(values: list[Any]) -> Any:
    numbers: dict[str, int] = {}
    places = [None if each is None else numbers.setdefault(each, len(numbers)) for each in values]
    return {"s": list(map(printable, numbers)), "i": places}


def _plain(value: Any) -> Any:
    """Text that can be shown, numbers that JavaScript can hold."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE else str(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value)
