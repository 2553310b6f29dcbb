"""The Typer program: help, usage errors, and command lines that `eoctl.fast_parser` leaves to it.

A command's module is imported only when the command line names that command.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_args

import typer
from typer.exceptions import TyperException

from eoctl.command_table import COMMANDS, GROUPS, module_of, wanted_command
from eoctl.help.command import HELP_NAMES, HelpfulCommand, HelpfulGroup
from eoctl.outcome import exit_status_of, with_kernel
from eoctl.parameters import NEEDED, parameters_of
from eoctl.shared_options import with_shared
from storage.errors import EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eoctl.parameters import Parameter

EPILOG = "Exit status: 0 clean, 1 findings, 2 usage, 3 cannot read, 4 refused, 5 part skipped."


def build_app(arguments: list[str]) -> typer.Typer:
    """Build the application for a command line, with only the wanted command loaded.

    The other commands are placeholders for the list of commands. They are left out if the command
    line begins with a command, because each costs as much time as importing a small module.
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
    for panel, name, summary in _listed():
        if name == wanted:
            module = module_of(name)
            if hasattr(module, "SUBCOMMANDS"):
                group = _build_group(module.SUBCOMMANDS, summary, arguments)
                app.add_typer(group, name=name, rich_help_panel=panel)
            else:
                app.command(name, cls=HelpfulCommand, short_help=summary, rich_help_panel=panel)(
                    for_typer(module.command)
                )
        elif is_list_needed:
            app.command(name, short_help=summary, rich_help_panel=panel)(_placeholder)
    if is_list_needed:
        app.command("help", short_help="Show the help of a command.", rich_help_panel="Help")(
            _placeholder
        )
    return app


def _listed() -> Iterator[tuple[str, str, str]]:
    """Yield the group, the name and the summary of each command in the list."""
    for group, commands in GROUPS.items():
        yield from ((group, *each) for each in commands.items())


def _build_group(
    functions: Mapping[str, Callable[..., int | None]], summary: str, arguments: list[str]
) -> typer.Typer:
    """Build a command with subcommands, all placeholders except the wanted subcommand."""
    wanted = wanted_command(arguments, 1)
    is_list_needed = arguments[1:2] != [wanted] or wanted not in functions
    group = typer.Typer(cls=HelpfulGroup, help=summary, rich_markup_mode=None, no_args_is_help=True)
    for name in functions:
        if name != wanted and not is_list_needed:
            continue
        function = functions[name]
        reported = (function.__doc__ or "").partition("\n")[0]
        group.command(name, cls=HelpfulCommand, short_help=reported)(
            for_typer(function) if name == wanted else _placeholder
        )
    return group


def _placeholder() -> None:
    """Stand in the list of commands for a command that this run does not need."""


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
    del version, install_completion, show_completion  # handled earlier


def run_app(words: list[str], arguments: list[str]) -> NoReturn:
    """Run a command line.

    Args:
        words: the command line after `eoctl help` was translated.
        arguments: the command line as the user gave it.
    """
    try:
        sys.exit(build_app(words)(args=words, prog_name="eoctl", standalone_mode=False))
    except TyperException as exc:
        sys.exit(_report_usage(exc, words, arguments))


def for_typer(function: Callable[..., int | None]) -> Callable[..., None]:
    """Return a command as Typer takes it: with its signature, and ending in an exit status."""
    function = with_kernel(with_shared(function))

    @functools.wraps(function)
    def wrapper(**values: Any) -> None:
        sys.exit(exit_status_of(lambda: function(**values)))

    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_for_signature(each) for each in parameters_of(function)]
    )
    return wrapper


def _for_signature(parameter: Parameter) -> inspect.Parameter:
    kind, declared = get_args(parameter.hint)
    make = typer.Option if declared.is_option else typer.Argument
    made = make(*declared.names, rich_help_panel=declared.panel, **declared.settings)
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if parameter.default is NEEDED else parameter.default,
        annotation=Annotated[kind, made],
    )


def _report_usage(exc: TyperException, words: list[str], arguments: list[str]) -> int:
    """Print what is wrong with a command line, or the help if there are no arguments."""
    from eoctl import output
    from eoctl.help.usage_errors import as_ours, asks_for_machine

    if type(exc).__name__ == "NoArgsIsHelpError":
        output.write_stderr(exc.format_message())
        return EXIT_USAGE
    is_machine = asks_for_machine(arguments)
    output.use_format(output.OutputFormat.JSONL if is_machine else output.OutputFormat.TEXT)
    output.error(as_ours(exc, words))
    return EXIT_USAGE
