"""Derived files: a plan that writes them in place, or the same files elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.changes.plans.plan import absolute_path, make_plan, replace_step, source_of
from storage.dirs.discovery import is_in_log_dir
from storage.errors import AccessError, RefusedError
from storage.files import fsio
from storage.files.fsio import umask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from recovery.changes.plans.plan import Plan
    from recovery.replay.price import RecoveryPrice
    from storage.dirs.discovery import Selected
    from storage.files.fsio import FileSystem

_REASON = "derived from the .log"


class Derived(NamedTuple):
    """What is to be written into one partition; `logs` are the `.log` files it was derived from."""

    partition_path: str
    files: Sequence[tuple[str, bytes]]
    logs: Sequence[str]


def derived_plan(
    command: str,
    arguments: Mapping[str, Any],
    derived: Sequence[Derived],
    recovery: RecoveryPrice | None,
) -> Plan:
    """Plan to give files of partitions, by name, the content that they should have.

    Args:
        command: what makes it.
        arguments: what was asked of it.
        derived: the files.
        recovery: what the next start without the clean-shutdown marker recovers; None: unknown.

    Raises:
        RefusedError: a name is a link, a directory or the like, or the partition is not to be
            changed.
        AccessError: a file cannot be looked at.
    """
    steps = [
        replace_step(str(Path(absolute_path(each.partition_path), name)), content, _REASON)
        for each in derived
        for name, content in each.files
    ]
    sources = [source_of(absolute_path(path)) for each in derived for path in each.logs]
    price = {"recovery": None if recovery is None else recovery._asdict()}
    return make_plan(command, arguments, steps, price, sources)


def require_elsewhere(path: str, selected: Selected) -> None:
    """Make sure that a place to write to is in no log dir, where it takes a lock and a plan.

    Raises:
        RefusedError: it is in the partition's log dir, or in any other one.
    """
    around = Path(os.path.realpath(selected.partition.path)).parent
    if Path(os.path.realpath(path)).is_relative_to(around) or is_in_log_dir(path):
        raise RefusedError(
            f"{path}: is in a log dir; nothing was touched",
            next_step="--to with a place outside of it, or --apply",
        )


def write_elsewhere(
    fs: FileSystem, directory: str, partition_name: str, files: Iterable[tuple[str, bytes]]
) -> list[str]:
    """Write files below `directory/partition_name`, which are made if they are not there.

    Returns:
        The names written.

    Raises:
        AccessError: the operating system refused.
    """
    target = Path(directory, partition_name)
    for each in (Path(directory), target):
        try:
            fs.make_dir(each, 0o777 & ~umask())
        except FileExistsError:
            continue
        except OSError as exc:
            raise AccessError(exc, str(each)) from exc
    names = []
    for name, content in files:
        fsio.replace_file(fs, target / name, content)
        names.append(name)
    return names
