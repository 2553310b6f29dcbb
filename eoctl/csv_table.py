"""`--output csv`: one table as in RFC 4180, made from the JSON lines of a command.

Commands do not know about CSV. They write JSON Lines, and `eoctl.output` converts them here. If a
command writes rows of several kinds, `--table` selects a kind.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import Any

from storage.errors import UsageError

# Rows that are kept before the header is written: a column may occur in some rows only, and rows of
# another kind may follow.
HELD_ROWS = 1000
HELD_BYTES = 1 << 20
KIND = "record"  # of rows that do not name a kind, as in `consume`
BASE64_NAME, BASE64 = "_base64", "base64:"
_NEEDS_QUOTES = re.compile('[",\r\n]|^$')


class CsvTable:
    """A converter of lines with one JSON object each to CSV.

    Null is an empty field and an empty text is `""`. Nested values are JSON. Bytes that are not
    UTF-8 are `base64:` and their base64. So is a text that begins with `base64:`.

    A command that changes something cannot be stopped by an error at this point. It writes the rows
    of the first kind, and `notes` name the kinds left out. Every other command ends with an error.

    Attributes:
        kinds: the kinds seen, and whether each has any rows.
        notes: the rows that are not written.
    """

    def __init__(
        self, wanted: str | None, *, is_change: bool = False, line_end: str = "\r\n"
    ) -> None:
        """Set the wanted kind of rows, None if all rows are of one kind."""
        self.kinds: dict[str, bool] = {}
        self.notes: list[str] = []
        self._wanted = wanted
        self._is_change = is_change
        self._line_end = line_end
        self._columns: tuple[str, ...] = ()
        self._held: list[dict[str, Any]] | None = []  # None: the header is written
        self._held_bytes = 0
        self._rest: list[bytes] = []  # of an unfinished line
        self._is_over = False

    def wants(self, kind: str | None) -> bool:
        """Return whether rows of a kind are written. None stands for rows without a kind."""
        return not self._is_over and self._wanted in (None, kind or KIND)

    def declare(self, kind: str, columns: list[str]) -> None:
        """Declare that rows of a kind follow, or none, with their columns.

        Raises:
            UsageError: the rows are no single table.
        """
        self._meet(kind, has_rows=False)
        if self.wants(kind) and not self._columns:
            self._columns = tuple(columns)

    def turned(self, data: bytes) -> bytes:
        """Return the CSV for the next part of the lines.

        Raises:
            UsageError: the rows are no single table.
        """
        *lines, rest = data.split(b"\n")
        made = []
        for line in lines:
            made += self._take(json.loads(b"".join((*self._rest, line))), len(line))
            self._rest.clear()
        if rest:
            self._rest.append(rest)
        return _utf8(made)

    def flushed(self) -> bytes:
        """Return the CSV to write before a long wait."""
        return _utf8(self._held_lines()) if self._held else b""

    def end(self) -> bytes:
        """Return the last part of the CSV. Raises as `turned`."""
        made = self._held_lines()
        if self._wanted is not None and self._wanted not in self.kinds and not self._is_over:
            there = ", ".join(self.kinds) or "nothing: there are no rows"
            self._report(UsageError(f"--table {self._wanted}: not among {there}"))
        return _utf8(made)

    def _meet(self, kind: str, *, has_rows: bool) -> None:
        is_new = kind not in self.kinds
        self.kinds[kind] = self.kinds.get(kind, False) or has_rows
        if is_new and self._wanted is None and len(self.kinds) > 1 and not self._is_over:
            with_rows = [each for each, has_any in self.kinds.items() if has_any]
            first = (with_rows or [*self.kinds])[0]
            problem = UsageError(
                f"--output csv has one table, and these are several: {', '.join(self.kinds)}",
                next_step=f"--table {first}",
            )
            if self._is_change:
                self._wanted = next(iter(self.kinds))
            self._report(problem)

    def _report(self, problem: UsageError) -> None:
        if not self._is_change:
            self._is_over = True
            raise problem
        self.notes.append(problem.message)

    def _take(self, row: dict[str, Any], line_bytes: int) -> list[str]:
        kind = row.pop("kind", KIND)
        self._meet(kind, has_rows=True)
        if not self.wants(kind):
            return []
        cells = dict(_cell(name, value) for name, value in row.items())
        if self._held is None:
            return [self._line(cells)]
        self._held.append(cells)
        self._held_bytes += line_bytes
        is_full = len(self._held) >= HELD_ROWS or self._held_bytes >= HELD_BYTES
        return self._held_lines() if is_full else []

    def _held_lines(self) -> list[str]:
        if self._held is None or self._is_over:
            return []
        held, self._held = self._held, None
        names = (name for row in held for name in row)
        self._columns = tuple(dict.fromkeys((*self._columns, *names)))
        if not self._columns:
            return []
        header = ",".join(map(_quoted, self._columns)) + self._line_end
        return [header, *map(self._line, held)]

    def _line(self, cells: dict[str, Any]) -> str:
        if more := cells.keys() - {*self._columns}:
            self._report(
                UsageError(
                    f"--output csv: the header has no column {', '.join(sorted(more))}, which a"
                    " later row has",
                    next_step="--output jsonl",
                )
            )
        values = (cells.get(name) for name in self._columns)
        return ",".join(map(_quoted, values)) + self._line_end


def _utf8(lines: list[str]) -> bytes:
    """Encode lines. Half a surrogate pair, which JSON may escape, has no bytes and becomes `?`."""
    return "".join(lines).encode("utf-8", "replace")


def _cell(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return name, "true" if value else "false"
    if isinstance(value, list | dict):
        return name, json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, str):
        if name.endswith(BASE64_NAME):
            return name.removesuffix(BASE64_NAME), BASE64 + value
        if value.startswith(BASE64):
            return name, BASE64 + b64encode(value.encode()).decode()
    return name, value


def _quoted(value: Any) -> str:
    if value is None:
        return ""
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text
