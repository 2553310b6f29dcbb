"""Courses of events on a simulated cluster; `tests/lab/test_courses_on_brokers.py` has them on real brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.courses import COURSES, Course
from tests.lab.played_stage import PlayedStage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.share(3)
@pytest.mark.parametrize("name", COURSES)
def test_each_shows_what_it_is_there_for(tmp_path: Path, name: str) -> None:
    course = COURSES[name]
    _, stands, facts = PlayedStage(tmp_path / "play", course).play(course)
    assert {*course.shows} <= facts.told
    last = stands[-1]
    for each in last.isr:
        assert last.offsets[each] == (len(facts.records[last.leader]),) * 2
        assert facts.records[each] == facts.records[last.leader]
        assert facts.epochs[each] == facts.epochs[last.leader]


@pytest.mark.share(1)
@pytest.mark.parametrize("name", COURSES)
def test_other_delays_change_none_of_what_is_compared(tmp_path: Path, name: str) -> None:
    """So real brokers, which have delays of their own, are held against all three."""
    course = COURSES[name]
    played = [PlayedStage(tmp_path / str(seed), course, seed).play(course) for seed in range(3)]
    assert played[1] == played[0]
    assert played[2] == played[0]


def test_a_leader_of_an_unclean_election_recovers_with_its_first_change(tmp_path: Path) -> None:
    """The record of the election says so, as a real controller's does."""
    course = Course("send a 1 -1; kill 2; kill 1; kill 0; start 2; elect; start 1")
    _, _, facts = PlayedStage(tmp_path / "play", course).play(course)
    ends = [(each.leader, each.isr, each.is_recovering) for each in facts.states[-2:]]
    assert ends == [(2, (2,), True), (2, (1, 2), False)]
