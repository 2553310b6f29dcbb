"""A file system whose n-th call fails, as a full, dying or forbidding disk lets it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from storage.files.fsio import FileSystem

if TYPE_CHECKING:
    from storage.files.fsio import Bytes, OpenFile, StrPath

CALLS = tuple(sorted(name for name in vars(FileSystem) if not name.startswith("_")))


class UnsyncedFileSystem(FileSystem):
    """Syncs nothing: quicker, for what no crash comes after."""

    def fsync(self, file: OpenFile) -> None:
        pass

    def fsync_dir(self, path: StrPath) -> None:
        pass


class FailingFileSystem(FileSystem):
    """The n-th call, counted from 0, raises OSError(error_number).

    A failing write has written the first half; a failing close has closed; any other failing call
    has done nothing.

    Args:
        fails_at: which call; with a number that is never reached it only counts.
        error_number: of `errno`.
        for_ever: every later call fails too, as on a disk that is gone.

    Attributes:
        calls: the names of all calls until now.
    """

    threads_count = 1  # the calls have an order

    def __init__(self, fails_at: int, error_number: int, *, for_ever: bool = False) -> None:
        self.fails_at = fails_at
        self.error_number = error_number
        self.for_ever = for_ever
        self.calls: list[str] = []

    def _fails_now(self, name: str) -> bool:
        call_number = len(self.calls)
        self.calls.append(name)
        return call_number == self.fails_at or (self.for_ever and call_number > self.fails_at)

    def _error(self) -> OSError:
        return OSError(self.error_number, os.strerror(self.error_number))

    def write(self, file: OpenFile, data: Bytes) -> None:
        if self._fails_now("write"):
            super().write(file, memoryview(data)[: len(data) // 2])
            raise self._error()
        super().write(file, data)

    def close(self, file: OpenFile) -> None:
        fails = self._fails_now("close") and file.fd >= 0
        super().close(file)
        if fails:
            raise self._error()


def _failing(name: str) -> Any:
    def call(self: FailingFileSystem, *args: Any, **options: Any) -> Any:
        if self._fails_now(name):
            raise self._error()
        return getattr(FileSystem, name)(self, *args, **options)

    return call


for _name in CALLS:
    if _name not in vars(FailingFileSystem):
        setattr(FailingFileSystem, _name, _failing(_name))
