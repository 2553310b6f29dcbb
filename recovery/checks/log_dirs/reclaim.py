"""What can go from a full disk: files that a broker would delete itself, or never reads again."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.partition import Partition
from storage.errors import AccessError
from storage.file_names import DirState, FileSuffix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir
    from storage.dirs.partition_files import FileEntry, SegmentFiles


class Reclaimable(NamedTuple):
    """A file or a directory that may go while the broker is stopped.

    Attributes:
        size_bytes: what its removal frees, as far as the disk's blocks are counted.
        why: what makes it superfluous.
    """

    size_bytes: int
    why: str
    path: str


_SUFFIXES = {
    FileSuffix.DELETED: "deleted already; the broker had no time to unlink it",
    FileSuffix.CLEANED: "left by a compaction that died; the next start deletes it",
    FileSuffix.TMP: "left by a write that died; never read",
    FileSuffix.PART: "left by a snapshot that was not finished; never read",
}
_DIR_STATES = {
    DirState.DELETE: "a deleted replica; the next start goes on deleting it",
    DirState.STRAY: "set aside by the broker, which does not serve it: make sure that the cluster"
    " has the data",
}


def find_reclaimable(selected: Selected) -> Iterator[Reclaimable]:
    """List what can go of one partition directory; nothing if it cannot be listed."""
    directory = selected.partition
    why = _DIR_STATES.get(directory.name.state)
    if why is not None:
        yield Reclaimable(_tree_bytes(directory.path), why, directory.path)
        return
    try:
        partition = Partition.of(selected)
    except AccessError:
        return
    for entry in partition.files.others:
        if entry.name.suffix in _SUFFIXES:
            yield _file(entry, _SUFFIXES[entry.name.suffix])
    for entry in partition.files.orphans:
        yield _file(entry, "an index without its .log; the next start deletes it")
    start_offset = partition.local_log_start_offset
    segments = partition.segments
    for files, following in pairwise(segments):
        if start_offset is not None and following.base_offset <= start_offset:
            for entry in _files_of(files):
                yield _file(entry, f"below the log start offset {start_offset}")


def find_reclaimable_beside(log_dir: LogDir) -> Iterator[Reclaimable]:
    """List what can go of the top level of a log dir, our own backups beside it included."""
    for each in log_dir.others:
        if not each.is_dir and each.file.suffix is FileSuffix.TMP:
            yield Reclaimable(_tree_bytes(each.path), _SUFFIXES[FileSuffix.TMP], each.path)
    backups = f"{log_dir.path.rstrip('/')}.eoctl"
    if Path(backups).is_dir():
        yield Reclaimable(
            _tree_bytes(backups), "backups of applied plans: eoctl journal prune", backups
        )


def _files_of(files: SegmentFiles) -> list[FileEntry]:
    entries = (files.log, files.offset_index, files.time_index, files.txn_index, files.snapshot)
    return [each for each in entries if each is not None]


def _file(entry: FileEntry, why: str) -> Reclaimable:
    return Reclaimable(_tree_bytes(entry.path), why, entry.path)


def _tree_bytes(path: str) -> int:
    """Blocks of a file, or of all files below a directory; what cannot be asked counts nothing."""
    total = _disk_bytes(path)
    for directory, _, names in os.walk(path):
        total += sum(_disk_bytes(str(Path(directory, name))) for name in names)
    return total


def _disk_bytes(path: str) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_blocks * 512
