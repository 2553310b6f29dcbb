"""The `eoctl` program, from its command line to its exit status.

Typer takes longer to load than a small command takes to run. It is loaded for wrong command lines,
for others that `eoctl.fast_parser` cannot judge, and for help that was not saved. Modules that the
saved help does not need are imported later.
"""

from __future__ import annotations

import os
import sys

from eoctl.help.saved_pages import saved_help
from eoctl.interrupt import EXIT_INTERRUPTED, say_interrupted

TYPE_CHECKING = False  # as in `typing`, without importing it
if TYPE_CHECKING:
    from typing import NoReturn

COMPLETION_VARIABLE = "_EOCTL_COMPLETE"  # set by a shell's completion script


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line, and end the process with its status."""
    arguments = _as_named_now(sys.argv[1:] if arguments is None else arguments)
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
        _end_unread()  # Typer would end with 1, which means findings
    except BrokenPipeError:
        _end_unread()
    except OSError as exc:  # a command handles its own OSError
        from eoctl import output

        failed = output.OutputError(exc)  # the help could not be written
        output.discard_stdout()
        output.error(failed)
        sys.exit(failed.exit_status)


def _as_named_now(arguments: list[str]) -> list[str]:
    """Return a command line with the name of the command that has an older option's work now."""
    if arguments[:1] == ["check"] and "--reclaim" in arguments:
        return ["reclaim", *(each for each in arguments[1:] if each != "--reclaim")]
    return arguments


def _run(words: list[str], arguments: list[str]) -> NoReturn:
    """Run a command line.

    Args:
        words: the command line after `eoctl help` was translated.
        arguments: the command line as the user gave it.
    """
    from eoctl import command_line, output
    from eoctl.outcome import exit_status_of

    # numpy would start a thread for each processor, for linear algebra that eoctl does not use: 0.1
    # s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    command_line.keep(arguments)
    output.open_missing_streams()
    if os.environ.get(COMPLETION_VARIABLE) or _is_about_completion(arguments):
        sys.exit(exit_status_of(lambda: _complete(arguments)))
    from eoctl.fast_parser import plain_command

    if (command := plain_command(words)) is not None:
        sys.exit(exit_status_of(command))
    from eoctl.app import run_app

    run_app(words, arguments)


def _end_unread() -> NoReturn:
    """End the process after the reader of the help closed the pipe."""
    from eoctl import output

    output.discard_stdout()
    sys.exit(0)


def _is_about_completion(arguments: list[str]) -> bool:
    """Return whether a command line begins with one of the two completion options."""
    options = ("--show-completion", "--install-completion")
    return bool(arguments) and arguments[0].partition("=")[0] in options


def _complete(arguments: list[str]) -> None:
    """Answer a shell's completion script, or show the script, or install it."""
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
