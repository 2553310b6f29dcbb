"""Text and msgpack of very large values in pieces, so that no copy of such a value is made.

As text a value may take six times its bytes, and as a Python string four times.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Value = bytes | memoryview

LARGE_BYTES = 1 << 20  # a larger value is written in pieces
PIECE_BYTES = 3 << 18  # of base64 without padding


def is_large(*values: Value | None) -> bool:
    """Return whether one of the values is large enough to be written in pieces."""
    return any(each is not None and len(each) > LARGE_BYTES for each in values)


def is_utf8(data: Value) -> bool:
    """Return whether bytes are UTF-8, without making one string of them."""
    try:
        for _ in _texts(data):
            pass
    except UnicodeDecodeError:
        return False
    return True


def json_pieces(data: Value) -> Iterator[bytes]:
    """Yield a JSON string of UTF-8 bytes."""
    from json.encoder import encode_basestring

    yield b'"'
    for text in _texts(data):
        yield encode_basestring(text)[1:-1].encode()
    yield b'"'


def base64_pieces(data: Value) -> Iterator[bytes]:
    """Yield bytes as base64 in a JSON string."""
    from binascii import b2a_base64

    yield b'"'
    for pos in range(0, len(data), PIECE_BYTES):
        yield b2a_base64(memoryview(data)[pos : pos + PIECE_BYTES], newline=False)
    yield b'"'


def msgpack_pieces(data: bytes) -> Iterator[bytes]:
    """Yield bytes in msgpack's format."""
    sizes = ((1 << 8, b"\xc4", 1), (1 << 16, b"\xc5", 2), (1 << 32, b"\xc6", 4))
    kind, width = next((kind, width) for end, kind, width in sizes if len(data) < end)
    yield kind + len(data).to_bytes(width, "big")
    yield data


def _texts(data: Value) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for pos in range(0, len(data), PIECE_BYTES):
        yield decoder.decode(data[pos : pos + PIECE_BYTES])
    yield decoder.decode(b"", final=True)
