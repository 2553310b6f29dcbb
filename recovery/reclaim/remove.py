"""Remove files of the classes A to C. They have no backup: no start would read them.

The marker of a clean stop stays, and no journal is needed, so this works on a full disk. A broker
that starts after any of the steps does the same as without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.journals.listing import remove_journal
from recovery.changes.plans.file_facts import data_bytes_of
from storage.errors import RefusedError, os_errors
from storage.files import fsio

if TYPE_CHECKING:
    from recovery.reclaim.find import Reclaimable
    from storage.files.fsio import FileSystem


def remove_item(fs: FileSystem, item: Reclaimable) -> None:
    """Remove the files of one item durably, in their order. Requires the locks of the log dirs.

    Raises:
        AccessError: a file could not be removed.
        RefusedError: a file that is to be truncated has data there, or a journal is needed.
    """
    if item.journal is not None:
        remove_journal(fs, item.journal)
        return
    if item.kept_bytes:
        for path, kept in zip(item.files, item.kept_bytes, strict=True):
            _truncate(fs, path, kept)
        return
    last = ""
    for path in item.files:
        # Swap files go before cleaned files, and a log before its indexes, on disk too.
        kind = Path(path).suffix
        if last and kind != Path(last).suffix:
            fsio.sync_dir(fs, Path(last).parent)
        with os_errors(path):
            fs.unlink(path)
        last = path
    if last:
        fsio.sync_dir(fs, Path(last).parent)
    if item.directory:
        with os_errors(item.directory):
            fs.remove_dir(item.directory)
        fsio.sync_dir(fs, Path(item.directory).parent)


def _truncate(fs: FileSystem, path: str, kept: int) -> None:
    size = Path(path).stat().st_size
    if data_bytes_of(path, kept, size):
        raise RefusedError(f"{path}: has data from {kept} on; it was not changed")
    with os_errors(path), fsio.open_alone(fs, path) as file:
        fs.truncate(file, kept)
        fs.fsync(file)
