"""Histories of a sound cluster, drawn at random, and each violation planted in one.

The model is a log of entries for each partition: what producers are told and consumers are given
follows from it. A hole is an offset that was given away, and holds nothing.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.checker.findings import judge
from eoctl.lab.checker.histories import HistorySource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from eoctl.lab.checker.rules import HistoryVerdict


HEADER = {"history": "eoctl", "version": 1}
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


class Entry:
    """One offset: `value` None is a marker or a hole; `fate` of its transaction."""

    def __init__(self, value: str | None, transaction: Transaction | None = None) -> None:
        self.value = value
        self.transaction = transaction


class Transaction:
    """`state`: open, committed or aborted, as it is in the logs."""

    def __init__(self, name: str, process: str) -> None:
        self.name, self.process = name, process
        self.state = "open"
        self.partitions: set[int] = set()


class Send(NamedTuple):
    process: str
    number: int
    partition: int
    value: str
    more: dict[str, Any]


class Story:
    """What has happened so far, and the lines of it."""

    def __init__(self, random: Random, partitions: int = 2) -> None:
        self.random = random
        self.logs: list[list[Entry]] = [[] for _ in range(partitions)]
        self.lines: list[dict[str, Any]] = []
        self.positions: dict[tuple[str, int], int] = {}
        self.leaders = [0] * partitions
        self.open: dict[str, Transaction] = {}
        self._count = 0
        self._time_us = 0

    # -- lines

    def note(self, kind: str, process: str, number: int, op: str, **fields: Any) -> None:
        self._time_us += self.random.randrange(3000)
        self.lines.append(
            {
                "type": kind, "process": process, "id": number, "time_us": self._time_us, "op": op,
                **fields,
            }
        )  # fmt: skip

    def number(self) -> int:
        self._count += 1
        return self._count

    # -- producers

    def invoke(self, partition: int, process: str = "p0", value: str | None = None) -> Send:
        number = self.number()
        transaction = self.open.get(process)
        more = {"transaction": transaction.name} if transaction else {}
        sent = Send(process, number, partition, value or f"v{number}", more)
        self.note(
            "invoke", process, number, "send", topic="t", partition=partition, value=sent.value,
            **more,
        )  # fmt: skip
        return sent

    def append(self, sent: Send) -> int:
        log = self.logs[sent.partition]
        transaction = self.open.get(sent.process)
        if transaction:
            transaction.partitions.add(sent.partition)
        log.append(Entry(sent.value, transaction))
        return len(log) - 1

    def answer(self, sent: Send, kind: str, offset: int = -1, **fields: Any) -> None:
        if kind == "ok":
            epoch = self.leaders[sent.partition]
            fields = {"offset": offset, "leader": epoch % 3, "leader_epoch": epoch, **fields}
        else:
            fields = {"error": "REQUEST_TIMED_OUT", **fields}
        self.note(
            kind, sent.process, sent.number, "send", topic="t", partition=sent.partition,
            value=sent.value, **fields, **sent.more,
        )  # fmt: skip

    def send(self, partition: int, process: str = "p0") -> int:
        sent = self.invoke(partition, process)
        offset = self.append(sent)
        self.answer(sent, "ok", offset)
        return offset

    def begin(self, process: str) -> Transaction:
        transaction = Transaction(f"x{self.number()}", process)
        for kind in ("invoke", "ok"):
            self.note(kind, process, self._count, "begin", transaction=transaction.name)
        self.open[process] = transaction
        return transaction

    def end(self, process: str, op: str, kind: str = "ok", state: str = "") -> None:
        """End a transaction; `state`: what it comes to, whatever is told."""
        transaction = self.open.pop(process)
        number = self.number()
        self.note("invoke", process, number, op, transaction=transaction.name)
        transaction.state = state or {"commit": "committed", "abort": "aborted"}[op]
        for each in transaction.partitions:
            self.logs[each].append(Entry(None))
        self.note(kind, process, number, op, transaction=transaction.name)

    # -- consumers

    def visible(self, partition: int, start: int, *, is_committed: bool) -> tuple[list[Any], int]:
        """Records from an offset on, and where the next poll begins."""
        log = self.logs[partition]
        records, at = [], start
        while at < len(log):
            entry = log[at]
            state = entry.transaction.state if entry.transaction else "committed"
            if is_committed and state == "open":
                break
            if entry.value is not None and (not is_committed or state == "committed"):
                records.append([at, entry.value])
            at += 1
        return records, at

    def poll(
        self,
        process: str,
        partition: int,
        *,
        isolation: str = UNCOMMITTED,
        seek: int | None = None,
        most: int = 1000,
        change: Callable[[list[Any]], list[Any]] = lambda each: each,
        **more: Any,
    ) -> None:
        name = f"t-{partition}"
        number = self.number()
        key = process, partition
        moved: dict[str, Any] = {}
        if seek is not None or key not in self.positions:
            self.positions[key] = seek or 0
            moved = {"seek": {name: seek or 0}}
        self.note("invoke", process, number, "poll", **moved)
        is_committed = isolation == COMMITTED
        records, at = self.visible(partition, self.positions[key], is_committed=is_committed)
        if len(records) > most:
            records = records[:most]
            at = records[-1][0] + 1
        self.positions[key] = at
        fields: dict[str, Any] = {
            "records": {name: change(records)}, "position": {name: at}, "isolation": isolation,
            "high_watermark": {name: len(self.logs[partition])},
            "leader_epoch": {name: self.leaders[partition]},
        }  # fmt: skip
        if more.get("final") and at < len(self.logs[partition]):
            fields["ended"] = True  # it has waited, and is given no more
        self.note("ok", process, number, "poll", **{**fields, **more})

    # -- the whole

    def step(self) -> None:
        """Something that a sound cluster does."""
        draw = self.random
        partition = draw.randrange(len(self.logs))
        process = f"p{draw.randrange(3)}"
        match draw.randrange(12):
            case 0 | 1 | 2:
                self.send(partition, process)
            case 3:
                sent = self.invoke(partition, process)
                self.answer(sent, "fail")
            case 4:
                sent = self.invoke(partition, process)
                if draw.randrange(2):
                    self.append(sent)
                if draw.randrange(3):  # else it has no answer at all
                    self.answer(sent, "info")
            case 5:
                several = [self.invoke(partition, process) for _ in range(3)]
                answers = [(each, self.append(each)) for each in several]
                draw.shuffle(answers)
                for each, offset in answers:
                    self.answer(each, "ok", offset if draw.randrange(4) else -1)
            case 6:
                if process not in self.open:
                    self.begin(process)
            case 7:
                self._end_any(process)
            case 8 | 9:
                isolation = draw.choice((COMMITTED, UNCOMMITTED))
                self.poll(
                    f"c-{isolation}", partition, isolation=isolation,
                    seek=draw.choice((None, None, None, 0)), most=draw.randrange(1, 9),
                )  # fmt: skip
            case 10:
                self.note("info", "nemesis", self.number(), "fault", fault="kill", nodes=[0])
                self.leaders[partition] += 1
            case 11:
                self.note("info", "nemesis", self.number(), "heal")

    def _end_any(self, process: str) -> None:
        if process not in self.open:
            return
        op, kind, state = self.random.choice(
            (
                ("commit", "ok", ""), ("commit", "ok", ""), ("abort", "ok", ""),
                ("commit", "fail", "aborted"), ("commit", "info", "committed"),
                ("commit", "info", "aborted"),
            )
        )  # fmt: skip
        self.end(process, op, kind, state)

    def steps(self, most: int = 25) -> None:
        for _ in range(self.random.randrange(most)):
            self.step()

    def finish(self) -> None:
        """Heal, end what is open, read all from the start, as both kinds of readers."""
        self.note("info", "nemesis", self.number(), "heal")
        for process in [*self.open]:
            self.open.pop(process).state = "aborted"  # it was never asked to commit
        for partition in range(len(self.logs)):
            for isolation in (UNCOMMITTED, COMMITTED):
                self.poll(f"last-{isolation}", partition, isolation=isolation, seek=0, final=True)

    def data(self) -> bytes:
        return b"".join(json.dumps(each).encode() + b"\n" for each in (HEADER, *self.lines))


def judged(lines: bytes | Iterable[dict[str, Any]]) -> HistoryVerdict:
    """Judge a history that is not on the disk."""
    data = lines if isinstance(lines, bytes) else b"".join(
        json.dumps(each).encode() + b"\n" for each in (HEADER, *lines)
    )  # fmt: skip
    return judge([HistorySource("history", lambda: io.BytesIO(data))])


# --- planted --------------------------------------------------------------------------------------


def _lost_write(story: Story) -> None:
    partition = story.random.randrange(2)
    sent = story.invoke(partition, "q")
    offset = story.append(sent)
    story.logs[partition][offset].value = None
    story.answer(sent, "ok", offset)
    if story.random.randrange(2):
        story.send(partition, "q")


def _precommitted_read(story: Story) -> None:
    if story.random.randrange(2):
        sent = story.invoke(0, "q")
        story.append(sent)
        story.poll("early", 0, seek=len(story.logs[0]) - 1)
        story.logs[0].pop()
        story.answer(sent, "info")
        story.finish()
        return
    transaction = story.begin("q")
    story.send(1, "q")
    transaction.state = "committed"
    story.poll("early", 1, seek=len(story.logs[1]) - 1, isolation=COMMITTED)
    story.end("q", "commit")
    story.finish()


def _duplicate(story: Story) -> None:
    sent = story.invoke(0, "q")
    offset = story.append(sent)
    story.append(sent)
    story.answer(sent, story.random.choice(("ok", "info")), offset)


def _inconsistent(story: Story) -> None:
    first, second = story.invoke(0, "q"), story.invoke(0, "q")
    offset = story.append(first)
    story.poll("early", 0, seek=offset)
    story.logs[0][offset].value = second.value
    for each in (first, second):
        story.answer(each, "info")


def _failed_is_there(story: Story) -> None:
    if story.random.randrange(2):
        sent = story.invoke(0, "q")
        story.append(sent)
        story.answer(sent, "fail")
        return
    story.begin("q")
    story.send(1, "q")
    story.end("q", "abort", state="committed")


def _lost_commit(story: Story) -> None:
    """Its marker is lost: it is open again, or somebody has aborted it since."""
    draw = story.random
    transaction = story.begin("q")
    offset = story.send(0, "q")
    story.end("q", "commit", state="committed")
    if draw.randrange(2):
        story.poll("early", 0, seek=offset, isolation=COMMITTED)
        if draw.randrange(2):
            for each in story.lines:
                if each["op"] == "commit" and each.get("transaction") == transaction.name:
                    each["type"] = "invoke" if each["type"] == "invoke" else "info"
    transaction.state = draw.choice(("open", "aborted"))


def _nonmonotonic_poll(story: Story) -> None:
    for _ in range(3):
        story.send(0, "q")
    story.poll("back", 0, seek=0)
    story.positions["back", 0] = len(story.logs[0]) - 1 - story.random.randrange(2)
    story.poll("back", 0)


def _within_backwards(story: Story) -> None:
    for _ in range(3):
        story.send(0, "q")

    def swapped(records: list[Any]) -> list[Any]:
        return [*records[:-2], records[-1], records[-2]]

    story.poll("back", 0, seek=0, change=swapped)


def _poll_skip(story: Story) -> None:
    for _ in range(4):
        story.send(0, "q")
    end = len(story.logs[0])
    isolation = story.random.choice((COMMITTED, UNCOMMITTED))
    story.poll("skips", 0, seek=end - 4, most=1, isolation=isolation)
    story.positions["skips", 0] = end - 1 - story.random.randrange(2)
    story.poll("skips", 0, isolation=isolation)


def _within_skip(story: Story) -> None:
    for _ in range(4):
        story.send(0, "q")
    start = len(story.logs[0]) - 4
    isolation = story.random.choice((COMMITTED, UNCOMMITTED))

    def without_one(records: list[Any]) -> list[Any]:
        at = story.random.randrange(1, 3)
        return [*records[:at], *records[at + 1 :]]

    story.poll("skips", 0, seek=start, change=without_one, isolation=isolation)


def _watermark_back(story: Story) -> None:
    story.send(0, "q")
    end = len(story.logs[0])
    if story.random.randrange(2):
        for each in (end, end - 1):
            story.poll("marks", 0, seek=0, high_watermark={"t-0": each})
        story.finish()
        return
    story.poll("marks", 0, seek=0, high_watermark={"t-0": end + 1000}, leader_epoch={})
    story.finish()
    story.poll("marks", 0, leader_epoch={})


def _nonmonotonic_send(story: Story) -> None:
    log = story.logs[0]
    log.append(Entry(None))
    hole = len(log) - 1
    story.send(0, "q")
    sent = story.invoke(0, "q")
    log[hole].value = sent.value
    story.answer(sent, "ok", hole)


def _two_leaders(story: Story) -> None:
    for leader in (7, 8):
        sent = story.invoke(0, "q")
        story.answer(sent, "ok", story.append(sent), leader=leader, leader_epoch=99)


def _torn(story: Story) -> None:
    story.begin("q")
    story.send(0, "q")
    sent = story.invoke(1, "q")
    offset = story.append(sent)
    story.logs[1][offset].value = None
    story.answer(sent, "ok", offset)
    story.end("q", "commit", story.random.choice(("ok", "info")), "committed")


def _read_by_each_other(story: Story) -> None:
    names = [story.begin(process).name for process in ("q", "r")]
    for partition, process in enumerate(("q", "r")):
        story.send(partition, process)
    for process in ("q", "r"):
        story.open[process].state = "committed"
    for partition, name in enumerate(reversed(names)):
        story.poll(
            f"in-{name}", partition, seek=len(story.logs[partition]) - 1, isolation=COMMITTED,
            transaction=name,
        )  # fmt: skip
    for process in ("q", "r"):
        story.end(process, "commit")


def _written_behind_each_other(story: Story) -> None:
    for process in ("q", "r"):
        story.begin(process)
    for process in ("q", "r", "q"):
        story.send(0, process)
    for process in ("q", "r"):
        story.end(process, "commit")


def _read_and_written(story: Story) -> None:
    first, second = (story.begin(process).name for process in ("q", "r"))
    story.send(0, "q")
    story.send(0, "r")  # r behind q
    story.send(1, "r")
    story.open["r"].state = "committed"
    story.poll(
        "in-q", 1, seek=len(story.logs[1]) - 1, isolation=COMMITTED, transaction=first
    )  # q has read r
    assert first != second
    for process in ("q", "r"):
        story.end(process, "commit")


def _unseen(story: Story) -> None:
    if story.random.randrange(2):
        story.finish()
    else:
        story.note("info", "nemesis", story.number(), "fault", fault="kill", nodes=[0])
    story.send(1, "q")


def _given_to_group(story: Story) -> list[Any]:
    """A consumer that commits is given what is sent just before."""
    start = len(story.logs[0])
    for _ in range(3):
        story.send(0, "q")
    story.poll("group", 0, seek=start)
    return [[start + place, story.logs[0][start + place].value] for place in range(3)]


def _commit(story: Story, offset: int) -> None:
    number = story.number()
    for kind in ("invoke", "ok"):
        story.note(kind, "group", number, "offset-commit", offsets={"t-0": offset})


def _handle(story: Story, records: list[Any]) -> None:
    number = story.number()
    if story.random.randrange(2):
        story.note("invoke", "group", number, "handle", records={"t-0": records})
    story.note("ok", "group", number, "handle", records={"t-0": records})


def _never_handled(story: Story) -> None:
    records = _given_to_group(story)
    _commit(story, len(story.logs[0]))
    _handle(story, records[: story.random.randrange(1, 3)])
    if story.random.randrange(2):  # it has ended, and goes on
        story.poll("group", 0, seek=len(story.logs[0]))


def _handled_twice(story: Story) -> None:
    records = _given_to_group(story)
    _handle(story, records)
    story.poll("group", 0, seek=records[0][0])
    _handle(story, records[: story.random.randrange(1, 4)])
    _commit(story, len(story.logs[0]))


PLANTED: dict[str, Callable[[Story], None]] = {
    "lost-write": _lost_write,
    "unseen": _unseen,
    "precommitted-read": _precommitted_read,
    "duplicate": _duplicate,
    "inconsistent-offsets": _inconsistent,
    "G1a": _failed_is_there,
    "lost-commit": _lost_commit,
    "nonmonotonic-poll": _nonmonotonic_poll,
    "int-nonmonotonic-poll": _within_backwards,
    "poll-skip": _poll_skip,
    "int-poll-skip": _within_skip,
    "hw-back": _watermark_back,
    "never-handled": _never_handled,
    "handled-twice": _handled_twice,
    "nonmonotonic-send": _nonmonotonic_send,
    "two-leaders": _two_leaders,
    "torn-transaction": _torn,
    "G1c": _read_by_each_other,
    "G1c-mixed": _read_and_written,
    "G0": _written_behind_each_other,
}
# Kind -> what goes with it: the same shown in another way.
BESIDE = {
    "lost-write": {"poll-skip", "int-poll-skip"},
    "lost-commit": {"poll-skip", "int-poll-skip"},
    "torn-transaction": {"lost-write", "poll-skip", "int-poll-skip"},
    "G1c": {"precommitted-read", "G1c-mixed"},
    "G1c-mixed": {"precommitted-read"},
    "precommitted-read": {"hw-back"},
    "int-nonmonotonic-poll": {"poll-skip", "int-poll-skip"},
}
ENDED = {"unseen", "precommitted-read", "hw-back"}  # of which the last reader is a part
