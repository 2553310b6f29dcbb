"""A directory tree as a value: to say that it is as it was, to byte, mode, owner and time."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.listing import UNFINISHED_NAME
from storage.file_names import LOCK_FILE_NAME
from storage.files.fsio import TEMP_SUFFIX

if TYPE_CHECKING:
    from pathlib import Path


class Entry(NamedTuple):
    """A file or directory; directories have no mtime here, unless asked for."""

    mode: int
    uid: int
    gid: int
    mtime_ns: int | None
    data: bytes | None


def tree_of(root: Path, *, directory_times: bool = False) -> dict[str, Entry]:
    """Everything below a log dir but what only eoctl and the lock have there."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        if path.name in {LOCK_FILE_NAME, UNFINISHED_NAME} or path.name.endswith(TEMP_SUFFIX):
            continue
        status = path.lstat()
        is_file = stat.S_ISREG(status.st_mode)
        mtime_ns = status.st_mtime_ns if is_file or directory_times else None
        data = path.read_bytes() if is_file else None
        mode = stat.S_IMODE(status.st_mode)
        name = str(path.relative_to(root))
        found[name] = Entry(mode, status.st_uid, status.st_gid, mtime_ns, data)
    return found


def difference(one: dict[str, Entry], other: dict[str, Entry]) -> list[str]:
    """What differs, in words short enough for an assertion."""
    words = []
    for name in sorted(one.keys() | other.keys()):
        first, second = one.get(name), other.get(name)
        if first is None or second is None:
            words.append(f"{name}: only in the {'second' if first is None else 'first'}")
        elif first != second:
            fields = [
                field for field in Entry._fields if getattr(first, field) != getattr(second, field)
            ]
            words.append(f"{name}: {', '.join(fields)}")
    return words


def leftovers(root: Path) -> list[str]:
    """Files of eoctl that must not stay in a log dir."""
    return [
        os.fspath(path)
        for path in root.rglob("*")
        if path.name == UNFINISHED_NAME or path.name.endswith(TEMP_SUFFIX)
    ]
