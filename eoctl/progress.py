"""Progress on stderr, for anything longer than a second and only for a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

QUIET_SECONDS = 1.0


class _Wanted:
    """What `--no-progress` says."""

    is_wanted = True


def allow(*, is_wanted: bool) -> None:
    """Say whether progress is drawn at all in this command."""
    _Wanted.is_wanted = is_wanted


class Progress:
    """Counts bytes; draws nothing in the first second, in a pipe, or when stdout is a terminal too.

    (A bar between the lines of a dump on the same terminal would spoil both.)
    """

    def __init__(self, what: str, total_bytes: int | None = None) -> None:
        self.what = what
        self.total_bytes = total_bytes
        self.done_bytes = 0
        self._wanted = _Wanted.is_wanted and sys.stderr.isatty() and not sys.stdout.isatty()
        self._started = time.monotonic()
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count_bytes: int) -> None:
        """Say that so many more bytes are done."""
        self.done_bytes += count_bytes
        if not self._wanted:
            return
        if self._bar is None:
            if time.monotonic() - self._started < QUIET_SECONDS:
                return
            self._start()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done_bytes)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self.what, total=self.total_bytes)
        self._bar.start()
