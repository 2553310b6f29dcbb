"""What consumers were given, in order: nonmonotonic-poll, gaps for poll-skip, hw-back.

A consumer goes on where it was. It is moved by `seek`: to an offset, or to one that is not known
(null). Where its first poll begins says nothing if it was not.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.cluster.checker.columns import BadLineError, CommittedEnd, ReadEnd, text_of
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from eoctl.cluster.checker.columns import HistoryColumns, PartitionColumns
    from eoctl.cluster.checker.reader import Operation
    from eoctl.cluster.checker.verdict import FoundLines

READ_COMMITTED = "read_committed"


class _Position:
    """Where a consumer is in a partition, and since when; `line` of its last poll."""

    __slots__ = ("line", "offset", "start_line", "start_offset")

    def __init__(self, offset: int, line: int) -> None:
        self.offset = self.start_offset = offset
        self.line = self.start_line = line


class GivenRecords(NamedTuple):
    """What a poll gave of one partition; a text is None where there is no value."""

    columns: PartitionColumns
    offsets: list[int]
    texts: list[str | None]


class PollRules:
    """Takes the lines of consumers.

    Attributes:
        reads_count: records that were read.
    """

    def __init__(self, columns: HistoryColumns, found: FoundLines) -> None:
        self._columns = columns
        self._found = found
        self._positions: dict[tuple[str, PartitionColumns], _Position] = {}
        self.reads_count = 0

    def moved(self, operation: Operation, line: int) -> None:
        """Take what a poll says of where the consumer was moved. Raises BadLineError."""
        moves = []
        for name, offset in mapping_of(operation.fields, "seek"):
            if offset is not None and not is_offset(offset):
                raise BadLineError(f"seek to {str(offset)[:20]}")
            moves.append((self._columns.named(name), offset))
        for columns, offset in moves:
            if offset is None:
                self._positions.pop((operation.process, columns), None)
            else:
                self._positions[operation.process, columns] = _Position(offset, line)

    def given(self, operation: Operation, line: int) -> list[GivenRecords]:
        """Take what a poll gave, and give it back. Raises BadLineError."""
        fields, process = operation.fields, operation.process
        given = self.records(operation)
        epochs = dict(mapping_of(fields, "leader_epoch"))
        marks: list[tuple[PartitionColumns, int, int | None]] = []
        for name, offset in mapping_of(fields, "high_watermark"):
            epoch = epochs.get(name)
            if not is_offset(offset) or not (epoch is None or type(epoch) is int):
                raise BadLineError(f"high watermark {str(offset)[:20]}")
            marks.append((self._columns.named(name), offset, epoch))
        reached = []
        for name, offset in mapping_of(fields, "position"):
            if not is_offset(offset):
                raise BadLineError(f"position {str(offset)[:20]}")
            reached.append((self._columns.named(name), offset))
        is_committed = fields.get("isolation") == READ_COMMITTED
        if "seek" in fields:
            self.moved(operation, line)
        for each in given:
            self._take(process, line, each, is_committed=is_committed)
        for columns, offset in reached:
            position = self._positions.get((process, columns))
            if position is None:
                self._positions[process, columns] = _Position(offset, line)
            elif offset > position.offset:
                _gap(columns, position.offset, offset, (position.line, line), 2 * is_committed)
                position.offset, position.line = offset, line
        for columns, offset, epoch in marks:
            self._take_watermark(process, columns, offset, epoch, line)
            if fields.get("final") is True:
                self._take_end(operation, columns, offset, line)
        return given

    def records(self, operation: Operation) -> list[GivenRecords]:
        """The records of a line. Raises BadLineError."""
        return [self._records(*each) for each in mapping_of(operation.fields, "records")]

    def _records(self, name: str, records: Any) -> GivenRecords:
        if type(records) is not list:
            raise BadLineError(f"records of {name[:40]!r} that are no list")
        try:
            offsets = [*map(itemgetter(0), records)]
            values = [*map(itemgetter(1), records)]
        except (TypeError, LookupError):
            raise BadLineError("a record that is not [offset, value]") from None
        for each in offsets:
            if type(each) is not int or not 0 <= each < INT64_MAX:
                raise BadLineError("a record whose offset is none")
        texts = [each if type(each) is str else text_of(each) for each in values]
        return GivenRecords(self._columns.named(name), offsets, texts)

    def _take(self, process: str, line: int, given: GivenRecords, *, is_committed: bool) -> None:
        columns, offsets, texts = given
        if not offsets:
            return
        self.reads_count += len(offsets)
        position = self._positions.get((process, columns))
        first, last = offsets[0], offsets[-1]
        if position is None:
            position = self._positions[process, columns] = _Position(first, line)
        elif first < position.offset:
            self._found.add(
                "nonmonotonic-poll",
                columns.name,
                first,
                (position.line, line),
                hash=_hash(texts[0]),
                details=(process, position.offset - 1),
            )
        elif first > position.offset:
            _gap(columns, position.offset, first, (position.line, line), 2 * is_committed)
        if last - first != len(offsets) - 1 or sorted(set(offsets)) != offsets:
            self._within(process, line, given, is_committed=is_committed)
        position.offset, position.line = last + 1, line
        mark = 2 * line + is_committed
        if None in texts:
            valued = [place for place, text in enumerate(texts) if text is not None]
            hashes = [hash(texts[place]) for place in valued]
            offsets = [offsets[place] for place in valued]
        else:
            hashes = [*map(hash, texts)]
        columns.read_hash.extend(hashes)
        columns.read_offset.extend(offsets)
        columns.read_line.extend([mark] * len(offsets))

    def _within(self, process: str, line: int, given: GivenRecords, *, is_committed: bool) -> None:
        columns, offsets, texts = given
        expected = offsets[0]
        for offset, text in zip(offsets, texts, strict=True):
            if offset < expected:
                self._found.add(
                    "int-nonmonotonic-poll",
                    columns.name,
                    offset,
                    (line,),
                    hash=_hash(text),
                    details=(process, expected - 1),
                )
            elif offset > expected:
                _gap(columns, expected, offset, (line, line), 1 + 2 * is_committed)
            expected = offset + 1

    def _take_watermark(
        self, process: str, columns: PartitionColumns, offset: int, epoch: int | None, line: int
    ) -> None:
        columns.watermarks.tell(process, offset, line)
        if epoch is None or not 0 <= epoch <= INT32_MAX:
            return
        in_epoch = columns.watermarks.in_epoch
        before = in_epoch.get((process, epoch))
        if before is not None and offset < before[0]:
            self._found.add(
                "hw-back",
                columns.name,
                offset,
                (before[1], line),
                details=(before[0], offset, f" in leader epoch {epoch}"),
            )
        in_epoch[process, epoch] = (offset, line)

    def _take_end(
        self, operation: Operation, columns: PartitionColumns, high_watermark: int, line: int
    ) -> None:
        position = self._positions.get((operation.process, columns))
        if position is None:
            return
        fields, is_below = operation.fields, position.offset < high_watermark
        if fields.get("isolation") == READ_COMMITTED and (
            not is_below or fields.get("ended") is True
        ):
            columns.committed_end = CommittedEnd(
                start_offset=position.start_offset,
                end_offset=position.offset,
                start_line=position.start_line,
                line=line,
                is_below=is_below,
            )
        if not is_below:
            columns.last_end = ReadEnd(
                start_offset=position.start_offset,
                end_offset=high_watermark,
                start_line=position.start_line,
                line=line,
            )


def mapping_of(fields: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    """A map of a line by partition; none is an empty one. Raises BadLineError."""
    value = fields.get(name)
    if value is None:
        return []
    if type(value) is not dict:
        raise BadLineError(f"{name} that is no object")
    return [*value.items()]


def is_offset(value: object) -> bool:
    """Whether it can be one."""
    return type(value) is int and 0 <= value < INT64_MAX


def _hash(text: str | None) -> int | None:
    return None if text is None else hash(text)


def _gap(
    columns: PartitionColumns, start: int, end: int, lines: tuple[int, int], flags: int
) -> None:
    columns.gap_start.append(start)
    columns.gap_end.append(end)
    columns.gap_line.append(4 * lines[1] + flags)
    if not flags & 1:
        columns.gap_before.append(lines[0])
