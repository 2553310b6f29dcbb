"""The lock against real others: child processes with lockf, Java's FileChannel, a real broker."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.errors import AccessError, RefusedError
from storage.files import broker_lock
from storage.files.broker_lock import (
    LockHeldError,
    LockKind,
    LockState,
    TakenLocks,
    probe,
    take,
    take_in_turn,
)
from storage.files.fsio import FileSystem, OpenFile
from tests.kafka.broker import Broker, BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.files.fsio import StrPath

ROOT = Path(__file__).parents[3]

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
getattr(fcntl, sys.argv[2])(file, getattr(fcntl, sys.argv[3]))
print("locked", flush=True)
sys.stdin.read()
"""

# Prints the holder's process id as F_GETLK tells it, or "free" after it could take the lock.
TAKER = """
import fcntl, struct, sys
file = open(sys.argv[1], "r+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except BlockingIOError:
    answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack("@hhlli0l", fcntl.F_WRLCK, 0, 0, 0, 0))
    print(struct.unpack("@hhlli0l", answer)[4])
"""

JAVA_TAKER = """
import java.nio.channels.FileChannel;
import java.nio.file.*;
public class Take {
    public static void main(String[] args) throws Exception {
        FileChannel channel = FileChannel.open(Path.of(args[0]), StandardOpenOption.READ, StandardOpenOption.WRITE);
        System.out.println(channel.tryLock() == null ? "busy" : "free");
    }
}
"""

JAVA_HOLDER = """
import java.nio.channels.FileChannel;
import java.nio.file.*;
public class Hold {
    public static void main(String[] args) throws Exception {
        FileChannel channel = FileChannel.open(Path.of(args[0]), StandardOpenOption.READ, StandardOpenOption.WRITE);
        if (channel.tryLock() == null) throw new IllegalStateException("busy");
        System.out.println("locked");
        System.in.read();
    }
}
"""


@contextmanager
def holder(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process until it says that it has the lock; its stdin closed, it ends."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()


def python_holder(path: Path, call: str = "lockf", mode: str = "LOCK_EX") -> list[str]:
    return [sys.executable, "-c", HOLDER, str(path), call, mode]


@pytest.fixture
def lock_path(tmp_path: Path) -> Path:
    path = tmp_path / ".lock"
    path.touch()
    return path


def test_held_by_another_process_names_it(lock_path: Path) -> None:
    with holder(python_holder(lock_path)) as process:
        assert probe(lock_path) == LockState(LockKind.HELD, pid=process.pid)
        assert probe(lock_path).is_held
        # The first probe has closed its descriptor: that must not have freed the holder's lock.
        assert probe(lock_path).is_held
    assert probe(lock_path) == LockState(LockKind.FREE)


def test_probing_does_not_take_the_lock(lock_path: Path) -> None:
    assert probe(lock_path) == LockState(LockKind.FREE)
    with holder(python_holder(lock_path)):
        pass  # it could take the lock


def test_a_shared_lock_counts_as_held(tmp_path: Path, lock_path: Path) -> None:
    with holder(python_holder(lock_path, mode="LOCK_SH")):
        assert probe(lock_path).is_held


def test_flock_is_another_lock(lock_path: Path) -> None:
    with holder(python_holder(lock_path, call="flock")):
        assert probe(lock_path).kind is LockKind.FREE


def test_a_read_only_file_can_be_probed(lock_path: Path) -> None:
    with holder(python_holder(lock_path)):
        lock_path.chmod(0o444)
        assert probe(lock_path).is_held


def test_symbolic_link_is_followed(tmp_path: Path, lock_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(lock_path)
    with holder(python_holder(lock_path)):
        assert probe(link).is_held


def test_missing(tmp_path: Path) -> None:
    assert probe(tmp_path / ".lock") == LockState(LockKind.MISSING)
    assert probe(tmp_path / "no-such-dir" / ".lock") == LockState(LockKind.MISSING)


def test_what_cannot_be_asked_is_unknown(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    state = probe(plain / ".lock")
    assert state.kind is LockKind.UNKNOWN
    assert state.errno != 0
    if os.geteuid() != 0:
        plain.chmod(0)
        assert probe(plain).kind is LockKind.UNKNOWN


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    assert probe(tmp_path / ".lock").kind in {LockKind.FREE, LockKind.UNKNOWN}


def test_no_descriptor_is_left_open(lock_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        probe(lock_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_failing_fcntl_is_unknown(lock_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert probe(lock_path) == LockState(LockKind.UNKNOWN, errno=37)


# --- taking it ------------------------------------------------------------------------------------


def seen_by_a_child(path: Path) -> str:
    command = [sys.executable, "-c", TAKER, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "one", tmp_path / "two"]
    for log_dir in found:
        log_dir.mkdir()
    return found


def test_taken_in_every_log_dir_until_the_end(log_dirs: list[Path]) -> None:
    locks = [log_dir / ".lock" for log_dir in log_dirs]
    before = open_descriptors()
    with take(log_dirs) as taken:
        assert taken == TakenLocks(tuple(map(str, locks)), ())
        assert [seen_by_a_child(path) for path in locks] == [str(os.getpid())] * 2
    assert [seen_by_a_child(path) for path in locks] == ["free", "free"]
    assert open_descriptors() == before


def test_probing_what_we_hold_does_not_drop_it(log_dirs: list[Path], tmp_path: Path) -> None:
    lock = log_dirs[0] / ".lock"
    link = tmp_path / "link"
    link.symlink_to(lock)
    with take(log_dirs):
        for path in [lock, link, log_dirs[0] / ".." / "one" / ".lock"]:
            state = probe(path)
            assert state == LockState(LockKind.OURS, pid=os.getpid())
            assert not state.is_held
        assert seen_by_a_child(lock) == str(os.getpid())
    assert probe(lock) == LockState(LockKind.FREE)


def test_the_test_would_see_a_dropped_lock(log_dirs: list[Path]) -> None:
    """What the registry of held files is there for: any closed descriptor drops the lock."""
    lock = log_dirs[0] / ".lock"
    with take(log_dirs):
        lock.open().close()
        assert seen_by_a_child(lock) == "free"


def test_held_by_another_process_is_refused_with_its_id(log_dirs: list[Path]) -> None:
    second = log_dirs[1] / ".lock"
    second.touch()
    before = open_descriptors()
    with holder(python_holder(second)) as process:
        with pytest.raises(LockHeldError) as refused, take(log_dirs):
            pytest.fail("taken")
        assert (refused.value.path, refused.value.pid) == (str(second), process.pid)
        assert refused.value.exit_status == 4
        assert f"process {process.pid}" in refused.value.message
        assert refused.value.next_step
        # The first one was free and must be so again, and the holder keeps the second.
        assert seen_by_a_child(log_dirs[0] / ".lock") == "free"
        assert seen_by_a_child(second) == str(process.pid)
    assert open_descriptors() == before


SECOND = """
import sys
from storage.files.broker_lock import LockHeldError, take
try:
    with take([sys.argv[1]]):
        print("taken")
except LockHeldError as refused:
    print(refused.pid)
"""


def test_a_second_process_of_ours_is_refused(log_dirs: list[Path]) -> None:
    command = [sys.executable, "-c", SECOND, str(log_dirs[0])]

    def second() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return done.stdout.strip()

    with take(log_dirs):
        assert second() == str(os.getpid())
    assert second() == "taken"


class Clock:
    """A clock that moves when somebody sleeps."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, 1e-4)


def test_waiting_for_the_lock_ends_after_the_milliseconds_given(
    log_dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = log_dirs[0] / ".lock"
    lock.touch()
    clock = Clock()
    monkeypatch.setattr(broker_lock, "time", clock)
    with (
        holder(python_holder(lock)),
        pytest.raises(LockHeldError),
        take_in_turn(log_dirs, 250),
    ):
        pytest.fail("taken")
    assert 0.25 <= clock.now_s - Clock.now_s <= 0.3


def test_a_shared_lock_of_another_process_is_in_the_way(log_dirs: list[Path]) -> None:
    lock = log_dirs[0] / ".lock"
    lock.touch()
    with (
        holder(python_holder(lock, mode="LOCK_SH")) as process,
        pytest.raises(LockHeldError) as refused,
        take(log_dirs),
    ):
        pytest.fail("taken")
    assert refused.value.pid == process.pid


def test_one_directory_by_several_paths_counts_once(log_dirs: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(log_dirs[0])
    names: list[str | Path] = [
        log_dirs[0],
        link,
        f"{log_dirs[0]}/",
        tmp_path / "two" / ".." / "one",
    ]
    with take(names) as taken:
        assert len(taken.locked) == 1
        assert seen_by_a_child(log_dirs[0] / ".lock") == str(os.getpid())


def test_taking_it_twice_in_a_process_is_refused_and_drops_nothing(log_dirs: list[Path]) -> None:
    with take(log_dirs[:1]):
        with pytest.raises(LockHeldError, match="this process itself"), take(log_dirs):
            pytest.fail("taken")
        assert seen_by_a_child(log_dirs[0] / ".lock") == str(os.getpid())
    with take(log_dirs):
        pass


def test_an_error_inside_frees_it(log_dirs: list[Path]) -> None:
    with pytest.raises(KeyboardInterrupt), take(log_dirs):
        raise KeyboardInterrupt
    assert seen_by_a_child(log_dirs[0] / ".lock") == "free"


FORKER = """
import os, sys
from storage.files.broker_lock import LockKind, LockState, probe, take
lock = sys.argv[1] + "/.lock"
with take([sys.argv[1]]):
    parent = os.getpid()
    child = os.fork()
    if child == 0:  # the lock is another process's here: asking must tell whose
        os._exit(probe(lock) != LockState(LockKind.HELD, pid=parent))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("locked", flush=True)
    sys.stdin.read()
sys.exit(status)
"""


def test_a_forked_child_neither_has_it_nor_drops_it(log_dirs: list[Path]) -> None:
    with holder([sys.executable, "-c", FORKER, str(log_dirs[0])]) as process:
        assert probe(log_dirs[0] / ".lock") == LockState(LockKind.HELD, pid=process.pid)
    assert process.returncode == 0


def test_a_missing_lock_file_is_made_as_the_directory_is(log_dirs: list[Path]) -> None:
    log_dirs[0].chmod(0o750)
    if os.geteuid() == 0:
        os.chown(log_dirs[0], 4321, 8765)
    directory = log_dirs[0].stat()
    with take(log_dirs):
        found = (log_dirs[0] / ".lock").stat()
    assert stat.S_IMODE(found.st_mode) == 0o640
    assert (found.st_uid, found.st_gid) == (directory.st_uid, directory.st_gid)
    assert (log_dirs[0] / ".lock").exists()  # a broker never removes it either


def test_a_new_lock_file_of_another_owner_is_refused(
    log_dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(RefusedError, match="owner"), take(log_dirs):
        pytest.fail("taken")
    assert list(log_dirs[0].iterdir()) == []
    (log_dirs[0] / ".lock").touch()
    with take(log_dirs[:1]):  # nothing to be made
        pass


def test_a_symbolic_link_is_followed_as_a_broker_does(log_dirs: list[Path]) -> None:
    target = log_dirs[1] / "elsewhere"
    (log_dirs[0] / ".lock").symlink_to(target)
    with pytest.raises(AccessError), take(log_dirs[:1]):  # and nothing is made through it
        pytest.fail("taken")
    assert not target.exists()
    target.touch()
    with take(log_dirs[:1]):
        assert seen_by_a_child(target) == str(os.getpid())
        assert probe(target).kind is LockKind.OURS


def test_what_cannot_be_opened_is_no_lock(log_dirs: list[Path], tmp_path: Path) -> None:
    os.mkfifo(log_dirs[0] / ".lock")
    for bad in [log_dirs[0], tmp_path / "missing"]:
        with pytest.raises(AccessError), take([bad]):
            pytest.fail("taken")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_locks_that_do_not_work(
    number: int, log_dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    before = open_descriptors()
    with pytest.raises(RefusedError, match="do not work") as refused, take(log_dirs):
        pytest.fail("taken")
    assert not isinstance(refused.value, LockHeldError)
    assert "--broker-is-stopped" in refused.value.next_step
    with take(log_dirs, broker_is_stopped=True) as taken:
        assert taken == TakenLocks((), tuple(str(log_dir / ".lock") for log_dir in log_dirs))
        assert probe(log_dirs[0] / ".lock").kind is LockKind.FREE
    assert open_descriptors() == before


def test_a_held_lock_is_refused_whatever_the_user_vouches_for(log_dirs: list[Path]) -> None:
    lock = log_dirs[0] / ".lock"
    lock.touch()
    with (
        holder(python_holder(lock)),
        pytest.raises(LockHeldError),
        take(log_dirs, broker_is_stopped=True),
    ):
        pytest.fail("taken")


def test_an_unknown_error_of_locking_is_no_licence(
    log_dirs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "lockf", fail)
    with pytest.raises(AccessError), take(log_dirs, broker_is_stopped=True):
        pytest.fail("taken")


@pytest.mark.parametrize("has_successor", [False, True])
def test_a_lock_file_that_a_stopping_broker_removes_meanwhile_is_none(
    log_dirs: list[Path], has_successor: bool
) -> None:
    """4.3.1 removes it at a clean stop: what was opened before is no lock that a broker would see."""
    path = log_dirs[0] / ".lock"
    path.touch()
    first = path.stat().st_ino
    opened = []

    class Late(FileSystem):
        def open_existing(self, path: StrPath) -> OpenFile:
            file = super().open_existing(path)
            if not opened:
                Path(path).rename(f"{path}.kept")  # so that its number is not given out again
                if has_successor:
                    Path(path).touch()
            opened.append(path)
            return file

    with take(log_dirs[:1], fs=Late()):
        assert len(opened) == 2
        assert path.stat().st_ino != first
        assert seen_by_a_child(path) == str(os.getpid())
    assert seen_by_a_child(path) != str(os.getpid())


def test_a_missing_lock_file_is_made_by_the_given_file_system(log_dirs: list[Path]) -> None:
    made: list[str] = []

    class Noting(FileSystem):
        def open_new(self, path: str | os.PathLike[str], mode: int = 0o600) -> OpenFile:
            made.append(os.fspath(path))
            return super().open_new(path, mode)

    (log_dirs[1] / ".lock").touch()
    with take(log_dirs, fs=Noting()):
        pass
    # And linked to its name when it is whole.
    assert made == [str(log_dirs[0] / f".lock.{os.getpid()}.eoctl-tmp")]
    assert [path.name for path in log_dirs[0].iterdir()] == [".lock"]


def test_a_broker_that_makes_the_lock_file_meanwhile_keeps_it(log_dirs: list[Path]) -> None:
    class Late(FileSystem):
        def link(self, old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
            Path(new).write_bytes(b"the broker's")
            super().link(old, new)

    with take(log_dirs, fs=Late()):
        assert seen_by_a_child(log_dirs[0] / ".lock") == str(os.getpid())
    assert [path.read_bytes() for path in log_dirs[0].iterdir()] == [b"the broker's"]


# --- Java and the broker --------------------------------------------------------------------------


@pytest.mark.java
def test_lock_of_a_java_file_channel_is_seen(tmp_path: Path, lock_path: Path) -> None:
    source = tmp_path / "Hold.java"
    source.write_text(JAVA_HOLDER)
    with holder(["java", str(source), str(lock_path)]) as process:
        assert probe(lock_path) == LockState(LockKind.HELD, pid=process.pid)
    assert probe(lock_path).kind is LockKind.FREE


@pytest.mark.exhaustive
@pytest.mark.java
def test_java_cannot_lock_what_we_hold(tmp_path: Path, lock_path: Path) -> None:
    source = tmp_path / "Take.java"
    source.write_text(JAVA_TAKER)

    def seen_by_java() -> str:
        command = ["java", str(source), str(lock_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with take([tmp_path]):
        assert seen_by_java() == "busy"
    assert seen_by_java() == "free"


@pytest.mark.exhaustive
@pytest.mark.broker
def test_a_broker_and_we_keep_each_other_away(tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    log_dir.mkdir()
    broker = Broker(log_dir)
    try:
        with take([log_dir]):
            with pytest.raises(BrokerError):
                broker.start()
            refusal = f"Failed to acquire lock on file .lock in {log_dir}"
            assert any(refusal in line for line in broker.log_lines())
            assert probe(log_dir / ".lock").kind is LockKind.OURS
        broker.start()
        with pytest.raises(LockHeldError) as refused, take([log_dir]):
            pytest.fail("taken")
        assert refused.value.pid == broker.pid
        broker.stop()
        with take([log_dir]):
            pass
    finally:
        broker.close()
