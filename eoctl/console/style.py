"""Colours by severity and state, the rules for using them, and the size of the terminal."""

from __future__ import annotations

import os
import re
import sys
from enum import StrEnum
from typing import NamedTuple

NARROW = 80  # columns, if the width is unknown
_PLAIN_LOCALES = ("C", "POSIX")
MAX_DIGITS = 9  # of a plausible width


class Color(StrEnum):
    """The values of `--color`."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Inspection(NamedTuple):
    """The presentation of a command's reports. Only `columns` affects machine formats.

    Attributes:
        columns: the requested columns, in this order. Empty: the answering columns and as many more
            as fit.
        has_all: all columns, whatever the width.
        is_utc: times are in UTC, not in the zone of this machine.
        color: when to use colours.
        has_pager: output that is longer than the screen goes through a pager.
        table: the requested kind of rows, for formats with one table. None: all kinds.
        is_change: the command changes something, so its own exit status counts, whatever is shown.
        is_csv: `--output csv` was given, which commands see as JSON Lines.
    """

    columns: tuple[str, ...] = ()
    has_all: bool = False
    is_utc: bool = False
    color: Color = Color.AUTO
    has_pager: bool = False
    table: str | None = None
    is_change: bool = False
    is_csv: bool = False


BAD, DOUBTFUL, GOOD, FAINT, HEADING = "bold red", "yellow", "green", "dim", "bold"
# Word -> its style, for severities and states of all reports.
_STYLES = {
    BAD: (
        "error", "corrupt", "torn", "unreadable", "refuses", "refused", "failed", "hanging", "late",
        "diverged", "differs", "missing", "lost", "extra", "dies", "stale", "broken", "deletes",
        "unclean", "overdue",
    ),
    DOUBTFUL: (
        "warning", "torn_tail", "preallocated", "open", "ongoing", "truncates", "expired",
        "prepare_commit", "prepare_abort", "unfinished", "crashed", "renames", "only_disk",
        "aborted", "partial",
    ),
    GOOD: (
        "ok", "equal", "same", "clean", "applied", "committed", "done", "complete", "undone",
        "nothing", "complete_commit", "complete_abort", "active",
    ),
    FAINT: ("unknown", "none", "-", "note"),
}  # fmt: skip
_STYLE_OF = {word.replace("_", ""): style for style, words in _STYLES.items() for word in words}


def style_of(word: str) -> str:
    """Return the style of a severity or a state, "" if it is neither good nor bad."""
    first = word.partition(" ")[0]  # as in `truncates 1 file`
    plain = (re.sub(r"[ _-]", "", each.lower()) or each for each in (word, first))
    return next((_STYLE_OF[each] for each in plain if each in _STYLE_OF), "")


def is_colored(color: Color) -> bool:
    """Return whether to use colours: as requested, or on a terminal that supports them."""
    if color is not Color.AUTO:
        return color is Color.ALWAYS
    is_dumb = os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and not is_dumb


def has_unicode() -> bool:
    """Return whether the reader of stdout can see more than ASCII, by the environment's locale.

    Without a locale in the environment, a terminal has UTF-8, as Python itself assumes.
    """
    asked = [os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    if asked[1] == "C.UTF-8" and not asked[0] and asked[2] in _PLAIN_LOCALES:
        return False  # Python has set UTF-8 itself
    locale = next((each for each in asked if each), "C.UTF-8")
    codeset = locale.partition(".")[2].partition("@")[0]
    return codeset.lower().replace("-", "") == "utf8"


def screen_size() -> tuple[int, int]:
    """Return columns and rows of the terminal, by default 80 columns and 0 rows.

    COLUMNS takes precedence over the terminal, as in other programs.
    """
    columns, rows = _number("COLUMNS"), 0
    for stream in (sys.stdout, sys.stderr):
        try:
            size = os.get_terminal_size(stream.fileno())
        except (OSError, ValueError, AttributeError):
            continue
        columns, rows = columns or size.columns, size.lines
        break
    return columns or NARROW, rows


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else 0
