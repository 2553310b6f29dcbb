"""The bytes around a value in a record without key, headers and timestamp delta, looked up by size.

Between two values of a batch there are only the end of one record and the beginning of the next.
Both follow from the length of the value and the width of the offset delta, so that records are put
together without a line of Python for a single one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from storage.formats.record import NULL_LENGTH
from storage.formats.varint import encode_varint

if TYPE_CHECKING:
    from collections.abc import Callable

# Lengths and offset deltas are small, so their varints are looked up. The table is made at every
# start, so those of two bytes are made without `encode_varint`, in a fifth of the time.
VARINTS_COUNT = 8192
ONE_BYTE_COUNT = 64
VARINTS = (
    *map(encode_varint, range(ONE_BYTE_COUNT)),
    *[bytes((n << 1 & 0x7F | 0x80, n >> 6)) for n in range(ONE_BYTE_COUNT, VARINTS_COUNT)],
)
NO_HEADERS = b"\x00"
NO_ATTRIBUTES = b"\x00"

_T = TypeVar("_T")


class _BySize(dict[int, _T]):
    """Something that depends on the length of a value; kept for short ones."""

    def __init__(self, make: Callable[[int], _T]) -> None:
        self._make = make

    def __missing__(self, size: int) -> _T:
        made = self._make(size)
        if size < VARINTS_COUNT:
            self[size] = made
        return made


def short_varint(value: int) -> bytes:
    """Encode a number that is not negative, and most often small."""
    return VARINTS[value] if value < VARINTS_COUNT else encode_varint(value)


# By length of the value: a null key, and the length.
VALUE_HEADS = _BySize(lambda size: NULL_LENGTH + short_varint(size))


class ValueRecords:
    """Records whose offset deltas have equal widths.

    Attributes:
        stop: the first offset delta that is wider.
        heads: by length of the value: the end of the record before this one, and what is before
            the offset delta.
        record_bytes: by length of the value: size of the record.
    """

    def __init__(self, stop: int) -> None:
        self.stop = stop
        self._delta_bytes = len(VARINTS[stop - 1])
        self.heads = _BySize(self._head)
        self.record_bytes = _BySize(self._record_bytes)

    def _body_bytes(self, size: int) -> int:
        return (
            len(NO_ATTRIBUTES)
            + 1
            + self._delta_bytes
            + len(VALUE_HEADS[size])
            + size
            + len(NO_HEADERS)
        )

    def _head(self, size: int) -> bytes:
        return NO_HEADERS + short_varint(self._body_bytes(size)) + NO_ATTRIBUTES + VARINTS[0]

    def _record_bytes(self, size: int) -> int:
        body_bytes = self._body_bytes(size)
        return len(short_varint(body_bytes)) + body_bytes


SHORT_DELTAS = ValueRecords(ONE_BYTE_COUNT)
LONG_DELTAS = ValueRecords(VARINTS_COUNT)
