"""The `eoctl` program from its first line to its last: interrupts that no command catches.

After every interrupt it prints one line, and ends with 130. Until a command begins, the handler of
the signal does that. From then on it is code that catches KeyboardInterrupt. For a command that
runs until it is ended, the signal of a service manager is an interrupt too.

This module imports only built-in modules, so that little runs before the first line.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import atexit
import sys

from eoctl.interrupt import (
    EXIT_INTERRUPTED,
    begin,
    end_at_once,
    is_interrupt,
    say_interrupted,
    unraisable,
)

TYPE_CHECKING = False  # as in `typing`, without importing it
if TYPE_CHECKING:
    from typing import NoReturn

ENDED_BY_OTHERS = "serve"


def run() -> NoReturn:
    """Run `eoctl` as the entry point of the console script."""
    # Not if interrupts are ignored, as under nohup.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, end_at_once)
    if ENDED_BY_OTHERS in sys.argv[1:2] and _signal.getsignal(_signal.SIGTERM) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGTERM, end_at_once)
    sys.unraisablehook = unraisable
    atexit.register(_ignore_interrupts)  # runs last, after threads are joined
    try:
        from eoctl import main

        main.run()
    except SystemExit:
        begin()  # no work is left to interrupt, and the status is decided
        raise
    except (KeyboardInterrupt, Exception) as error:
        if not is_interrupt(error):
            raise
        say_interrupted()
        sys.exit(EXIT_INTERRUPTED)


def _ignore_interrupts() -> None:
    """Keep the decided exit status, because no work is left to interrupt.

    During Python's shutdown, a signal that had a handler ends the process instead.
    """
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        if number == signal.SIGTERM and signal.getsignal(number) == signal.SIG_DFL:
            continue
        try:
            signal.signal(number, signal.SIG_IGN)
        except KeyboardInterrupt:  # the last that can come
            signal.signal(number, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
