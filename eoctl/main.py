"""The `eoctl` program, from its words to its exit status.

Typer takes longer to load than a small command takes to run: it is asked for wrong calls, for those
that `eoctl.plain_calls` is not sure about, and for help that was not saved. What the saved help
does not need is imported behind it.
"""

from __future__ import annotations

import os
import sys

from eoctl.help.saved import saved_help
from eoctl.interrupt import EXIT_INTERRUPTED, say_interrupted

TYPE_CHECKING = False  # that of `typing`, without its import
if TYPE_CHECKING:
    from typing import NoReturn

COMPLETION_VARIABLE = "_EOCTL_COMPLETE"  # set by the script of a shell


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line, and end the process with its status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    words = [*arguments[1:], "--help"] if arguments[:1] == ["help"] else arguments
    asks = os.environ.get(COMPLETION_VARIABLE) or _is_about_completion(arguments)
    text = None if asks or sys.stdout is None else saved_help(words)
    try:
        if text is None:
            _run(words, arguments)
        sys.stdout.write(text)
        sys.stdout.flush()
        sys.exit(0)
    except KeyboardInterrupt:
        say_interrupted()
        sys.exit(EXIT_INTERRUPTED)
    except SystemExit as exc:
        if not isinstance(exc.__context__, BrokenPipeError):
            raise
        _end_unread()  # Typer's end, with 1: findings
    except BrokenPipeError:
        _end_unread()
    except OSError as exc:  # commands never let one through
        from eoctl import output

        failed = output.OutputError(exc)  # the help could not be written
        output.discard_stdout()
        output.error(failed)
        sys.exit(failed.exit_status)


def _run(words: list[str], arguments: list[str]) -> NoReturn:
    """Run a call; `arguments` are its words as they were given, before `eoctl help` was undone."""
    from eoctl import call, output
    from eoctl.outcome import exit_status_of

    # numpy starts a thread for each processor, for linear algebra that nobody here does: 0.1 s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    call.keep(arguments)
    output.open_missing_streams()
    if os.environ.get(COMPLETION_VARIABLE) or _is_about_completion(arguments):
        sys.exit(exit_status_of(lambda: _complete(arguments)))
    from eoctl.plain_calls import plain_command

    if (command := plain_command(words)) is not None:
        sys.exit(exit_status_of(command))
    from eoctl.app import run_app

    run_app(words, arguments)


def _end_unread() -> NoReturn:
    """End where nobody reads the help."""
    from eoctl import output

    output.discard_stdout()
    sys.exit(0)


def _is_about_completion(arguments: list[str]) -> bool:
    """Whether a call begins with one of the two options that are about completion."""
    options = ("--show-completion", "--install-completion")
    return bool(arguments) and arguments[0].partition("=")[0] in options


def _complete(arguments: list[str]) -> None:
    """Answer the script of a shell; or show it, or install it."""
    from eoctl import output
    from eoctl.app import build_app
    from eoctl.help import completion

    if os.environ.get(COMPLETION_VARIABLE):
        output.line(completion.complete(os.environ[COMPLETION_VARIABLE], build_app))
        return
    option, _, shell = arguments[0].partition("=")
    shell = shell or next(iter(arguments[1:]), "")
    if option == "--show-completion":
        output.line(completion.script_of(shell or None))
    else:
        output.message(completion.install(shell or None))
