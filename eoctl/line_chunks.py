"""Lines that are written some hundred at a time, of which there are very many."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LINES_COUNT = 512


class Lines:
    """Gathers lines for who writes a text; `flush` writes what waits.

    `write`: takes text of one or more lines, without the last line's end.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._waiting: list[str] = []

    def put(self, text: str) -> None:
        """Write a line, with those that come before and behind it."""
        self._waiting.append(text)
        if len(self._waiting) >= LINES_COUNT:
            self.flush()

    def flush(self) -> None:
        """Write those that wait; call it before anything else is written."""
        if self._waiting:
            self._write("\n".join(self._waiting))
            self._waiting.clear()
