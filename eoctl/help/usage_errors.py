"""Command lines that Typer refuses: the error, and the command that was meant.

Two tables have words that operators know from Kafka's own tools, kcat, rpk, git and file systems.
For other words, the error names the nearest known name, or the help of the command.
"""

from __future__ import annotations

import re
import shlex
from difflib import get_close_matches
from typing import Any

from eoctl.help.examples import EXAMPLES
from storage.errors import UsageError

# A word that is not a command -> the command that was meant.
COMMANDS_MEANT = {
    "abort": "txn abort", "advise": "start-order", "audit": "spark-audit", "benchmark": "bench",
    "brokers": "metadata", "cat": "consume", "cluster": "metadata", "cluster-state": "metadata",
    "commit": "txn commit", "compare": "diff", "consumer-groups": "groups list", "create": "init",
    "delete-records": "trim",
    "dedupe": "duplicates", "doctor": "check", "dump": "dump-segment", "dump-log": "dump-segment",
    "elect": "start-order", "find": "locate", "fix": "repair", "format": "init", "fsck": "check",
    "group": "groups list", "hanging": "txn hanging", "history": "metadata --history",
    "info": "describe", "inspect": "describe", "isr": "metadata", "lag": "groups list",
    "leaders": "metadata", "list": "describe", "logs": "journal list", "lost": "loss",
    "ls": "describe", "mirror": "copy", "open": "txn list", "partitions": "describe",
    "print": "consume", "read": "consume", "recover": "repair", "reindex": "rebuild",
    "restore": "undo", "revert": "undo", "rollback": "undo", "salvage": "repair",
    "scrub": "check", "search": "locate", "show": "describe", "simulate": "sim", "stat": "describe",
    "status": "check", "storage": "init", "summary": "describe", "tail": "consume --follow",
    "topics": "describe", "transactions": "txn list", "validate": "check",
    "verify": "check --deep", "who": "producers", "write": "produce",
}  # fmt: skip
# Command, or all with "*" -> a wrong option -> its replacement. `{}` is the value of the wrong
# option, `{-}` drops the value. A replacement that begins with "eoctl" replaces the command, too.
OPTIONS_MEANT = {
    "*": {
        "--bootstrap-server": "LOG-DIR{-}", "-b": "LOG-DIR{-}", "--zookeeper": "LOG-DIR{-}",
        "--dry-run": "", "--execute": "--apply", "--force": "--apply", "--yes": "--apply",
        "-y": "--apply", "--format": "-o {}", "--json": "-o json", "--jsonl": "-o jsonl",
        "--csv": "-o csv", "--quiet": "-q", "--silent": "-q", "--version": "eoctl --version",
        "--log-dir": "{}", "--log-dirs": "{}", "--dir": "{}", "--path": "{}",
        "--producer-id-expiration-ms": "--producer-expiry-ms {}",
    },
    "bench": {"--bootstrap-server": "--against {}"},
    "check": {
        "--fix": "eoctl repair", "--repair": "eoctl repair", "--dry-run": "--predict",
        "--all": "--deep", "--full": "--deep",
    },
    "consume": {
        "--from-beginning": "", "--offset": "--from {}",
        "--since": "--from {}", "--timestamp": "--from {}", "--count": "--max-messages {}",
        "-c": "--max-messages {}", "-n": "--max-messages {}", "--limit": "--max-messages {}",
        "--max": "--max-messages {}", "--tail": "--from -{}", "--last": "--from -{}",
        "--isolation-level": "--isolation {}", "--committed": "--isolation read_committed",
        "--print-keys": "--print-key", "-t": "--topic {}",
        "--follow-log": "--follow", "--property": "--print-key{-}",
    },
    "copy": {"--topic": "--to-topic {}", "--to": "{}"},
    "dump-segment": {
        "--deep": "--deep-iteration", "--print-data": "--print-data-log", "--file": "{}",
        "--verify": "--verify-index-only", "--partition": "{}",
    },
    "duplicates": {"--by": "--id {}", "--key": "--id key"},
    "export": {
        "--from-offset": "--offsets {}..", "--to-offset": "--offsets ..{}", "--out": "--to {}",
        "--from-time": "--times {}..", "--to-time": "--times ..{}", "--output-dir": "--to {}",
        "--parquet": "--format parquet", "--jsonl": "--format jsonl",
    },
    "loss": {"--against": "eoctl diff {}"},
    "produce": {"--topic": "--to-topic {}", "--key": "--key-separator {}"},
    "rebuild": {"--fix": "--apply"},
    "repair": {"--fix": "--apply", "--salvage": "--strategy salvage"},
    "replicas": {"--all": "--all-leaders"},
    "report": {"--html": "--to {}", "--out": "--to {}", "--file": "--to {}"},
    "serve": {
        "--port": "--listen 127.0.0.1:{}", "-p": "--listen 127.0.0.1:{}",
        "--bind": "--listen {}", "--address": "--listen {}", "--host": "--listen {}:9092",
    },
    "start-order": {"--settings": "eoctl metadata --durability"},
    "truncate": {
        "--offset": "--to-offset {}", "--time": "--to-time {}", "--hw": "--to-hw",
        "--to": "--to-offset {}", "--epoch": "--to-leader-epoch {}",
    },
    "trim": {
        "--offset": "--to-offset {}", "--time": "--to-time {}", "--bytes": "--to-bytes {}",
        "--size": "--to-bytes {}", "--before": "--to-time {}", "--to": "--to-offset {}",
    },
    "txn abort": {"--txn-id": "--transactional-id {}", "--all": "--all-overdue"},
    "txn hanging": {"--fix": "eoctl txn abort --all-overdue"},
    "txn run": {"--topic": "--to-topic {}"},
    "undo": {"--apply": ""},
}  # fmt: skip

_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)$")
_NUMBERS = re.compile(r"is not a valid (integer|int)( range)?$")
# For difflib: `--offsets` with two swapped letters is near, `--limit` is not near `--io-limit`.
NEAREST_RATIO = 0.83
MACHINE_FORMATS = ("json", "jsonl", "csv", "msgpack")


def as_ours(exc: Any, arguments: list[str]) -> UsageError:
    """Return our error for an error of Typer. The next step is the meant command, or the help.

    `arguments`: the words of the command line after the name of the program.
    """
    context: Any = getattr(exc, "ctx", None)
    words = ["eoctl", *arguments[:1]] if context is None else [context.command_path]
    call = " ".join(each for each in words if not each.startswith("-"))
    help_call = f"{call} --help"
    kind = type(exc).__name__
    param = getattr(exc, "param", None)
    said = exc.format_message().rstrip(".")
    if kind == "NoSuchOption":
        known = _options_of(context)
        meant = _repaired(arguments, exc.option_name, call.partition(" ")[2], known)
        if meant is None and (
            near := _nearest(exc.option_name, [each for each in known if each[:2] == "--"])
        ):
            rest = arguments[len(call.split()) - 1 :]
            meant = " ".join([call, *(_respelt(each, exc.option_name, near) for each in rest)])
        return UsageError(f"{exc.option_name}: no such option", next_step=meant or help_call)
    if kind == "UnknownCommandError":
        known = list(context.command.commands)
        meant = COMMANDS_MEANT.get(exc.name) if call == "eoctl" else None
        if meant is None and (nearest := _nearest(exc.name, known)):
            rest = arguments[arguments.index(exc.name) + 1 :]
            help_call = " ".join([call, nearest, *map(shlex.quote, rest)])
            return UsageError(f"{exc.name}: no such command", next_step=help_call)
        if meant is not None:
            rest = arguments[arguments.index(exc.name) + 1 :]
            help_call = _renamed(exc.name, meant, rest)
        return UsageError(f"{exc.name}: no such command", next_step=help_call)
    if kind == "MissingParameter" and param is not None:
        return UsageError(f"{_name(param, context)} is missing", next_step=help_call)
    if kind == "BadParameter" and param is not None:
        what = _NUMBERS.sub("is not a whole number", exc.message.rstrip("."))
        said = f"{_name(param, context)}: {what}"
        if call == "eoctl replicas" and param.name == "action" and len(arguments) > 1:
            # The subcommand was left out, as in the other commands, which take directories
            # directly.
            value = next(each for each in arguments[1:] if not each.startswith("-"))
            named = _nearest(value, ["compare", "rejoin"])
            rest = arguments[1:] if named is None else arguments[2:]
            help_call = " ".join([call, named or "compare", *map(shlex.quote, rest)])
    elif kind == "BadOptionUsage":
        said = f"{exc.option_name}: needs a value"
    elif extra := _EXTRA.match(said):
        said = f"{extra[1]}: not expected here"
    return UsageError(said, next_step=help_call)


def _respelt(word: str, wrong: str, right: str) -> str:
    """Return a word for the shell, with the right name of an option."""
    name, equals, value = word.partition("=")
    shown = right if name == wrong else shlex.quote(name)
    return f"{shown}={shlex.quote(value)}" if equals else shown


def _renamed(name: str, meant: str, rest: list[str]) -> str:
    """Return a command line of the meant command, with its options replaced, too."""
    if name == "cluster" and f"sim {''.join(rest[:1])}" in EXAMPLES:
        meant = "sim"  # `cluster` is also the former name of `sim`
    wrong = [each.partition("=")[0] for each in rest]
    option = next((each for each in wrong if each in OPTIONS_MEANT.get(meant, {})), None)
    rest = [each for each in rest if not each.startswith("-") or each not in meant.split()]
    words = [*meant.split(), *rest]
    found = None if option is None else _without(words, option, meant)
    return found or " ".join(["eoctl", meant, *map(shlex.quote, rest)])


def _repaired(arguments: list[str], option: str, call: str, known: list[str]) -> str | None:
    """Return a command line with all wrong options replaced. None: the first is unknown."""
    found = _without(arguments, option, call)
    for _ in arguments:
        words = [] if found is None else shlex.split(found)[1:]
        if words[: len(call.split())] != call.split():
            break  # another command
        names = [each.partition("=")[0] for each in words if each.startswith("-")]
        wrong = next((each for each in names if each not in known), None)
        more = None if wrong is None else _without(words, wrong, call)
        if more is None:
            break
        found = more
    return found


def _without(arguments: list[str], option: str, call: str) -> str | None:
    """Return a command line with a wrong option replaced. None: the option is unknown."""
    by_call = OPTIONS_MEANT.get(call, {})
    meant = by_call.get(option, OPTIONS_MEANT["*"].get(option))
    places = [at for at, each in enumerate(arguments) if each.partition("=")[0] == option]
    if meant is None or not places:
        return None
    before, (word, *after) = arguments[: places[0]], arguments[places[0] :]
    value = ""
    if "{" in meant:
        _, equals, value = word.partition("=")
        if not equals and after and not after[0].startswith("-"):
            value, after = after[0], after[1:]
        if not value and "{-}" not in meant:
            return None
    text = meant.replace("{-}", "").replace("{}", shlex.quote(value))
    rest = [shlex.quote(each) for each in before[len(call.split()) :]]
    if text.startswith("eoctl"):
        return " ".join([text, *rest, *map(shlex.quote, after)])
    if text == "LOG-DIR" and (not call or any(not each.startswith("-") for each in rest)):
        text = ""  # a directory is given already, or follows the command
    return " ".join(each for each in ["eoctl", call, *rest, text, *map(shlex.quote, after)] if each)


def asks_for_machine(arguments: list[str]) -> bool:
    """Return whether an invalid command line requests a format that programs read."""
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
    """Return the name of an option, or the name of an argument in the usage line."""
    if param.param_type_name == "option":
        return next(str(each) for each in param.opts if each.startswith("--"))
    name = str(param.make_metavar(context)).strip("[]").removesuffix("...").strip("[]")
    return str(param.name).upper() if "|" in name else name


def _options_of(context: Any) -> list[str]:
    params = [] if context is None else context.command.get_params(context)
    return [name for each in params for name in (*each.opts, *each.secondary_opts)]


def _nearest(name: str, names: list[str]) -> str | None:
    """Return the most similar name, or a name with the same beginning, if there is one."""
    found = get_close_matches(name, names, n=1, cutoff=NEAREST_RATIO)
    starts = [each for each in names if len(name) > 3 and each.startswith(name)]
    return next(iter(found or starts), None)
