"""Take back what a run has appended: every file as it was, to byte, mode and time.

Files that are new go, the last segment first; a `.log` is cut at its former end, the others come
back from where they were kept; partitions that were made go, under a name that a broker deletes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack

from recovery.changes.append_close import has_old_bytes, new_files, why_not_ours
from recovery.changes.journals.journal import BackupKind, Status
from recovery.changes.plans.file_facts import has_bytes_of, is_still, list_files
from recovery.changes.steps import has_whole_backup, take_back
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, RefusedError, os_errors, pasted
from storage.file_names import FileKind, classify, is_clean_marker
from storage.files import fsio
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.changes.journals.journal import Appends, Journal, JournalStep
    from storage.files.fsio import FileSystem

MAX_SESSION_BYTES = 16 << 20
_SESSION_FORMATS = ("eoctl producer session", "eoctl copy session")


def check(found: Journal) -> None:
    """Make sure that it can be taken back, beside what `recovery.changes.undo` asks of all.

    Raises:
        RefusedError: something was changed since, or the old bytes are not there.
        AccessError: a file or directory cannot be looked at.
    """
    appends = _appends_of(found)
    if found.status is Status.KEPT:
        raise RefusedError(
            f"{found.path}: was interrupted, and its files were changed since, as by a broker:"
            " there is no way back"
        )
    reason = _why_changed(found) if found.status is Status.APPLIED else why_not_ours(found)
    if reason:
        raise RefusedError(
            f"{reason} since, as by a broker that ran; going on would lose that",
            next_step=f"eoctl journal show {pasted(found.path)}   # to keep what is there"
            f" now, eoctl apply {pasted(found.path)}",
        )
    for each in appends.new_directories:
        require_no_strangers(each)
    for step in found.steps:
        _require_old_bytes(found, step)
    for step in appends.sessions:
        require_outside_log_dirs(step.path)
        _require_session(step.path)
        _require_old_bytes(found, step)
        if step.backup_kind is not BackupKind.NONE and Path(found.backup_path(step)).exists():
            _require_session(found.backup_path(step))


def _appends_of(found: Journal) -> Appends:
    assert found.appends is not None
    return found.appends


def _why_changed(found: Journal) -> str:
    """What is not as the run has left it."""
    appends = _appends_of(found)
    for directory, after in appends.end_directories.items():
        now = list_files(directory)
        for name in sorted(now.keys() | after.files.keys()):
            if now.get(name) != after.files.get(name):
                what = "was changed" if name in after.files else "was made"
                return f"{Path(directory, name)}: {what}"
    for path, facts in appends.ends.items():
        if not is_still(path, facts):
            return f"{path}: was changed"
    return ""


def require_no_strangers(directory: str) -> None:
    """Refuse to remove a directory with something in it that is no file of a partition.

    Raises:
        RefusedError: there is something.
        AccessError: it cannot be listed.
    """
    if not Path(directory).is_dir():
        return
    with os_errors(directory):
        names = sorted(each.name for each in Path(directory).iterdir())
    for name in names:
        is_ours = name.endswith(fsio.TEMP_SUFFIX) and not Path(directory, name).is_dir()
        is_dir = Path(directory, name).is_dir()
        if is_dir or (classify(name).kind is FileKind.UNKNOWN and not is_ours):
            raise RefusedError(
                f"{Path(directory, name)}: is no file of a partition; nothing was touched",
                next_step="put it elsewhere",
            )


def _require_old_bytes(found: Journal, step: JournalStep) -> None:
    if step.backup_kind is BackupKind.END:
        is_there = has_old_bytes(step)
    elif step.backup_kind is BackupKind.LINK and not Path(found.backup_path(step)).exists():
        before = step.before  # it has been moved back
        is_there = before is not None and has_bytes_of(step.path, before)
    else:
        is_there = has_whole_backup(found, step)
    if not is_there:
        raise RefusedError(
            f"{found.backup_path(step)}: is not what was kept of {step.path}",
            next_step="get that file back from elsewhere",
        )


def _require_session(path: str) -> None:
    """A journal may come from another hand: it must not lead to files of another kind."""
    try:
        data = read_small_file(path, MAX_SESSION_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise AccessError(error, path) from error
    try:
        body, _ = msgpack.unpackb(data)
        is_session = msgpack.unpackb(body, strict_map_key=False)["format"] in _SESSION_FORMATS
    except (ValueError, TypeError, KeyError, msgpack.UnpackException):
        is_session = False
    if not is_session:
        raise RefusedError(f"{path}: is no session of eoctl; nothing was touched")


# --- taking back ----------------------------------------------------------------------------------


def restore(fs: FileSystem, found: Journal, on_bytes: Callable[[int], None]) -> None:
    """Put everything back but the clean-shutdown markers; it may be done twice.

    Raises:
        AccessError, RefusedError: it could not be done.
    """
    _remove_new_files(fs, found)
    changed = dict.fromkeys(each for each in found.directories if each not in found.log_dirs)
    for step in reversed(found.steps):
        if not is_clean_marker(step.path):
            _restore(fs, found, step, on_bytes)
            changed[str(Path(step.path).parent)] = None
    for each in changed:
        fsio.sync_dir(fs, each)
    _remove_new_directories(fs, _appends_of(found))
    for step in _appends_of(found).sessions:
        _restore(fs, found, step, on_bytes)
        fsio.sync_dir(fs, Path(step.path).parent)
    fsio.sync_dir(fs, found.path)


def restore_markers(fs: FileSystem, found: Journal, on_bytes: Callable[[int], None]) -> None:
    """Put the clean-shutdown markers back, when all else is certain. Raises as `restore`."""
    for step in found.steps:
        if is_clean_marker(step.path):
            _restore(fs, found, step, on_bytes)
            fsio.sync_dir(fs, Path(step.path).parent)
    fsio.sync_dir(fs, found.path)


def _restore(
    fs: FileSystem, found: Journal, step: JournalStep, on_bytes: Callable[[int], None]
) -> None:
    is_in_place = step.backup_kind in {BackupKind.CUT, BackupKind.END}
    if step.before is None and not Path(step.path).exists():
        return
    # What looks restored may not be durable where it is changed in place: an undo was killed.
    if is_in_place or not is_still(step.path, step.before):
        take_back(fs, found, step, on_bytes)


def _remove_new_files(fs: FileSystem, found: Journal) -> None:
    """From the last segment backwards, each durably: what is left is always a log."""
    made = _appends_of(found).new_directories
    paths = [each for each in new_files(found) if str(Path(each).parent) not in made]
    by_segment: dict[tuple[str, int], list[str]] = {}
    for each in paths:
        name = classify(Path(each).name)
        # A snapshot at the end of a segment goes with the next one.
        number = -1 if name.offset is None else name.offset
        by_segment.setdefault((str(Path(each).parent), number), []).append(each)
    for (directory, _), files in sorted(by_segment.items(), reverse=True):
        with os_errors(directory):
            for each in sorted(files, key=lambda path: not path.endswith(".log")):
                fs.unlink(each)
        if any(each.endswith(".log") for each in files):
            fsio.sync_dir(fs, directory)


def _remove_new_directories(fs: FileSystem, appends: Appends) -> None:
    for path, begun_as in reversed(appends.new_directories.items()):
        with os_errors(path):
            if Path(path).is_dir():
                fs.rename(path, begun_as)
        if Path(begun_as).is_dir():
            with os_errors(begun_as):
                for each in sorted(Path(begun_as).iterdir()):
                    fs.unlink(each)
                with suppress(FileNotFoundError):
                    fs.remove_dir(begun_as)
        fsio.sync_dir(fs, Path(path).parent)
