"""Undo of an applied or interrupted plan: every file as before, to byte, mode and time.

    1  under the locks, check that every file is in the state after or before the plan, that no
       other file of these directories was changed or added, and that the backups are whole
    2  create `.eoctl-unfinished` in each log dir, and note in the journal that an undo has begun
    3  undo the steps, the last step first, each content synced, then the directories
    4  restore the clean-shutdown markers, when all else is durable. They stay away if a further
       partition of the log dir, which they would vouch for, was changed since
    5  note in the journal that it is undone, remove `.eoctl-unfinished`, and restore the times of
       the directories

Another `undo` completes an interrupted undo. A broker that has run since changed the files that it
writes at every start and stop. Then nothing can safely be restored.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from recovery.changes.apply import (
    has_old_bytes,
    new_files,
    remove_leftovers,
    require_untouched,
    why_not_ours,
)
from recovery.changes.journals import journal, listing
from recovery.changes.journals.backups import stating
from recovery.changes.journals.journal import BackupKind, Journal, Status
from recovery.changes.journals.listing import later_applied, later_without_backup, unfinished_path
from recovery.changes.plans.file_facts import (
    UNREADABLE,
    has_bytes_of,
    is_still,
    list_files,
    listing_digest,
)
from recovery.changes.plans.path_limits import require_in_reach
from recovery.changes.plans.plan import Action
from recovery.changes.steps import StepState, has_whole_backup, revert, state_of
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, RefusedError, os_errors, pasted
from storage.file_names import FileKind, classify, is_clean_marker
from storage.files import fsio
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from recovery.changes.journals.journal import Appends, JournalStep
    from recovery.changes.plans.file_facts import FileFacts
    from storage.files.fsio import FileSystem


# -- undo of a run that appends: every file as before, to byte, mode and time.
#
# New files are removed, the last segment first. A `.log` is truncated to its former end. Other
# files come from their backups. New partitions are removed under a name that a broker deletes.


class Restored:
    """The files as they will be when later changes are undone."""

    def __init__(self, later: Iterable[Journal] = ()) -> None:
        """`later`: the journals to undo first, the newest first."""
        self.journals: set[str] = set()
        self._before: dict[str, FileFacts | None] = {}
        self._listings: dict[str, dict[str, tuple[int, int]]] = {}
        for each in later:
            self.journals.add(each.path)
            self._listings |= {path: facts.files for path, facts in each.directories.items()}
            made, steps = each.made_directories, each.steps
            if each.appends is not None:
                made = frozenset(each.appends.new_directories)
                steps += each.appends.sessions
            self._listings |= {path: {} for path in made}
            self._before |= {step.path: step.before for step in steps}

    def list_files(self, directory: str) -> dict[str, tuple[int, int]]:
        """Return size and mtime_ns of the files of a directory. Raises AccessError."""
        found = self._listings.get(directory)
        return list_files(directory) if found is None else found

    def is_changed(self, path: str) -> bool:
        """Return whether the undo of the later changes changes a file."""
        listing = self._listings.get(str(Path(path).parent))
        return path in self._before or (listing is not None and Path(path).name not in listing)

    def size_and_time(self, path: str) -> tuple[int, int] | None:
        """Return size and mtime_ns of a file that is changed, None if it will not exist."""
        before = self._before.get(path)
        return None if before is None else (before.file_bytes, before.mtime_ns)


MAX_SESSION_BYTES = 16 << 20
_SESSION_FORMATS = ("eoctl producer session", "eoctl copy session")


def check(found: Journal, restored: Restored) -> None:
    """Check that the run can be undone, in addition to the general checks of this module.

    Raises:
        RefusedError: something was changed since, or the backups are not available.
        AccessError: a file or directory cannot be read.
    """
    appends = _appends_of(found)
    if found.status is Status.KEPT:
        raise RefusedError(
            f"{found.path}: was interrupted, and its files were changed since, as by a broker: it "
            "cannot be undone"
        )
    is_applied = found.status is Status.APPLIED
    reason = _why_changed(found, restored) if is_applied else why_not_ours(found)
    if reason:
        raise RefusedError(
            f"{reason} since, as by a broker that ran; going on would lose that",
            next_step=f"eoctl journal show {pasted(found.path)}   # to keep the files as they are, "
            f"eoctl apply {pasted(found.path)}",
        )
    for each in appends.new_directories:
        require_no_strangers(each)
    for step in found.steps:
        if not (step.backup_kind is BackupKind.END and restored.is_changed(step.path)):
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


def _why_changed(found: Journal, restored: Restored) -> str:
    """Return a difference to the state that the run left, or ""."""
    appends = _appends_of(found)
    for directory, after in appends.end_directories.items():
        now = restored.list_files(directory)
        for name in sorted(now.keys() | after.files.keys()):
            if now.get(name) != after.files.get(name):
                what = "was changed" if name in after.files else "was made"
                return f"{Path(directory, name)}: {what}"
    for path, facts in appends.ends.items():
        if restored.is_changed(path):
            then = None if facts is None else (facts.file_bytes, facts.mtime_ns)
            is_same = restored.size_and_time(path) == then
        else:
            is_same = is_still(path, facts)
        if not is_same:
            return f"{path}: was changed"
    return ""


def require_no_strangers(directory: str) -> None:
    """Refuse to remove a directory with a file that belongs to no partition.

    Raises:
        RefusedError: there is such a file.
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
        before = step.before  # moved back already
        is_there = before is not None and has_bytes_of(step.path, before)
    else:
        is_there = has_whole_backup(found, step)
    if not is_there:
        raise RefusedError(
            f"{found.backup_path(step)}: is not what was kept of {step.path}",
            next_step="get that file back from elsewhere",
        )


def _require_session(path: str) -> None:
    """Refuse other kinds of files, because a journal may come from elsewhere."""
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


# --- restoring ------------------------------------------------------------------------------------


def restore(fs: FileSystem, found: Journal, on_bytes: Callable[[int], None]) -> None:
    """Restore everything except the clean-shutdown markers. It may run twice.

    Raises:
        AccessError, RefusedError: it failed.
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
    """Restore the clean-shutdown markers, when all else is durable. Raises as `restore`."""
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
    # A file restored in place may not be durable: an undo was killed.
    if is_in_place or not is_still(step.path, step.before):
        revert(fs, found, step, on_bytes)


def _remove_new_files(fs: FileSystem, found: Journal) -> None:
    """Remove from the last segment backwards, each durably, so that the rest is always a log."""
    made = _appends_of(found).new_directories
    paths = [each for each in new_files(found) if str(Path(each).parent) not in made]
    by_segment: dict[tuple[str, int], list[str]] = {}
    for each in paths:
        name = classify(Path(each).name)
        # The snapshot at the end of a segment is removed with the next segment.
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


# -- undo


class Undone(NamedTuple):
    """The result of an undo.

    `unlike` are further partitions of the same log dirs that were changed since. The clean-shutdown
    marker would vouch for them, so it was not restored.
    """

    journal: Journal
    unlike: tuple[str, ...]


def undo(fs: FileSystem, path: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> Undone:
    """Undo a plan. Requires the locks of its log dirs. An undone plan stays undone.

    Args:
        fs: changes files.
        path: the directory of its journal.
        on_bytes: called with the number of bytes copied back.

    Raises:
        RefusedError: something was changed since, a later plan is still applied, or there is no
            backup. Nothing is touched.
        AccessError, CorruptError: the journal or a file cannot be used. The next step says what
            is left.
    """
    found = journal.read_journal(path)
    if found.status is Status.UNDONE:
        with stating("the plan is undone"):
            require_in_reach(found.touched_directories, found.log_dirs)
            listing.clear_unfinished(fs, found)
            _restore_times(fs, found)
        return Undone(found, ())
    with stating("nothing was touched"):
        states = check_undo(found)
        unlike = tuple(
            each for each, digest in found.neighbours.items() if _is_unlike(found, each, digest)
        )
    with stating(f"the undo is unfinished: eoctl undo {pasted(found.path)} completes it"):
        listing.set_unfinished(fs, found)
        was_interrupted = found.status is Status.UNDOING
        if not was_interrupted:
            found = journal.note_status(fs, found, Status.UNDOING)
        remove_leftovers(fs, found)
        if found.appends is not None:
            restore(fs, found, on_bytes)
            if not unlike:
                restore_markers(fs, found, on_bytes)
        else:
            steps = [(each, states[each.path]) for each in reversed(found.steps)]
            for has_markers in (False, True)[: 1 if unlike else 2]:
                _revert(
                    fs, found, steps, on_bytes,
                    was_interrupted=was_interrupted, has_markers=has_markers,
                )  # fmt: skip
        found = journal.note_status(fs, found, Status.UNDONE)
    with stating("the plan is undone"):
        listing.clear_unfinished(fs, found)
        _restore_times(fs, found)
    return Undone(found, unlike)


def _is_unlike(found: Journal, directory: str, digest: str) -> bool:
    """Return whether an untouched partition may have changed since the plan was applied."""
    if directory in found.directories:
        return False
    return digest == UNREADABLE or listing_digest(directory) != digest


def _revert(
    fs: FileSystem,
    found: Journal,
    steps: Iterable[tuple[JournalStep, StepState]],
    on_bytes: Callable[[int], None],
    *,
    was_interrupted: bool,
    has_markers: bool,
) -> None:
    """Undo all steps except the markers, or only these: with one a broker trusts all files."""
    directories: dict[str, None] = {}
    for step, state in steps:
        if is_clean_marker(step.path) is not has_markers:
            continue
        directories[str(Path(step.path).parent)] = None
        if step.backup_kind is BackupKind.LINK:
            directories[found.path] = None  # the backup is moved out of it
        # A restored truncated file may not be durable: an earlier undo was killed.
        is_sure = state is StepState.BEFORE and (
            step.action is not Action.TRUNCATE or not was_interrupted
        )
        if not is_sure:
            revert(fs, found, step, on_bytes)
    made_directories = found.made_directories
    for directory in directories:
        if directory not in made_directories:  # removed by the undo
            fsio.sync_dir(fs, directory)


def check_undo(found: Journal, later: Sequence[Journal] = ()) -> dict[str, StepState]:
    """Check that a plan can be undone, and return the state of each of its steps by path.

    Args:
        found: its journal.
        later: the journals that are undone first, the newest first. They passed this check.

    Raises:
        RefusedError: as `undo`.
        AccessError: a file cannot be read.
    """
    require_undo(found)
    require_in_reach(found.touched_directories, found.log_dirs)
    restored = Restored(later)
    if not any(unfinished_path(each) in restored.journals for each in found.log_dirs):
        listing.require_no_other(found)
    _require_newest(found, restored.journals)
    if found.appends is not None:
        check(found, restored)
        return {}
    states = {each.path: _state_after(restored, found, each) for each in found.steps}
    steps = [(each, states[each.path]) for each in found.steps]
    if found.status is Status.APPLIED:
        # Any file not in its later state was changed, even if somebody restored the old file.
        steps = [(e, s if s is StepState.AFTER else StepState.CHANGED) for e, s in steps]
    require_untouched(found, steps, restored.list_files)
    for directory in sorted(found.made_directories):
        require_no_strangers(directory)
    for each in found.steps:
        is_needed = states[each.path] is not StepState.BEFORE or found.status is Status.UNDOING
        if is_needed and not _has_old_bytes(found, each, states[each.path]):
            raise RefusedError(
                f"{found.backup_path(each)}: is not what was kept of {each.path}",
                next_step="get that file back from elsewhere",
            )
    return states


def _state_after(restored: Restored, found: Journal, step: JournalStep) -> StepState:
    """Return the state of a step when the later changes are undone."""
    if not restored.is_changed(step.path):
        return state_of(found, step)
    now = restored.size_and_time(step.path)
    is_removed = step.action is Action.REMOVE
    is_after = now is None if is_removed else now == (step.after_bytes, step.after_mtime_ns)
    return StepState.AFTER if is_after else StepState.CHANGED


def moved_back(log_dir: str) -> str:
    """Return the step that lets a journal be undone whose log dir is elsewhere now."""
    return f"move the log dir back to {pasted(log_dir)}, where the change was applied"


def require_undo(found: Journal) -> None:
    """Refuse an impossible undo: this plan, or a later applied plan, has no backup.

    Raises:
        RefusedError: the undo is impossible.
        AccessError: its place cannot be listed, or a log dir is not where the change was applied.
    """
    for each in found.log_dirs:
        if not Path(each).is_dir():
            error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise AccessError(error, each, next_step=moved_back(each))
    if not found.has_backup:
        raise RefusedError(f"{found.path}: was applied without a backup, so it cannot be undone")
    if later := later_without_backup(found):
        raise RefusedError(
            f"{found.path}: a later plan for the same log dir was applied without a backup, so "
            f"nothing before it can be undone: {later}",
            next_step=f"what this one replaced is kept in {found.path}: copy from there by hand",
        )


def _has_old_bytes(found: Journal, step: JournalStep, state: StepState) -> bool:
    if state is StepState.BEFORE and step.action is not Action.TRUNCATE:
        return True  # moved back already
    return has_whole_backup(found, step)


def _require_newest(found: Journal, undone: Collection[str]) -> None:
    """Refuse if a later plan is applied: plans are undone in reverse order."""
    if later := later_applied(found, undone):
        raise RefusedError(
            f"{found.path}: a later plan for the same log dir is applied: {later}",
            next_step=f"eoctl undo {pasted(later)}   # first",
        )


def _restore_times(fs: FileSystem, found: Journal) -> None:
    """Restore the times of directories whose files are as before."""
    made_directories = found.made_directories
    for path, facts in found.directories.items():
        if path in made_directories or list_files(path) != facts.files:
            continue
        real = os.path.realpath(path)
        with os_errors(path), fs.open_dir(real) as directory:
            fs.set_times(directory, atime_ns=facts.mtime_ns, mtime_ns=facts.mtime_ns)
