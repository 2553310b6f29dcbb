"""The check that comes before every read of a structure with a fixed size."""

from __future__ import annotations

from storage.errors import TruncatedError

Buf = bytes | bytearray | memoryview


def require_bytes(buf: Buf, pos: int, needed_bytes: int, what: str, *, check_id: str) -> None:
    """Make sure that `needed_bytes` can be read at `pos`.

    The parsers of batches and messages, which run per batch, do the same in place.

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
