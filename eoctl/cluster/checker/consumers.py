"""What consumers did with what they were given: never-handled, handled-twice.

Of consumers whose history says what they have committed (`offset-commit`) and what they have done
with (`handle`). No fault of a cluster: it follows from when they commit. Where nobody tells what
was handled, nothing is judged.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from eoctl.cluster.checker.columns import BadLineError, ints
from eoctl.cluster.checker.polls import READ_COMMITTED, is_offset, mapping_of
from eoctl.cluster.checker.verdict import MAX_OF_A_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from eoctl.cluster.checker.columns import HistoryColumns, Ints, PartitionColumns
    from eoctl.cluster.checker.polls import GivenRecords
    from eoctl.cluster.checker.reader import Operation
    from eoctl.cluster.checker.verdict import FoundLines

_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # an odd number: no two offsets come to the same


class _Consumer:
    """One process in one partition.

    Attributes:
        start: the first offset that it was to be given; -1: not known yet.
        pass_offset, pass_line: where it goes on from then: what it has committed, or began at.
        has_committed: it has, once at least.
        handled_offset, handled_hash, handled_line: records that it has done with.
    """

    def __init__(self) -> None:
        self.start = -1
        self.is_read_committed = False
        self.has_committed = False
        self.pass_offset, self.pass_line = array("q"), array("q")
        self.handled_offset, self.handled_hash = array("q"), array("q")
        self.handled_line = array("q")

    def goes_on(self, offset: int, line: int) -> None:
        self.pass_offset.append(offset)
        self.pass_line.append(line)


class ConsumerRules:
    """Takes the lines of consumers.

    Attributes:
        handled_count: records that were handled.
    """

    def __init__(self, columns: HistoryColumns, found: FoundLines) -> None:
        self._columns = columns
        self._found = found
        self._consumers: dict[tuple[str, PartitionColumns], _Consumer] = {}
        self.handled_count = 0

    def _of(self, process: str, columns: PartitionColumns) -> _Consumer:
        consumer = self._consumers.get((process, columns))
        if consumer is None:
            consumer = self._consumers[process, columns] = _Consumer()
        return consumer

    def moved(self, operation: Operation, line: int) -> None:
        """Take where a poll begins, which is good. Raises BadLineError: it is not."""
        for name, offset in mapping_of(operation.fields, "seek"):
            if offset is not None:
                consumer = self._of(operation.process, self._columns.named(name))
                consumer.start = offset if consumer.start < 0 else consumer.start
                consumer.goes_on(offset, line)

    def given(self, operation: Operation, given: Iterable[GivenRecords]) -> None:
        """Take what a poll gave."""
        is_committed = operation.fields.get("isolation") == READ_COMMITTED
        for each in given:
            if each.offsets:
                consumer = self._of(operation.process, each.columns)
                consumer.is_read_committed |= is_committed
                if consumer.start < 0:
                    consumer.start = each.offsets[0]

    def committed(self, operation: Operation, line: int) -> None:
        """Take what was committed, or asked for. Raises BadLineError."""
        commits = []
        for name, offset in mapping_of(operation.fields, "offsets"):
            if not is_offset(offset):
                raise BadLineError(f"committed offset {str(offset)[:20]}")
            commits.append((self._columns.named(name), offset))
        if not commits:
            raise BadLineError("no offsets that are committed")
        if operation.type == "ok":
            for columns, offset in commits:
                consumer = self._of(operation.process, columns)
                consumer.has_committed = True
                consumer.goes_on(offset, line)

    def handled(self, process: str, given: Iterable[GivenRecords], line: int) -> None:
        """Take what it has done with."""
        for each in given:
            consumer = self._of(process, each.columns)
            self.handled_count += len(each.offsets)
            for offset, text in zip(each.offsets, each.texts, strict=True):
                if text is not None:
                    consumer.handled_offset.append(offset)
                    consumer.handled_hash.append(hash(text))
                    consumer.handled_line.append(line)

    def judge(self) -> None:
        """Find what was handled twice, and what was passed over."""
        if not self.handled_count:
            return
        for (process, columns), consumer in sorted(
            self._consumers.items(), key=lambda each: (each[0][1].name, each[0][0])
        ):
            handled = _keys(ints(consumer.handled_offset), ints(consumer.handled_hash))
            self._twice(process, columns, consumer, handled)
            if consumer.has_committed:
                self._never(process, columns, consumer, handled)

    def _twice(
        self,
        process: str,
        columns: PartitionColumns,
        consumer: _Consumer,
        handled: NDArray[np.uint64],
    ) -> None:
        order = np.argsort(handled, kind="stable")
        is_same = handled[order[1:]] == handled[order[:-1]]
        pairs = sorted(zip(order[1:][is_same].tolist(), order[:-1][is_same].tolist(), strict=True))
        for other, first in pairs:
            self._found.add(
                "handled-twice",
                columns.name,
                consumer.handled_offset[other],
                (consumer.handled_line[first], consumer.handled_line[other]),
                hash=consumer.handled_hash[other],
                details=(process,),
            )

    def _never(
        self,
        process: str,
        columns: PartitionColumns,
        consumer: _Consumer,
        handled: NDArray[np.uint64],
    ) -> None:
        offset, value, mark = _last_read(columns, is_committed=consumer.is_read_committed)
        is_passed = (offset >= max(consumer.start, 0)) & (offset < consumer.pass_offset[-1])
        is_left = is_passed & ~np.isin(_keys(offset, value), handled)
        passes, pass_lines = ints(consumer.pass_offset), ints(consumer.pass_line)
        lines = ints(consumer.handled_line)
        places = np.flatnonzero(is_left)
        for place in places[:MAX_OF_A_KIND].tolist():
            read_line = int(mark[place]) // 2
            after = np.flatnonzero((passes > offset[place]) & (pass_lines > read_line))
            passed = int(pass_lines[after[0] if len(after) else -1])
            at = min(int(np.searchsorted(lines, read_line)), len(lines) - 1)
            self._found.add(
                "never-handled",
                columns.name,
                int(offset[place]),
                {read_line, passed, int(lines[at]) if len(lines) else 0},
                hash=int(value[place]),
                details=(process,),
            )
        self._found.add_more("never-handled", max(len(places) - MAX_OF_A_KIND, 0))


def _keys(offset: Ints, value: Ints) -> NDArray[np.uint64]:
    """A number of each offset with its value."""
    mixed: NDArray[np.uint64] = offset.view(np.uint64) * _SPREAD ^ value.view(np.uint64)
    return mixed


def _last_read(columns: PartitionColumns, *, is_committed: bool) -> tuple[Ints, Ints, Ints]:
    """Of each offset what was read there last, and the mark of the line that first gave it."""
    offset, value = ints(columns.read_offset), ints(columns.read_hash)
    mark = ints(columns.read_line)
    if is_committed:
        rows = np.flatnonzero(mark & 1 == 1)
        offset, value, mark = offset[rows], value[rows], mark[rows]
    order = np.lexsort((mark, offset))
    is_end = np.append(offset[order[1:]] != offset[order[:-1]], True)[: len(order)]
    last = order[is_end]
    keys, first = np.unique(_keys(offset, value), return_index=True)
    given = first[np.searchsorted(keys, _keys(offset[last], value[last]))]
    return offset[last], value[last], mark[given]
