"""`--output csv`: one table as RFC 4180 has it, made of the JSON lines that a command writes.

Commands know nothing of it: they write JSON Lines, and `eoctl.output` has them turned into this. A
command that writes rows of several kinds is asked for one of them by `--table`.
"""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace
from typing import Any

from storage.errors import UsageError

# So many rows are looked at before the header is written: a column may be in some of them only, and
# rows of another kind may follow.
HELD_ROWS = 1000
KIND = "record"  # of rows that do not say one: those of `consume`
BASE64 = "_base64"


class CsvTable:
    """Makes CSV of lines that hold an object each.

    Null is an empty field, what is nested is JSON, and bytes that are not UTF-8 are `base64:` and
    their base64.

    Attributes:
        kinds: of the rows seen.
        problem: why this is no table; nothing is written from there on.
    """

    def __init__(self, wanted: str | None, line_end: str = "\r\n") -> None:
        """Take the kind of rows that are wanted; None: they have one."""
        self.kinds: list[str] = []
        self.problem: UsageError | None = None
        self._wanted = wanted
        self._columns: tuple[str, ...] = ()
        self._held: list[dict[str, Any]] | None = []  # None: the header is written
        self._rest = b""
        self._parts: list[str] = []
        to = SimpleNamespace(write=self._parts.append)
        self._writer = csv.writer(to, lineterminator=line_end)

    def declare(self, kind: str, columns: list[str]) -> None:
        """Say that rows of a kind follow, or none, and their columns."""
        if self._is_wanted(kind) and not self._columns:
            self._columns = tuple(columns)

    def turned(self, data: bytes) -> bytes:
        """What is to be written for a part of the lines."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._take(json.loads(line))
        return self._taken()

    def end(self) -> bytes:
        """What is to be written at last."""
        self._write_held()
        if self.problem is None and self._wanted is not None and self._wanted not in self.kinds:
            there = ", ".join(self.kinds) or "nothing: there are no rows"
            self.problem = UsageError(f"--table {self._wanted}: not among {there}")
        return self._taken()

    def _is_wanted(self, kind: str) -> bool:
        if kind not in self.kinds:
            self.kinds.append(kind)
            if self._wanted is None and len(self.kinds) > 1 and self.problem is None:
                self.problem = UsageError(
                    f"--output csv has one table, and these are several: {', '.join(self.kinds)}",
                    next_step=f"--table {self.kinds[0]}",
                )
        return self._wanted in (None, kind)

    def _take(self, row: dict[str, Any]) -> None:
        if not self._is_wanted(row.pop("kind", KIND)) or self.problem is not None:
            return
        cells = dict(_cell(name, value) for name, value in row.items())
        if self._held is None:
            self._write(cells)
        else:
            self._held.append(cells)
            if len(self._held) == HELD_ROWS:
                self._write_held()

    def _write_held(self) -> None:
        held, self._held = self._held or [], None
        if self.problem is not None:
            return
        names = (name for row in held for name in row)
        self._columns = tuple(dict.fromkeys((*self._columns, *names)))
        if self._columns:
            self._writer.writerow(self._columns)
        for row in held:
            self._write(row)

    def _write(self, cells: dict[str, Any]) -> None:
        if more := cells.keys() - {*self._columns}:
            self.problem = UsageError(
                f"--output csv: the header has no column {', '.join(sorted(more))}, which a later"
                " row has: the rows from there on are not written",
                next_step="--output jsonl",
            )
            return
        self._writer.writerow([cells.get(name) for name in self._columns])

    def _taken(self) -> bytes:
        text = "".join(self._parts)
        self._parts.clear()
        return text.encode()


def _cell(name: str, value: Any) -> tuple[str, Any]:
    if name.endswith(BASE64) and isinstance(value, str):
        return name.removesuffix(BASE64), f"base64:{value}"
    if isinstance(value, bool):
        return name, "true" if value else "false"
    if isinstance(value, list | dict):
        return name, json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return name, value
