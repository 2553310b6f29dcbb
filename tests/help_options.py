"""The options of the help in the man pages: `python -m tests.help_options` writes them.

One text for both: what an option is, its values and its default stand in the command's declaration.
The pages go on above with what no help has room for.

The SYNOPSIS stays as it was written, with its pairs and alternatives. An option that is nowhere in
it is put into the form of its command. An option that no command has any more is removed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from typer.main import get_command

from eoctl import shared_options
from eoctl.app import build_app
from eoctl.command_table import COMMANDS, module_of
from eoctl.help.command import rows_of
from tests.help_examples import MAN_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN = '.Sh OPTIONS\n.\\" Those of the help, written by `python -m tests.help_options`.\n'
_NEXT = ".Sh EXIT STATUS\n"
_SYNOPSIS, _DESCRIPTION = ".Sh SYNOPSIS\n", ".Sh DESCRIPTION\n"
# What a form of the SYNOPSIS ends with, before its arguments.
_LAST = (".Op Fl -cleanup-policy ", ".Op Fl -output ", ".Op Ar options")
_ARGUMENTS = "Arguments"
# What every command has stands in eoctl(1).
_OF_ALL = (
    "Show this message and exit.",
    *(hint.__metadata__[0].settings["help"] for hint, _ in shared_options.SHARED.values()),
)


def calls_of(command: str) -> list[list[str]]:
    """Return a command by its words, or its own commands."""
    module = module_of(command)
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
    page = _with_synopsis(page, {" ".join(each): rows_of_call(each) for each in calls})
    made = [
        _BEGIN,
        "The help has the same text; the description has more.\nFor options of all commands see\n.Xr eoctl 1 .\n",
    ]
    for words in calls:
        call = " ".join(words)
        if len(calls) > 1:
            made.append(f".Ss Options of {call}\n")
        made.append(".Bl -tag -width Ds\n")
        made += [_item(*row) for row in rows_of_call(words)]
        made.append(".El\n")
    return page.replace(_NEXT, "".join(made) + _NEXT, 1)


def rows_of_call(words: list[str]) -> list[tuple[str, str]]:
    """Return the options that a command has of its own, as its help writes them."""
    panels = [each for each in rows_of(*made_of(words)) if each[0] != _ARGUMENTS]
    return [row for _, rows in panels for row in rows if not row[1].startswith(_OF_ALL)]


def _with_synopsis(page: str, rows_by_call: dict[str, list[tuple[str, str]]]) -> str:
    """Return a page whose SYNOPSIS has the options of its commands, and no others.

    Raises:
        ValueError: only a person can say how it goes on.
    """
    head, _, rest = page.partition(_SYNOPSIS)
    synopsis, _, rest = rest.partition(_DESCRIPTION)
    lines, old = [], synopsis.splitlines(keepends=True)
    known = {name for rows in rows_by_call.values() for name, _ in map(_in_synopsis, rows)}
    for line in old:
        names = set(_flags(line))
        if names <= known:
            lines.append(line)
        elif names & known:
            raise ValueError(f"edit the SYNOPSIS: {names - known} are no options: {line}")
    stated = {name for line in lines for name in _flags(line)}
    for call, rows in rows_by_call.items():
        added = [line for name, line in map(_in_synopsis, rows) if name not in stated]
        if added:
            place = _place_in_form(lines, call)
            lines[place:place] = added
    return f"{head}{_SYNOPSIS}{''.join(lines)}{_DESCRIPTION}{rest}"


def _flags(line: str) -> list[str]:
    return re.findall(r"Fl -([a-z][a-z-]+)", line)


def _in_synopsis(row: tuple[str, str]) -> tuple[str, str]:
    """Return the name of an option, and its line of the SYNOPSIS."""
    name, _, value = row[0].rpartition("--")[2].partition(" ")
    said = f"Fl -{name}"
    if value:
        said += f" Ar {_escaped(value if '..' in value else value.lower().replace('|', ' | '))}"
    return name, f".{said}\n" if "[required]" in row[1] else f".Op {said}\n"


def _place_in_form(lines: list[str], call: str) -> int:
    """Return where options go in the first form of a call: behind the others."""
    forms = [each.replace(" Cm ", " ").strip() == f".Nm eoctl {call}" for each in lines]
    if not any(forms):
        raise ValueError(f"edit the SYNOPSIS: it has no form of eoctl {call}")
    place = forms.index(True) + 1
    while place < len(lines) and not lines[place].startswith((*_LAST, ".Nm ", ".Pp")):
        place += 1
    return place


def _item(option: str, reported: str) -> str:
    return f".It {' , '.join(map(_name, option.split(', ')))}\n{''.join(_sentences(reported))}"


def _name(name: str) -> str:
    flag, _, value = name.partition(" ")
    return f"Fl {flag[1:]} Ar {_escaped(value)}" if value else f"Fl {flag[1:]}"


def _sentences(reported: str) -> Iterator[str]:
    """Give a line for each sentence, and the default as one."""
    for part in re.split(r"(?<=[.;]) (?=[A-Z\[])|(?<=\]) (?=\[)", reported):
        line = _escaped(part)
        yield f"\\&{line}\n" if line.startswith((".", "'")) else f"{line}\n"


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("--", "\\-\\-")
    return re.sub(r"(?<![\w\\-])-(?=\w)", "\\-", text)


def main() -> None:
    """Write the pages."""
    for command in COMMANDS:
        page = MAN_DIR / f"eoctl-{command}.1"
        page.write_text(with_options(page.read_text(), command))


if __name__ == "__main__":
    main()
