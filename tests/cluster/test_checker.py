"""Each rule of the checker, by a history and replicas that break it and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eoctl.cluster.checker import HistoryChecker, ReplicaContent
from eoctl.cluster.history import Operation
from storage.file_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

T0 = TopicPartition("t", 0)
HEAL = ("info", "heal", {})


def ok(value: str, offset: int, **more: object) -> tuple[str, str, dict[str, Any]]:
    return "ok", "send", {"topic": "t", "partition": 0, "value": value, "offset": offset, **more}


def failed(value: str) -> tuple[str, str, dict[str, Any]]:
    return "fail", "send", {"topic": "t", "partition": 0, "value": value, "error": "X"}


def unknown(value: str) -> tuple[str, str, dict[str, Any]]:
    return "info", "send", {"topic": "t", "partition": 0, "value": value, "error": "X"}


def poll(*records: tuple[int, str], **more: object) -> tuple[str, str, dict[str, Any]]:
    return "ok", "poll", {"records": {"t-0": [[*each] for each in records]}, **more}


def replica(
    *values: str, name: str = "node-0", high_watermark: int | None = None
) -> ReplicaContent:
    return ReplicaContent(
        name=name,
        values=dict(enumerate(values)),
        batches=[(place, place, hash(each)) for place, each in enumerate(values)],
        end_offset=len(values),
        high_watermark=high_watermark,
    )


def judged(
    operations: Sequence[tuple[str, str, dict[str, Any]]], *replicas: ReplicaContent
) -> HistoryChecker:
    checker = HistoryChecker()
    for line, (kind, op, fields) in enumerate(operations, 2):
        checker.take(
            Operation(
                type=kind, process="p", id=line, time_us=line, op=op, fields=fields, line=line
            )
        )
    for key in checker.partitions or [T0]:
        checker.compare(key, replicas)
    return checker


def test_what_is_right_is_right() -> None:
    found = judged(
        [ok("a", 0), ok("b", 1), unknown("c"), failed("d"), poll((0, "a"), (1, "b")), HEAL],
        replica("a", "b", "c"),
        replica("a", "b", "c", name="node-1"),
    )
    assert found.findings == []
    assert not found.has_findings
    assert judged([ok("a", 0), unknown("b"), HEAL], replica("a")).counts == {}


@pytest.mark.parametrize(
    ("kind", "operations", "replicas"),
    [
        ("lost-write", [ok("a", 0), ok("b", 1), HEAL], [replica("a")]),
        ("lost-write", [ok("a", -1), HEAL], [replica()]),
        ("precommitted-read", [unknown("a"), poll((0, "a")), HEAL], [replica()]),
        ("duplicate", [ok("a", 0), HEAL], [replica("a", "a")]),
        ("duplicate", [poll((0, "a"), (1, "a"))], [replica("a", "a")]),
        ("inconsistent-offsets", [ok("a", 0), poll((0, "b")), HEAL], [replica("b", "a")]),
        ("inconsistent-offsets", [ok("a", 0), HEAL], [replica("b", "a")]),
        ("G1a", [failed("a"), HEAL], [replica("a")]),
        ("G1a", [failed("a"), poll((0, "a")), HEAL], [replica("a")]),
        ("G1a", [poll((0, "a")), failed("a"), HEAL], [replica("a")]),
        ("nonmonotonic-poll", [poll((0, "a")), poll((0, "a"))], [replica("a")]),
        (
            "hw-back",
            [poll((0, "a"), high_watermark={"t-0": 5}), poll((1, "b"), high_watermark={"t-0": 4})],
            [replica("a", "b")],
        ),
        (
            "two-leaders",
            [ok("a", 0, leader=0, leader_epoch=3), ok("b", 1, leader=1, leader_epoch=3)],
            [replica("a", "b")],
        ),
        ("replicas-differ", [ok("a", 0), HEAL], [replica("a", "b"), replica("a", "c", name="x")]),
    ],
)
def test_what_is_wrong_is_found(
    kind: str, operations: list[tuple[str, str, dict[str, Any]]], replicas: list[ReplicaContent]
) -> None:
    found = judged(operations, *replicas)
    assert kind in found.counts
    assert found.has_findings
    others = {*found.counts} - {kind}
    # A read value that was never acknowledged may be lost twice over; nothing else goes together.
    assert others <= {"inconsistent-offsets"}
    assert all(each.words for each in found.findings)


def test_before_the_heal_nothing_is_lost() -> None:
    found = judged([ok("a", 0), ("info", "fault", {})], replica())
    assert found.counts == {"unseen": 1}
    assert not found.has_findings


def test_above_the_high_watermark_replicas_may_differ() -> None:
    two = [replica("a", "b"), replica("a", "c", name="node-1", high_watermark=1)]
    assert judged([ok("a", 0), HEAL], *two).counts == {}


def test_a_consumer_that_is_moved_may_read_again() -> None:
    again = poll((0, "a"), seek={"t-0": 0})
    assert judged([poll((0, "a")), again], replica("a")).counts == {}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topic": 7, "partition": 0, "value": "a"},
        {"topic": "t", "partition": "0", "value": "a"},
        {"topic": "t", "partition": 0, "value": None, "offset": "x", "leader": "y"},
    ],
)
def test_hostile_sends_are_no_traceback(fields: dict[str, Any]) -> None:
    judged([("ok", "send", fields), ("fail", "send", fields)], replica())


@pytest.mark.parametrize(
    "fields",
    [
        {"records": 5},
        {"records": {"t-0": 5, "nonsense": [], "t-1": [[1], 7, ["x", "y"], [0, None]]}},
        {"high_watermark": {"t": 3, "t-0": "x"}, "seek": []},
    ],
)
def test_hostile_polls_are_no_traceback(fields: dict[str, Any]) -> None:
    judged([("ok", "poll", fields), ("invoke", "poll", fields)], replica())
