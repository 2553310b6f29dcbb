"""What cannot be read where a `.log` should be: every reader says so, and none waits for ever."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.damage.conftest import copied as copied  # noqa: PLC0414 - a fixture
from tests.matrix.more_faults import LOG, MORE
from tests.writing import NEW_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.damage.planted.shape import Fault

UNREADABLE = [each for each in MORE.all if each.name.startswith("log-is-a")]
LONGEST_S = 60  # of what takes a second


@pytest.fixture(autouse=True)
def _never_waits() -> Iterator[None]:
    """An open of a pipe that nobody writes to would wait for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("fault", UNREADABLE, ids=lambda fault: fault.name)
def test_readers_of_one_partition(
    fault: Fault,
    golden: Callable[[str], Path],
    eoctl: Callable[..., Any],
    copied: Callable[[Fault], Path],
    tmp_path: Path,
) -> None:
    """Those that the matrix does not have: a part was not read, and the path is told."""
    log_dir = copied(fault)
    fault.planted_in(log_dir)
    other = tmp_path / "other"
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "plain-0", other / "plain-0")
    damaged = log_dir / "plain-0"
    calls: tuple[tuple[object, ...], ...] = (
        ("locate", damaged, "--key", "x"),
        ("copy", damaged, log_dir / "new-0", *NEW_TOPIC),
        ("replicas", "rejoin", damaged, "--leader", other / "plain-0"),
        ("replicas", "compare", damaged, other / "plain-0", "--now", "dir"),
        ("dump-segment", damaged / LOG.split("/")[1]),
    )
    for call in calls:
        outcome = eoctl(*call)
        assert outcome.status in {1, 3, 4, 5}, (call[0], outcome.errors)
        assert LOG in outcome.errors + outcome.text, (call[0], outcome.errors)
