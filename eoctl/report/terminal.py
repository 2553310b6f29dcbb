"""What pictures on a terminal are drawn with: characters for those who have Unicode or have not.

A picture tells all by characters, in 80 columns or more; colours come on top of that. Names are
escaped as in tables; what would turn the direction of a line is escaped here, too.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from eoctl.face.columns import printable, time_text
from eoctl.face.table import rendered

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eoctl.face.style import Look

LEAST_WIDTH = 40  # below that a picture has wider lines than the terminal
MOST_WIDTH = 200  # of a picture: a wider one tells no more
INDENT = 2
RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})


class Glyphs(NamedTuple):
    """Characters for what is drawn; `heights` from the least to the most."""

    heights: str
    border: str
    held: str
    committed: str
    aborted: str
    unknown: str
    open: str
    holder: str
    more: str  # behind what was cut off
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
    """Lines of text that become a picture.

    Attributes:
        width: of a line.
        bar_width: of a bar that stands by itself.
    """

    def __init__(self, width: int, *, has_unicode: bool, look: Look) -> None:
        self.width = min(max(width, LEAST_WIDTH), MOST_WIDTH)
        self.bar_width = self.width - INDENT
        self.glyphs = UNICODE if has_unicode else ASCII
        self._look = look
        self._lines: list[Text] = []

    def name(self, text: str) -> str:
        """Return a name as it may be shown: nothing in it moves what stands beside it."""
        shown = printable(text)
        is_plain = all(unicodedata.bidirectional(each) not in RIGHT_TO_LEFT for each in shown)
        if (self.glyphs.is_ascii and not shown.isascii()) or not is_plain:
            return "".join(each if each.isascii() else ascii(each)[1:-1] for each in shown)
        return shown

    def time(self, time_ms: int) -> str:
        """Return a time, in the zone that was asked for."""
        return time_text(time_ms, is_utc=self._look.is_utc)

    def cut(self, text: str, room: int) -> str:
        """Return text that fits, filled up with blanks."""
        if cell_len(text) > room:
            more = self.glyphs.more
            while text and cell_len(text) + len(more) > room:
                text = text[:-1]
            text = (text + more)[:room]
        return text + " " * (room - cell_len(text))

    def add(self, *parts: str | tuple[str, str]) -> None:
        """Add a line of texts, or of texts and their styles."""
        self._lines.append(Text.assemble(*parts))

    def add_words(
        self, words: Iterable[str | tuple[str, str]], indent: int = INDENT, *, hanging: int = 0
    ) -> None:
        """Add words, two blanks between them, on as many lines as they need; none is broken.

        Lines behind the first one begin `hanging` further to the right.
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
        """Return it, with colours where there are some."""
        longest = max((each.cell_len for each in self._lines), default=0)
        return rendered(Text("\n").join(self._lines), max(longest, self.width), self._look)


class Scale(NamedTuple):
    """Where a value of an axis stands in a bar; `end` is a value of the axis, too."""

    first: int
    end: int
    cells: int

    def cell(self, value: int) -> int:
        """The place of a value; what lies outside stands at an end."""
        span = max(self.end - self.first, 1)
        return min(max((value - self.first) * (self.cells - 1) // span, 0), self.cells - 1)

    def covered(self, first: int, last: int) -> range:
        """The places of values from `first` to `last`, one at least."""
        start = self.cell(first)
        return range(start, max(self.cell(last), start) + 1)


def spread(scale: Scale, parts: Iterable[tuple[int, int, int]]) -> list[float]:
    """Sum up `(first, last, amount)` by place; what covers several is shared among them."""
    sums = [0.0] * scale.cells
    for first, last, amount in parts:
        places = scale.covered(first, last)
        for place in places:
            sums[place] += amount / len(places)
    return sums


def heights(glyphs: Glyphs, sums: Sequence[float]) -> str:
    """Draw amounts: a character each, blank where there is nothing at all."""
    top = max(sums, default=0.0)
    if not top:
        return " " * len(sums)
    most = len(glyphs.heights)
    return "".join(
        glyphs.heights[min(int(each / top * most), most - 1)] if each else " " for each in sums
    )


def styled(marks: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put neighbours of one style together."""
    joined: list[tuple[str, str]] = []
    for text, style in marks:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        else:
            joined.append((text, style))
    return joined
