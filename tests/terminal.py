"""Run a command on a pseudo-terminal of a given size, and see what a person sees."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[1]
COLORS = re.compile(r"\x1b\[[0-9;]*m")
DEADLINE_S = 60
# As `python -m eoctl`, without progress, however slow the machine is, and with 1 GiB free.
ONE_GIB_FREE = """
import os, types
os.statvfs = lambda path: types.SimpleNamespace(f_bavail=1 << 18, f_frsize=4096)
"""
QUIET = f"""{ONE_GIB_FREE}
from eoctl import progress
progress.QUIET_SECONDS = 1e9
from eoctl.start import run
run()
"""
# A person's keys are read from the terminal that controls the process.
_TAKE_TERMINAL = ("setsid", "--ctty", "--wait")


class Shown(NamedTuple):
    """What a terminal was given.

    Attributes:
        raw: with all escapes.
        status: the exit status.
    """

    raw: str
    status: int

    @property
    def text(self) -> str:
        """Without colours."""
        return COLORS.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def on_terminal(
    *arguments: object,
    width: int = 80,
    rows: int = 1000,
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
    streams: Sequence[str] = ("stdout", "stderr"),
    react: Callable[[str, int], None] | None = None,
    program: Sequence[str] = (sys.executable, "-c", QUIET),
) -> Shown:
    """Run `eoctl ARGUMENTS...` on a terminal of this size; the zone is UTC, for snapshots.

    Args:
        arguments: of the command.
        width: in columns.
        rows: of the screen; 0: a terminal that does not know.
        environment: on top of this process's.
        cwd: where it runs.
        streams: those that are the terminal, the others go nowhere.
        react: is told what came so far, and may write to the descriptor, as a person types.
        program: what is run.
    """
    main_fd, side_fd = pty.openpty()
    fcntl.ioctl(side_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, width, 0, 0))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "LINES", "NO_COLOR", "PAGER", "EOCTL_PAGER", "LESS")
    }
    process = subprocess.Popen(
        [*(_TAKE_TERMINAL if react else ()), *program, *map(str, arguments)],
        stdin=side_fd if react else subprocess.DEVNULL,
        stdout=side_fd if "stdout" in streams else subprocess.DEVNULL,
        stderr=side_fd if "stderr" in streams else subprocess.DEVNULL,
        env={
            **inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm", "TZ": "UTC", **(environment or {}),
        },
        cwd=cwd,
        start_new_session=True,
    )  # fmt: skip
    os.close(side_fd)
    shown, started = b"", time.monotonic()
    try:
        while time.monotonic() - started < DEADLINE_S:
            ready, _, _ = select.select([main_fd], [], [], 0.1)
            if not ready:
                if process.poll() is not None:
                    break
                continue
            try:
                data = os.read(main_fd, 65536)
            except OSError:  # nobody has the terminal any more
                break
            if not data:
                break
            shown += data
            if react is not None:
                react(shown.decode(errors="replace"), main_fd)
        status = process.wait(timeout=DEADLINE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(main_fd)
    return Shown(shown.decode("utf-8", "surrogateescape").replace("\r\n", "\n"), status)
