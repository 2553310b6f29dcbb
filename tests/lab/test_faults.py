"""Faults as they are written."""

from __future__ import annotations

import pytest

from eoctl.lab.environment.faults import Fault, WhenKind, parse_faults
from storage.errors import UsageError


def test_what_is_written_is_read() -> None:
    text = "kill leader at 20%, power 1 at 3s, start all at quiet, set min.insync.replicas=1 at 5ms"
    found = parse_faults(text, 3)
    assert found == [
        Fault(action="kill", target="leader", kind=WhenKind.RECORDS, when=0.2),
        Fault(action="power", target="1", kind=WhenKind.TIME, when=3_000_000),
        Fault(action="start", target="all", kind=WhenKind.QUIET, when=0),
        Fault(action="set", target="min.insync.replicas=1", kind=WhenKind.TIME, when=5000),
    ]
    assert parse_faults("", 3) == []


@pytest.mark.parametrize(
    "text",
    [
        "kill leader at 20%",
        "partition 2 at 3s",
        "slow any at 5%",
        "heal at quiet",
        "elect at 17us",
        "stop any at 1ms",
        "ask at ahead",
        "kill any at 20% ahead",
        "ask at 3ms quiet",
        "kill leader at isr-change",
    ],
)
def test_what_is_read_is_written_again(text: str) -> None:
    (fault,) = parse_faults(text, 3)
    assert parse_faults(str(fault), 3) == [fault]


def test_a_producer_is_killed_and_started() -> None:
    for text in ("kill producer at 20%", "start producer at 3s"):
        (fault,) = parse_faults(text, 3, ("producer",))
        assert parse_faults(str(fault), 3, ("producer",)) == [fault]
    with pytest.raises(UsageError, match="no node"):
        parse_faults("stop producer at 20%", 3, ("producer",))


@pytest.mark.parametrize(
    "text",
    [
        "kill consumer at 20% handling",
        "start consumer at 3s",
        "stop consumer at handling",
        "kill leader at handling",
    ],
)
def test_faults_of_a_consumer_need_one_that_commits(text: str) -> None:
    (fault,) = parse_faults(text, 3, ("consumer",))
    assert parse_faults(str(fault), 3, ("consumer",)) == [fault]
    with pytest.raises(UsageError, match="no consumer that commits") as caught:
        parse_faults(text, 3)
    assert "--consumer-commit before" in caught.value.next_step


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kill", "is no fault"),
        ("kill at 20%", "'nobody' is no node"),
        ("kill 3 at 20%", "'3' is no node"),
        ("kill \N{SUPERSCRIPT TWO} at 20%", "is no node"),
        ("melt 1 at 20%", "is no fault"),
        ("power consumer at 20%", "'consumer' is no node"),
        ("kill 1 at noon", "is no moment"),
        ("kill 1 at 120%", "at most 100%"),
        ("kill 1 at 20% noon", "'20% noon' is no moment"),
        ("kill 1 at quiet ahead", "is no moment"),
        ("heal 1 at 20%", "is for all"),
        ("set min.insync.replicas=0 at 20%", "cannot be set"),
        ("set cleanup.policy=compact at 20%", "cannot be set"),
        ("set unclean.leader.election.enable=1 at 2s", "cannot be set"),
    ],
)
def test_what_is_wrong_is_told(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_faults(text, 3)
