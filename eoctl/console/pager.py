"""A pager as git uses it: on a terminal, for output longer than the screen.

Output is kept until the command ends or the output is longer than the screen. Then a pager gets it,
and everything that follows. Messages for people take the same path, so that they stay in order. A
pager that does not exist, or that a person quits early, is not an error. If a shell has to find the
pager, it is missing only once the shell has started.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from contextlib import suppress
from typing import IO

DEFAULT_PAGER = "less"
LESS = "FRX"  # quit if it fits, pass colours on, leave the text on the screen, as in git
RAW = "-R"  # pass colours on, whatever else LESS says
NO_PAGER = ("", "cat")
SHELL_CHARS = frozenset("|&;<>()$`*?[#~=%")  # of a shell command, as in git
NOT_RUN = (126, 127)  # exit codes of a shell that did not find the program
ENDING_S = 1.0  # wait for a pager that has closed its input to end
KEPT_BYTES = 128 << 10  # more than a pipe takes, so the pager has read some of it


def pager_command() -> list[str]:
    """Return the pager of the environment, EOCTL_PAGER before PAGER. Empty: no pager."""
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
    """The output of a command on a terminal of some height, without a pager or through one."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._kept: list[tuple[IO[bytes], bytes]] = []
        self._kept_bytes = 0
        self._lines = 0
        self._pager: subprocess.Popen[bytes] | None = None
        self._is_over = False

    @property
    def is_paged(self) -> bool:
        """True if a pager has the terminal."""
        return self._pager is not None

    def put(self, stream: IO[bytes], data: bytes | bytearray | memoryview) -> bool:
        """Take output for a stream. Return False if the caller must write it to the stream.

        Raises:
            BrokenPipeError: the reader has quit the pager.
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
        """Write the kept output, or wait until the pager ends. May be repeated.

        Raises:
            OSError: the output cannot be written.
        """
        self._is_over = True
        pager, self._pager = self._pager, None
        if pager is None:
            self._write_kept()
            return
        assert pager.stdin is not None
        with suppress(BrokenPipeError):  # it ended before it had read everything
            pager.stdin.close()
        while True:
            try:
                pager.wait()
            except KeyboardInterrupt:  # meant for the pager, for example for its search
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
        """Write to the pager. If there is no such program, write everything to the terminal.

        Raises:
            BrokenPipeError: the reader has quit the pager.
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
    """Return a screen if output may need a pager: a terminal of known height, with a pager."""
    if rows <= 0 or not sys.stdout.isatty() or not pager_command():
        return None
    return Screen(rows)
