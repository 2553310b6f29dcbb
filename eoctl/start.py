"""The `eoctl` program from its first line to its last: interrupts where no command catches them.

Whenever it is interrupted it says so, in one line, and ends with 130. Until a command begins that
is done by the handler of the signal; from then on by those who catch KeyboardInterrupt. To a
command that goes on until it is ended the signal of a service manager is an interrupt, too.

Only built-in modules are imported with this one, so that little goes before the first line.
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

TYPE_CHECKING = False  # that of `typing`, without its import
if TYPE_CHECKING:
    from typing import NoReturn

ENDED_BY_OTHERS = "serve"


def run() -> NoReturn:
    """Entry point of the console script."""
    # Not where it is ignored, as below nohup.
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, end_at_once)
    if ENDED_BY_OTHERS in sys.argv[1:2] and _signal.getsignal(_signal.SIGTERM) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGTERM, end_at_once)
    sys.unraisablehook = unraisable
    atexit.register(_ignore_interrupts)  # the first one runs last, when threads have been joined
    try:
        from eoctl import main

        main.run()
    except SystemExit:
        begin()  # nothing to be interrupted is left, and the status is decided
        raise
    except (KeyboardInterrupt, Exception) as error:
        if not is_interrupt(error):
            raise
        say_interrupted()
        sys.exit(EXIT_INTERRUPTED)


def _ignore_interrupts() -> None:
    """Keep the exit status that is decided, now that nothing is left to be interrupted.

    Once Python tears itself down, a signal that it had a handler for ends the process instead.
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
