"""The options of the help in the man pages: `python -m tests.help_options` writes them.

One text for both: what an option is, its values and its default stand in the command's declaration.
The pages go on above with what no help has room for.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from eoctl import shared_options
from eoctl.app import build_app
from eoctl.help.command import rows_of
from eoctl.verbs import COMMANDS
from tests.help_examples import MAN_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN = '.Sh OPTIONS\n.\\" Those of the help, written by `python -m tests.help_options`.\n'
_NEXT = ".Sh EXIT STATUS\n"
_ARGUMENTS = "Arguments"
# What every command has stands in eoctl(1).
_OF_ALL = (
    "Show this message and exit.",
    *(hint.__metadata__[0].settings["help"] for hint, _ in shared_options.SHARED.values()),
)


def calls_of(command: str) -> list[list[str]]:
    """Return a command by its words, or its own commands."""
    module = importlib.import_module(COMMANDS[command].module)
    return [[command, each] for each in getattr(module, "SUBCOMMANDS", ())] or [[command]]


def made_of(words: list[str]) -> tuple[Any, Any]:
    """Return the command that Typer makes of a call, and its context."""
    made: Any = get_command(build_app(words))
    context = made.make_context("eoctl", list(words), resilient_parsing=True)
    for word in words:
        made = made.commands[word]
        context = made.make_context(word, [], parent=context, resilient_parsing=True)
    return made, context


def with_options(page: str, command: str) -> str:
    """Return the text of a page with the options of a command and of its own commands."""
    if _BEGIN in page:
        head, _, rest = page.partition(_BEGIN)
        page = head + rest[rest.index(_NEXT) :]
    calls = calls_of(command)
    made = [
        _BEGIN,
        "The words of the help; the description has more.\nFor options of all commands see\n.Xr eoctl 1 .\n",
    ]
    for words in calls:
        call = " ".join(words)
        panels = [each for each in rows_of(*made_of(words), call) if each[0] != _ARGUMENTS]
        if len(calls) > 1:
            made.append(f".Ss Options of {call}\n")
        made.append(".Bl -tag -width Ds\n")
        made += [
            _item(*row) for _, rows in panels for row in rows if not row[1].startswith(_OF_ALL)
        ]
        made.append(".El\n")
    return page.replace(_NEXT, "".join(made) + _NEXT, 1)


def _item(option: str, told: str) -> str:
    return f".It {' , '.join(map(_name, option.split(', ')))}\n{''.join(_sentences(told))}"


def _name(name: str) -> str:
    flag, _, value = name.partition(" ")
    return f"Fl {flag[1:]} Ar {_escaped(value)}" if value else f"Fl {flag[1:]}"


def _sentences(told: str) -> Iterator[str]:
    """Give a line for each sentence, and the default as one."""
    for part in re.split(r"(?<=[.;]) (?=[A-Z\[])|(?<=\]) (?=\[)", told):
        line = _escaped(part)
        yield f"\\&{line}\n" if line.startswith((".", "'")) else f"{line}\n"


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("--", "\\-\\-")
    return re.sub(r"(?<![\w-])-(?=\w)", "\\-", text)


def main() -> None:
    """Write the pages."""
    for command in COMMANDS:
        page = MAN_DIR / f"eoctl-{command}.1"
        page.write_text(with_options(page.read_text(), command))


if __name__ == "__main__":
    main()
