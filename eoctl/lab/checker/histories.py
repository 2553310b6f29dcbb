"""What is kept of a history: columns of integers for each partition, some 40 bytes a record.

A value is kept as its hash of 64 bits. What is found by it is looked up in the history once more
before it is told (`witness`), so that two values of one hash condemn nothing.
Lines are numbered over all histories of a call.
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
    """A line's fields are not what its type and operation need."""


def text_of(value: object) -> str | None:
    """A value as it is compared; None: a tombstone, or nothing that could be told from others.

    Raises:
        BadLineError: this is no value.
    """
    if type(value) is str or value is None:
        return value
    if type(value) in {int, float, bool}:
        return json.dumps(value)
    raise BadLineError(f"a value that is a {type(value).__name__}")


def ints(column: array[int]) -> Ints:
    """A column as an array, without a copy; it must not grow while that is used."""
    if not column:
        return np.empty(0, np.int64)
    return np.frombuffer(column, np.int64)


class PartitionColumns:
    """What clients know of one partition.

    Attributes:
        ack_hash, ack_offset, ack_line, ack_invoked: of each value that was acknowledged: its hash,
            offset or NO_OFFSET, and the lines of the answer and of what was asked, 0: unknown.
        ack_transaction: of each of these: number of the transaction, or NO_TRANSACTION.
        fail_hash, fail_line, fail_invoked: what surely was not done.
        info_hash, info_line, info_transaction: what may be there or not.
        read_hash, read_offset, read_line: of each record that was read with a value; the line times
            two, plus one if it was read as committed.
        gap_start, gap_end, gap_line: offsets that were passed over, half open, and the line of the
            poll that shows it; the line times four, plus one within one poll, plus two if it was
            read as committed.
        gap_before: of those between two polls, in order: the line of the first one.
        last_end, committed_end: of the last reader, and of the last one of what is committed.
        leaders: leader epoch -> who has acknowledged in it, and in which line.
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
        """Once they are judged nobody asks for them; one lies at each end of a transaction."""
        self.gap_start, self.gap_end = array("q"), array("q")
        self.gap_line, self.gap_before = array("q"), array("q")


class Watermarks:
    """What consumers were told of a high watermark.

    Attributes:
        highest, line, process: the highest one, and who was told it first.
        lower, lower_line: what that process, and nobody else since, was told at last.
        in_epoch: (process, leader epoch) -> the last one and its line, where the epoch is told.
    """

    def __init__(self) -> None:
        self.highest, self.line, self.process = -1, 0, ""
        self.lower, self.lower_line = -1, 0
        self.in_epoch: dict[tuple[str, int], tuple[int, int]] = {}

    def tell(self, process: str, offset: int, line: int) -> None:
        """A process was told a high watermark."""
        if offset >= self.highest:
            if offset > self.highest:
                self.highest, self.line, self.process = offset, line, process
            self.lower_line = 0
        elif process == self.process:
            self.lower, self.lower_line = offset, line


class ReadEnd:
    """A last reader has come to the high watermark.

    Attributes:
        start_offset: where it began.
        end_offset: of what there is.
        start_line: of the first poll.
    """

    __slots__ = ("end_offset", "line", "start_line", "start_offset")

    def __init__(self, *, start_offset: int, end_offset: int, start_line: int, line: int) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.start_line = start_line
        self.line = line


class CommittedEnd(NamedTuple):
    """A last reader of what is committed has come to rest.

    Attributes:
        start_offset, start_line: where it began, and its first poll.
        end_offset: where it goes on, if there is ever more.
        line: of its last poll.
        is_below: it is below the high watermark, and waits.
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
        """The columns of a partition. Raises BadLineError: there can be none."""
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
        """The columns of `topic-N`. Raises BadLineError: it is no such name."""
        found = self._by_name.get(name)
        if found is None:
            topic, _, digits = name.rpartition("-")
            if not topic or not (digits.isascii() and digits.isdecimal() and len(digits) < 11):
                raise BadLineError(f"{name[:40]!r} is no partition: topic-N")
            found = self._by_name[name] = self.of(topic, int(digits))
        return found


# -- reading a history (eoctl-history): JSON Lines, line by line, whatever they hold


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
