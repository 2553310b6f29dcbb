"""The options of a change, declared once for all commands that make one.

@with_change()
def command(path: str, change: ChangeOptions = PLAN_ONLY, output: Output = ...) -> int: ...
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from eoctl.options import (
    AcceptLoss,
    Apply,
    BackupDir,
    BrokerIsStopped,
    ChangeOptions,
    NoBackup,
    SavePlan,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Parameter -> its option, its default, and what it is in ChangeOptions.
CHANGE: dict[str, tuple[Any, Any, str]] = {
    "apply": (Apply, False, "apply"),
    "save_plan": (SavePlan, None, "save_plan"),
    "backup_dir": (BackupDir, None, "backup_dir"),
    "no_backup": (NoBackup, False, "no_backup"),
    "i_accept_the_loss": (AcceptLoss, False, "accept_loss"),
    "broker_is_stopped": (BrokerIsStopped, False, "broker_is_stopped"),
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
            change = ChangeOptions(**{CHANGE[name][2]: values[name] for name in values})
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
