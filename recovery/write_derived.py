"""Derived files: a plan that writes them in place, or the same files elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.plan import absolute_path, make_plan, replace_step
from storage import fsio
from storage.discovery import is_in_log_dir
from storage.errors import AccessError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.plan import Plan, Step
    from storage.discovery import Selected
    from storage.fsio import FileSystem


def derived_plan(
    command: str,
    arguments: Mapping[str, Any],
    partition_path: str,
    files: Iterable[tuple[str, bytes]],
) -> Plan:
    """Plan to give files of a partition, by name, the content that they should have.

    Raises:
        RefusedError: a name is a link, a directory or the like, or the partition is not to be
            changed.
        AccessError: a file cannot be looked at.
    """
    return make_plan(command, arguments, derived_steps(partition_path, files), {})


def derived_steps(partition_path: str, files: Iterable[tuple[str, bytes]]) -> list[Step]:
    """The steps of `derived_plan`. Raises as that does."""
    directory = absolute_path(partition_path)
    return [
        replace_step(str(Path(directory, name)), content, "derived from the .log")
        for name, content in files
    ]


def require_elsewhere(path: str, selected: Selected) -> None:
    """Make sure that a place to write to is in no log dir, where it takes a lock and a plan.

    Raises:
        RefusedError: it is in the partition's log dir, or in any other one.
    """
    around = Path(selected.partition.path).resolve().parent
    if Path(path).resolve().is_relative_to(around) or is_in_log_dir(path):
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
            fs.make_dir(each, 0o777 & ~_umask())
        except FileExistsError:
            continue
        except OSError as exc:
            raise AccessError(exc, str(each)) from exc
    names = []
    for name, content in files:
        fsio.replace_file(fs, target / name, content)
        names.append(name)
    return names


def _umask() -> int:
    """Read the process's mask; there is no way but to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
