"""Options that many commands take, declared once: how output looks, and how a change is made.

    @with_shared  # the program adds it to every command
    @with_change()
    def command(path: str, change: ChangeOptions = PLAN_ONLY, output: Output = ...) -> int: ...

The command is given TEXT, JSONL or MSGPACK, as before; what else is asked for is done by
`eoctl.output` and `eoctl.progress`.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eoctl import options
from eoctl.face.style import Color, Look

if TYPE_CHECKING:
    from collections.abc import Callable

# Parameter -> what Typer is told of it, and its default.
SHARED: dict[str, tuple[Any, Any]] = {
    "columns": (
        Annotated[
            str | None,
            typer.Option(metavar="A,B,C|all", help="Columns to show, in this order."),
        ],
        None,
    ),
    "utc": (Annotated[bool, typer.Option("--utc", help="Show times in UTC.")], False),
    "color": (Annotated[Color, typer.Option(help="Use colours.")], Color.AUTO),
    "no_pager": (
        Annotated[bool, typer.Option("--no-pager", help="Do not use a pager.")],
        False,
    ),
    "no_progress": (
        Annotated[bool, typer.Option("--no-progress", "-q", help="Do not show progress.")],
        False,
    ),
}
# What says how a change is undone, or has no end, is said at once: calls with one of these options,
# and commands that change something without being asked twice.
UNPAGED_OPTIONS = ("apply", "follow", "program", "to")
UNPAGED_COMMANDS = ("apply", "export", "lease_pid", "undo")


def with_shared(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return a command that takes the shared options too, but for those that are its own."""
    signature = inspect.signature(function, eval_str=True)
    added = {name: each for name, each in SHARED.items() if name not in signature.parameters}

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> int | None:
        from eoctl import output, progress

        shared = {name: kwargs.pop(name) for name in added}
        names = [each.strip() for each in (shared.get("columns") or "").split(",") if each.strip()]
        look = Look(
            columns=() if names == ["all"] else tuple(names),
            has_all=names == ["all"],
            is_utc=shared["utc"],
            color=shared["color"],
            has_pager=not (
                shared["no_pager"]
                or function.__module__.rpartition(".")[2] in UNPAGED_COMMANDS
                or any(kwargs.get(name) for name in UNPAGED_OPTIONS)
            ),
        )
        chosen = output.begin(kwargs.get("output"), look)
        if "output" in kwargs:
            kwargs["output"] = chosen
        progress.start(is_wanted=not shared["no_progress"])
        try:
            return function(*args, **kwargs)
        finally:
            progress.stop()

    parameters = [
        each.replace(default=None) if each.name == "output" else each
        for each in signature.parameters.values()
    ]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        for name, (hint, default) in added.items()
    ]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return wrapper


# Parameter -> its option, its default, and what it is in ChangeOptions.
CHANGE: dict[str, tuple[Any, Any, str]] = {
    "apply": (options.Apply, False, "apply"),
    "save_plan": (options.SavePlan, None, "save_plan"),
    "backup_dir": (options.BackupDir, None, "backup_dir"),
    "no_backup": (options.NoBackup, False, "no_backup"),
    "i_accept_the_loss": (options.AcceptLoss, False, "accept_loss"),
    "broker_is_stopped": (options.BrokerIsStopped, False, "broker_is_stopped"),
}


def with_change(
    *, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Give a command the options of a change, where its parameter `change` stands, as one value.

    Args:
        without: those that it has not. One that the command declares itself, with a help of its
            own, is in the value too.
    """

    def decorate(function: Callable[..., int | None]) -> Callable[..., int | None]:
        signature = inspect.signature(function, eval_str=True)
        own = [name for name in CHANGE if name in signature.parameters]
        added = [name for name in CHANGE if name not in own and name not in without]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> int | None:
            values = {name: kwargs.pop(name) for name in added}
            values |= {name: kwargs[name] for name in own}
            change = options.ChangeOptions(**{CHANGE[name][2]: values[name] for name in values})
            return function(*args, change=change, **kwargs)

        parameters = []
        for each in signature.parameters.values():
            if each.name != "change":
                parameters.append(each)
                continue
            parameters += [
                each.replace(name=name, annotation=CHANGE[name][0], default=CHANGE[name][1])
                for name in added
            ]
        wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return wrapper

    return decorate
