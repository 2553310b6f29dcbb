"""Values of plans and journals, which may come from another hand: what they must be to be used.

All functions raise TypeError or ValueError for anything else.
"""

from __future__ import annotations

import math
import os
from typing import Any

from storage.limits import INT64_MAX

MAX_BYTES = INT64_MAX
MAX_ID = 2**32 - 1
MAX_MODE = 0o7777
# Beyond what 64 bits hold: ext4 and XFS go on after the year 2262, btrfs and tmpfs much further.
MAX_TIME_NS = 2**70
MAX_DEPTH = 32
_MESSAGE_PACK_INTEGERS = range(-INT64_MAX - 1, 2**64)


def text_of(value: object) -> str:
    """A text that can be the name of a file."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    if b"\0" in os.fsencode(value):  # that also refuses surrogates that stand for no byte
        raise ValueError(f"{value!r} is no name")
    return value


def number_of(value: object, maximum: int = MAX_BYTES) -> int:
    """A size, a count, an id."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise TypeError(f"{value!r} is no number from 0 to {maximum}")
    return int(value)


def time_ns_of(value: object) -> int:
    """A time, which may be before 1970; in a journal as text where it has more than 64 bits."""
    number = int(value) if isinstance(value, str) and len(value) < 32 else value
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if not is_number or not -MAX_TIME_NS <= number <= MAX_TIME_NS:  # type: ignore[operator]
        raise TypeError(f"{value!r} is no number of nanoseconds")
    return int(number)  # type: ignore[call-overload, no-any-return]


def bool_of(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def plain_object(value: object) -> dict[str, Any]:
    """An object of JSON that can be printed in each format, and written again."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    _require_plain(value, MAX_DEPTH)
    return value


def _require_plain(value: object, depth: int) -> None:
    if depth == 0:
        raise ValueError("it is nested too deeply")
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is no name of a field")
            _require_plain(each, depth - 1)
    elif isinstance(value, list):
        for each in value:
            _require_plain(each, depth - 1)
        # Where one is an object the list is a table, which is shown by the fields of its first row.
        if len({frozenset(each) if isinstance(each, dict) else None for each in value}) > 1:
            raise ValueError("the rows of a table have not the same fields")
    elif isinstance(value, int):
        if value not in _MESSAGE_PACK_INTEGERS:
            raise ValueError("it has a number of more than 64 bits")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number")
    elif value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no value of JSON")
