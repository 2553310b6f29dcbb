"""Where the old bytes go before anything is changed, and what came of a change."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.journal import PLACE_SUFFIX, BackupKind
from recovery.changes.plans.file_facts import data_bytes_of, read_chunks
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
    """What came of it. `was_done`: it had been applied before, and still is."""

    journal: Journal
    was_done: bool


class SpentTargetError(RefusedError):
    """What was asked for means nothing in what is there: it may have been cut already."""


@contextmanager
def stating(state: str) -> Iterator[None]:
    """Begin the next step of an error with what is left; an interruption carries it as a note."""
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


# -- where the old bytes go before anything is changed, whether they fit, and how they get there
#
# The default place is `<log dir>.eoctl`, beside the log dir and never inside: a broker refuses a
# log dir with an unknown directory in it. It must be on the log dir's own device, where a whole
# file is kept by a second name and only cut ranges are copied; the sibling of a mount point is
# another disk.


# A file system without hard links, or none to this directory (another mount of the same disk).
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_SLACK_BYTES = 1 << 20  # directories, the journal, what a file system needs beside the data


class Backup(NamedTuple):
    """Old bytes in the directory of the journal; `sha256` of a copy, "" else."""

    kind: BackupKind
    name: str = ""
    sha256: str = ""


# --- the place ------------------------------------------------------------------------------------


def default_place(log_dir: str) -> str:
    """Where the journals of a log dir go when nobody says where; a link is followed first."""
    return os.path.realpath(log_dir) + PLACE_SUFFIX


def choose_place(log_dirs: Sequence[str], backup_dir: str | None, *, is_small: bool = False) -> str:
    """Decide where the journal and the backups go; nothing is made yet.

    Args:
        log_dirs: that are changed.
        backup_dir: what the user said; None: the default place of the first log dir.
        is_small: there is so little to keep that it may be copied to another disk.

    Raises:
        RefusedError: the default is on another device, or the place is inside a log dir.
        AccessError: it cannot be looked at.
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


def require_room(plan: Plan, place: str, *, has_backup: bool) -> None:
    """Refuse a plan whose backups, or new files, would not fit.

    Raises:
        RefusedError: with what is needed and what is there.
        AccessError: a file system cannot be asked.
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
        # In the plan beside the journal, and in the file itself.
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
    """So many bytes of a step must be copied to a place (a directory that is there)."""
    if step.before is None:
        return 0
    is_near = _device_of(step.directory) == _device_of(place)
    if step.action is not Action.TRUNCATE and is_near and not has_other_names(step.path):
        return 0
    return step.backup_bytes


def has_other_names(path: str) -> bool:
    """Whether a file is known by hard links elsewhere, too: somebody may change it there."""
    with os_errors(path):
        return os.lstat(path).st_nlink > 1


def free_bytes(path: str) -> int:
    """What this user may still write on the file system of a path."""
    with os_errors(path):
        found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


# --- making them ----------------------------------------------------------------------------------


def back_up(
    fs: FileSystem, step: Step, directory: str, name: str, on_bytes: Callable[[int], None]
) -> Backup:
    """Keep the old bytes of a step; what was made is synced, its name is not durable yet.

    Raises:
        AccessError: they could not be read or written.
    """
    if step.before is None:
        return Backup(BackupKind.NONE)
    target = Path(directory, name)
    end_pos = step.before.file_bytes
    if step.action is Action.TRUNCATE:
        # The zeros at the end come back with the size.
        data_bytes = data_bytes_of(step.path, step.after_bytes, end_pos)
        chunks = read_chunks(step.path, step.after_bytes, step.after_bytes + data_bytes)
        return _copied(fs, chunks, target, BackupKind.CUT, step.before, on_bytes)
    if not has_other_names(step.path) and _is_linked(fs, step.path, target):
        return Backup(BackupKind.LINK, name)
    chunks = read_chunks(step.path, 0, end_pos)
    return _copied(fs, chunks, target, BackupKind.COPY, step.before, on_bytes)


def _is_linked(fs: FileSystem, path: str, target: Path) -> bool:
    """Keep a file by a second name; False: the file system has none."""
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

    # As readable as the original and no more; with another owner, for that one alone. Owners stay
    # those of the place, which may not know others: what is put back gets its own from the journal.
    wanted = attributes_for(target.parent)
    has_owner = (wanted.uid, wanted.gid) == (before.uid, before.gid)
    mode = before.mode if has_owner else before.mode & 0o600
    fsio.create_file(fs, target, noted(), wanted._replace(mode=mode))
    return Backup(kind, target.name, digest.hexdigest())
