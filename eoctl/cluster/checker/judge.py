"""The way of a check: histories line by line, then each partition with its replicas, then words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.cluster.checker.columns import NO_TRANSACTION, BadLineError, HistoryColumns
from eoctl.cluster.checker.commits import CommitRules
from eoctl.cluster.checker.consumers import ConsumerRules
from eoctl.cluster.checker.directories import compare_contents, damage_of, lag_of
from eoctl.cluster.checker.polls import PollRules
from eoctl.cluster.checker.reader import HistoryReader, HistorySource
from eoctl.cluster.checker.sends import OpenSend, SendRules
from eoctl.cluster.checker.transactions import TransactionRules
from eoctl.cluster.checker.values import PartitionValues, Situation
from eoctl.cluster.checker.verdict import MAX_OF_A_KIND, FoundLines, HistoryProblem, HistoryVerdict
from eoctl.cluster.checker.witness import Witnesses
from storage.os_errors import os_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eoctl.cluster.checker.columns import PartitionColumns
    from eoctl.cluster.checker.directories import ReplicaContent
    from eoctl.cluster.checker.reader import Operation
    from storage.file_names import TopicPartition

    ReplicasOf = Callable[[TopicPartition], Sequence[ReplicaContent] | None]


class _Problems:
    """Lines that could not be judged as they should; the first of them are kept."""

    def __init__(self) -> None:
        self.kept: list[HistoryProblem] = []
        self.count = 0

    def add(self, history: str, line: int, why: str) -> None:
        self.count += 1
        if self.count <= MAX_OF_A_KIND:
            self.kept.append(HistoryProblem(history, line, why))


class _Histories:
    """Takes the lines of all histories."""

    def __init__(self) -> None:
        self.found = FoundLines()
        self.columns = HistoryColumns()
        self.sends = SendRules(self.columns, self.found)
        self.polls = PollRules(self.columns, self.found)
        self.consumers = ConsumerRules(self.columns, self.found)
        self.transactions = TransactionRules(self.found)
        self.problems = _Problems()
        self.torn: list[str] = []
        self.begins: list[int] = []  # the number of the line before the first one of each history
        self.lines_count = 0
        self.is_healed = True
        self.healed_line = 0
        self.open_sends: dict[PartitionColumns, list[tuple[int, int, int]]] = {}
        self._open: dict[str, dict[int, OpenSend | str]] = {}

    def take(self, source: HistorySource) -> None:
        """Read a history. Raises RefusedError, AccessError."""
        begin = self.lines_count
        self.begins.append(begin)
        with os_errors(source.name), source.open() as file:
            reader = HistoryReader(file, source.name)
            for operation in reader:
                try:
                    self._take(operation, begin + operation.line, source.name)
                except BadLineError as error:
                    self.problems.add(source.name, operation.line, str(error))
        for line, why in reader.skipped:
            self.problems.add(source.name, line, why)
        if reader.is_torn:
            self.torn.append(source.name)
        self.lines_count = begin + reader.lines_count
        for each in self._open.values():
            for asked in each.values():
                if isinstance(asked, OpenSend) and asked.hash is not None:
                    rows = self.open_sends.setdefault(asked.columns, [])
                    rows.append((asked.hash, asked.line, asked.transaction))
        self._open.clear()

    def _take(self, operation: Operation, line: int, name: str) -> None:
        kind, op, process = operation.type, operation.op, operation.process
        if op in {"fault", "heal"}:
            self.is_healed = op == "heal"
            self.healed_line = line if self.is_healed else self.healed_line
            return
        if kind == "invoke":
            waiting = self._open.get(process)
            if waiting is None:
                waiting = self._open[process] = {}
            if operation.id in waiting:
                raise BadLineError(
                    f"operation {operation.id} of {process} is begun again, and was not answered"
                )
            waiting[operation.id] = self._invoked(operation, line)
            return
        asked = self._open.get(process, {}).pop(operation.id, None)
        if asked is None and op != "handle":
            self.problems.add(
                name, operation.line,
                f"answers operation {operation.id} of {process}, which no line before has begun",
            )  # fmt: skip
        elif asked is not None and (op if isinstance(asked, str) else "send") != (
            asked if isinstance(asked, str) else op
        ):
            raise BadLineError(
                f"operation {operation.id} of {process} was begun as another one than {op}"
            )
        if op == "send":
            sent = asked if isinstance(asked, OpenSend) else None
            number = NO_TRANSACTION if sent is None else sent.transaction
            if number == NO_TRANSACTION:
                number = self.transactions.number_of(operation)
            self.sends.answered(operation, line, sent, number)
        elif op == "poll":
            if kind == "ok":
                given = self.polls.given(operation, line)
                self.consumers.given(operation, given)
                self.transactions.read(operation, given, line)
        elif op == "handle":
            if kind == "ok":
                self.consumers.handled(process, self.polls.records(operation), line)
        elif op == "offset-commit":
            self.consumers.committed(operation, line)
        else:
            self.transactions.take(operation, line)

    def _invoked(self, operation: Operation, line: int) -> OpenSend | str:
        if operation.op == "send":
            return self.sends.invoked(operation, line, self.transactions.number_of(operation))
        if operation.op == "poll":
            self.polls.moved(operation, line)
            self.consumers.moved(operation, line)
        elif operation.op == "offset-commit":
            self.consumers.committed(operation, line)
        elif operation.op == "handle":
            self.polls.records(operation)
        else:
            self.transactions.take(operation, line)
        return operation.op


def judge(
    sources: Sequence[HistorySource],
    replicas_of: ReplicasOf = lambda _: None,
    *,
    checks: bool = True,
) -> HistoryVerdict:
    """Judge histories, and what `replicas_of` gives of each partition (None: not looked at).

    `checks`: look for damage in the replicas, too.

    Raises:
        RefusedError: no history. AccessError: something cannot be read.
    """
    taken = _Histories()
    for each in sources:
        taken.take(each)
    found = taken.found
    is_whole = not taken.problems.count and not taken.torn
    is_whole &= all(each.has_ended for each in sources)
    fates = taken.transactions.fates(is_whole=is_whole)
    situation = Situation(taken.is_healed, taken.healed_line, fates)
    judged = []
    replicas_count = 0
    texts: dict[str, Sequence[ReplicaContent]] = {}
    for _, columns in sorted(taken.columns.by_key.items()):
        values = PartitionValues(columns, situation, taken.open_sends.get(columns, ()))
        for line, before in values.repeated:
            place, history = _history_of(line, sources, taken.begins)
            first, other = _history_of(before, sources, taken.begins)
            where = "" if other == history else f" of {other}"
            taken.problems.add(
                history, place, f"its value was sent before, in line {first}{where}: not judged"
            )
        replicas = replicas_of(columns.key)
        if replicas:
            compare_contents(found, columns.name, replicas, is_healed=taken.is_healed)
            if taken.is_healed and taken.healed_line:
                lag_of(found, columns, replicas, taken.healed_line)
            if checks:
                damage_of(found, columns.name, replicas)
            replicas_count += len(replicas)
            texts[columns.name] = replicas
        contents = [each.values for each in replicas] if replicas else None
        values.judge(found, contents)
        if columns.committed_end is not None:
            CommitRules(values, situation, columns.committed_end).judge(found, contents)
        judged.append(values)
    taken.transactions.judge(judged, fates)
    taken.consumers.judge()
    findings = Witnesses(sources, taken.begins, texts).tell(found)
    return HistoryVerdict(
        findings=findings,
        counts=found.counts,
        problems=(*sorted(taken.problems.kept, key=lambda each: (each.history, each.line)),),
        problems_count=taken.problems.count,
        torn=(*taken.torn,),
        lines_count=taken.lines_count,
        sends=taken.sends.counts,
        dropped_count=taken.sends.dropped_count,
        reads_count=taken.polls.reads_count,
        handled_count=taken.consumers.handled_count,
        partitions=tuple(each.key for _, each in sorted(taken.columns.by_key.items())),
        replicas_count=replicas_count,
        is_healed=taken.is_healed,
    )


def _history_of(
    line: int, sources: Sequence[HistorySource], begins: Sequence[int]
) -> tuple[int, str]:
    place = max(number for number, begin in enumerate(begins) if begin < line)
    return line - begins[place], sources[place].name
