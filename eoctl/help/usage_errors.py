"""A call that is wrong, told as every other error: what, and what to try."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from storage.errors import UsageError

_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)$")
_NUMBERS = re.compile(r"is not a valid (integer|int)( range)?$")
MACHINE_FORMATS = ("json", "jsonl", "msgpack")


def as_ours(exc: Any, arguments: list[str]) -> UsageError:
    """Return our error for one of Typer's; the next step names what is nearest, or the help."""
    context: Any = getattr(exc, "ctx", None)
    words = ["eoctl", *arguments[:1]] if context is None else [context.command_path]
    call = " ".join(each for each in words if not each.startswith("-"))
    help_call = f"{call} --help"
    kind = type(exc).__name__
    param = getattr(exc, "param", None)
    said = exc.format_message().rstrip(".")
    if kind == "NoSuchOption":
        nearest = _nearest(exc.option_name, _options_of(context))
        return UsageError(f"{exc.option_name}: no such option", next_step=nearest or help_call)
    if kind == "UnknownCommandError":
        nearest = _nearest(exc.name, list(context.command.commands))
        return UsageError(
            f"{exc.name}: no such command", next_step=f"{call} {nearest}" if nearest else help_call
        )
    if kind == "MissingParameter" and param is not None:
        return UsageError(f"{_name(param, context)} is missing", next_step=help_call)
    if kind == "BadParameter" and param is not None:
        what = _NUMBERS.sub("is not a whole number", exc.message.rstrip("."))
        said = f"{_name(param, context)}: {what}"
    elif kind == "BadOptionUsage":
        said = f"{exc.option_name}: needs a value"
    elif extra := _EXTRA.match(said):
        said = f"{extra[1]}: not expected here"
    return UsageError(said, next_step=help_call)


def asks_for_machine(arguments: list[str]) -> bool:
    """Whether a call that could not be parsed asks for a format that programs read."""
    for place, each in enumerate(arguments):
        name, _, value = each.partition("=")
        if name in ("--output", "-o"):
            value = value or "".join(arguments[place + 1 : place + 2])
        elif each.startswith("-o"):
            value = each[2:]
        else:
            continue
        if value in MACHINE_FORMATS:
            return True
    return False


def _name(param: Any, context: Any) -> str:
    """The name of an option, or what the usage line calls an argument."""
    if param.param_type_name == "option":
        return next(str(each) for each in param.opts if each.startswith("--"))
    name = str(param.make_metavar(context)).strip("[]").removesuffix("...").strip("[]")
    return str(param.name).upper() if "|" in name else name


def _options_of(context: Any) -> list[str]:
    params = [] if context is None else context.command.get_params(context)
    return [name for each in params for name in each.opts if name.startswith("--")]


def _nearest(name: str, names: list[str]) -> str | None:
    """The name that was meant, as far as one can tell; what begins alike counts too."""
    found = get_close_matches(name, names, n=1, cutoff=0.75)
    starts = [each for each in names if len(name) > 3 and each.startswith(name)]
    return next(iter(found or starts), None)
