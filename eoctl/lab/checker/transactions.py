"""Fates of transactions: torn-transaction, and circles of transactions (G1c, G0).

A transaction whose commit was acknowledged is committed. A transaction is not committed if its
commit failed, if it was aborted, or if no commit was requested. Any other fate is unknown until a
value of the transaction is read as committed. A transaction depends on another if it read the
other's value as committed, or wrote after it in a partition. This module does not search for the
other circles of Elle.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.lab.checker.histories import NO_OFFSET, NO_TRANSACTION, BadLineError, ints
from eoctl.lab.checker.operations import READ_COMMITTED
from eoctl.lab.checker.rules import MAX_OF_A_KIND
from eoctl.lab.checker.values import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Edges,
    TransactionFates,
    components,
    shortest_circle,
    unique_edges,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from eoctl.lab.checker.histories import Operation
    from eoctl.lab.checker.operations import GivenRecords
    from eoctl.lab.checker.rules import FoundLines
    from eoctl.lab.checker.values import PartitionValues

    Flags = NDArray[np.bool_]


class _Part(NamedTuple):
    """A value of a transaction, seen or lost."""

    partition: str
    offset: int
    hash: int
    lines: tuple[int, ...]


class TransactionRules:
    """Collector and judge of the lines that belong to transactions.

    For each transaction, by number: the line of its commit request, the line that ended it, and its
    fate.
    """

    def __init__(self, found: FoundLines) -> None:
        self._found = found
        self._numbers: dict[str, int] = {}
        self._asked = array("q")
        self._ended = array("q")
        self._fate = array("b")
        self._read_hash = array("q")
        self._read_transaction = array("q")
        self._read_line = array("q")

    def number_of(self, operation: Operation) -> int:
        """Return the number of a line's transaction, or NO_TRANSACTION. Raises BadLineError."""
        name = operation.fields.get("transaction")
        if name is None:
            return NO_TRANSACTION
        if type(name) is not str or not name:
            raise BadLineError("a transaction that has no name")
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._fate)
            self._asked.append(0)
            self._ended.append(0)
            self._fate.append(UNKNOWN)
        return found

    def take(self, operation: Operation, line: int) -> None:
        """Take a begin, commit or abort. Raises BadLineError."""
        number = self.number_of(operation)
        if number == NO_TRANSACTION:
            raise BadLineError(f"{operation.op} of no transaction")
        if operation.op == "commit":
            if operation.type == "invoke":
                self._asked[number] = self._asked[number] or line
            elif operation.type != "info":
                self._fate[number] = COMMITTED if operation.type == "ok" else ABORTED
                self._ended[number] = line
        elif operation.op == "abort" and operation.type == "ok":
            self._fate[number], self._ended[number] = ABORTED, line

    def read(self, operation: Operation, given: list[GivenRecords], line: int) -> None:
        """Take the records read within a transaction. Raises BadLineError."""
        number = self.number_of(operation)
        if number == NO_TRANSACTION or operation.fields.get("isolation") != READ_COMMITTED:
            return
        for each in given:
            hashes = [hash(text) for text in each.texts if text is not None]
            self._read_hash.extend(hashes)
            self._read_transaction.extend([number] * len(hashes))
            self._read_line.extend([line] * len(hashes))

    def fates(self, *, is_whole: bool) -> TransactionFates:
        """Return the fate of each transaction.

        Args:
            is_whole: no line is missing. Otherwise a missing line may request a commit.
        """
        # Values outside transactions have the number NO_TRANSACTION, which is the last place.
        fate = np.array([*self._fate, COMMITTED], np.int8)
        asked = np.array([*self._asked, 0], np.int64)
        if is_whole:
            fate[(fate == UNKNOWN) & (asked == 0)] = ABORTED
        return TransactionFates(fate, asked, np.array([*self._ended, 0], np.int64))

    def judge(self, partitions: Iterable[PartitionValues], fates: TransactionFates) -> None:
        """Report findings, once each partition has been judged."""
        judged = [*partitions]
        if not self._numbers or not judged:
            return
        names = [*self._numbers]
        self._torn(judged, names)
        writes = unique_edges(_behind(each) for each in judged)
        reads = unique_edges(self._reads(judged, fates))
        reported: set[int] = set()
        for kind, edges in (
            ("G1c", reads),
            ("G0", writes),
            ("G1c-mixed", unique_edges((reads, writes))),
        ):
            for nodes in components(edges):
                new = [each for each in nodes if each not in reported]
                if kind == "G1c-mixed" and not new:
                    continue  # in circles of one kind already
                reported |= {*nodes}
                circle = shortest_circle(edges, nodes, new[0] if new else nodes[0])
                known = [int(edges.source[row]) for row in circle]
                lines = {
                    int(each[row])
                    for row in circle
                    for each in (edges.source_line, edges.target_line)
                }
                lines |= {self._ended[each] for each in known}
                reported_names = (*(names[each] for each in known),)
                self._found.add(kind, "", NO_OFFSET, lines, details=reported_names)

    def _torn(self, judged: list[PartitionValues], names: list[str]) -> None:
        seen: dict[int, _Part] = {}
        gone: dict[int, _Part] = {}
        gone_of, seen_of = (
            np.concatenate([each.sent.transaction[rows(each)] for each in judged])
            for rows in (_gone_rows, _seen_rows)
        )
        torn = np.intersect1d(gone_of, seen_of)
        self._found.add_more("torn-transaction", max(len(torn) - MAX_OF_A_KIND, 0))
        for each in judged:
            of_broken = np.isin(each.sent.transaction, torn[:MAX_OF_A_KIND])
            for row in np.flatnonzero(of_broken & (each.sent.fate != ABORTED)).tolist():
                number = int(each.sent.transaction[row])
                if each.is_gone[row]:
                    if number not in gone:
                        gone[number] = _part(each, row)
                elif each.is_seen[row] and number not in seen:
                    seen[number] = _part(each, row)
        for number, lost in gone.items():
            there = seen.get(number)
            if there is not None:
                ended = self._ended[number] or self._asked[number]
                lines = {*there.lines, *lost.lines, ended} - {0}
                self._found.add(
                    "torn-transaction",
                    lost.partition,
                    lost.offset,
                    lines,
                    hash=lost.hash,
                    other_hash=there.hash,
                    details=(names[number],),
                )

    def _reads(self, judged: list[PartitionValues], fates: TransactionFates) -> Iterator[Edges]:
        """Yield edges from the writer of a value to its readers."""
        readers = ints(self._read_transaction)
        rows = np.flatnonzero(fates.fate[readers] == COMMITTED)
        value, reader, line = (
            column[rows] for column in (ints(self._read_hash), readers, ints(self._read_line))
        )
        for each in judged:
            sent = each.sent
            written = np.flatnonzero((sent.transaction >= 0) & (sent.fate == COMMITTED))
            order = written[np.argsort(sent.hash[written], kind="stable")]
            at = np.searchsorted(sent.hash[order], value)
            if not len(order):
                continue
            place = order[np.minimum(at, len(order) - 1)]
            is_known = sent.hash[place] == value
            place = place[is_known]
            yield Edges(
                source=sent.transaction[place],
                target=reader[is_known],
                source_line=sent.line[place],
                target_line=line[is_known],
            )


def _gone_rows(values: PartitionValues) -> Flags:
    sent = values.sent
    found: Flags = (sent.transaction >= 0) & (sent.fate != ABORTED) & values.is_gone
    return found


def _seen_rows(values: PartitionValues) -> Flags:
    found: Flags = (values.sent.transaction >= 0) & values.is_seen
    return found


def _behind(values: PartitionValues) -> Edges:
    """Return edges from the writer of a value to the writer of the next committed value."""
    sent = values.sent
    rows = np.flatnonzero((sent.transaction >= 0) & (sent.fate == COMMITTED) & (sent.offset >= 0))
    order = rows[np.argsort(sent.offset[rows], kind="stable")]
    before, after = order[:-1], order[1:]
    return Edges(
        source=sent.transaction[before],
        target=sent.transaction[after],
        source_line=sent.line[before],
        target_line=sent.line[after],
    )


def _part(values: PartitionValues, row: int) -> _Part:
    lines = {int(values.sent.line[row])}
    if values.is_seen[row]:
        read = np.flatnonzero(values.read_hash == values.sent.hash[row])
        marks = values.read_mark[read]
        lines.add(int(marks[marks & 1 == 1][0]) // 2)
    else:
        lines |= {int(each[row]) for each in values.shown}
    return _Part(
        partition=values.name,
        offset=int(values.sent.offset[row]),
        hash=int(values.sent.hash[row]),
        lines=(*lines,),
    )
