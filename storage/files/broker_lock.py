"""The `.lock` file of a log directory: detect a running broker (`probe`) and block it (`take`).

While its process lives, a broker holds an exclusive POSIX record lock on the whole `.lock` file of
each of its log directories. It uses the JVM's FileChannel.tryLock, which is fcntl F_SETLK on Linux.
The broker creates the file when it starts. A clean stop of 4.3.1 removes it, and a crash leaves it,
so its existence and content prove nothing. A stopping broker may remove the file after eoctl opened
it. So a lock counts only if its path still leads to the locked file.

`flock(2)` does not see that lock. `F_GETLK` does, and takes nothing. Readers only probe, since a
lock taken for a moment would fail a broker that starts in that moment. To answer whether a write
lock is possible, the kernel requires no descriptor open for writing. So the file is opened
read-only.

A POSIX lock is dropped when its process closes *any* descriptor of the file. That never affects
another process. But while this process holds a lock, nothing in it may open that file again.
`probe` and `take` recognize the held files by device and inode, and answer without opening them. A
child process neither inherits the lock nor can drop it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import AccessError, RefusedError
from storage.file_names import LOCK_FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.files.fsio import FileSystem, OpenFile

    FileId = tuple[int, int]  # device, inode


# Errors of locks that do not work: no lock manager (NFS without one), or no locks in the file
# system.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

# The files that this process holds, with its process id. After a fork they are the parent's.
_held: dict[FileId, int] = {}
# While a thread takes a lock, no other thread may close a descriptor of that lock file.
_guard = threading.RLock()

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.02

# struct flock of Linux, native alignment: l_type, l_whence, l_start, l_len, l_pid.
FLOCK = Struct("@hhlli0l")


class LockKind(StrEnum):
    """The result of a probe."""

    HELD = "held"  # by another process: a broker, or a tool that locks like a broker
    OURS = "ours"  # by this process: no broker runs, and none can start
    FREE = "free"
    MISSING = "missing"  # no such file: the broker never started, or a copy without it
    UNKNOWN = "unknown"  # no permission, or a file system without working locks


class LockState(NamedTuple):
    """The result of a probe with the holder.

    `pid` is the holder's process id. It is None if the lock is not held, or if the holder is on
    another machine or in another process namespace. `errno` is set for UNKNOWN.
    """

    kind: LockKind
    pid: int | None = None
    errno: int = 0

    @property
    def is_held(self) -> bool:
        """Return whether another process holds the lock now."""
        return self.kind is LockKind.HELD

    @property
    def holder(self) -> str:
        """The holder of the lock, in words."""
        return "a process" if self.pid is None else f"process {self.pid}"


def probe(path: str | os.PathLike[str]) -> LockState:
    """Return the state of the lock file at `path`. Never raises for an error of the file system."""
    if sys.platform != "linux":  # struct flock has another layout elsewhere
        return LockState(LockKind.UNKNOWN, errno=errno.ENOTSUP)
    with _guard:
        try:
            found = os.stat(path)  # noqa: PTH116 - for each log dir that is read
            if _is_held_here((found.st_dev, found.st_ino)):
                return LockState(LockKind.OURS, pid=os.getpid())
            # O_NONBLOCK: opening a pipe of that name must not block.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except FileNotFoundError:
            return LockState(LockKind.MISSING)
        except OSError as error:
            return LockState(LockKind.UNKNOWN, errno=error.errno or 0)
        try:
            return _ask(fd)
        except OSError as error:
            return LockState(LockKind.UNKNOWN, errno=error.errno or 0)
        finally:
            os.close(fd)


def _ask(fd: int) -> LockState:
    """Return the lock that conflicts with a write lock. Opens and closes nothing."""
    question = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    lock_type, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    if lock_type == fcntl.F_UNLCK:
        return LockState(LockKind.FREE)
    return LockState(LockKind.HELD, pid=pid if pid > 0 else None)


def _is_held_here(file_id: FileId) -> bool:
    return _held.get(file_id) == os.getpid()


class LockHeldError(RefusedError):
    """Another process or this one holds the lock of a log directory.

    `pid` is None if the holder is on another machine or in a container.
    """

    def __init__(self, path: str, pid: int | None) -> None:
        self.path = path
        self.pid = pid
        if pid == os.getpid():
            holder, next_step = "this process itself", ""
        else:
            holder = (
                "a process of another machine or container" if pid is None else f"process {pid}"
            )
            next_step = "stop the broker, then run it again"
        super().__init__(
            f"{path}: {holder} holds the lock; nothing was touched", next_step=next_step
        )


class TakenLocks(NamedTuple):
    """The result of `take`: `.lock` files that are locked, and those without a lock.

    A file system without locks leaves a file without a lock.
    """

    locked: tuple[str, ...]
    unlocked: tuple[str, ...]


@contextmanager
def take(
    log_dirs: Iterable[str | os.PathLike[str]],
    *,
    broker_is_stopped: bool = False,
    fs: FileSystem | None = None,
) -> Iterator[TakenLocks]:
    """Block every broker from log directories, as a broker does, until the `with` block ends.

    Args:
        log_dirs: all log directories of the node. Several paths to one directory count once. A
            missing `.lock` is created, with the owner, group and mode of its directory, and stays.
        broker_is_stopped: the user states it: continue if the file system has no locks.
        fs: creates a missing file.

    Raises:
        LockHeldError: with the process id of the holder (exit status 4). Then no lock is taken.
        RefusedError: the file system has no locks, or a new file would have the wrong owner.
        AccessError: a directory or its lock file cannot be opened for writing.
    """
    if fs is None:
        from storage.files import fsio

        fs = fsio.FileSystem()
    files: list[OpenFile] = []
    locked: list[str] = []
    unlocked: list[str] = []
    try:
        for log_dir in _distinct(log_dirs):
            path = str(Path(log_dir, LOCK_FILE_NAME))
            with _guard:
                is_locked = _take_one(fs, path, files, broker_is_stopped=broker_is_stopped)
            (locked if is_locked else unlocked).append(path)
        yield TakenLocks(tuple(locked), tuple(unlocked))
    finally:
        for file in files:
            _release(file)


@contextmanager
def take_in_turn(
    log_dirs: Iterable[str | os.PathLike[str]],
    wait_ms: int,
    *,
    broker_is_stopped: bool = False,
    fs: FileSystem | None = None,
) -> Iterator[TakenLocks]:
    """Take locks as `take` does, but wait for another holder for at most about `wait_ms`.

    This is for processes that hold the lock briefly and in turns. A broker holds its lock while it
    runs, and does not start while another process holds it.
    """
    end_s = time.monotonic() + wait_ms / 1000
    pause_s = _FIRST_WAIT_S
    directories = [*log_dirs]
    with ExitStack() as stack:
        while True:
            try:
                lock = take(directories, broker_is_stopped=broker_is_stopped, fs=fs)
                taken = stack.enter_context(lock)
                break
            except LockHeldError as error:
                if error.pid == os.getpid() or time.monotonic() >= end_s:
                    raise
            # A random pause, so that waiting processes do not retry at the same time.
            import random  # loaded late because it is slow to import

            time.sleep(random.uniform(0, pause_s))  # noqa: S311
            pause_s = min(2 * pause_s, _LONGEST_WAIT_S)
        yield taken


def _take_one(fs: FileSystem, path: str, files: list[OpenFile], *, broker_is_stopped: bool) -> bool:
    """Open and lock one file and add it to `files`. Returns False as `_lock` does."""
    while True:
        file = _open(fs, path)
        files.append(file)
        is_locked = _lock(file, path, broker_is_stopped=broker_is_stopped)
        if _leads_to(path, file):
            return is_locked
        # A stopping broker has removed this file. The next broker would create a new file.
        _release(files.pop())


def _leads_to(path: str, file: OpenFile) -> bool:
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # no proof of the contrary
    opened = os.fstat(file.fd)
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


def _distinct(directories: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the directories in their order, without further paths to the same directory."""
    found: dict[FileId, str] = {}
    for directory in directories:
        try:
            status = Path(directory).stat()
        except OSError as error:
            raise AccessError(error, os.fspath(directory)) from error
        found.setdefault((status.st_dev, status.st_ino), os.fspath(directory))
    return list(found.values())


def _open(fs: FileSystem, path: str) -> OpenFile:
    """Open a lock file for writing, created if missing. Never opens a file that we hold."""
    target = os.path.realpath(path)  # a broker follows symbolic links here
    try:
        status = Path(target).stat()
    except OSError:  # the file is missing, or the open gives the reason
        pass
    else:
        if _is_held_here((status.st_dev, status.st_ino)):
            raise LockHeldError(path, os.getpid())
    try:
        return fs.open_existing(target)
    except FileNotFoundError:
        _make(fs, path)
    except OSError as error:
        raise _open_error(error, path) from error
    try:
        return fs.open_existing(path)
    except OSError as error:
        raise _open_error(error, path) from error


def _make(fs: FileSystem, path: str) -> None:
    """Create a missing lock file. A starting broker may create it first, which is fine."""
    from storage.files import fsio

    try:
        # Atomic with its owner: a broker cannot start on a lock file that it cannot open.
        fsio.add_file(fs, path, b"")
    except AccessError as error:
        if error.errno != errno.EEXIST:
            raise


def _open_error(error: OSError, path: str) -> AccessError:
    return AccessError(
        error,
        path,
        next_step="nothing was touched; a lock needs a regular file that can be written: run it as"
        " the user of the broker, or as root",
    )


def _lock(file: OpenFile, path: str, *, broker_is_stopped: bool) -> bool:
    """Take the lock.

    Returns False if the file system has no locks and the user states that no broker runs.
    """
    try:
        fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            raise LockHeldError(path, _holder_pid(file.fd)) from error
        if error.errno not in _NO_LOCKS:
            raise AccessError(error, path) from error
        if broker_is_stopped:
            return False
        raise RefusedError(
            f"{path}: locks do not work on this file system ({error.strerror}), so that a running"
            " broker cannot be seen; nothing was touched",
            next_step="make sure that no broker runs, then add --broker-is-stopped",
        ) from error
    status = os.fstat(file.fd)
    _held[status.st_dev, status.st_ino] = os.getpid()
    return True


def _holder_pid(fd: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return _ask(fd).pid
    except OSError:
        return None


def _release(file: OpenFile) -> None:
    with _guard:
        status = os.fstat(file.fd)
        with suppress(OSError):  # the descriptor is closed and the lock dropped anyway
            file.fs.close(file)
        if _held.get((status.st_dev, status.st_ino)) == os.getpid():
            del _held[status.st_dev, status.st_ino]
