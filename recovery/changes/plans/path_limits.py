"""Limits for the paths of a plan or a journal, by their names and by their real targets.

Plans and journals may come from elsewhere, and a partition directory may be a symbolic link. A lock
covers one log dir, so a link must not lead to files in another log dir.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import FormatError, RefusedError
from storage.file_names import (
    BEGINNING_NAME,
    BOOTSTRAP_NAME,
    LOG_FILE_KINDS,
    META_PROPERTIES_NAME,
    METADATA_TOPIC,
    DirState,
    FileKind,
    FileSuffix,
    classify,
    parse_partition_name,
)
from storage.files.fsio import TEMP_SUFFIX
from storage.formats.meta_properties import parse_meta_properties
from storage.formats.partition_metadata import parse_partition_metadata
from storage.formats.record_batch import parse_header

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LOG_DIR_KINDS = frozenset({FileKind.OFFSET_CHECKPOINT, FileKind.CLEAN_SHUTDOWN})
# The first files of a log dir. They name the cluster, so a plan creates and never changes them.
_BEGINNING = frozenset({META_PROPERTIES_NAME, BOOTSTRAP_NAME})


def log_dir_of(path: str) -> str:
    """Return the log dir of a file, or of its partition, by its name."""
    file = Path(path)
    is_top_level = classify(file.name).kind in _LOG_DIR_KINDS or file.name in _BEGINNING
    return str(file.parent if is_top_level else file.parent.parent)


def begins_a_log_dir(paths: Iterable[str]) -> bool:
    """Return whether steps that change these files create a log dir."""
    return any(Path(each).name in _BEGINNING for each in paths)


def why_not_confined(
    path: str,
    log_dirs: Collection[str],
    content: bytes | None,
    *,
    is_removed: bool,
    is_new: bool,
    is_beginning: bool,
) -> str:
    """Return why a step must not change a file, by its name, or "" if it may.

    The new `content` (None: not available) of a `partition.metadata`, or of a first file of a log
    dir, must be valid. Steps that begin a log dir (`is_beginning`) adopt `.swap` files unchanged:
    the next start of a broker completes their compaction. No other step touches `.swap` files.
    """
    file = Path(path)
    name = classify(file.name)
    if path != os.path.normpath(path) or not file.is_absolute():
        return "which is no absolute path"
    if is_metadata(file.parent):
        begins = is_beginning and is_new and not is_removed and file.name == BEGINNING_NAME
        is_ours = begins and (content is None or _begins_a_log_dir(file.name, content))
        if is_ours and str(file.parent.parent) in log_dirs:
            return ""
        return f"and {METADATA_TOPIC} is never changed"
    if file.name in _BEGINNING:
        if not is_new or is_removed:
            return "which identifies the cluster, and is never changed"
        if content is not None and not _begins_a_log_dir(file.name, content):
            return "which would not be one"
        return "" if str(file.parent) in log_dirs else "which is in no log dir of the plan"
    if name.kind in _LOG_DIR_KINDS and not name.suffix:
        if name.kind is FileKind.CLEAN_SHUTDOWN and not is_removed:
            return "the clean-shutdown marker, which a plan only removes"
        return "" if str(file.parent) in log_dirs else "which is in no log dir of the plan"
    is_ours = name.kind in LOG_FILE_KINDS
    if name.kind is FileKind.PARTITION_METADATA:
        is_ours = not is_removed and (content is None or _is_topic_id(content))
    suffixes = {FileSuffix.NONE, FileSuffix.SWAP} if is_beginning else {FileSuffix.NONE}
    if not is_ours or name.suffix not in suffixes:
        return "which is no file that a plan may change"
    return why_no_partition(str(file.parent), log_dirs)


def why_not_made(path: str, log_dirs: Collection[str], *, is_beginning: bool) -> str:
    """Return why a directory must not be created, by its name, or "" if it may.

    It must be a live partition. The metadata log is allowed only in a new log dir, for the first
    records of its controller.
    """
    name = parse_partition_name(Path(path).name)
    is_in_log_dir = path == os.path.normpath(path) and str(Path(path).parent) in log_dirs
    if is_beginning and is_in_log_dir and Path(path).name == f"{METADATA_TOPIC}-0":
        return ""
    if name is None or name.state is not DirState.LIVE or not Path(path).is_absolute():
        return "which is no name of a live partition"
    return why_no_partition(path, log_dirs)


def why_no_partition(path: str, log_dirs: Collection[str]) -> str:
    """Return why files in a directory must not be changed, by its name, or "" if they may."""
    if path != os.path.normpath(path):
        return "which is no plain path"
    if is_metadata(path):
        return f"and {METADATA_TOPIC} is never changed"
    if str(Path(path).parent) not in log_dirs:
        return "which is in no partition of its log dirs"
    return ""


def _is_topic_id(content: bytes) -> bool:
    try:
        parse_partition_metadata(content)
    except FormatError:
        return False
    return True


def _begins_a_log_dir(name: str, content: bytes) -> bool:
    try:
        if name == META_PROPERTIES_NAME:
            return parse_meta_properties(content).cluster_id is not None
        return parse_header(content, 0).is_control  # of the header that a snapshot begins with
    except FormatError:
        return False


def is_metadata(directory: str | Path) -> bool:
    """Return whether a directory has the name of the cluster's metadata log."""
    name = parse_partition_name(Path(directory).name)
    return name is not None and name.topic == METADATA_TOPIC


def require_in_reach(directories: Iterable[str], log_dirs: Collection[str]) -> None:
    """Check that directories are where their names say, or in no log dir at all.

    Args:
        directories: of the files to change.
        log_dirs: their locks are held, or will be.

    Raises:
        RefusedError: a directory is a link to the metadata log, into another log dir, or to a
            directory that another given path leads to.
    """
    locked = {os.path.realpath(each) for each in log_dirs}
    seen: dict[str, str] = {}
    for directory in directories:
        real = os.path.realpath(directory)
        if is_metadata(real) and not _has_no_log(real):
            raise _out_of_reach(directory, real, f"{METADATA_TOPIC} is never changed")
        if seen.setdefault(real, directory) != directory:
            raise _out_of_reach(directory, real, f"so is {seen[real]}")
        around = "" if real in locked else _log_dir_around(real, locked)
        if around and around not in locked:
            raise _out_of_reach(
                directory, real, (f"in the log dir {around}, which is another log dir")
            )


def _has_no_log(directory: str) -> bool:
    """Return whether a directory of the metadata log does not exist, or has only its first file.

    An interrupted write may have left an incomplete file.
    """
    path = Path(directory)
    if not os.path.lexists(path):
        return True
    return {each.name for each in path.iterdir()} <= {
        BEGINNING_NAME, f"{BEGINNING_NAME}{TEMP_SUFFIX}"
    }  # fmt: skip


def _log_dir_around(real: str, locked: Collection[str]) -> str:
    """Return the innermost log dir that contains a directory, at any depth, or ""."""
    for each in Path(real).parents:
        if str(each) in locked or os.path.lexists(each / META_PROPERTIES_NAME):
            return str(each)
    return ""


def _out_of_reach(directory: str, real: str, why: str) -> RefusedError:
    return RefusedError(
        f"{directory}: is {real}, {why}; nothing was touched",
        next_step="name the partition by where it really is",
    )
