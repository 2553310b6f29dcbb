"""Pictures on a terminal: a canvas, scales, and characters with or without Unicode.

A picture is complete without colours, in 80 columns or more. Names are escaped as in tables.
Characters that change the direction of a line are escaped here, too.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from eoctl.console.columns import printable, time_text
from eoctl.console.table import rendered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eoctl.console.style import Inspection

LEAST_WIDTH = 40  # narrower terminals get pictures wider than they are
MOST_WIDTH = 200  # of a picture, as more width adds nothing
INDENT = 2
RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})


class Glyphs(NamedTuple):
    """The characters of pictures. `heights` are in ascending order."""

    heights: str
    border: str
    held: str
    committed: str
    aborted: str
    unknown: str
    open: str
    holder: str
    more: str  # after truncated text
    is_ascii: bool


UNICODE = Glyphs(
    heights="▁▂▃▄▅▆▇█",
    border="│",
    held="░",
    committed="─",
    aborted="x",
    unknown="?",
    open="▒",
    holder="█",
    more="…",
    is_ascii=False,
)
ASCII = Glyphs(
    heights=".:-=+*%@",
    border="|",
    held="~",
    committed="-",
    aborted="x",
    unknown="?",
    open="o",
    holder="#",
    more="...",
    is_ascii=True,
)


class Canvas:
    """Lines of text that form a picture.

    Attributes:
        width: of a line.
        bar_width: of a bar without a label.
    """

    def __init__(self, width: int, *, has_unicode: bool, inspect: Inspection) -> None:
        self.width = min(max(width, LEAST_WIDTH), MOST_WIDTH)
        self.bar_width = self.width - INDENT
        self.glyphs = UNICODE if has_unicode else ASCII
        self._inspect = inspect
        self._lines: list[Text] = []

    def name(self, text: str) -> str:
        """Return a name escaped so that it cannot move the text next to it."""
        shown = printable(text)
        is_plain = all(unicodedata.bidirectional(each) not in RIGHT_TO_LEFT for each in shown)
        if (self.glyphs.is_ascii and not shown.isascii()) or not is_plain:
            return "".join(each if each.isascii() else ascii(each)[1:-1] for each in shown)
        return shown

    def time(self, time_ms: int) -> str:
        """Return a time in the requested zone."""
        return time_text(time_ms, is_utc=self._inspect.is_utc)

    def cut(self, text: str, room: int) -> str:
        """Return text truncated to the room, or padded with blanks."""
        if cell_len(text) > room:
            more = self.glyphs.more
            while text and cell_len(text) + len(more) > room:
                text = text[:-1]
            text = (text + more)[:room]
        return text + " " * (room - cell_len(text))

    def add(self, *parts: str | tuple[str, str]) -> None:
        """Add a line of texts, or of texts with styles."""
        self._lines.append(Text.assemble(*parts))

    def add_words(
        self, words: Iterable[str | tuple[str, str]], indent: int = INDENT, *, hanging: int = 0
    ) -> None:
        """Add words, two blanks between them, on as many lines as necessary. No word is broken.

        Lines after the first are indented by `hanging` more.
        """
        pending = Text()
        for each in words:
            word = Text.assemble(each)
            if pending and pending.cell_len + 2 + word.cell_len > self.width:
                self._lines.append(pending)
                pending = Text()
                indent += hanging
                hanging = 0
            pending += Text("  " if pending else " " * indent) + word
        if pending:
            self._lines.append(pending)

    def text(self) -> str:
        """Return the text, with colours if they are on."""
        longest = max((each.cell_len for each in self._lines), default=0)
        return rendered(Text("\n").join(self._lines), max(longest, self.width), self._inspect)


class Scale(NamedTuple):
    """A scale from the values of an axis to places in a bar. `end` is a value of the axis, too."""

    first: int
    end: int
    cells: int

    def cell(self, value: int) -> int:
        """Return the place of a value, limited to the ends of the bar."""
        span = max(self.end - self.first, 1)
        return min(max((value - self.first) * (self.cells - 1) // span, 0), self.cells - 1)

    def covered(self, first: int, last: int) -> range:
        """Return the places of the values from `first` to `last`, at least one."""
        start = self.cell(first)
        return range(start, max(self.cell(last), start) + 1)


def spread(scale: Scale, parts: Iterable[tuple[int, int, int]]) -> list[float]:
    """Sum up `(first, last, amount)` by place. An amount over several places is shared equally."""
    sums = [0.0] * scale.cells
    for first, last, amount in parts:
        places = scale.covered(first, last)
        for place in places:
            sums[place] += amount / len(places)
    return sums


def heights(glyphs: Glyphs, sums: Sequence[float]) -> str:
    """Draw amounts as one character each, blank for zero."""
    top = max(sums, default=0.0)
    if not top:
        return " " * len(sums)
    most = len(glyphs.heights)
    return "".join(
        glyphs.heights[min(int(each / top * most), most - 1)] if each else " " for each in sums
    )


def styled(marks: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join neighbours of the same style."""
    joined: list[tuple[str, str]] = []
    for text, style in marks:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        else:
            joined.append((text, style))
    return joined
