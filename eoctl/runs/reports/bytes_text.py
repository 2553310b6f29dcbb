"""Keys and values as text, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def row_as_text(row: Iterable[Any], most: int | None = None) -> tuple[Any, ...]:
    """Return a row whose bytes are text; `most` as of `bytes_text`."""
    return tuple(bytes_text(value, most) if isinstance(value, bytes) else value for value in row)


def bytes_text(content: bytes, most: int | None = None) -> str:
    """Return bytes as text: as they are where they are UTF-8, else as hexadecimal digits.

    With `most` no more characters than that, and nothing that a terminal would have to escape.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = f"0x{content.hex()}"
    if most is None:
        return text
    if not text.isprintable():
        text = f"0x{content.hex()}"
    return text if len(text) <= most else f"{text[: most - 3]}..."
