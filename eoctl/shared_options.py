"""Options that all or many commands take, declared once and added by the program.

    @with_shared
    def command(path: Path, output: Output = OutputFormat.TEXT) -> int: ...

The command receives TEXT, JSONL or MSGPACK. `eoctl.output` and `eoctl.progress` do the rest.
"""

from __future__ import annotations

import functools
import os
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from eoctl.console.style import Color, Inspection
from eoctl.parameters import (
    Panel,
    Parameter,
    advanced_option,
    option,
    parameters_of,
    with_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class CleanupPolicy(StrEnum):
    """The values of `--cleanup-policy`."""

    COMPACT = "compact"
    DELETE = "delete"


shared_option = functools.partial(option, panel=Panel.SHARED)
# Parameter -> its declaration, and its default.
SHARED: dict[str, tuple[Any, Any]] = {
    "columns": (
        Annotated[
            str | None,
            shared_option(metavar="A,B,C|all", help="Columns to show, in this order."),
        ],
        None,
    ),
    "wide": (Annotated[bool, shared_option("--wide", help="Show all columns.")], False),
    "table": (
        Annotated[
            str | None,
            shared_option(metavar="KIND", help="With --output csv, only rows of this kind."),
        ],
        None,
    ),
    "utc": (Annotated[bool, shared_option("--utc", help="Show times in UTC.")], False),
    "color": (Annotated[Color, shared_option(help="Use colours.")], Color.AUTO),
    "no_pager": (
        Annotated[bool, shared_option("--no-pager", help="Do not use a pager.")],
        False,
    ),
    "no_progress": (
        Annotated[bool, shared_option("--no-progress", "-q", help="Do not show progress.")],
        False,
    ),
}
# For the commands that report lost offsets.
CLEANUP_POLICY = Annotated[
    CleanupPolicy | None,
    advanced_option("--cleanup-policy", help="cleanup.policy of topics that no metadata know."),
]
OFFSETS_COMMANDS = frozenset(
    {
        *("adopt", "start_order", "check", "consume", "copy", "describe", "duplicates", "export"),
        *("loss", "producers", "rebuild", "recover_state", "repair", "replicas", "report"),
        *("serve", "spark_audit", "truncate"),
        *(
            "txn.inspect_transactions.list_transactions",
            "txn.inspect_transactions.describe",
            "txn.inspect_transactions.hanging",
        ),
    }
)
# These are not paged: command lines that print how to undo a change or have no end, and commands
# that change something without `--apply`.
UNPAGED_OPTIONS = ("apply", "follow", "program", "to")
UNPAGED_COMMANDS = ("apply", "export", "lease_pid", "undo")
CHANGING_COMMANDS = (*UNPAGED_COMMANDS, "bench", "journal", "serve", "sim", "spark_audit")


def with_shared(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return a command that takes the shared options too, except for options it declares itself."""
    own = parameters_of(function)
    names_of_own = {each.name for each in own}
    added = {name: each for name, each in SHARED.items() if name not in names_of_own}
    module = function.__module__.removeprefix("eoctl.commands.")
    if not OFFSETS_COMMANDS.isdisjoint({module, f"{module}.{function.__name__}"}):
        added["cleanup_policy"] = CLEANUP_POLICY, None

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> int | None:
        from eoctl import output, progress

        shared = {name: kwargs.pop(name) for name in added}
        verb = function.__module__.rpartition(".")[2]
        names = [each.strip() for each in (shared.get("columns") or "").split(",") if each.strip()]
        inspect = Inspection(
            columns=() if names == ["all"] else tuple(names),
            has_all=names == ["all"] or (shared["wide"] and not names),
            table=shared.get("table"),
            is_change=bool(kwargs.get("apply")) or verb in CHANGING_COMMANDS,
            is_csv=kwargs.get("output") == "csv",
            is_utc=shared["utc"],
            color=shared["color"],
            has_pager=not (
                shared["no_pager"]
                or verb in UNPAGED_COMMANDS
                or any(kwargs.get(name) for name in UNPAGED_OPTIONS)
            ),
        )
        chosen = output.begin(kwargs.get("output"), inspect)
        if "output" in kwargs:
            kwargs["output"] = chosen
        progress.start(is_wanted=not shared["no_progress"])
        try:
            with _stated(shared.get("cleanup_policy")):
                return function(*args, **kwargs)
        finally:
            progress.stop()

    parameters = [each._replace(default=None) if each.name == "output" else each for each in own]
    parameters += [Parameter(name, hint, default) for name, (hint, default) in added.items()]
    return with_parameters(wrapper, parameters)


@contextmanager
def _stated(policy: CleanupPolicy | None) -> Iterator[None]:
    """Set a policy for this process and its workers."""
    if policy is None:
        yield
        return
    from storage.dirs.topic_settings import CLEANUP_POLICY_VARIABLE

    before = os.environ.get(CLEANUP_POLICY_VARIABLE)
    os.environ[CLEANUP_POLICY_VARIABLE] = policy.value
    try:
        yield
    finally:
        os.environ.pop(CLEANUP_POLICY_VARIABLE)
        if before is not None:
            os.environ[CLEANUP_POLICY_VARIABLE] = before
