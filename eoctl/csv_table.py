"""`--output csv`: one table as RFC 4180 has it, made of the JSON lines that a command writes.

Commands know nothing of it: they write JSON Lines, and `eoctl.output` has them turned into this. A
command that writes rows of several kinds is asked for one of them by `--table`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import Any

from storage.errors import UsageError

# So much is looked at before the header is written: a column may be in some rows only, and rows of
# another kind may follow.
HELD_ROWS = 1000
HELD_BYTES = 1 << 20
KIND = "record"  # of rows that do not say one: those of `consume`
BASE64_NAME, BASE64 = "_base64", "base64:"
_NEEDS_QUOTES = re.compile('[",\r\n]|^$')


class CsvTable:
    """Makes CSV of lines that hold an object each.

    Null is an empty field and an empty text is `""`. What is nested is JSON. Bytes that are not
    UTF-8 are `base64:` and their base64, and so is a text that begins so.

    Of a call that changes something all words come too late: the rows of the first kind are
    written, and `notes` say what is not. Every other call ends with an error.

    Attributes:
        kinds: of the rows seen, and whether there were any.
        notes: what is not written.
    """

    def __init__(
        self, wanted: str | None, *, is_change: bool = False, line_end: str = "\r\n"
    ) -> None:
        """Take the kind of rows that are wanted; None: they have one."""
        self.kinds: dict[str, bool] = {}
        self.notes: list[str] = []
        self._wanted = wanted
        self._is_change = is_change
        self._line_end = line_end
        self._columns: tuple[str, ...] = ()
        self._held: list[dict[str, Any]] | None = []  # None: the header is written
        self._held_bytes = 0
        self._rest: list[bytes] = []  # of a line that has not ended
        self._is_over = False

    def wants(self, kind: str | None) -> bool:
        """Whether rows of a kind are written; None: they say none."""
        return not self._is_over and self._wanted in (None, kind or KIND)

    def declare(self, kind: str, columns: list[str]) -> None:
        """Say that rows of a kind follow, or none, and their columns.

        Raises:
            UsageError: this is another kind than that before.
        """
        self._meet(kind, has_rows=False)
        if self.wants(kind) and not self._columns:
            self._columns = tuple(columns)

    def turned(self, data: bytes) -> bytes:
        """What is to be written for a part of the lines.

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
        """What is to be written now that nothing may come for long."""
        return _utf8(self._held_lines()) if self._held else b""

    def end(self) -> bytes:
        """What is to be written at last; raises as `turned`."""
        made = self._held_lines()
        if self._wanted is not None and self._wanted not in self.kinds and not self._is_over:
            there = ", ".join(self.kinds) or "nothing: there are no rows"
            self._tell(UsageError(f"--table {self._wanted}: not among {there}"))
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
            self._tell(problem)

    def _tell(self, problem: UsageError) -> None:
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
            self._tell(
                UsageError(
                    f"--output csv: the header has no column {', '.join(sorted(more))}, which a"
                    " later row has",
                    next_step="--output jsonl",
                )
            )
        values = (cells.get(name) for name in self._columns)
        return ",".join(map(_quoted, values)) + self._line_end


def _utf8(lines: list[str]) -> bytes:
    """Encode lines; half a surrogate pair, which JSON may escape, has no bytes and becomes `?`."""
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
