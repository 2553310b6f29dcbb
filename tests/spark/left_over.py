"""Processes that a test has started, and those that are left of them: found by their environment."""

from __future__ import annotations

import time
from pathlib import Path

MARK = "EOCTL_TEST_MARK"  # a variable that children inherit
DOWN_SECONDS = 90.0


def wait_until_gone(mark: str) -> list[str]:
    """Wait until no process has the mark; those that do not go are returned."""
    deadline = time.monotonic() + DOWN_SECONDS
    while (left := processes_with(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def processes_with(mark: str) -> list[str]:
    """The commands of all processes that have the mark in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append(f"{process.name}: {words[:200]}")
        except OSError:  # it has gone, or is not ours
            continue
    return found
