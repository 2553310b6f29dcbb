"""Text and msgpack of very large values in pieces, so that no copy of such a value is made.

The text of a value may take six times as many bytes, and a string four times as many.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Value = bytes | memoryview

LARGE_BYTES = 1 << 20  # a larger value comes in pieces
PIECE_BYTES = 3 << 18  # of base64 without padding


def is_large(*values: Value | None) -> bool:
    """Return whether one of the values is written in pieces."""
    return any(each is not None and len(each) > LARGE_BYTES for each in values)


def is_utf8(data: Value) -> bool:
    """Return whether bytes are text, without making one string of them."""
    try:
        for _ in _texts(data):
            pass
    except UnicodeDecodeError:
        return False
    return True


def json_pieces(data: Value) -> Iterator[bytes]:
    """Give a JSON string of bytes that are UTF-8."""
    from json.encoder import encode_basestring

    yield b'"'
    for text in _texts(data):
        yield encode_basestring(text)[1:-1].encode()
    yield b'"'


def base64_pieces(data: Value) -> Iterator[bytes]:
    """Give bytes as base64 in a JSON string."""
    from binascii import b2a_base64

    yield b'"'
    for pos in range(0, len(data), PIECE_BYTES):
        yield b2a_base64(memoryview(data)[pos : pos + PIECE_BYTES], newline=False)
    yield b'"'


def msgpack_pieces(data: bytes) -> Iterator[bytes]:
    """Give bytes as msgpack has them."""
    sizes = ((1 << 8, b"\xc4", 1), (1 << 16, b"\xc5", 2), (1 << 32, b"\xc6", 4))
    kind, width = next((kind, width) for end, kind, width in sizes if len(data) < end)
    yield kind + len(data).to_bytes(width, "big")
    yield data


def _texts(data: Value) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for pos in range(0, len(data), PIECE_BYTES):
        yield decoder.decode(data[pos : pos + PIECE_BYTES])
    yield decoder.decode(b"", final=True)
