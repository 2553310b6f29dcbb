"""Command lines that need no Typer: nothing abbreviated, unusual or wrong in them.

A command's parameters are declared by `eoctl.parameters`. Typer handles every word that is not
plainly an option with a good value, or an argument, so that only Typer reports errors.
`tests/cli/test_plain_calls.py` compares both for the command lines handled here.
"""

from __future__ import annotations

from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from eoctl.command_table import COMMANDS, module_of
from eoctl.outcome import with_kernel
from eoctl.parameters import NEEDED, Declared, parameters_of
from eoctl.shared_options import with_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eoctl.parameters import Parameter

MAX_DIGITS = 20


class _UnsureError(Exception):
    """A word that Typer has to judge."""


class _Taken(NamedTuple):
    """The values that a parameter takes: `type` of each value, `is_list` for several."""

    parameter: Parameter
    declared: Declared
    type: type
    is_list: bool


def called(words: list[str]) -> tuple[Callable[..., int | None], list[str]] | None:
    """Return the command and the words after it, or None if no command comes first."""
    if not words or words[0] not in COMMANDS:
        return None
    module = module_of(words[0])
    if hasattr(module, "command"):
        return module.command, words[1:]
    function = module.SUBCOMMANDS.get("".join(words[1:2]))
    return None if function is None else (function, words[2:])


def plain_command(words: list[str]) -> Callable[[], int | None] | None:
    """Return the function that runs a command line, or None if Typer has to handle it."""
    found = called(words)
    if found is None:
        return None
    function, rest = found
    command = with_kernel(with_shared(function))
    try:
        values = _values(parameters_of(command), rest)
    except _UnsureError:
        return None
    return lambda: command(**values)


def _values(parameters: Sequence[Parameter], words: Sequence[str]) -> dict[str, Any]:
    taken = [_taken(each) for each in parameters]
    options = {name: each for each in taken for name in _names(each)}
    given: dict[str, Any] = {}
    places: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not word.startswith("-") or word == "-":
            places.append(word)
            continue
        name, equals, text = word.partition("=")
        option = options.get(name)
        if option is None or (equals and (option.type is bool or not name.startswith("--"))):
            raise _UnsureError
        if not equals and option.type is not bool:
            text = next(waiting, "-")
            if text.startswith("-"):  # a missing value: the next option, or the end
                raise _UnsureError
        _give(given, option, text)
    for each in taken:
        if not each.declared.is_option:
            count = len(places) if each.is_list else 1
            for text in places[:count]:
                _give(given, each, text)
            del places[:count]
    if places:
        raise _UnsureError
    for parameter in parameters:
        value = given.setdefault(parameter.name, parameter.default)
        if value is NEEDED:
            raise _UnsureError
    return given


def _taken(parameter: Parameter) -> _Taken:
    hint, declared = get_args(parameter.hint)
    if isinstance(hint, UnionType):  # with None
        hint = get_args(hint)[0]
    is_list = getattr(hint, "__origin__", None) is list
    kind = get_args(hint)[0] if is_list else hint
    return _Taken(parameter=parameter, declared=declared, type=kind, is_list=is_list)


def _names(taken: _Taken) -> Sequence[str]:
    """Return the names of an option on the command line.

    A flag without a declared name also has a negative form, which Typer handles.
    """
    if not taken.declared.is_option:
        return ()
    if taken.declared.names or taken.type is bool:
        return taken.declared.names
    return (f"--{taken.parameter.name.replace('_', '-')}",)


def _give(given: dict[str, Any], taken: _Taken, text: str) -> None:
    value = True if taken.type is bool else _converted(taken, text)
    if taken.is_list:
        given.setdefault(taken.parameter.name, []).append(value)
    else:
        given[taken.parameter.name] = value


def _converted(taken: _Taken, text: str) -> Any:
    if taken.type is str:
        return text
    if taken.type in (int, float) and text.isascii() and text.isdigit() and len(text) < MAX_DIGITS:
        value, settings = taken.type(text), taken.declared.settings
        if settings.get("min", value) <= value <= settings.get("max", value):
            return value
    elif issubclass(taken.type, Enum):
        for each in taken.type:
            if each.value == text:
                return each
    raise _UnsureError
