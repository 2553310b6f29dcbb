"""Directories with all that is in them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from storage.os_errors import os_errors

if TYPE_CHECKING:
    from storage.files.fsio import FileSystem


def sync_tree(fs: FileSystem, path: Path) -> None:
    """Make all that is in a directory durable, and its names; links are left out.

    Raises AccessError.
    """
    with os_errors(path):
        for directory, _, files in os.walk(path, topdown=False):
            for name in files:
                below = Path(directory, name)
                if below.is_symlink():
                    continue
                with fs.open_existing(below) as file:
                    fs.fsync(file)
            fs.fsync_dir(directory)


def remove_tree(fs: FileSystem, path: Path) -> None:
    """Remove a file or a directory with all in it; links are removed, not followed.

    Raises AccessError.
    """
    with os_errors(path):
        if path.is_symlink() or not path.is_dir():
            with suppress(FileNotFoundError):
                fs.unlink(path)
            return
        for directory, names, files in os.walk(path, topdown=False):
            for name in files:
                with suppress(FileNotFoundError):  # a broker that ends takes some away itself
                    fs.unlink(Path(directory, name))
            for name in names:
                below = Path(directory, name)
                if below.is_symlink():
                    fs.unlink(below)
                else:
                    fs.remove_dir(below)
        fs.remove_dir(path)
