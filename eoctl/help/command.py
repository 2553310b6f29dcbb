"""Commands as Typer has them, with our help: options in panels, examples, the man page.

Rich's help would cost as much time as all the rest of the start.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from eoctl.declared import OLD_NAMES, Panel, used_old_names
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


# -- a call that is wrong, told as every other error: what, and what to try


_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)$")
_NUMBERS = re.compile(r"is not a valid (integer|int)( range)?$")
MACHINE_FORMATS = ("json", "jsonl", "csv", "msgpack")


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


# -- command


VALUE_CHARS = 50
_WORDS = re.compile(r"(?:--[\w-]+ (?!-))?(?:'[^']*'|\S)+")  # an option with its value
PROGRAM = "eoctl"
HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def call_of(context: Any) -> str:
    """Return the words of a call behind the program's name: `txn list`; empty for the program."""
    return str(context.command_path).partition(" ")[2]


class HelpfulCommand(TyperCommand):
    """A command whose help is in panels and which knows its old names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, and tell of old names."""
        for name, new in used_old_names(call_of(ctx), args).items():
            if not ctx.resilient_parsing:
                _tell_old_name(name, new, args)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS] PARTITION`, without braces around what is needed."""
        return [each.strip("{}") for each in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options panel by panel."""
        call = call_of(ctx)
        for heading, rows in rows_of(self, ctx, call):
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=26)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, and where there is more."""
        _write_end(call_of(ctx), formatter)


class UnknownCommandError(TyperException):
    """A word that is no command."""

    exit_code = 2

    def __init__(self, name: str, context: Any) -> None:
        super().__init__(f"{name}: no such command")
        self.name = name
        self.ctx = context

    def format_message(self) -> str:
        """What Typer would print."""
        return str(self)


class HelpfulGroup(TyperGroup):
    """A command with commands of its own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is called, or say which one is not there."""
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise UnknownCommandError(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options, then commands."""
        panels = rows_of(self, ctx, call_of(ctx))
        with formatter.section("Options"):
            formatter.write_dl([row for _, rows in panels for row in rows], col_max=26)
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit statuses, the examples, and where there is more."""
        super().format_epilog(ctx, formatter)
        _write_end(call_of(ctx), formatter)


def rows_of(command: Any, context: Any, call: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each panel with its rows: how it is written, and what it does with its default."""
    arguments: list[tuple[str, str]] = []
    panels: dict[str, list[tuple[str, str]]] = {each: [] for each in Panel}
    for param in command.get_params(context):
        if param.hidden:
            continue
        if param.param_type_name == "argument":
            arguments.append((param.make_metavar(context), _told(param, context)))
        else:
            panels[_panel_of(param)].append((written(param, context, call), _told(param, context)))
    yield from (each for each in [("Arguments", arguments), *panels.items()] if each[1])


def _panel_of(param: Any) -> str:
    """Return the panel of an option: the declared panel; Typer adds `--help` itself."""
    return Panel.ADVANCED if param.name == "help" else param.rich_help_panel or Panel.WHAT


def written(param: Any, context: Any, call: str) -> str:
    """Return how an option is written: `-f, --follow`, `--output text|jsonl`."""
    old = OLD_NAMES.get(call, {})
    names = sorted((each for each in param.opts if each not in old), key=len)
    text = ", ".join(names)
    return text if param.is_flag else f"{text} {_value_of(param, context)}"


def _value_of(param: Any, context: Any) -> str:
    """What stands for the value; many choices are told behind it."""
    value = str(param.make_metavar(context)).strip("<>")
    return value if len(value) <= VALUE_CHARS else "NAME"


def default_of(param: Any, context: Any) -> str:
    """Return the default as the help shows it; empty where there is none to be told."""
    if isinstance(param.show_default, str):
        return param.show_default
    if not param.show_default or getattr(param, "is_flag", False):
        return ""
    value = param.get_default(context, call=False)
    return "" if value in (None, (), []) else str(getattr(value, "value", value))


def _told(param: Any, context: Any) -> str:
    notes = []
    if default := default_of(param, context):
        notes.append(f"[default: {default}]")
    if param.required and param.param_type_name == "option":
        notes.append("[required]")
    if len(choices := getattr(param.type, "choices", ())) and not param.metavar:
        names = [str(getattr(each, "value", each)) for each in choices]
        if len("|".join(names)) > VALUE_CHARS:
            notes.insert(0, f"One of {', '.join(names)}.")
    return " ".join([param.help or "", *notes])


def _write_end(call: str, formatter: Any) -> None:
    from eoctl.help.examples import EXAMPLES

    if examples := EXAMPLES.get(call):
        with formatter.section("Examples"):
            for each in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{each.what}:\n")
                with formatter.indentation():
                    _write_call(each.call, formatter)
    page = "-".join([PROGRAM, *call.split()[:1]])
    formatter.write_paragraph()
    formatter.write(f"For details see man {page}\n")


def _write_call(call: str, formatter: Any) -> None:
    """Write a call so that it can be copied, a long one in several lines."""
    lines = [""]
    for word in _WORDS.findall(call):
        if lines[-1] and len(lines[-1]) + len(word) + 3 > formatter.width - 6:
            lines.append(f"  {word}")
        else:
            lines[-1] = f"{lines[-1]} {word}".strip() if len(lines) == 1 else f"{lines[-1]} {word}"
    margin = " " * formatter.current_indent
    formatter.write(margin + f" \\\n{margin}".join(lines) + "\n")


def _tell_old_name(name: str, new: str, arguments: list[str]) -> None:
    from eoctl import output

    is_machine = asks_for_machine(arguments)
    output.use_format(output.OutputFormat.JSONL if is_machine else output.OutputFormat.TEXT)
    output.message(f"eoctl: {name} is an old name: {new} now")
