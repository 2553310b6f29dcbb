"""The limits of Kafka's numbers, which are Java's, and the check before a read."""

from __future__ import annotations

from storage.errors import TruncatedError

INT16_MAX = 2**15 - 1
UINT16_MAX = 2**16 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

MAX_OFFSET = INT64_MAX
MAX_RELATIVE_OFFSET = INT32_MAX  # above a segment's base offset: what an index entry can hold


def as_int64(number: int) -> int:
    """Return a sum as Java's 64-bit addition does, which wraps around."""
    if is_int64(number):
        return number
    return (number + 2**63) % 2**64 - 2**63


def is_int64(number: int) -> bool:
    """Return whether a number fits in 64 bits."""
    return -(2**63) <= number < 2**63


# -- the check before every read of a structure with a fixed size


Buf = bytes | bytearray | memoryview


def require_bytes(buf: Buf, pos: int, needed_bytes: int, what: str, *, check_id: str) -> None:
    """Require that `needed_bytes` can be read at `pos`.

    The parsers of batches and messages run once per batch and do the same check inline.

    Raises:
        TruncatedError: fewer bytes are left, or `pos` lies before the buffer.
    """
    available_bytes = len(buf) - pos
    if pos < 0 or available_bytes < needed_bytes:
        raise TruncatedError(
            what,
            check_id=check_id,
            pos=pos,
            needed_bytes=needed_bytes,
            available_bytes=available_bytes,
        )
