"""The exit status of a command: every result and every exception maps to one exit status."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from eoctl.interrupt import INTERRUPTED, begin, is_interrupt
from storage.errors import (
    EXIT_ACCESS,
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNREAD,
    AccessError,
    EoctlError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def with_kernel(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return a command that is refused if the required kernel is not available."""

    @functools.wraps(function)
    def wrapper(**values: Any) -> int | None:
        _check_kernel()
        return function(**values)

    return wrapper


def _check_kernel() -> None:
    """Refuse if the required kernel is not available, even if no kernel would be used."""
    if os.environ.get("EOCTL_KERNEL"):
        from storage.kernels.kernel_choice import select_kernel

        select_kernel()


def exit_status_of(call: Callable[[], int | None]) -> int:
    """Run `call` and map its result or exception to an exit status (`storage.errors`)."""
    from eoctl import output

    try:
        begin()
        status = call() or EXIT_OK
        output.finish()
    except output.UnreadError as exc:
        _flush_quietly(output.finish)
        return exc.exit_status  # silently, as after SIGPIPE
    except BrokenPipeError:
        output.discard_stdout()
        return EXIT_UNREAD
    except KeyboardInterrupt as exc:
        _flush_quietly(output.finish)
        notes = [f"{INTERRUPTED}: {note}" for note in getattr(exc, "__notes__", ())]
        for words in notes or [INTERRUPTED]:
            output.message(words, level="error")
        return EXIT_INTERRUPTED
    except EoctlError as exc:
        _flush_quietly(output.finish)
        return _report_errors(exc)
    except OSError as exc:
        _flush_quietly(output.finish)
        output.error(AccessError(exc))
        return EXIT_ACCESS
    except Exception as exc:
        if os.environ.get("EOCTL_DEBUG"):
            raise
        _flush_quietly(output.finish)
        if is_interrupt(exc):
            output.message(INTERRUPTED, level="error")
            return EXIT_INTERRUPTED
        output.message(
            f"eoctl: internal error: {type(exc).__name__}: {exc}\n"
            "  try: the same command with EOCTL_DEBUG=1, and report what it prints",
            level="error",
        )
        return EXIT_BUG
    return status


def _report_errors(last: EoctlError) -> int:
    """Report an error, and the error before it if the data could not be written.

    A failed write does not hide the command's own error. The exit status is that error's.
    """
    from eoctl import output

    first = last.__context__
    both = isinstance(first, EoctlError) and output.OutputError in (type(first), type(last))
    errors = [first, last] if both and isinstance(first, EoctlError) else [last]
    errors.sort(key=lambda each: isinstance(each, output.OutputError))
    for each in errors:
        output.error(each)
    return errors[0].exit_status


def _flush_quietly(flush: Callable[[], None]) -> None:
    from eoctl.output import discard_stdout

    try:
        flush()
    except (OSError, EoctlError):
        discard_stdout()
