"""The `eoctl` program: its commands, loaded when they are called, and its exit status.

Only Typer and the standard library are imported here; a command's own module is imported when that
command is asked for, so that `--help` and small files stay fast.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer
from typer.exceptions import TyperException

from eoctl.help.command import HELP_NAMES, HelpfulCommand, HelpfulGroup
from eoctl.interrupt import INTERRUPTED, begin, is_interrupt, say_interrupted
from eoctl.shared_options import with_shared
from storage.errors import (
    EXIT_ACCESS,
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNREAD,
    EXIT_USAGE,
    AccessError,
    EoctlError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class CommandEntry(NamedTuple):
    """Where a command lives and what the list of commands says of it."""

    module: str
    summary: str


COMMANDS = {
    "dump-segment": CommandEntry(
        "eoctl.commands.dump_segment", "Print any file of a log directory as kafka-dump-log does."
    ),
    "describe": CommandEntry(
        "eoctl.commands.describe", "Summarise partitions or whole log directories."
    ),
    "check": CommandEntry(
        "eoctl.commands.check", "Check directories against the rules a broker lives by."
    ),
    "rebuild": CommandEntry(
        "eoctl.commands.rebuild", "Rebuild indexes, snapshots and epochs from the .log files."
    ),
    "recover-state": CommandEntry(
        "eoctl.commands.recover_state", "Show the producer state a broker would recover."
    ),
    "locate": CommandEntry(
        "eoctl.commands.locate", "Find where an offset, a time, a key or a position lies."
    ),
    "produce": CommandEntry("eoctl.commands.produce", "Append lines to a partition directory."),
    "consume": CommandEntry(
        "eoctl.commands.consume", "Print the records of a partition as a consumer gets them."
    ),
    "copy": CommandEntry(
        "eoctl.commands.copy", "Append one partition to another one, exactly once."
    ),
    "repair": CommandEntry(
        "eoctl.commands.repair", "Mend damaged partitions: as a broker would, or losing less."
    ),
    "truncate": CommandEntry(
        "eoctl.commands.truncate", "Cut a partition back to an offset, a time, an epoch."
    ),
    "txn": CommandEntry(
        "eoctl.commands.txn", "Find open, hanging and torn transactions, and abort them."
    ),
    "replicas": CommandEntry(
        "eoctl.commands.replicas", "Compare copies of a partition, or make one follow another."
    ),
    "apply": CommandEntry(
        "eoctl.commands.apply", "Apply a saved plan, or complete an interrupted one."
    ),
    "undo": CommandEntry("eoctl.commands.undo", "Put back what an applied plan has changed."),
    "journal": CommandEntry(
        "eoctl.commands.journal", "List, show and prune the journals of applied plans."
    ),
    "export": CommandEntry(
        "eoctl.commands.export", "Write the records of partitions as Parquet or JSON Lines."
    ),
    "producers": CommandEntry(
        "eoctl.commands.producers", "Count producer ids, and estimate the heap they take."
    ),
    "lease-pid": CommandEntry(
        "eoctl.commands.lease_pid", "Lease producer ids to applications; old holders are fenced."
    ),
    "duplicates": CommandEntry(
        "eoctl.commands.duplicates", "Find duplicate records: proved, or suspected."
    ),
    "loss": CommandEntry(
        "eoctl.commands.loss", "Show records lost, duplicated, aborted, or unlike another copy."
    ),
    "spark-audit": CommandEntry(
        "eoctl.commands.spark_audit", "Audit transactions, duplicates and replicas, at any scale."
    ),
}

COMPLETION_VARIABLE = "_EOCTL_COMPLETE"  # set by the script of a shell
EPILOG = "Exit status: 0 clean, 1 findings, 2 usage, 3 cannot read, 4 refused, 5 part skipped."


def build_app(arguments: list[str]) -> typer.Typer:
    """Build the application for a command line: of all commands only the one it calls is loaded.

    The others are names for the list of them, which nobody sees where a command comes first: each
    costs as much time as importing a small module.
    """
    wanted = wanted_command(arguments)
    is_list_needed = arguments[:1] != [wanted] or wanted not in COMMANDS
    app = typer.Typer(
        name="eoctl",
        cls=HelpfulGroup,
        context_settings=HELP_NAMES,
        help="The fsck, the scalpel and the microscope for exactly-once Kafka logs.",
        epilog=EPILOG,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
    )
    app.callback()(_top_level)
    for name, entry in COMMANDS.items():
        if name == wanted:
            module = importlib.import_module(entry.module)
            if hasattr(module, "SUBCOMMANDS"):
                app.add_typer(_build_group(module.SUBCOMMANDS, entry, arguments), name=name)
            else:
                app.command(name, cls=HelpfulCommand, short_help=entry.summary)(
                    guarded(module.command)
                )
        elif is_list_needed:
            app.command(name, short_help=entry.summary)(_placeholder)
    if is_list_needed:
        app.command("help", short_help="Show the help of a command.")(_placeholder)
    return app


def _build_group(
    functions: dict[str, Callable[..., int | None]], entry: CommandEntry, arguments: list[str]
) -> typer.Typer:
    """Build a command that has commands of its own; only the one called is more than a name."""
    wanted = wanted_command(arguments, 1)
    is_list_needed = arguments[1:2] != [wanted] or wanted not in functions
    group = typer.Typer(
        cls=HelpfulGroup, help=entry.summary, rich_markup_mode=None, no_args_is_help=True
    )
    for name, function in functions.items():
        if name != wanted and not is_list_needed:
            continue
        summary = (function.__doc__ or "").partition("\n")[0]
        group.command(name, cls=HelpfulCommand, short_help=summary)(
            guarded(function) if name == wanted else _placeholder
        )
    return group


def _placeholder() -> None:
    """Stand in the list of commands for one that this call does not need."""


def _show_version(*, value: bool) -> None:
    if value:
        from eoctl.version import print_version

        sys.exit(exit_status_of(print_version))


def _top_level(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show versions and kernel."
        ),
    ] = False,
    install_completion: Annotated[
        str | None,
        typer.Option(metavar="[SHELL]", help="Install completion for bash, zsh or fish."),
    ] = None,
    show_completion: Annotated[
        str | None, typer.Option(metavar="[SHELL]", help="Print the script that does it.")
    ] = None,
) -> None:
    del version, install_completion, show_completion  # done before


def guarded(function: Callable[..., int | None]) -> Callable[..., None]:
    """Wrap a command so that it takes the shared options, and every outcome becomes one status."""
    function = with_shared(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        def call() -> int | None:
            _check_kernel()
            return function(*args, **kwargs)

        sys.exit(exit_status_of(call))

    return wrapper


def _check_kernel() -> None:
    """Refuse a demand for a kernel that is not there, also where no kernel would be used."""
    if os.environ.get("EOCTL_KERNEL"):
        from storage.kernels.select import select_kernel

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
        return exc.exit_status  # in silence, as after SIGPIPE
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
        return _tell_errors(exc)
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


def _tell_errors(last: EoctlError) -> int:
    """Report an error, and the one that it came on top of when the data could not be written.

    What a command was about to say is not lost because of the rows before it; the status is its.
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


def wanted_command(arguments: list[str], place: int = 0) -> str | None:
    """Return the first word that is not an option, the command to load; or a later one."""
    words = [each for each in arguments if not each.startswith("-")]
    return words[place] if place < len(words) else None


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line, and end the process with its status."""
    from eoctl import call, output

    arguments = sys.argv[1:] if arguments is None else arguments
    call.keep(arguments)
    output.open_missing_streams()
    if os.environ.get(COMPLETION_VARIABLE) or (arguments[:1] and is_about_completion(arguments[0])):
        sys.exit(exit_status_of(lambda: _complete(arguments)))
    try:
        app = build_app(plain_call(arguments))
        sys.exit(app(args=plain_call(arguments), prog_name="eoctl", standalone_mode=False))
    except KeyboardInterrupt:
        say_interrupted()
        sys.exit(EXIT_INTERRUPTED)
    except TyperException as exc:
        sys.exit(_tell_usage(exc, arguments))
    except SystemExit as exc:
        if isinstance(exc.__context__, BrokenPipeError):  # Typer's end, with 1: findings
            output.discard_stdout()
            sys.exit(EXIT_OK)
        raise
    except OSError as exc:  # commands never let one through
        failed = output.OutputError(exc)  # the help could not be written
        output.discard_stdout()
        output.error(failed)
        sys.exit(failed.exit_status)


def is_about_completion(argument: str) -> bool:
    """Whether a call begins with one of the two options that are about completion."""
    return argument.partition("=")[0] in ("--show-completion", "--install-completion")


def _complete(arguments: list[str]) -> None:
    """Answer the script of a shell; or show it, or install it."""
    from eoctl import output
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


def plain_call(arguments: list[str]) -> list[str]:
    """Return the call that `eoctl help COMMAND` stands for."""
    return [*arguments[1:], "--help"] if arguments[:1] == ["help"] else arguments


def _tell_usage(exc: TyperException, arguments: list[str]) -> int:
    """Say what is wrong with a call; without any argument that is the help."""
    from eoctl import output
    from eoctl.help.usage_errors import as_ours, asks_for_machine

    if type(exc).__name__ == "NoArgsIsHelpError":
        output.write_stderr(exc.format_message())
        return EXIT_USAGE
    is_machine = asks_for_machine(arguments)
    output.use_format(output.OutputFormat.JSONL if is_machine else output.OutputFormat.TEXT)
    output.error(as_ours(exc, plain_call(arguments)))
    return EXIT_USAGE
