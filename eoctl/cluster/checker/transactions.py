"""What became of transactions: torn-transaction, and circles of them (G1c, G0).

A transaction that was told to have been committed, was. One that failed to commit, was aborted, or
was never asked to commit, was not; of any other nobody knows, until one of its values is read as
committed. Two depend on each other where one has read as committed what the other has written, or
has written behind it in a partition. Elle's search for other circles is not made.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.cluster.checker.columns import NO_OFFSET, NO_TRANSACTION, BadLineError, ints
from eoctl.cluster.checker.cycles import Edges, components, join_edges, shortest_circle
from eoctl.cluster.checker.polls import READ_COMMITTED
from eoctl.cluster.checker.values import ABORTED, COMMITTED, UNKNOWN, TransactionFates
from eoctl.cluster.checker.verdict import MAX_OF_A_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from eoctl.cluster.checker.polls import GivenRecords
    from eoctl.cluster.checker.reader import Operation
    from eoctl.cluster.checker.values import PartitionValues
    from eoctl.cluster.checker.verdict import FoundLines

    Flags = NDArray[np.bool_]


class _Known:
    """Lines of a transaction: where its commit was asked for, and what it ended with."""

    __slots__ = ("asked", "ended", "fate", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = self.ended = 0
        self.fate = UNKNOWN


class _Part(NamedTuple):
    """A value of a transaction: seen, or gone."""

    partition: str
    offset: int
    hash: int
    lines: tuple[int, ...]


class TransactionRules:
    """Takes what belongs to transactions; judges them at the end."""

    def __init__(self, found: FoundLines) -> None:
        self._found = found
        self._numbers: dict[str, int] = {}
        self._known: list[_Known] = []
        self._read_hash = array("q")
        self._read_transaction = array("q")
        self._read_line = array("q")

    def number_of(self, operation: Operation) -> int:
        """The transaction that a line belongs to, or NO_TRANSACTION. Raises BadLineError."""
        name = operation.fields.get("transaction")
        if name is None:
            return NO_TRANSACTION
        if type(name) is not str or not name:
            raise BadLineError("a transaction that has no name")
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._known)
            self._known.append(_Known(name))
        return found

    def take(self, operation: Operation, line: int) -> None:
        """Take a begin, commit or abort. Raises BadLineError."""
        number = self.number_of(operation)
        if number == NO_TRANSACTION:
            raise BadLineError(f"{operation.op} of no transaction")
        known = self._known[number]
        if operation.op == "commit":
            if operation.type == "invoke":
                known.asked = known.asked or line
            elif operation.type != "info":
                known.fate = COMMITTED if operation.type == "ok" else ABORTED
                known.ended = line
        elif operation.op == "abort" and operation.type == "ok":
            known.fate, known.ended = ABORTED, line

    def read(self, operation: Operation, given: list[GivenRecords], line: int) -> None:
        """Take what was read within a transaction. Raises BadLineError."""
        number = self.number_of(operation)
        if number == NO_TRANSACTION or operation.fields.get("isolation") != READ_COMMITTED:
            return
        for each in given:
            hashes = [hash(text) for text in each.texts if text is not None]
            self._read_hash.extend(hashes)
            self._read_transaction.extend([number] * len(hashes))
            self._read_line.extend([line] * len(hashes))

    def fates(self, *, is_whole: bool) -> TransactionFates:
        """What became of each; not `is_whole`: lines are missing, one may have asked to commit."""
        fates = [
            ABORTED if each.fate == UNKNOWN and not each.asked and is_whole else each.fate
            for each in self._known
        ]
        return TransactionFates(
            np.array(fates, np.int64),
            np.array([each.asked for each in self._known], np.int64),
            np.array([each.ended for each in self._known], np.int64),
        )

    def judge(self, partitions: Iterable[PartitionValues], fates: TransactionFates) -> None:
        """Find what is wrong, once each partition has been judged."""
        judged = [*partitions]
        if not self._known or not judged:
            return
        self._torn(judged)
        writes = join_edges([_behind(each) for each in judged]).unique()
        reads = self._reads(judged, fates).unique()
        told: set[int] = set()
        for kind, edges in (
            ("G1c", reads),
            ("G0", writes),
            ("G1c-mixed", join_edges([reads, writes]).unique()),
        ):
            for nodes in components(edges):
                new = [each for each in nodes if each not in told]
                if kind == "G1c-mixed" and not new:
                    continue  # in circles of one kind already
                told |= {*nodes}
                circle = shortest_circle(edges, nodes, new[0] if new else nodes[0])
                known = [self._known[int(edges.source[row])] for row in circle]
                names = [each.name for each in known]
                lines = {
                    int(each[row])
                    for row in circle
                    for each in (edges.source_line, edges.target_line)
                }
                lines |= {each.ended for each in known}
                self._found.add(kind, "", NO_OFFSET, lines, details=(*names,))

    def _torn(self, judged: list[PartitionValues]) -> None:
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
                known = self._known[number]
                lines = {*there.lines, *lost.lines, known.ended or known.asked} - {0}
                self._found.add(
                    "torn-transaction",
                    lost.partition,
                    lost.offset,
                    lines,
                    hash=lost.hash,
                    other_hash=there.hash,
                    details=(known.name,),
                )

    def _reads(self, judged: list[PartitionValues], fates: TransactionFates) -> Edges:
        """From who wrote a value to who has read it."""
        readers = ints(self._read_transaction)
        rows = np.flatnonzero(fates.fate[readers] == COMMITTED)
        value, reader, line = (
            column[rows] for column in (ints(self._read_hash), readers, ints(self._read_line))
        )
        edges = []
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
            edges.append(
                Edges(
                    source=sent.transaction[place],
                    target=reader[is_known],
                    source_line=sent.line[place],
                    target_line=line[is_known],
                )
            )
        return join_edges(edges)


def _gone_rows(values: PartitionValues) -> Flags:
    sent = values.sent
    found: Flags = (sent.transaction >= 0) & (sent.fate != ABORTED) & values.is_gone
    return found


def _seen_rows(values: PartitionValues) -> Flags:
    found: Flags = (values.sent.transaction >= 0) & values.is_seen
    return found


def _behind(values: PartitionValues) -> Edges:
    """From who wrote a value to who wrote the next one of a committed transaction."""
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
