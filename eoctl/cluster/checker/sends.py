"""What producers were told, in order: nonmonotonic-send, two-leaders.

A process that sends before the one before was answered has said no order: only what it sends after
an answer has to come behind that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.cluster.checker.columns import NO_OFFSET, BadLineError, text_of
from eoctl.cluster.checker.reader import BUFFER_FULL
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from eoctl.cluster.checker.columns import HistoryColumns, PartitionColumns
    from eoctl.cluster.checker.reader import Operation
    from eoctl.cluster.checker.verdict import FoundLines


SENT = "sent"


class LastAnswer(NamedTuple):
    """The highest offset that a process was told of a partition."""

    offset: int
    hash: int
    line: int


class OpenSend(NamedTuple):
    """A send that has no answer yet. `line` of what was asked; `transaction`: number, or none."""

    line: int
    columns: PartitionColumns
    hash: int | None
    before: LastAnswer | None
    transaction: int


class SendRules:
    """Takes the lines of producers.

    Attributes:
        counts: of lines, by type; `SENT`: of `ok` without an offset, as with acks=0.
        dropped_count: of records that the client had no room for, and never sent.
    """

    def __init__(self, columns: HistoryColumns, found: FoundLines) -> None:
        self._columns = columns
        self._found = found
        self._last: dict[tuple[str, PartitionColumns], LastAnswer] = {}
        self.counts: dict[str, int] = {}
        self.dropped_count = 0

    def invoked(self, operation: Operation, line: int, transaction: int) -> OpenSend:
        """Take what was asked. Raises BadLineError."""
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
        told = SENT if kind == "ok" and offset == NO_OFFSET else kind
        self.counts[told] = self.counts.get(told, 0) + 1
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
