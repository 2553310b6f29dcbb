"""A table that fits: first the columns that answer, then as many more as there is room for.

A single row that does not fit is written whole, one field per line. So are all rows if nothing may
be left out.

Rich is imported here, for a table only.
"""

from __future__ import annotations

import re
import textwrap
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eoctl.console.columns import (
    SENTENCE,
    Facts,
    Kind,
    facts_of,
    printable,
    readable,
    with_durations,
)
from eoctl.console.style import FAINT, HEADING, is_colored, style_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.console.style import Inspection

GAP = 2  # blanks between columns
TEXT_WIDTH = 24  # minimum width of text that can be wrapped
KEY_WIDTH = 12
VALUE = "value"  # the first column names the kind of this column's values


class Drawn(NamedTuple):
    """A report as text.

    Attributes:
        text: its lines.
        left_out: columns without room.
        is_table: it is a table, else it has one field per line.
    """

    text: str
    left_out: tuple[str, ...] = ()
    is_table: bool = True


class _Column(NamedTuple):
    name: str
    facts: Facts
    cells: list[str]
    is_right: bool
    least: int  # minimum width
    most: int


def draw(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    answers: Sequence[str],
    width: int,
    inspect: Inspection,
    is_whole: bool = False,
) -> Drawn:
    """Draw rows in a width.

    Args:
        columns: names, as the report has them.
        rows: one value per column.
        answers: the columns that come first, in this order. None: all columns.
        width: in characters.
        inspect: as `Inspection`.
        is_whole: nothing may be left out.
    """
    answers = [*columns] if inspect.has_all or not answers else answers
    ranked: Sequence[str] = [*answers, *(each for each in columns if each not in answers)]
    if not inspect.columns:
        columns, rows, ranked = _with_directories(columns, rows, ranked)
    built = [_column(columns, rows, name, inspect) for name in ranked]
    count = sum(each in ranked for each in answers)
    answering, more = built[:count], built[count:]
    is_record = len(rows) == 1 or is_whole or answering[0].least > width
    if rows and is_record and _width(built) > width:
        return Drawn(_records(built, width, inspect), is_table=False)
    while len(answering) > 1 and _width(answering) > width:
        more.insert(0, answering.pop())
    more = [each for each in more if not rows or any(each.cells)]
    left_out = [each.name for each in more]
    widths = _spread([each.least for each in answering], answering, width)
    shown = list(answering)
    for each in more:
        if sum(widths) + GAP * len(widths) + each.least <= width:
            shown.append(each)
            widths.append(each.least)
            left_out.remove(each.name)
    return Drawn(_table(shown, _spread(widths, shown, width), inspect), tuple(left_out))


def _with_directories(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], ranked: Sequence[str]
) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[str]]:
    """Merge topic and partition, if both are shown, into the name of the partition's directory."""
    if "topic" not in ranked or "partition" not in ranked:
        return columns, rows, ranked
    topic, partition = columns.index("topic"), columns.index("partition")
    named = [
        [
            f"{row[topic]}-{row[partition]}" if place == partition and _is_one(row, topic, place)
            else row[topic] if place == partition and row[partition] is None
            else each
            for place, each in enumerate(row)
        ]
        for row in rows
    ]  # fmt: skip
    return columns, named, [each for each in ranked if each != "topic"]


def _is_one(row: Sequence[Any], topic: int, partition: int) -> bool:
    return bool(row[topic]) and row[partition] is not None


def _column(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], name: str, inspect: Inspection
) -> _Column:
    place, facts = columns.index(name), facts_of(name)
    values = [row[place] for row in rows]
    names = [name] * len(rows)
    if name == VALUE:
        names = [str(row[0]).rpartition(".")[2] for row in rows]
    cells = [
        printable(with_durations(value))
        if each == SENTENCE and isinstance(value, str)
        else printable(readable(facts_of(each).kind, value, is_utc=inspect.is_utc))
        for each, value in zip(names, values, strict=True)
    ]
    # Numbers in a column of kind text, which the table of columns does not list.
    is_number = any(isinstance(each, int) for each in values) and all(
        each is None or (isinstance(each, int | float) and not isinstance(each, bool))
        for each in values
    )
    is_text = any(isinstance(each, str | list | tuple) for each in values)
    is_right = (facts.is_right and not is_text) or (is_number and facts.kind is not Kind.TIME)
    heading = max(map(len, facts.heading.split()))
    most = max([heading, *map(cell_len, cells)])
    least = most
    if facts.kind is Kind.KEY:
        least = min(most, max(heading, KEY_WIDTH))
    elif facts.kind is Kind.TEXT and not is_number:
        words = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        least = min(most, max(heading, words, TEXT_WIDTH))
    return _Column(name=name, facts=facts, cells=cells, is_right=is_right, least=least, most=most)


def _width(columns: Sequence[_Column]) -> int:
    return sum(each.least for each in columns) + GAP * (len(columns) - 1)


def _spread(widths: list[int], columns: Sequence[_Column], width: int) -> list[int]:
    """Give the remaining width to the columns with text, from left to right."""
    room = width - sum(widths) - GAP * (len(widths) - 1)
    spread = []
    for each, now in zip(columns, widths, strict=True):
        wider = max(0, min(each.most - now, room))
        room -= wider
        spread.append(now + wider)
    return spread


def _table(columns: Sequence[_Column], widths: Sequence[int], inspect: Inspection) -> str:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="")
    for column, width in zip(columns, widths, strict=True):
        justify: Any = "right" if column.is_right else "left"
        table.add_column(
            Text(column.facts.heading, HEADING), justify=justify, width=width, overflow="fold"
        )
    for cells in zip(*(each.cells for each in columns), strict=True):
        table.add_row(*(_styled(each, cell) for each, cell in zip(columns, cells, strict=True)))
    return rendered(table, sum(widths) + GAP * len(widths), inspect)


def _styled(column: _Column, cell: str) -> Text:
    is_word = column.facts.kind in (Kind.SEVERITY, Kind.STATE)
    return Text(cell, style_of(cell) if is_word or cell == "unknown" else "")


def _records(columns: Sequence[_Column], width: int, inspect: Inspection) -> str:
    """Write each row as fields, one per line, without empty fields.

    Text is wrapped. Paths and commands are not, because they are to be copied.
    """
    lines: list[Text] = []
    names = max(cell_len(each.facts.heading) for each in columns)
    for number, cells in enumerate(zip(*(each.cells for each in columns), strict=True)):
        if number:
            lines.append(Text())
        for column, cell in zip(columns, cells, strict=True):
            name = f"{column.facts.heading:{names + GAP}}"
            is_text = column.facts.kind is Kind.TEXT
            for part in _broken(cell, width - len(name)) if is_text else [cell]:
                if part:
                    lines.append(Text.assemble((name, FAINT), _styled(column, part)))
                name = " " * len(name)
    longest = max((each.cell_len for each in lines), default=0)
    return rendered(Text("\n").join(lines), max(longest, width), inspect)


def _broken(cell: str, room: int) -> list[str]:
    """Wrap text at blanks, or a list at its commas, into lines of at most `room` characters."""
    if len(cell) <= room:
        return [cell]
    if " " in cell or "," not in cell:
        return textwrap.wrap(cell, max(room, 20), break_long_words=False, break_on_hyphens=False)
    lines = [""]
    for part in re.findall(r"[^,]*,|[^,]+$", cell):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return lines


def rendered(what: Table | Text, width: int, inspect: Inspection) -> str:
    """Return lines of text, with escapes for colours if colours are on."""
    file = StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=True,
        color_system="standard" if is_colored(inspect.color) else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(what, soft_wrap=isinstance(what, Text))
    return re.sub(r" +$", "", file.getvalue(), flags=re.MULTILINE)
