"""What Spark says when a job fails, in one line."""

from __future__ import annotations

import re

# The last line of a traceback: a class, with its module or without, and what it says.
PYTHON_ERROR = re.compile(r"(?:[a-z_]+\.)*[A-Z][A-Za-z]*(?:Error|Exception|Interrupt)\b")


def first_line(exc: Exception) -> str:
    """Return what a user can act on: the end of a Python traceback, if there is one."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    ours = [line for line in lines if PYTHON_ERROR.match(line)]
    return next(iter(ours[-1:] or lines), type(exc).__name__)
