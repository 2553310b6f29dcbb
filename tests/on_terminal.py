"""Calls of `eoctl` on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*arguments: object, columns: int = 80) -> tuple[int, list[str]]:
    """Call `eoctl` on a terminal; returns its status and what is seen: stdout and stderr."""
    ours, its = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "eoctl", *map(str, arguments)]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env) as process:
        os.close(its)
        text = b"".join(_read(ours))
    os.close(ours)
    plain = _ESCAPES.sub("", text.decode())
    return process.returncode, plain.replace("\r\n", "\n").split("\n")


def _read(descriptor: int) -> Iterator[bytes]:
    try:
        while data := os.read(descriptor, 1 << 16):
            yield data
    except OSError:  # the other side is closed
        return
