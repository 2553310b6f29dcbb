"""Who is told what is read of files in this process, for progress; nobody, as a rule.

Every reader of files comes by here, so that no command has to count for itself.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Readers skip what they need not see; beyond that it is another part of the file.
GAP_BYTES = 32 << 20
LOG_SUFFIX = ".log"


class Watcher(Protocol):
    """Is told of reads."""

    def read(self, path: str, pos: int, count: int) -> None:
        """So many bytes of a file were read, from a position on."""

    def read_elsewhere(self, path: str, count: int) -> None:
        """So many bytes of logs, this one at last, were read by a process that works for this."""


class _Watch:
    watcher: Watcher | None = None
    on_stall: Callable[[str, float], None] | None = None


def watch(watcher: Watcher | None) -> None:
    """Tell it of all reads from now on; None: nobody any more."""
    _Watch.watcher = watcher


def watcher() -> Watcher | None:
    """Who is told now."""
    return _Watch.watcher


def on_stall(listener: Callable[[str, float], None] | None) -> None:
    """Call the listener when a worker process makes no progress; None: nobody."""
    _Watch.on_stall = listener


def report_stall(path: str, seconds: float) -> None:
    """Report that the worker process that reads `path` made no progress for so many seconds."""
    if _Watch.on_stall is not None:
        _Watch.on_stall(path, seconds)


class BrokenOffError(Exception):
    """A read is not wanted any more."""


class _Breaker:
    def read(self, path: str, pos: int, count: int) -> None:
        del pos, count
        raise BrokenOffError(path)

    def read_elsewhere(self, path: str, count: int) -> None:
        del path, count


@contextmanager
def broken_off() -> Iterator[None]:
    """Have all reads fail within, so that other threads end that read much."""
    before = watcher()
    watch(_Breaker())
    try:
        yield
    finally:
        watch(before)


class LogCount:
    """How many bytes of logs were read: what is read again at once counts once.

    Attributes:
        count_bytes: so far.
    """

    def __init__(self) -> None:
        self.count_bytes = 0
        self._path = ""
        self._end_pos = 0

    def read(self, path: str, pos: int, count: int) -> None:
        """As of `Watcher`; of logs only."""
        if not path.endswith(LOG_SUFFIX):
            return
        if path != self._path or pos > self._end_pos + GAP_BYTES:
            self._path, self._end_pos = path, pos
        if pos + count > self._end_pos:
            self.count_bytes += pos + count - self._end_pos
            self._end_pos = pos + count
