"""Courses of events on real brokers: what a simulated cluster does in them is what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.real_stage import RealStage, TooSlowError
from tests.lab.courses import COURSES
from tests.lab.played_stage import PlayedStage

if TYPE_CHECKING:
    from pathlib import Path


ATTEMPTS = 3


@pytest.mark.broker
@pytest.mark.exhaustive
@pytest.mark.share(2)
@pytest.mark.parametrize("name", COURSES)
def test_real_brokers_do_the_same(tmp_path: Path, name: str) -> None:
    course = COURSES[name]
    answers, stands, expected = PlayedStage(tmp_path / "played", course).play(course)
    slow = []
    for attempt in range(ATTEMPTS):
        try:
            with RealStage(tmp_path / f"real-{attempt}", course) as stage:
                found = stage.play(course, answers, stands)
        except TooSlowError as problem:
            slow.append(str(problem))
            continue
        assert found._asdict() == expected._asdict()
        return
    pytest.fail(f"in {ATTEMPTS} attempts brokers that ran were taken for dead: {slow}")
