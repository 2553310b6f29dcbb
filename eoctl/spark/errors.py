"""Why a job on Spark cannot run, or failed, in one line."""

from __future__ import annotations

import re

from storage.errors import EXIT_ACCESS, EoctlError

# The last line of a traceback: a class, with its module or without, and what it says.
PYTHON_ERROR = re.compile(r"(?:[a-z_]+\.)*[A-Z][A-Za-z]*(?:Error|Exception|Interrupt)\b")


def first_line(exc: Exception) -> str:
    """Return what a user can act on: the end of a Python traceback, if there is one."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    ours = [line for line in lines if PYTHON_ERROR.match(line)]
    return next(iter(ours[-1:] or lines), type(exc).__name__)


class SparkUnavailableError(EoctlError):
    """Spark cannot run here: something is not installed, or does not start."""

    exit_status = EXIT_ACCESS


class SparkJobError(EoctlError):
    """Spark gave a job up."""

    exit_status = EXIT_ACCESS
