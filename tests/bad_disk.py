"""A disk that gives only the beginning of a file."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from storage.files import positioned_file

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def give_up_to(monkeypatch: pytest.MonkeyPatch, path: Path, good_bytes: int) -> None:
    """Have reads of a file fail from a position on, as those of a bad block do."""
    preadv, there = positioned_file._preadv, path.stat()

    def torn(fd: int, view: memoryview, pos: int) -> int:
        if os.path.samestat(os.fstat(fd), there):
            if pos >= good_bytes:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            view = view[: good_bytes - pos]
        return preadv(fd, view, pos)

    monkeypatch.setattr(positioned_file, "_preadv", torn)
