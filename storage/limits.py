"""The greatest of Kafka's numbers, which are Java's: signed, 16, 32 or 64 bits wide."""

from __future__ import annotations

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

MAX_OFFSET = INT64_MAX
MAX_RELATIVE_OFFSET = INT32_MAX  # above a segment's base offset: what an index entry can hold


def as_int64(number: int) -> int:
    """Give what 64 bits make of a sum, as Java adds: beyond the greatest comes the least."""
    if is_int64(number):
        return number
    return (number + 2**63) % 2**64 - 2**63


def is_int64(number: int) -> bool:
    """Whether 64 bits hold a number."""
    return -(2**63) <= number < 2**63
