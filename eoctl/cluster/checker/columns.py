"""What is kept of a history: columns of integers for each partition, some 40 bytes a record.

A value is kept as its hash of 64 bits. What is found by it is looked up in the history once more
before it is told (`witness`), so that two values of one hash condemn nothing.
Lines are numbered over all histories of a call.
"""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.file_names import TopicPartition
from storage.limits import INT32_MAX

if TYPE_CHECKING:
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
