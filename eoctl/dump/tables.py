"""Files other than logs as tables, for people on a terminal: their entries, under one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eoctl.output import OutputFormat, Report, emit, line

if TYPE_CHECKING:
    from collections.abc import Iterable

# What closes a file in rows for programs: people are told of it in words.
TOLD = ("error", "verdict")
REPEATED = ("kind", "path")


def print_table(rows: Iterable[dict[str, Any]]) -> None:
    """Print the entries among the rows of one file; a field that none of them has is left out."""
    entries = [row for row in rows if row["kind"] not in TOLD]
    if not entries:
        line("no entries")
        return
    names = dict.fromkeys(name for row in entries for name in row if name not in REPEATED)
    columns = tuple(each for each in names if any(row.get(each) is not None for row in entries))
    values = [tuple(row.get(each) for each in columns) for row in entries]
    emit(Report(kind=entries[0]["kind"], columns=columns, rows=values), OutputFormat.TABLE)
