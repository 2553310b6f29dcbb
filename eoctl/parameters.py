"""The declarations of command parameters, so that Typer is loaded only if it is needed.

    def command(path: Annotated[str, argument(help="A directory.")], ...) -> int: ...

`eoctl.app` turns these into Typer's options and arguments, with Typer's settings.
`eoctl.fast_parser` reads the command lines that do not need Typer. Both use `parameters_of`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Panel(StrEnum):
    """The sections of the help, in their order. WHAT has the options that select the operation."""

    WHAT = "What"
    RECORDS = "Which records"
    OUTPUT = "Output"
    SAFETY = "Safety"
    ADVANCED = "Advanced"
    SHARED = "Of every command"


class Declared(NamedTuple):
    """An option or an argument: its settings, and its names if the parameter's name is not used."""

    is_option: bool
    names: tuple[str, ...]
    settings: dict[str, Any]
    panel: Panel = Panel.WHAT


class Parameter(NamedTuple):
    """A parameter of a command. `default` is NEEDED if there is none."""

    name: str
    hint: Any  # Annotated with a Declared
    default: Any


class _Needed:
    pass


NEEDED = _Needed()


def option(*names: str, panel: Panel = Panel.WHAT, **settings: Any) -> Declared:
    """Declare an option with the settings of `typer.Option`."""
    return Declared(is_option=True, names=names, settings=settings, panel=panel)


records_option = partial(option, panel=Panel.RECORDS)
output_option = partial(option, panel=Panel.OUTPUT)
safety_option = partial(option, panel=Panel.SAFETY)
advanced_option = partial(option, panel=Panel.ADVANCED)


def argument(**settings: Any) -> Declared:
    """Declare an argument with the settings of `typer.Argument`."""
    return Declared(is_option=False, names=(), settings=settings)


def with_parameters(
    function: Callable[..., int | None], parameters: Sequence[Parameter]
) -> Callable[..., int | None]:
    """Set the parameters of a wrapped command, in place of those in its signature."""
    function.parameters = tuple(parameters)  # type: ignore[attr-defined]
    return function


@cache
def parameters_of(function: Callable[..., int | None]) -> tuple[Parameter, ...]:
    """Return the parameters of a command, in the order of its help.

    It does not use `inspect`, which takes as long to load as a small command takes to run.
    """
    known: tuple[Parameter, ...] | None = getattr(function, "parameters", None)
    if known is not None:
        return known
    hints = get_type_hints(function, include_extras=True)
    code, defaults = function.__code__, function.__defaults__ or ()
    by_place = code.co_varnames[: code.co_argcount]
    values = dict(zip(by_place[len(by_place) - len(defaults) :], defaults, strict=True))
    values |= function.__kwdefaults__ or {}
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(Parameter(each, hints[each], values.get(each, NEEDED)) for each in names)
