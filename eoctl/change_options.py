"""The options of a change, declared once for all commands that make one.

@with_change()
def command(path: str, change: ChangeOptions = PLAN_ONLY, output: Output = ...) -> int: ...
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eoctl.command_line import again
from eoctl.options import AcceptLoss, Apply, BackupDir, BrokerIsStopped, NoBackup, SavePlan
from eoctl.parameters import Parameter, parameters_of, with_parameters
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """The command line options for how a plan is applied, by name only: four of them are flags.

    Raises:
        UsageError: a combination without a meaning.
    """

    apply: bool = False
    save_plan: str | None = None
    backup_dir: str | None = None
    no_backup: bool = False
    accept_loss: bool = False
    broker_is_stopped: bool = False

    def __post_init__(self) -> None:
        """Refuse combinations without a meaning."""
        if self.no_backup and not self.accept_loss:
            raise UsageError(
                "a change with --no-backup cannot be undone",
                next_step=f"leave it out; or {again('--i-accept-the-loss')}",
            )
        if self.accept_loss and not self.no_backup:
            raise UsageError("--i-accept-the-loss means nothing without --no-backup")
        if self.apply and self.save_plan is not None:
            raise UsageError(
                "--apply and --save-plan: one of them",
                next_step="--save-plan FILE, then eoctl apply FILE",
            )

    @property
    def is_kept(self) -> bool:
        """True if the plan is applied or saved, not only shown."""
        return self.apply or self.save_plan is not None


PLAN_ONLY = ChangeOptions()


# Parameter -> its option, its default, and its field in ChangeOptions.
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
    """Return a decorator that replaces a command's parameter `change` by the options of a change.

    The command receives their values as one ChangeOptions.

    Args:
        without: options that the command does not have. An option that the command declares itself,
            with its own help, is part of the value too.
    """

    def decorate(function: Callable[..., int | None]) -> Callable[..., int | None]:
        declared = parameters_of(function)
        own = [each.name for each in declared if each.name in CHANGE]
        added = [name for name in CHANGE if name not in own and name not in without]

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> int | None:
            values = {name: kwargs.pop(name) for name in added}
            values |= {name: kwargs[name] for name in own}
            change = ChangeOptions(**{CHANGE[name][2]: values[name] for name in values})
            return function(*args, change=change, **kwargs)

        parameters = []
        for each in declared:
            if each.name == "change":
                parameters += [Parameter(name, *CHANGE[name][:2]) for name in added]
            else:
                parameters.append(each)
        return with_parameters(wrapper, parameters)

    return decorate
