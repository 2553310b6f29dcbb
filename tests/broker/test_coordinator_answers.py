"""Kafka's coordinator answers and writes what ours does; what is noted of it is what it says."""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.coordinator_cases import rows, table
from tests.coordinators import Commands, is_same_answer
from tests.kafka import coordinator_answers

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not coordinator_answers.has_compiler(), reason="this Java has no compiler"),
]


@pytest.mark.exhaustive
def test_it_still_says_what_is_noted() -> None:
    """To write it anew: python -c "from tests import coordinator_cases as c; c.note_answers()"."""
    noted = coordinator_answers.noted()
    cases = [case for case, _ in noted]
    assert set(table()) <= set(cases)
    answers = coordinator_answers.ask(cases)
    differing = [case for (case, was), now in zip(noted, answers, strict=True) if was != now]
    assert differing == []


@pytest.mark.exhaustive
def test_rows_of_requests() -> None:
    cases = list(rows(Random(int(os.environ["EOCTL_SEED"])), 300, 30))
    answers = coordinator_answers.ask(cases)
    for case, kafka in zip(cases, answers, strict=True):
        ours = Commands().answers(case).split(";")
        for command, mine, its in zip(case.split(";"), ours, kafka.split(";"), strict=True):
            if its.startswith("UNKNOWN_SERVER_ERROR"):
                break  # from here on it knows something else than ours
            assert is_same_answer(mine, its), (command, case)
