"""Sizes, durations and times as people read them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from eoctl.console.columns import duration_text, plain_line, size_text, time_text
from eoctl.messages import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

MOMENT_MS = 1_795_235_941_198


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"), (812, "812 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1280, "1.25 KiB"),
        (49_254, "48.1 KiB"), (2**20 - 1, "1.00 MiB"), (5 * 2**30, "5.00 GiB"),
        (2**63 - 1, "8.00 EiB"), (-2048, "-2.00 KiB"),
    ],
)  # fmt: skip
def test_sizes(size_bytes: int, shown: str) -> None:
    assert size_text(size_bytes) == shown


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        (0, "0 ms"), (999, "999 ms"), (12_050, "12 s 50 ms"), (60_000, "1 min"),
        (273_600_000, "3 d 4 h"), (259_260_000, "3 d"), (-1500, "-1 s 500 ms"),
    ],
)  # fmt: skip
def test_durations(duration_ms: int, shown: str) -> None:
    assert duration_text(duration_ms) == shown


def test_an_age_in_a_sentence_has_units_in_a_pipe() -> None:
    names = ("message", "offset")
    assert plain_line(names, ("the last batch is 602831 s old", 3)) == (
        "the last batch is 6 d 23 h old\t3"
    )
    assert plain_line(("value", "offset"), ("602831 s old", 3)) == "602831 s old\t3"


@pytest.fixture
def in_kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_kathmandu")
def test_times_have_the_zone() -> None:
    """Of this machine, or UTC; what is no time, or beyond all calendars, says so."""
    assert time_text(MOMENT_MS) == "2026-11-21T10:24:01.198+05:45"
    assert time_text(MOMENT_MS, is_utc=True) == "2026-11-21T04:39:01.198Z"
    assert time_text(-1) == "none"
    assert time_text(2**63 - 1) == str(2**63 - 1)


@pytest.mark.parametrize(("time_ms", "shown"), [(2**63 - 1, f"{2**63 - 1}"), (-1, "none")])
def test_a_moment_that_no_calendar_has(time_ms: int, shown: str) -> None:
    assert moment(time_ms) == shown
