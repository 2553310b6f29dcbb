"""Completion in bash, zsh and fish: Typer's scripts, with values of ours.

Loaded only for a completion request of a shell (its script sets `_EOCTL_COMPLETE`) and for the
installation.
"""

from __future__ import annotations

import os
from pathlib import Path
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

from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from typer import Typer

    from storage.dirs.log_dir import LogDir


# -- suggestions for a value: partitions, topics, journals, rules, found without any changes


# Characters that a shell interprets. It would even run `$(...)`.
_SHELL_CHARS = frozenset(" '\"\\$`;&|<>()*?[]{}!#~^")
_PATHS = ("paths", "path", "source", "sources", "log_dir", "a", "b")
MAX_BYTES = 64 << 20


def values_of(param: Any, given: dict[str, Any], begun: str) -> list[str]:
    """Return the possible values. Empty: the shell offers file names.

    Args:
        param: the option or argument to complete.
        given: the values of the other parameters so far.
        begun: the beginning of the value.
    """
    if param.name == "explain":
        begun = begun.upper()
    # The shell inserts suggestions unchanged, without the quotes that it would need.
    names = {each for each in _names_for(param, given, begun) if _is_plain(each)}
    return sorted(each for each in names if each.startswith(begun))


def _is_plain(name: str) -> bool:
    return name.isprintable() and not _SHELL_CHARS & {*name} and not name.startswith("-")


def _names_for(param: Any, given: dict[str, Any], begun: str) -> Iterable[str]:
    name = param.name
    if name in ("topic", "to_topic"):
        return (topic for topic, _ in _partitions(_given_paths(given)))
    if name == "partition":
        topics = given.get("topic") or []
        return (str(n) for topic, n in _partitions(_given_paths(given)) if topic in topics)
    if name == "group":
        return _groups(_given_paths(given))
    if name == "transactional_id":
        return _transactional_ids(_given_paths(given))
    if name == "explain":
        return _rules()
    if name in ("leader", "replica", "all_replicas", "target"):
        return _partition_paths(begun)
    if param.param_type_name == "argument":
        is_of_journals = given.get("action") in ("list", "show", "prune")
        if is_of_journals or name in ("journals", "plan"):
            return _journals(begun)
        if name in (*_PATHS, "destination"):
            return _partition_paths(begun)
    return ()


def _given_paths(given: dict[str, Any]) -> list[str]:
    values = [given[name] for name in _PATHS if given.get(name)]
    return [each for value in values for each in ([value] if isinstance(value, str) else value)]


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are wanted
    except OSError:
        return []


def _partitions(paths: list[str]) -> Iterator[tuple[str, int]]:
    """Yield topic and number of given partition directories and of the partitions in log dirs."""
    from storage.file_names import parse_partition_name

    for path in paths:
        for name in [*_names_in(Path(path)), os.path.basename(path.rstrip("/"))]:  # noqa: PTH119
            found = parse_partition_name(name)
            if found is not None:
                yield found.topic, found.partition


def _partition_paths(begun: str) -> Iterator[str]:
    """Yield the partition directories in the directory that was typed so far."""
    from storage.file_names import parse_partition_name

    head = begun[: begun.rfind("/") + 1]
    for name in _names_in(Path(head or ".")):
        if parse_partition_name(name) is not None and Path(head, name).is_dir():
            yield f"{head}{name}"


def _journals(begun: str) -> Iterator[str]:
    """Yield the journals in a typed directory, and in backup places next to it."""
    from recovery.changes.journals.journal import PLACE_SUFFIX
    from recovery.changes.plans.plan import PLAN_ID

    head = begun[: begun.rfind("/") + 1]
    places = [name for name in _names_in(Path(head or ".")) if name.endswith(PLACE_SUFFIX)]
    for place in [head, *(f"{head}{name}/" for name in places)]:
        for name in _names_in(Path(place or ".")):
            if PLAN_ID.fullmatch(name):
                yield f"{place}{name}"


def _log_dirs(paths: list[str], topic: str) -> Sequence[LogDir]:
    """Return the log dirs if their internal topic is small enough to read while a person waits."""
    from storage.dirs.discovery import discover
    from storage.errors import EoctlError

    try:
        log_dirs = discover(paths).log_dirs if paths else ()
        files = (
            each for log_dir in log_dirs for each in Path(log_dir.path).glob(f"{topic}-*/*.log")
        )
        return log_dirs if sum(each.stat().st_size for each in files) <= MAX_BYTES else ()
    except (EoctlError, OSError):
        return ()


def _groups(paths: list[str]) -> Iterable[str]:
    from recovery.groups.group_log import GroupLog
    from storage.file_names import GROUPS_TOPIC

    log_dirs = _log_dirs(paths, GROUPS_TOPIC)
    return GroupLog(log_dirs).living() if log_dirs else ()


def _transactional_ids(paths: list[str]) -> Iterable[str]:
    from recovery.cluster.coordinator_log import CoordinatorLog
    from storage.file_names import TRANSACTION_STATE_TOPIC

    log_dirs = _log_dirs(paths, TRANSACTION_STATE_TOPIC)
    return CoordinatorLog(log_dirs).ids if log_dirs else ()


def _rules() -> Iterator[str]:
    from recovery.rules.catalogue import PAGES

    for page in PAGES:
        for rule in page.rules:
            yield rule.check_id
            yield rule.family


# -- completion


VARIABLE = "_EOCTL_COMPLETE"  # same as in eoctl.main
SHELLS = ("bash", "zsh", "fish")


def complete(instruction: str, build: Callable[[list[str]], Typer]) -> str:
    """Return the reply to a shell's completion script.

    Args:
        instruction: `complete_bash`, as the script sends it.
        build: makes the application for the words of a command line.

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
    """Return the suggestions for the next word, or for the rest of the last word."""
    words = words[1:] if words[:1] == ["help"] else words
    cli: Any = get_command(build(words))
    context = _resolve_context(cli, {}, "eoctl", list(words))
    wanted, begun = _resolve_incomplete(context, list(words), begun)
    if hasattr(wanted, "param_type_name"):
        if wanted.param_type_name == "option":  # without its value nothing can be parsed
            context = _resolve_context(cli, {}, "eoctl", words[: -1 if words else None])
        values = values_of(wanted, context.params, begun)
        if values:
            return [CompletionItem(each) for each in values]
    # Without descriptions, because Typer would load Rich to print them.
    found = [each.value for each in wanted.shell_complete(context, begun)]
    return [CompletionItem(each) for each in found]


def script_of(shell: str | None) -> str:
    """Return the script for a shell, by default the current shell. Raises UsageError."""
    return get_completion_script(prog_name="eoctl", complete_var=VARIABLE, shell=_known(shell))


def install(shell: str | None) -> str:
    """Install the script where the shell finds it. Return a message about it.

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
