"""Findings in words, each with the lines of the histories that show it.

This module reads the histories once more for these lines. It drops findings that result from two
values with the same hash.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.checker.directories import compare_contents, damage_of, lag_of
from eoctl.lab.checker.histories import (
    MAX_LINE_BYTES,
    NO_TRANSACTION,
    BadLineError,
    HistoryColumns,
    HistoryReader,
    HistorySource,
    text_of,
)
from eoctl.lab.checker.operations import CommitRules, ConsumerRules, OpenSend, PollRules, SendRules
from eoctl.lab.checker.rules import (
    MAX_OF_A_KIND,
    RULES,
    FoundLine,
    FoundLines,
    HistoryFinding,
    HistoryProblem,
    HistoryVerdict,
    WitnessLine,
)
from eoctl.lab.checker.transactions import TransactionRules
from eoctl.lab.checker.values import PartitionValues, Situation
from storage.errors import os_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eoctl.lab.checker.directories import ReplicaContent
    from eoctl.lab.checker.histories import Operation, PartitionColumns
    from storage.file_names import TopicPartition

    ReplicasOf = Callable[[TopicPartition], Sequence[ReplicaContent] | None]


MAX_TEXT = 60
UNNAMED = "a value"


class _ReadLine(NamedTuple):
    history: str
    line: int
    fields: dict[str, Any]


class Witnesses:
    """Reader of the lines and values that findings refer to."""

    def __init__(
        self,
        sources: Sequence[HistorySource],
        begins: Sequence[int],
        replicas: Mapping[str, Sequence[ReplicaContent]],
    ) -> None:
        self._sources = sources
        self._begins = begins
        self._replicas = replicas

    def report(self, found: FoundLines) -> tuple[HistoryFinding, ...]:
        """Describe findings in words, and drop findings that the lines do not confirm.

        Raises:
            AccessError: a history cannot be read once more.
        """
        wanted = {line for each in found.kept for line in each.lines}
        lines = self._read(wanted)
        reported = []
        for each in found.kept:
            here = [lines[line] for line in each.lines if line in lines]
            texts = {text for one in here for text in _texts_of(one.fields, each.hash)}
            if len(texts) > 1:
                found.counts[each.kind] -= 1
                if not found.counts[each.kind]:
                    del found.counts[each.kind]
                continue
            reported.append(self._finding(each, here, texts))
        reported.sort(key=_rank)
        return (*reported,)

    def _read(self, wanted: set[int]) -> dict[int, _ReadLine]:
        lines: dict[int, _ReadLine] = {}
        ends = [*self._begins[1:], None]
        for source, begin, end in zip(self._sources, self._begins, ends, strict=True):
            here = {
                each - begin for each in wanted if begin < each and (end is None or each <= end)
            }
            if not here:
                continue
            last = max(here)
            with os_errors(source.name), source.open() as file:
                number = 0
                while number < last and (line := file.readline(MAX_LINE_BYTES)):
                    if line.endswith(b"\n") or len(line) < MAX_LINE_BYTES:
                        number += 1
                        if number in here:
                            fields = json.loads(line)
                            lines[begin + number] = _ReadLine(source.name, number, fields)
        return lines

    def _finding(self, found: FoundLine, lines: list[_ReadLine], texts: set[str]) -> HistoryFinding:
        value = next(iter(texts), None)
        if value is None and found.hash is not None:
            value = self._text_in_replica(found, found.hash)
        other = {text for one in lines for text in _texts_of(one.fields, found.other_hash)}
        words = _words(found, _short(value), _short(next(iter(other), None)))
        witness = tuple(
            WitnessLine(each.history, each.line, _sentence(each.fields, found, value))
            for each in lines
        )
        return HistoryFinding(
            kind=found.kind,
            partition=found.partition,
            offset=found.offset,
            value=value or "",
            words=words,
            line=witness[-1].line if witness else 0,
            witness=witness,
        )

    def _text_in_replica(self, found: FoundLine, wanted: int) -> str | None:
        for each in self._replicas.get(found.partition, ()):
            text = each.text_at(found.offset)
            if text is not None and hash(text) == wanted:
                return text
        return None


def _rank(finding: HistoryFinding) -> tuple[int, str, int, int]:
    return [*RULES].index(finding.kind), finding.partition, finding.offset, finding.line


def _texts_of(fields: dict[str, Any], wanted: int | None) -> Iterator[str]:
    """Yield the values of a line that have a hash."""
    if wanted is None:
        return
    values = [fields.get("value")]
    records = fields.get("records")
    if type(records) is dict:
        values += [record[1] for each in records.values() for record in each]
    for value in values:
        try:
            text = text_of(value)
        except BadLineError:
            continue
        if text is not None and hash(text) == wanted:
            yield text


def _short(text: str | None) -> str:
    if text is None:
        return UNNAMED
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}\N{HORIZONTAL ELLIPSIS}"


# --- findings -------------------------------------------------------------------------------------


def _reported(offset: int) -> str:
    """Return the producer's answer for a record. With acks=0 the answer has no offset."""
    return f"was acknowledged at offset {offset}" if offset >= 0 else "was sent with acks=0"


def _words(found: FoundLine, value: str, other: str) -> str:
    details = found.details
    match found.kind:
        case "lost-write":
            where = "is in no replica" if details[0] else "was not there when it was read"
            return f"{value} {_reported(found.offset)}, and {where}"
        case "unseen":
            reported = _reported(found.offset).partition(" at offset")[0]
            return f"{value} {reported}, and nobody has looked: it may still be there"
        case "precommitted-read":
            return _words_of_early_read(found, value)
        case "duplicate":
            where = f" in {details[2]}" if len(details) > 2 else ""
            return f"{value} is at offset {details[0]} and at {details[1]}{where}"
        case "inconsistent-offsets":
            where = f" in {details[0]}" if details else ""
            return f"offset {found.offset} was {other}, and is {value}{where}"
        case "G1a":
            if details[0] == "aborted":
                return f"{value} was aborted, and read as committed at offset {found.offset}"
            where = f" in {details[1]}" if details[1] else ""
            return f"{value} was told to have failed, and is at offset {found.offset}{where}"
        case "lost-commit":
            return _words_of_lost_commit(found, value)
        case "nonmonotonic-poll":
            return f"{details[0]} is given offset {found.offset} after {details[1]}"
        case "int-nonmonotonic-poll":
            return f"{details[0]} is given offset {found.offset} after {details[1]} in one poll"
        case "poll-skip" | "int-poll-skip":
            within = " in one poll" if found.kind.startswith("int-") else ""
            return f"a reader passed over offset {found.offset}{within}, which holds {value}"
        case "never-handled":
            return (
                f"{details[0]} goes on behind {value} at offset {found.offset}, and has never"
                " handled it"
            )
        case "handled-twice":
            return f"{details[0]} has handled {value} at offset {found.offset} twice"
        case "hw-back":
            return f"the high watermark was {details[0]}, and is {details[1]} now{details[2]}"
    return _words_of_brokers(found, value, other)


def _words_of_brokers(found: FoundLine, value: str, other: str) -> str:
    details = found.details
    match found.kind:
        case "nonmonotonic-send":
            return (
                f"{details[0]} sent {value} after {other} was acknowledged at offset {details[1]},"
                f" and it is at {found.offset}"
            )
        case "two-leaders":
            return (
                f"brokers {details[0]} and {details[1]} have both acknowledged in leader epoch"
                f" {details[2]}"
            )
        case "torn-transaction":
            return f"of transaction {details[0]} {other} was read, and {value} is gone"
        case "replicas-differ":
            return f"{details[0]} and {details[1]} differ from offset {found.offset} on"
        case "replica-lags":
            return f"{details[0]} ends at {details[1]}, below the high watermark {details[2]}"
        case "damaged-replica":
            return f"{details[0]}: {details[1]}"
    names = " -> ".join(str(each) for each in (*details, details[0]))
    how = {"G1c": "each was read by the next", "G0": "each was written over by the next"}
    return f"{names}: {how.get(found.kind, 'each was read, or written over, by the next')}"


def _words_of_early_read(found: FoundLine, value: str) -> str:
    match found.details[0]:
        case "end":
            return (
                f"{value} was read at offset {found.offset}, and the last reader came to an end at"
                f" {found.details[1]}"
            )
        case "asked":
            return f"{value} was read as committed before its transaction was asked to commit"
    return f"{value} was read at offset {found.offset}, and is in no replica"


def _words_of_lost_commit(found: FoundLine, value: str) -> str:
    how, end_offset = found.details
    was = "was told to be committed" if how == "told" else "was read as committed"
    if int(end_offset) < 0:
        return f"{value} {was} at offset {found.offset}, and the last reader has passed over it"
    return f"{value} {was} at offset {found.offset}, and the last reader waits at {end_offset}"


# --- lines ----------------------------------------------------------------------------------------


def _sentence(fields: dict[str, Any], found: FoundLine, value: str | None) -> str:
    """Return a line of a history in plain English."""
    time_s = fields["time_us"] / 1_000_000
    return f"{time_s:.3f} s: {_said(fields, found, value)}"


def _said(fields: dict[str, Any], found: FoundLine, value: str | None) -> str:
    kind, op, process = fields["type"], fields["op"], fields["process"]
    if op == "heal":
        return "all is healed"
    if op == "fault":
        return f"fault: {fields.get('fault', '')} {fields.get('nodes', '')}".rstrip()
    if op == "send":
        return _said_of_send(fields)
    if op == "handle":
        return f"{process} has handled{_offsets_said(fields, found, value)}"
    if op == "offset-commit":
        offset = (fields.get("offsets") or {}).get(found.partition)
        said = {"invoke": "asks to commit", "ok": "has committed"}.get(kind, "has not committed")
        return f"{process} {said} offset {offset} of {found.partition}"
    if op == "poll":
        return _said_of_poll(fields, found, value)
    name = fields.get("transaction")
    done = {"begin": "begun", "commit": "committed", "abort": "aborted"}[op]
    match kind:
        case "invoke":
            return f"{process} asks to {op} {name}"
        case "ok":
            return f"{process} is told that {name} is {done}"
        case "fail":
            return f"{process} is told that {name} is not {done}"
    return f"{process} is not told whether {name} is {done}"


def _said_of_send(fields: dict[str, Any]) -> str:
    process = fields["process"]
    value = _short(text_of(fields.get("value")))
    place = f"{fields.get('topic')}-{fields.get('partition')}"
    match fields["type"]:
        case "invoke":
            return f"{process} sends {value} to {place}"
        case "ok":
            offset = fields.get("offset", -1)
            at = f" at offset {offset}" if offset >= 0 else ""
            leader, epoch = fields.get("leader"), fields.get("leader_epoch")
            by = f" by broker {leader}, leader epoch {epoch}" if leader is not None else ""
            return f"{process} is told that {value} is in {place}{at}{by}"
        case "fail":
            return f"{process} is told that {value} failed: {fields.get('error', 'no reason')}"
    return f"{process} is not told whether {value} is there: {fields.get('error', 'no reason')}"


def _offsets_said(fields: dict[str, Any], found: FoundLine, value: str | None) -> str:
    """Return words for the records of a line, and for the record of the finding."""
    partition = found.partition
    records = (fields.get("records") or {}).get(partition) or []
    if not records:
        return f" nothing of {partition}"
    first, last = records[0][0], records[-1][0]
    words = f" offset {first}" if first == last else f" offsets {first} to {last}"
    words += f" of {partition}"
    here = [each[0] for each in records if value is not None and text_of(each[1]) == value]
    at_offset = [each for each in records if each[0] == found.offset]
    if here:
        words += f", {_short(value)} at {here[0]}"
    elif at_offset:
        words += f", {_short(text_of(at_offset[0][1]))} at {found.offset}"
    return words


def _said_of_poll(fields: dict[str, Any], found: FoundLine, value: str | None) -> str:
    process, partition = fields["process"], found.partition
    moved = (fields.get("seek") or {}).get(partition)
    begins = f" begins at offset {moved} of {partition}" if moved is not None else ""
    if fields["type"] == "invoke":
        return f"{process}{begins or ' polls'}"
    records = (fields.get("records") or {}).get(partition) or []
    words = f"{process}{begins + ', and' if begins else ''} is given"
    if not records:
        words += f" nothing of {partition}" if partition else " records"
    else:
        words += _offsets_said(fields, found, value)
    mark = (fields.get("high_watermark") or {}).get(partition)
    if mark is not None:
        words += f", high watermark {mark}"
    return words


# -- steps of a check: read the histories, judge each partition with its replicas, find words


class _Problems:
    """Lines that could not be judged fully, of which the first are kept."""

    def __init__(self) -> None:
        self.kept: list[HistoryProblem] = []
        self.count = 0

    def add(self, history: str, line: int, why: str) -> None:
        self.count += 1
        if self.count <= MAX_OF_A_KIND:
            self.kept.append(HistoryProblem(history, line, why))


class _Histories:
    """Collector of the lines of all histories."""

    def __init__(self) -> None:
        self.found = FoundLines()
        self.columns = HistoryColumns()
        self.sends = SendRules(self.columns, self.found)
        self.polls = PollRules(self.columns, self.found)
        self.consumers = ConsumerRules(self.columns, self.found)
        self.transactions = TransactionRules(self.found)
        self.problems = _Problems()
        self.torn: list[str] = []
        self.begins: list[int] = []  # for each history: number of the line before its first line
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
    """Judge histories, and the replicas that `replicas_of` returns for each partition.

    `replicas_of` returns None if the replicas are not read. `checks` also looks for damage in the
    replicas.

    Raises:
        RefusedError: a source is no history. AccessError: a file cannot be read.
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
    findings = Witnesses(sources, taken.begins, texts).report(found)
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
