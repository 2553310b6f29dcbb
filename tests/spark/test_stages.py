"""Progress of Spark's stages, without a JVM: the tracker is one of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from eoctl import progress
from eoctl.spark import session
from eoctl.spark.session import stages_reported, stages_text

if TYPE_CHECKING:
    from collections.abc import Callable


class Info(NamedTuple):
    stageId: int  # noqa: N815 - as Spark has it
    numTasks: int  # noqa: N815
    numCompletedTasks: int  # noqa: N815


class Tracker:
    def __init__(self, *infos: Info) -> None:
        self._infos = {each.stageId: each for each in infos}

    def getActiveStageIds(self) -> list[int]:
        return [*reversed(self._infos), 99]

    def getStageInfo(self, stage: int) -> Info | None:
        return self._infos.get(stage)


class Context:
    def __init__(self, tracker: Callable[[], object]) -> None:
        self.statusTracker = tracker


def test_stages_that_are_at_work() -> None:
    """In their order; one that has ended meanwhile is left out."""
    tracker = Tracker(Info(2, 120, 37), Info(5, 4, 0))
    assert stages_text(tracker) == "stage 2: 37 of 120 tasks, stage 5: 0 of 4 tasks"
    assert stages_text(Tracker()) == "waiting for a stage"


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told where a person waits."""
    found: list[str] = []
    monkeypatch.setattr(session, "is_drawn", lambda: True)
    monkeypatch.setattr(session, "ASK_SECONDS", 0.001)
    monkeypatch.setattr(progress.Progress, "report", lambda _, label: found.append(label))
    return found


def test_it_is_asked_until_the_job_is_over(reported: list[str]) -> None:
    with stages_reported(Context(lambda: Tracker(Info(2, 120, 37)))):
        while not reported:
            pass
    count = len(reported)
    assert {*reported} == {"stage 2: 37 of 120 tasks"}
    assert len(reported) == count


def test_a_tracker_that_fails_is_not_asked_again(reported: list[str]) -> None:
    """The job itself says what is wrong."""
    with pytest.raises(ZeroDivisionError), stages_reported(Context(lambda: None)):
        raise ZeroDivisionError
    assert reported == []


def test_where_nobody_waits_nothing_is_asked() -> None:
    def never() -> object:
        raise AssertionError

    with stages_reported(Context(never)):
        pass
