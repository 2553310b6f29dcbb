"""Backups of old data before a change, and the result of a change."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.journal import PLACE_SUFFIX, BackupKind
from recovery.changes.plans.file_facts import kept_bytes_of, read_chunks
from recovery.changes.plans.plan import Action
from storage.dirs.discovery import is_in_log_dir
from storage.errors import LEFT_AS_IT_WAS, EoctlError, RefusedError, os_errors
from storage.files import fsio
from storage.files.fsio import attributes_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.changes.journals.journal import Journal
    from recovery.changes.plans.file_facts import FileFacts
    from recovery.changes.plans.plan import Plan, Step
    from storage.files.fsio import FileSystem


class Applied(NamedTuple):
    """The result of applying a plan. `was_done`: the plan was applied before, and still is."""

    journal: Journal
    was_done: bool


class SpentTargetError(RefusedError):
    """The target of a change is not in the log. It may be truncated already."""


@contextmanager
def stating(state: str) -> Iterator[None]:
    """Prefix the next step of an error with the state of the change, or add it as a note."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        interruption.add_note(state)
        raise
    except EoctlError as error:
        own_state = f"{LEFT_AS_IT_WAS}; "
        error.next_step = error.next_step.removeprefix(own_state)
        if not error.next_step.startswith(state):
            error.next_step = f"{state}; {error.next_step}" if error.next_step else state
        raise


# -- backups before a change: their place, their size, and how to make them.
#
# The default place is `<log dir>.eoctl`, next to the log dir and never inside: a broker refuses a
# log dir with an unknown directory in it. It must be on the log dir's own device. There a hard
# link keeps a whole file, and only truncated ranges are copied. The sibling of a mount point is on
# another disk.


# No hard links in this file system, or none to this directory (another mount of the same disk).
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_SLACK_BYTES = 1 << 20  # directories, the journal, and file system overhead


class Backup(NamedTuple):
    """A backup in the directory of the journal. `sha256` is set for a copy, else ""."""

    kind: BackupKind
    name: str = ""
    sha256: str = ""


# --- the place ------------------------------------------------------------------------------------


def default_place(log_dir: str) -> str:
    """Return the default place of the journals of a log dir. A link is followed first."""
    return os.path.realpath(log_dir) + PLACE_SUFFIX


def choose_place(log_dirs: Sequence[str], backup_dir: str | None, *, is_small: bool = False) -> str:
    """Choose the place of the journal and the backups. It is not created yet.

    Args:
        log_dirs: the log dirs that are changed.
        backup_dir: from the user. None: the default place of the first log dir.
        is_small: backups are small enough to copy to another disk.

    Raises:
        RefusedError: the default is on another device, or the place is inside a log dir.
        AccessError: it cannot be read.
    """
    place = os.path.realpath(default_place(log_dirs[0]) if backup_dir is None else backup_dir)
    if backup_dir is None and not is_small:
        existing = place if Path(place).exists() else str(Path(place).parent)
        if any(_device_of(existing) != _device_of(each) for each in log_dirs):
            raise RefusedError(
                f"{place}: is on another disk than the log dir, so that the backups would be"
                " copies there; nothing was touched",
                next_step="--backup-dir DIR with a place that you choose, best on the same disk",
            )
    is_inside = any(Path(place).is_relative_to(os.path.realpath(each)) for each in log_dirs)
    if is_inside or is_in_log_dir(place):
        raise RefusedError(
            f"{place}: is in a log dir, where a broker would take it for a partition",
            next_step="--backup-dir DIR with a place outside of it",
        )
    return place


def _device_of(path: str) -> int:
    with os_errors(path):
        return Path(path).stat().st_dev


def is_on_log_disk(log_dirs: Sequence[str], backup_dir: str | None) -> bool:
    """Return whether backups are on the disk of a log dir, where they keep the room.

    Raises:
        AccessError: the place cannot be read.
    """
    place = Path(os.path.realpath(default_place(log_dirs[0]) if backup_dir is None else backup_dir))
    existing = next(each for each in (place, *place.parents) if each.exists())
    return any(_device_of(str(existing)) == _device_of(each) for each in log_dirs)


def require_room(plan: Plan, place: str, *, has_backup: bool) -> None:
    """Refuse a plan whose backups or new files do not fit.

    Raises:
        RefusedError: it says how much is needed, and how much is free.
        AccessError: the state of a file system is not available.
    """
    where = place if Path(place).exists() else str(Path(place).parent)
    needed: dict[int, int] = {}
    paths: dict[int, str] = {}

    def add(path: str, count: int) -> None:
        device = _device_of(path)
        needed[device] = needed.get(device, _SLACK_BYTES) + count
        paths.setdefault(device, path)

    for each in plan.steps:
        content_bytes = len(each.content or b"")
        # Once in the plan next to the journal, and once in the file itself.
        add(where, 2 * content_bytes)
        if each.action is Action.REPLACE and each.after_bytes:
            add(each.log_dir, each.after_bytes)
        if each.action is Action.TRUNCATE and each.before and has_other_names(each.path):
            add(each.log_dir, each.before.file_bytes)
        if has_backup:
            add(where, copied_bytes(each, where))
    for device, count in needed.items():
        free = free_bytes(paths[device])
        if free < count:
            raise RefusedError(
                f"{paths[device]}: {count} bytes are needed on this disk, {free} are free;"
                " nothing was touched",
                next_step="--backup-dir DIR on another disk, or free some space",
            )


def copied_bytes(step: Step, place: str) -> int:
    """Return how many bytes of a step must be copied to a place, an existing directory."""
    if step.before is None:
        return 0
    is_near = _device_of(step.directory) == _device_of(place)
    if step.action is not Action.TRUNCATE and is_near and not has_other_names(step.path):
        return 0
    return step.backup_bytes


def has_other_names(path: str) -> bool:
    """Return whether a file has other hard links, through which it could change."""
    with os_errors(path):
        return os.lstat(path).st_nlink > 1


def free_bytes(path: str) -> int:
    """Return how many bytes this user may still write on the file system of a path."""
    with os_errors(path):
        found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


# --- making backups -------------------------------------------------------------------------------


def back_up(
    fs: FileSystem, step: Step, directory: str, name: str, on_bytes: Callable[[int], None]
) -> Backup:
    """Back up the old data of a step. The backup is synced, but its name is not durable yet.

    Raises:
        AccessError: the data could not be read or written.
    """
    if step.before is None:
        return Backup(BackupKind.NONE)
    target = Path(directory, name)
    end_pos = step.before.file_bytes
    if step.action is Action.TRUNCATE:
        # Restoring the size restores the other zeros.
        kept_bytes = kept_bytes_of(step.path, step.after_bytes, end_pos)
        chunks = read_chunks(step.path, step.after_bytes, step.after_bytes + kept_bytes)
        return _copied(fs, chunks, target, BackupKind.CUT, step.before, on_bytes)
    if not has_other_names(step.path) and _is_linked(fs, step.path, target):
        return Backup(BackupKind.LINK, name)
    chunks = read_chunks(step.path, 0, end_pos)
    return _copied(fs, chunks, target, BackupKind.COPY, step.before, on_bytes)


def _is_linked(fs: FileSystem, path: str, target: Path) -> bool:
    """Back up a file by a hard link, or return False if the file system has none."""
    try:
        fs.link(path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            with os_errors(target, state="nothing was changed"):
                raise
        return False
    return True


def _copied(
    fs: FileSystem,
    chunks: Iterable[bytes],
    target: Path,
    kind: BackupKind,
    before: FileFacts,
    on_bytes: Callable[[int], None],
) -> Backup:
    digest = sha256()

    def noted() -> Iterator[bytes]:
        for chunk in chunks:
            digest.update(chunk)
            on_bytes(len(chunk))
            yield chunk

    # The mode is the original's. If the owner differs, only the owner has access. The owner is the
    # owner of the place, which may not allow others. `undo` sets the owner from the journal.
    wanted = attributes_for(target.parent)
    has_owner = (wanted.uid, wanted.gid) == (before.uid, before.gid)
    mode = before.mode if has_owner else before.mode & 0o600
    fsio.create_file(fs, target, noted(), wanted._replace(mode=mode))
    return Backup(kind, target.name, digest.hexdigest())
