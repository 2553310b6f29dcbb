"""The history of a cluster's clients: what they asked for, and what they were told (eoctl-history).

JSON Lines. The first line is the header, each other one the beginning of an operation (`invoke`) or
its end: `ok` it was done, `fail` it surely was not, `info` nobody knows, or something that happened
to the cluster. Times are microseconds since the start of the run.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.errors import AccessError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

VERSION = 1
TYPES = frozenset({"invoke", "ok", "fail", "info"})
OPERATIONS = frozenset({"send", "poll", "begin", "commit", "abort", "fault", "heal"})


class Operation(NamedTuple):
    """One line: a type and an operation of a process, and what belongs to it."""

    type: str
    process: str
    id: int
    time_us: int
    op: str
    fields: Mapping[str, Any]
    line: int


class HistoryWriter:
    """Writes lines through `write`, and keeps a digest of them.

    Attributes:
        digest: SHA-256 of all lines but the header.
    """

    def __init__(self, write: Callable[[bytes], object], settings: Mapping[str, Any]) -> None:
        self._write = write
        self._digest = hashlib.sha256()
        self.counts: dict[tuple[str, str], int] = {}
        header = {"history": "eoctl", "version": VERSION, "clock": "virtual", "settings": settings}
        write(_line(header))

    @property
    def digest(self) -> str:
        """Of what has been written so far."""
        return self._digest.hexdigest()

    def note(
        self, kind: str, process: str, number: int, time_us: int, operation: str, **fields: object
    ) -> None:
        """Write one line."""
        line = _line(
            {
                "type": kind,
                "process": process,
                "id": number,
                "time_us": time_us,
                "op": operation,
                **fields,
            }
        )
        self.counts[operation, kind] = self.counts.get((operation, kind), 0) + 1
        self._digest.update(line)
        self._write(line)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


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
        try:
            self.header = json.loads(self._readline())
        except ValueError:
            self.header = None
        if not isinstance(self.header, dict) or self.header.get("history") != "eoctl":
            raise RefusedError(f"{path}: line 1 is not the header of a history")
        if self.header.get("version") != VERSION:
            raise RefusedError(
                f"{path}: a history of version {self.header.get('version')}; version {VERSION} is"
                " read here"
            )

    def _readline(self) -> bytes:
        try:
            return self._file.readline()
        except OSError as error:
            raise AccessError(error, self._path) from error

    def __iter__(self) -> Iterator[Operation]:
        """Give the operations; what is not understood is noted in `skipped`."""
        number, time_us = 1, 0
        while line := self._readline():
            number += 1
            try:
                value = json.loads(line)
            except ValueError:
                if not line.endswith(b"\n"):
                    self.is_torn = True
                    return
                self.skipped.append(SkippedLine(number, "no JSON"))
                continue
            why = _why_not(value, time_us)
            if why:
                self.skipped.append(SkippedLine(number, why))
                continue
            time_us = value["time_us"]
            yield Operation(
                type=value["type"],
                process=value["process"],
                id=value["id"],
                time_us=time_us,
                op=value["op"],
                fields=value,
                line=number,
            )


def _why_not(value: object, time_us: int) -> str:
    if not isinstance(value, dict):
        return "no JSON object"
    if value.get("type") not in TYPES or value.get("op") not in OPERATIONS:
        return f"type {value.get('type')!r}, op {value.get('op')!r}"
    if not isinstance(value.get("process"), str) or type(value.get("id")) is not int:
        return "no process and id"
    at_us = value.get("time_us")
    if type(at_us) is not int or at_us < time_us:
        return f"time {at_us!r} after {time_us}"
    return ""
