"""Commands as Typer has them, with our help: options in panels, examples, the man page.

Rich's help would double the start time.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from eoctl.parameters import Panel

if TYPE_CHECKING:
    from collections.abc import Iterator


VALUE_CHARS = 50
SHARED_NOTE = "Also --columns, --wide, --table, --utc, --color, --no-pager, -q: man eoctl."
_WORDS = re.compile(r"(?:--[\w-]+ (?!-))?(?:'[^']*'|\S)+")  # an option with its value
PROGRAM = "eoctl"
HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def call_of(context: Any) -> str:
    """Return the command's words after the program's name: `txn list`. Empty for the program."""
    return str(context.command_path).partition(" ")[2]


class HelpfulCommand(TyperCommand):
    """A command whose help starts with examples and has its options in panels."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return `[OPTIONS] PARTITION`, without braces around required arguments."""
        return [each.strip("{}") for each in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence, the examples, and the rest of the text."""
        first, _, rest = cleandoc(self.help or "").partition("\n\n")
        _write_text(first, formatter)
        _write_examples(call_of(ctx), formatter)
        if rest:
            _write_text(rest, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options panel by panel."""
        for heading, rows in rows_of(self, ctx):
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=26)
                if heading == Panel.OUTPUT and any(map(_is_shared, self.get_params(ctx))):
                    formatter.write(f"  {SHARED_NOTE}\n")

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write a reference to the man page."""
        _write_end(call_of(ctx), formatter)


class UnknownCommandError(TyperException):
    """A word that is not a command."""

    exit_code = 2

    def __init__(self, name: str, context: Any) -> None:
        super().__init__(f"{name}: no such command")
        self.name = name
        self.ctx = context

    def format_message(self) -> str:
        """Return the text that Typer would print."""
        return str(self)


class HelpfulGroup(TyperGroup):
    """A command with subcommands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand, or report the unknown word."""
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise UnknownCommandError(args[0], ctx)
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the description and the examples."""
        _write_text(self.help or "", formatter)
        _write_examples(call_of(ctx), formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by group, then the options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        width = max(map(len, self.commands), default=0)
        for name, command in self.commands.items():
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            row = f"{name:<{width}}", (command.short_help or command.help or "").strip()
            groups.setdefault(heading, []).append(row)
        for heading, rows in groups.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
        with formatter.section("Options"):
            found = [row for _, rows in rows_of(self, ctx) for row in rows]
            formatter.write_dl(found, col_max=26)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the exit statuses, and a reference to the man page."""
        super().format_epilog(ctx, formatter)
        _write_end(call_of(ctx), formatter)


def rows_of(command: Any, context: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each panel with its rows: spelling, and description with default."""
    arguments: list[tuple[str, str]] = []
    panels: dict[str, list[tuple[str, str]]] = {each: [] for each in Panel}
    for param in command.get_params(context):
        if param.hidden or _is_shared(param):
            continue
        if param.param_type_name == "argument":
            arguments.append((param.make_metavar(context), _reported(param, context)))
        else:
            panels[_panel_of(param)].append((written(param, context), _reported(param, context)))
    yield from (each for each in [("Arguments", arguments), *panels.items()] if each[1])


def _panel_of(param: Any) -> str:
    """Return the panel of an option: the declared panel. Typer adds `--help` itself."""
    return Panel.ADVANCED if param.name == "help" else param.rich_help_panel or Panel.WHAT


def _is_shared(param: Any) -> bool:
    """Return whether every command has an option, so that one line names all such options."""
    return getattr(param, "rich_help_panel", None) is Panel.SHARED


def written(param: Any, context: Any) -> str:
    """Return how an option is written: `-q, --no-progress`, `--output text|jsonl`."""
    text = ", ".join(sorted(param.opts, key=len))
    return text if param.is_flag else f"{text} {_value_of(param, context)}"


def _value_of(param: Any, context: Any) -> str:
    """Return the placeholder of the value. The description lists the choices if they are many."""
    value = str(param.make_metavar(context)).strip("<>")
    return value if len(value) <= VALUE_CHARS else "NAME"


def default_of(param: Any, context: Any) -> str:
    """Return the default as the help shows it, "" if it shows none."""
    if isinstance(param.show_default, str):
        return param.show_default
    if not param.show_default or getattr(param, "is_flag", False):
        return ""
    value = param.get_default(context, call=False)
    return "" if value in (None, (), []) else str(getattr(value, "value", value))


def _reported(param: Any, context: Any) -> str:
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


def _write_text(text: str, formatter: Any) -> None:
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text(text)


def _write_examples(call: str, formatter: Any) -> None:
    from eoctl.help.examples import EXAMPLES

    with formatter.section("Examples"):
        for each in EXAMPLES.get(call, ()):
            formatter.write(f"{'':>{formatter.current_indent}}{each.what}:\n")
            with formatter.indentation():
                _write_call(each.call, formatter)


def _write_end(call: str, formatter: Any) -> None:
    page = "-".join([PROGRAM, *call.split()[:1]])
    formatter.write_paragraph()
    formatter.write(f"For details see man {page}\n")


def _write_call(call: str, formatter: Any) -> None:
    """Write a command so that it can be copied, on several lines if it is long."""
    lines = [""]
    for word in _WORDS.findall(call):
        if lines[-1] and len(lines[-1]) + len(word) + 3 > formatter.width - 6:
            lines.append(f"  {word}")
        else:
            lines[-1] = f"{lines[-1]} {word}".strip() if len(lines) == 1 else f"{lines[-1]} {word}"
    margin = " " * formatter.current_indent
    formatter.write(margin + f" \\\n{margin}".join(lines) + "\n")
