"""Interrupts where no command catches them: said in one line, ended with 130.

Only built-in modules are imported with this one, as with `eoctl.start`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys

TYPE_CHECKING = False  # that of `typing`, without its import
if TYPE_CHECKING:
    from typing import NoReturn


AGAIN_S = 0.01
INTERRUPTED = "eoctl: interrupted"
EXIT_INTERRUPTED = 130  # that of storage.errors, which may not be there yet


def end_at_once(*_: object) -> NoReturn:
    """Handle an interrupt of a program that has not begun anything yet."""
    import os

    say_interrupted()
    os._exit(EXIT_INTERRUPTED)


def begin() -> None:
    """Let a command begin: from now on an interrupt raises KeyboardInterrupt."""
    for number in (_signal.SIGINT, _signal.SIGTERM):
        if _signal.getsignal(number) is end_at_once:
            _signal.signal(number, _signal.default_int_handler)


def say_interrupted() -> None:
    """Tell people, if there is anything to tell them by."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"{INTERRUPTED}\n")
            sys.stderr.flush()
    except (OSError, RuntimeError):  # a closed pipe, or a word that was being written
        return


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is an interrupt, or was made of one, as that in a `__set_name__` is."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def unraisable(what: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that came where Python can only print it, and lose it.

    These are finalizers, and a callback that the import system runs for every module.
    """
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    import signal

    # Not at once: it would come in this very place.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
