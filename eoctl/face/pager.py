"""A pager where git would use one: on a terminal, for what is longer than the screen.

What a command says is kept until it is over, or longer than the screen; then a pager is given it,
and all that follows. Words for people go the same way, so that they stand where they belong. No
error: a pager that is not there, which is known only later where a shell looks for it, or that is
left early.
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
RAW = "-R"  # colours as they are, whatever else LESS says: `dim` is no word to read
NO_PAGER = ("", "cat")
SHELL_CHARS = frozenset("|&;<>()$`*?[#~=%")  # what makes a command one of a shell, as in git
NOT_RUN = (126, 127)  # what a shell ends with that found no such program
ENDING_S = 1.0  # until a pager that has closed its end has ended
KEPT_BYTES = 128 << 10  # more than a pipe takes: somebody has read some of it by then


def pager_command() -> list[str]:
    """Return the pager that the environment names, EOCTL_PAGER before PAGER; empty: none."""
    text = os.environ.get("EOCTL_PAGER")
    if text is None:
        text = os.environ.get("PAGER", DEFAULT_PAGER)
    if text.strip() in NO_PAGER or os.environ.get("TERM") == "dumb":
        return []
    if SHELL_CHARS & {*text}:
        return ["sh", "-c", text]
    try:
        return shlex.split(text)
    except ValueError:
        return []


class Screen:
    """What is said on a terminal of so many rows, before a pager is needed and behind it."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._kept: list[tuple[IO[bytes], bytes]] = []
        self._kept_bytes = 0
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
        kept = bytes(data)
        if self._kept_bytes <= KEPT_BYTES or self._pager is None:
            self._kept.append((stream, kept))
            self._kept_bytes += len(kept)
        else:
            self._kept.clear()
        if self._pager is not None:
            self._send(kept)
            return True
        self._lines += kept.count(b"\n")
        if self._lines >= self._rows:
            self._open()
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
            break
        if pager.returncode in NOT_RUN:
            self._write_kept()

    def _open(self) -> None:
        command = pager_command()
        try:
            if not command:
                raise FileNotFoundError
            less = f"{RAW} {os.environ['LESS']}" if "LESS" in os.environ else LESS
            self._pager = subprocess.Popen(
                command, stdin=subprocess.PIPE, env={**os.environ, "LESS": less}
            )
        except OSError:
            self._is_over = True
            self._write_kept()
            return
        self._send(b"".join(data for _, data in self._kept))

    def _send(self, data: bytes) -> None:
        """Give the pager something; to the terminal with all of it if there was no such program.

        Raises:
            BrokenPipeError: it was left.
        """
        assert self._pager is not None
        assert self._pager.stdin is not None
        try:
            self._pager.stdin.write(data)
        except BrokenPipeError:
            with suppress(subprocess.TimeoutExpired):
                self._pager.wait(ENDING_S)
            if self._pager.returncode not in NOT_RUN:
                raise
            self._is_over, self._pager = True, None
            self._write_kept()

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
