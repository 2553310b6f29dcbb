"""Streams of several processes: order, errors in their place, readers and processes that go away."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from recovery.work import processes
from recovery.work.processes import ChildProcess, WorkerLostError, map_unordered
from recovery.work.streams import stream_in_order
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True, params=["fork", "spawn"])
def _method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "start_method", lambda: request.param)


def counting(value: int) -> Iterator[int]:
    """1 to the value; 7 fails behind the third, 8 is killed there."""
    for number in range(1, value + 1):
        if value == 7 and number == 4:
            raise UsageError("seven")
        if value == 8 and number == 4:
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


def weight(message: int) -> int:
    return message


def streams(values: list[int], jobs: int = 2, max_weight: int = 3) -> Iterator[Iterator[int]]:
    return stream_in_order(counting, values, jobs, weight_of=weight, max_weight=max_weight)


@pytest.mark.share(6)
@pytest.mark.parametrize("jobs", [1, 2, 9])
@pytest.mark.parametrize("max_weight", [0, 3, 100])
def test_each_value_has_its_messages_in_order(jobs: int, max_weight: int) -> None:
    values = [3, 0, 5, 1, 4]
    found = [list(stream) for stream in streams(values, jobs, max_weight)]
    assert found == [list(range(1, value + 1)) for value in values]


def test_a_stream_that_is_left_does_not_shift_the_next_one() -> None:
    found = [next(stream) for stream in streams([5, 6, 4, 3, 2])]
    assert found == [1, 1, 1, 1, 1]


def test_an_error_comes_where_it_belongs() -> None:
    opened = streams([2, 7, 3])
    assert list(next(opened)) == [1, 2]
    failing = next(opened)
    assert [next(failing), next(failing), next(failing)] == [1, 2, 3]
    with pytest.raises(UsageError, match="seven"):
        next(failing)


def test_a_process_that_is_killed_has_a_name() -> None:
    opened = streams([2, 8], max_weight=0)
    assert list(next(opened)) == [1, 2]
    with pytest.raises(WorkerLostError):
        list(next(opened))


def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    pids: list[int] = []
    start = ChildProcess.__init__

    def noted(child: ChildProcess, *arguments: object) -> None:
        start(child, *arguments)  # type: ignore[arg-type]
        pids.append(child.process.pid)

    monkeypatch.setattr(ChildProcess, "__init__", noted)
    return pids


def sleeping(folder: Path) -> None:
    (folder / "sleeps").touch()
    time.sleep(60)


def test_only_own_processes_end_with_the_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who uses this may have processes of its own."""
    pids = started(monkeypatch)
    other = multiprocessing.get_context("fork").Process(target=sleeping, args=(tmp_path,))
    other.start()
    try:
        opened = streams([5, 6, 7])
        next(next(opened))
        opened.close()  # type: ignore[attr-defined]
        assert len(pids) == 2
        assert sorted(map_unordered(abs, [-1, 2, -3], 2)) == [(0, 1), (1, 2), (2, 3)]
        assert other.is_alive()
        assert multiprocessing.active_children() == [other]
    finally:
        other.kill()
        other.join()
