"""Progress on stderr, if it is a terminal: files, bytes, rate and time left.

All readers of files report their reads (`storage.files.positioned_file`), so every long command has
a line. `Progress` adds the operation and the total. The line is cleared before any other output,
and drawn again if the command continues silently.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from eoctl import output
from eoctl.console.columns import duration_text, printable, size_text
from eoctl.console.style import screen_size
from storage.errors import EoctlError
from storage.files import positioned_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from storage.dirs.discovery import Selected

QUIET_SECONDS = 0.5  # before the first line, and after any other output
EVERY_SECONDS = 0.1
BAR_WIDTH = 20
MIN_RATE_SECONDS = 1.0  # of a part, before its rate is meaningful
CLEAR = b"\r\x1b[K"
SECONDS_MAX = 100 * 3600  # a longer time is not predicted
LONG_READ_BYTES = 256 << 20  # above it, the native kernel saves seconds


class Progress:
    """A part of a command, used as a context: its operation, and its size in bytes.

    Args:
        what: a verb: "checking".
        total_bytes: None if unknown. A function is evaluated when the line is drawn.
        unit: the unit counted in place of bytes, "runs". Reads then do not count.
    """

    def __init__(
        self, what: str, total_bytes: int | Callable[[], int] | None = None, *, unit: str = ""
    ) -> None:
        self.what = what
        self.unit = unit
        self._total_bytes = total_bytes
        self.done_bytes = 0
        self.label = ""
        self.started = time.monotonic()
        self.read_before_bytes = 0

    def __enter__(self) -> Self:
        _Meter.begin(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _Meter.end(self)

    @property
    def total_bytes(self) -> int | None:
        """The total to do."""
        if callable(self._total_bytes):
            self._total_bytes = self._total_bytes()
        return self._total_bytes

    @total_bytes.setter
    def total_bytes(self, total_bytes: int | None) -> None:
        self._total_bytes = total_bytes

    def amount(self, count: float) -> str:
        """Return an amount in bytes, or in the counted unit."""
        return f"{count:,.0f}" if self.unit else size_text(count)

    def advance(self, count_bytes: int) -> None:
        """Count more bytes as done."""
        self.done_bytes += count_bytes
        _Meter.draw()

    def report(self, label: str) -> None:
        """Set a label for the current work, if it is no file that this process reads."""
        self.label = label
        _Meter.draw()


def log_bytes(selected: Iterable[Selected]) -> int:
    """Return the number of bytes to read in partitions, as far as they can be listed."""
    return sum(each.log_bytes() for each in selected)


def start(*, is_wanted: bool) -> None:
    """Begin a command. Without a terminal nothing is drawn and reads are not reported."""
    _Meter.stop()
    positioned_file.on_stall(_report_stall)
    if is_wanted and _is_terminal():
        _Meter.drawn = _Line()
        positioned_file.watch(_Meter.drawn)


def _report_stall(path: str, seconds: float) -> None:
    output.message(
        f"eoctl: {path}: nothing was read for {seconds:.0f} s; still waiting\n"
        "  try: Ctrl-C to end, and check the disk or the network mount",
        level="warning",
    )


def _report_kernel() -> None:
    """Report that the native kernel is missing, unless the user requires a kernel."""
    from storage.kernels.kernel_choice import KERNEL_VARIABLE, native_module

    if os.environ.get(KERNEL_VARIABLE) or native_module() is not None:
        return
    from eoctl.libraries import kernel_call

    output.message(
        "eoctl: the native kernel is not installed. Reading takes about twice the time.\n"
        f"  try: {kernel_call()}",
        level="warning",
    )


def is_drawn() -> bool:
    """Return whether progress is visible to anyone."""
    return _Meter.drawn is not None


def stop() -> None:
    """End a command, and clear the line."""
    _Meter.stop()


def _is_terminal() -> bool:
    """Return whether a person sees stderr, and this process may write there."""
    try:
        fd = sys.stderr.fileno()
        if not os.isatty(fd) or os.environ.get("TERM") == "dumb":
            return False
        with suppress(OSError):  # not the controlling terminal
            return os.tcgetpgrp(fd) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False
    return True


class _Meter:
    """The current progress line, for all parts of the running command."""

    drawn: _Line | None = None

    @classmethod
    def begin(cls, part: Progress) -> None:
        if cls.drawn is not None:
            cls.drawn.begin(part)

    @classmethod
    def end(cls, part: Progress) -> None:
        if cls.drawn is not None:
            cls.drawn.end(part)

    @classmethod
    def draw(cls) -> None:
        if cls.drawn is not None:
            cls.drawn.draw()

    @classmethod
    def stop(cls) -> None:
        if cls.drawn is not None:
            cls.drawn.clear()
            cls.drawn = None
            positioned_file.watch(None)


class _Line:
    """The progress line, a `Watcher` of reads."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._parts = [Progress("reading")]
        self._count = positioned_file.LogCount()
        self._elsewhere_bytes = 0
        self._path = ""
        self._is_drawn = False
        self._is_kernel_reported = False
        self._quiet_since = time.monotonic()
        self._drawn_at = 0.0
        output.clear_before_writing(self._make_room)

    # -- reads

    def read(self, path: str, pos: int, count: int) -> None:
        """Count a read, see `Watcher`."""
        self._count.read(path, pos, count)
        self._path = path
        self.draw()

    def read_elsewhere(self, path: str, count: int) -> None:
        """Count a read by another process, see `Watcher`."""
        self._elsewhere_bytes += count
        self._path = path
        self.draw()

    @property
    def _read_bytes(self) -> int:
        return self._count.count_bytes + self._elsewhere_bytes

    def begin(self, part: Progress) -> None:
        part.read_before_bytes = self._read_bytes
        part.started = time.monotonic()
        self._parts.append(part)

    def end(self, part: Progress) -> None:
        if part in self._parts:
            self._parts.remove(part)
        self.clear()

    # -- drawing

    def draw(self) -> None:
        """Draw the line, unless it was drawn or other text was written a moment ago."""
        now = time.monotonic()
        if now - self._drawn_at < EVERY_SECONDS or now - self._quiet_since < QUIET_SECONDS:
            return
        if os.getpid() != self._pid or output.is_paged():  # in a forked process
            return
        self._drawn_at = now
        if sys.stdout.isatty():
            with suppress(EoctlError):  # raised again by the next write
                output.flush()
        if not self._is_kernel_reported and self._is_long_read():
            self._is_kernel_reported = True
            _report_kernel()
        text = self._text(now, screen_size()[0] - 1)
        self._is_drawn = True  # set early: an interrupt mostly arrives during the write
        self._write(b"\r" + text.encode("utf-8", "replace") + b"\x1b[K")

    def _is_long_read(self) -> bool:
        part = self._parts[-1]
        total = None if part.unit else part.total_bytes
        return max(total or 0, self._read_bytes) > LONG_READ_BYTES

    def clear(self) -> None:
        """Clear the line."""
        if self._is_drawn and os.getpid() == self._pid:
            self._write(CLEAR)
            self._is_drawn = False

    def _make_room(self) -> None:
        self.clear()
        self._quiet_since = time.monotonic()

    @staticmethod
    def _write(data: bytes) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()

    def _text(self, now: float, width: int) -> str:
        """Return as much of the line as fits: without the file first, then without the bar."""
        part = self._parts[-1]
        total, seconds = part.total_bytes, now - part.started
        # Work counts as done after it is finished; its reads are known earlier.
        read_bytes = 0 if part.unit else self._read_bytes - part.read_before_bytes
        done = max(part.done_bytes, read_bytes if total is None else min(read_bytes, total))
        reported, bar = [], ""
        if total:
            filled = min(done * BAR_WIDTH // total, BAR_WIDTH)
            bar = f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}]"
            reported.append(f"{min(100 * done // total, 100)}%")
            reported.append(f"{part.amount(done)} of {part.amount(total)} {part.unit}".rstrip())
        elif done:
            reported.append(f"{part.amount(done)} {part.unit}".rstrip())
        if done and seconds > MIN_RATE_SECONDS:
            rate = done / seconds
            if not part.unit or rate >= 1:
                reported.append(f"{part.amount(rate)}/s")
            left = (total - done) / rate if total else 0
            if 1 <= left < SECONDS_MAX:
                reported.append(f"{duration_text(round(left) * 1000)} left")
        # The file and its directory, which is named after the partition.
        *around, name = self._path.split("/")[-2:]
        files = [""] if part.unit else ["/".join([*around, name]), "".join(around)]
        places = [part.label] if part.label else files
        for words in (*([each, bar] for each in places), [places[-1]], []):
            line = "  ".join(filter(None, [part.what, *map(printable, words), *reported]))
            if len(line) <= width:
                return line
        return line[:width]
