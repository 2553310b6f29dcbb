"""Short messages for a terminal: text, severity, and line breaks at the terminal's width."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.console.columns import printable, time_text
from eoctl.console.style import BAD, DOUBTFUL, HEADING, is_colored, screen_size
from eoctl.output import (
    OutputFormat,
    draws_tables,
    emit,
    inspect,
    line,
    message,
    write_drawn,
)
from storage.counts import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eoctl.output import Report
    from storage.dirs.log_dir import LogDir


LABEL_WIDTH = 8
ZONE_POS = len("2026-11-21T02:58:06.000")
ZONES = {"+00:00": "UTC", "Z": "UTC"}
NO_UNDO = "no: with --no-backup nothing is kept for an undo"
UNREAD = "; part of the log could not be read"  # appended to the findings in the readable part
MAX_NAMES = 3  # in a line, followed by the number of other names


class Said(NamedTuple):
    """A line with a label: `rank` is the rank of a severity, or above all of them."""

    label: str
    text: str
    rank: int = 0


class Line(NamedTuple):
    """A line of text, and the style of its first word."""

    text: str
    style: str = ""


def is_for_people(output: OutputFormat) -> bool:
    """Return whether the answer comes before the rows: not in a pipe, nor with `--columns`."""
    asked = inspect()
    return (
        output is OutputFormat.TEXT and draws_tables() and not asked.columns and not asked.has_all
    )


def said_line(said: Said) -> Line:
    """Put label and text together."""
    styles = (HEADING, DOUBTFUL, BAD)
    return Line(f"{said.label:{LABEL_WIDTH}}{said.text}", styles[min(said.rank, len(styles) - 1)])


WIDE = 1 << 12  # columns of a line that a log keeps
FOLD_INDENT = 4


def answer_width(output: OutputFormat) -> int:
    """Return the width of the lines of an answer. Lines for a log are not wrapped."""
    return screen_size()[0] if is_for_people(output) else WIDE


def step_text(sentence: str) -> str:
    """Return the sentence of a remedy as the text of a Next line: `start the broker`."""
    first, rest = sentence[:1], sentence[1:]
    is_word = rest[:1].islower() or rest[:1] == " "
    return f"{first.lower() if is_word else first}{rest.removesuffix('.')}"


def report_answer(said: Iterable[Said | Line | str], output: OutputFormat) -> None:
    """Write the answer: on a terminal with the rows, else on stderr, where logs keep it."""
    lines = map(_as_line, said)
    if is_for_people(output):
        width = answer_width(output)
        report(part for each in lines for part in broken(each, width))
        return
    for each in lines:
        if each.text:
            is_text = output is OutputFormat.TEXT
            message(each.text if is_text else " ".join(each.text.split()), level="answer")


def broken(text: Line, width: int) -> Iterator[Line]:
    """Break a line that is too long. A line with a command stays whole, ready to paste."""
    if len(text.text) <= width or "eoctl " in text.text or text.text.startswith("Next"):
        yield text
    else:
        yield from wrapped(text, width, LABEL_WIDTH)


def report(lines: Iterable[Line]) -> None:
    """Write lines, with a style for the first word of each if colours are on."""
    has_colors = is_colored(inspect().color)
    for text, style in lines:
        shown = printable(text)
        if has_colors and style:
            word, space, rest = shown.partition(" ")
            shown = f"{_styled(word, style)}{space}{rest}"
        write_drawn(f"{shown}\n")


def report_first(said: Iterable[Said | Line | str], output: OutputFormat) -> None:
    """Write the answer before the rows."""
    report_answer(said, output)
    if is_for_people(output):
        line("")


def draw_below_answer(reports: Iterable[Report], notes: Iterable[str]) -> None:
    """Draw the tables that have rows below the answer, and print the notes."""
    for each in reports:
        if each.rows:
            if is_for_people(OutputFormat.TEXT):
                line("")
            emit(each, OutputFormat.TEXT)
    for note in notes:
        message(note)


# -- rows, limited to `--limit` of each kind and all counted


def first_of_each_kind(
    rows: Iterable[Any], counts: dict[Any, int], limit: int | None
) -> Iterator[Any]:
    """Yield at most `limit` rows of each `kind`, and count all of them in `counts`."""
    for each in rows:
        counts[each.kind] += 1
        if limit is None or counts[each.kind] <= limit:
            yield each


def left_out_by_limit(counts: Mapping[Any, int], limit: int | None) -> Iterator[str]:
    """Yield the number of rows of each kind that were counted but not printed."""
    left = {kind: 0 if limit is None else count - limit for kind, count in counts.items()}
    rows = [counted(count, f"{kind} row") for kind, count in left.items() if count > 0]
    if rows:
        yield f"counted and not printed (--limit): {', '.join(rows)}"


def _as_line(said: Said | Line | str) -> Line:
    if isinstance(said, Said):
        return said_line(said)
    return said if isinstance(said, Line) else Line(said)


def folded(texts: Iterable[str], output: OutputFormat) -> Iterator[Line]:
    """Break the sentences of an answer, and indent the continuation lines."""
    width = answer_width(output)
    for each in texts:
        yield from wrapped(Line(each), width, FOLD_INDENT)


def wrapped(text: Line, width: int, indent: int) -> Iterator[Line]:
    """Break a line at blanks, and indent its continuation lines."""
    parts = textwrap.wrap(
        text.text, width, subsequent_indent=" " * indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    for place, part in enumerate(parts):
        yield Line(part, "" if place else text.style)


def _styled(word: str, style: str) -> str:
    from rich.color import ColorSystem
    from rich.style import Style

    return Style.parse(style).render(word, color_system=ColorSystem.STANDARD)


def fitting(texts: Iterable[str], room: int) -> str:
    """Return the first text that fits, else the last text, whose line is then broken."""
    text = ""
    for text in texts:
        if len(text) <= room:
            break
    return text


def listing(names: Sequence[str], noun: str) -> str:
    """Return a few names, and the number of the others."""
    if len(names) <= MAX_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: MAX_NAMES - 1])} and {len(names) - MAX_NAMES + 1} more {noun}"


def span(first_ms: int, last_ms: int, *, is_short: bool = False) -> str:
    """Write two times with the date once and the zone at the end: `2026-11-21 02:58 UTC`."""
    until = len("2026-11-21T02:58") if is_short else len("2026-11-21T02:58:06")
    first, last = (time_text(each, is_utc=inspect().is_utc) for each in (first_ms, last_ms))
    zone = last[ZONE_POS:]
    if first[ZONE_POS:] != zone or not zone:  # daylight saving began or ended, or it is no time
        return first if first == last else f"{first}..{last}"
    zone = ZONES.get(zone, zone)
    start, end = (each[:until].replace("T", " ") for each in (first, last))
    if start == end:
        return f"{start} {zone}"
    if start[:10] == end[:10]:
        end = end[11:]
    return f"{start}..{end} {zone}"


def moment(time_ms: int, *, is_short: bool = False) -> str:
    """Write a time to the second, or the minute, with its zone."""
    return span(time_ms, time_ms, is_short=is_short)


# -- sentences that several commands print about the data they read


MAX_REPORTED_COUNT = 10  # of a partition, or of a kind


def first_of(sentences: Sequence[str], what: str, count: int | None = None) -> list[str]:
    """Return the first sentences, and the number of further `what`. `count` is the total."""
    more = (len(sentences) if count is None else count) - MAX_REPORTED_COUNT
    return [*sentences[:MAX_REPORTED_COUNT], *([f"and {more} more {what}"] if more > 0 else [])]


def notes_in_use(log_dirs: Iterable[LogDir]) -> list[str]:
    """Return a note for each log dir whose lock is taken."""
    return [
        f"{each.path}: in use by {each.lock.holder}; what is printed may have changed since"
        for each in log_dirs
        if each.lock.is_held
    ]
