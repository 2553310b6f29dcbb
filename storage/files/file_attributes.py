"""Owner, group, mode and time of the files that we write: those that a broker can live with."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import RefusedError
from storage.os_errors import os_errors

if TYPE_CHECKING:
    StrPath = str | os.PathLike[str]


class FileAttributes(NamedTuple):
    """Owner, group, permission bits; and the modification time, None: as it comes."""

    uid: int
    gid: int
    mode: int
    mtime_ns: int | None = None


def attributes_for(directory: StrPath) -> FileAttributes:
    """What a new file in `directory` must have: its owner and group, its mode without x bits."""
    with os_errors(directory):
        found = os.stat(directory)  # noqa: PTH116 - for each file that is written
    return FileAttributes(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode) & 0o666)


def own_attributes() -> FileAttributes:
    """What any program gives a file: the user's, with the mode that the umask leaves.

    For what a user keeps beside the log dirs, such as a report: that may be in `/tmp`, which is
    root's.
    """
    return FileAttributes(os.geteuid(), os.getegid(), 0o666 & ~umask())


def umask() -> int:
    """Return the umask of the process; it can only be read by setting it."""
    mask = os.umask(0o77)
    os.umask(mask)
    return mask


def can_keep_owner(path: StrPath) -> bool:
    """Whether this process can give new files the owner and group of a directory.

    `path` is the directory, or a file in it. Root can, as far as the ids tell: that it lacks a
    capability, or is nobody to a server, shows only at the first write, which is then refused.
    """
    return can_give(attributes_for(path if Path(path).is_dir() else Path(path).parent))


def can_give(wanted: FileAttributes) -> bool:
    """Whether this process can give new files this owner and group, as `can_keep_owner`."""
    if os.geteuid() == 0:
        return True
    return wanted.uid == os.geteuid() and wanted.gid in {os.getegid(), *os.getgroups()}


def kept_attributes(directory: StrPath) -> FileAttributes:
    """As `attributes_for`, of a directory whose owner and group this process can give.

    Raises:
        RefusedError: it cannot; exit status 4.
        AccessError: the directory is not there, or cannot be looked at.
    """
    wanted = attributes_for(directory)
    if not can_give(wanted):
        raise owner_refused(directory)
    return wanted


def require_owner(path: StrPath) -> None:
    """Refuse beforehand what `can_keep_owner` says no to.

    Raises:
        RefusedError: exit status 4.
        AccessError: the directory is not there, or cannot be looked at.
    """
    if not can_keep_owner(path):
        raise owner_refused(path)


def require_own_file(path: StrPath, uid: int, gid: int) -> None:
    """Refuse beforehand to change a file whose owner or group this process could not give back.

    Its directory counts, whose owner this process must have anyway (`require_owner`): so the answer
    is the same for somebody who only looks.

    Raises:
        RefusedError: exit status 4.
        AccessError: the directory is not there, or cannot be looked at.
    """
    if os.geteuid() == 0:
        return
    wanted = attributes_for(Path(path).parent)
    if uid == wanted.uid and gid in {wanted.gid, os.getegid(), *os.getgroups()}:
        return
    owner = f"{wanted.uid}:{wanted.gid}"
    raise RefusedError(
        f"{os.fspath(path)}: belongs to {uid}:{gid}, and its directory to {owner}:"
        " a copy of it could not get its owner back; nothing was touched",
        next_step="run it as root, or give the file to the owner of its directory first",
    )


def owner_refused(path: StrPath) -> RefusedError:
    """Return the refusal of a change that would change whose file it is."""
    return RefusedError(
        f"{os.fspath(path)}: new files could not get the owner and group of their directory,"
        " and the broker could not use them",
        next_step="run it as the user of the broker, or as root",
    )
