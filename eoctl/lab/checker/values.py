"""Searches in columns: the first row of a key, differing values, skipped offsets, circles."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.lab.checker.histories import ints
from eoctl.lab.checker.rules import MAX_OF_A_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from eoctl.lab.checker.histories import PartitionColumns, ReadEnd
    from eoctl.lab.checker.rules import FoundLines

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Fates = NDArray[np.int8]


class FirstOf:
    """The row of each key with the lowest rank.

    Attributes:
        order: these rows, by key.
    """

    def __init__(self, keys: Ints, rank: Ints) -> None:
        order = np.lexsort((rank, keys))
        ordered = keys[order]
        is_first = np.ones(len(ordered), bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        self.order = order[is_first]
        self._keys = ordered[is_first]

    def places(self, wanted: Ints) -> Ints:
        """Return the row of each wanted key, -1 for a missing key."""
        if not len(self._keys):
            return np.full(len(wanted), -1)
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[at] == wanted, self.order[at], -1)


class PassedOver:
    """Gaps of offsets that readers skipped, by start. `isolation` None means all readers."""

    def __init__(self, columns: PartitionColumns, isolation: bool | None) -> None:
        mark = ints(columns.gap_line)
        wanted = np.arange(len(mark))
        if isolation is not None:
            wanted = wanted[(mark & 2 == 2) == isolation]
        start = ints(columns.gap_start)[wanted]
        order = wanted[np.argsort(start, kind="stable")]
        self.start = ints(columns.gap_start)[order]
        self.end = ints(columns.gap_end)[order]
        self.line = mark[order] // 4
        self.is_within = mark[order] & 1 == 1
        before = mark // 4
        before[mark & 1 == 0] = ints(columns.gap_before)
        self.before = before[order]
        # For each gap, the gap up to it that ends last, which finds a gap that covers an offset.
        self._longest = np.zeros(len(order), np.int64)
        if len(order):
            reach = np.maximum.accumulate(self.end)
            is_new = np.ones(len(order), bool)
            is_new[1:] = reach[1:] > reach[:-1]
            self._longest = np.maximum.accumulate(np.where(is_new, np.arange(len(order)), 0))

    def places(self, offset: Ints) -> Ints:
        """Return a gap that covers each offset, -1 without a gap."""
        if not len(self.start):
            return np.full(len(offset), -1)
        at = np.searchsorted(self.start, offset, side="right") - 1
        place = self._longest[np.maximum(at, 0)]
        return np.where((at >= 0) & (self.end[place] > offset), place, -1)


def differing(key: Ints, value: Ints, line: Ints) -> list[tuple[int, int]]:
    """Return the rows of the first value and of the first other value of each differing key."""
    order = np.lexsort((line, key))
    keys, values = key[order], value[order]
    begins = np.ones(len(keys), bool)
    begins[1:] = keys[1:] != keys[:-1]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))
    other = np.flatnonzero(values != values[first])
    _, once = np.unique(first[other], return_index=True)
    return [(int(order[first[each]]), int(order[each])) for each in other[np.sort(once)]]


# -- fates of the values of one partition: lost-write, unseen, duplicate, G1a and others.
#
# Judged at the end, over all answers in the columns of a partition, and the data of the replicas.


# Fates of a transaction.
COMMITTED, ABORTED, UNKNOWN = 0, 1, 2


class ReplicaValues(NamedTuple):
    """The data of one replica, by offset."""

    name: str
    offset: Ints
    hash: Ints


class TransactionFates(NamedTuple):
    """Fates by number of the transaction.

    Attributes:
        fate: COMMITTED, ABORTED or UNKNOWN, plus COMMITTED for NO_TRANSACTION at the end.
        asked_line: line of the commit request, 0 without a request.
        end_line: line of the end, plus 0 for NO_TRANSACTION at the end.
    """

    fate: Fates
    asked_line: Ints
    end_line: Ints


class Situation(NamedTuple):
    """Facts about all partitions.

    Attributes:
        is_healed: no fault is left.
        healed_line: line of the last heal, 0 without a heal.
    """

    is_healed: bool
    healed_line: int
    fates: TransactionFates


class UnsureColumns(NamedTuple):
    """Values sent in transactions, without an answer or with `info`, one row each."""

    hash: Ints
    line: Ints
    transaction: Ints


class SentColumns(NamedTuple):
    """Acknowledged values, one row each.

    Attributes:
        transaction: number, or NO_TRANSACTION.
        fate: fate of that transaction, COMMITTED without a transaction.
    """

    hash: Ints
    offset: Ints
    line: Ints
    invoked: Ints
    transaction: Ints
    fate: Fates


class PartitionValues:
    """The rows of one partition to judge, without values that were sent twice.

    Attributes:
        repeated: (line, line before) of values that were sent twice, which are not judged.
        is_gone: for each row of `sent`: the value is missing.
        is_seen: for each row of `sent`: the value was read as committed.
    """

    def __init__(
        self,
        columns: PartitionColumns,
        situation: Situation,
        open_sends: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        """Take `open_sends`: hash, line and transaction of each send without an answer."""
        self._columns = columns
        self._situation = situation
        self.name = columns.name
        sent = _sent(columns, situation)
        fails = ints(columns.fail_hash), ints(columns.fail_line), ints(columns.fail_invoked)
        read = ints(columns.read_hash), ints(columns.read_offset), ints(columns.read_line)
        unanswered = np.array(open_sends, np.int64).reshape(-1, 3)
        unsure = _unsure(columns, unanswered)
        self.repeated, doubtful = _repeated(columns, unanswered)
        if len(doubtful):
            kept = ~np.isin(unsure.hash, doubtful)
            unsure = UnsureColumns._make(each[kept] for each in unsure)
            kept = ~np.isin(sent.hash, doubtful)
            sent = SentColumns._make(each[kept] for each in sent)
            kept = ~np.isin(fails[0], doubtful)
            fails = fails[0][kept], fails[1][kept], fails[2][kept]
            kept = ~np.isin(read[0], doubtful)
            read = read[0][kept], read[1][kept], read[2][kept]
        self.sent = sent
        self.unsure = unsure
        self._fail_hash, self._fail_line, self._fail_invoked = fails
        self.read_hash, self.read_offset, self.read_mark = read
        self.is_seen: Flags = np.zeros(len(sent.hash), bool)
        self.is_gone: Flags = np.zeros(len(sent.hash), bool)
        self.shown: list[Ints] = []

    def judge(self, found: FoundLines, replicas: Sequence[ReplicaValues] | None) -> None:
        """Report findings. `replicas` has the data of all replicas, None if they are not read."""
        reported = self._reported()
        self._inconsistent(found, *reported)
        self._duplicates(found, *reported)
        self._failed(found, replicas or ())
        self._gone(found, replicas)
        self._skipped(found)
        self._columns.forget_gaps()
        self._watermark(found)
        self._uncommitted(found)
        if replicas is not None:
            self._in_replicas(found, replicas, *reported)

    # -- answers

    def _reported(self) -> tuple[Ints, Ints, Ints]:
        """Return offsets, hashes and lines of all values acknowledged or read."""
        has_offset = self.sent.offset >= 0
        return (
            np.concatenate((self.sent.offset[has_offset], self.read_offset)),
            np.concatenate((self.sent.hash[has_offset], self.read_hash)),
            np.concatenate((self.sent.line[has_offset], self.read_mark // 2)),
        )

    def _inconsistent(self, found: FoundLines, offset: Ints, value: Ints, line: Ints) -> None:
        for first, other in differing(offset, value, line):
            found.add(
                "inconsistent-offsets",
                self.name,
                int(offset[other]),
                (int(line[first]), int(line[other])),
                hash=int(value[other]),
                other_hash=int(value[first]),
            )

    def _duplicates(self, found: FoundLines, offset: Ints, value: Ints, line: Ints) -> None:
        """Find values read at two offsets, then values acknowledged at another offset than read."""
        known: set[int] = set()
        for columns in (
            (self.read_offset, self.read_hash, self.read_mark // 2),
            (offset, value, line),
        ):
            offsets, values, lines = columns
            for first, other in differing(values, offsets, lines):
                if int(values[other]) in known:
                    continue
                known.add(int(values[other]))
                found.add(
                    "duplicate",
                    self.name,
                    int(offsets[other]),
                    {int(lines[first]), int(lines[other])},
                    hash=int(values[other]),
                    details=(int(offsets[first]), int(offsets[other])),
                )

    def _failed(self, found: FoundLines, replicas: Iterable[ReplicaValues]) -> None:
        """Find G1a: failed values read or in a log, and aborted values read as committed."""
        first = FirstOf(self.read_hash, self.read_mark)
        at = first.places(self._fail_hash)
        for place in np.flatnonzero(at >= 0).tolist():
            read = int(at[place])
            self._add_failed(found, place, int(self.read_offset[read]), self.read_mark[read])
        left = np.flatnonzero(at < 0)
        for each in replicas:
            where = FirstOf(each.hash, each.offset).places(self._fail_hash[left])
            for number in np.flatnonzero(where >= 0):
                offset = int(each.offset[where[number]])
                self._add_failed(found, int(left[number]), offset, 0, each.name)
            left = left[where < 0]
        fates = self._situation.fates
        written = self._written(is_aborted=True)
        rows = np.flatnonzero(self.read_mark & 1 == 1)
        committed = FirstOf(self.read_hash[rows], self.read_mark[rows])
        at = committed.places(written.hash)
        for number in np.flatnonzero(at >= 0):
            read = int(rows[at[number]])
            ended = int(fates.end_line[written.transaction[number]])
            lines = {int(written.line[number]), int(self.read_mark[read]) // 2, ended}
            lines -= {0}
            found.add(
                "G1a",
                self.name,
                int(self.read_offset[read]),
                lines,
                hash=int(written.hash[number]),
                details=("aborted",),
            )

    def _written(self, *, is_aborted: bool) -> UnsureColumns:
        """Return all values sent in aborted transactions, or in others, with any answer."""
        sent, unsure = self.sent, self.unsure
        rows = np.flatnonzero((sent.transaction >= 0) & ((sent.fate == ABORTED) == is_aborted))
        fate = self._situation.fates.fate[unsure.transaction]
        others = np.flatnonzero((fate == ABORTED) == is_aborted)
        return UnsureColumns(
            *(
                np.concatenate((each[rows], other[others]))
                for each, other in (
                    (sent.hash, unsure.hash),
                    (sent.line, unsure.line),
                    (sent.transaction, unsure.transaction),
                )
            )
        )

    def _add_failed(
        self, found: FoundLines, place: int, offset: int, mark: np.int64 | int, replica: str = ""
    ) -> None:
        lines = {
            int(self._fail_invoked[place]), int(self._fail_line[place]), int(mark) // 2
        } - {0}  # fmt: skip
        found.add(
            "G1a",
            self.name,
            offset,
            lines,
            hash=int(self._fail_hash[place]),
            details=("failed", replica),
        )

    # -- missing values

    def _gone(self, found: FoundLines, replicas: Sequence[ReplicaValues] | None) -> None:
        sent = self.sent
        was_read = np.isin(sent.hash, self.read_hash)
        is_committed = self.read_mark & 1 == 1
        self.is_seen = np.isin(sent.hash, self.read_hash[is_committed])
        counts = sent.fate == COMMITTED
        if replicas is None:
            shown, before = self._passed_over(found)
            self.is_gone = ~was_read & (shown > 0)
            self.shown = [before, shown]
            unseen = ~was_read & (shown == 0)
        else:
            there = np.isin(sent.hash, np.concatenate([each.hash for each in replicas]))
            self.is_gone = ~there if self._situation.is_healed else np.zeros(len(there), bool)
            unseen = ~there & ~self.is_gone
        lost = np.flatnonzero(self.is_gone & counts)
        where = "" if replicas is None else "replicas"
        for kind, places in (("lost-write", lost), ("unseen", np.flatnonzero(unseen & counts))):
            for place in places[:MAX_OF_A_KIND].tolist():
                self._report(found, kind, place, where if kind == "lost-write" else "")
            found.add_more(kind, max(len(places) - MAX_OF_A_KIND, 0))

    def _report(self, found: FoundLines, kind: str, place: int, where: str) -> None:
        sent = self.sent
        lines = {int(sent.invoked[place]), int(sent.line[place]), self._ended(place)}
        if self.shown:
            lines |= {int(each[place]) for each in self.shown}
        elif where and self._situation.healed_line:
            lines.add(self._situation.healed_line)
        offset = int(self.sent.offset[place])
        value = int(sent.hash[place])
        found.add(kind, self.name, offset, lines, hash=value, details=(where,))

    def _ended(self, place: int) -> int:
        """Return the line that ended the transaction of a value sent, 0 without such a line."""
        return int(self._situation.fates.end_line[self.sent.transaction[place]])

    def _passed_over(self, found: FoundLines) -> tuple[Ints, Ints]:
        """Return the lines that show the absence of each value sent, if no consumer read it."""
        offset = self.sent.offset
        shown, before = np.zeros(len(offset), np.int64), np.zeros(len(offset), np.int64)
        end = self._columns.last_end
        if end is not None and self._situation.is_healed and end.line > self._situation.healed_line:
            begins = int(self.read_offset.min()) if len(self.read_offset) else 0
            is_whole = end.start_offset <= begins
            behind = (offset >= end.end_offset) | ((offset < 0) & is_whole)
            behind &= self.sent.line < end.start_line
            shown[behind], before[behind] = end.line, end.start_line
            self._read_and_gone(found, end)
        order = np.argsort(self.read_offset, kind="stable")
        at = np.searchsorted(self.read_offset[order], offset)
        inside = np.minimum(at, max(len(order) - 1, 0))
        if len(order):
            is_other = (offset >= 0) & (self.read_offset[order[inside]] == offset)
            shown[is_other] = self.read_mark[order[inside[is_other]]] // 2
            before[is_other] = 0
        gaps = PassedOver(self._columns, None)
        place = gaps.places(offset)
        in_gap = (place >= 0) & (offset >= 0)
        shown[in_gap] = gaps.line[place[in_gap]]
        before[in_gap] = gaps.before[place[in_gap]]
        return shown, before

    def _read_and_gone(self, found: FoundLines, end: ReadEnd) -> None:
        """Find precommitted-read: a value read once is at or above the end of the last reader."""
        first = FirstOf(self.read_hash, self.read_mark)
        line = self.read_mark[first.order] // 2
        is_gone = (self.read_offset[first.order] >= end.end_offset) & (line < end.start_line)
        for place in first.order[is_gone].tolist():
            found.add(
                "precommitted-read",
                self.name,
                int(self.read_offset[place]),
                (int(self.read_mark[place]) // 2, end.start_line, end.line),
                hash=int(self.read_hash[place]),
                details=("end", end.end_offset),
            )

    def _skipped(self, found: FoundLines) -> None:
        """Find poll-skip: gaps with values that the reader had to get."""
        sent = self.sent
        has_offset = sent.offset >= 0
        is_committed = self.read_mark & 1 == 1
        for isolation in (False, True):
            gaps = PassedOver(self._columns, isolation)
            if not len(gaps.start):
                continue
            counts = has_offset & (sent.fate == COMMITTED) if isolation else has_offset
            read = is_committed if isolation else np.ones(len(is_committed), bool)
            offset = np.concatenate((sent.offset[counts], self.read_offset[read]))
            value = np.concatenate((sent.hash[counts], self.read_hash[read]))
            line = np.concatenate((sent.line[counts], self.read_mark[read] // 2))
            ends = self._situation.fates.end_line[sent.transaction[counts]]
            ended = np.concatenate((ends, np.zeros(int(read.sum()), np.int64)))
            order = np.lexsort((line, offset))
            offset, value, line = offset[order], value[order], line[order]
            at = np.searchsorted(offset, gaps.start)
            inside = np.minimum(at, max(len(offset) - 1, 0))
            holds = (at < len(offset)) & (offset[inside] < gaps.end) if len(offset) else at < 0
            for place in np.flatnonzero(holds):
                known = int(at[place])
                kind = "int-poll-skip" if gaps.is_within[place] else "poll-skip"
                lines = {int(gaps.before[place]), int(gaps.line[place]), int(line[known])}
                lines |= {int(ended[order[known]])} if isolation else set()
                found.add(
                    kind,
                    self.name,
                    int(offset[known]),
                    lines,
                    hash=int(value[known]),
                    details=(int(gaps.start[place]), int(gaps.end[place])),
                )

    def _watermark(self, found: FoundLines) -> None:
        """Find hw-back: a high watermark still below its former value after the heal."""
        reported = self._columns.watermarks
        if not self._situation.is_healed or not reported.lower_line:
            return
        if reported.lower_line > self._situation.healed_line:
            found.add(
                "hw-back",
                self.name,
                reported.lower,
                (reported.line, reported.lower_line),
                details=(reported.highest, reported.lower, ""),
            )

    def _uncommitted(self, found: FoundLines) -> None:
        """Find precommitted-read: a value read as committed before the commit request."""
        written = self._written(is_aborted=False)
        if not len(written.hash):
            return
        rows = np.flatnonzero(self.read_mark & 1 == 1)
        first = FirstOf(self.read_hash[rows], self.read_mark[rows])
        at = first.places(written.hash)
        asked = self._situation.fates.asked_line[written.transaction]
        for number in np.flatnonzero(at >= 0):
            read = int(rows[at[number]])
            line = int(self.read_mark[read]) // 2
            sent_line = int(written.line[number])
            if 0 < line < asked[number]:
                found.add(
                    "precommitted-read",
                    self.name,
                    int(self.read_offset[read]),
                    {sent_line, line, int(asked[number])},
                    hash=int(self.read_hash[read]),
                    details=("asked",),
                )

    # -- data of replicas

    def _in_replicas(
        self,
        found: FoundLines,
        replicas: Sequence[ReplicaValues],
        offset: Ints,
        value: Ints,
        line: Ints,
    ) -> None:
        if self._situation.is_healed:
            everywhere = np.concatenate([each.hash for each in replicas])
            first = FirstOf(self.read_hash, self.read_mark)
            lost = first.order[~np.isin(self.read_hash[first.order], everywhere)]
            for place in lost[:MAX_OF_A_KIND]:
                lines = {int(self.read_mark[place]) // 2, self._situation.healed_line} - {0}
                found.add(
                    "precommitted-read",
                    self.name,
                    int(self.read_offset[place]),
                    lines,
                    hash=int(self.read_hash[place]),
                    details=("replicas",),
                )
            found.add_more("precommitted-read", max(len(lost) - MAX_OF_A_KIND, 0))
        reported = FirstOf(offset, -line)  # the last line about each offset
        known_twice: set[int] = {int(value[each]) for _, each in differing(value, offset, line)}
        for each in replicas:
            self._twice_in_log(found, each, known_twice)
            if self._situation.is_healed:
                at = reported.places(each.offset)
                here = np.flatnonzero(at >= 0)
                other = here[value[at[here]] != each.hash[here]]
                for place in other:
                    row = int(at[place])
                    lines = {int(line[row]), self._situation.healed_line} - {0}
                    found.add(
                        "inconsistent-offsets",
                        self.name,
                        int(each.offset[place]),
                        lines,
                        hash=int(each.hash[place]),
                        other_hash=int(value[row]),
                        details=(each.name,),
                    )

    def _twice_in_log(self, found: FoundLines, replica: ReplicaValues, known: set[int]) -> None:
        for first, other in differing(replica.hash, replica.offset, replica.offset):
            if int(replica.hash[other]) not in known:
                known.add(int(replica.hash[other]))
                offsets = int(replica.offset[first]), int(replica.offset[other])
                found.add(
                    "duplicate",
                    self.name,
                    offsets[1],
                    (),
                    hash=int(replica.hash[other]),
                    details=(*offsets, replica.name),
                )


def _sent(columns: PartitionColumns, situation: Situation) -> SentColumns:
    transaction = ints(columns.ack_transaction)
    return SentColumns(
        hash=ints(columns.ack_hash),
        offset=ints(columns.ack_offset),
        line=ints(columns.ack_line),
        invoked=ints(columns.ack_invoked),
        transaction=transaction,
        fate=situation.fates.fate[transaction],
    )


def _unsure(columns: PartitionColumns, unanswered: Ints) -> UnsureColumns:
    transaction = np.concatenate((ints(columns.info_transaction), unanswered[:, 2]))
    rows = np.flatnonzero(transaction >= 0)
    return UnsureColumns(
        hash=np.concatenate((ints(columns.info_hash), unanswered[:, 0]))[rows],
        line=np.concatenate((ints(columns.info_line), unanswered[:, 1]))[rows],
        transaction=transaction[rows],
    )


def _repeated(columns: PartitionColumns, unanswered: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """Return the lines of values that were sent more than once, and their hashes."""
    value = np.concatenate(
        (ints(columns.ack_hash), ints(columns.fail_hash), ints(columns.info_hash), unanswered[:, 0])
    )
    line = np.concatenate(
        (ints(columns.ack_line), ints(columns.fail_line), ints(columns.info_line), unanswered[:, 1])
    )
    found = differing(value, line, line)
    pairs = [(int(line[other]), int(line[first])) for first, other in found]
    return pairs, np.unique(value[[other for _, other in found]])


# -- circles in a directed graph: strongly connected components, and their shortest circles


MERGED_ROWS = 1 << 16  # rows to collect before removing duplicates pays off


class Edges(NamedTuple):
    """Edges from a transaction to a later transaction, and the lines that show them."""

    source: Ints
    target: Ints
    source_line: Ints
    target_line: Ints

    def unique(self) -> Edges:
        """Return each edge once, the first, without edges from a node to itself."""
        is_other = self.source != self.target
        one = Edges._make(each[is_other] for each in self)
        order = np.lexsort((one.target_line, one.target, one.source))
        one = Edges._make(each[order] for each in one)
        is_new = np.ones(len(order), bool)
        is_new[1:] = (one.source[1:] != one.source[:-1]) | (one.target[1:] != one.target[:-1])
        return Edges._make(each[is_new] for each in one)


def unique_edges(parts: Iterable[Edges]) -> Edges:
    """Return each edge of all parts once, the first.

    Parts are joined once they have more rows than the unique edges so far. This keeps few rows in
    memory, and does not sort the unique edges again for each part.
    """
    kept = Edges._make(np.empty(0, np.int64) for _ in range(4))
    waiting: list[Edges] = []
    rows_count = 0
    for each in parts:
        waiting.append(each)
        rows_count += len(each.source)
        if rows_count > max(len(kept.source), MERGED_ROWS):
            kept = _joined([kept, *waiting])
            waiting.clear()
            rows_count = 0
    return _joined([kept, *waiting])


def _joined(edges: list[Edges]) -> Edges:
    return Edges._make(np.concatenate(columns) for columns in zip(*edges, strict=True)).unique()


def components(edges: Edges) -> Iterator[list[int]]:
    """Yield the strongly connected components of two or more nodes (Tarjan, without recursion).

    `edges` are unique.
    """
    nodes, begins, targets = _rows(_spanned(edges))
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in range(len(nodes)):
        if root in index:
            continue
        work = [(root, begins[root])]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, at = work.pop()
            if at < begins[node + 1]:
                work.append((node, at + 1))
                other = targets[at]
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, begins[other]))
                elif other in on_stack:
                    low[node] = min(low[node], index[other])
                continue
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                found: list[int] = []
                while not found or found[-1] != node:
                    found.append(stack.pop())
                    on_stack.discard(found[-1])
                if len(found) > 1:
                    yield sorted(nodes[each] for each in found)


def shortest_circle(edges: Edges, nodes: list[int], start: int) -> list[int]:
    """Return the rows of the edges of a shortest circle through `start`, within `nodes`."""
    inside = np.flatnonzero(np.isin(edges.source, nodes) & np.isin(edges.target, nodes))
    after: dict[int, list[int]] = {}
    for row in inside.tolist():
        after.setdefault(int(edges.source[row]), []).append(row)
    came: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for row in after.get(node, ()):
            target = int(edges.target[row])
            if target == start:
                circle = [row]
                while node != start:
                    circle.append(came[node])
                    node = int(edges.source[came[node]])
                return circle[::-1]
            if target not in came:
                came[target] = row
                queue.append(target)
    raise AssertionError("nodes that reach each other have a circle")


def _spanned(edges: Edges) -> Edges:
    """Return the edges that may belong to a circle.

    In a circle, downward edges span each step between its lowest and its highest node. Most graphs
    have no downward edge, and so no circle.
    """
    if not len(edges.source):
        return edges
    steps = np.zeros(int(max(edges.source.max(), edges.target.max())) + 1, np.int64)
    falls = edges.target < edges.source
    np.add.at(steps, edges.target[falls], 1)
    np.add.at(steps, edges.source[falls], -1)
    is_spanned = np.cumsum(steps) > 0  # the step from this node to the next node
    is_inside = is_spanned.copy()
    is_inside[1:] |= is_spanned[:-1]
    kept = is_inside[edges.source] & is_inside[edges.target]
    return Edges._make(each[kept] for each in edges)


def _rows(edges: Edges) -> tuple[list[int], list[int], list[int]]:
    """Return the nodes, the start of each node's targets, and the targets as places of nodes."""
    nodes, both = np.unique(np.concatenate((edges.source, edges.target)), return_inverse=True)
    source, target = both[: len(edges.source)], both[len(edges.source) :]
    order = np.argsort(source, kind="stable")
    begins = np.searchsorted(source[order], np.arange(len(nodes) + 1))
    return nodes.tolist(), begins.tolist(), target[order].tolist()
