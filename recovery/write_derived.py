"""Write rebuilt files the safe way (design 4): lock, marker first, each file in one step."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from storage import fsio
from storage.broker_lock import take
from storage.errors import AccessError, RefusedError
from storage.log_dir import META_PROPERTIES_NAME, METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from storage.discovery import Selected
    from storage.fsio import FileSystem


@contextmanager
def writing(
    selected: Sequence[Selected],
    fs: FileSystem,
    *,
    other_log_dirs: Iterable[str] = (),
    broker_is_stopped: bool = False,
) -> Iterator[None]:
    """Keep brokers away from the log dirs of these partitions for the length of the block.

    Everything is refused before anything is touched: the metadata log (design 4.8), owners that
    cannot be kept (4.9), a held lock (4.2).

    Raises:
        RefusedError: as said above.
        AccessError: a directory cannot be locked.
    """
    for each in selected:
        if each.partition.name.topic == METADATA_TOPIC:
            raise RefusedError(f"{each.partition.path}: {METADATA_TOPIC} is never changed")
        fsio.require_owner(each.partition.path)
    log_dirs = {str(Path(each.partition.path).resolve().parent) for each in selected}
    with take([*sorted(log_dirs), *other_log_dirs], broker_is_stopped=broker_is_stopped, fs=fs):
        yield


def write_files(
    fs: FileSystem, partition_path: str, files: Iterable[tuple[str, bytes]]
) -> Iterator[str]:
    """Write derived files into a partition directory; call it under `writing`.

    The clean-shutdown marker of the log dir goes first (design 4.3): with it a broker would skip
    recovery and trust a half-written set. Each file is replaced in one step, so that after a crash
    at any point every file is the old or the new one, and an unclean start derives the rest.

    Yields:
        Each name as soon as its content is durable; without files the marker is left alone.

    Raises:
        RefusedError: a name is a link, a directory or the like; nothing is changed then.
        AccessError: the operating system refused.
    """
    wanted = list(files)
    for name, _ in wanted:
        fsio.require_replaceable(Path(partition_path, name))
    if wanted:
        fsio.remove_clean_marker(fs, Path(partition_path).resolve().parent)
        fsio.remove_leftovers(fs, partition_path)
    for name, content in wanted:
        fsio.replace_file(fs, Path(partition_path, name), content, like=partition_path)
        yield name


def require_elsewhere(path: str, selected: Selected) -> None:
    """Make sure that a place to write to is in no log dir, where it takes a lock and a plan.

    Raises:
        RefusedError: it is in the partition's log dir, or in any other one.
    """
    target = Path(path).resolve()
    around = Path(selected.partition.path).resolve().parent
    if target.is_relative_to(around) or any(
        Path(each, META_PROPERTIES_NAME).exists() for each in (target, *target.parents)
    ):
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
