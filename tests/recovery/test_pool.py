"""The worker pool: results, streams, workers that die or stop, and callers with native threads."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from functools import partial
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery import pool
from recovery.pool import (
    ATTEMPTS_COUNT,
    Worker,
    WorkerLostError,
    map_in_order,
    map_unordered,
    stream_in_order,
)
from storage.errors import AccessError, EoctlError, UsageError
from storage.files import positioned_file
from tests.drawn import times
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]


def double(value: int) -> int:
    if value == 3:
        raise AccessError(OSError(errno.ENOSPC, "No space left on device"), "there")
    return 2 * value


def dying(folder: Path, times: int, how: signal.Signals, value: int) -> int:
    """Die the first so many times that a value above 9 is asked for; leave a file per call."""
    (folder / f"{value}-{os.getpid()}").touch()
    if value > 9 and len(list(folder.glob(f"{value}-*"))) <= times:
        os.kill(os.getpid(), how)
    return 2 * value


def calls_of(folder: Path, value: int) -> int:
    return len(list(folder.glob(f"{value}-*")))


def test_results_and_errors() -> None:
    assert sorted(map_unordered(double, [1, 2, 4], 2)) == [(0, 2), (1, 4), (2, 8)]
    assert list(map_in_order(double, [*range(10, 300)], 2)) == [*range(20, 600, 2)]
    assert list(map_unordered(double, [], 2)) == []
    assert list(map_unordered(double, [7], 2)) == [(0, 14)]
    with pytest.raises(AccessError, match="there: No space"):
        list(map_unordered(double, [1, 3, 2], 2))


# --- workers that die -----------------------------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("values", [[10, 1, 2, 3], [1, 10, 2, 11, 3]])
def test_a_value_whose_worker_died_is_tried_once_more(
    tmp_path: Path, values: list[int], how: signal.Signals
) -> None:
    found = sorted(map_unordered(partial(dying, tmp_path, 1, how), values, 2))
    assert found == [(number, 2 * value) for number, value in enumerate(values)]
    for value in values:
        assert calls_of(tmp_path, value) == (2 if value > 9 else 1)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_the_error_names_what_two_workers_died_on(tmp_path: Path, how: signal.Signals) -> None:
    deadly = partial(dying, tmp_path, 99, how)
    results = map_unordered(deadly, [1, 2, 10, 3], 2, name_of=lambda value: f"log-{value}")
    with pytest.raises(WorkerLostError, match=f"log-10: .* {how.name}, twice") as raised:
        list(results)
    assert raised.value.path == "log-10"
    assert calls_of(tmp_path, 10) == ATTEMPTS_COUNT


class Fatal:
    """A result that kills the worker that sent it when it arrives."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return killed, (self.value, os.getpid())


def killed(value: int, pid: int) -> Fatal:
    os.kill(pid, signal.SIGKILL)
    while is_running(pid):
        time.sleep(0.001)
    return Fatal(value)


def is_running(pid: int | str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def fatal(value: int) -> Fatal:
    return Fatal(2 * value)


def test_killed_between_two_values() -> None:
    found = [(number, each.value) for number, each in map_unordered(fatal, [1, 2, 3, 4, 5], 2)]
    assert sorted(found) == [(0, 2), (1, 4), (2, 6), (3, 8), (4, 10)]


def test_workers_that_cannot_even_start(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Worker.send

    def killing(self: Worker, value: Any) -> None:
        self.process.kill()
        self.process.join()
        send(self, value)

    monkeypatch.setattr(Worker, "send", killing)
    with pytest.raises(WorkerLostError):
        list(map_unordered(double, [1, 2, 4], 2))


@pytest.mark.share(1)
@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError(), OSError(5, "I/O")])
def test_an_error_of_a_connection_is_a_lost_worker(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """A command takes a BrokenPipeError for the end of the reader of its stdout."""
    from multiprocessing.connection import Connection

    def failing(*_: object) -> Any:
        raise error

    list(map_unordered(double, [1, 2, 4], 2))  # the server runs
    for name in ("_send_bytes", "_recv_bytes"):
        with monkeypatch.context() as patch:
            patch.setattr(Connection, name, failing)
            with pytest.raises(WorkerLostError):
                list(map_unordered(double, [1, 2, 4], 2))


# --- workers that stop, and interrupts ------------------------------------------------------------


def stopping(folder: Path, value: int) -> int:
    """Stop this process the first time that a value above 9 is asked for."""
    (folder / f"{value}-{os.getpid()}").touch()
    if value > 9 and calls_of(folder, value) == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return 2 * value


def test_a_stopped_worker_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.05)
    found = sorted(map_unordered(partial(stopping, tmp_path), [1, 10, 2, 3], 2))
    assert found == [(0, 2), (1, 20), (2, 4), (3, 6)]
    assert calls_of(tmp_path, 10) == 2


def slow(folder: Path, value: int) -> int:
    """Return a value above 9 only when the file `reported` is there."""
    while value > 9 and not (folder / "reported").exists():
        time.sleep(0.01)
    return 2 * value


def slow_or_reading(folder: Path, value: int) -> int:
    """Wait for the report with 10; the others read all the time until then."""
    watcher = positioned_file.current_watcher()
    assert watcher is not None
    while not (folder / "reported").exists():
        if value != 10:
            watcher.read(f"{folder}/{value}.log", 0, 1)
        time.sleep(0.01)
    return 2 * value


def slow_stream(folder: Path, value: int) -> Iterator[int]:
    yield slow(folder, value)


@pytest.fixture
def stalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of what stalled workers read; the first report lets `slow` go on."""
    monkeypatch.setattr(pool, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.05)
    found: list[str] = []

    def report(name: str, seconds: float) -> None:
        assert seconds >= 0.2
        found.append(name)
        if name == "log-10":
            (tmp_path / "reported").touch()

    positioned_file.on_stall(report)
    yield found
    positioned_file.on_stall(None)


def test_what_a_worker_waits_for_is_reported_once(tmp_path: Path, stalls: list[str]) -> None:
    values = [1, 10, 2, 3]
    function = partial(slow, tmp_path)
    assert len(list(map_unordered(function, values, 2, name_of=lambda each: f"log-{each}"))) == 4
    assert stalls.count("log-10") == 1


def test_a_busy_worker_does_not_hide_a_stalled_one(tmp_path: Path, stalls: list[str]) -> None:
    function = partial(slow_or_reading, tmp_path)
    found = map_unordered(function, [10, 1], 2, name_of=lambda each: f"log-{each}")
    assert sorted(found) == [(0, 20), (1, 2)]
    assert "log-10" in stalls


def test_what_a_stream_waits_for_is_reported(tmp_path: Path, stalls: list[str]) -> None:
    opened = stream_in_order(
        partial(slow_stream, tmp_path),
        [1, 10, 2],
        2,
        weight_of=int,
        max_weight=0,
        name_of=lambda each: f"log-{each}",
    )
    assert [list(stream) for stream in opened] == [[2], [20], [4]]
    assert stalls.count("log-10") == 1


STALLED = """
import os, signal, sys, time
from pathlib import Path
from eoctl import outcome, progress
from recovery import pool

def stopping(value):
    if value == 2:
        Path(sys.argv[1], "pid").write_text(str(os.getpid()))
        time.sleep(600)
    return value

def command():
    progress.start(is_wanted=True)
    pool.STALL_SECONDS, pool.POLL_SECONDS = 0.2, 0.05
    list(pool.map_unordered(stopping, [1, 2, 3], 2, name_of=lambda value: f"/mnt/log-{value}"))

if __name__ == "__main__":
    sys.exit(outcome.exit_status_of(command))
"""


def test_a_command_that_waits_names_the_file_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    script = tmp_path / "stalled.py"
    script.write_text(STALLED)
    process = subprocess.Popen(
        [sys.executable, script, tmp_path],
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    with process:
        line = process.stderr.readline()
        assert line.startswith("eoctl: /mnt/log-2: nothing was read for ")
        worker_pid = (tmp_path / "pid").read_text()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().endswith("eoctl: interrupted\n")
    assert process.returncode == 130
    assert not is_running(worker_pid)


def alive(folder: Path, value: int) -> int:
    (folder / str(os.getpid())).touch()
    if value:
        time.sleep(60)
    return value


def test_workers_end_with_the_iteration(tmp_path: Path) -> None:
    results: Iterator[tuple[int, int]] = map_unordered(partial(alive, tmp_path), [0, 1, 1, 1], 2)
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    assert not [each.name for each in tmp_path.iterdir() if is_running(each.name)]


def is_interrupt_blocked(value: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_no_worker_takes_an_interrupt() -> None:
    """Nor the server, nor the resource tracker that Python starts first."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    assert sorted(map_unordered(is_interrupt_blocked, [1, 2], 2)) == [(0, True), (1, True)]


ORPHANED = """
import os, signal, sys, time
from recovery.pool import map_unordered

def working(value):
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    list(map_unordered(working, [1, 2], 2))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_process_that_started_it(tmp_path: Path, number: int) -> None:
    script = tmp_path / "orphaned.py"
    script.write_text(ORPHANED)
    process = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    with process:
        assert process.stdout.readline()
        assert process.stdout.readline()
        process.send_signal(number)
        process.wait()
        process.stdout.read()  # ends when no process has it open any more


# --- callers with threads -------------------------------------------------------------------------


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def parents_threads(value: int) -> int:
    import numpy  # noqa: ICN001, F401

    return threads_of(os.getppid())


def test_the_process_that_forks_has_one_thread() -> None:
    """Numpy's linear algebra starts a thread per processor unless it is told not to."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    from recovery.audit.local_workers import _read_task

    with pytest.raises(TypeError):  # the server imports what it needs, with numpy
        list(map_unordered(_read_task, [1, 2], 2))  # type: ignore[arg-type]
    assert dict(map_unordered(parents_threads, [1, 2], 2)) == {0: 1, 1: 1}


BESIDE_A_PRODUCER = """
import sys
from confluent_kafka import Producer
from recovery import pool
from recovery.audit.local_workers import read_pieces
from storage.places.list_places import list_places
from storage.places.splits import split_places

if __name__ == "__main__":
    pool.MIN_SHARED_BYTES = 0
    splits = split_places(list_places([sys.argv[1]]).places, 1 << 30)
    def figures(pieces):
        return sorted(str(each.piece.summary.figures()) for each in pieces)
    alone = figures(read_pieces(splits, 1))
    for number in range(int(sys.argv[2])):
        producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        found = figures(read_pieces(splits, 2, task_bytes=0))
        assert len(found) >= 20
        assert found == alone
        del producer
    print("done")
"""


def test_a_program_with_native_threads_may_use_the_pool(
    tmp_path: Path, golden: Callable[[str], Path]
) -> None:
    """Librdkafka's threads are invisible to Python; forked children of theirs crashed or hung."""
    script = tmp_path / "program.py"
    script.write_text(BESIDE_A_PRODUCER)
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
    done = subprocess.run(
        [sys.executable, script, log_dir, str(times(200, 10))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


class OddError(Exception):
    """An error that cannot be restored in another process."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} of {second}")


def raising_odd(value: int) -> int:
    raise OddError(value, 9)


def test_an_error_that_cannot_travel_is_told_in_words() -> None:
    with pytest.raises(EoctlError, match=r"OddError: \d of 9"):
        list(map_unordered(raising_odd, [1, 2], 2))


@pytest.mark.parametrize("place", ["short", "x" * 100])
def test_without_a_place_for_its_socket_workers_start_anew(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir()
    script = tmp_path / "program.py"
    script.write_text(
        "from recovery.pool import map_unordered\n"
        "if __name__ == '__main__':\n"
        "    print(sorted(map_unordered(abs, [-1, -2], 2)))\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / place)},
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[(0, 1), (1, 2)]\n"), done.stderr


# --- settings, reads ------------------------------------------------------------------------------


def setting(value: int) -> tuple[str, str]:
    return os.environ.get("EOCTL_TEST_SETTING", ""), str(Path.cwd())


def test_a_worker_has_the_environment_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("EOCTL_TEST_SETTING", name)
        found = dict(map_unordered(setting, [1, 2], 2))
        assert found == dict.fromkeys([0, 1], (name, str(tmp_path / name)))


# --- streams --------------------------------------------------------------------------------------


def counting(value: int) -> Iterator[int]:
    """1 to the value; 7 fails behind the third."""
    for number in range(1, value + 1):
        if value == 7 and number == 4:
            raise UsageError("seven")
        yield number


def counting_until_killed(folder: Path, times: int, value: int) -> Iterator[int]:
    for number in counting(value):
        if value == 8 and number == 4 and len(list(folder.iterdir())) < times:
            (folder / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


def streams(
    values: list[int],
    jobs: int = 2,
    max_weight: int = 3,
    function: Callable[[int], Iterator[int]] = counting,
) -> Iterator[Iterator[int]]:
    return stream_in_order(
        function,
        values,
        jobs,
        weight_of=int,
        max_weight=max_weight,
        name_of=lambda value: f"log-{value}",
    )


@pytest.mark.share(3)
@pytest.mark.parametrize("jobs, max_weight", [*itertools.product([1, 2, 9], [0, 100]), (2, 3)])
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


@pytest.mark.share(2)
@pytest.mark.parametrize("max_weight", [0, 3, 100])
def test_a_stream_goes_on_behind_what_a_dead_worker_sent(tmp_path: Path, max_weight: int) -> None:
    function = partial(counting_until_killed, tmp_path, 1)
    found = [list(stream) for stream in streams([2, 8, 3, 4], 2, max_weight, function)]
    assert found == [list(range(1, value + 1)) for value in (2, 8, 3, 4)]
    assert len(list(tmp_path.iterdir())) == 1


def test_the_error_names_the_stream_that_two_workers_died_on(tmp_path: Path) -> None:
    opened = streams([2, 8], 2, 0, partial(counting_until_killed, tmp_path, 9))
    assert list(next(opened)) == [1, 2]
    with pytest.raises(WorkerLostError, match=r"log-8: .* SIGKILL, twice"):
        list(next(opened))


def counting_less(folder: Path, value: int) -> Iterator[int]:
    """Be killed the first time behind the third message of 8, and have fewer the second time."""
    for number in counting(2 if value == 8 and any(folder.iterdir()) else value):
        if value == 8 and number == 4:
            (folder / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


def test_a_file_that_changed_between_two_attempts_is_an_error(tmp_path: Path) -> None:
    """The messages of the next value must not be taken for this one's."""
    opened = streams([8, 1, 5, 1], 2, 0, partial(counting_less, tmp_path))
    with pytest.raises(WorkerLostError, match="log-8"):
        list(next(opened))
    assert list(next(opened)) == [1]
    assert list(next(opened)) == [1, 2, 3, 4, 5]


def test_an_error_of_a_stream_that_was_left_is_not_the_next_ones() -> None:
    opened = streams([7, 1, 5, 2], 2, 0)
    assert next(next(opened)) == 1
    assert [list(stream) for stream in opened] == [[1], [1, 2, 3, 4, 5], [1, 2]]


def test_a_stream_that_was_never_begun_shifts_none() -> None:
    opened = streams([3, 1, 5, 2], 2, 0)
    next(opened)
    assert [list(stream) for stream in opened] == [[1], [1, 2, 3, 4, 5], [1, 2]]
