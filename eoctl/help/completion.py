"""Completion in bash, zsh and fish: Typer's scripts, with values of ours.

Loaded only when a shell asks (`_EOCTL_COMPLETE` is set by the script) or it is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer._click.shell_completion import (
    CompletionItem,
    _resolve_context,
    _resolve_incomplete,
    get_completion_class,
)
from typer._completion_classes import completion_init
from typer._completion_shared import _get_shell_name, get_completion_script
from typer._completion_shared import install as install_script
from typer.main import get_command

from eoctl.help.old_names import OLD_NAMES
from eoctl.help.values import values_of
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer import Typer

VARIABLE = "_EOCTL_COMPLETE"  # as eoctl.main has it
SHELLS = ("bash", "zsh", "fish")


def complete(instruction: str, build: Callable[[list[str]], Typer]) -> str:
    """Return what a shell's script is to be told.

    Args:
        instruction: `complete_bash`, as the script says it.
        build: makes the application for the words of a call.

    Raises:
        UsageError: an unknown instruction.
    """
    action, _, shell = instruction.partition("_")
    if action != "complete" or shell not in SHELLS:
        raise UsageError(f"{VARIABLE}={instruction}: unknown", next_step="eoctl --show-completion")
    completion_init()
    known: Any = get_completion_class(shell)

    class Completion(known):  # type: ignore[misc]
        def get_completions(self, args: list[str], incomplete: str) -> list[Any]:
            return _items(build, args, incomplete)

    return str(Completion(None, {}, "eoctl", VARIABLE).complete())


def _items(build: Callable[[list[str]], Typer], words: list[str], begun: str) -> list[Any]:
    """What may come behind the words, or what the last one, which has begun, may become."""
    words = words[1:] if words[:1] == ["help"] else words
    cli: Any = get_command(build(words))
    context = _resolve_context(cli, {}, "eoctl", list(words))
    wanted, begun = _resolve_incomplete(context, list(words), begun)
    if hasattr(wanted, "param_type_name"):
        if wanted.param_type_name == "option":  # without its value nothing is parsed
            context = _resolve_context(cli, {}, "eoctl", words[: -1 if words else None])
        values = values_of(wanted, context.params, begun)
        if values:
            return [CompletionItem(each) for each in values]
    old = OLD_NAMES.get(str(context.command_path).partition(" ")[2], {})
    # Without the words of help: Typer would load Rich to print them.
    found = [each.value for each in wanted.shell_complete(context, begun)]
    return [CompletionItem(each) for each in found if each not in old]


def script_of(shell: str | None) -> str:
    """Return the script for a shell, by default the one that this runs in. Raises UsageError."""
    return get_completion_script(prog_name="eoctl", complete_var=VARIABLE, shell=_known(shell))


def install(shell: str | None) -> str:
    """Install the script for a shell where it finds it; returns what was done.

    Raises:
        UsageError: an unknown shell.
        OSError: the files of the shell cannot be written.
    """
    found, path = install_script(shell=_known(shell), prog_name="eoctl", complete_var=VARIABLE)
    return f"completion of {found} is installed in {path}; it works in the next shell"


def _known(shell: str | None) -> str:
    name = shell or _get_shell_name()
    if name not in SHELLS:
        raise UsageError(
            f"{name or 'this shell'}: completion is for {', '.join(SHELLS)}",
            next_step="eoctl --show-completion bash",
        )
    return name
