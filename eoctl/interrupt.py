"""Interrupts that no command catches: one line on stderr, and exit status 130.

This module imports only built-in modules, as `eoctl.start` does.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys

TYPE_CHECKING = False  # as in `typing`, without importing it
if TYPE_CHECKING:
    from typing import NoReturn


AGAIN_S = 0.01
INTERRUPTED = "eoctl: interrupted"
EXIT_INTERRUPTED = 130  # as in storage.errors, which may not be imported yet


def end_at_once(*_: object) -> NoReturn:
    """Handle an interrupt of a program that has not begun any work."""
    import os

    say_interrupted()
    os._exit(EXIT_INTERRUPTED)


def begin() -> None:
    """Let a command begin. From then on an interrupt raises KeyboardInterrupt."""
    for number in (_signal.SIGINT, _signal.SIGTERM):
        if _signal.getsignal(number) is end_at_once:
            _signal.signal(number, _signal.default_int_handler)


def say_interrupted() -> None:
    """Print that the run was interrupted, if stderr is open."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"{INTERRUPTED}\n")
            sys.stderr.flush()
    except (OSError, RuntimeError):  # a closed pipe, or a message that was being written
        return


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error is an interrupt or was caused by one, as in `__set_name__`."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def unraisable(what: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that Python would only print, and then lose.

    This occurs in finalizers, and in a callback that the import system runs for every module.
    """
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    import signal

    # Delayed, because an immediate signal would arrive in this function.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
