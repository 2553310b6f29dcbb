"""The network between a producer and its leader: what is asked of it, and what it does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.clients.producing.producer import Fate, Faults, Link, parse_faults
from storage.errors import UsageError

RATES = st.floats(0, 1)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("drop=0.1,reorder=0.2,lost-ack=0.05,seed=7", Faults(0.1, 0.2, 0.05, 7)),
        ("reorder=1", Faults(0.0, 1.0, 0.0, 0)),
        (" seed = 0 , drop = 1e-3 ", Faults(0.001)),
        ("seed=18446744073709551615", Faults(seed=2**64 - 1)),
    ],
)
def test_faults_are_read(text: str, wanted: Faults) -> None:
    found = parse_faults(text)
    assert found == wanted
    assert type(found.seed) is int


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is no fault, expected drop, reorder, lost-ack or seed"),
        ("drop=0.1,", "'' is no fault"),
        ("lost_ack=0.1", "'lost_ack' is no fault"),
        ("Drop=0.1", "'Drop' is no fault"),
        ("drop", "drop=: expected a probability, 0 to 1"),
        ("drop=x", "drop=x: expected"),
        ("drop=nan", "drop=nan: expected"),
        ("reorder=-0.1", "reorder=-0.1: expected"),
        ("reorder=1.01", "reorder=1.01: expected"),
        ("reorder=0_1", "reorder=0_1: expected"),
        ("reorder=inf", "reorder=inf: expected"),
        ("drop=0.1,drop=0.1", "drop is given twice"),
        ("drop=1", "with drop=1 no batch is ever acknowledged"),
        ("lost-ack=1.0", "with lost-ack=1 no batch"),
        ("seed=-1", "seed=-1: expected a whole number, 0 or more"),
        ("seed=1.5", "seed=1.5: expected a whole number"),
        ("seed=1_0", "seed=1_0: expected a whole number"),
        ("seed=" + "9" * 9000, "expected a whole number"),
    ],
)
def test_what_are_no_faults(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_faults(text)
    assert words in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.next_step.startswith("--fault drop=")


def scenario(faults: Faults, count: int, width: int) -> tuple[list[tuple[int, Fate]], Link[int]]:
    """What comes of so many requests, `width` of them on their way at a time."""
    link: Link[int] = Link(faults)
    taken = []
    for number in range(count):
        link.put(number)
        if len(link) == width:
            taken.append(link.take())
    while len(link):
        taken.append(link.take())
    return taken, link


@given(RATES, RATES, RATES, st.integers(0, 2**70), st.integers(1, 5), st.integers(0, 40))
def test_each_request_ends_once_and_the_seed_decides(
    drop: float, reorder: float, lost_ack: float, seed: int, width: int, count: int
) -> None:
    faults = Faults(drop, reorder, lost_ack, seed)
    taken, link = scenario(faults, count, width)
    assert sorted(number for number, _ in taken) == list(range(count))
    fates = [fate for _, fate in taken]
    assert (link.drops, link.lost_acks) == (fates.count(Fate.DROPPED), fates.count(Fate.ACK_LOST))
    overtaken = sum(
        min(later for later, _ in taken[index:]) < number for index, (number, _) in enumerate(taken)
    )
    assert link.reorders == overtaken
    assert scenario(faults, count, width)[0] == taken


def test_the_rates_are_what_was_asked_for() -> None:
    _, link = scenario(Faults(0.2, 0.3, 0.25, seed=5), 10_000, 5)
    for found, wanted in ((link.drops, 2000), (link.reorders, 3000), (link.lost_acks, 2000)):
        assert abs(found - wanted) < 150


SCENARIO = "1? 0? 2- 4- 7- 6+ 9- 3? 8? 5+ 10- 11-"


def test_the_course_of_a_seed_stays() -> None:
    """A seed that someone noted down tells the same next year."""
    taken, _ = scenario(Faults(0.25, 0.5, 0.25, seed=7), 12, 4)
    marks = {Fate.ANSWERED: "+", Fate.DROPPED: "-", Fate.ACK_LOST: "?"}
    assert " ".join(f"{number}{marks[fate]}" for number, fate in taken) == SCENARIO
