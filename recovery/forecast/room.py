"""The free room of the file systems that logs are on."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def free_bytes_of(paths: Iterable[str]) -> dict[str, int]:
    """Return the bytes that a user other than root may write, by the path of a partition.

    Paths whose file system cannot be asked are left out.
    """
    free = cache(_free_bytes)
    found = {path: free(str(Path(path).parent)) for path in paths}
    return {path: count for path, count in found.items() if count is not None}


def _free_bytes(directory: str) -> int | None:
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
