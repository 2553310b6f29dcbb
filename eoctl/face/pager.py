"""A pager where git would use one: on a terminal, for what is longer than the screen.

What a command says is kept until it is over, or longer than the screen; then a pager is given it,
and all that follows. Words for people go the same way, so that they stand where they belong. No
error: a pager that is not there, or that is left early.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import suppress
from typing import IO

DEFAULT_PAGER = "less"
LESS = "FRX"  # quit if it fits, pass colours on, leave the text on the screen: as git has it
NO_PAGER = ("", "cat")


def pager_command() -> list[str]:
    """Return the pager that the environment names, EOCTL_PAGER before PAGER; empty: none."""
    text = os.environ.get("EOCTL_PAGER")
    if text is None:
        text = os.environ.get("PAGER", DEFAULT_PAGER)
    if text.strip() in NO_PAGER or os.environ.get("TERM") == "dumb":
        return []
    try:
        return shlex.split(text)
    except ValueError:
        return []


class Screen:
    """What is said on a terminal of so many rows, before a pager is needed and behind it."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._kept: list[tuple[IO[bytes], bytes]] = []
        self._lines = 0
        self._pager: subprocess.Popen[bytes] | None = None
        self._is_over = False

    @property
    def is_paged(self) -> bool:
        """Whether a pager has the terminal."""
        return self._pager is not None

    def put(self, stream: IO[bytes], data: bytes | bytearray | memoryview) -> bool:
        """Take what goes to a stream; False: it has to be written there, nobody else has it.

        Raises:
            BrokenPipeError: who reads the pager has left it.
        """
        if self._is_over:
            return False
        if self._pager is None:
            self._kept.append((stream, bytes(data)))
            self._lines += self._kept[-1][1].count(b"\n")
            if self._lines >= self._rows:
                self._open()
            return True
        assert self._pager.stdin is not None
        self._pager.stdin.write(data)
        return True

    def end(self) -> None:
        """Write out what is kept, or wait until the pager is left; ask once or more.

        Raises:
            OSError: it cannot be written.
        """
        self._is_over = True
        pager, self._pager = self._pager, None
        if pager is None:
            self._write_kept()
            return
        assert pager.stdin is not None
        with suppress(BrokenPipeError):  # it was left before it had all
            pager.stdin.close()
        while True:
            try:
                pager.wait()
            except KeyboardInterrupt:  # meant for the pager, which searches, say
                continue
            return

    def _open(self) -> None:
        command = pager_command()
        try:
            if not command:
                raise FileNotFoundError
            self._pager = subprocess.Popen(
                command, stdin=subprocess.PIPE, env={"LESS": LESS, **os.environ}
            )
        except OSError:
            self._is_over = True
            self._write_kept()
            return
        assert self._pager.stdin is not None
        kept, self._kept = self._kept, []
        for _, data in kept:
            self._pager.stdin.write(data)

    def _write_kept(self) -> None:
        kept, self._kept = self._kept, []
        for stream, data in kept:
            stream.write(data)
            stream.flush()


def new_screen(rows: int) -> Screen | None:
    """Return a screen where a pager may be needed: on a terminal of known height that has one."""
    if rows <= 0 or not sys.stdout.isatty() or not pager_command():
        return None
    return Screen(rows)
