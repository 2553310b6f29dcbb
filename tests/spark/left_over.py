"""Processes that a test has started, and those that are left of them: found by their environment."""

from __future__ import annotations

import time
from pathlib import Path

MARK = "EOCTL_TEST_MARK"  # a variable that children inherit
DOWN_SECONDS = 300.0


def wait_until_gone(mark: str) -> list[str]:
    """Wait until no process has the mark; those that do not go are returned, with their commands."""
    deadline = time.monotonic() + DOWN_SECONDS
    while (left := processes_with(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [f"{pid}: {command[-200:]}" for pid, command in left]


def processes_with(mark: str) -> list[tuple[int, str]]:
    """Id and command of each process that has the mark in its environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append((int(process.name), command))
        except OSError:  # it has gone, or is not ours
            continue
    return found
