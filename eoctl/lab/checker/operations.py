"""Rules of sends, polls, commits and handled records, line by line."""

from __future__ import annotations

from array import array
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eoctl.lab.checker.histories import (
    BUFFER_FULL,
    NO_OFFSET,
    BadLineError,
    CommittedEnd,
    ReadEnd,
    ints,
    text_of,
)
from eoctl.lab.checker.rules import MAX_OF_A_KIND
from eoctl.lab.checker.values import ABORTED, COMMITTED, FirstOf
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from eoctl.lab.checker.histories import HistoryColumns, Operation, PartitionColumns
    from eoctl.lab.checker.rules import FoundLines
    from eoctl.lab.checker.values import PartitionValues, ReplicaValues, Situation

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]


# -- answers that producers got, in order: nonmonotonic-send, two-leaders.
#
# A process that sends before its previous send is answered sets no order. Only a value sent after
# an answer must have a higher offset.


SENT = "sent"


class LastAnswer(NamedTuple):
    """The highest offset acknowledged to a process in a partition."""

    offset: int
    hash: int
    line: int


class OpenSend(NamedTuple):
    """A send without an answer. `line` is the line of the request."""

    line: int
    columns: PartitionColumns
    hash: int | None
    before: LastAnswer | None
    transaction: int


class SendRules:
    """Collector of the lines of producers.

    Attributes:
        counts: lines by type. `SENT` counts `ok` without an offset, as with acks=0.
        dropped_count: records that the client never sent because its buffer was full.
    """

    def __init__(self, columns: HistoryColumns, found: FoundLines) -> None:
        self._columns = columns
        self._found = found
        self._last: dict[tuple[str, PartitionColumns], LastAnswer] = {}
        self.counts: dict[str, int] = {}
        self.dropped_count = 0

    def invoked(self, operation: Operation, line: int, transaction: int) -> OpenSend:
        """Take a request. Raises BadLineError."""
        fields = operation.fields
        columns = self._columns.of(fields.get("topic"), fields.get("partition"))
        text = text_of(fields.get("value"))
        self.counts["invoke"] = self.counts.get("invoke", 0) + 1
        value = None if text is None else hash(text)
        before = self._last.get((operation.process, columns))
        return OpenSend(line, columns, value, before, transaction)

    def answered(
        self, operation: Operation, line: int, asked: OpenSend | None, transaction: int
    ) -> None:
        """Take an answer. Raises BadLineError."""
        fields, kind = operation.fields, operation.type
        columns = self._columns.of(fields.get("topic"), fields.get("partition"))
        text = text_of(fields.get("value"))
        value = None if text is None else hash(text)
        if asked is not None and (asked.columns is not columns or asked.hash != value):
            raise BadLineError(f"another partition or value than was asked for as {operation.id}")
        offset = fields.get("offset", NO_OFFSET)
        if type(offset) is not int or not NO_OFFSET <= offset < INT64_MAX:
            raise BadLineError("an offset that is none")
        reported = SENT if kind == "ok" and offset == NO_OFFSET else kind
        self.counts[reported] = self.counts.get(reported, 0) + 1
        self.dropped_count += kind == "fail" and fields.get("error") == BUFFER_FULL
        invoked = 0 if asked is None else asked.line
        if kind == "ok":
            self._take_leader(operation, columns, line)
            if offset != NO_OFFSET:
                self._take_order(operation.process, columns, offset, value or 0, line, asked)
            if value is not None:
                columns.ack_hash.append(value)
                columns.ack_offset.append(offset)
                columns.ack_line.append(line)
                columns.ack_invoked.append(invoked)
                columns.ack_transaction.append(transaction)
        elif value is None:
            pass
        elif kind == "fail":
            columns.fail_hash.append(value)
            columns.fail_line.append(line)
            columns.fail_invoked.append(invoked)
        else:
            columns.info_hash.append(value)
            columns.info_line.append(line)
            columns.info_transaction.append(transaction)

    def _take_leader(self, operation: Operation, columns: PartitionColumns, line: int) -> None:
        leader, epoch = operation.fields.get("leader"), operation.fields.get("leader_epoch")
        if type(leader) is not int or type(epoch) is not int or not 0 <= epoch <= INT32_MAX:
            return
        other = columns.leaders.setdefault(epoch, (leader, line))
        if other[0] != leader:
            self._found.add(
                "two-leaders",
                columns.name,
                NO_OFFSET,
                (other[1], line),
                details=(other[0], leader, epoch),
            )

    def _take_order(
        self,
        process: str,
        columns: PartitionColumns,
        offset: int,
        value: int,
        line: int,
        asked: OpenSend | None,
    ) -> None:
        before = None if asked is None else asked.before
        if asked is not None and before is not None and offset < before.offset:
            self._found.add(
                "nonmonotonic-send",
                columns.name,
                offset,
                (before.line, asked.line, line),
                hash=value,
                other_hash=before.hash,
                details=(process, before.offset),
            )
        last = self._last.get((process, columns))
        if last is None or offset >= last.offset:
            self._last[process, columns] = LastAnswer(offset, value, line)


# -- records that consumers got, in order: nonmonotonic-poll, gaps for poll-skip, hw-back.
#
# A consumer continues at its position. `seek` moves it to an offset, or to an unknown position
# (null). Without a seek, the beginning of its first poll proves nothing.


READ_COMMITTED = "read_committed"


class _Position:
    """Position and start of a consumer in a partition, with `line` of its last poll."""

    __slots__ = ("line", "offset", "start_line", "start_offset")

    def __init__(self, offset: int, line: int) -> None:
        self.offset = self.start_offset = offset
        self.line = self.start_line = line


class GivenRecords(NamedTuple):
    """Records that a poll returned for one partition. A text is None without a value."""

    columns: PartitionColumns
    offsets: list[int]
    texts: list[str | None]


class PollRules:
    """Collector of the lines of consumers.

    Attributes:
        reads_count: records that were read.
    """

    def __init__(self, columns: HistoryColumns, found: FoundLines) -> None:
        self._columns = columns
        self._found = found
        self._positions: dict[tuple[str, PartitionColumns], _Position] = {}
        self.reads_count = 0

    def moved(self, operation: Operation, line: int) -> None:
        """Take the seeks of a poll. Raises BadLineError."""
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
        """Take the records of a poll, and return them. Raises BadLineError."""
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
        """Return the records of a line. Raises BadLineError."""
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
        columns.watermarks.report(process, offset, line)
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
    """Return the map of a line by partition, empty if it is missing. Raises BadLineError."""
    value = fields.get(name)
    if value is None:
        return []
    if type(value) is not dict:
        raise BadLineError(f"{name} that is no object")
    return [*value.items()]


def is_offset(value: object) -> bool:
    """Return whether a value can be an offset."""
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


# -- committed values that the last reader did not get: lost-commit.
#
# All replicas may have a value that no consumer gets. If its marker is lost, its transaction is
# open again. A read_committed reader then ends below it, and the next producer may abort it.


KIND = "lost-commit"


class CommitRules:
    """Judge of one partition, once its missing values are known."""

    def __init__(self, values: PartitionValues, situation: Situation, end: CommittedEnd) -> None:
        self._values = values
        self._situation = situation
        self._end = end
        marks = values.read_mark
        self._rows: Ints = np.flatnonzero(marks & 1 == 1)
        is_late = marks[self._rows] // 2 >= end.start_line
        self._given = values.read_hash[self._rows[is_late]]
        self._early: Ints = self._rows[~is_late]

    def judge(self, found: FoundLines, replicas: Sequence[ReplicaValues] | None) -> None:
        """Report committed values that exist, and that the last reader did not get."""
        if not self._situation.is_healed or self._end.line <= self._situation.healed_line:
            return
        known = self._reported(found, replicas)
        self._read(found, replicas, known)

    # -- values acknowledged as committed

    def _reported(self, found: FoundLines, replicas: Sequence[ReplicaValues] | None) -> Ints:
        """Report values acknowledged as committed, and return their hashes."""
        sent, end, fates = self._values.sent, self._end, self._situation.fates
        ended = fates.end_line[sent.transaction]
        counts = (
            (sent.fate == COMMITTED) & (sent.offset >= end.start_offset) & ~self._values.is_gone
        )
        counts &= (sent.line < end.start_line) & (ended < end.start_line)
        blocker = self._blocker(replicas) if end.is_below else ()
        if not blocker:
            counts &= sent.offset < end.end_offset
        rows = np.flatnonzero(counts)
        rows = rows[~np.isin(sent.hash[rows], self._given)]
        rest = len(rows) - MAX_OF_A_KIND
        reported = rows[:MAX_OF_A_KIND]
        shown = self._shown(sent.hash[reported], replicas)
        for row, line in zip(reported.tolist(), shown.tolist(), strict=True):
            lines = {int(sent.line[row]), int(ended[row]), end.start_line, end.line}
            offset = int(sent.offset[row])
            if blocker and offset >= end.end_offset:
                lines |= {*blocker}
            else:
                lines.add(line)
            self._add(found, offset, int(sent.hash[row]), lines, "told")
        found.add_more(KIND, max(rest, 0))
        return sent.hash[rows]

    def _shown(self, wanted: Ints, replicas: Sequence[ReplicaValues] | None) -> Ints:
        """Return the line that first read each value, 0 without a line or if replicas were read."""
        lines = self._values.read_mark // 2
        place = FirstOf(self._values.read_hash, lines).places(wanted)
        if replicas is not None or not len(lines):
            return np.zeros(len(wanted), np.int64)
        return np.where(place >= 0, lines[place], 0)

    def _blocker(self, replicas: Sequence[ReplicaValues] | None) -> tuple[int, ...]:
        """Return the lines that show the end of the blocking transaction, () if it may be open."""
        values, offset, fates = self._values, self._end.end_offset, self._situation.fates
        here = [
            values.sent.hash[values.sent.offset == offset],
            values.read_hash[values.read_offset == offset],
            *(each.hash[each.offset == offset] for each in replicas or ()),
        ]
        wanted = np.unique(np.concatenate(here))
        for written in (values.sent, values.unsure):
            for row in np.flatnonzero(np.isin(written.hash, wanted)).tolist():
                ended = int(fates.end_line[written.transaction[row]])
                if 0 < ended < self._end.start_line:
                    return int(written.line[row]), ended
        return ()

    # -- values read as committed

    def _read(
        self, found: FoundLines, replicas: Sequence[ReplicaValues] | None, known: Ints
    ) -> None:
        """Report values read as committed before. All transactions below them had ended then."""
        values, end, fates = self._values, self._end, self._situation.fates
        first = FirstOf(values.read_hash[self._early], values.read_mark[self._early])
        rows = self._early[first.order]
        offset = values.read_offset[rows]
        counts = offset >= end.start_offset
        if not end.is_below:
            counts &= offset < end.end_offset
        rows = rows[counts]
        rows = rows[~np.isin(values.read_hash[rows], np.concatenate((self._given, known)))]
        if replicas is not None:
            there = np.concatenate([each.hash for each in replicas])
            rows = rows[np.isin(values.read_hash[rows], there)]
        if not len(rows):
            return
        sent, unsure = values.sent, values.unsure
        value = np.concatenate((sent.hash, unsure.hash))
        transaction = np.concatenate((sent.transaction, unsure.transaction))
        line = np.concatenate((sent.line, unsure.line))
        at = FirstOf(value, line).places(values.read_hash[rows])
        rows, at = rows[at >= 0], at[at >= 0]
        # Aborted values are G1a. Other rules report missing values outside transactions.
        is_wrong = (transaction[at] >= 0) & (fates.fate[transaction[at]] != ABORTED)
        for place in np.flatnonzero(is_wrong).tolist():
            row, number = int(rows[place]), int(transaction[at[place]])
            ended = int(fates.end_line[number]) or int(fates.asked_line[number])
            lines = {
                int(line[at[place]]), ended, int(values.read_mark[row]) // 2, end.start_line,
                end.line,
            }  # fmt: skip
            offset_of = int(values.read_offset[row])
            self._add(found, offset_of, int(values.read_hash[row]), lines, "read")

    def _add(self, found: FoundLines, offset: int, value: int, lines: set[int], how: str) -> None:
        end = self._end
        where = end.end_offset if end.is_below and offset >= end.end_offset else -1
        found.add(KIND, self._values.name, offset, lines, hash=value, details=(how, where))


# -- records that consumers handled: never-handled, handled-twice.
#
# For consumers whose history has their commits (`offset-commit`) and handled records (`handle`).
# The results are no fault of a cluster, because they follow from the time of the commits. A history
# without handled records is not judged.


_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two offsets give the same product


class _Consumer:
    """One process in one partition.

    Attributes:
        start: the first offset that it had to get, -1 while unknown.
        pass_offset, pass_line: where it continues from then on: committed offsets and seeks.
        has_committed: it has committed at least once.
        handled_offset, handled_hash, handled_line: records that it has handled.
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
    """Collector of the commits and handled records of consumers.

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
        """Take the seeks of a poll. Raises BadLineError."""
        for name, offset in mapping_of(operation.fields, "seek"):
            if offset is not None:
                consumer = self._of(operation.process, self._columns.named(name))
                consumer.start = offset if consumer.start < 0 else consumer.start
                consumer.goes_on(offset, line)

    def given(self, operation: Operation, given: Iterable[GivenRecords]) -> None:
        """Take the records of a poll."""
        is_committed = operation.fields.get("isolation") == READ_COMMITTED
        for each in given:
            if each.offsets:
                consumer = self._of(operation.process, each.columns)
                consumer.is_read_committed |= is_committed
                if consumer.start < 0:
                    consumer.start = each.offsets[0]

    def committed(self, operation: Operation, line: int) -> None:
        """Take a commit or its request. Raises BadLineError."""
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
        """Take the records that a process has handled."""
        for each in given:
            consumer = self._of(process, each.columns)
            self.handled_count += len(each.offsets)
            for offset, text in zip(each.offsets, each.texts, strict=True):
                if text is not None:
                    consumer.handled_offset.append(offset)
                    consumer.handled_hash.append(hash(text))
                    consumer.handled_line.append(line)

    def judge(self) -> None:
        """Report records handled twice, and records never handled."""
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
    """Return a number for each offset with its value."""
    mixed: NDArray[np.uint64] = offset.view(np.uint64) * _SPREAD ^ value.view(np.uint64)
    return mixed


def _last_read(columns: PartitionColumns, *, is_committed: bool) -> tuple[Ints, Ints, Ints]:
    """Return the last value read at each offset, and the mark of the line that first gave it."""
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
