"""Columns of a history: integers for each partition, about 40 bytes per record.

A column has a value as its 64-bit hash. `Witnesses` reads the lines of a finding again, so two
values with the same hash cause no finding. Lines are numbered over all histories of a command.
"""

from __future__ import annotations

import json
from array import array
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from storage.errors import AccessError, RefusedError, pasted
from storage.file_names import TopicPartition
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


NO_OFFSET = -1
NO_TRANSACTION = -1


class BadLineError(Exception):
    """A line whose fields do not fit its type and operation."""


def text_of(value: object) -> str | None:
    """Return a value in comparable form, None for a tombstone or an unidentified value.

    Raises:
        BadLineError: this is no value.
    """
    if type(value) is str or value is None:
        return value
    if type(value) in {int, float, bool}:
        return json.dumps(value)
    raise BadLineError(f"a value that is a {type(value).__name__}")


def ints(column: array[int]) -> Ints:
    """Return a column as an array, without a copy.

    The column must not grow while the array is in use.
    """
    if not column:
        return np.empty(0, np.int64)
    return np.frombuffer(column, np.int64)


class PartitionColumns:
    """Answers and records that clients got of one partition.

    Attributes:
        ack_hash, ack_offset, ack_line, ack_invoked: for each acknowledged value: hash, offset or
            NO_OFFSET, line of the answer, and line of the request or 0.
        ack_transaction: for each of these: number of the transaction, or NO_TRANSACTION.
        fail_hash, fail_line, fail_invoked: values that were certainly not written.
        info_hash, info_line, info_transaction: values that may or may not be written.
        read_hash, read_offset, read_line: for each record read with a value: hash, offset, and the
            line times two, plus one if it was read as committed.
        gap_start, gap_end, gap_line: skipped offsets, half open, and the line of the poll that
            shows it. The line is multiplied by four, plus one within one poll, plus two if it was
            read as committed.
        gap_before: for each gap between two polls, in order: the line of the first poll.
        last_end, committed_end: end of the last reader, and of the last read_committed reader.
        leaders: leader epoch -> the first broker that acknowledged in it, and the line.
    """

    def __init__(self, key: TopicPartition) -> None:
        self.key = key
        self.name = f"{key.topic}-{key.partition}"
        self.ack_hash = array("q")
        self.ack_offset = array("q")
        self.ack_line = array("q")
        self.ack_invoked = array("q")
        self.ack_transaction = array("q")
        self.fail_hash = array("q")
        self.fail_line = array("q")
        self.fail_invoked = array("q")
        self.info_hash = array("q")
        self.info_line = array("q")
        self.info_transaction = array("q")
        self.read_hash = array("q")
        self.read_offset = array("q")
        self.read_line = array("q")
        self.gap_start = array("q")
        self.gap_end = array("q")
        self.gap_line = array("q")
        self.gap_before = array("q")
        self.leaders: dict[int, tuple[int, int]] = {}
        self.watermarks = Watermarks()
        self.last_end: ReadEnd | None = None
        self.committed_end: CommittedEnd | None = None

    def forget_gaps(self) -> None:
        """Free the judged gaps. Each end of a transaction leaves a gap."""
        self.gap_start, self.gap_end = array("q"), array("q")
        self.gap_line, self.gap_before = array("q"), array("q")


class Watermarks:
    """High watermarks that consumers saw.

    Attributes:
        highest, line, process: the highest high watermark, and the process that saw it first.
        lower, lower_line: the lower value that the same process saw last, line 0 without such a
            value or if any process saw the highest since.
        in_epoch: (process, leader epoch) -> the last high watermark and its line.
    """

    def __init__(self) -> None:
        self.highest, self.line, self.process = -1, 0, ""
        self.lower, self.lower_line = -1, 0
        self.in_epoch: dict[tuple[str, int], tuple[int, int]] = {}

    def report(self, process: str, offset: int, line: int) -> None:
        """Take the high watermark that a process saw."""
        if offset >= self.highest:
            if offset > self.highest:
                self.highest, self.line, self.process = offset, line, process
            self.lower_line = 0
        elif process == self.process:
            self.lower, self.lower_line = offset, line


class ReadEnd:
    """End of a final reader that has reached the high watermark.

    Attributes:
        start_offset: where it began.
        end_offset: high watermark at the end.
        start_line: of the first poll.
    """

    __slots__ = ("end_offset", "line", "start_line", "start_offset")

    def __init__(self, *, start_offset: int, end_offset: int, start_line: int, line: int) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.start_line = start_line
        self.line = line


class CommittedEnd(NamedTuple):
    """Final position of a read_committed reader.

    Attributes:
        start_offset, start_line: where it began, and its first poll.
        end_offset: where it would continue.
        line: of its last poll.
        is_below: the position is below the high watermark, and the reader waits.
    """

    start_offset: int
    end_offset: int
    start_line: int
    line: int
    is_below: bool


class HistoryColumns:
    """All partitions of the histories, by key and by name."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, int], PartitionColumns] = {}
        self._by_name: dict[str, PartitionColumns] = {}

    def of(self, topic: object, number: object) -> PartitionColumns:
        """Return the columns of a partition. Raises BadLineError for an impossible partition."""
        if type(topic) is str and type(number) is int:
            found = self.by_key.get((topic, number))
            if found is not None:
                return found
        if type(topic) is not str or not topic:
            raise BadLineError("no topic")
        if type(number) is not int or not 0 <= number <= INT32_MAX:
            raise BadLineError("no partition from 0 to 2147483647")
        found = self.by_key[topic, number] = PartitionColumns(TopicPartition(topic, number))
        return found

    def named(self, name: str) -> PartitionColumns:
        """Return the columns of `topic-N`. Raises BadLineError for other names."""
        found = self._by_name.get(name)
        if found is None:
            topic, _, digits = name.rpartition("-")
            if not topic or not (digits.isascii() and digits.isdecimal() and len(digits) < 11):
                raise BadLineError(f"{name[:40]!r} is no partition: topic-N")
            found = self._by_name[name] = self.of(topic, int(digits))
        return found


# -- reading a history (eoctl-history): JSON Lines, line by line, with any content


VERSION = 1
BUFFER_FULL = "BUFFER_FULL"  # the error of a send that did not fit into the client's buffer
TYPES = frozenset({"invoke", "ok", "fail", "info"})
OPERATIONS = frozenset(
    {
        "send", "poll", "handle", "offset-commit", "begin", "commit", "abort", "fault", "heal",
    }
)  # fmt: skip
MAX_LINE_BYTES = 1 << 25
# By magic bytes. A history is read twice, and from any line, so it must not be compressed.
_COMPRESSED = {b"\x1f\x8b": "gunzip -k", b"\x28\xb5\x2f\xfd": "unzstd"}
_NAMED = itemgetter("type", "process", "id", "time_us", "op")


class Operation(NamedTuple):
    """One line: type and operation of a process, and the fields of the line."""

    type: str
    process: str
    id: int
    time_us: int
    op: str
    fields: dict[str, Any]
    line: int


class HistorySource(NamedTuple):
    """A history that can be read twice: to judge it, and to find the lines of witnesses.

    Attributes:
        has_ended: the writer has ended, so the history is complete.
    """

    name: str
    open: Callable[[], BinaryIO]
    has_ended: bool = True


class SkippedLine(NamedTuple):
    """A line that eoctl does not understand."""

    line: int
    why: str


class HistoryReader:
    """Reader of a history, line by line.

    Attributes:
        header: the first line.
        skipped: lines that it skipped.
        is_torn: the last line has no end, because the writer was killed.
        lines_count: lines so far.
    """

    def __init__(self, file: BinaryIO, path: str) -> None:
        """Read the header.

        Raises:
            RefusedError: the header is missing, or has another version.
            AccessError: the file cannot be read.
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
        """Yield the operations, and note lines that it does not understand in `skipped`."""
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
                    if text[0] == "{":  # saves the search for white space
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
        """Skip the rest of an overlong line. Return False for a last line without an end."""
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
    """Return whether the fields of a line are valid. Raises TypeError for unhashable fields."""
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
    """Return why a line is invalid."""
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
