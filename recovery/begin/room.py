"""Whether a new log dir can be where it is wanted: room for copies, links to its sources."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import RefusedError, os_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

_SLACK_BYTES = 1 << 20  # the metadata, directories, what a file system needs beside the data
_PARTITION_BYTES = 64 << 10  # directory, small files, and the indexes that a broker preallocates


def _around(log_dir: str) -> Path:
    """The directory that is there: itself, or the one that it is made in."""
    path = Path(log_dir).absolute()
    return path if path.is_dir() else path.parent


def require_one_file_system(log_dir: str, sources: Iterable[str], option: str) -> None:
    """Refuse a link to another file system. Raises RefusedError, AccessError."""
    around = _around(log_dir)
    with os_errors(around):
        device = around.stat().st_dev
    far = []
    for each in dict.fromkeys(str(Path(source).parent) for source in sources):
        with os_errors(each):
            if Path(each).stat().st_dev != device:
                far.append(each)
    if far:
        raise RefusedError(
            f"{', '.join(far)}: on another disk than {log_dir}, where {option} cannot reach",
            next_step="--copy, or a NEW-LOG-DIR on that disk",
        )


def require_room(log_dir: str, copied_bytes: int, partitions_count: int) -> None:
    """Refuse a copy that does not fit. Raises RefusedError, AccessError."""
    around = _around(log_dir)
    needed_bytes = copied_bytes + _SLACK_BYTES + partitions_count * _PARTITION_BYTES
    with os_errors(around):
        found = os.statvfs(around)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < needed_bytes:
        raise RefusedError(
            f"{log_dir}: {needed_bytes:,} bytes are needed there, {free_bytes:,} are free; nothing"
            " was touched",
            next_step="--link copies least, where the sources are on the same disk",
        )


def other_owners(log_dir: str, sources: Iterable[str]) -> list[str]:
    """List sources whose files belong to somebody else than those of the new log dir will."""
    around = _around(log_dir)
    with os_errors(around):
        owner = around.stat().st_uid
    found = []
    for each in dict.fromkeys(sources):
        with os_errors(each):
            if Path(each).stat().st_uid != owner:
                found.append(each)
    return found
