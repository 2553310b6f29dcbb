"""Calls in several processes: results, errors, and processes that die at any moment."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.work import processes as piece_workers
from recovery.work.processes import ATTEMPTS_COUNT, WorkerLostError, map_unordered
from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True, params=["fork", "spawn"])
def _method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started anew import this module."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(piece_workers, "start_method", lambda: request.param)


START_METHOD = """
import threading
from recovery.work.processes import start_method
print(start_method())
over = threading.Event()
thread = threading.Thread(target=over.wait)
thread.start()
print(start_method())
over.set()
thread.join()
import pyarrow
print(start_method())
"""


def test_a_process_with_threads_is_not_forked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", START_METHOD],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == ["fork", "spawn", "spawn"]


def double(value: int) -> int:
    if value == 3:
        raise AccessError(OSError(errno.ENOSPC, "No space left on device"), "there")
    return 2 * value


def dying(folder: Path, times: int, value: int) -> int:
    """Die the first so many times that a value above 9 is asked for; tell of each call."""
    (folder / f"{value}-{os.getpid()}").touch()
    if value > 9 and len(list(folder.glob(f"{value}-*"))) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * value


def calls_of(folder: Path, value: int) -> int:
    return len(list(folder.glob(f"{value}-*")))


def test_results_and_errors() -> None:
    assert sorted(map_unordered(double, [1, 2, 4], 2)) == [(0, 2), (1, 4), (2, 8)]
    assert list(map_unordered(double, [], 2)) == []
    assert list(map_unordered(double, [7], 2)) == [(0, 14)]
    with pytest.raises(AccessError, match="there: No space"):
        list(map_unordered(double, [1, 3, 2], 2))


@pytest.mark.share(4)
@pytest.mark.parametrize("values", [[10, 1, 2, 3], [1, 2, 3, 10], [10, 11, 12], [1, 10, 2, 11, 3]])
def test_killed_during_a_task(tmp_path: Path, values: list[int]) -> None:
    found = sorted(map_unordered(partial(dying, tmp_path, ATTEMPTS_COUNT - 1), values, 2))
    assert found == [(number, 2 * value) for number, value in enumerate(values)]
    for value in values:
        assert calls_of(tmp_path, value) == (ATTEMPTS_COUNT if value > 9 else 1)


def test_a_value_that_kills_whatever_takes_it(tmp_path: Path) -> None:
    results = map_unordered(partial(dying, tmp_path, 99), [1, 2, 10, 3], 2)
    assert [next(results), next(results)]
    with pytest.raises(WorkerLostError):
        list(results)
    assert calls_of(tmp_path, 10) == ATTEMPTS_COUNT


class Fatal:
    """A result that kills the process that has sent it, when it has come."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return killed, (self.value, os.getpid())


def killed(value: int, pid: int) -> Fatal:
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return Fatal(value)


def fatal(value: int) -> Fatal:
    return Fatal(2 * value)


def test_killed_between_tasks() -> None:
    found = [(number, each.value) for number, each in map_unordered(fatal, [1, 2, 3, 4, 5], 2)]
    assert sorted(found) == [(0, 2), (1, 4), (2, 6), (3, 8), (4, 10)]


def test_processes_that_cannot_even_start(monkeypatch: pytest.MonkeyPatch) -> None:
    send = piece_workers._Worker.send

    def killing(self: Any, value: Any) -> None:
        self.process.kill()
        self.process.join()
        send(self, value)

    monkeypatch.setattr(piece_workers._Worker, "send", killing)
    with pytest.raises(WorkerLostError):
        list(map_unordered(double, [1, 2, 4], 2))


@pytest.mark.share(3)
@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError(), OSError(5, "I/O")])
def test_no_error_of_a_connection_gets_through(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """The command takes a BrokenPipeError for the end of whoever reads its stdout."""
    from multiprocessing.connection import Connection

    def failing(*_: object) -> Any:
        raise error

    for name in ("_send_bytes", "_recv_bytes"):
        with monkeypatch.context() as patch:
            patch.setattr(Connection, name, failing)
            with pytest.raises(WorkerLostError):
                list(map_unordered(double, [1, 2, 4], 2))


def alive(folder: Path, value: int) -> int:
    (folder / str(os.getpid())).touch()
    if value:
        time.sleep(60)
    return value


def is_running(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_end_with_the_iteration(tmp_path: Path) -> None:
    results: Iterator[tuple[int, int]] = map_unordered(partial(alive, tmp_path), [0, 1, 1, 1], 2)
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    assert not [each.name for each in tmp_path.iterdir() if is_running(each.name)]


def is_interrupt_blocked(value: int) -> bool:
    time.sleep(0.2)
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_no_process_takes_an_interrupt() -> None:
    """Nor the first one, with which Python starts a process of its own."""
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    assert list(map_unordered(is_interrupt_blocked, [1, 2], 2)) in (
        [(0, True), (1, True)],
        [(1, True), (0, True)],
    )
