"""Reading a history (eoctl-history): JSON Lines, line by line, whatever they hold."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import AccessError, RefusedError
from storage.limits import INT64_MAX
from storage.shell_words import pasted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

VERSION = 1
BUFFER_FULL = "BUFFER_FULL"  # the error of a send that the client had no room for
TYPES = frozenset({"invoke", "ok", "fail", "info"})
OPERATIONS = frozenset(
    {
        "send", "poll", "handle", "offset-commit", "begin", "commit", "abort", "fault", "heal",
    }
)  # fmt: skip
MAX_LINE_BYTES = 1 << 25
# By the first bytes; it is read twice, and from any line, so that it is to be there as it is.
_COMPRESSED = {b"\x1f\x8b": "gunzip -k", b"\x28\xb5\x2f\xfd": "unzstd"}
_NAMED = itemgetter("type", "process", "id", "time_us", "op")


class Operation(NamedTuple):
    """One line: a type and an operation of a process, and what belongs to it."""

    type: str
    process: str
    id: int
    time_us: int
    op: str
    fields: dict[str, Any]
    line: int


class HistorySource(NamedTuple):
    """A history that can be read twice: once to judge it, and again for what bears witness.

    Attributes:
        has_ended: whoever wrote it has come to the end: it has all that was asked for.
    """

    name: str
    open: Callable[[], BinaryIO]
    has_ended: bool = True


class SkippedLine(NamedTuple):
    """A line that says nothing that is understood."""

    line: int
    why: str


class HistoryReader:
    """Reads a history line by line.

    Attributes:
        header: the first line.
        skipped: lines that were passed over.
        is_torn: the last line has no end: the writer was killed.
        lines_count: lines so far.
    """

    def __init__(self, file: BinaryIO, path: str) -> None:
        """Read the header.

        Raises:
            RefusedError: there is none, or of another version.
            AccessError: it cannot be read.
        """
        self._file = file
        self._path = path
        self.skipped: list[SkippedLine] = []
        self.is_torn = False
        self.lines_count = 1
        first = self._readline()
        try:
            self.header = json.loads(first)
        except (ValueError, RecursionError):
            self.header = None
        if not isinstance(self.header, dict) or self.header.get("history") != "eoctl":
            what = "is empty" if not first else "line 1 is not the header of a history"
            step = 'the first line is {"history":"eoctl","version":1}, see eoctl-history(5)'
            for magic, tool in _COMPRESSED.items():
                if first.startswith(magic):
                    what = "is compressed"
                    step = f"{tool} {pasted(path)}, then check what comes of it"
            raise RefusedError(
                f"{path}: {what}",
                next_step=step,
            )
        version = self.header.get("version")
        if type(version) is not int or version != VERSION:
            raise RefusedError(
                f"{path}: line 1: a history of version {str(version)[:20]}; version {VERSION} is"
                " read here"
            )

    def _readline(self) -> bytes:
        try:
            return self._file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise AccessError(error, self._path) from error

    def __iter__(self) -> Iterator[Operation]:
        """Give the operations; what is not understood is noted in `skipped`."""
        decoder = json.JSONDecoder()
        readline = self._file.readline
        number, time_us = 1, 0
        try:
            while line := readline(MAX_LINE_BYTES):
                number += 1
                self.lines_count = number
                if line[-1] != 10 and self._is_cut(line, number):
                    continue
                try:
                    text = line.decode()
                    if text[0] == "{":  # without the looks for white space
                        value, end = decoder.raw_decode(text)
                        if text[end:] != "\n" and text[end:].strip():
                            value = None
                    else:
                        value = decoder.decode(text)
                except (ValueError, RecursionError):
                    if line[-1] != 10:
                        self.is_torn = True
                        return
                    self.skipped.append(SkippedLine(number, _no_json(line)))
                    continue
                try:
                    kind, process, identity, at_us, operation = _NAMED(value)
                    is_good = _is_good(kind, process, identity, at_us, operation, time_us)
                except (KeyError, TypeError):
                    is_good = False
                if not is_good:
                    self.skipped.append(SkippedLine(number, _why_not(value, time_us)))
                    continue
                time_us = at_us
                yield Operation(kind, process, identity, at_us, operation, value, number)
        except OSError as error:
            raise AccessError(error, self._path) from error

    def _is_cut(self, line: bytes, number: int) -> bool:
        """Pass over the rest of a line that is longer than any; else it is the last one."""
        if len(line) < MAX_LINE_BYTES:
            return False
        while line and line[-1] != 10:
            line = self._file.readline(MAX_LINE_BYTES)
        self.skipped.append(SkippedLine(number, f"longer than {MAX_LINE_BYTES:,} bytes"))
        return True


def _no_json(line: bytes) -> str:
    return "no JSON" if line.strip() else "empty"


def _is_good(
    kind: object, process: object, number: object, at_us: object, operation: object, time_us: int
) -> bool:
    """Whether a line says what each has to. Raises TypeError: it does not."""
    return (
        kind in TYPES
        and operation in OPERATIONS
        and type(process) is str
        and type(number) is int
        and -INT64_MAX <= number <= INT64_MAX
        and type(at_us) is int
        and time_us <= at_us <= INT64_MAX
    )


def _why_not(value: object, time_us: int) -> str:
    """Why a line is none that is good."""
    if not isinstance(value, dict):
        return "no JSON object"
    get = value.get
    kind, operation = get("type"), get("op")
    if not isinstance(kind, str) or not isinstance(operation, str):
        return "no type and op"
    if kind not in TYPES or operation not in OPERATIONS:
        return f"type {kind[:20]!r}, op {operation[:20]!r}"
    number = get("id")
    if type(get("process")) is not str or type(number) is not int:
        return "no process and id"
    if not -INT64_MAX <= number <= INT64_MAX:
        return "an id of more than 64 bits"
    at_us = get("time_us")
    return f"time {str(at_us)[:20]} after {time_us}"
