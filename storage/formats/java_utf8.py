"""UTF-8 as Java decodes it: what keys, values and names look like in Kafka's own tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Java takes an encoded surrogate for one malformed piece, Python for two or three.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_ONE_BAD_BYTE = b"\xff"
_MAX_CONTINUATION_BYTES = 3


def kafka_text(data: bytes) -> str:
    """Decode bytes as java.lang.String does: each malformed piece becomes one U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_ONE_BAD_BYTE, data).decode(errors="replace")


def kafka_text_pieces(data: bytes, piece_bytes: int) -> Iterator[str]:
    """Give the text of many bytes in pieces; none of them divides a character.

    A byte that continues no character begins a malformed piece of its own, and at most three
    continue one.
    """
    start = 0
    while start < len(data):
        end = min(start + piece_bytes, len(data))
        for _ in range(_MAX_CONTINUATION_BYTES + 1):
            if end == len(data) or data[end] & 0xC0 != 0x80:
                break
            end -= 1
        else:
            end += _MAX_CONTINUATION_BYTES + 1
        yield kafka_text(data[start:end])
        start = end
