"""UTF-8 as Java decodes it: what keys, values and names look like in Kafka's own tools."""

from __future__ import annotations

import re

# Java takes an encoded surrogate for one malformed piece, Python for two or three.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_ONE_BAD_BYTE = b"\xff"


def kafka_text(data: bytes) -> str:
    """Decode bytes as java.lang.String does: each malformed piece becomes one U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_ONE_BAD_BYTE, data).decode(errors="replace")
