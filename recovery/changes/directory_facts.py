"""What a directory held when it was looked at, so that a later look tells whether it still does."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from storage.errors import AccessError
from storage.file_names import FileKind, classify
from storage.os_errors import os_errors

UNREADABLE = "unreadable"


def listing_digest(directory: str) -> str:
    """SHA-256 (hex) over names, sizes and times of the files of a directory.

    "": it has gone. UNREADABLE: it cannot be listed, so that nobody knows whether it changes.
    """
    try:
        if not Path(directory).is_dir():
            return ""
        files = sorted(list_files(directory).items())
    except (OSError, AccessError):
        return UNREADABLE
    return sha256(repr(files).encode("utf-8", "replace")).hexdigest()


def list_files(directory: str) -> dict[str, tuple[int, int]]:
    """Size and mtime_ns of the files of a directory, apart from those that are not Kafka's data.

    What we put there ourselves is none of it: temporary files, the note of an unfinished plan.

    Raises:
        AccessError: it cannot be listed.
    """
    found = {}
    with os_errors(directory), os.scandir(directory) as entries:
        for entry in entries:
            is_kafkas = classify(entry.name).kind not in (FileKind.UNKNOWN, FileKind.LOCK)
            if not is_kafkas or not entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat(follow_symlinks=False)
            found[entry.name] = (status.st_size, status.st_mtime_ns)
    return found
