"""Help as Typer writes it at full width, read from `eoctl/help/pages` to save time.

`python -m tests.saved_help` writes the pages, and a test compares them. Typer writes other widths.
"""

from __future__ import annotations

import os
import sys

PAGES = f"{os.path.dirname(__file__)}/pages"  # noqa: PTH120 - pathlib takes long to load
FULL_COLUMNS = 80  # maximum width of the help
HELP_OPTIONS = ("--help", "-h")


def saved_help(words: list[str]) -> str | None:
    """Return the saved help, if the words request nothing else and the screen is wide enough."""
    call, last = words[:-1], words[-1:]
    if not last or last[0] not in HELP_OPTIONS or _columns() < FULL_COLUMNS:
        return None
    if not all(each.replace("-", "").isalpha() and each.islower() for each in call):
        return None
    try:
        with open(page_of(call), encoding="utf-8") as file:  # noqa: PTH123
            return file.read()
    except OSError:  # no such command, or the package is in an archive
        return None


def page_of(call: list[str]) -> str:
    """Return the path of a command's page. Its words have no dots."""
    return f"{PAGES}/{'.'.join(['eoctl', *call])}.txt"


def _columns() -> int:
    """Return the terminal width as `shutil.get_terminal_size`, which loads several times slower."""
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns > 0:
        return columns
    try:
        size = os.get_terminal_size(sys.__stdout__.fileno())  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return FULL_COLUMNS
    return size.columns or FULL_COLUMNS
