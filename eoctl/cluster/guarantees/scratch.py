"""Where courses of events are played: directories in memory that go with the process.

A process that is killed leaves its directory there. It is locked (flock) while somebody plays in
it, so that the next process can tell, and removes what nobody has any more.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

from storage.errors import EoctlError
from storage.files.fsio import FileSystem
from storage.files.trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.files.fsio import OpenFile

MEMORY = "/dev/shm"  # noqa: S108 - a directory in memory, where there is one
PREFIX = "eoctl-course-"
ATTEMPTS = 9


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for one course, empty; afterwards it is gone.

    Raises:
        AccessError: it cannot be made.
    """
    place = MEMORY if Path(MEMORY).is_dir() else gettempdir()
    remove_abandoned(place)
    fs = FileSystem()
    for attempt in range(1, ATTEMPTS + 1):
        with TemporaryDirectory(prefix=PREFIX, dir=place, ignore_cleanup_errors=True) as directory:
            lock = _locked(fs, directory)
            # Somebody else took it for abandoned before it was locked; or there are no such locks
            # here, and nobody can take it for that.
            if lock is None and attempt < ATTEMPTS:
                continue
            try:
                yield Path(directory)
            finally:
                if lock is not None:
                    fs.close(lock)
            return


def _locked(fs: FileSystem, directory: str) -> OpenFile | None:
    """Lock a directory; None: somebody has it, or it is gone."""
    try:
        lock = fs.open_dir(directory)
    except OSError:
        return None
    try:
        fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock.fd), Path(directory).stat()):
            return lock
    except OSError:
        pass
    fs.close(lock)
    return None


@cache
def remove_abandoned(place: str) -> None:
    """Remove what processes have left that were killed; once is enough."""
    fs = FileSystem()
    for each in Path(place).glob(f"{PREFIX}*"):
        lock = _locked(fs, str(each))
        if lock is None:
            continue
        try:
            with suppress(EoctlError):  # somebody else's
                remove_tree(fs, each)
        finally:
            fs.close(lock)
